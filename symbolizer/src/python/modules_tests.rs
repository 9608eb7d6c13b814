//! Names of PyTorch modules in synthetic memory.
//!
//! Owns: building the objects of an interpreter that lead to a module, intact and corrupt. Because: no real
//! interpreter has corrupt objects on demand. Does not: read a process.

use super::super::layout::all_layouts;
use super::*;
use crate::memory::{ReadError, RecordedMemory};

/// Synthetic objects of an interpreter.
struct Heap {
    memory: RecordedMemory,
    layout: &'static Layout,
    next: u64,
    dict_type: u64,
}

/// Readable bytes around each object.
const ROOM: u64 = 1 << 11;
const MILLISECOND: u64 = 1_000_000;

impl Heap {
    fn new(layout: &'static Layout) -> Self {
        let mut heap = Self { memory: RecordedMemory::default(), layout, next: 1 << 32, dict_type: 0 };
        heap.dict_type = heap.class("dict");
        heap
    }

    fn head(&self) -> u64 {
        if self.layout.free_threaded { 32 } else { 16 }
    }

    fn address(&mut self) -> u64 {
        self.next += 2 * ROOM;
        self.next
    }

    /// Writes words at offsets of an object, which may be negative.
    fn put(&mut self, at: u64, words: &[(i64, u64)]) {
        let mut bytes = vec![0; 2 * ROOM as usize];
        for (offset, word) in words {
            let from = (ROOM as i64 + offset) as usize;
            bytes[from..from + 8].copy_from_slice(&word.to_le_bytes());
        }
        self.memory.insert(at - ROOM, bytes);
    }

    fn type_word(&self, of_type: u64) -> (i64, u64) {
        (i64::from(self.layout.user.object_type), of_type)
    }

    fn class(&mut self, name: &str) -> u64 {
        let text = self.address();
        let mut bytes = name.as_bytes().to_vec();
        bytes.resize(256, 0);
        self.memory.insert(text, bytes);
        let (at, head) = (self.address(), self.head() as i64);
        let managed = if self.layout.minor >= 11 { 1 << 4 } else { 0 };
        self.put(at, &[(head + 8, text), (head + 152, managed), (head + 272, self.head())]);
        at
    }

    fn text(&mut self, text: &str) -> u64 {
        let user = &self.layout.user;
        let (at, state) = (self.address(), u64::from(1_u32 | 8 | 16) << user.str_kind_shift);
        let mut bytes = vec![0; 256];
        let mut put =
            |at: u16, from: &[u8]| bytes[at.into()..usize::from(at) + from.len()].copy_from_slice(from);
        put(user.str_length, &(text.len() as u64).to_le_bytes());
        put(user.str_state, &state.to_le_bytes()[..4]);
        put(user.str_ascii_data, text.as_bytes());
        self.memory.insert(at, bytes);
        at
    }

    fn dict(&mut self, entries: &[(u64, u64)]) -> u64 {
        let (keys, at) = (self.address(), self.address());
        let number = entries.len() as u64;
        let mut words = match self.layout.minor {
            ..11 => vec![(8, 8), (32, number)],
            // { refcount, 3, 3, general, … }
            _ => vec![(8, 0x0303), (24, number)],
        };
        let first = if self.layout.minor < 11 { 40 + 8 } else { 32 + 8 };
        for (n, (key, value)) in (0..).zip(entries) {
            words.extend([(first + 24 * n + 8, *key), (first + 24 * n + 16, *value)]);
        }
        self.put(keys, &words);
        self.put(at, &[self.type_word(self.dict_type), (self.head() as i64 + 16, keys)]);
        at
    }

    /// Makes the object at `at` a module.
    fn module(&mut self, at: u64, class: u64, children: &[(&str, u64)]) {
        let children: Vec<_> = children.iter().map(|(name, child)| (self.text(name), *child)).collect();
        let (other, name) = (self.text("training"), self.text("_modules"));
        let modules = self.dict(&children);
        let attributes = self.dict(&[(other, class), (name, modules)]);
        let place = match (self.layout.minor, self.layout.free_threaded) {
            (..11, _) => self.head() as i64,
            (_, true) => -8,
            (_, false) => -24,
        };
        self.put(at, &[self.type_word(class), (place, attributes)]);
    }
}

/// A model: `Net { a: Block { in: Leaf, up: the model }, b: the same Leaf, none }`.
struct Model {
    heap: Heap,
    net: CalledModule,
    block: CalledModule,
    leaf: CalledModule,
}

fn model(layout: &'static Layout) -> Model {
    let mut heap = Heap::new(layout);
    let [net, block, leaf] = ["Net", "Block", "my.Leaf"]
        .map(|name| CalledModule { object: heap.address(), of_type: heap.class(name) });
    heap.module(leaf.object, leaf.of_type, &[]);
    heap.module(block.object, block.of_type, &[("in", leaf.object), ("up", net.object)]);
    let none = heap.class("NoneType");
    heap.module(net.object, net.of_type, &[("a", block.object), ("none", none), ("b", leaf.object)]);
    Model { heap, net, block, leaf }
}

fn text(modules: &Modules, called: CalledModule) -> String {
    let Layer { path, class } = modules.layer(called);
    format!("{} ({})", path.as_deref().unwrap_or("?"), class.as_deref().unwrap_or("?"))
}

#[test]
fn modules_have_the_first_path_in_every_version() {
    for layout in all_layouts() {
        let Model { heap, net, block, leaf } = model(layout);
        let mut modules = Modules::default();
        let changed = modules.record_calls(&heap.memory, layout, 0, &[leaf, block, net], true);
        let got = [net, block, leaf].map(|called| text(&modules, called));
        assert_eq!(got, ["Net (Net)", "Net.a (Block)", "Net.a.in (Leaf)"], "3.{}", layout.minor);
        assert!(!changed, "no name was reported before");
    }
}

#[test]
fn a_module_in_no_tree_has_only_a_class() {
    let layout = Layout::of(13, false).unwrap();
    let Model { mut heap, net, leaf, .. } = model(layout);
    let unlisted = CalledModule { object: heap.address(), of_type: leaf.of_type };
    heap.module(unlisted.object, unlisted.of_type, &[]);
    let mut modules = Modules::default();
    modules.record_calls(&heap.memory, layout, 0, &[unlisted, net], true);
    assert_eq!(text(&modules, unlisted), "? (Leaf)");
    modules.record_calls(&heap.memory, layout, 0, &[unlisted], true);
    assert_eq!(text(&modules, unlisted), "? (Leaf)");
    assert_eq!(
        text(&modules, CalledModule { of_type: 8, ..unlisted }),
        "? (?)",
        "another type at the same address"
    );
}

#[test]
fn an_incomplete_stack_makes_no_root() {
    let layout = Layout::of(11, false).unwrap();
    let Model { heap, net, block, leaf } = model(layout);
    let mut modules = Modules::default();
    modules.record_calls(&heap.memory, layout, 0, &[leaf, block], false);
    assert_eq!(text(&modules, block), "? (Block)");
    assert!(modules.record_calls(&heap.memory, layout, 0, &[leaf, block, net], true), "it has a path now");
    assert_eq!(text(&modules, block), "Net.a (Block)");
}

#[test]
fn a_root_within_another_is_named_by_the_outer_one() {
    let layout = Layout::of(12, false).unwrap();
    let Model { mut heap, block, leaf, .. } = model(layout);
    // Without the reference back to the model.
    heap.module(block.object, block.of_type, &[("in", leaf.object)]);
    let outer = CalledModule { object: heap.address(), of_type: heap.class("Outer") };
    heap.module(outer.object, outer.of_type, &[("block", block.object)]);
    let mut modules = Modules::default();
    modules.record_calls(&heap.memory, layout, 0, &[leaf, block], true);
    assert_eq!(text(&modules, leaf), "Block.in (Leaf)");
    assert!(modules.record_calls(&heap.memory, layout, MILLISECOND, &[leaf, block, outer], true));
    assert_eq!(text(&modules, leaf), "Outer.block.in (Leaf)");
    assert_eq!(modules.roots.len(), 1);
}

/// `Net { a: Leaf }` of the same classes each time.
fn another(heap: &mut Heap, net: u64, leaf: u64) -> [CalledModule; 2] {
    let [outer, inner] = [net, leaf].map(|of_type| CalledModule { object: heap.address(), of_type });
    heap.module(inner.object, inner.of_type, &[]);
    heap.module(outer.object, outer.of_type, &[("a", inner.object)]);
    [outer, inner]
}

#[test]
fn models_of_one_class_have_distinct_names() {
    for layout in all_layouts() {
        let mut heap = Heap::new(layout);
        let (net, leaf) = (heap.class("Net"), heap.class("Leaf"));
        let [one, two, three] = [(); 3].map(|()| another(&mut heap, net, leaf));
        let mut modules = Modules::default();
        let call = |modules: &mut Modules, heap: &Heap, [outer, inner]: [CalledModule; 2], now_ns| {
            modules.record_calls(&heap.memory, layout, now_ns, &[inner, outer], true);
            (text(modules, outer), text(modules, inner))
        };
        let is = |name: &str| (format!("{name} (Net)"), format!("{name}.a (Leaf)"));
        assert_eq!(call(&mut modules, &heap, one, 0), is("Net"));
        assert_eq!(call(&mut modules, &heap, two, 1), is("Net#2"));
        assert_eq!(call(&mut modules, &heap, one, 2 * REREAD_INTERVAL_NS), is("Net"));
        // Dropped, and called in another order: they keep their names.
        modules.revalidate(&heap.memory, layout, 200 * REREAD_INTERVAL_NS);
        assert!(modules.roots.is_empty());
        assert_eq!(call(&mut modules, &heap, two, 200 * REREAD_INTERVAL_NS), is("Net#2"));
        assert_eq!(call(&mut modules, &heap, one, 200 * REREAD_INTERVAL_NS), is("Net"));
        // A new one takes the name of one that was freed.
        heap.put(one[0].object, &[]);
        assert_eq!(call(&mut modules, &heap, three, 201 * REREAD_INTERVAL_NS), is("Net"));
        assert_eq!(call(&mut modules, &heap, two, 202 * REREAD_INTERVAL_NS), is("Net#2"));
    }
}

#[test]
fn models_beyond_the_bound_share_a_name() {
    let layout = Layout::of(13, false).unwrap();
    let mut heap = Heap::new(layout);
    let (net, leaf) = (heap.class("Net"), heap.class("Leaf"));
    let mut modules = Modules::default();
    let names: Vec<String> = (0..40)
        .map(|n| {
            let [outer, inner] = another(&mut heap, net, leaf);
            modules.record_calls(&heap.memory, layout, n, &[inner, outer], true);
            text(&modules, outer)
        })
        .collect();
    assert_eq!((&*names[31], &*names[32], &*names[39]), ("Net#32 (Net)", "Net#? (Net)", "Net#? (Net)"));
}

#[test]
fn a_changed_tree_is_read_again_when_called() {
    let layout = Layout::of(14, true).unwrap();
    let Model { mut heap, net, block, leaf } = model(layout);
    let mut modules = Modules::default();
    let stack = [leaf, block, net];
    modules.record_calls(&heap.memory, layout, 1, &stack, true);
    heap.module(net.object, net.of_type, &[("renamed", block.object)]);
    assert!(!modules.record_calls(&heap.memory, layout, 2, &stack, true), "not before the interval");
    modules.revalidate(&heap.memory, layout, 2 + 60 * REREAD_INTERVAL_NS - 1);
    assert!(modules.record_calls(&heap.memory, layout, 60 * REREAD_INTERVAL_NS, &stack, true));
    assert_eq!(text(&modules, leaf), "Net.renamed.in (Leaf)");
    // A tree without calls is dropped.
    modules.revalidate(&heap.memory, layout, 200 * REREAD_INTERVAL_NS);
    assert!(modules.roots.is_empty() && modules.known.is_empty());
}

#[test]
fn a_module_created_later_is_found_when_called() {
    let layout = Layout::of(8, false).unwrap();
    let Model { mut heap, net, leaf, .. } = model(layout);
    let mut modules = Modules::default();
    modules.record_calls(&heap.memory, layout, 1, &[leaf, net], true);
    let late = CalledModule { object: heap.address(), of_type: leaf.of_type };
    heap.module(late.object, late.of_type, &[]);
    heap.module(net.object, net.of_type, &[("late", late.object)]);
    assert!(!modules.record_calls(&heap.memory, layout, 2, &[late, net], true));
    assert_eq!(text(&modules, late), "? (Leaf)", "the tree was just read");
    assert!(modules.record_calls(&heap.memory, layout, 100 * REREAD_INTERVAL_NS, &[late, net], true));
    assert_eq!(text(&modules, late), "Net.late (Leaf)");
}

/// Memory with garbage in each word, some of it unreadable.
struct Garbage(u64);

impl TargetMemory for Garbage {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), ReadError> {
        for (n, byte) in into.iter_mut().enumerate() {
            let mixed = (address.wrapping_add(n as u64) ^ self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *byte = (mixed >> 56) as u8 & if self.0 & 1 == 0 { 0xff } else { 3 };
        }
        if (address >> 9 ^ self.0).is_multiple_of(7) { Err(ReadError::Unmapped) } else { Ok(()) }
    }
}

#[test]
fn wide_deep_and_cyclic_trees_stay_within_bounds() {
    let layout = Layout::of(13, false).unwrap();
    let mut heap = Heap::new(layout);
    let class = heap.class("Deep");
    let places: Vec<u64> = (0..200).map(|_| heap.address()).collect();
    for pair in places.windows(2) {
        heap.module(pair[0], class, &[("next", pair[1]), ("wild", 12_345), ("self", pair[0])]);
    }
    let mut modules = Modules::default();
    modules.record_calls(
        &heap.memory,
        layout,
        0,
        &[CalledModule { object: places[0], of_type: class }],
        true,
    );
    assert_eq!(modules.known.len(), DEPTH_MAX + 1);
    assert!(modules.known.values().all(|known| known.path.len() <= PATH_MAX));
    // More outermost modules than are kept, and more than are read per second.
    for n in 0..2_000 {
        let at = heap.address();
        heap.module(at, class, &[]);
        modules.record_calls(&heap.memory, layout, n, &[CalledModule { object: at, of_type: class }], true);
        if n % 100 == 0 {
            modules.revalidate(&heap.memory, layout, n);
        }
    }
    assert!(modules.roots.len() <= ROOTS_MAX && modules.known.len() <= MODULES_MAX);
    for layout in all_layouts() {
        for seed in 0..40 {
            let mut modules = Modules::default();
            let stack: Vec<CalledModule> =
                (0..20).map(|n| CalledModule { object: seed << 20 | n << 9, of_type: n << 12 }).collect();
            modules.record_calls(&Garbage(seed), layout, 0, &stack, true);
            modules.revalidate(&Garbage(seed + 1), layout, 5 * REREAD_INTERVAL_NS);
        }
    }
}
