//! Those who use CUPTI.
//!
//! Owns: the list of clients. Because: before version 2 of the interface there is one subscriber and one set of buffers
//! for all; since then each subscriber has its own. Does not: deliver.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::buffers::Buffers;
use super::{driver, misbehaviour, result};
use crate::api::{Code, In, Out, Status, api};
use crate::link::{CALLBACKS, DOMAINS};

/// Maximum number of concurrent clients.
pub(crate) const CLIENTS_MAX: usize = 8;

/// `CUpti_CallbackFunc`: the subscriber's pointer, domain, callback id, data.
pub(crate) type Callback = extern "C" fn(usize, u32, u32, *const std::ffi::c_void);
/// `CUpti_TimestampCallbackFunc`.
pub(crate) type Clock = extern "C" fn() -> u64;

/// One client.
#[derive(Debug)]
pub(crate) struct Client {
    /// The subscriber's function, 0 for none.
    callback: AtomicUsize,
    data: AtomicUsize,
    pub(crate) subscribed: AtomicBool,
    /// Allows other subscribers.
    multiple: AtomicBool,
    /// By domain and callback id.
    callbacks: [[AtomicU8; CALLBACKS]; DOMAINS],
    /// Bit `n`: activities of kind `n`.
    pub(crate) kinds: AtomicU64,
    /// The client's clock, 0 for the device's.
    pub(crate) clock: AtomicUsize,
    pub(crate) buffers: Buffers,
}

/// The one client of the first version's functions.
pub(crate) static LEGACY: Client = Client::new();
/// Clients of the second version, by handle: index plus one.
static OTHERS: Mutex<[Option<Arc<Client>>; CLIENTS_MAX]> = Mutex::new([const { None }; CLIENTS_MAX]);

/// First handle of subscribers of the second version; not an address.
const FIRST_HANDLE: usize = 0x0c11_0001;
const LEGACY_HANDLE: usize = 0x0c11_0000;

fn others() -> MutexGuard<'static, [Option<Arc<Client>>; CLIENTS_MAX]> {
    OTHERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A client, however it is stored.
#[derive(Clone, Debug)]
pub(crate) enum ClientRef {
    Legacy(&'static Client),
    Other(Arc<Client>),
}

impl std::ops::Deref for ClientRef {
    type Target = Client;

    fn deref(&self) -> &Client {
        match self {
            Self::Legacy(client) => client,
            Self::Other(client) => client,
        }
    }
}

/// The subscriber of a handle.
pub(crate) fn find(handle: usize) -> Result<ClientRef, Code> {
    if handle == LEGACY_HANDLE && LEGACY.subscribed.load(Ordering::Relaxed) {
        return Ok(ClientRef::Legacy(&LEGACY));
    }
    let index = handle.checked_sub(FIRST_HANDLE).ok_or(result::INVALID_PARAMETER)?;
    let found = others().get(index).cloned().flatten();
    found.map(ClientRef::Other).ok_or(result::INVALID_PARAMETER)
}

/// All clients.
pub(crate) fn all() -> impl Iterator<Item = ClientRef> {
    let found = others().clone();
    std::iter::once(ClientRef::Legacy(&LEGACY)).chain(found.into_iter().flatten().map(ClientRef::Other))
}

impl Client {
    const fn new() -> Self {
        Self {
            callback: AtomicUsize::new(0),
            data: AtomicUsize::new(0),
            subscribed: AtomicBool::new(false),
            multiple: AtomicBool::new(false),
            callbacks: [const { [const { AtomicU8::new(0) }; CALLBACKS] }; DOMAINS],
            kinds: AtomicU64::new(0),
            clock: AtomicUsize::new(0),
            buffers: Buffers::new(),
        }
    }

    fn subscribe(&self, callback: Callback, data: usize) {
        self.data.store(data, Ordering::Relaxed);
        self.callback.store(callback as usize, Ordering::Release);
        self.subscribed.store(true, Ordering::Release);
    }

    /// Enables or disables a callback, and counts it for the driver.
    pub(crate) fn enable(&self, domain: u32, id: u32, on: bool) -> Status {
        let slot = self.callbacks.get(domain as usize).and_then(|ids| ids.get(id as usize));
        let slot = slot.ok_or(result::INVALID_PARAMETER)?;
        let was = slot.swap(on.into(), Ordering::Relaxed);
        let masks = driver()?.masks();
        let count = &masks.callbacks[domain as usize][id as usize];
        match (was != 0, on) {
            (false, true) => count.fetch_add(1, Ordering::Relaxed),
            (true, false) => count.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        Ok(())
    }

    pub(crate) fn is_enabled(&self, domain: u32, id: u32) -> bool {
        let slot = self.callbacks.get(domain as usize).and_then(|ids| ids.get(id as usize));
        slot.is_some_and(|slot| slot.load(Ordering::Relaxed) != 0)
    }

    /// Calls the subscriber.
    pub(crate) fn call(&self, domain: u32, id: u32, data: *const std::ffi::c_void) {
        let function = self.callback.load(Ordering::Acquire);
        if function != 0 && self.is_enabled(domain, id) {
            // SAFETY: only `subscribe` stores here, and it stores a function of this type.
            let function: Callback = unsafe { std::mem::transmute(function) };
            function(self.data.load(Ordering::Relaxed), domain, id, data);
        }
    }

    fn unsubscribe(&self) -> Status {
        for domain in 0..DOMAINS as u32 {
            for id in 0..CALLBACKS as u32 {
                if self.is_enabled(domain, id) {
                    self.enable(domain, id, false)?;
                }
            }
        }
        self.subscribed.store(false, Ordering::Release);
        self.callback.store(0, Ordering::Release);
        Ok(())
    }

    /// Nanoseconds from the device's times to the client's clock.
    pub(crate) fn clock_difference(&self) -> u64 {
        let Ok(driver) = driver() else { return 0 };
        match self.clock() {
            Some(clock) => clock().wrapping_sub((driver.table.now)()),
            None => 0,
        }
    }

    fn clock(&self) -> Option<Clock> {
        let function = self.clock.load(Ordering::Acquire);
        // SAFETY: 0, or a function of this type that a client registered.
        (function != 0).then(|| unsafe { std::mem::transmute::<usize, Clock>(function) })
    }

    /// The current time of the client's clock.
    pub(crate) fn timestamp(&self) -> Result<u64, Code> {
        Ok(match self.clock() {
            Some(clock) => clock(),
            None => (driver()?.table.now)(),
        })
    }
}

/// Reports the requested kinds of activities to the driver.
pub(crate) fn update_kinds() -> Status {
    let kinds = all().fold(0, |kinds, client| kinds | client.kinds.load(Ordering::Relaxed));
    driver()?.masks().kinds.store(kinds | super::sampling::kinds(), Ordering::Relaxed);
    Ok(())
}

fn check_allowed() -> Status {
    if misbehaviour::get().busy {
        return Err(result::MULTIPLE_SUBSCRIBERS);
    }
    if misbehaviour::get().denied {
        return Err(result::INSUFFICIENT_PRIVILEGES);
    }
    super::callbacks::attach()
}

fn subscribe_first(callback: Callback, data: usize) -> Result<usize, Code> {
    check_allowed()?;
    let others = others();
    if LEGACY.subscribed.load(Ordering::Relaxed) || others.iter().any(Option::is_some) {
        return Err(result::MULTIPLE_SUBSCRIBERS);
    }
    LEGACY.subscribe(callback, data);
    Ok(LEGACY_HANDLE)
}

/// `CUpti_SubscriberParams`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    pub(crate) size: usize,
    pub(crate) name: usize,
    pub(crate) old_name: usize,
    pub(crate) old_room: usize,
    pub(crate) multiple: u8,
    pub(crate) padding: [u8; 7],
}

fn subscribe_second(callback: Callback, data: usize, multiple: bool) -> Result<usize, Code> {
    check_allowed()?;
    let mut others = others();
    let all_allow = others.iter().flatten().all(|other| other.multiple.load(Ordering::Relaxed));
    let alone = others.iter().all(Option::is_none);
    if LEGACY.subscribed.load(Ordering::Relaxed) || !(alone || multiple && all_allow) {
        return Err(result::MULTIPLE_SUBSCRIBERS);
    }
    let index = others.iter().position(Option::is_none).ok_or(result::MULTIPLE_SUBSCRIBERS)?;
    let client = Arc::new(Client::new());
    client.multiple.store(multiple, Ordering::Relaxed);
    client.subscribe(callback, data);
    others[index] = Some(client);
    Ok(FIRST_HANDLE + index)
}

/// Ends everything, for all clients.
pub(crate) fn finalize() -> Status {
    for client in all() {
        client.unsubscribe()?;
        client.kinds.store(0, Ordering::Relaxed);
        client.buffers.deliver_all(&client);
    }
    *others() = [const { None }; CLIENTS_MAX];
    update_kinds()
}

api! { Tool;
    fn cuptiSubscribe(subscriber: Out<usize>, callback: Option<Callback>, data: usize) {
        subscriber.put(subscribe_first(callback.ok_or(result::INVALID_PARAMETER)?, data)?)
    }
    fn cuptiSubscribe_v2(subscriber: Out<usize>, callback: Option<Callback>, data: usize, parameters: In<Parameters>) {
        let multiple = match parameters.get() {
            // Callers with fewer fields, or without the size, are refused.
            Ok(given) if given.size < 40 - 7 => return Err(result::INVALID_PARAMETER),
            Ok(given) => given.multiple != 0,
            Err(_) => false,
        };
        subscriber.put(subscribe_second(callback.ok_or(result::INVALID_PARAMETER)?, data, multiple)?)
    }
    fn cuptiUnsubscribe(subscriber: usize) {
        let client = find(subscriber)?;
        client.unsubscribe()?;
        if matches!(client, ClientRef::Other(_)) {
            client.kinds.store(0, Ordering::Relaxed);
            client.buffers.deliver_all(&client);
            others()[subscriber - FIRST_HANDLE] = None;
            update_kinds()?;
        }
        Ok(())
    }
}

const _: () = assert!(size_of::<Parameters>() == 40);
