"""A program that uses a device on command and keeps an account, for `cargo xtask gpu-check` to compare with profiles.

Owns: launches by each way into the driver (exported symbols, pointers of cuGetProcAddress, each thread's default
stream), memory, copies and waits by the driver; a training loop, operators and a Triton kernel by PyTorch; a loop that
only launches; and the account of all that. Because: a count can only be checked against another count. Does not: judge.

    gpu_check.py [--bare] [--account FILE] [COMMAND…]

Without commands, each line of standard input is a command, answered by a line of JSON. --bare: no PyTorch, only the
driver, real or simulated. The simulated device runs the kernels of the file GPU_CHECK_CUBIN instead of Triton's. With
GPU_CHECK_STRETCH=1.02 the times that the program itself prints are wrong by this factor, which the check must detect.

    attended          wait until a profiler watches (a probe is on cuLaunchKernel, a loaded collector has listeners)
    sampled           wait until a collector is asked for samples of instructions
    facts             the driver's properties of its device
    roads N           N launches by each way into the driver
    graphs N          N launches of a graph of two kernels, each followed by a host function, as JAX does
    memory N          N allocations, fills, copies each way, waits
    loop N            N launches and nothing else; prints nanoseconds
    operators N       N launches of one operator
    compiled N        N launches of a kernel that was compiled at run time, with lines
    train N           N steps of training; bare: N rounds of several kernels
    names             kernels of a training step, as a profiler within the program reports them
    profiled FILE COMMAND   run the command while a profiler within the program collects; it writes a trace
    pause MS
"""

import collections
import ctypes
import inspect
import json
import os
import sys
import time

from gpu_train import Code, LaunchConfig, Dim3, first_library, module_text, stay_until_named

ROADS = ["symbol", "symbol_ptsz", "pointer", "pointer_ptsz", "ex_symbol", "ex_pointer", "ex_pointer_ptsz"]
ROUND = {"deepctx_round_a_4us": 1, "deepctx_round_b_6us": 2, "deepctx_round_c_9us": 3, "deepctx_round_d_20us": 1}
LOOP = "deepctx_loop_1us"
GRAPH = "deepctx_graph_2us"
BYTES = 1 << 16
PER_THREAD = 2


def check(result):
    if result != 0:
        raise SystemExit(f"gpu_check: the device's library answered {result}")


class Bare:
    """The driver, without a framework."""

    def __init__(self, context=True):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.code = Code()
        check(self.driver.cuInit(0))
        if context:
            handle = ctypes.c_void_p()
            check(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(handle), 0))
            check(self.driver.cuCtxSetCurrent(handle))
        self.loaded = None

    def load(self):
        """Its own kernels, loaded at first use."""
        if self.loaded is None:
            names = [f"deepctx_road_{road}_3us" for road in ROADS] + [*ROUND, LOOP, GRAPH]
            text = module_text(names).replace(b"sm_50", b"sm_75")
            self.loaded = self.module(ctypes.create_string_buffer(text), names)
        return self.loaded

    def module(self, image, names):
        module = ctypes.c_void_p()
        check(self.driver.cuModuleLoadData(ctypes.byref(module), image))
        self.images = [*getattr(self, "images", []), image]
        functions = {}
        for name in names:
            function = ctypes.c_void_p()
            check(self.driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()))
            functions[name] = function
        return functions

    def pointer(self, name, flags):
        address, status = ctypes.c_void_p(), ctypes.c_int()
        get = self.driver.cuGetProcAddress_v2
        get.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p]
        check(get(name.encode(), ctypes.byref(address), 12000, flags, ctypes.byref(status)))
        return address.value

    def launcher(self, road):
        """The function of a way into the driver, and whether it takes a structure."""
        extended = road.startswith("ex_")
        name = "cuLaunchKernelEx" if extended else "cuLaunchKernel"
        per_thread = road.endswith("_ptsz")
        if "pointer" in road:
            address = self.pointer(name, PER_THREAD if per_thread else 0)
        else:
            function = getattr(self.driver, name + ("_ptsz" if per_thread else ""))
            address = ctypes.cast(function, ctypes.c_void_p).value
        unsigned, pointer = ctypes.c_uint, ctypes.c_void_p
        arguments = [pointer] * 4 if extended else [pointer, *[unsigned] * 7, pointer, pointer, pointer]
        return ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(address), extended

    def launch(self, launcher, function):
        call, extended = launcher
        if extended:
            config = LaunchConfig(Dim3(2, 1, 1), Dim3(64, 1, 1), 0, None, None, 0)
            check(call(ctypes.addressof(config), function, None, None))
        else:
            check(call(function, 2, 1, 1, 64, 1, 1, 0, None, None, None))

    def synchronize(self):
        check(self.driver.cuCtxSynchronize())

    def roads(self, count):
        functions = self.load()
        kernels = {}
        for road in ROADS:
            launcher, name = self.launcher(road), f"deepctx_road_{road}_3us"
            for _ in range(count):
                self.launch(launcher, functions[name])
            kernels[name] = count
            self.synchronize()
        return {"kernels": kernels}

    def graphs(self, count):
        driver, function, (call, _) = self.driver, self.load()[GRAPH], self.launcher("symbol")
        stream, graph, launchable = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        check(driver.cuStreamCreate(ctypes.byref(stream), 1))
        check(driver.cuStreamBeginCapture_v2(stream, 0))
        for _ in range(2):
            check(call(function, 2, 1, 1, 64, 1, 1, 0, stream, None, None))
        check(driver.cuStreamEndCapture(stream, ctypes.byref(graph)))
        check(driver.cuGraphInstantiateWithFlags(ctypes.byref(launchable), graph, ctypes.c_ulonglong(0)))
        behind = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
        for _ in range(count):
            check(driver.cuGraphLaunch(launchable, stream))
            check(driver.cuLaunchHostFunc(stream, behind, None))
        check(driver.cuStreamSynchronize(stream))
        return {"kernels": {GRAPH: 2 * count}}

    def memory(self, count):
        driver = self.driver
        host = ctypes.create_string_buffer(BYTES)
        size = ctypes.c_size_t(BYTES)
        for _ in range(count):
            place = ctypes.c_uint64()
            check(driver.cuMemAlloc_v2(ctypes.byref(place), size))
            check(driver.cuMemsetD8_v2(place, ctypes.c_ubyte(7), size))
            check(driver.cuMemcpyHtoD_v2(place, host, size))
            check(driver.cuMemcpyHtoDAsync_v2(place, host, size, None))
            check(driver.cuMemcpyHtoD_v2_ptds(place, host, size))
            check(driver.cuMemcpyDtoH_v2(host, place, size))
            check(driver.cuStreamSynchronize(None))
            check(driver.cuMemFree_v2(place))
        one = {"calls": count, "bytes": count * BYTES}
        return {
            "calls": {
                "cuMemAlloc_v2": {"alloc-bytes": one},
                "cuMemFree_v2": {"free-bytes": one},
                "cuMemsetD8_v2": {"copy-bytes": one},
                "cuMemcpyHtoD_v2": {"copy-bytes": one},
                "cuMemcpyHtoDAsync_v2": {"copy-bytes": one},
                "cuMemcpyHtoD_v2_ptds": {"copy-bytes": one},
                "cuMemcpyDtoH_v2": {"copy-bytes": one},
                "cuStreamSynchronize": {"sync-time": {"calls": count}},
            }
        }

    def loop(self, count):
        function, (call, _) = self.load()[LOOP], self.launcher("symbol")
        self.synchronize()
        begin = time.monotonic_ns()
        for _ in range(count):
            call(function, 2, 1, 1, 64, 1, 1, 0, None, None, None)
        self.synchronize()
        return {"ns": time.monotonic_ns() - begin, "kernels": {LOOP: count}}

    def train(self, count):
        functions, launcher = self.load(), self.launcher("symbol")
        for _ in range(count):
            for name, times in ROUND.items():
                for _ in range(times):
                    self.launch(launcher, functions[name])
            self.synchronize()
        return {"kernels": {name: count * times for name, times in ROUND.items()}}

    def names(self):
        return {"step": ROUND}

    def compiled(self, count):
        path = os.environ.get("GPU_CHECK_CUBIN")
        if path is None:
            return {"lacks": "PyTorch with Triton"}
        name = "_Z5scalePfi"
        if not hasattr(self, "cubin"):
            with open(path, "rb") as file:
                self.cubin = self.module(ctypes.create_string_buffer(file.read()), [name])
        launcher = self.launcher("symbol")
        for _ in range(count):
            self.launch(launcher, self.cubin[name])
            if _ % 64 == 63:
                self.synchronize()
        self.synchronize()
        return {"kernels": {"scale(float*, int)": count}, "kernel": "scale(float*, int)", "file": ".cu"}

    def facts(self):
        driver = self.driver
        name, uuid, size = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16), ctypes.c_size_t()
        check(driver.cuDeviceGetName(name, 256, 0))
        check(driver.cuDeviceGetUuid_v2(uuid, 0))
        check(driver.cuDeviceTotalMem_v2(ctypes.byref(size), 0))

        def attribute(number):
            value = ctypes.c_int()
            check(driver.cuDeviceGetAttribute(ctypes.byref(value), number, 0))
            return value.value

        return {
            "name": name.value.decode(),
            "uuid": uuid.raw.hex(),
            "capability": [attribute(75), attribute(76)],
            "multiprocessors": attribute(16),
            "memory": size.value,
        }

    def profiled(self, path, run):
        """CUPTI's activity interface, used like a tool within the program."""
        return Cupti(self).trace(path, run)


class Cupti:
    """A client of CUPTI's first interface that records kernels."""

    REQUEST = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t))
    COMPLETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)

    def __init__(self, bare):
        self.bare = bare
        self.library = first_library(["libcupti.so.13", "libcupti.so.12"])
        self.buffers, self.events = {}, []
        self.stretch = float(os.environ.get("GPU_CHECK_STRETCH", 1))
        self.request, self.complete = self.REQUEST(self.requested), self.COMPLETE(self.completed)

    def requested(self, buffer, size, most):
        room = ctypes.create_string_buffer(1 << 20)
        self.buffers[ctypes.addressof(room)] = room
        buffer[0], size[0], most[0] = ctypes.addressof(room), 1 << 20, 0

    def completed(self, _context, _stream, buffer, _size, valid):
        record = ctypes.c_void_p()
        following = self.library.cuptiActivityGetNextRecord
        following.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        while following(buffer, valid, ctypes.byref(record)) == 0:
            at = record.value
            if ctypes.c_uint32.from_address(at).value in (3, 10):
                begin, end = (ctypes.c_uint64.from_address(at + offset).value for offset in (16, 24))
                name = ctypes.string_at(ctypes.c_void_p.from_address(at + 104).value).decode()
                arguments = {"correlation": ctypes.c_uint32.from_address(at + 92).value}
                self.events.append({"ph": "X", "cat": "kernel", "name": name, "dur": (end - begin) * self.stretch / 1e3, "args": arguments})
        del self.buffers[buffer]

    def trace(self, path, run):
        # A profiler that borrows the records must find this library first.
        time.sleep(1)
        check(self.library.cuptiActivityRegisterCallbacks(self.request, self.complete))
        # Driver calls too, like other tools: they relate the two clocks.
        check(self.library.cuptiActivityEnable(10))
        check(self.library.cuptiActivityEnable(4))
        said = run()
        self.bare.synchronize()
        check(self.library.cuptiActivityFlushAll(1))
        check(self.library.cuptiActivityDisable(10))
        check(self.library.cuptiActivityDisable(4))
        with open(path, "w") as file:
            json.dump({"traceEvents": self.events}, file)
        return said


class Torch(Bare):
    """PyTorch, and the driver below it."""

    def __init__(self):
        import torch

        if not torch.cuda.is_available():
            raise SystemExit("gpu_check: PyTorch has no CUDA device")
        self.torch = torch
        # PyTorch creates the context; the driver's own launches use the same one.
        self.cell = torch.ones(64, device="cuda")
        super().__init__()
        layers = [layer for _ in range(4) for layer in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
        self.model = torch.nn.Sequential(*layers).cuda()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.batch = torch.randn(64, 256, device="cuda")
        self.scale = None
        self.train(3)
        self.operators(3)
        self.compiled(1)

    def synchronize(self):
        self.torch.cuda.synchronize()

    def train(self, count):
        for _ in range(count):
            self.optimizer.zero_grad(set_to_none=False)
            loss = self.model(self.batch).square().mean()
            loss.backward()
            self.optimizer.step()
        self.synchronize()
        return {}

    def operators(self, count):
        """An operator of one kernel that is used nowhere else here."""
        for _ in range(count):
            self.cell.erfinv_()
        self.synchronize()
        return {"contained": {"erfinv": count}}

    def loop(self, count):
        cell = self.cell
        self.synchronize()
        begin = time.monotonic_ns()
        for _ in range(count):
            cell.add_(1)
        self.synchronize()
        return {"ns": time.monotonic_ns() - begin}

    def compiled(self, count):
        try:
            if self.scale is None:
                from gpu_check_triton import deepctx_scale

                self.scale = deepctx_scale
                self.many = self.torch.ones(1 << 22, device="cuda")
        except ImportError as error:
            return {"lacks": f"Triton: {error}"}
        for _ in range(count):
            self.scale[(4096,)](self.many, 1.0001, BLOCK=1024)
        self.synchronize()
        lines, first = inspect.getsourcelines(self.scale.fn)
        where = {"kernel": "deepctx_scale", "file": "gpu_check_triton.py", "lines": [first, first + len(lines) - 1]}
        return {"kernels": {"deepctx_scale": count}, **where}

    def profiled(self, path, run):
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            said = run()
            self.synchronize()
        if path:
            profiler.export_chrome_trace(path)
        self.last = profiler
        return said

    def names(self):
        self.profiled(None, lambda: self.train(1))
        device = [event for event in self.last.events() if "CUDA" in str(event.device_type) and not event.is_user_annotation]
        counts = collections.Counter(event.name for event in device if not event.name.startswith(("Memcpy", "Memset")))
        return {"step": dict(counts)}


def wait_for_samplers():
    path = os.environ.get("CUDA_INJECTION64_PATH")
    if not path:
        raise SystemExit("gpu_check: no collector")
    samplers = ctypes.c_uint16.in_dll(ctypes.CDLL(path), "deepctx_collector_samplers")
    end = time.monotonic() + 60
    while samplers.value == 0 and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.7)
    return {}


def carry_out(device, words):
    name, rest = words[0], words[1:]
    if name == "attended":
        device.code.wait_for_attention()
        return {}
    if name == "sampled":
        return wait_for_samplers()
    if name == "pause":
        time.sleep(int(rest[0]) / 1000)
        return {}
    if name in ("facts", "names"):
        return getattr(device, name)()
    if name == "profiled":
        return device.profiled(rest[0], lambda: carry_out(device, rest[1:]))
    if name not in ("roads", "graphs", "memory", "loop", "operators", "compiled", "train"):
        raise SystemExit(f"gpu_check: unknown command {name}")
    if not hasattr(device, name):
        return {"lacks": "PyTorch"}
    return getattr(device, name)(int(rest[0]))


def main():
    words = sys.argv[1:]
    bare = "--bare" in words
    account = words[words.index("--account") + 1] if "--account" in words else None
    commands = [word for at, word in enumerate(words) if not word.startswith("--") and (at == 0 or words[at - 1] != "--account")]
    device = Bare() if bare else Torch()
    if commands:
        said = [{"command": command, **carry_out(device, command.split())} for command in commands]
        if account:
            with open(account, "w") as file:
                json.dump(said, file)
        stay_until_named()
        return
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for line in sys.stdin:
        print(json.dumps(carry_out(device, line.split())), flush=True)


if __name__ == "__main__":
    main()
