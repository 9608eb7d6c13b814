//! Sites: turns a planned probe into what the kernel program must know about it, and what the pipeline must.
//!
//! Owns: which calls get a stack, which returns are probed, and the recipe for each argument. Because: a probe costs
//! the target's time, so the program does only what is needed there. Does not: attach.

use deepctx_common::activity::probe;
use deepctx_common::call::{self, ARGUMENTS_MAX, Fetch, NO_TEXT, fetch_base, site_flag};
use deepctx_events::{
    AutogradEvent, CollectiveCall, CuptiEvent, Event, GpuCall, GraphCall, ModuleCall, OperatorEvent,
    RangeEvent, Role, TensorEvent,
};
use deepctx_uprobes::abi::{Argument, Location, Register};
use deepctx_uprobes::{ProbeRequest, ReturnProbe, Site};

use deepctx_pipeline::input::SiteInfo;

/// A site for the kernel program, and its description for everyone else.
pub(crate) fn describe(index: u32, planned: &Site) -> (call::Site, SiteInfo) {
    let row = &planned.row;
    let mut site = call::Site {
        event: row.event.number(),
        flags: flags(row.event, row.returns),
        frame: u32::from(planned.point.frame),
        ..call::Site::default()
    };
    let borrows = site.flags & site_flag::BORROW != 0;
    let wanted: Vec<Argument> = if borrows {
        let all = row.arguments();
        [Role::Buffer, Role::Bytes, Role::Out]
            .iter()
            .filter_map(|role| all.iter().find(|argument| argument.role == *role).cloned())
            .collect()
    } else {
        row.arguments().into_iter().filter(|argument| is_worth_fetching(argument.role)).collect()
    };
    let mut roles = Vec::new();
    for argument in wanted {
        let (Some(fetch), Ok(at)) = (recipe(&argument), u8::try_from(roles.len())) else { continue };
        if roles.len() == ARGUMENTS_MAX {
            break;
        }
        site.fetches[roles.len()] = fetch;
        match argument.role {
            Role::Name | Role::Path => site.text = at,
            Role::Out | Role::OutNode if row.returns == ReturnProbe::OutPointer && site.out == NO_TEXT => {
                site.out = at;
            }
            _ => {}
        }
        roles.push(argument.role);
    }
    site.arguments = roles.len() as u8;
    let name =
        SiteInfo { site: index, event: row.event, symbol: planned.symbol.clone(), family: row.family, roles };
    (site, name)
}

/// A site of a collector's message.
pub(crate) fn message(what: u16) -> call::Site {
    debug_assert!(what == probe::SAMPLES || probe::SYMBOLS.iter().any(|(number, _)| *number == what));
    call::Site { event: what, flags: site_flag::MESSAGE, ..call::Site::default() }
}

/// The same site where a collector reports the correlation ids of calls.
pub(crate) fn with_correlation(mut site: call::Site, event: Event) -> call::Site {
    if is_work(event) {
        site.flags |= site_flag::LAUNCH;
    }
    site
}

/// The same site with the stack limit of operators. If all beginnings are probed, an operator's tensors need no stack.
pub(crate) fn of_operator(
    mut site: call::Site,
    event: Event,
    asked: &ProbeRequest,
    per_second: u32,
) -> call::Site {
    if matches!(event, Event::Operator(OperatorEvent::Begins | OperatorEvent::Tensors)) {
        // All operators that enclose it must be seen.
        site.flags |= site_flag::WHOLE;
        site.stacks_per_second = per_second;
        if per_second == 0 || asked.operators && event == Event::Operator(OperatorEvent::Tensors) {
            site.flags &= !site_flag::STACK;
        }
    }
    site
}

/// The same site with its return watched, if a trace of single events has such calls: those of accelerator libraries,
/// except registrations of compiled programs as they start.
pub(crate) fn with_return(mut site: call::Site, event: Event) -> call::Site {
    let registers =
        |call| matches!(call, ModuleCall::FatBinary | ModuleCall::FatBinaryUnload | ModuleCall::FunctionStub);
    match event {
        Event::Gpu(GpuCall::Module(call)) if registers(call) => {}
        Event::Gpu(_) => site.flags |= site_flag::RETURN,
        _ => {}
    }
    site
}

/// True for calls that a collector sees too, and gives an id.
fn is_work(event: Event) -> bool {
    matches!(
        event,
        Event::Gpu(
            GpuCall::Launch(_) | GpuCall::Graph(GraphCall::Launch) | GpuCall::Transfer(_) | GpuCall::Sync(_)
        )
    )
}

fn flags(event: Event, returns: ReturnProbe) -> u16 {
    if event == Event::Cupti(CuptiEvent::Record) {
        return site_flag::BORROW | site_flag::MESSAGE;
    }
    let mut flags = 0;
    if has_stack(event) {
        flags |= site_flag::STACK;
    }
    if returns.is_needed() {
        flags |= site_flag::RETURN;
    }
    flags
}

/// Whether the caller matters. Bookkeeping calls are frequent, and a stack would explain only their own cost.
fn has_stack(event: Event) -> bool {
    match event {
        Event::Gpu(call) => call_has_stack(call),
        Event::Cupti(_) | Event::Xla(_) => false,
        Event::Autograd(event) => event != AutogradEvent::NodeBegins,
        Event::Range(event) => matches!(
            event,
            RangeEvent::Named | RangeEvent::Pushed | RangeEvent::ProfilerStart | RangeEvent::TrainingStep
        ),
        Event::Tensor(event) => matches!(event, TensorEvent::Alloc | TensorEvent::Report),
        Event::Operator(event) => event != OperatorEvent::Named,
        Event::OpenMp(_) | Event::User => true,
    }
}

fn call_has_stack(call: GpuCall) -> bool {
    match call {
        GpuCall::Launch(_)
        | GpuCall::HostFunction
        | GpuCall::Transfer(_)
        | GpuCall::Memory(_)
        | GpuCall::Sync(_)
        | GpuCall::Collective(CollectiveCall::Operation(_)) => true,
        GpuCall::Graph(graph) => matches!(
            graph,
            GraphCall::Launch
                | GraphCall::CaptureBegin
                | GraphCall::CaptureEnd
                | GraphCall::Instantiate
                | GraphCall::Node
        ),
        GpuCall::Stream(_) | GpuCall::Module(_) | GpuCall::Context(_) | GpuCall::Collective(_) => false,
    }
}

/// Pointers to a kernel's own arguments are useless without its signature; of arrays, the elements are fetched.
fn is_worth_fetching(role: Role) -> bool {
    !matches!(
        role,
        Role::Other
            | Role::KernelArguments
            | Role::Extra
            | Role::UserData
            | Role::Dependencies
            | Role::Dependents
    )
}

/// How an argument is fetched; `None` if it cannot be.
fn recipe(argument: &Argument) -> Option<Fetch> {
    let short = |offset: i32| i16::try_from(offset).ok();
    let (base, reads, offsets) = match argument.location {
        Location::Register { register, shift } => (number(register), 0, [i16::from(shift), 0]),
        Location::Stack(bytes) => (fetch_base::ENTRY_STACK, 1, [i16::try_from(bytes).ok()?, 0]),
        Location::BehindRegister { register, offset } => (number(register), 1, [short(offset)?, 0]),
        Location::BehindPointer { register, at, offset } => (number(register), 2, [at, offset]),
        Location::BehindStack { stack, offset } => {
            (fetch_base::ENTRY_STACK, 2, [i16::try_from(stack).ok()?, short(offset)?])
        }
        Location::ThreadLocal(offset) => {
            (fetch_base::THREAD_LOCAL, 1, [offset, i16::from(number(Register::Rdi))])
        }
        Location::Unreadable => return None,
    };
    let scalar = argument.scalar;
    Some(Fetch { base, reads, bytes: scalar.bytes, signed: u8::from(scalar.signed), offsets })
}

/// DWARF number of a register (System V ABI, figure 3.36).
fn number(register: Register) -> u8 {
    match register {
        Register::Rax => 0,
        Register::Rdx => 1,
        Register::Rcx => 2,
        Register::Rbx => 3,
        Register::Rsi => 4,
        Register::Rdi => 5,
        Register::Rbp => 6,
        Register::Rsp => 7,
        Register::R8 => 8,
        Register::R9 => 9,
        Register::R10 => 10,
        Register::R11 => 11,
        Register::R12 => 12,
        Register::R13 => 13,
        Register::R14 => 14,
        Register::R15 => 15,
    }
}

#[cfg(test)]
mod tests {
    use deepctx_symbolizer::{FileOffset, Svma};
    use deepctx_uprobes::locate::instruction::{EmulatedInstruction, ProbeCost, ProbePoint};
    use deepctx_uprobes::rows;

    use super::*;

    fn described(symbol: &str) -> (call::Site, SiteInfo) {
        let row = rows().iter().find(|row| row.names.iter().any(|name| name.symbol == symbol)).unwrap();
        let planned = Site {
            row: row.clone(),
            symbol: symbol.into(),
            aliases: Vec::new(),
            version: None,
            svma: Svma(0),
            entry: FileOffset(0),
            offset: FileOffset(10),
            point: ProbePoint {
                offset: 10,
                frame: 8,
                cost: ProbeCost::Emulated(EmulatedInstruction::ConditionalJump),
            },
            counter: None,
        };
        describe(7, &planned)
    }

    #[test]
    fn launch_arguments_are_fetched_from_registers_and_the_stack() {
        let (site, name) = described("cuLaunchKernel");
        let of = |role| site.fetches[name.roles.iter().position(|other| *other == role).unwrap()];
        let register = |base| Fetch { base, reads: 0, bytes: 4, signed: 0, offsets: [0, 0] };
        assert_eq!(of(Role::GridX), register(4));
        assert_eq!(of(Role::Function).bytes, 8);
        let stack = Fetch { base: fetch_base::ENTRY_STACK, reads: 1, bytes: 4, signed: 0, offsets: [8, 0] };
        assert_eq!(of(Role::BlockZ), stack);
        assert_eq!(of(Role::Stream), Fetch { bytes: 8, offsets: [24, 0], ..stack });
        assert_eq!((site.flags, site.frame, site.text), (site_flag::STACK, 8, NO_TEXT));
        assert!(!name.roles.contains(&Role::KernelArguments));
        assert_eq!(with_correlation(site, name.event).flags, site_flag::STACK | site_flag::LAUNCH);
    }

    #[test]
    fn a_name_is_read_and_a_handle_awaited() {
        let (site, name) = described("cuModuleGetFunction");
        assert_eq!(name.roles[usize::from(site.text)], Role::Name);
        assert_eq!(name.roles[usize::from(site.out)], Role::Out);
        assert_eq!(site.flags, site_flag::RETURN);
    }

    #[test]
    fn borrowed_records_are_located_by_buffer_size_and_cursor() {
        for symbol in ["cuptiActivityGetNextRecord", "cuptiActivityGetNextRecord_v2"] {
            let (site, name) = described(symbol);
            assert_eq!(name.roles, [Role::Buffer, Role::Bytes, Role::Out], "{symbol}");
            assert_eq!(site.flags, site_flag::BORROW | site_flag::MESSAGE);
        }
    }

    #[test]
    fn every_row_keeps_what_its_event_needs() {
        for row in rows() {
            let (site, name) = described(&row.names[0].symbol);
            let waits = site.flags & site_flag::RETURN != 0;
            if row.returns == ReturnProbe::OutPointer && waits {
                assert_ne!(site.out, NO_TEXT, "{}", name.symbol);
            }
            if row.event.is_launch() && row.arguments().iter().any(|a| a.role == Role::Stream) {
                assert!(name.roles.contains(&Role::Stream), "{}: {:?}", name.symbol, name.roles);
            }
        }
    }
}
