// Launches kernels, copies, fills and graphs at a fixed rate from several threads, and prints the number of each.
//
// gpu_launch [--threads N] [--rate PER_SECOND] [--launches PER_THREAD] [--seconds S]
// [--graphs | --forked-graphs | --built-graphs] [--copies] [--events] [--log FILE] [--borrow] [--wait | --attended]
// [--until-input-ends]
//
// It needs no CUDA headers and no device: it uses the `libcuda.so.1` that the linker finds. Every launch goes through
// functions of its own (`launch_0` … `launch_3`, below `step_DEPTH`), so that its stack is known, and starts a kernel
// that is named after them. `--rate 0` runs as fast as possible. With `--borrow` the program has its own CUPTI client,
// like PyTorch's profiler, and counts its records. With `--forked-graphs` each graph is recorded from two streams: a
// kernel, two branches after it, and a kernel after both. With `--built-graphs` each is built node by node: kernels, a
// fill, and an empty node, with edges from the array of each node and from a separate call. With `--events` each thread
// has a second stream, which waits for events of the first, and waits for events of the second. With `--wait` it starts
// at a line on standard input, and ends at another; with `--attended` it starts once a profiler watches: a probe is on
// cuLaunchKernel, and a loaded collector has listeners and is active.
//
// Prints `ready PID`, once a second `tick LAUNCHES CPU_NS WALL_NS`, and at the end `launched WHAT COUNT` lines. The log
// has lines of each thread: `call TID NAME BEGIN_NS END_NS`, numbered from 1; `wait TID WAIT RECORD`: a call waits for
// the event that another one recorded; `edge TID WAITER LAUNCH`: a launch, or a call itself, waits for what another
// call launched.

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

namespace {

using Handle = void *;

template <typename F>
F function(Handle library, const char *name) {
    void *address = dlsym(library, name);
    if (address == nullptr) {
        std::fprintf(stderr, "no function %s\n", name);
        std::exit(2);
    }
    return reinterpret_cast<F>(address);
}

struct Driver {
    int (*init)(unsigned);
    int (*retain)(Handle *, int);
    int (*set_current)(Handle);
    int (*load)(Handle *, const void *);
    int (*by_name)(Handle *, Handle, const char *);
    int (*launch)(Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **);
    int (*stream_create)(Handle *, unsigned);
    int (*stream_sync)(Handle);
    int (*event_create)(Handle *, unsigned);
    int (*event_record)(Handle, Handle);
    int (*event_sync)(Handle);
    int (*stream_wait)(Handle, Handle, unsigned);
    int (*begin)(Handle, unsigned);
    int (*end)(Handle, Handle *);
    int (*clone)(Handle *, Handle);
    int (*instantiate)(Handle *, Handle, unsigned long long);
    int (*graph_launch)(Handle, Handle);
    int (*alloc)(uint64_t *, size_t);
    int (*host_alloc)(void **, size_t, unsigned);
    int (*to_device)(uint64_t, const void *, size_t, Handle);
    int (*to_host)(void *, uint64_t, size_t, Handle);
    int (*fill)(uint64_t, unsigned char, size_t, Handle);

    explicit Driver(Handle library) {
        init = function<decltype(init)>(library, "cuInit");
        retain = function<decltype(retain)>(library, "cuDevicePrimaryCtxRetain");
        set_current = function<decltype(set_current)>(library, "cuCtxSetCurrent");
        load = function<decltype(load)>(library, "cuModuleLoadData");
        by_name = function<decltype(by_name)>(library, "cuModuleGetFunction");
        launch = function<decltype(launch)>(library, "cuLaunchKernel");
        stream_create = function<decltype(stream_create)>(library, "cuStreamCreate");
        stream_sync = function<decltype(stream_sync)>(library, "cuStreamSynchronize");
        event_create = function<decltype(event_create)>(library, "cuEventCreate");
        event_record = function<decltype(event_record)>(library, "cuEventRecord");
        event_sync = function<decltype(event_sync)>(library, "cuEventSynchronize");
        stream_wait = function<decltype(stream_wait)>(library, "cuStreamWaitEvent");
        begin = function<decltype(begin)>(library, "cuStreamBeginCapture_v2");
        end = function<decltype(end)>(library, "cuStreamEndCapture");
        clone = function<decltype(clone)>(library, "cuGraphClone");
        instantiate = function<decltype(instantiate)>(library, "cuGraphInstantiateWithFlags");
        graph_launch = function<decltype(graph_launch)>(library, "cuGraphLaunch");
        alloc = function<decltype(alloc)>(library, "cuMemAlloc_v2");
        host_alloc = function<decltype(host_alloc)>(library, "cuMemHostAlloc");
        to_device = function<decltype(to_device)>(library, "cuMemcpyHtoDAsync_v2");
        to_host = function<decltype(to_host)>(library, "cuMemcpyDtoHAsync_v2");
        fill = function<decltype(fill)>(library, "cuMemsetD8Async");
    }
};

void check(int result, const char *what) {
    if (result != 0) {
        std::fprintf(stderr, "%s: error %d\n", what, result);
        std::exit(2);
    }
}

uint64_t now_ns(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return uint64_t(time.tv_sec) * 1000000000u + uint64_t(time.tv_nsec);
}

// What a thread called, and what waits for what, by numbers of calls.
struct Log {
    struct Call {
        const char *name;
        uint64_t begin, end;
    };
    struct Pair {
        const char *what;
        size_t waiter, on;
    };
    std::vector<Call> calls;
    std::vector<Pair> pairs;

    void write(FILE *file) const {
        const long thread = syscall(SYS_gettid);
        for (const auto &[name, begin, end] : calls)
            std::fprintf(file, "call %ld %s %lu %lu\n", thread, name, (unsigned long)begin, (unsigned long)end);
        for (const auto &[what, waiter, on] : pairs) std::fprintf(file, "%s %ld %zu %zu\n", what, thread, waiter, on);
    }
};

// Null without `--log`.
thread_local Log *own_log;

// Times a call, from before its first instruction to after its last.
struct Timed {
    const char *name;
    uint64_t begin;

    explicit Timed(const char *name) : name(name), begin(own_log != nullptr ? now_ns(CLOCK_MONOTONIC) : 0) {}
    ~Timed() {
        if (own_log == nullptr) return;
        const uint64_t end = now_ns(CLOCK_MONOTONIC);
        own_log->calls.push_back({name, begin, end});
    }
};

template <typename... Parameters, typename... Arguments>
__attribute__((always_inline)) inline int timed(const char *name, int (*call)(Parameters...), Arguments... arguments) {
    Timed timed(name);
    return call(arguments...);
}

// The number of the last call.
size_t last_call() { return own_log != nullptr ? own_log->calls.size() : 0; }

void note(const char *what, size_t waiter, size_t on) {
    if (own_log != nullptr) own_log->pairs.push_back({what, waiter, on});
}

const char MODULE[] =
    ".version 8.0\n.target sm_90\n.address_size 64\n"
    ".entry kernel_0_2us() { ret; }\n.entry kernel_1_3us() { ret; }\n.entry kernel_2_4us() { ret; }\n"
    ".entry kernel_3_5us() { ret; }\n.entry captured_a_2us() { ret; }\n.entry captured_b_3us() { ret; }\n";
const char *const KERNELS[] = {"kernel_0_2us", "kernel_1_3us", "kernel_2_4us", "kernel_3_5us"};

// Builds a graph node by node.
struct Builder {
    // CUDA_KERNEL_NODE_PARAMS, and CUgraphNodeParams with one: its first member is the kind, 0.
    struct Kernel {
        Handle function;
        unsigned grid[3], block[3], shared;
        void **arguments, **extra;
        Handle kernel, context;
    };
    struct Node {
        int kind, reserved[3];
        Kernel kernel;
        long long rest[24];
    };
    // CUDA_MEMSET_NODE_PARAMS
    struct Fill {
        uint64_t to;
        size_t pitch;
        unsigned value, element;
        size_t width, height;
    };
    using Nodes = std::vector<Handle>;

    Handle graph, context;
    int (*create)(Handle *, unsigned);
    int (*add_kernel)(Handle *, Handle, const Handle *, size_t, const Kernel *);
    int (*add_fill)(Handle *, Handle, const Handle *, size_t, const Fill *, Handle);
    int (*add_empty)(Handle *, Handle, const Handle *, size_t);
    int (*add_node)(Handle *, Handle, const Handle *, const void *, size_t, Node *);
    int (*add_dependencies)(Handle, const Handle *, const Handle *, size_t);

    Builder(Handle library, Handle context) : context(context) {
        create = function<decltype(create)>(library, "cuGraphCreate");
        add_kernel = function<decltype(add_kernel)>(library, "cuGraphAddKernelNode_v2");
        add_fill = function<decltype(add_fill)>(library, "cuGraphAddMemsetNode");
        add_empty = function<decltype(add_empty)>(library, "cuGraphAddEmptyNode");
        add_node = function<decltype(add_node)>(library, "cuGraphAddNode_v2");
        add_dependencies = function<decltype(add_dependencies)>(library, "cuGraphAddDependencies");
        check(create(&graph, 0), "cuGraphCreate");
    }

    static Kernel parameters(Handle function) {
        return {function, {1, 1, 1}, {32, 1, 1}, 0, nullptr, nullptr, nullptr, nullptr};
    }

    Handle kernel(Handle function, const Nodes &after) {
        const Kernel kernel = parameters(function);
        Handle node;
        check(add_kernel(&node, graph, after.data(), after.size(), &kernel), "cuGraphAddKernelNode");
        return node;
    }

    Handle any(Handle function, const Nodes &after) {
        Node parameters{};
        parameters.kernel = Builder::parameters(function);
        Handle node;
        check(add_node(&node, graph, after.data(), nullptr, after.size(), &parameters), "cuGraphAddNode");
        return node;
    }

    Handle fill(uint64_t memory, const Nodes &after) {
        const Fill fill = {memory, 0, 7, 4, 64, 1};
        Handle node;
        check(add_fill(&node, graph, after.data(), after.size(), &fill, context), "cuGraphAddMemsetNode");
        return node;
    }

    Handle empty(const Nodes &after) {
        Handle node;
        check(add_empty(&node, graph, after.data(), after.size()), "cuGraphAddEmptyNode");
        return node;
    }

    void connect(Handle before, Handle after) {
        check(add_dependencies(graph, &before, &after, 1), "cuGraphAddDependencies");
    }

    // A kernel; a fill and two kernels after it; an empty node that joins them; after that a kernel, and one that
    // depends on it through a separate edge. One more depends on fourteen others.
    void build(Handle a, Handle b, uint64_t memory) {
        const Handle first = kernel(a, {});
        const Handle joined = empty({kernel(b, {first}), any(a, {first}), fill(memory, {first})});
        const Handle behind = kernel(b, {joined}), last = any(a, {});
        connect(behind, last);
        Nodes many;
        while (many.size() < 14) many.push_back(kernel(a, {last}));
        kernel(b, many);
    }
};

struct Counts {
    std::atomic<uint64_t> kernels[4]{};
    std::atomic<uint64_t> graphs{}, copies_in{}, copies_out{}, fills{}, syncs{};
};

Counts counts;
Driver *driver;

struct Work {
    Handle stream, functions[4], graph, second, events[2];
    uint64_t memory;
    void *host;
};

// One function per kernel, so that the innermost frames identify the kernel.
#define LAUNCH(N)                                                                                       \
    __attribute__((noinline)) int launch_##N(const Work &work) {                                        \
        int result = timed("cuLaunchKernel", driver->launch, work.functions[N], N + 1, 1, 1, 128, 1, 1, 0,  \
                           work.stream, nullptr, nullptr);                                              \
        counts.kernels[N].fetch_add(1, std::memory_order_relaxed);                                      \
        asm volatile("" ::: "memory");                                                                  \
        return result;                                                                                  \
    }
LAUNCH(0)
LAUNCH(1)
LAUNCH(2)
LAUNCH(3)

constexpr int (*LAUNCHES[])(const Work &) = {launch_0, launch_1, launch_2, launch_3};

template <int DEPTH>
__attribute__((noinline)) int step(const Work &work, int which) {
    int result;
    if constexpr (DEPTH == 0) {
        result = LAUNCHES[which](work);
    } else {
        result = step<DEPTH - 1>(work, which);
    }
    asm volatile("" ::: "memory");
    return result;
}

// The same kernel, recorded from two places: only its size shows which one runs.
__attribute__((noinline)) void capture_first(const Work &work, Handle kernel) {
    check(driver->launch(kernel, 1, 1, 1, 32, 1, 1, 0, work.stream, nullptr, nullptr), "captured launch");
    asm volatile("" ::: "memory");
}

__attribute__((noinline)) void capture_second(const Work &work, Handle kernel) {
    check(driver->launch(kernel, 2, 1, 1, 32, 1, 1, 0, work.stream, nullptr, nullptr), "captured launch");
    asm volatile("" ::: "memory");
}

// Makes later work of one stream depend on the work in the other.
void follow(Handle stream, Handle other) {
    Handle event;
    check(driver->event_create(&event, 2), "cuEventCreate");
    check(driver->event_record(event, other), "cuEventRecord");
    check(driver->stream_wait(stream, event, 0), "cuStreamWaitEvent");
}

// Two branches, of which the first one has two kernels.
void capture_branches(const Work &work, Handle a, Handle b) {
    Work branch = work;
    check(driver->stream_create(&branch.stream, 1), "cuStreamCreate");
    capture_first(work, a);
    follow(branch.stream, work.stream);
    capture_second(branch, a);
    capture_first(work, b);
    capture_second(work, b);
    follow(work.stream, branch.stream);
    capture_first(work, a);
}

__attribute__((noinline)) void replay(const Work &work) {
    check(timed("cuGraphLaunch", driver->graph_launch, work.graph, work.stream), "cuGraphLaunch");
    counts.graphs.fetch_add(1, std::memory_order_relaxed);
    asm volatile("" ::: "memory");
}

__attribute__((noinline)) void transfer(const Work &work) {
    const Handle stream = work.stream;
    check(timed("cuMemcpyHtoDAsync_v2", driver->to_device, work.memory, work.host, 4096, stream), "cuMemcpyHtoDAsync");
    check(timed("cuMemsetD8Async", driver->fill, work.memory, 7, 1024, stream), "cuMemsetD8Async");
    check(timed("cuMemcpyDtoHAsync_v2", driver->to_host, work.host, work.memory, 2048, stream), "cuMemcpyDtoHAsync");
    counts.copies_in.fetch_add(1, std::memory_order_relaxed);
    counts.fills.fetch_add(1, std::memory_order_relaxed);
    counts.copies_out.fetch_add(1, std::memory_order_relaxed);
    asm volatile("" ::: "memory");
}

__attribute__((noinline)) void synchronize(const Work &work) {
    check(timed("cuStreamSynchronize", driver->stream_sync, work.stream), "cuStreamSynchronize");
    counts.syncs.fetch_add(1, std::memory_order_relaxed);
    asm volatile("" ::: "memory");
}

size_t record(const Work &work, Handle event) {
    check(timed("cuEventRecord", driver->event_record, event, work.stream), "cuEventRecord");
    return last_call();
}

size_t launched(int result) {
    check(result, "cuLaunchKernel");
    return last_call();
}

// The second stream waits for the first one, and the host for the second one. Behind each record is a launch that
// nothing waits for.
__attribute__((noinline)) void exchange(const Work &work) {
    Work second = work;
    second.stream = work.second;
    const size_t before = launched(launch_0(work)), first = record(work, work.events[0]);
    launched(launch_1(work));
    check(timed("cuStreamWaitEvent", driver->stream_wait, work.second, work.events[0], 0), "cuStreamWaitEvent");
    note("wait", last_call(), first);
    const size_t behind = launched(launch_2(second));
    note("edge", behind, before);
    const size_t last = record(second, work.events[1]);
    launched(launch_3(second));
    check(timed("cuEventSynchronize", driver->event_sync, work.events[1]), "cuEventSynchronize");
    note("wait", last_call(), last);
    note("edge", last_call(), behind);
}

struct Options {
    unsigned threads = 4;
    double rate = 10000;
    uint64_t launches = 0;
    double seconds = 0;
    bool graphs = false, forked = false, built = false, copies = false, borrow = false, wait = false, attended = false;
    bool until_input_ends = false, events = false;
    FILE *log = nullptr;
};

FILE *opened(const char *path) {
    FILE *file = std::fopen(path, "w");
    if (file == nullptr) {
        std::perror(path);
        std::exit(2);
    }
    return file;
}

void work_on(const Options &options, Handle library, Handle context, Handle module, std::atomic<bool> &stop) {
    Log log;
    if (options.log != nullptr) own_log = &log;
    check(driver->set_current(context), "cuCtxSetCurrent");
    Work work{};
    check(driver->stream_create(&work.stream, 1), "cuStreamCreate");
    if (options.events) {
        check(driver->stream_create(&work.second, 1), "cuStreamCreate");
        for (Handle &event : work.events) check(driver->event_create(&event, 2), "cuEventCreate");
    }
    for (int i = 0; i < 4; i++) check(driver->by_name(&work.functions[i], module, KERNELS[i]), "cuModuleGetFunction");
    if (options.copies) {
        check(driver->alloc(&work.memory, 4096), "cuMemAlloc");
        check(driver->host_alloc(&work.host, 4096, 0), "cuMemHostAlloc");
    }
    if (options.graphs) {
        Handle graph, copy, a, b;
        check(driver->by_name(&a, module, "captured_a_2us"), "cuModuleGetFunction");
        check(driver->by_name(&b, module, "captured_b_3us"), "cuModuleGetFunction");
        if (options.built) {
            uint64_t memory;
            check(driver->alloc(&memory, 4096), "cuMemAlloc");
            Builder builder(library, context);
            builder.build(a, b, memory);
            graph = builder.graph;
        } else {
            check(driver->begin(work.stream, 0), "cuStreamBeginCapture");
            if (options.forked) {
                capture_branches(work, a, b);
            } else {
                capture_first(work, a);
                capture_second(work, a);
                capture_first(work, b);
            }
            check(driver->end(work.stream, &graph), "cuStreamEndCapture");
        }
        check(driver->clone(&copy, graph), "cuGraphClone");
        check(driver->instantiate(&work.graph, copy, 0), "cuGraphInstantiate");
    }
    const uint64_t begin = now_ns(CLOCK_MONOTONIC);
    const double interval = options.rate > 0 ? 1e9 * options.threads / options.rate : 0;
    for (uint64_t i = 0; !stop && (options.launches == 0 || i < options.launches); i++) {
        check(step<12>(work, int(i % 4)), "cuLaunchKernel");
        if (options.graphs && i % 50 == 49) replay(work);
        if (options.copies && i % 20 == 19) transfer(work);
        if (options.events && i % 10 == 9) exchange(work);
        if (i % 500 == 499) synchronize(work);
        const uint64_t due = begin + uint64_t(interval * double(i + 1)), now = now_ns(CLOCK_MONOTONIC);
        if (due > now + 50000) {
            timespec rest{0, long(due - now)};
            nanosleep(&rest, nullptr);
        }
    }
    synchronize(work);
    if (options.log != nullptr) log.write(options.log);
    own_log = nullptr;
}

// The second client: buffers of its own, read by the functions of CUPTI's first version, like PyTorch's profiler.
struct Borrowed {
    std::atomic<uint64_t> records{}, kernel_ns{}, kernels{};
    int (*next)(uint8_t *, size_t, uint8_t **);
    int (*flush)(uint32_t);
} borrowed;

void on_request(uint8_t **buffer, size_t *size, size_t *records) {
    *size = 64 << 10;
    *buffer = static_cast<uint8_t *>(std::aligned_alloc(8, *size));
    *records = 0;
}

void on_complete(Handle, uint32_t, uint8_t *buffer, size_t, size_t valid) {
    uint8_t *record = nullptr;
    while (borrowed.next(buffer, valid, &record) == 0) {
        uint32_t kind;
        std::memcpy(&kind, record, 4);
        borrowed.records++;
        if (kind == 10 || kind == 3) {
            uint64_t times[2];
            std::memcpy(times, record + 16, 16);
            borrowed.kernels++;
            borrowed.kernel_ns += times[1] - times[0];
        }
    }
    std::free(buffer);
}

void on_call(void *, int, uint32_t, const void *) {}

void borrow() {
    Handle library = dlopen("libcupti.so.13", RTLD_NOW);
    if (library == nullptr) library = dlopen("libcupti.so.12", RTLD_NOW);
    if (library == nullptr) {
        std::fprintf(stderr, "no CUPTI\n");
        std::exit(2);
    }
    borrowed.next = function<decltype(borrowed.next)>(library, "cuptiActivityGetNextRecord");
    borrowed.flush = function<decltype(borrowed.flush)>(library, "cuptiActivityFlushAll");
    Handle subscriber;
    auto subscribe = function<int (*)(Handle *, void (*)(void *, int, uint32_t, const void *), void *)>(library, "cuptiSubscribe");
    check(subscribe(&subscriber, on_call, nullptr), "cuptiSubscribe");
    auto registers = function<int (*)(void (*)(uint8_t **, size_t *, size_t *), void (*)(Handle, uint32_t, uint8_t *, size_t, size_t))>(
        library, "cuptiActivityRegisterCallbacks");
    check(registers(on_request, on_complete), "cuptiActivityRegisterCallbacks");
    auto enable = function<int (*)(uint32_t)>(library, "cuptiActivityEnable");
    // Kernels, copies, fills, and driver calls.
    for (uint32_t kind : {10u, 1u, 2u, 4u}) check(enable(kind), "cuptiActivityEnable");
}

void wait_for_line() {
    int letter;
    while ((letter = std::getchar()) != '\n' && letter != EOF) {
    }
}

// The code of a launch, in memory and in its file, which has no probe even if the profiler was faster.
struct Code {
    const uint8_t *at;
    uint8_t before[64];

    explicit Code(const void *function) : at(static_cast<const uint8_t *>(function)) {
        std::memcpy(before, at, sizeof before);
        FILE *maps = std::fopen("/proc/self/maps", "r");
        char line[4352], path[4096];
        while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
            unsigned long begin, end, offset;
            const auto place = reinterpret_cast<unsigned long>(at);
            const bool read = std::sscanf(line, "%lx-%lx %*s %lx %*s %*s %4095[^\n]", &begin, &end, &offset, path) == 4;
            if (!read || place < begin || place >= end) continue;
            if (FILE *file = std::fopen(path, "rb")) {
                if (std::fseek(file, long(place - begin + offset), SEEK_SET) != 0 || std::fread(before, 1, sizeof before, file) == 0)
                    std::fprintf(stderr, "%s cannot be read\n", path);
                std::fclose(file);
            }
        }
        if (maps != nullptr) std::fclose(maps);
    }
};

// The simulated driver reports which kinds of activities are requested; a real one has no such table. A simulated CUPTI
// that misbehaves may never become active.
void wait_for_collection() {
    const char *misbehaves = std::getenv("DEEPCTX_SIM_CUPTI");
    if (misbehaves != nullptr && *misbehaves != 0) return;
    int (*get_table)(const volatile uint64_t **, const char *) = nullptr;
    *reinterpret_cast<void **>(&get_table) = dlsym(RTLD_DEFAULT, "cuGetExportTable");
    const volatile uint64_t *kinds = nullptr;
    if (get_table == nullptr || get_table(&kinds, "deepctx-kinds-1") != 0) return;
    // CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL
    for (int i = 0; (*kinds >> 10 & 1) == 0 && i < 12000; i++) usleep(10000);
}

void wait_for_attention(const Code &code) {
    for (int i = 0; std::memcmp(code.at, code.before, sizeof code.before) == 0; i++) {
        if (i == 12000) {
            std::fprintf(stderr, "nobody watches\n");
            std::exit(3);
        }
        usleep(10000);
    }
    if (const char *path = std::getenv("CUDA_INJECTION64_PATH")) {
        Handle collector = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
        auto *listeners = collector ? static_cast<volatile uint16_t *>(dlsym(collector, "deepctx_collector_listeners")) : nullptr;
        for (int i = 0; listeners && *listeners == 0 && i < 12000; i++) usleep(10000);
        wait_for_collection();
    }
    // The other probes, and other kinds of activities, follow immediately.
    usleep(500000);
}

}  // namespace

int main(int count, char **words) {
    Options options;
    for (int i = 1; i < count; i++) {
        const std::string word = words[i];
        auto value = [&] { return i + 1 < count ? std::atof(words[++i]) : 0; };
        if (word == "--threads") options.threads = unsigned(value());
        else if (word == "--rate") options.rate = value();
        else if (word == "--launches") options.launches = uint64_t(value());
        else if (word == "--seconds") options.seconds = value();
        else if (word == "--graphs") options.graphs = true;
        else if (word == "--forked-graphs") options.graphs = options.forked = true;
        else if (word == "--built-graphs") options.graphs = options.built = true;
        else if (word == "--copies") options.copies = true;
        else if (word == "--events") options.events = true;
        else if (word == "--log") options.log = opened(i + 1 < count ? words[++i] : "");
        else if (word == "--borrow") options.borrow = true;
        else if (word == "--wait") options.wait = true;
        else if (word == "--attended") options.attended = true;
        else if (word == "--until-input-ends") options.until_input_ends = true;
        else {
            std::fprintf(stderr, "unknown word %s\n", words[i]);
            return 2;
        }
    }
    Handle library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (library == nullptr) {
        std::fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    driver = new Driver(library);
    Code code(reinterpret_cast<const void *>(driver->launch));
    check(driver->init(0), "cuInit");
    if (options.borrow) borrow();
    Handle context, module;
    check(driver->retain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(driver->set_current(context), "cuCtxSetCurrent");
    check(driver->load(&module, MODULE), "cuModuleLoadData");
    std::printf("ready %d\n", getpid());
    std::fflush(stdout);
    if (options.wait) wait_for_line();
    if (options.attended) wait_for_attention(code);
    std::atomic<bool> stop{false};
    std::atomic<unsigned> running{options.threads};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < options.threads; i++)
        threads.emplace_back([&] {
            work_on(options, library, context, module, stop);
            running--;
        });
    const uint64_t begin = now_ns(CLOCK_MONOTONIC);
    uint64_t ticked = begin;
    while (running > 0) {
        usleep(20000);
        const uint64_t now = now_ns(CLOCK_MONOTONIC);
        if (options.seconds > 0 && double(now - begin) > options.seconds * 1e9) stop = true;
        pollfd input{0, POLLIN, 0};
        if (options.until_input_ends && poll(&input, 1, 0) > 0) stop = true;
        if (now - ticked > 1000000000u) {
            ticked = now;
            uint64_t total = 0;
            for (auto &n : counts.kernels) total += n;
            std::printf("tick %lu %lu %lu\n", (unsigned long)total, (unsigned long)now_ns(CLOCK_PROCESS_CPUTIME_ID), (unsigned long)now);
            std::fflush(stdout);
        }
    }
    for (auto &thread : threads) thread.join();
    if (options.log != nullptr) std::fclose(options.log);
    const double seconds = double(now_ns(CLOCK_MONOTONIC) - begin) / 1e9;
    for (int i = 0; i < 4; i++) std::printf("launched %s %lu\n", KERNELS[i], (unsigned long)counts.kernels[i]);
    std::printf("launched graph %lu\n", (unsigned long)counts.graphs);
    std::printf("launched copy-in %lu\nlaunched copy-out %lu\n", (unsigned long)counts.copies_in, (unsigned long)counts.copies_out);
    std::printf("launched fill %lu\nlaunched sync %lu\n", (unsigned long)counts.fills, (unsigned long)counts.syncs);
    if (options.borrow) {
        borrowed.flush(0);
        std::printf("borrowed records %lu\nborrowed kernels %lu\n", (unsigned long)borrowed.records, (unsigned long)borrowed.kernels);
        std::printf("borrowed kernel-ns %lu\n", (unsigned long)borrowed.kernel_ns);
    }
    std::printf("seconds %.3f\n", seconds);
    std::fflush(stdout);
    if (options.wait) wait_for_line();
    // The profiler resolves names while the process is alive.
    if (options.attended) sleep(1);
    return 0;
}
