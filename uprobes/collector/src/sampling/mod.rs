//! Samples of instructions, while there are listeners for them.
//!
//! Owns: which contexts are sampled, and when samples are read. Because: CUPTI samples context by context, and delivers
//! nothing by itself. Does not: name or add up anything.
//!
//! Callbacks come on the program's threads, from within CUPTI: there the lock on the contexts is waited for only
//! briefly, since its owner may be waiting for CUPTI.

mod context;
mod cubins;
mod reasons;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use deepctx_common::activity::state;
use deepctx_common::samples::{self, MODE_VARIABLE, PERIOD_VARIABLE, PERIODS};

use crate::cupti::sampler_layout::Module;
use crate::cupti::{CONTEXT_CREATED, CONTEXT_ENDS, MODULE_LOADED, MODULE_UNLOADS, ResourceData};
use crate::cupti::{Cupti, Error};
use crate::probe;
use context::SampledContext;

/// Maximum number of sampled contexts; a program has one per device.
const CONTEXTS_MAX: usize = 64;
/// How long a callback waits for the lock.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);
/// Larger images are not read: modules of the largest libraries have a few hundred megabytes.
const IMAGE_MAX: usize = 512 << 20;

/// Sampling options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Binary logarithm of the number of cycles; CUPTI's choice when `None`.
    period: Option<u32>,
    /// Kernels run one at a time, and samples have their correlation id.
    serialized: bool,
}

/// From the program's environment; read when the driver loads us.
static SETTING: OnceLock<Setting> = OnceLock::new();
/// There are listeners, and this CUPTI has the functions.
static ON: AtomicBool = AtomicBool::new(false);
static SAMPLED: Mutex<Vec<SampledContext>> = Mutex::new(Vec::new());
/// Known contexts, so that a launch does not take the lock; 0 is a free slot.
static KNOWN: [AtomicUsize; CONTEXTS_MAX] = [const { AtomicUsize::new(0) }; CONTEXTS_MAX];
/// Known contexts that are not sampled yet.
static WAITING: Mutex<Vec<usize>> = Mutex::new(Vec::new());

thread_local! {
    /// This thread reads samples; its callbacks are ignored.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Reads the setting.
pub(crate) fn prepare() {
    let period = std::env::var(PERIOD_VARIABLE).ok().and_then(|text| text.parse().ok());
    let serialized = std::env::var(MODE_VARIABLE).is_ok_and(|mode| mode == samples::SERIALIZED);
    let setting = Setting { period: period.filter(|period| PERIODS.contains(period)), serialized };
    let _ = SETTING.set(setting);
}

/// Whether instructions are sampled.
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// Handles the first listener. Contexts are sampled when they are created, or at their next launch.
pub(crate) fn begin(cupti: &Cupti) {
    if cupti.sampler().is_none() {
        return probe::state(state::SAMPLING_REFUSED, u64::from(Error::INCOMPLETE.0.cast_unsigned()));
    }
    ON.store(true, Ordering::Relaxed);
}

/// Handles another listener, which has no names yet.
pub(crate) fn report_again() {
    reasons::report_again();
    cubins::report_again();
}

/// Handles the last listener's end: reports what CUPTI has and disables sampling.
pub(crate) fn end() {
    if !ON.swap(false, Ordering::Relaxed) {
        return;
    }
    inside(|| {
        // A thread that holds the lock for longer is in a callback that will not return.
        let taken = lock_within(LOCK_TIMEOUT * 10).map(|mut sampled| std::mem::take(&mut *sampled));
        taken.unwrap_or_default().into_iter().for_each(SampledContext::end);
    });
    KNOWN.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
    waiting().clear();
    cubins::forget();
}

/// Begins sampling of waiting contexts, and reports CUPTI's samples of all contexts.
pub(crate) fn read(cupti: &Cupti) {
    if !is_on() {
        return;
    }
    let new = std::mem::take(&mut *waiting());
    inside(|| {
        new.into_iter().for_each(|context| sample(cupti, context));
        if let Some(mut sampled) = lock_within(LOCK_TIMEOUT) {
            sampled.iter_mut().for_each(SampledContext::read);
        }
    });
}

/// Handles a launch: a context created before the first listener is sampled from now on.
pub(crate) fn launched(context: usize) {
    if is_on() && context != 0 && !INSIDE.get() && is_new(context) {
        waiting().push(context);
    }
}

/// A context or module was created or loaded, or is about to be destroyed.
pub(crate) fn on_resource(cupti: &Cupti, id: u32, data: &ResourceData) {
    let Some(sampler) = cupti.sampler().filter(|_| is_on() && !INSIDE.get()) else { return };
    let context = data.context.addr();
    match id {
        CONTEXT_CREATED if context != 0 && is_new(context) => inside(|| sample(cupti, context)),
        CONTEXT_ENDS => inside(|| ends(context)),
        MODULE_LOADED => {
            // SAFETY: for modules it points to this structure, or is null.
            let Some(module) = (unsafe { data.descriptor.cast::<Module>().as_ref() }) else { return };
            if !module.cubin.is_null() && (1..=IMAGE_MAX).contains(&module.bytes) {
                // SAFETY: CUPTI keeps the image for the duration of this call.
                let cubin = unsafe { std::slice::from_raw_parts(module.cubin, module.bytes) };
                inside(|| cubins::loaded(&sampler, cubin));
            }
        }
        // Otherwise the next module at the same address would be mistaken for it.
        MODULE_UNLOADS => inside(|| {
            if let Some(mut sampled) = lock_within(LOCK_TIMEOUT) {
                sampled.iter_mut().filter(|sampled| sampled.handle == context).for_each(SampledContext::read);
            }
        }),
        _ => {}
    }
}

/// True when this context was unknown; it is known afterwards.
fn is_new(context: usize) -> bool {
    if KNOWN.iter().any(|slot| slot.load(Ordering::Relaxed) == context) {
        return false;
    }
    // Two threads may find it new at the same time; CUPTI refuses the second.
    let free =
        |slot: &&AtomicUsize| slot.compare_exchange(0, context, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    KNOWN.iter().find(free).is_some()
}

fn sample(cupti: &Cupti, context: usize) {
    let Some(sampler) = cupti.sampler() else { return };
    let setting = *SETTING.get_or_init(|| Setting { period: None, serialized: false });
    match SampledContext::begin(sampler, cupti.version(), setting, context) {
        Ok(begun) => {
            probe::state(state::SAMPLING, samples::setting(begun.period(), setting.serialized));
            match lock_within(LOCK_TIMEOUT) {
                Some(mut sampled) => sampled.push(begun),
                None => begun.end(),
            }
        }
        Err(Error(error)) => probe::state(state::SAMPLING_REFUSED, error.cast_unsigned().into()),
    }
}

/// Handles a context that is about to be destroyed.
fn ends(context: usize) {
    waiting().retain(|waiting| *waiting != context);
    let gone = lock_within(LOCK_TIMEOUT).and_then(|mut sampled| {
        let at = sampled.iter().position(|sampled| sampled.handle == context)?;
        Some(sampled.swap_remove(at))
    });
    if let Some(gone) = gone {
        gone.end();
    }
    for slot in &KNOWN {
        let _ = slot.compare_exchange(context, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Runs `body` and ignores callbacks meanwhile.
fn inside(body: impl FnOnce()) {
    let was = INSIDE.replace(true);
    body();
    INSIDE.set(was);
}

fn waiting() -> MutexGuard<'static, Vec<usize>> {
    WAITING.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Locks the contexts; `None` when another thread holds them for longer.
fn lock_within(timeout: Duration) -> Option<MutexGuard<'static, Vec<SampledContext>>> {
    let begin = Instant::now();
    loop {
        match SAMPLED.try_lock() {
            Ok(sampled) => return Some(sampled),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if begin.elapsed() > timeout => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
