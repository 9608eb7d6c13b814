//! Modules of PyTorch: the names of layers within their model.
//!
//! Owns: reading the tree of modules below a called module, and the resulting name of each object. Because: a stack
//! contains the called objects, and only their containers know their names. Does not: know stacks, or the time of a
//! sample: names are the current ones.
//!
//! ```text
//!  called, outermost first:   GPT ─▶ Block ─▶ Attention          GPT._modules ─▶ { "h": … } ─▶ { "0": Block } ─▶ …
//!                             └ a root, by its class                            GPT.h           GPT.h.0
//! ```

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::layout::Layout;
use super::objects::{ObjectError, Objects, ReadResult};
use crate::memory::TargetMemory;

/// Most known modules of one process, and most modules of one tree: mixtures of experts have some ten thousand.
pub const MODULES_MAX: usize = 1 << 16;
/// Deepest nesting of modules.
pub const DEPTH_MAX: usize = 64;
/// Longest qualified name in bytes.
pub const PATH_MAX: usize = 1 << 10;
/// Most outermost modules of one process; at the bound the one whose last call is oldest is dropped. Losses and
/// activations that are created for each call are among them.
const ROOTS_MAX: usize = 256;
/// Most outermost modules of one class with numbered names; others are `GPT#?`. Each new one checks whether the
/// others still exist, at some five microseconds each.
const NUMBERED_MAX: u32 = 32;
/// Most known classes; at the bound all are dropped.
const CLASSES_MAX: usize = 1 << 12;
/// Most objects remembered to be in no known tree; at the bound all are dropped.
const UNLISTED_MAX: usize = 1 << 12;
/// Shortest time between two reads of a tree, nanoseconds.
const REREAD_INTERVAL_NS: u64 = 1_000_000_000;
/// A tree is read again after this multiple of the time that reading it took: half a percent of a CPU.
const REREAD_FACTOR: u64 = 200;
/// Time without calls after which a tree is dropped.
const EXPIRE_NS: u64 = 60_000_000_000;
/// Most new outermost modules read per second, at about twenty microseconds each.
const NEW_PER_SECOND_MAX: u32 = 200;

/// A module object that was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CalledModule {
    /// Address of the object.
    pub object: u64,
    /// Address of its type.
    pub of_type: u64,
}

/// The names of a module that was called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// Its qualified name, which starts with the class of the outermost module: `GPT`, and `GPT#2` for another one of
    /// that class that was called while the first existed. `None` for a module that neither contains others nor is
    /// contained.
    pub path: Option<Arc<str>>,
    /// The name of its class.
    pub class: Option<Arc<str>>,
}

#[derive(Debug)]
struct Root {
    of_type: u64,
    /// Number among the roots of its class, from 1. Zero for a module without others, which has no name.
    number: u32,
    /// Time of its last call.
    called_ns: u64,
    /// Time when its tree was last read.
    read_ns: u64,
    /// Earliest time to read its tree again.
    due_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct KnownModule {
    of_type: u64,
    root: u64,
    /// Empty for a module without others.
    path: Arc<str>,
}

/// The known modules of one process.
#[derive(Debug, Default)]
pub struct Modules {
    roots: FxHashMap<u64, Root>,
    known: FxHashMap<u64, KnownModule>,
    classes: FxHashMap<u64, Option<Arc<str>>>,
    /// Objects called below a root that were not in its tree when it was read.
    unlisted: FxHashSet<CalledModule>,
    /// The path of each object at its last call.
    reported_paths: FxHashMap<CalledModule, Option<Arc<str>>>,
    /// Address of the string `_modules`, once it is known.
    name: u64,
    /// New roots read in this second.
    new_roots: u32,
}

impl Modules {
    /// Records objects that called each other, innermost first. `complete`: the outermost one is among them. True
    /// when one of them has another name than before: earlier results for it are out of date.
    pub fn record_calls(
        &mut self,
        memory: &dyn TargetMemory,
        layout: &'static Layout,
        now_ns: u64,
        stack: &[CalledModule],
        complete: bool,
    ) -> bool {
        let objects = Objects::of_attributes(memory, layout);
        for called in stack {
            self.class(objects, called.of_type);
        }
        let Some(&outermost) = stack.last() else { return false };
        if self.root_of(outermost).is_none() && complete {
            self.read_new(objects, now_ns, outermost);
        }
        if let Some(root) = self.root_of(outermost) {
            self.search_root(objects, now_ns, root, stack);
        }
        let mut changed = self.reported_paths.len() + stack.len() > MODULES_MAX;
        if changed {
            self.reported_paths.clear();
        }
        for called in stack {
            let now = self.layer(*called).path;
            // An object without a path just now may still be the same one.
            if now.is_none() && self.reported_paths.contains_key(called) && !self.unlisted.contains(called) {
                continue;
            }
            let before = self.reported_paths.get(called);
            if before != Some(&now) {
                changed |= before.is_some();
                self.reported_paths.insert(*called, now);
            }
        }
        changed
    }

    /// Reads a root again if objects called below it are in no known tree.
    fn search_root(&mut self, objects: Objects<'_>, now_ns: u64, root: u64, stack: &[CalledModule]) {
        let Some(known) = self.roots.get_mut(&root) else { return };
        known.called_ns = known.called_ns.max(now_ns);
        let due = known.due_ns <= now_ns;
        if !due || !stack.iter().any(|called| self.is_new(*called)) {
            return;
        }
        self.read_again(objects, now_ns, root);
        if self.unlisted.len() + stack.len() > UNLISTED_MAX {
            self.unlisted.clear();
        }
        let unlisted: Vec<CalledModule> =
            stack.iter().copied().filter(|called| self.is_new(*called)).collect();
        self.unlisted.extend(unlisted);
    }

    fn is_new(&self, called: CalledModule) -> bool {
        self.root_of(called).is_none() && !self.unlisted.contains(&called)
    }

    /// The names of an object.
    pub fn layer(&self, called: CalledModule) -> Layer {
        let known = self.known.get(&called.object).filter(|known| known.of_type == called.of_type);
        Layer {
            path: known.map(|known| known.path.clone()).filter(|path| !path.is_empty()),
            class: self.classes.get(&called.of_type).cloned().flatten(),
        }
    }

    /// Reads trees and classes again when they are due, and drops trees without recent calls. True when the name of a
    /// class has changed: earlier results for it are out of date.
    pub fn revalidate(&mut self, memory: &dyn TargetMemory, layout: &'static Layout, now_ns: u64) -> bool {
        let objects = Objects::of_attributes(memory, layout);
        self.new_roots = 0;
        let expired: Vec<u64> = self
            .roots
            .iter()
            .filter(|(_, root)| root.called_ns.saturating_add(EXPIRE_NS) < now_ns)
            .map(|(address, _)| *address)
            .collect();
        expired.into_iter().for_each(|root| self.forget(root));
        let due: Vec<u64> = self
            .roots
            .iter()
            .filter(|(_, root)| root.due_ns <= now_ns && root.called_ns > root.read_ns)
            .map(|(address, _)| *address)
            .collect();
        for root in due {
            self.read_again(objects, now_ns, root);
        }
        let mut changed = false;
        let classes = std::mem::take(&mut self.classes);
        for (of_type, before) in classes {
            // A class that cannot be read any more keeps its name.
            let now = objects.type_name(of_type).ok().flatten().map(Arc::from);
            changed |= now.is_some() && before.is_some() && now != before;
            self.classes.insert(of_type, now.or(before));
        }
        changed
    }

    fn class(&mut self, objects: Objects<'_>, of_type: u64) -> Option<Arc<str>> {
        if let Some(known) = self.classes.get(&of_type) {
            return known.clone();
        }
        if self.classes.len() >= CLASSES_MAX {
            self.classes.clear();
        }
        let class: Option<Arc<str>> = objects.type_name(of_type).ok().flatten().map(Arc::from);
        self.classes.insert(of_type, class.clone());
        class
    }

    fn root_of(&self, called: CalledModule) -> Option<u64> {
        let known = self.known.get(&called.object).filter(|known| known.of_type == called.of_type);
        known.map(|known| known.root)
    }

    fn forget(&mut self, root: u64) {
        self.roots.remove(&root);
        self.known.retain(|_, known| known.root != root);
    }

    /// Reads the tree below a module that is in no known tree.
    fn read_new(&mut self, objects: Objects<'_>, now_ns: u64, called: CalledModule) {
        let CalledModule { object, of_type } = called;
        if self.new_roots >= NEW_PER_SECOND_MAX {
            return;
        }
        self.new_roots += 1;
        // Another object may have been a root at this address.
        self.forget(object);
        if self.roots.len() >= ROOTS_MAX
            && let Some(oldest) = self.roots.iter().min_by_key(|(_, root)| root.called_ns).map(|(at, _)| *at)
        {
            self.forget(oldest);
        }
        let root = Root { of_type, number: 0, called_ns: now_ns, read_ns: 0, due_ns: 0 };
        self.roots.insert(object, root);
        self.read_again(objects, now_ns, object);
    }

    /// The number of an outermost module among the existing ones of its class: its previous number, or else the first
    /// free one.
    fn number(&mut self, objects: Objects<'_>, called: CalledModule) -> u32 {
        let class = self.class(objects, called.of_type);
        let same_class: Vec<(u64, u64, u32)> = self
            .roots
            .iter()
            .filter(|(_, root)| root.number > 0 && self.classes.get(&root.of_type) == Some(&class))
            .map(|(at, root)| (*at, root.of_type, root.number))
            .collect();
        let mut taken = [false; NUMBERED_MAX as usize];
        for (at, of_type, number) in same_class {
            // A freed object has no attributes.
            let exists = self
                .children(objects, at)
                .is_ok_and(|(now, children)| now == of_type && !children.is_empty());
            match taken.get_mut(number as usize - 1) {
                Some(taken) if exists => *taken = true,
                _ if exists => {}
                _ => self.forget(at),
            }
        }
        let previous = self.reported_paths.get(&called).and_then(Option::as_deref).and_then(|path| {
            let (_, number) = path.rsplit_once('#').unwrap_or((path, "1"));
            number.parse::<u32>().ok()
        });
        let free = (1..).zip(taken).filter(|(_, taken)| !taken).map(|(number, _)| number);
        let mut free = free.peekable();
        let first = free.peek().copied().unwrap_or(NUMBERED_MAX + 1);
        previous.filter(|previous| free.any(|number| number == *previous)).unwrap_or(first)
    }

    /// Reads the tree of a root again.
    fn read_again(&mut self, objects: Objects<'_>, now_ns: u64, root: u64) {
        let Some((of_type, number)) = self.roots.get(&root).map(|root| (root.of_type, root.number)) else {
            return;
        };
        let start = std::time::Instant::now();
        let number =
            if number == 0 { self.number(objects, CalledModule { object: root, of_type }) } else { number };
        let tree = match self.class(objects, of_type) {
            Some(class) if objects.type_of(root) == Ok(of_type) => {
                self.tree(objects, root, name_of(class, number))
            }
            _ => FxHashMap::default(),
        };
        let took_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if tree.is_empty() {
            // The object was freed, or replaced.
            return self.forget(root);
        }
        if let Some(known) = self.roots.get_mut(&root) {
            known.read_ns = now_ns;
            known.number = if tree.len() == 1 { 0 } else { number };
            known.due_ns =
                now_ns.saturating_add(took_ns.saturating_mul(REREAD_FACTOR).max(REREAD_INTERVAL_NS));
        }
        // Trees that are part of this one are dropped in favor of it.
        self.roots.retain(|other, _| *other == root || !tree.contains_key(other));
        let roots = &self.roots;
        self.known.retain(|_, known| known.root != root && roots.contains_key(&known.root));
        for (object, now) in tree {
            self.unlisted.remove(&CalledModule { object, of_type: now.of_type });
            let other = self.known.get(&object).is_some_and(|known| known.of_type == now.of_type);
            if !other && self.known.len() < MODULES_MAX {
                self.known.insert(object, now);
            }
        }
    }

    /// A module and the modules below it, each under the first path that leads to it, depth first.
    fn tree(&mut self, objects: Objects<'_>, root: u64, class: Arc<str>) -> FxHashMap<u64, KnownModule> {
        let mut tree: FxHashMap<u64, KnownModule> = FxHashMap::default();
        let mut open: Vec<(u64, Arc<str>, usize)> = vec![(root, class, 0)];
        while let Some((object, path, depth)) = open.pop() {
            if tree.len() >= MODULES_MAX || tree.contains_key(&object) {
                continue;
            }
            let Ok((of_type, children)) = self.children(objects, object) else { continue };
            if depth < DEPTH_MAX {
                // Reversed, so that the first child is read next.
                for (name, child) in children.into_iter().rev() {
                    let below = path.len() + 1 + name.len();
                    if below <= PATH_MAX && open.len() < MODULES_MAX {
                        open.push((child, format!("{path}.{name}").into(), depth + 1));
                    }
                }
            }
            tree.insert(object, KnownModule { of_type, root, path });
        }
        // A module without others has no path, and may be created for each call, here or within others.
        if tree.len() == 1 {
            tree.values_mut().for_each(|known| known.path = "".into());
        }
        tree
    }

    /// The type of a module, and the modules in it with their names. An error for objects that are no modules.
    fn children(&mut self, objects: Objects<'_>, object: u64) -> ReadResult<(u64, Vec<(String, u64)>)> {
        let of_type = objects.type_of(object)?;
        let attributes = objects.attributes(object)?;
        let modules = objects.find_known(&attributes, "_modules", &mut self.name);
        let modules = modules.ok_or(ObjectError::WrongKind)?;
        if !objects.is_a(modules, "dict")? {
            return Err(ObjectError::WrongKind);
        }
        let children = objects.entries(modules)?;
        let named = children.into_iter().filter_map(|(name, child)| Some((objects.name(name)?, child)));
        Ok((of_type, named.collect()))
    }
}

/// The name of the outermost module of a class with this number.
fn name_of(class: Arc<str>, number: u32) -> Arc<str> {
    match number {
        ..=1 => class,
        2..=NUMBERED_MAX => format!("{class}#{number}").into(),
        _ => format!("{class}#?").into(),
    }
}

#[cfg(test)]
#[path = "modules_tests.rs"]
mod tests;
