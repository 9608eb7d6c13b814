//! Buffers of records: asked for, filled, and handed back.
//!
//! Owns: which record goes into which buffer, and when a buffer is complete. Because: clients get records late, in
//! heaps, on a thread that is not theirs. Does not: know what is in a record.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use super::client::{self, Client};
use super::{driver, misbehaviour, records};
use crate::link::{self, Record};

/// `CUpti_BuffersCallbackRequestFunc`; the second version gets one more pointer.
pub(crate) type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize, *const RequestInfo);
/// `CUpti_BuffersCallbackCompleteFunc`: context, stream, buffer, size, valid bytes.
pub(crate) type CompleteFn = extern "C" fn(usize, u32, *mut u8, usize, usize);
/// `CUpti_BuffersCallbackCompleteFunc_v2`.
pub(crate) type CompleteSecond = extern "C" fn(*mut u8, usize, usize, *const CompleteInfo);

/// `CUpti_BufferCallbackRequestInfo`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RequestInfo {
    pub(crate) size: usize,
}

/// `CUpti_BufferCallbackCompleteInfo`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct CompleteInfo {
    pub(crate) size: usize,
    pub(crate) thread: u64,
    pub(crate) layouts: usize,
    pub(crate) layout_count: usize,
}

/// The client's functions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Functions {
    First(Request, CompleteFn),
    Second(Request, CompleteSecond),
}

#[derive(Debug)]
struct Buffer {
    address: usize,
    size: usize,
    used: usize,
    /// Records that still fit under the client's limit.
    room: usize,
    full_since: Instant,
}

#[derive(Debug)]
struct State {
    functions: Option<Functions>,
    filling: Option<Buffer>,
    full: VecDeque<Buffer>,
    /// Buffers being delivered now.
    delivering: u32,
    period: Option<Duration>,
    flushed: Option<Instant>,
}

/// The buffers of one client.
#[derive(Debug)]
pub(crate) struct Buffers {
    state: Mutex<State>,
    idle: Condvar,
    dropped: AtomicU64,
}

/// Signals work for the delivering thread.
static WORK: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

fn wake() {
    *WORK.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
    WORK.1.notify_one();
}

/// Starts the thread that delivers full buffers, and those due by a client's period.
fn start_thread() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        std::thread::spawn(|| {
            loop {
                let guard = WORK.0.lock().unwrap_or_else(PoisonError::into_inner);
                let wait = Duration::from_millis(2);
                let (mut guard, _) = WORK.1.wait_timeout(guard, wait).unwrap_or_else(PoisonError::into_inner);
                *guard = false;
                drop(guard);
                for client in client::all() {
                    client.buffers.deliver_due(&client);
                }
            }
        });
    });
}

/// Puts a record into the client's buffer.
pub(crate) fn put(client: &Client, record: &Record) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let asked = misbehaviour::get();
    let number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    let every = |n: Option<u64>| n.is_some_and(|n| number.is_multiple_of(n));
    if every(asked.lose) {
        client.buffers.dropped.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let mut bytes = [0; records::SIZE_MAX];
    let size = records::write(record, client.clock_difference(), every(asked.wild), &mut bytes);
    client.buffers.append(&bytes[..size]);
    if asked.skew && number.is_multiple_of(3) {
        // A kind of a future version.
        let size = records::write_unknown(&mut bytes);
        client.buffers.append(&bytes[..size]);
    }
}

/// Whether the driver is calling the tools that it loads.
pub(crate) fn is_driver_starting() -> bool {
    driver().is_ok_and(|driver| (driver.table.number)(link::ask::STARTING, 0) == 1)
}

/// Puts a record for each device.
pub(crate) fn put_devices(client: &Client) {
    let count = driver().map_or(0, |driver| (driver.table.number)(link::ask::DEVICES, 0));
    if misbehaviour::get().no_devices {
        return;
    }
    for number in 0..u32::try_from(count).unwrap_or(0) {
        let mut bytes = [0; records::SIZE_MAX];
        let size = records::write_device(number, &mut bytes);
        client.buffers.append(&bytes[..size]);
    }
}

impl Buffers {
    pub(crate) const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                functions: None,
                filling: None,
                full: VecDeque::new(),
                delivering: 0,
                period: None,
                flushed: None,
            }),
            idle: Condvar::new(),
            dropped: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register(&self, functions: Functions) {
        self.lock().functions = Some(functions);
        start_thread();
    }

    pub(crate) fn set_period(&self, milliseconds: u32) {
        let period = (milliseconds > 0).then(|| Duration::from_millis(milliseconds.into()));
        self.lock().period = period;
    }

    /// Records that found no buffer since the last call.
    pub(crate) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    fn append(&self, bytes: &[u8]) {
        let mut state = self.lock();
        let fits = |buffer: &Buffer| buffer.size - buffer.used >= bytes.len() && buffer.room > 0;
        if state.filling.as_ref().is_some_and(|buffer| !fits(buffer)) {
            state.retire();
            wake();
        }
        if state.filling.is_none() {
            state.filling = state.functions.and_then(request);
        }
        match state.filling.as_mut() {
            Some(buffer) if fits(buffer) => {
                let to = std::ptr::with_exposed_provenance_mut::<u8>(buffer.address + buffer.used);
                // SAFETY: the client provided `size` bytes, of which this many are free.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
                buffer.used += bytes.len();
                buffer.room -= 1;
            }
            _ => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Delivers buffers that have been full long enough, and started ones after the period.
    fn deliver_due(&self, client: &Client) {
        let late = misbehaviour::get().late;
        loop {
            let mut state = self.lock();
            let now = Instant::now();
            if state.period.is_some_and(|period| state.flushed.is_none_or(|last| now - last >= period)) {
                state.flushed = Some(now);
                state.retire();
            }
            let due = |buffer: &Buffer| now - buffer.full_since >= late;
            let next = if misbehaviour::get().reorder {
                state.full.iter().rposition(due)
            } else {
                state.full.iter().position(due)
            };
            let Some(buffer) = next.and_then(|at| state.full.remove(at)) else { return };
            state.delivering += 1;
            let functions = state.functions;
            drop(state);
            complete(functions, &buffer, client);
            self.lock().delivering -= 1;
            self.idle.notify_all();
        }
    }

    /// Delivers everything and waits for it.
    pub(crate) fn deliver_all(&self, client: &Client) {
        loop {
            let mut state = self.lock();
            state.retire();
            let Some(buffer) = state.full.pop_front() else { break };
            let functions = state.functions;
            drop(state);
            complete(functions, &buffer, client);
        }
        let mut state = self.lock();
        while state.delivering > 0 {
            let wait = Duration::from_millis(100);
            state = self.idle.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// Moves the current buffer to the full ones.
    fn retire(&mut self) {
        if let Some(mut buffer) = self.filling.take() {
            buffer.full_since = Instant::now();
            self.full.push_back(buffer);
        }
    }
}

fn request(functions: Functions) -> Option<Buffer> {
    let (Functions::First(request, _) | Functions::Second(request, _)) = functions;
    let (mut address, mut size, mut room) = (std::ptr::null_mut(), 0, 0);
    let info = RequestInfo { size: size_of::<RequestInfo>() };
    request(&raw mut address, &raw mut size, &raw mut room, &raw const info);
    (!address.is_null() && size > 0).then(|| Buffer {
        address: address.expose_provenance(),
        size,
        used: 0,
        room: if room == 0 { usize::MAX } else { room },
        full_since: Instant::now(),
    })
}

fn complete(functions: Option<Functions>, buffer: &Buffer, _client: &Client) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let address = std::ptr::with_exposed_provenance_mut::<u8>(buffer.address);
    let number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    if misbehaviour::get().garbage.is_some_and(|n| number.is_multiple_of(n)) {
        let mut noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for at in 0..buffer.used {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // SAFETY: within the filled part.
            unsafe { address.add(at).write((noise >> 56) as u8) };
        }
    }
    match functions {
        Some(Functions::First(_, complete)) => complete(0, 0, address, buffer.size, buffer.used),
        Some(Functions::Second(_, complete)) => {
            let info = CompleteInfo {
                size: size_of::<CompleteInfo>(),
                thread: crate::device::thread_number().into(),
                layouts: 0,
                layout_count: 0,
            };
            complete(address, buffer.size, buffer.used, &raw const info);
        }
        None => {}
    }
}

/// Waits until devices are idle; a forced flush does not need this.
pub(crate) fn settle() {
    if let Ok(driver) = driver() {
        (driver.table.settle)();
    }
}
