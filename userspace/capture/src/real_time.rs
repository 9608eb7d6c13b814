//! Real-time priority: a thread that runs whenever it can, before all that have none.
//!
//! Owns: having it and giving it back. Because: for some milliseconds of work, a busy machine would make a thread wait
//! for its CPU thousands of times. Does not: know the work, which must be short.

/// The lowest priority above all threads without one: whoever really needs a CPU at once still gets it.
const PRIORITY: i32 = 1;

/// This thread has the priority, and so have the threads that it starts, until this is dropped. Without the right to
/// it (`CAP_SYS_NICE`) nothing changes.
pub(crate) struct RealTime(());

impl RealTime {
    pub(crate) fn begin() -> Self {
        set_priority(libc::SCHED_FIFO, PRIORITY);
        Self(())
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        set_priority(libc::SCHED_OTHER, 0);
    }
}

fn set_priority(policy: i32, priority: i32) {
    // SAFETY: all zeros is a value of this structure; there may be more fields than the priority.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = priority;
    // SAFETY: the thread's own handle, with a structure that outlives the call. A refusal leaves things as they are.
    // (`sched_setscheduler` of musl always refuses.)
    let _ = unsafe { libc::pthread_setschedparam(libc::pthread_self(), policy, &raw const parameters) };
}
