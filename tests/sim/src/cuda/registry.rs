//! Handles.
//!
//! Owns: which handles are valid. Because: a handle that was destroyed, or never was one, must give an error and not a
//! crash. Does not: reuse an address while somebody holds the object.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use crate::api::Code;

/// Objects by handle, which is their address.
#[derive(Debug)]
pub(crate) struct Registry<T>(RwLock<BTreeMap<usize, Arc<T>>>);

/// The handle of an object.
pub(crate) fn handle_of<T>(object: &Arc<T>) -> usize {
    Arc::as_ptr(object).expose_provenance()
}

impl<T> Registry<T> {
    pub(crate) const fn new() -> Self {
        Self(RwLock::new(BTreeMap::new()))
    }

    /// Adds an object; returns its handle.
    pub(crate) fn add(&self, object: Arc<T>) -> usize {
        let handle = handle_of(&object);
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(handle, object);
        handle
    }

    pub(crate) fn get(&self, handle: usize) -> Result<Arc<T>, Code> {
        let objects = self.0.read().unwrap_or_else(PoisonError::into_inner);
        objects.get(&handle).cloned().ok_or(Code::INVALID_HANDLE)
    }

    /// All current objects.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn remove(&self, handle: usize) -> Result<Arc<T>, Code> {
        let mut objects = self.0.write().unwrap_or_else(PoisonError::into_inner);
        objects.remove(&handle).ok_or(Code::INVALID_HANDLE)
    }
}
