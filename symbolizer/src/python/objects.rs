//! Objects of another process's interpreter: types, containers, attributes.
//!
//! Owns: the layout of the few kinds of objects that lead from one asyncio task to another, and from a module to the
//! modules in it. Because: they refer to each other through dictionaries, sets, closures and bound methods. Does not:
//! trust the process: each container and each chain of base types is read up to a bound.

use deepctx_common::reasons;

use super::layout::Layout;
use super::text::{TextError, read_text};
use crate::memory::{ReadError, TargetMemory};

/// Most entries read of a container: an application imports some thousand modules.
pub const ENTRIES_MAX: u64 = 1 << 14;
/// Most bytes of a type's name; no type of interest has a longer one.
const TYPE_NAME_MAX: usize = 64;
/// Most base types followed.
const BASES_MAX: usize = 16;
/// Tag bits of a pointer: an immediate number or a borrowed reference (3.14+).
const TAG: u64 = 7;

/// Offsets from the end of the object header that are the same in all supported versions.
mod field {
    /// `PyTypeObject.tp_name`
    pub(super) const TYPE_NAME: u64 = 8;
    /// `PyTypeObject.tp_basicsize`
    pub(super) const TYPE_BASIC_SIZE: u64 = 16;
    /// `PyTypeObject.tp_flags`
    pub(super) const TYPE_FLAGS: u64 = 152;
    /// `PyTypeObject.tp_dictoffset`
    pub(super) const TYPE_DICT_OFFSET: u64 = 272;
    /// `PyTypeObject.tp_base`
    pub(super) const TYPE_BASE: u64 = 240;
    /// `PyDictObject.ma_keys`; `ma_values` follows.
    pub(super) const DICT_KEYS: u64 = 16;
    /// `PySetObject.mask`; `table` follows.
    pub(super) const SET_MASK: u64 = 16;
    /// `PyFunctionObject.func_closure`
    pub(super) const FUNCTION_CLOSURE: u64 = 56;
    /// `PyCFunctionObject.m_self` and `PyMethodObject.im_self`
    pub(super) const BOUND_SELF: u64 = 8;
    /// `partialobject.args`
    pub(super) const PARTIAL_ARGUMENTS: u64 = 8;
    /// `PyListObject.ob_item`
    pub(super) const LIST_ITEMS: u64 = 8;
}

/// `Py_TPFLAGS_MANAGED_DICT` (3.11+): the attributes of an instance precede it in memory.
const MANAGED_DICT: u64 = 1 << 4;
/// Largest instance of a class whose attributes are read.
const INSTANCE_MAX: u64 = 1 << 12;

/// Where and how the entries of a `PyDictKeysObject` are stored.
struct KeysLayout {
    /// Address of the first entry.
    entries: u64,
    /// Number of entries.
    count: u64,
    /// Whether each entry starts with a hash.
    has_hashes: bool,
}

/// Size of the header of each object.
pub(super) fn header_size(layout: &Layout) -> u64 {
    if layout.free_threaded { 32 } else { 16 }
}

/// Reads the objects of one process.
#[derive(Clone, Copy)]
pub struct Objects<'m> {
    memory: &'m dyn TargetMemory,
    layout: &'static Layout,
}

/// Why an object could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectError {
    /// Its memory could not be read.
    Read(ReadError),
    /// It is not the expected kind of object.
    WrongKind,
}

impl ObjectError {
    reasons! {
        class Unread, page "python-frames.md";
        /// Its key and sentence.
        pub fn reason(self) {
            Self::WrongKind => "object-of-wrong-kind", "the object at the address is of another kind";
        } or {
            Self::Read(memory) => memory.reason();
        }
    }
}

impl From<ReadError> for ObjectError {
    fn from(error: ReadError) -> Self {
        Self::Read(error)
    }
}

impl From<TextError> for ObjectError {
    fn from(error: TextError) -> Self {
        match error {
            TextError::Read(error) => Self::Read(error),
            TextError::NotText => Self::WrongKind,
        }
    }
}

/// A value read from an object, or the reason why it could not be read.
pub type ReadResult<T> = Result<T, ObjectError>;

impl<'m> Objects<'m> {
    /// A reader for this version's layout. `None` for versions before 3.11, whose tuples and callables are not
    /// supported.
    pub fn new(memory: &'m dyn TargetMemory, layout: &'static Layout) -> Option<Self> {
        (layout.minor >= 11).then_some(Self { memory, layout })
    }

    /// A reader of only types, dictionaries and attributes, for any version.
    pub fn of_attributes(memory: &'m dyn TargetMemory, layout: &'static Layout) -> Self {
        Self { memory, layout }
    }

    /// Size of the header of each object.
    pub fn header_size(&self) -> u64 {
        header_size(self.layout)
    }

    /// The word at `offset` after the header.
    pub fn field(&self, object: u64, offset: u64) -> ReadResult<u64> {
        Ok(self.memory.read_u64(object.wrapping_add(self.header_size()).wrapping_add(offset))?)
    }

    /// The word at an address.
    pub fn word(&self, address: u64) -> ReadResult<u64> {
        Ok(self.memory.read_u64(address)?)
    }

    /// The byte at an address.
    pub fn byte(&self, address: u64) -> ReadResult<u8> {
        let mut byte = [0];
        self.memory.read(address, &mut byte)?;
        Ok(byte[0])
    }

    /// The type of an object.
    pub fn type_of(&self, object: u64) -> ReadResult<u64> {
        self.word(object.wrapping_add(u64::from(self.layout.user.object_type)))
    }

    /// Whether a type has this `tp_name`.
    fn is_named(&self, of_type: u64, name: &str) -> ReadResult<bool> {
        let at = self.field(of_type, field::TYPE_NAME)?;
        let mut bytes = [0; TYPE_NAME_MAX];
        let Some(bytes) = bytes.get_mut(..=name.len()) else { return Ok(false) };
        self.memory.read(at, bytes)?;
        Ok(&bytes[..name.len()] == name.as_bytes() && bytes[name.len()] == 0)
    }

    /// The last part of a type's `tp_name`: the name of the class. `None` when it is not a valid name.
    pub fn type_name(&self, of_type: u64) -> ReadResult<Option<String>> {
        let at = self.field(of_type, field::TYPE_NAME)?;
        let mut bytes = [0; 2 * TYPE_NAME_MAX];
        // No further than the end of the page: the next one may not be mapped.
        let most = bytes.len().min(4096 - (at & 4095) as usize);
        self.memory.read(at, &mut bytes[..most])?;
        let ended = bytes[..most].iter().position(|byte| *byte == 0);
        if ended.is_none() && most < bytes.len() {
            self.memory.read(at, &mut bytes)?;
        }
        let Some(length) = bytes.iter().position(|byte| *byte == 0) else { return Ok(None) };
        let Ok(text) = std::str::from_utf8(&bytes[..length]) else { return Ok(None) };
        let name = text.rsplit('.').next().unwrap_or(text);
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
        Ok(is_name.then(|| name.to_owned()))
    }

    /// Whether the object's type, or one of its base types, has this name.
    pub fn is_a(&self, object: u64, name: &str) -> ReadResult<bool> {
        let mut of_type = self.type_of(object)?;
        for _ in 0..BASES_MAX {
            if of_type == 0 {
                return Ok(false);
            }
            if self.is_named(of_type, name)? {
                return Ok(true);
            }
            of_type = self.field(of_type, field::TYPE_BASE)?;
        }
        Ok(false)
    }

    /// A string, with control characters escaped.
    pub fn text(&self, object: u64) -> ReadResult<String> {
        if !self.is_a(object, "str")? {
            return Err(ObjectError::WrongKind);
        }
        Ok(read_text(self.memory, &self.layout.user, object)?)
    }

    /// A string; `None` for other objects.
    pub fn name(&self, object: u64) -> Option<String> {
        read_text(self.memory, &self.layout.user, object).ok()
    }

    /// An int of up to 60 bits, in the layout of 3.12 and later.
    pub fn number(&self, object: u64) -> ReadResult<u64> {
        let digits = self.field(object, 0)? >> 3;
        let both = self.field(object, 8)?;
        let (low, high) = (both & 0x3fff_ffff, both >> 32 & 0x3fff_ffff);
        match digits {
            0 => Ok(0),
            1 => Ok(low),
            2 => Ok(low | high << 30),
            _ => Err(ObjectError::WrongKind),
        }
    }

    /// Keys and values of a dictionary in insertion order, up to [`ENTRIES_MAX`].
    pub fn entries(&self, dictionary: u64) -> ReadResult<Vec<(u64, u64)>> {
        let keys = self.field(dictionary, field::DICT_KEYS)?;
        let values = self.field(dictionary, field::DICT_KEYS + 8)?;
        let split = if values == 0 { None } else { Some(values.wrapping_add(self.values_offset())) };
        self.keys_and_values(keys, split)
    }

    /// Where and how the entries of a `PyDictKeysObject` are stored.
    fn keys_layout(&self, keys: u64) -> ReadResult<KeysLayout> {
        if self.layout.minor < 11 {
            // { refcount, size, function, usable, number of entries at 32 }
            let size = self.word(keys.wrapping_add(8))?;
            if !size.is_power_of_two() || size > 1 << 40 {
                return Err(ObjectError::WrongKind);
            }
            let index = match size {
                ..0x100 => size,
                0x100..0x1_0000 => size * 2,
                0x1_0000..0x1_0000_0000 => size * 4,
                _ => size * 8,
            };
            let count = self.word(keys.wrapping_add(32))?;
            return Ok(KeysLayout {
                entries: keys.wrapping_add(40).wrapping_add(index),
                count,
                has_hashes: true,
            });
        }
        // { refcount, log2 of the size, log2 of the index's bytes, kind, …, usable at 16, number of entries at 24 }
        let header = self.memory.read_vec(keys, 32)?;
        let (log2_index, has_hashes) = (header[9], header[10] == 0);
        if log2_index > 40 {
            return Err(ObjectError::WrongKind);
        }
        let count = header[24..].try_into().map_or(0, u64::from_le_bytes);
        let entries = keys.wrapping_add(32).wrapping_add(1 << log2_index);
        Ok(KeysLayout { entries, count, has_hashes })
    }

    /// Keys and values of a `PyDictKeysObject`. `split` is the address of the values if they are stored separately.
    fn keys_and_values(&self, keys: u64, split: Option<u64>) -> ReadResult<Vec<(u64, u64)>> {
        let KeysLayout { entries, count, has_hashes } = self.keys_layout(keys)?;
        let count = count.min(ENTRIES_MAX);
        let (size, key_at) = if has_hashes { (24, 8) } else { (16, 0) };
        let bytes = self.memory.read_vec(entries, (count * size) as usize)?;
        let values = match split {
            Some(values) => self.words(values, count)?,
            None => Vec::new(),
        };
        let entry = |(n, entry): (usize, &[u8])| {
            let word = |at: usize| entry[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
            let value = if split.is_some() { values.get(n).copied().unwrap_or(0) } else { word(key_at + 8) };
            (word(key_at), value)
        };
        let all = bytes.chunks_exact(size as usize).enumerate().map(entry);
        Ok(all.filter(|(key, value)| *key != 0 && *value != 0).collect())
    }

    /// The value of a string key.
    pub fn get(&self, dictionary: u64, key: &str) -> ReadResult<Option<u64>> {
        Ok(self.find(&self.entries(dictionary)?, key))
    }

    fn find(&self, entries: &[(u64, u64)], key: &str) -> Option<u64> {
        self.find_entry(entries, key).map(|(_, value)| value)
    }

    fn find_entry(&self, entries: &[(u64, u64)], key: &str) -> Option<(u64, u64)> {
        let length = u64::from(self.layout.user.str_length);
        let same = |object: u64| {
            self.word(object.wrapping_add(length)).is_ok_and(|length| length == key.len() as u64)
                && read_text(self.memory, &self.layout.user, object).is_ok_and(|text| text == key)
        };
        entries.iter().find(|(object, _)| same(*object)).copied()
    }

    /// The members of a set, from up to [`ENTRIES_MAX`] slots of its table.
    pub fn members(&self, set: u64) -> ReadResult<Vec<u64>> {
        let slots = self.field(set, field::SET_MASK)?.wrapping_add(1).min(ENTRIES_MAX);
        let table = self.field(set, field::SET_MASK + 8)?;
        let words = self.words(table, slots * 2)?;
        // A deleted slot holds a dummy with the hash -1.
        Ok(words.chunks_exact(2).filter(|w| w[0] != 0 && w[1] != u64::MAX).map(|w| w[0]).collect())
    }

    fn words(&self, at: u64, number: u64) -> ReadResult<Vec<u64>> {
        let bytes = self.memory.read_vec(at, (number.min(ENTRIES_MAX * 2) * 8) as usize)?;
        Ok(bytes.chunks_exact(8).map(|b| b.try_into().map_or(0, u64::from_le_bytes)).collect())
    }

    /// The items of a tuple, up to a bound that closures and argument lists do not reach.
    pub fn tuple(&self, tuple: u64) -> ReadResult<Vec<u64>> {
        let number = self.field(tuple, 0)?.min(64);
        // 3.14 keeps the hash before the items.
        let items = if self.layout.minor >= 14 { 16 } else { 8 };
        self.words(tuple.wrapping_add(self.header_size()).wrapping_add(items), number)
    }

    /// The items of a list, up to the same bound.
    pub fn list(&self, list: u64) -> ReadResult<Vec<u64>> {
        let number = self.field(list, 0)?.min(64);
        let items = self.field(list, field::LIST_ITEMS)?;
        self.words(items, number)
    }

    /// Offset of the values in a `PyDictValues`.
    fn values_offset(&self) -> u64 {
        if self.layout.minor >= 13 { 8 } else { 0 }
    }

    /// An attribute of an instance of a Python class without slots.
    pub fn attribute(&self, object: u64, name: &str) -> ReadResult<Option<u64>> {
        Ok(self.find(&self.attributes(object)?, name))
    }

    /// Names and values of the attributes of such an instance, up to [`ENTRIES_MAX`].
    pub fn attributes(&self, object: u64) -> ReadResult<Vec<(u64, u64)>> {
        let of_type = self.type_of(object)?;
        if self.layout.minor < 11 || self.field(of_type, field::TYPE_FLAGS)? & MANAGED_DICT == 0 {
            let at = self.field(of_type, field::TYPE_DICT_OFFSET)?;
            if at < self.header_size() || at > INSTANCE_MAX {
                return Err(ObjectError::WrongKind);
            }
            return self.entries_or_none(self.word(object.wrapping_add(at))?);
        }
        let keys = of_type.wrapping_add(match (self.layout.minor, self.layout.free_threaded) {
            (11, _) => 872,
            (15.., false) => 888,
            (15.., true) => 904,
            (_, false) => 880,
            (_, true) => 896,
        });
        let shared_keys = |values: u64| self.keys_and_values(self.word(keys)?, Some(values));
        let before = |words: u64| self.word(object.wrapping_sub(8 * words));
        let dictionary = match self.layout.minor {
            ..12 => match before(4)? {
                0 => before(3)?,
                values => return shared_keys(values),
            },
            12 => match before(3)? {
                tagged if tagged & 1 != 0 => return shared_keys(tagged.wrapping_add(1)),
                dictionary => dictionary,
            },
            _ => match before(if self.layout.free_threaded { 1 } else { 3 })? {
                0 => {
                    let size = self.field(of_type, field::TYPE_BASIC_SIZE)?;
                    if size > INSTANCE_MAX {
                        return Err(ObjectError::WrongKind);
                    }
                    return shared_keys(object.wrapping_add(size).wrapping_add(self.values_offset()));
                }
                dictionary => dictionary,
            },
        };
        self.entries_or_none(dictionary & !TAG)
    }

    fn entries_or_none(&self, dictionary: u64) -> ReadResult<Vec<(u64, u64)>> {
        if dictionary == 0 { Ok(Vec::new()) } else { self.entries(dictionary) }
    }

    /// The value of a string key among `entries`. `known` is the address of the key object when it was found before:
    /// attribute names are interned.
    pub fn find_known(&self, entries: &[(u64, u64)], key: &str, known: &mut u64) -> Option<u64> {
        if let Some((_, value)) = entries.iter().find(|(object, _)| object == known) {
            return Some(*value);
        }
        let (object, value) = self.find_entry(entries, key)?;
        *known = object;
        Some(value)
    }

    /// The objects that a callable refers to: the object of a bound method, the closure of a function, the arguments
    /// of a partial.
    pub fn captured(&self, callable: u64) -> ReadResult<Vec<u64>> {
        if self.is_a(callable, "builtin_function_or_method")? || self.is_a(callable, "method")? {
            return Ok(vec![self.field(callable, field::BOUND_SELF)?]);
        }
        if self.is_a(callable, "functools.partial")? {
            return self.tuple(self.field(callable, field::PARTIAL_ARGUMENTS)?);
        }
        if !self.is_a(callable, "function")? {
            return Ok(Vec::new());
        }
        match self.field(callable, field::FUNCTION_CLOSURE)? {
            0 => Ok(Vec::new()),
            closure => self.tuple(closure)?.into_iter().map(|cell| self.field(cell, 0)).collect(),
        }
    }
}
