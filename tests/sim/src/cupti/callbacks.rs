//! Callbacks: what is reported at the moment at which it happens.
//!
//! Owns: the way from the driver to the subscribers. Because: correlation ids are learned here. Does not: keep
//! anything.

use std::ffi::{c_char, c_void};
use std::sync::Once;
use std::sync::atomic::Ordering;

use super::{buffers, client, driver, result};
use crate::api::{DRIVER, In, Out, RUNTIME, Status, api};
use crate::link::{Hooks, Record};

static HOOKS: Hooks = Hooks { callback, activity };

/// Makes the driver report to us.
pub(crate) fn attach() -> Status {
    static ONCE: Once = Once::new();
    let driver = driver()?;
    ONCE.call_once(|| {
        driver.masks().hooks.store((&raw const HOOKS).cast_mut(), Ordering::Release);
    });
    Ok(())
}

extern "C" fn callback(domain: u32, id: u32, data: *const c_void) {
    for client in client::all() {
        client.call(domain, id, data);
    }
}

extern "C" fn activity(record: *const Record) {
    // SAFETY: the driver passes its own record.
    let Some(record) = (unsafe { record.as_ref() }) else { return };
    super::sampling::happened(record);
    for client in client::all() {
        if client.kinds.load(Ordering::Relaxed) >> record.kind & 1 == 1 {
            buffers::put(&client, record);
        }
    }
}

/// Number of callback ids of a domain, including those without a function.
fn count(domain: u32) -> Option<u32> {
    let last = |table: &[(&str, u32)]| table.iter().map(|(_, id)| id + 1).max();
    match domain {
        1 => last(DRIVER),
        2 => last(RUNTIME),
        3 => Some(26),
        4 => Some(8),
        _ => None,
    }
}

/// NUL-terminated names, created on first use.
fn name(domain: u32, id: u32) -> Option<*const c_char> {
    use std::collections::BTreeMap;
    use std::ffi::CString;
    use std::sync::{Mutex, PoisonError};

    static NAMES: Mutex<BTreeMap<(u32, u32), CString>> = Mutex::new(BTreeMap::new());
    let table = match domain {
        1 => DRIVER,
        2 => RUNTIME,
        _ => return None,
    };
    let (name, _) = table.iter().find(|(_, known)| *known == id)?;
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let name = names.entry((domain, id)).or_insert_with(|| CString::new(*name).unwrap_or_default());
    Some(name.as_ptr())
}

api! { Tool;
    fn cuptiEnableCallback(on: u32, subscriber: usize, domain: u32, id: u32) {
        if id == 0 || count(domain).is_none_or(|count| id >= count) {
            return Err(result::INVALID_PARAMETER);
        }
        client::find(subscriber)?.enable(domain, id, on != 0)
    }
    fn cuptiEnableDomain(on: u32, subscriber: usize, domain: u32) {
        let client = client::find(subscriber)?;
        (1..count(domain).ok_or(result::INVALID_PARAMETER)?).try_for_each(|id| client.enable(domain, id, on != 0))
    }
    fn cuptiEnableAllDomains(on: u32, subscriber: usize) {
        let client = client::find(subscriber)?;
        for domain in 1..=4 {
            (1..count(domain).unwrap_or(0)).try_for_each(|id| client.enable(domain, id, on != 0))?;
        }
        Ok(())
    }
    fn cuptiGetCallbackState(on: Out<u32>, subscriber: usize, domain: u32, id: u32) {
        on.put(client::find(subscriber)?.is_enabled(domain, id).into())
    }
    fn cuptiGetCallbackName(domain: u32, id: u32, out: Out<In<c_char>>) {
        out.put(In::at(name(domain, id).ok_or(result::INVALID_PARAMETER)?))
    }
}
