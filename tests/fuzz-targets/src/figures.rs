//! Well-formed records with arbitrary values, in any order: what programs and collectors could send.
//!
//! Arbitrary bytes seldom form a complete record. Here each operation is one byte and each of its values is one byte,
//! many of them at the edge of a number's range. Beyond "no panic, no hang, bounded memory", with checked arithmetic:
//! every record is accounted for, and the profile can be reported. Counters of the kernel programs are not fuzzed: only
//! those programs write them.

use deepctx_analysis::{Report, Selection, Subset, render};
use deepctx_common::Plain as _;
use deepctx_common::activity::{Activity, probe};
use deepctx_common::call::{Call, Correlation, Message, Return};
use deepctx_common::record::{ProcessEvent, RecordHeader, StackSample, Wake, kind, word};
use deepctx_pipeline::input::{DutyWindow, Input, SiteInfo, SpaceUpdate};
use deepctx_pipeline::system::{SystemSample, SystemValue};
use deepctx_pipeline::{Config, Pipeline, encode};
use deepctx_profile::Metric;
use deepctx_profile::ledger::CheckTime;
use deepctx_profile::profile::Meta;
use deepctx_profile::units::Nanos;
use deepctx_uprobes::rows;

use crate::calls::NoNames;

/// Limit on operations per input: the longest takes tens of milliseconds.
const OPERATIONS_MAX: usize = 2_000;
/// Values at which sums, differences and products overflow.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    999,
    1_000_000_000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 52,
    1 << 53,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX / 3,
    u64::MAX - 1,
    u64::MAX,
];

/// Reads values from an input; zeros after its end.
struct Figures<'a> {
    data: &'a [u8],
    sequences: [u64; 2],
}

impl Figures<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.data.split_first() else { return 0 };
        self.data = rest;
        *first
    }

    /// Small numbers, and edges plus or minus a small offset.
    fn number(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..=127 => u64::from(byte),
            byte @ 128..=191 => EDGES[usize::from(byte & 15)],
            byte @ 192..=223 => EDGES[usize::from(byte & 15)].wrapping_add(u64::from(self.byte())),
            byte => EDGES[usize::from(byte & 15)].wrapping_sub(u64::from(self.byte())),
        }
    }

    fn numbers<const N: usize>(&mut self) -> [u64; N] {
        std::array::from_fn(|_| self.number())
    }

    fn small(&mut self) -> u32 {
        self.number() as u32
    }

    /// One of few processes or threads, so that records refer to each other.
    fn who(&mut self) -> u32 {
        u32::from(self.byte() % 4) + 1
    }

    fn header(&mut self, kind: u16) -> RecordHeader {
        let cpu = self.byte() % 2;
        let sequence = &mut self.sequences[usize::from(cpu)];
        *sequence += 1;
        RecordHeader { size: 0, kind, cpu: u16::from(cpu), sequence: *sequence, time_ns: self.number() }
    }

    fn stack(&mut self, kind: u16) -> StackSample {
        StackSample {
            header: self.header(kind),
            pid: self.who(),
            tid: self.who(),
            period: self.number(),
            stop_pc: self.number(),
            native_end: self.byte() % 40,
            python_end: self.byte() % 20,
            flags: self.byte(),
            ..StackSample::default()
        }
    }

    fn words(&mut self) -> Vec<u64> {
        let count = self.byte() % 6;
        (0..count).map(|_| word::tagged(u64::from(self.byte() % 6), self.number())).collect()
    }

    fn activity(&mut self) -> Activity {
        let [grid, block] = [(); 2].map(|()| std::array::from_fn(|_| self.small()));
        Activity {
            kind: self.byte() % 8,
            flags: self.byte(),
            detail: self.byte(),
            memory: self.byte(),
            correlation: self.who(),
            start_ns: self.number(),
            end_ns: self.number(),
            device: self.small(),
            context: self.small(),
            stream: self.small(),
            graph: self.small(),
            node: self.number(),
            name: self.number(),
            bytes: self.number(),
            grid,
            block,
            registers: self.small(),
            static_shared: self.small(),
            dynamic_shared: self.small(),
            peer: self.small(),
            queued_ns: self.number(),
        }
    }
}

fn sites() -> Vec<SiteInfo> {
    let site = |(site, row): (u32, &deepctx_uprobes::Row)| SiteInfo {
        site,
        event: row.event,
        symbol: row.names[0].symbol.clone().into_owned(),
        family: row.family,
        roles: row.arguments().iter().map(|argument| argument.role).collect(),
    };
    (0..).zip(rows()).map(site).collect()
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let config = Config { mapping_lookahead_ns: 0, launches: 64, waiting_records: 256, ..Config::default() };
    let mut pipeline = Pipeline::new(NoNames, Meta::default(), config);
    let sites = sites();
    pipeline.feed(Input::Sites(sites.clone()));
    let mut figures = Figures { data, sequences: [0; 2] };
    for _ in 0..OPERATIONS_MAX {
        if figures.data.is_empty() {
            break;
        }
        match figures.byte() % 19 {
            16 => pipeline.advance(figures.number()),
            operation => pipeline.feed(input(operation, &mut figures, &sites)),
        }
    }
    pipeline.finish();
    let profile = pipeline.profile();
    profile.ledger.check(CheckTime::Finished).expect("every record is accounted for");
    let subset = Subset::new(profile, &Selection::of(Metric::CpuTime));
    let report = Report::compute(&subset, Nanos(1_000_000_000));
    let names = render::text::Names::Short;
    render::text::write_all(&report, names, &mut Vec::new()).expect("memory takes everything");
}

fn input(operation: u8, figures: &mut Figures<'_>, sites: &[SiteInfo]) -> Input<()> {
    match operation {
        0..=11 => {
            let mut bytes = Vec::new();
            for _ in 0..=figures.byte() % 8 {
                record(operation, figures, sites, &mut bytes);
            }
            Input::Records(bytes)
        }
        12 => Input::SiteCounts((0..figures.byte() % 32).map(|_| figures.number()).collect()),
        13 => Input::CallsEnd(figures.number()),
        14 => Input::DutyWindow(DutyWindow {
            time_ns: figures.number(),
            watched: figures.byte().is_multiple_of(2),
            ..DutyWindow::default()
        }),
        15 => {
            let resources = ["cpu 0", "cpu 1", "disk sda", "machine"];
            let metrics = ["busy", "read-bytes", "memory-used", "sent-bytes"];
            let mut pick = |names: [&str; 4]| names[usize::from(figures.byte() % 4)].to_owned();
            let (resource, metric) = (pick(resources), pick(metrics));
            let [from_ns, to_ns, value] = figures.numbers();
            Input::System(SystemSample {
                from_ns,
                to_ns,
                values: vec![SystemValue { resource, metric, value }],
            })
        }
        17 => Input::Space(SpaceUpdate {
            pid: figures.who(),
            time_ns: figures.number(),
            name: "p".into(),
            maps: (),
        }),
        _ if figures.byte().is_multiple_of(2) => Input::Sites(sites.to_vec()),
        _ => Input::SitesFreed((0..figures.byte() % 32).map(|_| figures.small() % 256).collect()),
    }
}

fn record(operation: u8, figures: &mut Figures<'_>, sites: &[SiteInfo], out: &mut Vec<u8>) {
    match operation {
        0 | 1 => {
            let fixed = figures.stack(if operation == 0 { kind::SAMPLE } else { kind::BLOCK });
            let (kernel, user) = (figures.words(), figures.words());
            encode::sample(out, &fixed, &kernel, &user);
        }
        2 => wake(figures, out),
        3 => {
            let kinds = [kind::FORK, kind::EXEC, kind::EXIT, kind::MAP];
            let kind = kinds[usize::from(figures.byte() % 4)];
            let header = figures.header(kind);
            let (pid, parent) = (figures.who(), figures.who());
            encode::process_event(out, &ProcessEvent { header, pid, parent, comm: encode::comm("p") });
        }
        4..=7 => call(figures, sites, out),
        8 => {
            let header = figures.header(kind::RETURN);
            let [call, entered_ns, result, out_value] = figures.numbers();
            let site = &sites[figures.small() as usize % sites.len()];
            let (pid, tid, flags) = (figures.who(), figures.who(), u16::from(figures.byte()));
            let event = site.event.number();
            let site = site.site;
            encode::call_return(
                out,
                &Return { header, pid, tid, call, entered_ns, result, out: out_value, site, event, flags },
            );
        }
        9 => {
            let header = figures.header(kind::CORRELATION);
            let (call, correlation) = (figures.number(), figures.who());
            let (pid, tid, api) = (figures.who(), figures.who(), figures.small());
            encode::correlation(out, &Correlation { header, pid, tid, call, correlation, api });
        }
        10 => {
            let head = message(figures, probe::ACTIVITIES);
            let activities: Vec<Activity> = (0..figures.byte() % 4).map(|_| figures.activity()).collect();
            encode::activities(out, &head, &activities);
        }
        _ => {
            let what = u16::from(figures.byte() % 11);
            let head = message(figures, what);
            let bytes: Vec<u8> =
                (0..figures.byte() % 40).flat_map(|_| figures.number().as_bytes().to_vec()).collect();
            encode::message(out, &head, &bytes);
        }
    }
}

fn wake(figures: &mut Figures<'_>, out: &mut Vec<u8>) {
    let header = figures.header(kind::WAKE);
    let [began_ns, woken_ns] = figures.numbers();
    let (pid, tid, stack, waker) = (figures.who(), figures.who(), figures.byte(), figures.byte());
    let (stack, waker) = (u32::from(stack % 4), u32::from(waker % 5));
    let (waker_pid, waker_tid) = (figures.who(), figures.who());
    let wake =
        Wake { header, pid, tid, began_ns, stack, waker, woken_ns, waker_pid, waker_tid, ..Wake::default() };
    encode::wake(out, &wake);
}

fn message(figures: &mut Figures<'_>, what: u16) -> Message {
    let header = figures.header(kind::MESSAGE);
    let (pid, tid, values) = (figures.who(), figures.who(), figures.numbers());
    Message { header, pid, tid, what, values, ..Message::default() }
}

fn call(figures: &mut Figures<'_>, sites: &[SiteInfo], out: &mut Vec<u8>) {
    let mut fixed = figures.stack(kind::CALL);
    // Few numbers, so that returns and ids match calls.
    fixed.period = figures.number();
    let site = &sites[figures.small() as usize % sites.len()];
    let arguments: Vec<u64> = site.roles.iter().map(|_| figures.number()).collect();
    let call = Call {
        site: site.site,
        event: site.event.number(),
        flags: u16::from(figures.byte()),
        unread: figures.small(),
        ..Call::default()
    };
    let (kernel, user) = (figures.words(), figures.words());
    let text = ["", "_Z4gemmPf", "Optimizer.step#SGD", "aten::mm", "a;b\u{1b}"];
    let text = text[usize::from(figures.byte()) % text.len()];
    encode::call(out, &fixed, &kernel, &user, &call, &arguments, text.as_bytes());
}
