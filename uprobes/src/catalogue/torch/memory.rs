//! PyTorch's `libc10_cuda.so`: the bytes that each tensor requested, from PyTorch's own USDT probes (2.2 and later).
//!
//! Owns: the sites for them. Because: the allocator reports the allocated size, which is more than was requested, and
//! with caching off it reports nothing. Does not: take two stacks: if this library reports, that stack is enough.
//!
//! | probe | arguments | becomes |
//! |---|---|---|
//! | `pytorch:malloc` | address, number of the device, bytes, stream | [`TensorEvent::Request`]; [`TensorEvent::Alloc`] where nothing is reported |
//! | `pytorch:free` | address | [`TensorEvent::Free`] |
//!
//! Reports come through `c10::reportMemoryUsageToProfiler` in `libc10.so`, whose rows are in `allocator.rs`.

use deepctx_events::{Event, Family, Role, TensorEvent};

use super::allocator;
use crate::abi::Argument;
use crate::locate::elf::{ByteSource, Image};
use crate::locate::instruction::{self, Kernel, NotEmulated, ProbeCost, ProbePoint};
use crate::locate::reason::NoProbe;
use crate::locate::site::{MissingProbe, ProbePlan, Site};
use crate::locate::usdt::{self, UsdtProbe};
use crate::row::Row;

const PROVIDER: &str = "pytorch";
const MALLOC: &str = "pytorch:malloc";
const FREE: &str = "pytorch:free";
/// Bytes of the longest instruction.
const CODE_BYTES: u64 = 15;

/// The sites of this library.
pub(crate) fn plan<S: ByteSource + ?Sized>(
    image: Result<&Image<'_, S>, NoProbe>,
    kernel: Kernel,
) -> ProbePlan {
    let mut plan = ProbePlan::default();
    let image = match image {
        Ok(image) => image,
        Err(because) => {
            plan.missing = vec![missing(MALLOC, because)];
            return plan;
        }
    };
    let reports = allocator::ROWS.iter().filter(|row| row.event == Event::Tensor(TensorEvent::Report));
    let reported = reports.flat_map(|row| row.names.iter()).any(|name| image.imports(&name.symbol));
    let allocated = if reported { TensorEvent::Request } else { TensorEvent::Alloc };
    let probes = usdt::probes(image);
    for (name, symbol, event, roles) in [
        ("malloc", MALLOC, allocated, &[Role::Address, Role::Device, Role::Bytes][..]),
        ("free", FREE, TensorEvent::Free, &[Role::Address][..]),
    ] {
        let mut found = false;
        for probe in probes.iter().filter(|probe| probe.provider == PROVIDER && probe.name == name) {
            found = true;
            let site = arguments(probe, roles).and_then(|arguments| {
                let row = Row::placed(Family::C10Cuda, Event::Tensor(event), symbol, arguments);
                site(image, kernel, probe, row)
            });
            match site {
                Ok(site) => plan.sites.push(site),
                Err(because) => plan.missing.push(missing(symbol, because)),
            }
        }
        if !found {
            plan.missing.push(missing(symbol, NoProbe::NotMarked));
        }
    }
    // Half of them would give wrong sums.
    if !plan.missing.is_empty() {
        plan.sites.clear();
    }
    plan
}

/// Arguments read at a probe: its first ones.
fn arguments(probe: &UsdtProbe, roles: &[Role]) -> Result<Vec<Argument>, NoProbe> {
    let argument = |(at, role): (usize, &Role)| {
        let (scalar, location) = (*probe.arguments.get(at)?)?;
        Some(Argument::new(*role, scalar, location))
    };
    roles.iter().enumerate().map(argument).collect::<Option<_>>().ok_or(NoProbe::NotCalibrated)
}

fn site<S: ByteSource + ?Sized>(
    image: &Image<'_, S>,
    kernel: Kernel,
    probe: &UsdtProbe,
    row: Row,
) -> Result<Site, NoProbe> {
    let (entry, code) = image.code(probe.at, CODE_BYTES).ok_or(NoProbe::NotCode)?;
    let counter = match probe.semaphore {
        Some(at) => Some(image.variable(at, 2).ok_or(NoProbe::NotCalibrated)?),
        None => None,
    };
    Ok(Site {
        symbol: row.names[0].symbol.clone().into_owned(),
        row,
        aliases: Vec::new(),
        version: None,
        svma: probe.at,
        entry,
        offset: entry,
        point: point(&code, kernel)?,
        counter,
    })
}

/// Exactly this instruction, whatever it costs: after it the arguments may be elsewhere.
fn point(code: &[u8], kernel: Kernel) -> Result<ProbePoint, NoProbe> {
    let point = instruction::choose(code, true, &[], kernel)?;
    if point.offset == 0 {
        return Ok(point);
    }
    Ok(ProbePoint { offset: 0, frame: 0, cost: ProbeCost::Stepped(NotEmulated::NoneInReach) })
}

/// A probe that is not used: whichever it is, the profile lacks the same data.
fn missing(symbol: &'static str, because: NoProbe) -> MissingProbe {
    let row = Row::placed(Family::C10Cuda, Event::Tensor(TensorEvent::Request), symbol, Vec::new());
    MissingProbe::of(row, because)
}
