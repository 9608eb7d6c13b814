//! Tables: unwind data of executables and mappings of processes, placed where the kernel programs find them.
//!
//! Owns: every slot of the shared arrays, and who uses an executable's table. Because: tables are shared between
//! processes, bounded in total, and must go when their last user goes. Does not: build tables or read `/proc`.
//!
//! Order of writes: rows, then pages and rules, then the executable, then the mappings, then the process, which is a
//! map update and so publishes all that came before. Slots that were given back rest in the arena's quarantine.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _};

use deepctx_common::Plain;
use deepctx_common::config::map;
use deepctx_common::process::{Process, Target};
use deepctx_common::python::{PythonLayout, PythonProcess};
use deepctx_common::unwind::{
    BLOCKS_PER_SHARD, EXECUTABLE_SERIAL_SHIFT, EXECUTABLES_MAX, Executable, MAPPING_SEARCH_STEPS,
    MAPPINGS_MAX, Mapping, PAGES_MAX, Page, RULES_MAX, RowBlock, Rule, SHARDS_MAX,
};
use deepctx_symbolizer::unwind_rows::UnwindTable;
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapType};

use super::arena::Arena;
use super::load::{LoadError, Loaded};
use super::shared_array::SharedArray;

/// Why something could not be placed.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// One of the bounded stores is full.
    #[error("no room for {what}: {used} of {limit} in use")]
    Full {
        /// What there is no room for.
        what: &'static str,
        /// In use.
        used: u32,
        /// The bound.
        limit: u32,
    },
    /// A map could not be created, mapped or updated.
    #[error("kernel map {map}: {source}")]
    Map {
        /// The map.
        map: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// A map is missing from the object.
    #[error(transparent)]
    Load(#[from] LoadError),
}

fn map_error(map: &'static str) -> impl FnOnce(libbpf_rs::Error) -> TableError {
    move |e| TableError::Map { map, source: io::Error::other(e.to_string()) }
}

/// Id of an executable whose table is loaded; index into the kernel's `EXECUTABLES`, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ExecutableId(pub u32);

/// What [`Tables::set_process`] did.
#[derive(Debug)]
pub struct Published {
    /// Number that walks by this state of the process will carry.
    pub generation: u32,
    /// Mappings left out because the process has more than [`PROCESS_MAPPINGS_MAX`].
    pub left_out: usize,
    /// Executables that no process uses any more; their ids may be given to others.
    pub gone: Vec<ExecutableId>,
}

/// Most executable mappings of one process, from the bound of the kernel's search.
pub const PROCESS_MAPPINGS_MAX: usize = 1 << (MAPPING_SEARCH_STEPS - 1);

struct LoadedExecutable {
    users: u32,
    blocks: Vec<Range<u32>>,
    pages: Range<u32>,
    rules: Range<u32>,
}

struct LoadedProcess {
    mappings: Range<u32>,
    executables: Vec<ExecutableId>,
}

struct Shard {
    rows: SharedArray<RowBlock>,
    _map: MapHandle,
}

/// The kernel's tables, seen from user space.
pub struct Tables {
    executables: HashMap<ExecutableId, LoadedExecutable>,
    processes: HashMap<u32, LoadedProcess>,
    shards: Vec<Shard>,
    blocks: Arena,
    pages: Arena,
    rules: Arena,
    ids: Arena,
    mappings: Arena,
    pages_array: SharedArray<Page>,
    rules_array: SharedArray<Rule>,
    executables_array: SharedArray<Executable>,
    mappings_array: SharedArray<Mapping>,
    shards_map: MapHandle,
    processes_map: MapHandle,
    targets_map: MapHandle,
    layouts_map: MapHandle,
    generation: u32,
    serial: u32,
}

impl Tables {
    /// Maps the shared arrays of the loaded programs.
    pub fn new(loaded: &Loaded) -> Result<Self, TableError> {
        fn shared<T: Plain>(
            loaded: &Loaded,
            name: &'static str,
            length: u32,
        ) -> Result<SharedArray<T>, TableError> {
            let handle = loaded.map(name)?;
            SharedArray::map(&handle, length).map_err(|source| TableError::Map { map: name, source })
        }
        Ok(Self {
            executables: HashMap::new(),
            processes: HashMap::new(),
            shards: Vec::new(),
            blocks: Arena::segmented(BLOCKS_PER_SHARD),
            pages: Arena::new(0, PAGES_MAX),
            rules: Arena::new(0, RULES_MAX),
            // Id 0 means "no table".
            ids: Arena::new(1, EXECUTABLES_MAX),
            mappings: Arena::new(0, MAPPINGS_MAX),
            pages_array: shared(loaded, map::PAGES, PAGES_MAX)?,
            rules_array: shared(loaded, map::RULES, RULES_MAX)?,
            executables_array: shared(loaded, map::EXECUTABLES, EXECUTABLES_MAX)?,
            mappings_array: shared(loaded, map::MAPPINGS, MAPPINGS_MAX)?,
            shards_map: loaded.map(map::SHARDS)?,
            processes_map: loaded.map(map::PROCESSES)?,
            targets_map: loaded.map(map::TARGETS)?,
            layouts_map: loaded.map(map::PYTHON_LAYOUTS)?,
            generation: 0,
            serial: 0,
        })
    }

    /// Bytes of the row shards; the other maps are counted with the object.
    pub fn shard_bytes(&self) -> u64 {
        self.shards.len() as u64 * u64::from(BLOCKS_PER_SHARD) * size_of::<RowBlock>() as u64
    }

    /// Makes slots that were given back long enough ago usable again.
    pub fn settle(&mut self, now_ns: u64) {
        for arena in [&mut self.blocks, &mut self.pages, &mut self.rules, &mut self.ids, &mut self.mappings] {
            arena.settle(now_ns);
        }
    }

    /// Places a table. It has no user yet: [`Tables::set_process`] adds users, and the last one that goes frees it.
    pub fn add_executable(
        &mut self,
        table: &UnwindTable,
        flags: u32,
        now_ns: u64,
    ) -> Result<ExecutableId, TableError> {
        let full = |what, arena: &Arena| TableError::Full { what, used: arena.used(), limit: arena.size() };
        let id = self.ids.take(1).ok_or_else(|| full("executables", &self.ids))?;
        let mut placed = LoadedExecutable { users: 0, blocks: Vec::new(), pages: 0..0, rules: 0..0 };
        match self.place(table, &mut placed) {
            Ok(()) => {
                let executable = Executable {
                    first_page: table.first_page(),
                    pages: table.pages().len() as u32,
                    pages_base: placed.pages.start,
                    rules_base: placed.rules.start,
                    rules: table.rules().len() as u32,
                    flags: flags | self.next_serial() << EXECUTABLE_SERIAL_SHIFT,
                };
                self.executables_array.set(id.start, executable);
                let key = ExecutableId(id.start);
                self.executables.insert(key, placed);
                Ok(key)
            }
            Err(error) => {
                self.free(placed, now_ns);
                self.ids.give(id, now_ns);
                Err(error)
            }
        }
    }

    /// Never 0, which stands for an empty cache entry; comes round after 16 million executables.
    fn next_serial(&mut self) -> u32 {
        self.serial = (self.serial + 1) & (u32::MAX >> EXECUTABLE_SERIAL_SHIFT);
        self.serial = self.serial.max(1);
        self.serial
    }

    fn place(&mut self, table: &UnwindTable, placed: &mut LoadedExecutable) -> Result<(), TableError> {
        let pages = table.pages().len() as u32;
        let rules = table.rules().len() as u32;
        placed.pages = self.pages.take(pages).ok_or_else(|| TableError::Full {
            what: "pages of text",
            used: self.pages.used(),
            limit: self.pages.size(),
        })?;
        placed.rules = self.rules.take(rules).ok_or_else(|| TableError::Full {
            what: "unwind rules",
            used: self.rules.used(),
            limit: self.rules.size(),
        })?;
        for (slot, rule) in placed.rules.clone().zip(table.rules()) {
            self.rules_array.set(slot, *rule);
        }
        for (slot, blocks) in placed.pages.clone().zip(table.page_blocks()) {
            let page = if blocks.is_empty() { Page::default() } else { self.place_page(blocks, placed)? };
            self.pages_array.set(slot, page);
        }
        Ok(())
    }

    /// Copies the blocks of one page into a shard.
    fn place_page(&mut self, blocks: &[RowBlock], placed: &mut LoadedExecutable) -> Result<Page, TableError> {
        let count = blocks.len() as u32;
        let run = loop {
            if let Some(run) = self.blocks.take(count) {
                break run;
            }
            self.add_shard()?;
        };
        let shard = run.start / BLOCKS_PER_SHARD;
        let first_block = run.start % BLOCKS_PER_SHARD;
        let rows = &mut self.shards[shard as usize].rows;
        for (i, block) in blocks.iter().enumerate() {
            rows.set(first_block + i as u32, *block);
        }
        match placed.blocks.last_mut() {
            Some(last) if last.end == run.start && !run.start.is_multiple_of(BLOCKS_PER_SHARD) => {
                last.end = run.end
            }
            _ => placed.blocks.push(run),
        }
        Ok(Page { first_block, shard: shard as u16, blocks: count as u16 })
    }

    fn add_shard(&mut self) -> Result<(), TableError> {
        let index = self.shards.len() as u32;
        if index == SHARDS_MAX {
            return Err(TableError::Full {
                what: "unwind rows (shards of 1 MiB)",
                used: index,
                limit: SHARDS_MAX,
            });
        }
        let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as u64,
            map_flags: libbpf_rs::libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let value = size_of::<RowBlock>() as u32;
        let shard =
            MapHandle::create(MapType::Array, Some("unwind_rows"), 4, value, BLOCKS_PER_SHARD, &options)
                .map_err(map_error(map::SHARDS))?;
        let rows = SharedArray::map(&shard, BLOCKS_PER_SHARD)
            .map_err(|source| TableError::Map { map: map::SHARDS, source })?;
        let fd = shard.as_fd().as_raw_fd() as u32;
        self.shards_map
            .update(index.as_bytes(), fd.as_bytes(), MapFlags::ANY)
            .map_err(map_error(map::SHARDS))?;
        self.shards.push(Shard { rows, _map: shard });
        self.blocks.grow();
        Ok(())
    }

    fn free(&mut self, executable: LoadedExecutable, now_ns: u64) {
        for run in executable.blocks {
            self.blocks.give(run, now_ns);
        }
        self.pages.give(executable.pages, now_ns);
        self.rules.give(executable.rules, now_ns);
    }

    /// Publishes the mappings (sorted by begin, not overlapping) and the interpreter of a process, in place of what
    /// was known of it before.
    pub fn set_process(
        &mut self,
        pid: u32,
        mappings: &[Mapping],
        python: PythonProcess,
        now_ns: u64,
    ) -> Result<Published, TableError> {
        let kept = &mappings[..mappings.len().min(PROCESS_MAPPINGS_MAX)];
        let run = self.mappings.take(kept.len() as u32).ok_or_else(|| TableError::Full {
            what: "mappings",
            used: self.mappings.used(),
            limit: self.mappings.size(),
        })?;
        for (slot, mapping) in run.clone().zip(kept) {
            self.mappings_array.set(slot, *mapping);
        }
        self.generation = self.generation.wrapping_add(1).max(1);
        let process = Process {
            mappings_base: run.start,
            mappings: kept.len() as u32,
            generation: self.generation,
            reserved: 0,
            python,
        };
        let published = self.processes_map.update(pid.as_bytes(), process.as_bytes(), MapFlags::ANY);
        if let Err(error) = published {
            self.mappings.give(run, now_ns);
            return Err(map_error(map::PROCESSES)(error));
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
        let before = self.processes.insert(pid, LoadedProcess { mappings: run, executables });
        let mut gone = before.map(|before| self.release(before, now_ns)).unwrap_or_default();
        gone.extend(self.drop_unused(now_ns));
        Ok(Published { generation: self.generation, left_out: mappings.len() - kept.len(), gone })
    }

    /// Forgets a process; gives the executables whose last user it was.
    pub fn remove_process(&mut self, pid: u32, now_ns: u64) -> Vec<ExecutableId> {
        // The process may be gone from the map already; that is what we want.
        let _ = self.processes_map.delete(pid.as_bytes());
        self.processes.remove(&pid).map(|process| self.release(process, now_ns)).unwrap_or_default()
    }

    fn release(&mut self, process: LoadedProcess, now_ns: u64) -> Vec<ExecutableId> {
        self.mappings.give(process.mappings, now_ns);
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

    /// Frees executables that were placed for a process which then could not be published, or does not use them.
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
            self.free(executable, now_ns);
            self.ids.give(id.0..id.0 + 1, now_ns);
        }
    }

    /// True while the table of this executable is loaded.
    pub fn has(&self, id: ExecutableId) -> bool {
        self.executables.contains_key(&id)
    }

    /// Makes a process a target.
    pub fn add_target(&mut self, pid: u32, target: Target) -> Result<(), TableError> {
        self.targets_map
            .update(pid.as_bytes(), target.as_bytes(), MapFlags::ANY)
            .map_err(map_error(map::TARGETS))
    }

    /// Stops sampling a process.
    pub fn remove_target(&mut self, pid: u32) {
        let _ = self.targets_map.delete(pid.as_bytes());
    }

    /// Publishes the interpreter layouts.
    pub fn set_layouts(&mut self, layouts: &[(u32, PythonLayout)]) -> Result<(), TableError> {
        for (index, layout) in layouts {
            self.layouts_map
                .update(index.as_bytes(), layout.as_bytes(), MapFlags::ANY)
                .map_err(map_error(map::PYTHON_LAYOUTS))?;
        }
        Ok(())
    }
}
