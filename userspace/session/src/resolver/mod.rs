//! Resolver: answers the pipeline's requests with the symbolizer.
//!
//! Owns: which part answers a request: [`processes`] finds the state of an address space, [`native`] names native
//! code, [`interpreters`] names read from Python processes, [`refused`] knows who has no unwind data. Because: the
//! pipeline must not touch files or processes, and the symbolizer knows nothing of frames and trees. Does not: cache
//! names (both sides do), or keep samples.

mod await_chains;
mod interpreters;
mod layers;
mod native;
mod own_processes;
mod processes;
mod reason;
mod refused;
mod tasks;

use std::path::Path;

use deepctx_capture::CalledFunctionMap;
use deepctx_capture::clock::monotonic_ns;
use deepctx_capture::cost::malloc_trim;
use deepctx_common::memory::MemoryUse;
use deepctx_common::reason::Reason;
use deepctx_common::record::ProcessEvent;
use deepctx_pipeline::input::{ProcessRefusal, Refusals, SpaceUpdate};
use deepctx_pipeline::symbols::{
    AwaitChainId, CodeAddress, CompiledThunk, CoroutineReference, DeviceKernel, ModuleReference, Name,
    NameReceiver, ProcessFacts, PythonReference, SpaceId, Symbols,
};
use deepctx_pipeline::thread_name;
use deepctx_symbolizer::AddressSpace;
use deepctx_symbolizer::compiled::device_kernels::Launch;
use deepctx_symbolizer::compiled::{NoOrigin, XlaModule};
use deepctx_symbolizer::maps::Maps;
use deepctx_symbolizer::native::DebugInfo;
use deepctx_symbolizer::{Symbolizer, accountable_user};

use interpreters::Interpreters;
use native::answer_compiled;
use own_processes::OwnProcesses;
use processes::{Processes, TimedProcess};
use refused::RefusedProcesses;

/// Interval at which caches are trimmed and names are revalidated, in the time of the samples.
const SECOND_NS: u64 = 1_000_000_000;
/// Seconds after which `malloc_trim` is called for the first time: once the start is over.
const TRIM_FIRST_S: u64 = 3;
/// Seconds between two calls of `malloc_trim` after that, unless a cache shrank.
const TRIM_EVERY_S: u64 = 60;
/// Seconds between two looks for processes whose end was not recorded.
const SWEEP_EVERY_S: u64 = 60;

/// Answers the pipeline's queries. Lives on the pipeline's thread.
pub(crate) struct Resolver {
    symbolizer: Symbolizer,
    processes: Processes,
    interpreters: Interpreters,
    /// Processes without unwind data.
    refused: RefusedProcesses,
    retired_ns: u64,
    /// Seconds in which something was retired.
    retirements: u64,
    /// Its processes run now.
    is_live: bool,
    /// The profiler's own processes, which have no stacks. There are none in a replay: it shows all stacks.
    own: OwnProcesses,
}

/// Mappings whose files are open.
#[derive(Debug)]
pub(crate) struct OpenedMappings {
    space: AddressSpace,
}

impl Resolver {
    /// A resolver that knows no process. `called`: where kernel programs look up the function that calls modules of
    /// PyTorch; `None` when modules are not recorded.
    pub(crate) fn new(debug_info: DebugInfo, called: Option<CalledFunctionMap>) -> Self {
        Self {
            symbolizer: Symbolizer::new(debug_info),
            processes: Processes::default(),
            interpreters: Interpreters::new(called),
            refused: RefusedProcesses::default(),
            retired_ns: 0,
            retirements: 0,
            is_live: false,
            own: OwnProcesses::default(),
        }
    }

    /// The same for processes that run now: those that are gone are forgotten, even if no record says so. `named`:
    /// targets given by pid, which have stacks even if they are the profiler's own.
    pub(crate) fn live(self, named: &[u32]) -> Self {
        Self { is_live: true, own: OwnProcesses::of_this(named), ..self }
    }

    /// Forgets processes that are gone without a record. A capture of weeks would otherwise keep ever more of them.
    fn sweep(&mut self) {
        let now_ns = monotonic_ns();
        // The idle task is a process to the kernel programs only.
        let exists = |pid: u32| pid == 0 || Path::new(&format!("/proc/{pid}")).exists();
        for pid in self.processes.lost_ends(exists) {
            self.symbolizer.exit(pid, now_ns);
            self.processes.ended(pid, now_ns);
            self.own.ended(pid, now_ns);
        }
        self.refused.sweep(exists, now_ns);
    }

    /// Opens the files behind mappings, at once: they may be reachable only while the process lives.
    pub(crate) fn admit(&mut self, pid: u32, maps: Maps) -> OpenedMappings {
        let mappings = maps.mappings.clone();
        let (_, space) = self.symbolizer.open_mappings(pid, maps);
        self.interpreters.mapped(pid, mappings);
        OpenedMappings { space }
    }

    /// What is missing in names and reasons, and how often.
    pub(crate) fn gaps(&self) -> [(&'static Reason, u64); 2] {
        let [layers] = self.interpreters.gaps();
        [layers, self.refused.gap()]
    }

    /// The symbolizer, for its modules.
    pub(crate) fn symbolizer(&self) -> &Symbolizer {
        &self.symbolizer
    }

    /// Memory held by the parts that it queries.
    pub(crate) fn memory(&self) -> Vec<MemoryUse> {
        let mut held = self.symbolizer.memory().to_vec();
        held.push(self.interpreters.memory());
        held.push(self.processes.memory());
        held.push(self.refused.memory());
        held
    }

    /// Trims caches, and has the allocator return free memory once in a while.
    fn trim(&mut self) {
        self.retirements += 1;
        let due = self.retirements == TRIM_FIRST_S || self.retirements.is_multiple_of(TRIM_EVERY_S);
        if self.symbolizer.trim() || due {
            malloc_trim();
        }
    }
}

impl ProcessFacts for Resolver {
    /// Asks the system, also in a replay, where processes are long gone: shares differ then only in a full table.
    fn accountable_user(&mut self, pid: u32) -> Option<u32> {
        accountable_user(pid)
    }

    #[inline]
    fn is_own(&mut self, pid: u32) -> bool {
        self.own.contains(pid)
    }

    fn refusal(&mut self, pid: u32, time_ns: u64) -> Option<ProcessRefusal> {
        self.refused.at(pid, time_ns)
    }

    fn device_kernel(&mut self, kernel: &DeviceKernel<'_>, answer: &mut dyn FnMut(&[Name<'_>])) -> bool {
        let DeviceKernel { pid, time_ns, name, siblings } = *kernel;
        let (known, later) = self.symbolizer.device_kernel_origin(pid, time_ns, name, siblings);
        if let Ok(kernel) = known {
            answer_compiled(&kernel, answer);
        }
        later
    }

    fn compiled_thunk(&mut self, thunk: &CompiledThunk<'_>, answer: &mut dyn FnMut(&[Name<'_>])) {
        let CompiledThunk { pid, time_ns, unit_number: number, unit: name, cut, name: of_thunk, fused } =
            *thunk;
        let module = XlaModule { number, name, truncated: cut };
        if let Ok(kernel) = self.symbolizer.thunk_origin(pid, time_ns, module, of_thunk, fused) {
            answer_compiled(&kernel, answer);
        }
    }

    fn launched_by(
        &mut self,
        pid: u32,
        time_ns: u64,
        path: &str,
        answer: &mut dyn FnMut(&str, u32, &[Name<'_>]),
    ) -> bool {
        match self.symbolizer.launches_of(pid, time_ns, path) {
            Ok(launches) => {
                for Launch { name, line, kernel } in &launches.launches {
                    answer_compiled(kernel, &mut |names| answer(name, *line, names));
                }
                !launches.complete
            }
            Err(reason) => matches!(reason, NoOrigin::NotFound | NoOrigin::OverShare),
        }
    }
}

impl Symbols for Resolver {
    type Space = OpenedMappings;

    fn replacement_seen(&mut self, pid: u32) {
        self.interpreters.forget(pid);
    }

    /// A process that is accepted later is known by its mappings.
    fn refused(&mut self, refusals: Refusals) {
        refusals.processes.into_iter().for_each(|process| self.refused.note(process));
        self.refused.forgot(refusals.left_out);
    }

    fn python_seen(&mut self, pid: u32, frames: &[PythonReference]) {
        self.interpreters.functions_seen(pid, frames);
    }

    fn coroutines_seen(&mut self, pid: u32, time_ns: u64, coroutines: &[CoroutineReference]) {
        self.interpreters.coroutines_seen(pid, time_ns, coroutines);
    }

    fn await_chain(
        &mut self,
        pid: u32,
        time_ns: u64,
        coroutines: &mut dyn Iterator<Item = CoroutineReference>,
    ) -> Option<(u64, AwaitChainId)> {
        self.interpreters.await_chain(pid, time_ns, coroutines)
    }

    fn await_chain_parts(&mut self, chains: &[AwaitChainId], answer: &mut NameReceiver<'_>) {
        self.interpreters.name_await_chains(chains, answer);
    }

    fn modules_seen(&mut self, pid: u32, time_ns: u64, modules: &[ModuleReference], whole: bool) {
        if self.interpreters.modules_seen(pid, modules, whole) {
            self.processes.invalidate_names(pid, time_ns);
        }
    }

    fn modules(&mut self, space: SpaceId, modules: &[ModuleReference], answer: &mut NameReceiver<'_>) {
        if let Some(TimedProcess { pid, .. }) = self.processes.of_space(space) {
            self.interpreters.name_modules(pid, modules, answer);
        }
    }

    fn space_changed(&mut self, update: SpaceUpdate<OpenedMappings>) {
        let SpaceUpdate { pid, time_ns, name, maps: OpenedMappings { space } } = update;
        let unchanged_before = self.symbolizer.counters().spaces.unchanged;
        self.symbolizer.update_space(pid, time_ns, space);
        let unchanged = self.symbolizer.counters().spaces.unchanged > unchanged_before;
        self.processes.read(pid, time_ns, name, unchanged);
        // Only those of accepted processes come.
        self.refused.ended(pid, time_ns);
    }

    fn forked(&mut self, event: &ProcessEvent) {
        let (parent, child, time_ns) = (event.parent, event.pid, event.header.time_ns);
        self.symbolizer.fork(parent, child, time_ns);
        self.processes.forked(parent, child, time_ns, thread_name(&event.comm));
        self.interpreters.forked(parent, child);
        // The end of an earlier process with this number may be lost.
        self.refused.ended(child, time_ns);
        self.own.forked(child, time_ns);
    }

    fn replaced(&mut self, event: &ProcessEvent) {
        self.symbolizer.exec(event.pid, event.header.time_ns);
        self.processes.replaced(event.pid, event.header.time_ns, thread_name(&event.comm));
        self.refused.ended(event.pid, event.header.time_ns);
    }

    fn on_exit(&mut self, event: &ProcessEvent) {
        self.symbolizer.exit(event.pid, event.header.time_ns);
        self.processes.ended(event.pid, event.header.time_ns);
        self.refused.ended(event.pid, event.header.time_ns);
        self.own.ended(event.pid, event.header.time_ns);
    }

    fn retire(&mut self, before_ns: u64) {
        self.processes.drop_stale();
        self.own.retire(before_ns);
        if before_ns < self.retired_ns.saturating_add(SECOND_NS) {
            return;
        }
        self.retired_ns = before_ns;
        self.symbolizer.retire(before_ns);
        self.interpreters.retire(before_ns);
        self.refused.retire(before_ns);
        let renamed = self.symbolizer.recheck_generated(before_ns);
        for pid in self.interpreters.revalidate().into_iter().chain(renamed) {
            self.processes.invalidate_names(pid, before_ns);
        }
        self.trim();
        if self.is_live && self.retirements.is_multiple_of(SWEEP_EVERY_S) {
            self.sweep();
        }
        for pid in self.processes.retire(before_ns) {
            self.interpreters.forget(pid);
        }
    }

    fn space(&mut self, pid: u32, time_ns: u64) -> SpaceId {
        self.processes.space(pid, time_ns)
    }

    fn process_name(&mut self, pid: u32, time_ns: u64) -> Option<&str> {
        self.processes.name(pid, time_ns)
    }

    fn user(
        &mut self,
        space: SpaceId,
        addresses: &[CodeAddress],
        times_ns: &[u64],
        answer: &mut NameReceiver<'_>,
    ) {
        let Some(period) = self.processes.period_of(space) else { return };
        if native::name_user(&mut self.symbolizer, period, addresses, times_ns, answer) {
            self.processes.retry_later(space);
        }
    }

    fn left_out(
        &mut self,
        space: SpaceId,
        addresses: &[CodeAddress],
        times_ns: &[u64],
        answer: &mut dyn FnMut(usize),
    ) {
        let Some(period) = self.processes.period_of(space) else { return };
        native::find_left_out(&self.symbolizer, period, addresses, times_ns, answer);
    }

    fn python(&mut self, space: SpaceId, frames: &[PythonReference], answer: &mut NameReceiver<'_>) {
        let Some(TimedProcess { pid, .. }) = self.processes.of_space(space) else { return };
        if self.interpreters.name_functions(pid, frames, answer) {
            self.processes.retry_later(space);
        }
    }

    fn kernel_renamed(&mut self) -> bool {
        self.symbolizer.take_kernel_renamed()
    }

    fn kernel(&mut self, addresses: &[CodeAddress], answer: &mut NameReceiver<'_>) {
        native::name_kernel(&mut self.symbolizer, addresses, answer);
    }
}

#[cfg(test)]
mod tests {
    use deepctx_capture::PROCESS_MAPPINGS_MAX;
    use deepctx_common::record::RecordHeader;
    use deepctx_pipeline::input::RefusedProcess;
    use deepctx_symbolizer::maps::{self, LineFilter};

    use super::*;

    #[test]
    fn code_beyond_the_kept_mappings_is_left_out() {
        let mut resolver = Resolver::new(DebugInfo::default(), None);
        // No process has this number.
        let (pid, kept) = (u32::MAX, PROCESS_MAPPINGS_MAX as u64);
        let begin = |n: u64| n << 13;
        let line = |n: u64| format!("{:x}-{:x} r-xp 0 0:0 0\n", begin(n), begin(n) + 0x1000);
        let lines: String = (1..=kept + 1).map(line).collect();
        let maps = resolver.admit(pid, maps::parse(lines.as_bytes(), LineFilter::Executable));
        resolver.space_changed(SpaceUpdate { pid, time_ns: 1, name: String::new(), maps });
        let space = resolver.space(pid, 2);
        // The last one is in no mapping.
        let asked = [begin(kept), begin(kept + 1), begin(kept + 2)].map(CodeAddress::Exact);
        let mut left_out = Vec::new();
        resolver.left_out(space, &asked, &[2; 3], &mut |n| left_out.push(n));
        assert_eq!(left_out, [1]);
    }

    #[test]
    fn a_refused_process_has_its_reason_until_it_changes() {
        let mut resolver = Resolver::new(DebugInfo::default(), None);
        // No process has these numbers.
        let pids = [0, 1, 2, 3].map(|n| u32::MAX - n);
        let refusal = ProcessRefusal::OverShare;
        let refused = pids[..3].iter().map(|pid| RefusedProcess { pid: *pid, since_ns: 100, refusal });
        resolver.refused(Refusals { processes: refused.collect(), left_out: 5 });
        assert_eq!(pids.map(|pid| resolver.refusal(pid, 99)), [None; 4]);
        let expect = [Some(refusal), Some(refusal), Some(refusal), None];
        assert_eq!(pids.map(|pid| resolver.refusal(pid, 150)), expect);

        let [accepted, executed, ended, _] = pids;
        let maps = resolver.admit(accepted, maps::parse(b"", LineFilter::Executable));
        resolver.space_changed(SpaceUpdate { pid: accepted, time_ns: 150, name: String::new(), maps });
        let header = RecordHeader { time_ns: 150, ..RecordHeader::default() };
        let event = |pid| ProcessEvent { header, pid, parent: 0, comm: [0; 16] };
        resolver.replaced(&event(executed));
        resolver.on_exit(&event(ended));
        assert_eq!(pids.map(|pid| resolver.refusal(pid, 149)), expect, "its samples may still come");
        assert_eq!(pids.map(|pid| resolver.refusal(pid, 150)), [None; 4]);
        assert_eq!(resolver.gaps()[1], (reason::REFUSALS_FORGOTTEN, 5));
    }
}
