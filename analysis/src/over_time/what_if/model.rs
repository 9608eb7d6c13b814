//! Model: begins and ends of calls and work as points, and their dependencies as weighted edges.
//!
//! Owns: [`Model`], how it is built from a window and what edits change in it. Because: one pass over the points in
//! topological order gives their times under any change of weights. Does not: judge accuracy, except for the share left
//! unexplained.
//!
//! | edge | from → to | weight |
//! |---|---|---|
//! | call | begin → end | measured; of a call blocked by work, at most 5 µs |
//! | gap | end of a call → begin of the next one of its thread | measured |
//! | handoff | the last call of another thread → first call, or call after 300 µs without one | measured; a guess |
//! | launch | begin of the call → begin of its work | median of work launched into an idle stream |
//! | stream | end of the work before → begin | median of queued work |
//! | wait, graph | end of the work that is waited for → begin | 1 µs |
//! | sync | end of the work that is waited for → end of the call | measured |
//!
//! No weight is above the measured one. The difference to the measured time is added to the binding edge, so the model
//! without edits is the measured window; for work, this difference is the unexplained part. Not in it: how many
//! launches a queue takes, kernels that share a device, what other ranks do, and who woke whom.

use deepctx_profile::intern::Id;
use deepctx_profile::trace::{DeviceKind, DeviceOp, GraphOrder, HostKind, HostOp, Thread, TraceTime};
use rustc_hash::FxHashMap;

use super::super::intervals::Intervals;
use super::super::ranks::median;
use super::super::window::Window;
use super::Edit;

/// Maximum own time of a blocked call.
const HELD_UP_NS: u64 = 5_000;
/// After this time, a thread without calls has waited for another one.
const HANDOFF_NS: u64 = 300_000;
/// From the end of work to the begin of its dependents.
const WAIT_NS: u64 = 1_000;
/// Maximum delay of a launch into an idle stream.
const LAUNCH_MAX_NS: u64 = 10_000_000;
/// Clock error of a live capture: work may seem to begin this much before its dependency ended.
const CLOCK_NS: i64 = 1_000;
/// Lateness from here on counts as unexplained.
const LATE_NS: i64 = 20_000;

/// Number of a begin or an end.
type TimePoint = u32;

/// Kind of an edge, for edits.
#[derive(Clone, Copy, Debug)]
enum EdgeKind {
    /// A thread from one time to another: a call, or a gap between two.
    Host(Id<Thread>, TraceTime, TraceTime),
    /// Work runs.
    Run(Id<DeviceOp>),
    Launch,
    /// A call is blocked by work.
    Sync(Id<HostOp>),
    Order,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    from: TimePoint,
    to: TimePoint,
    /// Nanoseconds; not below -[`CLOCK_NS`].
    weight: i64,
    /// The difference to the measured time, which the weight does not explain.
    extra: i64,
    kind: EdgeKind,
}

/// The model of a window.
pub(super) struct Model<'w> {
    window: &'w Window<'w>,
    /// Measured times, from the begin of the window.
    times: Vec<u64>,
    /// By their target point, in topological order.
    edges: Vec<Edge>,
    begin: TraceTime,
    unexplained_ns: u64,
    guessed_handoffs: u64,
}

/// Time of a thread between two calls, or before its first one.
struct Gap {
    before: TimePoint,
    to: TimePoint,
    thread: Id<Thread>,
    from: TraceTime,
    until: TraceTime,
}

/// Calls of a window.
#[derive(Default)]
struct Calls {
    /// For each call, including nested ones: begin and end of the outermost one.
    points: FxHashMap<Id<HostOp>, (TimePoint, TimePoint)>,
    /// Ends of calls with their threads, by time.
    ends: Vec<(TraceTime, Id<Thread>, TimePoint)>,
}

impl<'w> Model<'w> {
    /// Builds it; `None` for an empty window.
    pub(super) fn of(window: &'w Window<'w>) -> Option<Self> {
        let host =
            window.of.trace.host.iter().map(|(_, op)| op).filter(|op| is_active(op) && window.has(op.begin));
        let begins = host.map(|op| op.begin).chain(window.device().map(|(_, op)| op.begin));
        let begin = begins.min()?;
        let (times, edges) = (vec![0], Vec::new());
        let mut model = Model { window, times, edges, begin, unexplained_ns: 0, guessed_handoffs: 0 };
        let calls = model.threads();
        model.work(&calls);
        model.sort();
        model.calibrate();
        Some(model)
    }

    pub(super) fn rank(&self) -> u32 {
        self.window.of.rank
    }

    pub(super) fn measured_ns(&self) -> u64 {
        self.times.iter().copied().max().unwrap_or(0)
    }

    pub(super) fn unexplained_ns(&self) -> u64 {
        self.unexplained_ns
    }

    pub(super) fn guessed_handoffs(&self) -> u64 {
        self.guessed_handoffs
    }

    fn point(&mut self, time: TraceTime) -> TimePoint {
        self.times.push((time - self.begin).0);
        self.times.len() as TimePoint - 1
    }

    /// An edge with at most this weight. An edge back in time is not added: the trace contradicts it.
    fn edge(&mut self, from: TimePoint, to: TimePoint, most: u64, kind: EdgeKind) {
        let measured = self.times[to as usize].cast_signed() - self.times[from as usize].cast_signed();
        let least = if matches!(kind, EdgeKind::Order) { -CLOCK_NS } else { 0 };
        if measured >= least {
            let weight = measured.min(i64::try_from(most).unwrap_or(i64::MAX));
            self.edges.push(Edge { from, to, weight, extra: 0, kind });
        }
    }

    /// Threads: their calls, the gaps between, and the times before the first and after the last one.
    fn threads(&mut self) -> Calls {
        let (window, mut calls) = (self.window, Calls::default());
        let (trace, links) = (&window.of.trace, &window.of.links);
        let mut gaps: Vec<Gap> = Vec::new();
        for ops in links.threads() {
            let rows = ops.iter().filter_map(|id| Some((*id, trace.host.get(*id)?)));
            let rows = rows.filter(|(_, op)| is_active(op) && window.has(op.begin));
            // A row without calls neither launches work nor waits: some tools have one that spans the whole trace.
            if !rows.clone().any(|(_, op)| op.kind.is_call()) {
                continue;
            }
            let mut last: Option<(TimePoint, TraceTime)> = None;
            let (mut outer, mut until) = ((0, 0), None);
            let mut active_until = TraceTime::default();
            let mut of_thread = None;
            for (id, op) in rows {
                active_until = active_until.max(op.end());
                let (before, at) = match last {
                    Some(last) => last,
                    None => {
                        let first = (self.point(op.begin), op.begin);
                        // Its cause is unknown, or another thread.
                        let (from, until) = (self.begin, op.begin);
                        gaps.push(Gap { before: 0, to: first.0, thread: op.thread, from, until });
                        last = Some(first);
                        of_thread = Some(op.thread);
                        first
                    }
                };
                if !op.kind.is_call() {
                    continue;
                }
                if until.is_some_and(|until| op.begin < until) {
                    calls.points.insert(id, outer);
                    continue;
                }
                outer = (self.point(op.begin), self.point(op.end()));
                gaps.push(Gap { before, to: outer.0, thread: op.thread, from: at, until: op.begin });
                (last, until) = (Some((outer.1, op.end())), Some(op.end()));
                calls.points.insert(id, outer);
                calls.ends.push((op.end(), op.thread, outer.1));
                self.call(id, &op, outer.0, outer.1);
            }
            if let (Some((before, at)), Some(thread)) = (last, of_thread)
                && active_until > at
            {
                let end = self.point(active_until);
                self.edge(before, end, u64::MAX, EdgeKind::Host(thread, at, active_until));
            }
        }
        calls.ends.sort_unstable_by_key(|(end, ..)| *end);
        for gap in gaps {
            self.gap(&calls, gap);
        }
        calls
    }

    fn call(&mut self, id: Id<HostOp>, op: &HostOp, begin: TimePoint, end: TimePoint) {
        let links = &self.window.of.links;
        let on = links.host_wait(id).and_then(|wait| self.window.of.trace.device.get(wait.on));
        let is_held_up = on.is_some_and(|on| on.end() > op.begin && on.end() <= op.end());
        let most = if is_held_up { HELD_UP_NS } else { u64::MAX };
        self.edge(begin, end, most, EdgeKind::Host(op.thread, op.begin, op.end()));
    }

    /// Time of a thread between two calls, or until its first one: its own, or if long that of the thread with a call
    /// meanwhile.
    fn gap(&mut self, calls: &Calls, gap: Gap) {
        let Gap { before, to, thread, from, until } = gap;
        if (until - from).0 >= HANDOFF_NS || before == 0 {
            let ended = calls.ends.partition_point(|(end, ..)| *end <= until);
            let meanwhile = calls.ends[..ended].iter().rev().take_while(|(end, ..)| *end > from);
            let other = meanwhile.into_iter().find(|(_, other, _)| *other != thread);
            if let Some(&(end, _, other)) = other {
                self.guessed_handoffs += 1;
                return self.edge(other, to, u64::MAX, EdgeKind::Host(thread, end, until));
            }
        }
        self.edge(before, to, u64::MAX, EdgeKind::Host(thread, from, until));
    }

    /// Device work, and the dependencies of work and calls.
    fn work(&mut self, calls: &Calls) {
        let window = self.window;
        let (trace, links) = (&window.of.trace, &window.of.links);
        let mut points: FxHashMap<Id<DeviceOp>, (TimePoint, TimePoint)> = FxHashMap::default();
        let mut before: FxHashMap<Id<DeviceOp>, DeviceOp> = FxHashMap::default();
        let mut last_points: FxHashMap<Id<DeviceOp>, TimePoint> = FxHashMap::default();
        for (_, stream) in window.streams() {
            // The last end of all earlier work; for a graph launch, only the end of all its work counts.
            let mut last: Option<(DeviceOp, TimePoint)> = None;
            for (id, op) in stream {
                let (begin, end) = (self.point(op.begin), self.point(op.end()));
                points.insert(id, (begin, end));
                self.edge(begin, end, u64::MAX, EdgeKind::Run(id));
                let of_graph = !matches!(links.graph_order(id), GraphOrder::Unknown);
                if let Some((earlier, point)) = last
                    && !(of_graph && earlier.correlation == op.correlation)
                {
                    before.insert(id, earlier);
                    last_points.insert(id, point);
                }
                if last.is_none_or(|(earlier, _)| earlier.end() <= op.end()) {
                    last = Some((op, end));
                }
            }
        }
        let medians = Medians::of(window, &before);
        for (id, op) in window.device() {
            let Some((begin, _)) = points.get(&id).copied() else { continue };
            let call = links.launch(id).call().and_then(|call| calls.points.get(&call));
            match call {
                Some((launch, _)) => self.edge(*launch, begin, medians.launch(op.kind), EdgeKind::Launch),
                // Its dependency is unknown: it begins at the measured time.
                None => self.edge(0, begin, u64::MAX, EdgeKind::Order),
            }
            if let Some(earlier) = last_points.get(&id) {
                self.edge(*earlier, begin, medians.stream(op.kind), EdgeKind::Order);
            }
            if let Some((_, on)) = links.device_wait(id).and_then(|wait| points.get(&wait.on)) {
                self.edge(*on, begin, WAIT_NS, EdgeKind::Order);
            }
        }
        self.graphs(&points);
        for (call, (_, end)) in &calls.points {
            let wait = links.host_wait(*call);
            if let (Some(op), Some((_, on))) =
                (trace.host.get(*call), wait.and_then(|wait| points.get(&wait.on)))
                && self.times[*on as usize] > (op.begin - self.begin).0
            {
                self.edge(*on, *end, u64::MAX, EdgeKind::Sync(*call));
            }
        }
    }

    /// Edges of graphs, in each launch.
    fn graphs(&mut self, points: &FxHashMap<Id<DeviceOp>, (TimePoint, TimePoint)>) {
        let trace = &self.window.of.trace;
        if trace.graph_edges.is_empty() {
            return;
        }
        let mut nodes: FxHashMap<(u64, u64), (TimePoint, TimePoint)> = FxHashMap::default();
        let mut launches: FxHashMap<u64, Vec<u64>> = FxHashMap::default();
        for (id, op) in self.window.device().filter(|(_, op)| op.graph_node != 0 && op.correlation != 0) {
            if let Some(at) = points.get(&id) {
                nodes.insert((op.correlation, op.graph_node), *at);
                launches.entry(op.graph_node).or_default().push(op.correlation);
            }
        }
        for (_, edge) in trace.graph_edges.iter() {
            for launch in launches.get(&edge.to).into_iter().flatten() {
                let ends = (nodes.get(&(*launch, edge.from)), nodes.get(&(*launch, edge.to)));
                if let (Some((_, from)), Some((to, _))) = ends {
                    self.edge(*from, *to, WAIT_NS, EdgeKind::Order);
                }
            }
        }
    }

    /// Sorts the edges topologically: all edges to a point precede those from it. If points of one moment wait for each
    /// other, which no program does, the earliest loses its incoming edges.
    fn sort(&mut self) {
        let points = self.times.len();
        let mut leaving: Vec<Vec<u32>> = vec![Vec::new(); points];
        let mut waits = vec![0_u32; points];
        for (number, edge) in self.edges.iter().enumerate() {
            leaving[edge.from as usize].push(number as u32);
            waits[edge.to as usize] += 1;
        }
        let mut ready: Vec<usize> = (0..points).filter(|point| waits[*point] == 0).collect();
        let mut by_time: Vec<usize> = (0..points).collect();
        by_time.sort_by_key(|point| self.times[*point]);
        let mut by_time = by_time.into_iter();
        let mut done = vec![false; points];
        let mut sorted = Vec::with_capacity(self.edges.len());
        while let Some(point) = ready.pop().or_else(|| by_time.find(|point| !done[*point])) {
            if std::mem::replace(&mut done[point], true) {
                continue;
            }
            for number in &leaving[point] {
                let edge = self.edges[*number as usize];
                let to = edge.to as usize;
                if done[to] {
                    continue;
                }
                sorted.push(edge);
                waits[to] -= 1;
                if waits[to] == 0 {
                    ready.push(to);
                }
            }
        }
        self.edges = sorted;
    }

    /// Adds the unexplained time to the binding edge.
    fn calibrate(&mut self) {
        let mut latest: Vec<Option<(i64, usize)>> = vec![None; self.times.len()];
        for (number, edge) in self.edges.iter().enumerate() {
            let at = self.times[edge.from as usize].cast_signed() + edge.weight;
            latest[edge.to as usize] = latest[edge.to as usize].max(Some((at, number)));
        }
        let begins_work = |edge: &Edge| matches!(edge.kind, EdgeKind::Launch | EdgeKind::Order);
        for (point, found) in latest.into_iter().enumerate() {
            let Some((at, number)) = found else { continue };
            let late = self.times[point].cast_signed() - at;
            self.edges[number].extra = late;
            if late > LATE_NS && begins_work(&self.edges[number]) {
                self.unexplained_ns = self.unexplained_ns.saturating_add(late.unsigned_abs());
            }
        }
    }

    /// Length of the window with edits, and how many edges they change.
    pub(super) fn run(&self, edits: &[Edit]) -> (u64, u64) {
        let edits: Vec<ScopedEdit<'_>> = edits.iter().map(|edit| ScopedEdit::of(edit, self.window)).collect();
        let mut times: Vec<Option<f64>> = vec![None; self.times.len()];
        let mut edited = 0;
        for edge in &self.edges {
            // A point without incoming edges keeps its time.
            let from = times[edge.from as usize].unwrap_or(self.times[edge.from as usize] as f64);
            let mut weight = Some(edge.weight as f64);
            let mut is_edited = false;
            for edit in &edits {
                if let Some(changed) = edit.weight(self.window, edge, weight) {
                    weight = changed;
                    is_edited = true;
                }
            }
            edited += u64::from(is_edited);
            let to = &mut times[edge.to as usize];
            let at = weight.map_or(f64::MIN, |weight| from + weight + edge.extra as f64);
            *to = Some(to.map_or(at, |to| to.max(at)));
        }
        let last = times.iter().zip(&self.times).map(|(time, measured)| time.unwrap_or(*measured as f64));
        (last.fold(0.0, f64::max).round() as u64, edited)
    }
}

/// Whether a thread is active meanwhile.
fn is_active(op: &HostOp) -> bool {
    !matches!(op.kind, HostKind::OffCpu | HostKind::UnknownCategory | HostKind::Process)
}

/// Delays between device work, by kind.
struct Medians {
    launch: [u64; 3],
    stream: [u64; 3],
}

impl Medians {
    /// The delays of a window; `before` is the last end before each on its stream.
    fn of(window: &Window<'_>, before: &FxHashMap<Id<DeviceOp>, DeviceOp>) -> Self {
        let links = &window.of.links;
        let launched = |id| {
            let call = window.of.trace.host.get(links.launch(id).call()?)?;
            Some(call.begin)
        };
        let mut launch: [Vec<u64>; 3] = Default::default();
        for (id, op) in window.device() {
            let waits =
                links.device_wait(id).is_some() || matches!(links.graph_order(id), GraphOrder::After(_));
            if let Some(call) = launched(id)
                && !waits
                && before.get(&id).is_none_or(|earlier| earlier.end() <= call)
                && op.begin >= call
            {
                launch[op.kind as usize].push((op.begin - call).0);
            }
        }
        // A longer delay means that two clocks disagree, and explains nothing.
        let launch = launch.map(|lengths| median(lengths).unwrap_or(0).min(LAUNCH_MAX_NS));
        let mut stream: [Vec<u64>; 3] = Default::default();
        for (id, op) in window.device() {
            let (Some(call), Some(earlier)) = (launched(id), before.get(&id)) else { continue };
            let is_queued = call.as_nanos() + launch[op.kind as usize] <= earlier.end().as_nanos();
            if is_queued && op.begin >= earlier.end() {
                stream[op.kind as usize].push((op.begin - earlier.end()).0);
            }
        }
        Medians { launch, stream: stream.map(|lengths| median(lengths).unwrap_or(WAIT_NS)) }
    }

    fn launch(&self, kind: DeviceKind) -> u64 {
        self.launch[kind as usize]
    }

    fn stream(&self, kind: DeviceKind) -> u64 {
        self.stream[kind as usize]
    }
}

/// An edit, with the affected times of threads.
struct ScopedEdit<'e> {
    edit: &'e Edit,
    /// By thread: the times that match the edit.
    within: Vec<Intervals>,
}

impl<'e> ScopedEdit<'e> {
    fn of(edit: &'e Edit, window: &Window<'_>) -> Self {
        let (trace, links) = (&window.of.trace, &window.of.links);
        let within = match edit {
            Edit::Host(name, _) | Edit::Operator(name, _) => {
                let of_thread = |ops: &Vec<Id<HostOp>>| {
                    let rows = ops.iter().filter_map(|id| trace.host.get(*id));
                    let named = rows.filter(|op| is_active(op) && trace.name(op.name).contains(&**name));
                    Intervals::of(named.map(|op| (op.begin, op.end())))
                };
                links.threads().iter().map(of_thread).collect()
            }
            Edit::Kernel(..) | Edit::LaunchDelay(_) | Edit::NoWait(_) => Vec::new(),
        };
        ScopedEdit { edit, within }
    }

    /// The weight of an edge with the edit, `None` for an edge that is left out; `None` when it does not change it.
    fn weight(&self, window: &Window<'_>, edge: &Edge, weight: Option<f64>) -> Option<Option<f64>> {
        let trace = &window.of.trace;
        let scaled = |factor: f64| Some(weight.map(|weight| weight * factor));
        match (self.edit, edge.kind) {
            (Edit::Kernel(name, factor), EdgeKind::Run(op)) => {
                let op = trace.device.get(op).filter(|op| trace.name(op.name).contains(&**name));
                op.and_then(|_| scaled(*factor))
            }
            (Edit::LaunchDelay(factor), EdgeKind::Launch) => scaled(*factor),
            (Edit::NoWait(name), EdgeKind::Sync(call)) => {
                let call = trace.host.get(call).filter(|call| trace.name(call.name).contains(&**name));
                call.map(|_| None)
            }
            (Edit::Host(_, factor) | Edit::Operator(_, factor), EdgeKind::Host(thread, from, to)) => {
                let within = self.within.get(thread.index())?.between(from, to);
                let share = within as f64 / (to - from).0.max(1) as f64;
                let edited = scaled(1.0 - share * (1.0 - factor));
                edited.filter(|_| within > 0)
            }
            (Edit::Operator(_, factor), EdgeKind::Run(op)) => {
                let call = trace.host.get(window.of.links.launch(op).call()?)?;
                let is_within = self.within.get(call.thread.index())?.contains(call.begin);
                is_within.then(|| scaled(*factor)).flatten()
            }
            _ => None,
        }
    }
}
