//! Handles: small typed numbers that refer to interned values.
//!
//! Owns: [`Id`]. Because: a frame's number that is used as a node's number must not compile, and a tree of millions
//! of nodes cannot afford pointers. Does not: know what it refers to.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

/// Handle of a `T` in the table that gave it out. Valid as long as that table: tables only grow.
pub struct Id<T: ?Sized> {
    number: u32,
    of: PhantomData<fn() -> T>,
}

impl<T: ?Sized> Id<T> {
    /// The handle with this number. For the table that owns the things, and for reading them back from a store.
    pub const fn from_number(number: u32) -> Self {
        Id { number, of: PhantomData }
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.number
    }

    /// The number as an index.
    pub const fn index(self) -> usize {
        self.number as usize
    }
}

impl<T: ?Sized> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: ?Sized> Copy for Id<T> {}
impl<T: ?Sized> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl<T: ?Sized> Eq for Id<T> {}
impl<T: ?Sized> PartialOrd for Id<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T: ?Sized> Ord for Id<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.number.cmp(&other.number)
    }
}
impl<T: ?Sized> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.number);
    }
}
impl<T: ?Sized> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.number)
    }
}
