//! Tables: unwind data of executables and mappings of processes, placed where the kernel programs find them.
//!
//! Owns: every slot of the shared arrays, and the users of an executable's table. Because: tables are shared between
//! processes, bounded in total, and must be freed with their last user. Does not: build tables or read `/proc`.
//!
//! Tables can be filled before the programs are loaded: writes are queued until [`Tables::connect`].
//!
//! Order of writes: rows, then pages and rules, then the executable, then the mappings, then the process, which is a
//! map update and so publishes everything before it. Freed slots stay in the arena's quarantine for a while.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::ops::Range;

use deepctx_common::Plain as _;
use deepctx_common::config::map;
use deepctx_common::memory::table_bytes;
use deepctx_common::process::Process;
use deepctx_common::python::{PythonLayout, PythonProcess};
use deepctx_common::unwind::{
    EXECUTABLE_SERIAL_SHIFT, EXECUTABLES_MAX, Executable, MAPPING_SEARCH_STEPS, MAPPINGS_MAX, Mapping,
    PAGES_MAX, PROCESSES_MAX, Page, RULES_MAX, Rule,
};
use deepctx_symbolizer::shares::ROOT;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use super::arena::{Arena, QUARANTINE_NS};
use super::column::Column;
use super::last_samples::{LastSamples, SampleTimes};
use super::load::LoadedPrograms;
use super::room::Room;
use super::rows::{NotPlaced, PlacedRows, Rows, Table};
pub(crate) use super::table_error::TableError;
use super::table_error::map_error;
use super::table_shares::{PLACE, Shortage, Slots, TableShares, TableUse, chosen};

/// Id of an executable whose table is loaded; index into the kernel's `EXECUTABLES`, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExecutableId(pub u32);

/// Result of [`Tables::set_process`].
#[derive(Debug)]
pub(crate) struct PublishedProcess {
    /// Mappings left out because the process has more than [`PROCESS_MAPPINGS_MAX`].
    pub left_out: usize,
    /// Executables that no process uses any more; their ids may be reused.
    pub gone: Vec<ExecutableId>,
}

/// Processes to be evicted so that others find room: of the user with most of a table, or idle ones.
#[derive(Debug)]
pub(crate) struct Eviction {
    pub user: u32,
    pub room: Room,
    pub pids: Vec<u32>,
    /// They were not sampled for a while, and nobody has more than who asks.
    pub idle: bool,
}

/// How often idle processes are looked for when a user finds no room: slots given back are not free at once.
const IDLE_EVERY_NS: u64 = 2 * QUARANTINE_NS;

/// Most executable mappings that are kept of one process, from the bound of the kernel's search: those at the lowest
/// addresses, without `[uprobes]`.
pub const PROCESS_MAPPINGS_MAX: usize = 1 << (MAPPING_SEARCH_STEPS - 1);

struct LoadedExecutable {
    users: u32,
    /// The user charged for its slots: the first who needed it.
    account: u32,
    slots: Slots,
    blocks: Vec<Range<u32>>,
    pages: Range<u32>,
    rules: Range<u32>,
}

struct LoadedProcess {
    /// The user charged for it.
    account: u32,
    mappings: Range<u32>,
    executables: Vec<ExecutableId>,
    published_ns: u64,
}

/// The maps of the loaded programs.
struct Kernel {
    shards: MapHandle,
    pages: MapHandle,
    rules: MapHandle,
    executables: MapHandle,
    mappings: MapHandle,
    processes: MapHandle,
}

impl Kernel {
    /// Publishes a process. A forked child has its parent's entry before it is scanned, and one that only sleeps never
    /// is: where the map is full, the entries of all that were not scanned are removed. Who runs is scanned at the next
    /// sample.
    fn put_process(
        &self,
        pid: u32,
        process: &Process,
        scanned: &HashMap<u32, LoadedProcess>,
    ) -> Result<(), TableError> {
        let put = || self.processes.update(pid.as_bytes(), process.as_bytes(), MapFlags::ANY);
        if put().is_ok() {
            return Ok(());
        }
        let is_scanned = |key: &[u8]| {
            <[u8; 4]>::try_from(key).is_ok_and(|key| scanned.contains_key(&u32::from_ne_bytes(key)))
        };
        // Where entries come and go, walking the map can begin again and again.
        let keys = self.processes.keys().take(2 * PROCESSES_MAX as usize);
        let inherited: Vec<Vec<u8>> = keys.filter(|key| !is_scanned(key)).collect();
        tracing::debug!(
            entries = inherited.len(),
            "removing processes that were not scanned: the map is full"
        );
        for key in &inherited {
            // It may have ended.
            let _ = self.processes.delete(key);
        }
        put().map_err(map_error(map::PROCESSES))
    }
}

/// The kernel's tables, seen from user space.
#[derive(Default)]
pub(crate) struct Tables {
    executables: HashMap<ExecutableId, LoadedExecutable>,
    processes: HashMap<u32, LoadedProcess>,
    arenas: Arenas,
    shares: TableShares,
    rows: Rows,
    pages: Column<Page>,
    rules: Column<Rule>,
    executables_column: Column<Executable>,
    mappings: Column<Mapping>,
    /// Processes to be published once the programs are connected.
    waiting: BTreeMap<u32, Process>,
    kernel: Option<Kernel>,
    generation: u32,
    serial: u32,
    /// When idle processes were last looked for, by who asked.
    idle_looked_ns: HashMap<u32, u64>,
}

/// Slots of the columns.
struct Arenas {
    pages: Arena,
    rules: Arena,
    ids: Arena,
    mappings: Arena,
}

/// Slots that must be free for a process.
fn slots_to_publish(mappings: usize, is_published: bool) -> Slots {
    Slots::new([(Room::Processes, usize::from(!is_published)), (Room::Mappings, mappings)])
}

impl Default for Arenas {
    fn default() -> Self {
        Self {
            pages: Arena::new(0, PAGES_MAX),
            rules: Arena::new(0, RULES_MAX),
            // Id 0 means "no table".
            ids: Arena::new(1, EXECUTABLES_MAX),
            mappings: Arena::new(0, MAPPINGS_MAX),
        }
    }
}

/// Takes slots, or reports which are too few.
fn take(arena: &mut Arena, count: usize, room: Room) -> Result<Range<u32>, TableError> {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    arena.take(count).ok_or_else(|| TableError::Full { room, used: arena.used(), limit: arena.size() })
}

impl Tables {
    /// From now on everything is for these programs; [`Tables::flush`] writes what is pending.
    pub(crate) fn connect(&mut self, loaded: &LoadedPrograms) -> Result<(), TableError> {
        self.kernel = Some(Kernel {
            shards: loaded.map(map::SHARDS)?,
            pages: loaded.map(map::PAGES)?,
            rules: loaded.map(map::RULES)?,
            executables: loaded.map(map::EXECUTABLES)?,
            mappings: loaded.map(map::MAPPINGS)?,
            processes: loaded.map(map::PROCESSES)?,
        });
        Ok(())
    }

    /// Bytes of the row shards; the other maps are counted with the object.
    pub(crate) fn shard_bytes(&self) -> u64 {
        self.rows.bytes()
    }

    /// Bytes in this process's memory.
    pub(crate) fn held_bytes(&self) -> usize {
        let blocks = |executable: &LoadedExecutable| size_of_val(&*executable.blocks);
        let executables = |process: &LoadedProcess| size_of_val(&*process.executables);
        self.executables.values().map(blocks).sum::<usize>()
            + self.processes.values().map(executables).sum::<usize>()
            + table_bytes(self.executables.capacity(), size_of::<(ExecutableId, LoadedExecutable)>())
            + table_bytes(self.processes.capacity(), size_of::<(u32, LoadedProcess)>())
    }

    /// Frees slots that were given back long enough ago.
    pub(crate) fn settle(&mut self, now_ns: u64) {
        self.rows.settle(now_ns);
        let Arenas { pages, rules, ids, mappings } = &mut self.arenas;
        for arena in [pages, rules, ids, mappings] {
            arena.settle(now_ns);
        }
        self.shares.settle(now_ns);
    }

    /// Places tables, each with bits of [`deepctx_common::unwind::executable_flag`], charged to the user `account`. No
    /// process uses them yet: [`Tables::set_process`] adds users, and they are freed with the last one.
    pub(crate) fn add_executables(
        &mut self,
        tables: &[(&Table, u32)],
        account: u32,
        now_ns: u64,
    ) -> Vec<Result<ExecutableId, NotPlaced>> {
        let allowed: Vec<Result<(), TableError>> =
            tables.iter().map(|(table, _)| self.shares.take(account, &table.slots())).collect();
        let rows = tables.iter().zip(&allowed).filter(|(_, allowed)| allowed.is_ok());
        let rows: Vec<&Table> = rows.map(|((table, _), _)| *table).collect();
        let mut placed = self.rows.place(&rows, now_ns).into_iter();
        let mut add = |table: &Table, flags, allowed: Result<(), TableError>| {
            allowed?;
            let placed = placed.next().unwrap_or(Err(NotPlaced::Damaged));
            let added = placed.and_then(|placed| Ok(self.add_placed(table, flags, account, placed, now_ns)?));
            added.inspect_err(|error| match error {
                NotPlaced::Tables(error) => self.shares.take_back(account, &table.slots(), error),
                NotPlaced::Damaged => self.shares.give(account, &table.slots()),
            })
        };
        tables.iter().zip(allowed).map(|(&(table, flags), allowed)| add(table, flags, allowed)).collect()
    }

    fn add_placed(
        &mut self,
        table: &Table,
        flags: u32,
        account: u32,
        placed: PlacedRows,
        now_ns: u64,
    ) -> Result<ExecutableId, TableError> {
        let PlacedRows { pages, blocks } = placed;
        let slots = table.slots();
        let mut executable = LoadedExecutable { users: 0, account, slots, blocks, pages: 0..0, rules: 0..0 };
        let slots = take(&mut self.arenas.pages, pages.len(), Room::Pages).and_then(|slots| {
            executable.pages = slots;
            executable.rules = take(&mut self.arenas.rules, table.rules().len(), Room::Rules)?;
            take(&mut self.arenas.ids, 1, Room::Executables)
        });
        let id = match slots {
            Ok(slots) => ExecutableId(slots.start),
            Err(error) => {
                self.free(executable, now_ns);
                return Err(error);
            }
        };
        let entry = Executable {
            first_page: table.first_page(),
            pages: pages.len() as u32,
            pages_base: executable.pages.start,
            rules_base: executable.rules.start,
            rules: table.rules().len() as u32,
            flags: flags | self.next_serial() << EXECUTABLE_SERIAL_SHIFT,
        };
        self.pages.write(executable.pages.start, pages);
        self.rules.write(executable.rules.start, table.rules().to_vec());
        self.executables_column.write(id.0, vec![entry]);
        self.executables.insert(id, executable);
        Ok(id)
    }

    /// Never 0, which means an empty cache entry; wraps after 16 million executables.
    fn next_serial(&mut self) -> u32 {
        self.serial = (self.serial + 1) & (u32::MAX >> EXECUTABLE_SERIAL_SHIFT);
        self.serial = self.serial.max(1);
        self.serial
    }

    fn free(&mut self, executable: LoadedExecutable, now_ns: u64) {
        self.rows.give(executable.blocks, now_ns);
        self.arenas.pages.give(executable.pages, now_ns);
        self.arenas.rules.give(executable.rules, now_ns);
    }

    /// Writes all pending changes in order; nothing before [`Tables::connect`].
    pub(crate) fn flush(&mut self) -> Result<(), TableError> {
        let Some(kernel) = &self.kernel else { return Ok(()) };
        let error = |map| move |source: io::Error| TableError::Map { map, source };
        self.rows.publish(&kernel.shards)?;
        self.pages.flush(&kernel.pages).map_err(error(map::PAGES))?;
        self.rules.flush(&kernel.rules).map_err(error(map::RULES))?;
        self.executables_column.flush(&kernel.executables).map_err(error(map::EXECUTABLES))?;
        self.mappings.flush(&kernel.mappings).map_err(error(map::MAPPINGS))?;
        while let Some((pid, process)) = self.waiting.pop_first() {
            kernel.put_process(pid, &process, &self.processes)?;
        }
        Ok(())
    }

    /// Publishes the mappings (sorted by begin, not overlapping) and the interpreter of a process, replacing earlier
    /// ones. The user `account` is charged for them.
    pub(crate) fn set_process(
        &mut self,
        pid: u32,
        account: u32,
        mappings: &[Mapping],
        python: PythonProcess,
        now_ns: u64,
    ) -> Result<PublishedProcess, TableError> {
        let kept = &mappings[..mappings.len().min(PROCESS_MAPPINGS_MAX)];
        let run = self.take_mappings(pid, account, kept.len())?;
        self.mappings.write(run.start, kept.to_vec());
        self.generation = self.generation.wrapping_add(1).max(1);
        let process = Process {
            mappings_base: run.start,
            mappings: kept.len() as u32,
            generation: self.generation,
            reserved: 0,
            python,
        };
        self.waiting.insert(pid, process);
        if let Err(error) = self.flush() {
            self.waiting.remove(&pid);
            self.shares.give(account, &slots_to_publish(run.len(), self.processes.contains_key(&pid)));
            self.arenas.mappings.give(run, now_ns);
            return Err(error);
        }
        let mut executables: Vec<ExecutableId> =
            kept.iter().filter(|m| m.executable != 0).map(|m| ExecutableId(m.executable)).collect();
        executables.sort_unstable_by_key(|id| id.0);
        executables.dedup();
        for id in &executables {
            if let Some(executable) = self.executables.get_mut(id) {
                executable.users += 1;
            }
        }
        let process = LoadedProcess { account, mappings: run, executables, published_ns: now_ns };
        let before = self.processes.insert(pid, process);
        if let Some(before) = &before {
            // The slot that it had: it may have changed its user.
            self.shares.give(before.account, &PLACE);
            self.shares.charge(account, &PLACE);
        }
        let mut gone = before.map(|before| self.release(before, now_ns)).unwrap_or_default();
        gone.extend(self.drop_unused(now_ns));
        Ok(PublishedProcess { left_out: mappings.len() - kept.len(), gone })
    }

    /// Forgets a process; returns the executables that have no user left.
    pub(crate) fn remove_process(&mut self, pid: u32, now_ns: u64) -> Vec<ExecutableId> {
        self.waiting.remove(&pid);
        if let Some(kernel) = &self.kernel {
            // The process may already be gone from the map.
            let _ = kernel.processes.delete(pid.as_bytes());
        }
        let Some(process) = self.processes.remove(&pid) else { return Vec::new() };
        self.shares.give(process.account, &PLACE);
        self.release(process, now_ns)
    }

    fn release(&mut self, process: LoadedProcess, now_ns: u64) -> Vec<ExecutableId> {
        let slots = slots_to_publish(process.mappings.len(), true);
        self.shares.give_later(process.account, slots, now_ns);
        self.arenas.mappings.give(process.mappings, now_ns);
        let mut gone = Vec::new();
        for id in process.executables {
            let Some(executable) = self.executables.get_mut(&id) else { continue };
            executable.users -= 1;
            if executable.users == 0 {
                self.drop_executable(id, now_ns);
                gone.push(id);
            }
        }
        gone
    }

    /// Frees executables that were placed for a process that could not be published, or does not use them.
    fn drop_unused(&mut self, now_ns: u64) -> Vec<ExecutableId> {
        let unused: Vec<_> =
            self.executables.iter().filter(|(_, e)| e.users == 0).map(|(id, _)| *id).collect();
        for id in &unused {
            self.drop_executable(*id, now_ns);
        }
        unused
    }

    fn drop_executable(&mut self, id: ExecutableId, now_ns: u64) {
        if let Some(executable) = self.executables.remove(&id) {
            self.shares.give_later(executable.account, executable.slots, now_ns);
            self.free(executable, now_ns);
            self.arenas.ids.give(id.0..id.0 + 1, now_ns);
        }
    }

    /// Slots for a process. The old ones count until they are replaced: the kernel may be walking with them.
    fn take_mappings(&mut self, pid: u32, account: u32, count: usize) -> Result<Range<u32>, TableError> {
        let is_published = self.processes.contains_key(&pid);
        let slots = slots_to_publish(count, is_published);
        self.shares.take(account, &slots)?;
        let taken = if !is_published && self.processes.len() >= PROCESSES_MAX as usize {
            let limit = PROCESSES_MAX;
            Err(TableError::Full { room: Room::Processes, used: limit, limit })
        } else {
            take(&mut self.arenas.mappings, count, Room::Mappings)
        };
        taken.inspect_err(|error| self.shares.take_back(account, &slots, error))
    }

    /// The user to evict for the last shortage, which this process met, and which of the user's processes.
    pub(crate) fn give_way(&mut self, asker: u32, samples: &LastSamples, now_ns: u64) -> Option<Eviction> {
        let shortage = self.shares.take_shortage()?;
        let (room, times) = (shortage.room, samples.read());
        if let Some((user, amount)) = self.shares.gives_way(&shortage) {
            let pids = self.chosen(room, amount, &times, |_, process| process.account == user);
            return Some(Eviction { user, room, pids, idle: false });
        }
        self.idle_give_way(asker, &shortage, &times, now_ns)
    }

    /// Idle processes of the user who asks, or else of root. Two that are busy never evict each other in turns.
    fn idle_give_way(
        &mut self,
        asker: u32,
        shortage: &Shortage,
        times: &SampleTimes,
        now_ns: u64,
    ) -> Option<Eviction> {
        self.idle_looked_ns.retain(|_, looked_ns| now_ns < *looked_ns + IDLE_EVERY_NS);
        if self.idle_looked_ns.contains_key(&shortage.user) {
            return None;
        }
        self.idle_looked_ns.insert(shortage.user, now_ns);
        [shortage.user, ROOT].into_iter().find_map(|user| {
            let amount = self.shares.idle_give(user, shortage);
            let is_idle = |pid: u32, process: &LoadedProcess| {
                process.account == user && pid != asker && times.is_idle(pid, process.published_ns, now_ns)
            };
            let pids = self.chosen(shortage.room, amount, times, is_idle);
            (!pids.is_empty()).then_some(Eviction { user, room: shortage.room, pids, idle: true })
        })
    }

    /// Which of these processes to evict.
    fn chosen(
        &self,
        room: Room,
        amount: usize,
        times: &SampleTimes,
        may_go: impl Fn(u32, &LoadedProcess) -> bool,
    ) -> Vec<u32> {
        let holding = |(pid, process): (&u32, &LoadedProcess)| {
            let shared = process.executables.iter().filter_map(|id| {
                let executable = self.executables.get(id)?;
                Some((id.0, executable.slots, executable.users))
            });
            let slots = slots_to_publish(process.mappings.len(), false);
            TableUse { pid: *pid, sampled_ns: times.of(*pid), slots, shared: shared.collect() }
        };
        let going = self.processes.iter().filter(|(pid, process)| may_go(**pid, process));
        chosen(going.map(holding).collect(), room, amount)
    }

    /// Number of published mappings of a process.
    pub(crate) fn mappings_of(&self, pid: u32) -> usize {
        self.processes.get(&pid).map_or(0, |process| process.mappings.len())
    }

    /// True while the table of this executable is loaded.
    pub(crate) fn has(&self, id: ExecutableId) -> bool {
        self.executables.contains_key(&id)
    }
}

/// Passes the field offsets of interpreters to the programs.
pub(crate) fn set_layouts(
    loaded: &LoadedPrograms,
    layouts: &[(u32, PythonLayout)],
) -> Result<(), TableError> {
    let map = loaded.map(map::PYTHON_LAYOUTS)?;
    for (index, layout) in layouts {
        map.update(index.as_bytes(), layout.as_bytes(), MapFlags::ANY)
            .map_err(map_error(map::PYTHON_LAYOUTS))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::last_samples::IDLE_NS;
    use super::*;
    use proptest::prelude::*;

    /// When processes were published.
    const BEGAN: u64 = 1;
    const NOW: u64 = BEGAN + IDLE_NS;

    fn publish(tables: &mut Tables, pid: u32, user: u32, now_ns: u64) -> Result<(), TableError> {
        let mappings = vec![Mapping::default(); 1000];
        tables.set_process(pid, user, &mappings, PythonProcess::default(), now_ns).map(drop)
    }

    /// Tables full of the processes of a user, which are numbered from 1, and how many there are.
    fn full(user: u32) -> (Tables, u32) {
        let mut tables = Tables::default();
        let refused = (1..).find(|pid| publish(&mut tables, *pid, user, BEGAN).is_err());
        (tables, refused.unwrap() - 1)
    }

    fn set(pids: &[u32]) -> rustc_hash::FxHashSet<u32> {
        pids.iter().copied().collect()
    }

    #[test]
    fn idle_processes_make_room_for_later_ones_of_their_user() {
        for user in [1000, ROOT] {
            let ((mut tables, count), samples) = (full(user), LastSamples::default());
            let (late, later) = (count + 1, NOW + QUARANTINE_NS);
            samples.add(&set(&[2, 3]), NOW);
            let Eviction { user: of, pids, idle, .. } = tables.give_way(late, &samples, NOW).unwrap();
            assert!(of == user && idle && pids.len() < 10, "{pids:?}");
            assert!(!pids.contains(&2) && !pids.contains(&3), "{pids:?}");
            pids.iter().for_each(|pid| drop(tables.remove_process(*pid, NOW)));
            assert!(publish(&mut tables, late, user, NOW).is_err());
            assert!(tables.give_way(late, &samples, NOW).is_none(), "slots given back are free soon");
            tables.settle(later);
            publish(&mut tables, late, user, later).unwrap();
        }
    }

    #[test]
    fn idle_processes_of_root_make_room_for_others() {
        let ((mut tables, _), samples) = (full(ROOT), LastSamples::default());
        assert!(publish(&mut tables, 9000, 1000, NOW).is_err());
        samples.add(&set(&[]), NOW);
        let eviction = tables.give_way(9000, &samples, NOW).unwrap();
        assert!(eviction.user == ROOT && eviction.idle, "{eviction:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn a_process_sampled_lately_never_yields_to_its_user(
            ages in prop::collection::vec(1..2 * IDLE_NS, 100),
        ) {
            let ((mut tables, count), samples) = (full(1000), LastSamples::default());
            let now_ns = NOW + 2 * IDLE_NS;
            let sampled: Vec<(u32, u64)> = (1..=count).zip(ages).collect();
            for (pid, age) in &sampled {
                samples.add(&set(&[*pid]), now_ns - age);
            }
            samples.add(&set(&[]), now_ns);
            let eviction = tables.give_way(count + 1, &samples, now_ns);
            let pids = eviction.map(|eviction| eviction.pids).unwrap_or_default();
            prop_assert_eq!(pids.is_empty(), sampled.iter().all(|(_, age)| *age < IDLE_NS));
            prop_assert!(sampled.iter().all(|(pid, age)| *age >= IDLE_NS || !pids.contains(pid)));
        }
    }
}
