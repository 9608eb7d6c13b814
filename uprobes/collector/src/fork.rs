//! Children.
//!
//! Owns: knowing whether this is still the process in which the collector started. Because: a child of `fork` has
//! neither our thread nor the driver's, and a lock may be held forever there. Does not: start anything in a child: a
//! program that uses the device there has the driver load us anew, or cannot use it.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

static CHILD: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    CHILD.store(true, Ordering::Relaxed);
}

/// Registers the handler that marks forked children.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function only stores to an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// True in a child.
pub(crate) fn is_child() -> bool {
    CHILD.load(Ordering::Relaxed)
}
