//! Calls of accelerator libraries as text: see the notation in the parent.

use std::collections::BTreeMap;

use deepctx_common::Plain as _;
use deepctx_common::activity::{Activity, flag, kind, probe, state};
use deepctx_common::call::{Call, Correlation, Message, Return, call_flag, return_flag};
use deepctx_common::end::WalkEnd;
use deepctx_common::record::{RecordHeader, StackSample, word};
use deepctx_common::samples::{Cubin, Sample, part};
use deepctx_events::{
    AutogradEvent, Event, Family, OpenMpEvent, OperatorEvent, RangeEvent, Role, TensorEvent, XlaEvent,
};
use deepctx_pipeline::encode;
use deepctx_pipeline::input::{CubinLines, Input, SiteInfo};
use deepctx_uprobes::rows;

use super::{address, header, python_words};

/// Probes and calls of a page so far.
#[derive(Default)]
pub(super) struct Calls {
    sites: Vec<SiteInfo>,
    /// Site and process of each call, by number.
    calls: BTreeMap<u64, (u32, u32, u32)>,
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    }
    .unwrap_or_else(|_| panic!("{text} is no number"))
}

fn who(text: &str) -> (u32, u32) {
    let (pid, tid) = text.split_once('/').unwrap_or((text, text));
    (number(pid) as u32, number(tid) as u32)
}

/// `name=value` for each option.
fn options<'a>(words: &[&'a str]) -> BTreeMap<&'a str, &'a str> {
    words.iter().map(|word| word.split_once('=').unwrap_or_else(|| panic!("{word} is no option"))).collect()
}

impl Calls {
    /// The probe of a catalogue function, and whether it is new.
    fn site(&mut self, symbol: &str) -> (u32, bool) {
        let symbol = &*match symbol.strip_prefix("t.") {
            Some(class) => {
                format!("_ZN3xla3cpu{}{class}Thunk7ExecuteERKNS0_5Thunk13ExecuteParamsE", class.len() + 5)
            }
            None => symbol.to_owned(),
        };
        if let Some(known) = self.sites.iter().find(|site| site.symbol == symbol) {
            return (known.site, false);
        }
        if let Some(info) = located_probe(symbol) {
            let site = self.sites.len() as u32;
            self.sites.push(SiteInfo { site, ..info });
            return (site, true);
        }
        let row = rows().iter().find(|row| row.names.iter().any(|name| name.symbol == symbol));
        let row = row.unwrap_or_else(|| panic!("{symbol} is not in the catalogue"));
        let site = self.sites.len() as u32;
        let roles = row.arguments().iter().map(|argument| argument.role).collect();
        let info = SiteInfo { site, event: row.event, symbol: symbol.to_owned(), family: row.family, roles };
        self.sites.push(info);
        (site, true)
    }

    /// Parses a line; returns the probe that it needs, if new. `None` for other kinds of lines.
    #[expect(clippy::too_many_lines, reason = "one match with an arm for each line of the notation")]
    pub(super) fn line(
        &mut self,
        batch: &mut Vec<u8>,
        numbers: &mut BTreeMap<u16, u64>,
        words: &[&str],
    ) -> Option<Option<SiteInfo>> {
        let [time, what, ref rest @ ..] = *words else { return None };
        let time = number(time);
        match (what, rest) {
            ("call", [call, symbol, process, comm, rest @ ..]) => {
                let (site, new) = self.site(symbol);
                self.call(batch, numbers, time, (number(call), site), who(process), comm, rest);
                return Some(new.then(|| self.sites[site as usize].clone()));
            }
            ("return", [call, rest @ ..]) => {
                let call = number(call);
                let (site, pid, tid) = self.calls.get(&call).copied().unwrap_or((0, 0, 0));
                let options = options(rest);
                let value = |name: &str| options.get(name).map(|value| number(value));
                let event = self.sites.get(site as usize).map_or(0, |site| site.event.number());
                let entered_ns = value("entered").unwrap_or(0);
                let flags = if value("out").is_some() { return_flag::OUT } else { 0 };
                encode::call_return(
                    batch,
                    &Return {
                        header: header(numbers, time, 0),
                        pid,
                        tid,
                        call,
                        entered_ns,
                        result: value("result").unwrap_or(0),
                        out: value("out").unwrap_or(0),
                        site,
                        event,
                        flags,
                    },
                );
            }
            ("correlate", [call, correlation]) => {
                let call = number(call);
                let (_, pid, tid) = self.calls.get(&call).copied().unwrap_or((0, 0, 0));
                let header = header(numbers, time, 0);
                let correlation = number(correlation) as u32;
                encode::correlation(batch, &Correlation { header, pid, tid, call, correlation, api: 0 });
            }
            ("name", [pid, id, name]) => {
                let message = message(numbers, time, pid, probe::NAME, [number(id), 0, 0]);
                encode::message(batch, &message, name.as_bytes());
            }
            ("clock", [pid, device, before, after]) => {
                let values = [number(device), number(before), number(after)];
                encode::message(batch, &message(numbers, time, pid, probe::CLOCK, values), &[]);
            }
            ("node", [process, made, of, kind]) => {
                let values = [number(made), number(of), number(kind)];
                encode::message(batch, &message(numbers, time, process, probe::NODE, values), &[]);
            }
            ("state", [pid, what, n]) => {
                let what = match *what {
                    "collecting" => state::COLLECTING,
                    "idle" => state::IDLE,
                    "busy" => state::BUSY,
                    "lost" => state::LOST,
                    "sampling" => state::SAMPLING,
                    "not-sampling" => state::SAMPLING_REFUSED,
                    "sampling-dropped" => state::SAMPLES_DROPPED,
                    _ => panic!("{what} is no state"),
                };
                let values = [what, number(n), 0];
                encode::message(batch, &message(numbers, time, pid, probe::STATE, values), &[]);
            }
            ("reason", [pid, reason, name]) => {
                let part = u64::from(part::REASON) << 32 | number(reason);
                let message = message(numbers, time, pid, probe::SAMPLES, [part, 0, 0]);
                encode::message(batch, &message, name.as_bytes());
            }
            ("cubin", [pid, crc]) => {
                let cubin = Cubin { crc: number(crc), address: 0x1000, bytes: 100 };
                let part = u64::from(part::CUBIN) << 32;
                let message = message(numbers, time, pid, probe::SAMPLES, [part, 0, 0]);
                encode::message(batch, &message, cubin.as_bytes());
            }
            ("pc", [pid, rest @ ..]) => {
                let message =
                    message(numbers, time, pid, probe::SAMPLES, [u64::from(part::BATCH) << 32, 0, 0]);
                encode::message(batch, &message, sample(rest).as_bytes());
            }
            ("kernel" | "copy" | "fill" | "overhead" | "graph" | "strange", [pid, rest @ ..]) => {
                let message = message(numbers, time, pid, probe::ACTIVITIES, [0; 3]);
                encode::activities(batch, &message, &[activity(what, rest)]);
            }
            ("borrow", [pid, what, rest @ ..]) => {
                let (record, name) = record(what, rest);
                let message = message(numbers, time, pid, probe::BORROWED, [record.len() as u64, 0, 0]);
                encode::message(batch, &message, &[&record, name.as_bytes()].concat());
            }
            _ => return None,
        }
        Some(None)
    }

    #[expect(clippy::too_many_arguments, reason = "a line has this many parts")]
    fn call(
        &mut self,
        batch: &mut Vec<u8>,
        numbers: &mut BTreeMap<u16, u64>,
        time: u64,
        (number_of_call, site): (u64, u32),
        (pid, tid): (u32, u32),
        comm: &str,
        rest: &[&str],
    ) {
        let split = rest.iter().position(|word| *word == ":").unwrap_or(rest.len());
        let (given, frames) = rest.split_at(split);
        let mut given = options(given);
        let text = given.remove("text").unwrap_or("");
        let flags = given.remove("flags").map_or(0, |flags| match flags {
            "limited" => call_flag::STACK_LIMITED,
            flags => number(flags) as u16,
        });
        let cpu = given.remove("cpu").map_or(0, |cpu| number(cpu) as u16);
        let unit = given.remove("unit").unwrap_or("");
        let info = &self.sites[site as usize];
        let mut unread = 0;
        let arguments: Vec<u64> = (0u32..)
            .zip(&info.roles)
            .map(|(at, role)| match given.remove(role.name()) {
                Some("unread") => {
                    unread |= 1 << at;
                    0
                }
                Some(value) => number(value),
                None => match role {
                    Role::NameBytes => text.len() as u64,
                    Role::UnitNameBytes => unit.len() as u64,
                    Role::UnitName => unit.bytes().rev().fold(0, |word, byte| word << 8 | u64::from(byte)),
                    _ => 0,
                },
            })
            .collect();
        assert!(given.is_empty(), "{} has no {:?}", info.symbol, given.keys().collect::<Vec<_>>());
        let cut = frames.last().is_some_and(|word| *word == "gap:no-row");
        let native_end = if cut { WalkEnd::NoRow } else { WalkEnd::Complete } as u8;
        let user: Vec<u64> = match frames {
            // The stack was not requested, or was limited.
            [] | [_] => Vec::new(),
            [_, _, callers @ ..] => std::iter::once(word::tagged(word::EXACT, address("?jit")))
                .chain(callers.iter().flat_map(|name| match python_words(name) {
                    Some(words) => words.to_vec(),
                    None if *name == "gap:no-row" => vec![word::tagged(word::GAP, u64::from(native_end))],
                    None => vec![word::tagged(word::RETURN, address(name))],
                }))
                .collect(),
        };
        let fixed = StackSample {
            header: RecordHeader { ..header(numbers, time, cpu) },
            pid,
            tid,
            comm: encode::comm(comm),
            period: number_of_call,
            native_end,
            ..StackSample::default()
        };
        let call = Call { site, event: info.event.number(), flags, unread, ..Call::default() };
        self.calls.insert(number_of_call, (site, pid, tid));
        encode::call(batch, &fixed, &[], &user, &call, &arguments, text.as_bytes());
    }
}

/// Probes outside of the catalogue, whose arguments are located in the file.
fn located_probe(symbol: &str) -> Option<SiteInfo> {
    use Role::{Address, Bytes, Device, ForwardThread, Handle, Name, PackedDevice, Sequence, StackPointer};
    let mut family = Family::Torch;
    let (event, roles) = match symbol {
        "new" => (Event::Tensor(TensorEvent::Alloc), vec![Address, Bytes]),
        "delete" => (Event::Tensor(TensorEvent::Free), vec![Address]),
        "report" => {
            let totals = [Role::TotalAllocated, Role::TotalReserved];
            (Event::Tensor(TensorEvent::Report), vec![Address, Bytes, totals[0], totals[1], PackedDevice])
        }
        "malloc" | "alone" | "free" => {
            family = Family::C10Cuda;
            match symbol {
                "malloc" => (Event::Tensor(TensorEvent::Request), vec![Address, Device, Bytes]),
                "alone" => (Event::Tensor(TensorEvent::Alloc), vec![Address, Device, Bytes]),
                _ => (Event::Tensor(TensorEvent::Free), vec![Address]),
            }
        }
        "parallel" => {
            family = Family::GnuOpenMp;
            (Event::OpenMp(OpenMpEvent::ParallelBegins), vec![Role::HostFunction, Role::Count])
        }
        symbol if symbol.starts_with("_ZN3xla") => {
            family = Family::Jax;
            let name = [Name, Role::NameBytes, Role::UnitNumber, Role::UnitNameBytes, Role::UnitName];
            (Event::Xla(XlaEvent::ThunkBegins), [&name[..], &[StackPointer, Role::FramePointer]].concat())
        }
        "made" | "made2" => (Event::Autograd(AutogradEvent::NodeCreated), vec![Sequence, ForwardThread]),
        "node" | "node2" => {
            (Event::Autograd(AutogradEvent::NodeBegins), vec![Sequence, ForwardThread, StackPointer])
        }
        "pass" | "pass2" => (Event::Autograd(AutogradEvent::BackwardBegins), vec![StackPointer]),
        "starts" => {
            (Event::Operator(OperatorEvent::Begins), vec![Role::ReturnAddress, StackPointer, Role::Scope])
        }
        "named" => (Event::Range(RangeEvent::Named), vec![Name]),
        "pushed" => (Event::Range(RangeEvent::Pushed), vec![Name, Handle]),
        "message" => (Event::Range(RangeEvent::Pushed), vec![Name, Role::Kind]),
        "popped" => (Event::Range(RangeEvent::Popped), vec![Handle]),
        "start" => (Event::Range(RangeEvent::ProfilerStart), vec![]),
        "stop" => (Event::Range(RangeEvent::ProfilerStop), vec![]),
        "marked" => (Event::Range(RangeEvent::TrainingStep), vec![]),
        "begins" => (Event::Range(RangeEvent::Begins), vec![Handle]),
        "ends" => (Event::Range(RangeEvent::Ends), vec![Handle]),
        _ => return None,
    };
    Some(SiteInfo { site: 0, event, symbol: symbol.to_owned(), family, roles })
}

fn message(numbers: &mut BTreeMap<u16, u64>, time: u64, pid: &str, what: u16, values: [u64; 3]) -> Message {
    let (pid, tid) = who(pid);
    Message { header: header(numbers, time, 0), pid, tid, what, flags: 0, bytes: 0, values }
}

/// A record in CUPTI's layout (`userspace/pipeline/tests/fixtures/cupti_records.tsv`), and its name.
fn record<'a>(what: &str, rest: &[&'a str]) -> (Vec<u8>, &'a str) {
    let mut bytes = vec![0; 160];
    let mut put = |at: usize, size: usize, value: u64| {
        bytes[at..at + size].copy_from_slice(&value.to_ne_bytes()[..size])
    };
    let kernel = what == "kernel";
    put(
        0,
        4,
        match what {
            "kernel" => 10,
            "copy" => 1,
            "api" => 5,
            _ => panic!("{what} is no record"),
        },
    );
    let mut name = "";
    for (option, value) in options(rest) {
        match (what, option) {
            (_, "name") => name = value,
            ("api", "id") => put(32, 4, number(value)),
            ("api", "start") => put(8, 8, number(value)),
            ("api", "end") => put(16, 8, number(value)),
            (_, "id") => put(if kernel { 92 } else { 44 }, 4, number(value)),
            (_, "start") => put(16, 8, number(value)),
            (_, "end") => put(24, 8, number(value)),
            (_, "bytes") => put(8, 8, number(value)),
            (_, "grid") => put(52, 4, number(value)),
            (_, "block") => put(64, 4, number(value)),
            (_, "node") => put(144, 8, number(value)),
            _ => panic!("a record has no {option}"),
        }
    }
    (bytes, name)
}

/// The lines of `_Z4gemmPf`, and what its instructions wait for.
pub(super) fn lines(pid: u32, crc: u64, because: &str) -> Input<String> {
    let functions = [("_Z4gemmPf".to_owned(), vec![(0, 0, 5), (0x20, 0, 9), (0x40, 0, 0)])];
    let waits = [("_Z4gemmPf".to_owned(), vec![(0x30, vec![0x20, 0x10], 0), (0x40, vec![], 1)])];
    let lines = CubinLines { pid, crc, because: because.replace("ok", ""), ..CubinLines::default() };
    Input::Lines(vec![match because {
        "ok" => CubinLines {
            functions: functions.into(),
            files: vec!["/src/gemm.cu".into()],
            waits: waits.into(),
            waits_left_out: 3,
            ..lines
        },
        _ => lines,
    }])
}

fn sample(rest: &[&str]) -> Sample {
    let mut sample = Sample { samples: 1, ..Sample::default() };
    for (option, value) in options(rest) {
        let value = number(value);
        match option {
            "cubin" => sample.cubin = value,
            "name" => sample.function = value,
            "offset" => sample.offset = value,
            "id" => sample.correlation = value as u32,
            "reason" => sample.reason = value as u32,
            "n" => sample.samples = value as u32,
            _ => panic!("a sample has no {option}"),
        }
    }
    sample
}

fn activity(what: &str, rest: &[&str]) -> Activity {
    let kind = match what {
        "kernel" => kind::KERNEL,
        "copy" => kind::COPY,
        "fill" => kind::FILL,
        "graph" => kind::GRAPH,
        "overhead" => kind::OVERHEAD,
        _ => 99,
    };
    let mut activity = Activity { kind, stream: 7, ..Activity::default() };
    for (option, value) in options(rest) {
        let value = number(value);
        match option {
            "id" => activity.correlation = value as u32,
            "start" => activity.start_ns = value,
            "end" => activity.end_ns = value,
            "name" => activity.name = value,
            "node" => (activity.node, activity.graph) = (value, 1),
            "bytes" => activity.bytes = value,
            "detail" => activity.detail = value as u8,
            "stream" => activity.stream = value as u32,
            "device" => activity.device = value as u32,
            "registers" => activity.registers = value as u32,
            "untimed" => activity.flags |= flag::NO_TIMES,
            _ => panic!("an activity has no {option}"),
        }
    }
    activity
}
