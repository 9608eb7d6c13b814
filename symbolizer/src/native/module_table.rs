//! Modules by handle.
//!
//! Owns: handles, [`Module`], each user's share of the table. Because: stacks keep handles, so a handle must never
//! refer to another file; yet a machine that starts new programs for weeks has more files than memory. Does not: open
//! files, or decide which module is forgotten.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use deepctx_address_space::elf::{ElfFacts, ModuleId};
use deepctx_address_space::shares::Shares;
use deepctx_address_space::{FileKey, NoSymbol, Svma};

/// A user may have four times as many modules as are left for all others.
const SHARE_MULTIPLE: usize = 4;

/// A module, valid for the table that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleHandle(u32);

impl ModuleHandle {
    /// Number of the module in the order in which they were opened, from 0; never reused.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// One file.
#[derive(Debug)]
pub struct Module {
    pub(super) id: ModuleId,
    pub(super) name: Arc<str>,
    pub(super) path: Arc<str>,
    pub(super) facts: ElfFacts,
    pub(super) key: FileKey,
    /// The user whose process mapped it first.
    pub(super) user: u32,
    pub(super) file: Option<Arc<File>>,
    /// Paths by which the file can be opened again after it was closed. The vdso has none.
    pub(super) origins: Vec<PathBuf>,
}

impl Module {
    /// Identity of the content.
    pub const fn id(&self) -> ModuleId {
        self.id
    }

    /// File name without folders (`libc.so.6`), or `[vdso]`.
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Path as the first process that mapped it sees it.
    pub const fn path(&self) -> &Arc<str> {
        &self.path
    }

    /// Segments and sections.
    pub const fn facts(&self) -> &ElfFacts {
        &self.facts
    }

    /// Text for an address without a name: `libc.so.6+0x1234`.
    pub fn label(&self, address: Svma) -> String {
        format!("{}+{:#x}", self.name, address.0)
    }

    fn bytes(&self) -> usize {
        let origins = self.origins.iter().map(|path| path.as_os_str().len() + size_of::<PathBuf>());
        size_of_val(&*self.facts.segments) + self.path.len() + self.name.len() + origins.sum::<usize>()
    }
}

/// All modules that are not forgotten.
#[derive(Debug)]
pub(super) struct ModuleTable {
    modules: BTreeMap<ModuleHandle, Module>,
    /// Number of the next module.
    next: u32,
    shares: Shares,
}

impl ModuleTable {
    /// With room for so many modules.
    pub(super) fn new(room: usize) -> Self {
        Self { modules: BTreeMap::new(), next: 0, shares: Shares::new(room, SHARE_MULTIPLE) }
    }

    /// Whether a user may add a module.
    pub(super) fn allows(&self, user: u32) -> bool {
        self.shares.allows(user, 1)
    }

    /// Adds a module, charged to its user.
    ///
    /// # Errors
    /// [`NoSymbol::TooManyModules`]: the user has its share, or all handles were given out.
    pub(super) fn insert(&mut self, module: Module) -> Result<ModuleHandle, NoSymbol> {
        let next = self.next.checked_add(1).ok_or(NoSymbol::TooManyModules)?;
        if !self.shares.take(module.user, 1) {
            return Err(NoSymbol::TooManyModules);
        }
        let handle = ModuleHandle(self.next);
        self.next = next;
        self.modules.insert(handle, module);
        Ok(handle)
    }

    /// Removes a module. Its handle stays unused.
    pub(super) fn forget(&mut self, handle: ModuleHandle) -> Option<Module> {
        let module = self.modules.remove(&handle)?;
        self.shares.give(module.user, 1);
        Some(module)
    }

    pub(super) fn get(&self, handle: ModuleHandle) -> Option<&Module> {
        self.modules.get(&handle)
    }

    pub(super) fn get_mut(&mut self, handle: ModuleHandle) -> Option<&mut Module> {
        self.modules.get_mut(&handle)
    }

    /// Modules opened since, and including, the one of this number, in that order.
    pub(super) fn since(&self, number: u32) -> impl Iterator<Item = (ModuleHandle, &Module)> {
        self.modules.range(ModuleHandle(number)..).map(|(handle, module)| (*handle, module))
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        // A node of the tree is two thirds full on average.
        self.modules.len() * size_of::<(ModuleHandle, Module)>() * 3 / 2
            + self.modules.values().map(Module::bytes).sum::<usize>()
    }
}
