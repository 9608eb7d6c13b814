// A library and a program whose functions have the names of PyTorch's, for named ranges of a program. `-DLIBRARY`
// builds the library (`libtorch_cpu.so`); without it, it is the program.
//
// Owns: nested ranges, one that ends in another thread, records that end twice (when their range does, and when they
// are destroyed), and records without a name. Because: the real library is half a gigabyte. Does not: record anything.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#define OUT_OF_LINE __attribute__((noinline))
// Prevents a tail call.
#define STAY asm volatile("" ::: "memory")

namespace at {
enum class RecordScope : std::uint8_t { FUNCTION = 0, USER_SCOPE = 7 };
struct RecordFunction {
    std::uint64_t state[16] = {};
    explicit RecordFunction(RecordScope scope);
    ~RecordFunction() { end(); }
    void end();
};
}  // namespace at
namespace c10 {
template <class T>
struct intrusive_ptr {
    T *target = nullptr;
    explicit intrusive_ptr(T *made) : target(made) {}
    ~intrusive_ptr() { delete target; }
    intrusive_ptr(const intrusive_ptr &) = delete;
};
}  // namespace c10
namespace torch::autograd::profiler {
struct PythonRecordFunction {
    std::uint64_t references = 1;
    at::RecordFunction record{at::RecordScope::USER_SCOPE};
};
c10::intrusive_ptr<PythonRecordFunction> record_function_enter_new(const std::string &name,
                                                                   const std::optional<std::string> &arguments);
}  // namespace torch::autograd::profiler

#ifdef LIBRARY

namespace at {
OUT_OF_LINE RecordFunction::RecordFunction(RecordScope scope) { state[0] = std::uint64_t(scope); STAY; }
OUT_OF_LINE void RecordFunction::end() { state[1]++; STAY; }
}  // namespace at
namespace torch::autograd::profiler {
OUT_OF_LINE c10::intrusive_ptr<PythonRecordFunction> record_function_enter_new(
    const std::string &, const std::optional<std::string> &) {
    return c10::intrusive_ptr<PythonRecordFunction>(new PythonRecordFunction);
}
}  // namespace torch::autograd::profiler

#else

using torch::autograd::profiler::record_function_enter_new;

std::chrono::nanoseconds own_time() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

// CPU time of the thread: time of other threads does not count as work.
OUT_OF_LINE void busy(std::chrono::microseconds time) {
    auto until = own_time() + time;
    while (own_time() < until) {
    }
    STAY;
}

OUT_OF_LINE void step() {
    {
        auto outer = record_function_enter_new("outer", std::nullopt);
        busy(std::chrono::microseconds(2000));
        {
            auto inner = record_function_enter_new(std::string("inner, with a name that no string keeps within itself"), {});
            busy(std::chrono::microseconds(3000));
            inner.target->record.end();
            busy(std::chrono::microseconds(500));
        }
        outer.target->record.end();
    }
    {
        // Without a name: not a range of the program.
        at::RecordFunction guard(at::RecordScope::FUNCTION);
        busy(std::chrono::microseconds(500));
    }
    {
        auto handed = record_function_enter_new("handed over", std::nullopt);
        std::thread([&] { busy(std::chrono::microseconds(500)); handed.target->record.end(); }).join();
    }
    auto optimizer = record_function_enter_new("Optimizer.step#Own.step", std::nullopt);
    busy(std::chrono::microseconds(1000));
    STAY;
}

// `program STEPS`: prints `ready`, waits for a line, runs STEPS steps and sleeps until killed.
int main(int, char **arguments) {
    int steps = std::stoi(arguments[1]);
    std::puts("ready");
    std::fflush(stdout);
    std::getchar();
    for (int i = 0; i < steps; i++) step();
    std::puts("done");
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::hours(1));
}

#endif
