//! PyTorch's `libc10_cuda.so`: how much each tensor asked for, by the marks that its authors left (2.2 and later).
//!
//! Owns: the sites for them. Because: what the allocator reports of itself is what it gave out, which is more than was asked
//! for; and with caching switched off it reports nothing. Does not: ask twice: the stack is taken with the report, where this
//! library makes any.
//!
//! | mark | arguments | becomes |
//! |---|---|---|
//! | `pytorch:malloc` | address, number of the device, bytes, stream | [`TensorEvent::Request`]; [`TensorEvent::Alloc`] where nothing is reported |
//! | `pytorch:free` | address | [`TensorEvent::Free`] |
//!
//! Reports come through `c10::reportMemoryUsageToProfiler` in `libc10.so`, whose rows stand in the catalogue.

use std::borrow::Cow;

use deepctx_address_space::FileOffset;
use deepctx_events::{Event, Family, Role, TensorEvent};

use super::Answers;
use crate::abi::Argument;
use crate::catalogue::{Row, allocator_rows};
use crate::entry::{self, Cost, Kernel, NoPoint, Point};
use crate::image::{Image, Source};
use crate::reason::NoProbe;
use crate::site::Site;
use crate::usdt::{self, Mark};

const PROVIDER: &str = "pytorch";
const MALLOC: &str = "pytorch:malloc";
const FREE: &str = "pytorch:free";
/// Bytes of the instruction at a mark: the longest there is.
const CODE_BYTES: u64 = 15;

/// The sites of this library.
pub(crate) fn look<S: Source + ?Sized>(image: Result<&Image<'_, S>, NoProbe>, kernel: Kernel) -> Answers {
    let mut answers = Answers::default();
    let image = match image {
        Ok(image) => image,
        Err(because) => {
            answers.lacking = vec![(lacking(MALLOC), because)];
            return answers;
        }
    };
    let reports = allocator_rows().iter().filter(|row| row.event == Event::Tensor(TensorEvent::Report));
    let reported = reports.flat_map(|row| row.names.iter()).any(|name| image.imports(&name.symbol));
    let given =
        if reported { Event::Tensor(TensorEvent::Request) } else { Event::Tensor(TensorEvent::Alloc) };
    let marks = usdt::marks(image);
    for (name, symbol, event, roles) in [
        ("malloc", MALLOC, given, &[Role::Address, Role::Device, Role::Bytes][..]),
        ("free", FREE, Event::Tensor(TensorEvent::Free), &[Role::Address][..]),
    ] {
        let mut found = false;
        for mark in marks.iter().filter(|mark| mark.provider == PROVIDER && mark.name == name) {
            found = true;
            match site(image, kernel, mark, event, symbol, roles) {
                Ok(site) => answers.sites.push(site),
                Err(because) => answers.lacking.push((lacking(symbol), because)),
            }
        }
        if !found {
            answers.lacking.push((lacking(symbol), NoProbe::NotMarked));
        }
    }
    // Half of the places would give wrong sums.
    if !answers.lacking.is_empty() {
        answers.sites.clear();
    }
    answers
}

fn site<S: Source + ?Sized>(
    image: &Image<'_, S>,
    kernel: Kernel,
    mark: &Mark,
    event: Event,
    symbol: &'static str,
    roles: &[Role],
) -> Result<Site, NoProbe> {
    let placed = |(role, argument): (&Role, Option<&Option<_>>)| {
        let (scalar, place) = (*argument?)?;
        Some(Argument { role: *role, name: Cow::Borrowed(role.key()), scalar, place })
    };
    let arguments = roles.iter().enumerate().map(|(at, role)| (role, mark.arguments.get(at)));
    let arguments: Option<Vec<Argument>> = arguments.map(placed).collect();
    let arguments = arguments.ok_or(NoProbe::NotCalibrated)?;
    let (entry, code) = image.code(mark.at, CODE_BYTES).ok_or(NoProbe::NotCode)?;
    let counter = match mark.semaphore {
        Some(at) => Some(image.variable(at, 2).ok_or(NoProbe::NotCalibrated)?),
        None => None,
    };
    Ok(Site {
        row: row(event, symbol, arguments),
        symbol: symbol.to_owned(),
        aliases: Vec::new(),
        version: None,
        svma: mark.at,
        entry,
        offset: FileOffset(entry.0),
        point: point(&code, kernel)?,
        counter,
    })
}

/// The very instruction, however the kernel gets past it: behind it the arguments may be elsewhere.
fn point(code: &[u8], kernel: Kernel) -> Result<Point, NoProbe> {
    match entry::choose(code, true, &[], kernel) {
        Ok(point) if point.offset == 0 => Ok(point),
        Ok(_) => Ok(Point { offset: 0, frame: 0, cost: Cost::Stepped(entry::Because::NoneInReach) }),
        Err(NoPoint::NotAnInstruction) => Err(NoProbe::NotAnInstruction),
        Err(NoPoint::Refused) => Err(NoProbe::Refused),
    }
}

/// A mark that is not used: whatever it would tell, what is missing is the same.
fn lacking(symbol: &'static str) -> Row {
    row(Event::Tensor(TensorEvent::Request), symbol, Vec::new())
}

fn row(event: Event, symbol: &'static str, arguments: Vec<Argument>) -> Row {
    let mut row = Row::calibrated(event, &[symbol], arguments);
    row.family = Family::C10Cuda;
    row
}
