//! Code: the unwind tables of a process, loaded when a walk first reaches their file.
//!
//! Owns: which table covers an address, and when it is read. Because: a waiting process maps hundreds of libraries,
//! and its stacks touch a handful. Does not: place anything in the kernel, or know threads.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use deepctx_common::end::WalkEnd;
use deepctx_common::unwind::{self, Rule, rule_kind};
use deepctx_symbolizer::FileVersion;
use deepctx_symbolizer::elf::ElfFacts;
use deepctx_symbolizer::maps::{self, Backing, Mapping};
use deepctx_symbolizer::unwind_rows::UnwindTable;
use deepctx_symbolizer::unwind_rows::cache::{Cache, Key};

use crate::executables::{built, vdso_table};
use crate::generated::{GeneratedCodeCache, GeneratedMapping, ProcessView};
use crate::processes::flags;

/// Tables of files, shared by all processes of a dump.
pub(super) struct Files {
    cache: Option<Cache>,
    by_file: HashMap<(u64, u64), LoadedFile>,
    generated: GeneratedCodeCache,
}

/// The result for a file.
#[derive(Clone)]
struct LoadedFile {
    facts: Option<ElfFacts>,
    table: Option<Rc<UnwindTable>>,
}

impl Files {
    pub(super) fn new(cache: Option<Cache>) -> Self {
        Self { cache, by_file: HashMap::new(), generated: GeneratedCodeCache::default() }
    }

    /// The table of a mapping, and the bias between its addresses and those of the file.
    fn load(&mut self, pid: u32, mapping: &Mapping) -> (u64, Option<Rc<UnwindTable>>) {
        match mapping.backing {
            Backing::Vdso => {
                let table = vdso_table(mapping).ok();
                (mapping.begin.0, table.map(Rc::new))
            }
            Backing::Anonymous => (0, self.generated(pid, mapping)),
            _ => {
                let known = self.of_file(pid, mapping);
                let segment = known.facts.as_ref().and_then(|facts| facts.segment_at(mapping.offset));
                let svma = segment.map_or(mapping.offset.0, |segment| segment.svma_of(mapping.offset).0);
                (mapping.begin.0.wrapping_sub(svma), known.table)
            }
        }
    }

    /// Generated code has its run-time addresses as stated ones.
    fn generated(&mut self, pid: u32, mapping: &Mapping) -> Option<Rc<UnwindTable>> {
        let surroundings = ProcessView::read(pid, false)?;
        match self.generated.find(pid, mapping, &surroundings, |_| false) {
            GeneratedMapping::New(_, table) => table.into_table().map(Rc::new),
            GeneratedMapping::Resolved(_) => None,
        }
    }

    fn of_file(&mut self, pid: u32, mapping: &Mapping) -> LoadedFile {
        const NOTHING: LoadedFile = LoadedFile { facts: None, table: None };
        let Ok(file) = maps::open(pid, mapping) else { return NOTHING };
        let Ok(version) = FileVersion::of(&file) else { return NOTHING };
        let cache = self.cache.as_ref();
        let read = || {
            let key = Key::of_file(&version);
            let stored = cache.and_then(|cache| cache.load(&key));
            let table = stored.or_else(|| built(&file, cache.map(|cache| (cache, &key))).ok()?.into_table());
            LoadedFile { facts: ElfFacts::read(&file).ok(), table: table.map(Rc::new) }
        };
        self.by_file.entry((version.device, version.inode)).or_insert_with(read).clone()
    }
}

/// The executable mappings of a process.
pub(super) struct Code {
    pid: u32,
    mappings: Vec<Mapping>,
    /// In the same order; `None` until requested.
    loaded: RefCell<Vec<Option<LoadedMapping>>>,
    /// Mappings requested while nothing could be loaded.
    wanted: RefCell<Vec<usize>>,
    may_load: Cell<bool>,
}

#[derive(Clone)]
struct LoadedMapping {
    mapping: unwind::Mapping,
    table: Option<Rc<UnwindTable>>,
}

impl Code {
    pub(super) fn new(pid: u32, mappings: Vec<Mapping>) -> Self {
        let loaded = RefCell::new(mappings.iter().map(|_| None).collect());
        Self { pid, mappings, loaded, wanted: RefCell::default(), may_load: Cell::new(true) }
    }

    /// Whether requested tables are loaded, or only noted.
    pub(super) fn set_may_load(&self, may_load: bool) {
        self.may_load.set(may_load);
    }

    /// Loads the noted tables. False if there are none.
    pub(super) fn load_wanted(&self, files: &mut Files) {
        for at in self.wanted.take() {
            self.load(at, files);
        }
    }

    pub(super) fn has_wanted(&self) -> bool {
        !self.wanted.borrow().is_empty()
    }

    /// The mapping that holds an address, for the walker. Its `executable` is the key for [`Code::rule`].
    pub(super) fn mapping(&self, pc: u64, files: &mut Files) -> Result<(unwind::Mapping, bool), WalkEnd> {
        let after = self.mappings.partition_point(|mapping| mapping.begin.0 <= pc);
        let at = after.checked_sub(1).ok_or(WalkEnd::NoMapping)?;
        let mapping = &self.mappings[at];
        if pc >= mapping.end.0 || mapping.backing == Backing::Uprobes {
            return Err(WalkEnd::NoMapping);
        }
        if self.loaded.borrow()[at].is_none() {
            if !self.may_load.get() {
                self.wanted.borrow_mut().push(at);
                return Err(WalkEnd::NoTable);
            }
            self.load(at, files);
        }
        let loaded = self.loaded.borrow();
        let loaded = loaded[at].as_ref().ok_or(WalkEnd::NoTable)?;
        Ok((loaded.mapping, loaded.table.is_some()))
    }

    /// The rule for an address in the file of a mapping.
    pub(super) fn rule(&self, mapping: &unwind::Mapping, svma: u64) -> Result<Rule, WalkEnd> {
        let loaded = self.loaded.borrow();
        let loaded = loaded.get(mapping.executable as usize).and_then(Option::as_ref);
        let table = loaded.and_then(|loaded| loaded.table.as_ref()).ok_or(WalkEnd::NoTable)?;
        table.lookup(svma).filter(|rule| rule.cfa != rule_kind::NONE).ok_or(WalkEnd::NoRow)
    }

    fn load(&self, at: usize, files: &mut Files) {
        let mapping = &self.mappings[at];
        let (bias, table) = files.load(self.pid, mapping);
        let flags = flags(mapping.backing, table.is_some());
        let (begin, end) = (mapping.begin.0, mapping.end.0);
        let mapping = unwind::Mapping { begin, end, bias, executable: at as u32, flags };
        self.loaded.borrow_mut()[at] = Some(LoadedMapping { mapping, table });
    }
}
