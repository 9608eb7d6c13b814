//! Modules of PyTorch: what a layer is called within its model.
//!
//! Owns: reading the tree of modules below one that was seen to be called, and what is known of each object by that.
//! Because: a stack tells which objects were called, and only their containers know their names.
//! Does not: know stacks, or when a sample was taken: what it tells is how things are now.
//!
//! ```text
//!  called, outermost first:   GPT ─▶ Block ─▶ Attention          GPT._modules ─▶ { "h": … } ─▶ { "0": Block } ─▶ …
//!                             └ a root, by its class                            GPT.h           GPT.h.0
//! ```

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::layout::Layout;
use super::memory::TargetMemory;
use super::objects::{Found, ObjectError, Objects};

/// Modules of one process that are known, and of one tree that are read: mixtures of experts have some ten thousand.
pub const MODULES_MAX: usize = 1 << 16;
/// Modules within each other.
pub const DEPTH_MAX: usize = 64;
/// Bytes of a qualified name.
pub const PATH_MAX: usize = 1 << 10;
/// Outermost modules of one process that are known; at the bound the one that was not called for longest is forgotten.
/// Losses and activations that are made anew for each call are some of them.
const ROOTS_MAX: usize = 256;
/// Outermost modules of one class that have names of their own; more are `GPT#?`. Each new one asks whether the others are still
/// there, at some five microseconds each.
const ALIKE_MAX: u32 = 32;
/// Classes of modules that are known; at the bound all are forgotten.
const CLASSES_MAX: usize = 1 << 12;
/// Objects that are remembered to be none of a known tree; at the bound all are forgotten.
const STRANGERS_MAX: usize = 1 << 12;
/// Shortest time between two readings of a tree, nanoseconds.
const AGAIN_NS: u64 = 1_000_000_000;
/// A tree is read again after this many times the time that reading it took: half a percent of a CPU.
const REST: u64 = 200;
/// Time after which a tree is forgotten that was not called.
const FORGOTTEN_NS: u64 = 60_000_000_000;
/// Outermost modules that are read in a second when each call is of a new one, at about twenty microseconds each.
const NEW_MAX: u32 = 200;

/// An object that was called: its address, and that of its type.
pub type Called = (u64, u64);

/// What is known of an object that was called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer {
    /// Its qualified name, beginning with the class of the outermost module: `GPT`, and `GPT#2` for another one of that class
    /// that was called while the first was there. Not of one that is in no other and has none
    /// in it.
    pub path: Option<Arc<str>>,
    /// Its class.
    pub class: Option<Arc<str>>,
}

#[derive(Debug)]
struct Root {
    of_type: u64,
    /// Tells it from others of its class, from 1. Zero for one that stands alone, which has no name.
    number: u32,
    /// When it was last called, and when its tree was last read and is read again at the earliest.
    called_ns: u64,
    read_ns: u64,
    due_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    of_type: u64,
    root: u64,
    /// Empty for one that stands alone.
    path: Arc<str>,
}

/// What is remembered of one process's modules.
#[derive(Debug, Default)]
pub struct Modules {
    roots: FxHashMap<u64, Root>,
    known: FxHashMap<u64, Known>,
    classes: FxHashMap<u64, Option<Arc<str>>>,
    /// Called within a root, and not in its tree when that was read.
    strangers: FxHashSet<Called>,
    /// Paths as they were when each object was called last.
    told: FxHashMap<Called, Option<Arc<str>>>,
    /// The string `_modules`, once it was met.
    name: u64,
    /// Roots read in this second.
    new: u32,
}

impl Modules {
    /// Takes note of objects that were called, each by the next, innermost first. `whole`: none is missing further out. True
    /// when one of them is known by another name than before: answers about it are out of date.
    pub fn called(
        &mut self,
        memory: &dyn TargetMemory,
        layout: &'static Layout,
        now_ns: u64,
        stack: &[Called],
        whole: bool,
    ) -> bool {
        let objects = Objects::of_attributes(memory, layout);
        for (_, of_type) in stack {
            self.class(objects, *of_type);
        }
        let Some(&outermost) = stack.last() else { return false };
        if self.root_of(outermost).is_none() && whole {
            self.read_new(objects, now_ns, outermost);
        }
        if let Some(root) = self.root_of(outermost) {
            self.look_for(objects, now_ns, root, stack);
        }
        let mut changed = self.told.len() + stack.len() > MODULES_MAX;
        if changed {
            self.told.clear();
        }
        for called in stack {
            let now = self.layer(*called).path;
            // One that cannot be found just now need not be another one.
            if now.is_none() && self.told.contains_key(called) && !self.strangers.contains(called) {
                continue;
            }
            let before = self.told.get(called);
            if before != Some(&now) {
                changed |= before.is_some();
                self.told.insert(*called, now);
            }
        }
        changed
    }

    /// Looks for objects that were called within a root and are in no known tree.
    fn look_for(&mut self, objects: Objects<'_>, now_ns: u64, root: u64, stack: &[Called]) {
        let Some(known) = self.roots.get_mut(&root) else { return };
        known.called_ns = known.called_ns.max(now_ns);
        let due = known.due_ns <= now_ns;
        if !due || !stack.iter().any(|called| self.is_new(*called)) {
            return;
        }
        self.read_again(objects, now_ns, root);
        if self.strangers.len() + stack.len() > STRANGERS_MAX {
            self.strangers.clear();
        }
        let strangers: Vec<Called> = stack.iter().copied().filter(|called| self.is_new(*called)).collect();
        self.strangers.extend(strangers);
    }

    fn is_new(&self, called: Called) -> bool {
        self.root_of(called).is_none() && !self.strangers.contains(&called)
    }

    /// What is known of an object.
    pub fn layer(&self, (object, of_type): Called) -> Layer {
        let known = self.known.get(&object).filter(|known| known.of_type == of_type);
        Layer {
            path: known.map(|known| known.path.clone()).filter(|path| !path.is_empty()),
            class: self.classes.get(&of_type).cloned().flatten(),
        }
    }

    /// Compares what is known with the process, where it is time to; forgets what was not called for long. True when the
    /// name of a class is another one: answers about it are out of date.
    pub fn compare(&mut self, memory: &dyn TargetMemory, layout: &'static Layout, now_ns: u64) -> bool {
        let objects = Objects::of_attributes(memory, layout);
        self.new = 0;
        let forgotten: Vec<u64> = self
            .roots
            .iter()
            .filter(|(_, root)| root.called_ns.saturating_add(FORGOTTEN_NS) < now_ns)
            .map(|(address, _)| *address)
            .collect();
        forgotten.into_iter().for_each(|root| self.forget(root));
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
            // What cannot be read any more was so when it was read.
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

    fn root_of(&self, (object, of_type): Called) -> Option<u64> {
        self.known.get(&object).filter(|known| known.of_type == of_type).map(|known| known.root)
    }

    fn forget(&mut self, root: u64) {
        self.roots.remove(&root);
        self.known.retain(|_, known| known.root != root);
    }

    /// Reads the tree below a module that no known tree has.
    fn read_new(&mut self, objects: Objects<'_>, now_ns: u64, (object, of_type): Called) {
        if self.new >= NEW_MAX {
            return;
        }
        self.new += 1;
        // Another object may have been a root there.
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

    /// The number of an outermost module among those of its class that are there: the one that it had, or else the first that is
    /// free.
    fn number(&mut self, objects: Objects<'_>, called: Called) -> u32 {
        let class = self.class(objects, called.1);
        let alike: Vec<(u64, u64, u32)> = self
            .roots
            .iter()
            .filter(|(_, root)| root.number > 0 && self.classes.get(&root.of_type) == Some(&class))
            .map(|(at, root)| (*at, root.of_type, root.number))
            .collect();
        let mut taken = [false; ALIKE_MAX as usize];
        for (at, of_type, number) in alike {
            // An object that is gone has lost its attributes.
            let is_there = self
                .children(objects, at)
                .is_ok_and(|(now, children)| now == of_type && !children.is_empty());
            match taken.get_mut(number as usize - 1) {
                Some(taken) if is_there => *taken = true,
                _ if is_there => {}
                _ => self.forget(at),
            }
        }
        let had = self.told.get(&called).and_then(Option::as_deref).and_then(|path| {
            let (_, number) = path.rsplit_once('#').unwrap_or((path, "1"));
            number.parse::<u32>().ok()
        });
        let free = (1..).zip(taken).filter(|(_, taken)| !taken).map(|(number, _)| number);
        let mut free = free.peekable();
        let first = free.peek().copied().unwrap_or(ALIKE_MAX + 1);
        had.filter(|had| free.any(|number| number == *had)).unwrap_or(first)
    }

    /// Reads the tree of a root again.
    fn read_again(&mut self, objects: Objects<'_>, now_ns: u64, root: u64) {
        let Some((of_type, number)) = self.roots.get(&root).map(|root| (root.of_type, root.number)) else {
            return;
        };
        let began = std::time::Instant::now();
        let number = if number == 0 { self.number(objects, (root, of_type)) } else { number };
        let tree = match self.class(objects, of_type) {
            Some(class) if objects.type_of(root) == Ok(of_type) => {
                self.tree(objects, root, name_of(class, number))
            }
            _ => FxHashMap::default(),
        };
        let took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        if tree.is_empty() {
            // It is gone, or something else by now.
            return self.forget(root);
        }
        if let Some(known) = self.roots.get_mut(&root) {
            known.read_ns = now_ns;
            known.number = if tree.len() == 1 { 0 } else { number };
            known.due_ns = now_ns.saturating_add(took_ns.saturating_mul(REST).max(AGAIN_NS));
        }
        // Trees that are part of this one are told by it from now on.
        self.roots.retain(|other, _| *other == root || !tree.contains_key(other));
        let roots = &self.roots;
        self.known.retain(|_, known| known.root != root && roots.contains_key(&known.root));
        for (object, now) in tree {
            self.strangers.remove(&(object, now.of_type));
            let other = self.known.get(&object).is_some_and(|known| known.of_type == now.of_type);
            if !other && self.known.len() < MODULES_MAX {
                self.known.insert(object, now);
            }
        }
    }

    /// The modules below one, and that one, by the first name that leads to each, depth first.
    fn tree(&mut self, objects: Objects<'_>, root: u64, class: Arc<str>) -> FxHashMap<u64, Known> {
        let mut tree: FxHashMap<u64, Known> = FxHashMap::default();
        let mut open: Vec<(u64, Arc<str>, usize)> = vec![(root, class, 0)];
        while let Some((object, path, depth)) = open.pop() {
            if tree.len() >= MODULES_MAX || tree.contains_key(&object) {
                continue;
            }
            let Ok((of_type, children)) = self.children(objects, object) else { continue };
            if depth < DEPTH_MAX {
                // The first one is read next.
                for (name, child) in children.into_iter().rev() {
                    let below = path.len() + 1 + name.len();
                    if below <= PATH_MAX && open.len() < MODULES_MAX {
                        open.push((child, format!("{path}.{name}").into(), depth + 1));
                    }
                }
            }
            tree.insert(object, Known { of_type, root, path });
        }
        // One that stands alone has no place, and may be made anew for each call, here or within others.
        if tree.len() == 1 {
            tree.values_mut().for_each(|known| known.path = "".into());
        }
        tree
    }

    /// The type of a module, and the modules in it with their names. An error for what is no module.
    fn children(&mut self, objects: Objects<'_>, object: u64) -> Found<(u64, Vec<(String, u64)>)> {
        let of_type = objects.type_of(object)?;
        let attributes = objects.attributes(object)?;
        let modules = objects.find_known(&attributes, "_modules", &mut self.name);
        let modules = modules.ok_or(ObjectError::Other)?;
        if !objects.is_a(modules, "dict")? {
            return Err(ObjectError::Other);
        }
        let children = objects.entries(modules)?;
        let named = children.into_iter().filter_map(|(name, child)| Some((objects.name(name)?, child)));
        Ok((of_type, named.collect()))
    }
}

/// What the outermost module of a class is called that has this number.
fn name_of(class: Arc<str>, number: u32) -> Arc<str> {
    match number {
        ..=1 => class,
        2..=ALIKE_MAX => format!("{class}#{number}").into(),
        _ => format!("{class}#?").into(),
    }
}

#[cfg(test)]
#[path = "modules_tests.rs"]
mod tests;
