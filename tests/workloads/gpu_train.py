"""A training loop that launches its kernels by hand: layers, forward and backward, optimizer, loader, several threads.

Owns: a program that uses a device as frameworks do (the runtime's launches by stubs, the driver's launches as compilers
emit them, streams, events, pinned memory, a captured graph, collectives), and its own account of what it launched
where. Because: a profile can be compared with that account, line by line. Does not: compute anything; it needs no
package, and no device if the libraries are the simulated ones.

    gpu_train.py [--threads N] [--steps N] [--seconds S] [--pause MS] [--log FILE] [--driver] [--ranges LIBRARY]
                 [--request-trace A,B] [--wait | --attended]

Without --steps and --seconds it runs until killed.
--driver: everything goes through the driver, as on a machine with a device but without the CUDA runtime.
--ranges: each step and its forward pass are ranges of this library (NVTX's).
--request-trace: SIGUSR2 to the parent before each of these steps.
--wait: starts at a line on standard input, and ends at another one.
--attended: starts once a profiler watches: a probe is on cuLaunchKernel and on the functions that begin and end ranges,
and a loaded collector has listeners.
--log: at the end, writes a JSON file with the number of launches by kernel and Python stack. That stack has the
program's own functions, outermost first, each with the line of its call.
"""

import argparse
import collections
import contextlib
import ctypes
import glob
import json
import os
import signal
import sys
import threading
import time

# One kernel per launch site, so that a kernel identifies its origin. The last word is its duration on the simulated
# device.
RUNTIME_KERNELS = [
    "embedding_forward_6us",
    "linear_forward_gemm_18us",
    "linear_forward_bias_2us",
    "linear_backward_input_gemm_17us",
    "linear_backward_weight_gemm_19us",
    "loss_forward_4us",
    "loss_backward_3us",
    "evaluate_9us",
]
DRIVER_KERNELS = [
    "attention_forward_fused_31us",
    "attention_backward_fused_44us",
    "normalize_forward_3us",
    "normalize_backward_4us",
    "optimizer_moments_5us",
    "optimizer_update_6us",
]


def module_text(names):
    """PTX with these kernels, as a compiler would pass it to the driver."""
    lines = [".version 6.4", ".target sm_50", ".address_size 64"]
    lines += [f".visible .entry {name}() {{ ret; }}" for name in names]
    return "\n".join(lines).encode() + b"\0"


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", Dim3),
        ("block", Dim3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    ]


class Account:
    """Launches, by kernel and stack."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.counts = collections.Counter()
        self.lock = threading.Lock()

    def take(self, what):
        """One launch, on behalf of the caller's caller."""
        if not self.wanted:
            return
        stack = []
        frame = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            if code.co_filename == __file__:
                stack.append((code.co_qualname if hasattr(code, "co_qualname") else code.co_name, frame.f_lineno))
            frame = frame.f_back
        with self.lock:
            self.counts[what, tuple(reversed(stack))] += 1

    def write(self, path):
        rows = [
            {"what": what, "stack": [{"function": name, "line": line} for name, line in stack], "count": count}
            for (what, stack), count in sorted(self.counts.items())
        ]
        with open(path, "w") as file:
            json.dump({"file": os.path.abspath(__file__), "pid": os.getpid(), "launches": rows}, file, indent=1)


def first_library(names):
    """The first of these libraries that exists."""
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError as error:
            problem = error
    raise problem


class DriverAsRuntime:
    """The runtime's functions used here, implemented by the driver's."""

    def __init__(self, driver):
        self.driver = driver
        self.cudaHostAlloc = driver.cuMemHostAlloc
        self.cudaMalloc = driver.cuMemAlloc_v2
        self.cudaStreamCreateWithFlags = driver.cuStreamCreate
        self.cudaStreamSynchronize = driver.cuStreamSynchronize
        self.cudaStreamWaitEvent = driver.cuStreamWaitEvent
        self.cudaStreamBeginCapture = driver.cuStreamBeginCapture_v2
        self.cudaStreamEndCapture = driver.cuStreamEndCapture
        self.cudaEventCreateWithFlags = driver.cuEventCreate
        self.cudaEventRecord = driver.cuEventRecord
        self.cudaGraphInstantiate = driver.cuGraphInstantiateWithFlags
        self.cudaGraphLaunch = driver.cuGraphLaunch

    def cudaSetDevice(self, number):
        context = ctypes.c_void_p()
        return self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), number) or self.driver.cuCtxSetCurrent(context)

    def cudaLaunchKernel(self, function, grid, block, arguments, shared, stream):
        sizes = [grid.x, grid.y, grid.z, block.x, block.y, block.z, shared.value]
        return self.driver.cuLaunchKernel(function, *sizes, stream, arguments, None)

    def cudaMemcpyAsync(self, target, source, size, kind, stream):
        copy = self.driver.cuMemcpyHtoDAsync_v2 if kind == 1 else self.driver.cuMemcpyDtoHAsync_v2
        return copy(target, source, size, stream)

    def cudaMemsetAsync(self, target, value, size, stream):
        return self.driver.cuMemsetD8Async(target, value, size, stream)


class Device:
    """The libraries and the modules loaded into them."""

    def __init__(self, account, driver_only, ranges=None):
        self.account = account
        self.ranges = ctypes.CDLL(ranges) if ranges else None
        self.driver = ctypes.CDLL("libcuda.so.1")
        if driver_only:
            self.runtime = DriverAsRuntime(self.driver)
        else:
            self.runtime = first_library(["libcudart.so.13", "libcudart.so.12"])
        self.check(self.driver.cuInit(0))
        self.check(self.runtime.cudaSetDevice(0))
        self.context = ctypes.c_void_p()
        self.check(self.driver.cuCtxGetCurrent(ctypes.byref(self.context)))
        self.launch_config = LaunchConfig(Dim3(8, 2, 1), Dim3(128, 1, 1), 0, None, None, 0)
        self.images = []
        self.stubs = self.load(RUNTIME_KERNELS) if driver_only else self.register(RUNTIME_KERNELS)
        self.functions = self.load(DRIVER_KERNELS)
        self.collectives, self.communicator = self.join()

    @staticmethod
    def check(result):
        if result != 0:
            raise RuntimeError(f"the device's library answered {result}")

    def register(self, names):
        """Start-up code of a compiled program: its stubs stand for kernels."""
        image = ctypes.create_string_buffer(module_text(names))
        self.images.append(image)
        begin = self.runtime.__getattr__("__cudaRegisterFatBinary")
        begin.restype = ctypes.c_void_p
        binary = begin(image)
        # Unique addresses without content.
        self.stub_memory = ctypes.create_string_buffer(16 * len(names))
        register = self.runtime.__getattr__("__cudaRegisterFunction")
        stubs = {}
        for i, name in enumerate(names):
            stubs[name] = ctypes.c_void_p(ctypes.addressof(self.stub_memory) + 16 * i)
            text = name.encode()
            register(ctypes.c_void_p(binary), stubs[name], text, text, -1, None, None, None, None, None)
        return stubs

    def load(self, names):
        """Acts like a compiler at run time: a module, and functions by name."""
        image = ctypes.create_string_buffer(module_text(names))
        self.images.append(image)
        module = ctypes.c_void_p()
        self.check(self.driver.cuModuleLoadData(ctypes.byref(module), image))
        functions = {}
        for name in names:
            function = ctypes.c_void_p()
            self.check(self.driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
            functions[name] = function
        return functions

    @contextlib.contextmanager
    def range(self, name):
        if self.ranges:
            self.ranges.nvtxRangePushA(name)
        yield
        if self.ranges:
            self.ranges.nvtxRangePop()

    def join(self):
        """A communicator of one rank, if there are collectives."""
        try:
            library = ctypes.CDLL("libnccl.so.2")
        except OSError:
            return None, None
        communicator = ctypes.c_void_p()
        self.check(library.ncclCommInitAll(ctypes.byref(communicator), 1, None))
        return library, communicator

    def stream(self):
        stream = ctypes.c_void_p()
        self.check(self.runtime.cudaStreamCreateWithFlags(ctypes.byref(stream), 1))
        return stream

    def event(self):
        event = ctypes.c_void_p()
        self.check(self.runtime.cudaEventCreateWithFlags(ctypes.byref(event), 2))
        return event

    def allocate(self, size):
        address = ctypes.c_void_p()
        self.check(self.runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size)))
        return address

    def allocate_pinned(self, size):
        address = ctypes.c_void_p()
        self.check(self.runtime.cudaHostAlloc(ctypes.byref(address), ctypes.c_size_t(size), 0))
        return address

    def launch(self, name, stream, grid=4):
        """Like `<<<…>>>`."""
        self.account.take(name)
        stub = self.stubs[name]
        self.check(self.runtime.cudaLaunchKernel(stub, Dim3(grid, 1, 1), Dim3(256, 1, 1), None, ctypes.c_size_t(0), stream))

    def launch_compiled(self, name, stream, grid=8):
        """Like code from a compiler at run time."""
        self.account.take(name)
        config = LaunchConfig(Dim3(grid, 2, 1), Dim3(128, 1, 1), 1024, stream.value, None, 0)
        self.check(self.driver.cuLaunchKernelEx(ctypes.byref(config), self.functions[name], None, None))

    def all_reduce(self, memory, count, stream):
        """The kernel belongs to the library."""
        if self.collectives:
            self.account.take("ncclDevKernel_AllReduce_Sum_f32_RING_LL_40us")
            # Single-precision sums.
            size = ctypes.c_size_t(count)
            self.check(self.collectives.ncclAllReduce(memory, memory, size, 7, 0, self.communicator, stream))

    def copy_in(self, target, source, size, stream):
        self.account.take("[copy-in]")
        self.check(self.runtime.cudaMemcpyAsync(target, source, ctypes.c_size_t(size), 1, stream))

    def copy_out(self, target, source, size, stream):
        self.account.take("[copy-out]")
        self.check(self.runtime.cudaMemcpyAsync(target, source, ctypes.c_size_t(size), 2, stream))

    def clear(self, target, size, stream):
        self.account.take("[fill]")
        self.check(self.runtime.cudaMemsetAsync(target, 0, ctypes.c_size_t(size), stream))

    def replay(self, graph, stream):
        self.account.take("[graph]")
        self.check(self.runtime.cudaGraphLaunch(graph, stream))

    def synchronize(self, stream):
        self.account.take("[sync]")
        self.check(self.runtime.cudaStreamSynchronize(stream))


class Code:
    """The code of a function (default: a launch), in memory and in its file, which never has a probe."""

    def __init__(self, function=None):
        function = function or ctypes.CDLL("libcuda.so.1").cuLaunchKernel
        self.at = ctypes.cast(function, ctypes.c_void_p).value
        self.before = self.in_file()

    def now(self):
        return ctypes.string_at(self.at, 64)

    def in_file(self):
        with open("/proc/self/maps") as maps:
            for line in maps:
                words = line.split(maxsplit=5)
                begin, end = (int(word, 16) for word in words[0].split("-"))
                if begin <= self.at < end and len(words) == 6:
                    with open(words[5].rstrip("\n"), "rb") as file:
                        file.seek(self.at - begin + int(words[2], 16))
                        return file.read(64)
        return self.now()

    def wait_for_attention(self):
        end = time.monotonic() + 120
        while self.now() == self.before:
            if time.monotonic() > end:
                raise SystemExit("nobody watches")
            time.sleep(0.01)
        path = os.environ.get("CUDA_INJECTION64_PATH")
        if path:
            listeners = ctypes.c_uint16.in_dll(ctypes.CDLL(path), "deepctx_collector_listeners")
            while listeners.value == 0 and time.monotonic() < end:
                time.sleep(0.01)
        # The other probes follow directly, and the collector polls ten times a second.
        time.sleep(0.5)


class Embedding:
    def __init__(self, device):
        self.device = device

    def forward(self, stream):
        self.device.launch("embedding_forward_6us", stream)

    def backward(self, stream):
        pass


class Linear:
    def __init__(self, device):
        self.device = device

    def forward(self, stream):
        self.device.launch("linear_forward_gemm_18us", stream, grid=64)
        self.device.launch("linear_forward_bias_2us", stream)

    def backward(self, stream):
        self.device.launch("linear_backward_input_gemm_17us", stream, grid=64)
        self.device.launch("linear_backward_weight_gemm_19us", stream, grid=64)


class Attention:
    def __init__(self, device):
        self.device = device
        self.project = Linear(device)

    def forward(self, stream):
        self.device.launch_compiled("attention_forward_fused_31us", stream)
        self.project.forward(stream)

    def backward(self, stream):
        self.project.backward(stream)
        self.device.launch_compiled("attention_backward_fused_44us", stream)


class Normalize:
    def __init__(self, device):
        self.device = device

    def forward(self, stream):
        self.device.launch_compiled("normalize_forward_3us", stream)

    def backward(self, stream):
        self.device.launch_compiled("normalize_backward_4us", stream)


class Model:
    def __init__(self, device, blocks):
        self.device = device
        self.layers = [Embedding(device)]
        for _ in range(blocks):
            self.layers += [Normalize(device), Attention(device), Linear(device)]

    def forward(self, stream):
        for layer in self.layers:
            layer.forward(stream)

    def backward(self, stream):
        for layer in reversed(self.layers):
            layer.backward(stream)

    def loss(self, stream):
        self.device.launch("loss_forward_4us", stream)
        self.device.launch("loss_backward_3us", stream)


class Optimizer:
    """A step that is captured once and replayed."""

    def __init__(self, device, stream):
        self.device = device
        runtime = device.runtime
        device.check(runtime.cudaStreamBeginCapture(stream, 2))
        self.record(stream)
        graph = ctypes.c_void_p()
        device.check(runtime.cudaStreamEndCapture(stream, ctypes.byref(graph)))
        self.graph = ctypes.c_void_p()
        device.check(runtime.cudaGraphInstantiate(ctypes.byref(self.graph), graph, ctypes.c_ulonglong(0)))

    def record(self, stream):
        for _ in range(3):
            self.device.launch_compiled("optimizer_moments_5us", stream)
        self.device.launch_compiled("optimizer_update_6us", stream)

    def step(self, stream):
        self.device.replay(self.graph, stream)


class Loader:
    """Batches in pinned memory, copied on a stream of their own."""

    SIZE = 64 << 10

    def __init__(self, device):
        self.device = device
        self.stream = device.stream()
        self.ready = device.event()
        self.pinned = device.allocate_pinned(self.SIZE)
        self.batch = device.allocate(self.SIZE)

    def next(self, stream):
        self.device.clear(self.batch, 4096, self.stream)
        self.device.copy_in(self.batch, self.pinned, self.SIZE, self.stream)
        self.device.check(self.device.runtime.cudaEventRecord(self.ready, self.stream))
        self.device.check(self.device.runtime.cudaStreamWaitEvent(stream, self.ready, 0))


class Trainer:
    def __init__(self, device, blocks):
        self.device = device
        self.stream = device.stream()
        self.model = Model(device, blocks)
        self.optimizer = Optimizer(device, self.stream)
        self.loader = Loader(device)
        self.host = device.allocate_pinned(1024)

    def step(self, number):
        with self.device.range(b"train_step"):
            self.parts_of_step(number)

    def parts_of_step(self, number):
        self.loader.next(self.stream)
        with self.device.range(b"forward"):
            self.model.forward(self.stream)
        self.model.loss(self.stream)
        self.model.backward(self.stream)
        self.reduce()
        self.optimizer.step(self.stream)
        if number % 5 == 4:
            self.report()

    def reduce(self):
        self.device.all_reduce(self.loader.batch, 1024, self.stream)

    def report(self):
        self.device.launch("evaluate_9us", self.stream)
        self.device.copy_out(self.host, self.loader.batch, 1024, self.stream)
        self.device.synchronize(self.stream)


def profiler():
    """Process numbers of the profiler and of its workers, which have work while it waits for them."""
    recorder = os.environ.get("DEEPCTX_RECORDER", str(os.getppid()))
    found = [recorder]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as line, open(f"/proc/{pid}/stat", "rb") as stat:
                is_worker = line.read().startswith(b"/proc/self/exe\0")
                if is_worker and stat.read().rpartition(b")")[2].split()[1] == recorder.encode():
                    found.append(pid)
        except OSError:
            pass
    return found


def activity(pids):
    """CPU time of these processes so far, and whether a thread of them runs or waits for a CPU."""
    ticks, is_runnable = 0, False
    for path in (path for pid in pids for path in glob.glob(f"/proc/{pid}/task/*/stat")):
        try:
            with open(path, "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        ticks += int(fields[11]) + int(fields[12])
        is_runnable |= fields[0] == b"R"
    return ticks / os.sysconf("SC_CLK_TCK"), is_runnable


def stay_until_named():
    """Stays a second for the resolution of names, and until the profiler has little left to do."""
    glances = 25
    end = time.monotonic() + 60
    time.sleep(0.5)
    while time.monotonic() < end:
        pids, runnable = profiler(), 0
        before, _ = activity(pids)
        for _ in range(glances):
            time.sleep(0.5 / glances)
            now, is_runnable = activity(pids)
            runnable += is_runnable
        # On a busy machine it has little CPU time, however much it has to do; then it always waits for a CPU.
        if now - before < 0.1 and runnable < 0.8 * glances:
            return


def train(device, options, stop):
    device.check(device.runtime.cudaSetDevice(0))
    trainer = Trainer(device, options.blocks)
    number = 0
    while not stop.is_set() and (options.steps is None or number < options.steps):
        if number in options.request_trace:
            # Longer than a window, so that the previous one has ended.
            time.sleep(0.4)
            os.kill(os.getppid(), signal.SIGUSR2)
        trainer.step(number)
        number += 1
        if options.pause:
            time.sleep(options.pause / 1000)
    device.synchronize(trainer.stream)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--pause", type=float, default=2.0)
    parser.add_argument("--log")
    parser.add_argument("--driver", action="store_true")
    parser.add_argument("--ranges")
    parser.add_argument("--request-trace", type=lambda steps: {int(n) for n in steps.split(",")}, default=set())
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--attended", action="store_true")
    options = parser.parse_args()
    watched = [Code()]
    if options.ranges:
        library = ctypes.CDLL(options.ranges)
        watched += [Code(library.nvtxRangePushA), Code(library.nvtxRangePop)]
    account = Account(options.log)
    device = Device(account, options.driver, options.ranges)
    print("ready", os.getpid(), flush=True)
    if options.wait:
        sys.stdin.readline()
    if options.attended:
        for code in watched:
            code.wait_for_attention()
    stop = threading.Event()
    threads = [
        threading.Thread(target=train, args=(device, options, stop), name=f"trainer-{i}") for i in range(options.threads)
    ]
    for thread in threads:
        thread.start()
    if options.seconds:
        stop.wait(options.seconds)
        stop.set()
    for thread in threads:
        thread.join()
    if options.log:
        account.write(options.log)
    print("done", sum(account.counts.values()), flush=True)
    if options.attended:
        stay_until_named()
    if options.wait:
        sys.stdin.readline()


if __name__ == "__main__":
    main()
