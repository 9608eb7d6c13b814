//! A process with a device, the collector in it, and a listener.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use deepctx_common::activity::{Activity, LISTENERS, probe};

/// Messages and activities that are kept; scenarios make far fewer.
const ROOM: usize = 1 << 16;
/// Bytes of names.
const TEXT_ROOM: usize = 1 << 16;
/// How long anything may take.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Written by the handler of a signal, so nothing in it allocates or locks.
struct Recording {
    messages: [(u16, [u64; 3]); ROOM],
    message_count: AtomicUsize,
    activities: [Activity; ROOM],
    activity_count: AtomicUsize,
    text: [u8; TEXT_ROOM],
    text_count: AtomicUsize,
}

static mut RECORDING: Recording = Recording {
    messages: [(0, [0; 3]); ROOM],
    message_count: AtomicUsize::new(0),
    activities: [ZERO; ROOM],
    activity_count: AtomicUsize::new(0),
    text: [0; TEXT_ROOM],
    text_count: AtomicUsize::new(0),
};
/// An activity of nothing: `Default` is not for constants.
// SAFETY: integers and arrays of them: all zeroes are a value.
const ZERO: Activity = unsafe { std::mem::zeroed() };

/// Addresses of the probe functions, one after the breakpoint.
static PROBES: [AtomicUsize; 5] = [const { AtomicUsize::new(0) }; 5];

/// What the collector reported.
pub(crate) struct Messages {
    /// Which, its numbers; of a name the offset of its text instead of its address.
    pub(crate) messages: Vec<(u16, [u64; 3])>,
    pub(crate) activities: Vec<Activity>,
    text: Vec<u8>,
}

impl Messages {
    /// Numbers of one kind of message.
    pub(crate) fn of(&self, what: u16) -> impl Iterator<Item = [u64; 3]> + '_ {
        self.messages.iter().filter(move |(is, _)| *is == what).map(|(_, values)| *values)
    }

    /// States, in order; those that count records are left out.
    pub(crate) fn states(&self) -> Vec<u64> {
        self.of(probe::STATE).map(|values| values[0]).filter(|state| *state <= 4).collect()
    }

    /// The sum of what a counting state said.
    pub(crate) fn sum_of(&self, state: u64) -> u64 {
        self.of(probe::STATE).filter(|values| values[0] == state).map(|values| values[1]).sum()
    }

    pub(crate) fn names(&self) -> HashMap<u64, String> {
        let text = |[id, at, bytes]: [u64; 3]| {
            let text = &self.text[at as usize..(at + bytes) as usize];
            (id, String::from_utf8(text.to_vec()).unwrap())
        };
        self.of(probe::NAME).map(text).collect()
    }
}

/// Takes down what a probe function was called with, as a program in the kernel would.
extern "C" fn on_breakpoint(_: i32, _: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the thread's state; the recording's places are handed out one by one; what the
    // collector's pointers point to is readable by its own promise.
    unsafe {
        let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let at = registers[libc::REG_RIP as usize] as usize;
        let Some(which) = PROBES.iter().position(|probe| probe.load(Ordering::Relaxed) == at) else {
            libc::abort();
        };
        let what = probe::SYMBOLS[which].0;
        let mut values =
            [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX].map(|name| registers[name as usize] as u64);
        let recording: *mut Recording = &raw mut RECORDING;
        let recording = &mut *recording;
        if what == probe::ACTIVITIES {
            let count = values[1] as usize;
            let from = ptr::with_exposed_provenance::<Activity>(values[0] as usize);
            let to = recording.activity_count.fetch_add(count, Ordering::Relaxed);
            if to + count > ROOM {
                libc::abort();
            }
            ptr::copy_nonoverlapping(from, recording.activities.as_mut_ptr().add(to), count);
        }
        if what == probe::NAME {
            let bytes = values[2] as usize;
            let to = recording.text_count.fetch_add(bytes, Ordering::Relaxed);
            if to + bytes > TEXT_ROOM {
                libc::abort();
            }
            let from = ptr::with_exposed_provenance::<u8>(values[1] as usize);
            ptr::copy_nonoverlapping(from, recording.text.as_mut_ptr().add(to), bytes);
            values[1] = to as u64;
        }
        let to = recording.message_count.fetch_add(1, Ordering::Relaxed);
        if to >= ROOM {
            libc::abort();
        }
        recording.messages.as_mut_ptr().add(to).write((what, values));
    }
}

fn open(name: &CStr) -> *mut c_void {
    // SAFETY: a terminated name.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "{name:?} cannot be loaded");
    library
}

/// The address of a symbol, as a function or whatever else the caller says it is.
fn symbol<F: Copy>(library: *mut c_void, name: &str) -> F {
    let name = CString::new(name).unwrap();
    // SAFETY: the library is open, the name terminated.
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!address.is_null(), "no symbol {name:?}");
    assert_eq!(size_of::<F>(), size_of::<usize>());
    // SAFETY: of the size of an address, and callers name the type that the symbol has.
    unsafe { std::mem::transmute_copy(&address) }
}

type Handle = usize;
type Launch = extern "C" fn(Handle, u32, u32, u32, u32, u32, u32, u32, Handle, Handle, Handle) -> i32;

/// The driver's functions that scenarios use.
#[derive(Clone, Copy)]
struct Driver {
    init: extern "C" fn(u32) -> i32,
    retain: extern "C" fn(*mut Handle, i32) -> i32,
    set_current: extern "C" fn(Handle) -> i32,
    load: extern "C" fn(*mut Handle, *const c_char) -> i32,
    by_name: extern "C" fn(*mut Handle, Handle, *const c_char) -> i32,
    launch: Launch,
    create: extern "C" fn(*mut Handle, u32) -> i32,
    synchronize: extern "C" fn(Handle) -> i32,
    allocate: extern "C" fn(*mut u64, usize) -> i32,
    copy_in: extern "C" fn(u64, *const u8, usize, Handle) -> i32,
    fill: extern "C" fn(u64, u8, usize, Handle) -> i32,
    begin_capture: extern "C" fn(Handle, u32) -> i32,
    end_capture: extern "C" fn(Handle, *mut Handle) -> i32,
    instantiate: extern "C" fn(*mut Handle, Handle, u64) -> i32,
    launch_graph: extern "C" fn(Handle, Handle) -> i32,
    launch_host_function: extern "C" fn(Handle, extern "C" fn(Handle), Handle) -> i32,
}

/// The process.
pub(crate) struct Harness {
    driver: Driver,
    listeners: &'static AtomicU16,
    context: Handle,
    kernels: [Handle; 2],
}

fn check(result: i32) {
    assert_eq!(result, 0);
}

impl Harness {
    /// Loads the libraries and puts breakpoints into the collector.
    pub(crate) fn open() -> Self {
        let library = open(c"libcuda.so.1");
        let driver = Driver {
            init: symbol(library, "cuInit"),
            retain: symbol(library, "cuDevicePrimaryCtxRetain"),
            set_current: symbol(library, "cuCtxSetCurrent"),
            load: symbol(library, "cuModuleLoadData"),
            by_name: symbol(library, "cuModuleGetFunction"),
            launch: symbol(library, "cuLaunchKernel"),
            create: symbol(library, "cuStreamCreate"),
            synchronize: symbol(library, "cuStreamSynchronize"),
            allocate: symbol(library, "cuMemAlloc_v2"),
            copy_in: symbol(library, "cuMemcpyHtoDAsync_v2"),
            fill: symbol(library, "cuMemsetD8Async"),
            begin_capture: symbol(library, "cuStreamBeginCapture_v2"),
            end_capture: symbol(library, "cuStreamEndCapture"),
            instantiate: symbol(library, "cuGraphInstantiateWithFlags"),
            launch_graph: symbol(library, "cuGraphLaunch"),
            launch_host_function: symbol(library, "cuLaunchHostFunc"),
        };
        let collector = CString::new(std::env::var("CUDA_INJECTION64_PATH").unwrap()).unwrap();
        let collector = open(&collector);
        // SAFETY: the handler is async-signal-safe; the pages are the collector's code, made writable for one byte
        // each.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_breakpoint as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            check(libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()));
            for (slot, (_, name)) in PROBES.iter().zip(probe::SYMBOLS) {
                let at: *mut u8 = symbol(collector, name);
                assert_eq!(at.read(), 0x90, "{name} begins with a nop");
                let page = at.map_addr(|at| at & !4095);
                let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
                check(libc::mprotect(page.cast(), 8192, all));
                at.write(0xcc);
                slot.store(at.addr() + 1, Ordering::Relaxed);
            }
        }
        let listeners: *const AtomicU16 = symbol(collector, LISTENERS);
        // SAFETY: the collector's static, which is never unloaded.
        let listeners = unsafe { &*listeners };
        Self { driver, listeners, context: 0, kernels: [0; 2] }
    }

    /// Starts the driver, which starts the collector.
    pub(crate) fn start(&mut self) {
        let text = c".version 8.0\n.entry gemm_2us() { ret; }\n.entry scan_3us() { ret; }\n";
        check((self.driver.init)(0));
        check((self.driver.retain)(&raw mut self.context, 0));
        check((self.driver.set_current)(self.context));
        let mut module = 0;
        check((self.driver.load)(&raw mut module, text.as_ptr()));
        for (kernel, name) in self.kernels.iter_mut().zip([c"gemm_2us", c"scan_3us"]) {
            check((self.driver.by_name)(kernel, module, name.as_ptr()));
        }
    }

    /// Starts the driver; the counter is raised some time after the collector was loaded.
    pub(crate) fn start_with_late_listener(&mut self, after: Duration) {
        let listeners = self.listeners;
        let listener = std::thread::spawn(move || {
            std::thread::sleep(after);
            listeners.store(1, Ordering::Relaxed);
        });
        self.start();
        listener.join().unwrap();
    }

    /// Raises the counter, as so many probes do.
    pub(crate) fn listen(&self, listeners: u16) {
        self.listeners.store(listeners, Ordering::Relaxed);
    }

    /// Takes the listeners away, waits until the collector noticed; returns what was reported.
    pub(crate) fn stop_listening(&self) -> Messages {
        self.listen(0);
        self.wait_for_state(deepctx_common::activity::state::IDLE);
        self.received()
    }

    fn launch_on(&self, stream: Handle, kernel: usize) -> i32 {
        (self.driver.launch)(self.kernels[kernel], 1, 1, 1, 32, 1, 1, 0, stream, 0, 0)
    }

    /// Launches a kernel and gives what the driver says.
    pub(crate) fn try_launch(&self) -> i32 {
        self.launch_on(0, 0)
    }

    /// Launches from several threads, with copies and fills between, and waits for all of it.
    pub(crate) fn work(&self, threads: usize, launches: usize) {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    check((self.driver.set_current)(self.context));
                    let (mut stream, mut memory) = (0, 0);
                    check((self.driver.create)(&raw mut stream, 1));
                    check((self.driver.allocate)(&raw mut memory, 4096));
                    let host = [7; 512];
                    for i in 0..launches {
                        check(self.launch_on(stream, i % 2));
                        if i % 10 == 9 {
                            check((self.driver.copy_in)(memory, host.as_ptr(), host.len(), stream));
                            check((self.driver.fill)(memory, 1, 100, stream));
                        }
                    }
                    check((self.driver.synchronize)(stream));
                });
            }
        });
    }

    /// Captures two launches, and launches them as one so many times, with a function of the host after each.
    pub(crate) fn work_with_graph(&self, times: usize) {
        extern "C" fn nothing(_: Handle) {}
        let (mut stream, mut graph, mut exec) = (0, 0, 0);
        check((self.driver.create)(&raw mut stream, 1));
        check((self.driver.begin_capture)(stream, 0));
        check(self.launch_on(stream, 0));
        check(self.launch_on(stream, 1));
        check((self.driver.end_capture)(stream, &raw mut graph));
        check((self.driver.instantiate)(&raw mut exec, graph, 0));
        for _ in 0..times {
            check((self.driver.launch_graph)(exec, stream));
            check((self.driver.launch_host_function)(stream, nothing, 0));
        }
        check((self.driver.synchronize)(stream));
    }

    /// Subscribes as another tool that lets others in; gives CUPTI's result.
    pub(crate) fn subscribe_beside(&self) -> i32 {
        type Subscribe = extern "C" fn(*mut Handle, extern "C" fn(), usize, *const [usize; 5]) -> i32;
        extern "C" fn nothing() {}
        let subscribe: Subscribe = symbol(open(c"libcupti.so.13"), "cuptiSubscribe_v2");
        let mut handle = 0;
        // Size, name, old name and its room, and the flag that lets others in.
        let parameters = [40, 0, 0, 0, 1];
        subscribe(&raw mut handle, nothing, 0, &raw const parameters)
    }

    /// All that was reported so far.
    pub(crate) fn received(&self) -> Messages {
        // SAFETY: entries below the counts are written, but for those that another thread is about to write; scenarios
        // look when there are none, or look again.
        unsafe {
            let recording: *const Recording = &raw const RECORDING;
            let recording = &*recording;
            Messages {
                messages: recording.messages[..recording.message_count.load(Ordering::Relaxed)].to_vec(),
                activities: recording.activities[..recording.activity_count.load(Ordering::Relaxed)].to_vec(),
                text: recording.text[..recording.text_count.load(Ordering::Relaxed)].to_vec(),
            }
        }
    }

    /// Starts over.
    pub(crate) fn forget(&self) {
        let recording: *const Recording = &raw const RECORDING;
        // SAFETY: scenarios call it when nothing is reported.
        let recording = unsafe { &*recording };
        for count in [&recording.message_count, &recording.activity_count, &recording.text_count] {
            count.store(0, Ordering::Relaxed);
        }
    }

    /// Works until enough was reported.
    pub(crate) fn work_until(&self, enough: impl Fn(&Messages) -> bool) {
        self.wait_until(|received| {
            let is_enough = enough(received);
            if !is_enough {
                self.work(2, 100);
            }
            is_enough
        });
    }

    /// Waits until enough was reported.
    pub(crate) fn wait_until(&self, enough: impl Fn(&Messages) -> bool) {
        let begin = Instant::now();
        while !enough(&self.received()) {
            assert!(begin.elapsed() < TIMEOUT, "received only {:?}", self.received().states());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn wait_for_state(&self, state: u64) {
        self.wait_until(|received| received.states().contains(&state));
    }
}
