// A library and a program whose functions have the names of XLA's CPU runtime: thunks of compiled modules. `-DLIBRARY`
// builds the library (`libjax_common.so`); without it, it is the program.
//
// Owns: thunks of one class in sequence, within a loop, within a call back to the program, on several threads and at
// several stack depths, and one with invalid names. Because: the real library is a third of a gigabyte. Does not:
// compute anything: each thunk works in a function that names it.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#define OUT_OF_LINE __attribute__((noinline))
// Prevents a tail call.
#define STAY asm volatile("" ::: "memory")

namespace tsl {
// Returned through a hidden pointer, like the real one.
struct Event {
    void *value = nullptr;
    Event() = default;
    Event(Event &&other) : value(other.value) {}
    ~Event() { STAY; }
};
}  // namespace tsl

namespace xla::cpu {
class Thunk {
  public:
    enum class Kind { kCall, kDot };
    struct Info {
        std::string op_name;
        std::string module_name;
        std::int64_t module_id;
    };
    struct ExecuteParams {};
    Thunk(Kind kind, Info info);
    virtual ~Thunk() {}
    virtual tsl::Event Execute(const ExecuteParams &params) = 0;
    void (*work)() = nullptr;
    std::vector<Thunk *> inner;

  private:
    Kind kind_;
    Info info_;
};
#define THUNK(CLASS)                                            \
    struct CLASS : Thunk {                                      \
        using Thunk::Thunk;                                     \
        tsl::Event Execute(const ExecuteParams &params) override; \
    };
THUNK(DotThunk)
THUNK(SortThunk)
THUNK(WhileThunk)
THUNK(CustomCallThunk)
}  // namespace xla::cpu

#ifdef LIBRARY

namespace xla::cpu {
OUT_OF_LINE Thunk::Thunk(Kind kind, Info info) : kind_(kind), info_(std::move(info)) {}
static OUT_OF_LINE void run(Thunk &thunk, const Thunk::ExecuteParams &params) {
    if (thunk.work) thunk.work();
    for (Thunk *inner : thunk.inner) inner->Execute(params);
    STAY;
}
tsl::Event DotThunk::Execute(const ExecuteParams &params) { run(*this, params); STAY; return {}; }
tsl::Event SortThunk::Execute(const ExecuteParams &params) { run(*this, params); STAY; return {}; }
tsl::Event WhileThunk::Execute(const ExecuteParams &params) { run(*this, params); STAY; return {}; }
tsl::Event CustomCallThunk::Execute(const ExecuteParams &params) { run(*this, params); STAY; return {}; }
}  // namespace xla::cpu

#else

using namespace xla::cpu;

OUT_OF_LINE void busy(int microseconds) {
    auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
    while (std::chrono::steady_clock::now() < until) {
    }
    STAY;
}

#define WORK(NAME, MICROSECONDS)  \
    OUT_OF_LINE void NAME() {     \
        busy(MICROSECONDS);       \
        STAY;                     \
    }
WORK(work_dot_1, 900)
WORK(work_dot_2, 600)
WORK(work_dot_of_other, 500)
WORK(work_dot_in_loop, 700)
WORK(work_sort, 500)
WORK(work_loop, 300)
WORK(work_called_back, 400)
WORK(work_calls_back, 300)
WORK(work_nameless, 400)

const Thunk::ExecuteParams PARAMS;
const std::string LONG = "jit_a_function_with_a_name_that_is_longer_than_what_is_read_of_it";

template <class Class>
Class *thunk(const std::string &name, void (*work)(), std::vector<Thunk *> inner = {},
             const std::string &module = "jit_step", std::int64_t number = 7) {
    auto *made = new Class(Thunk::Kind::kDot, {name, module, number});
    made->work = work;
    made->inner = std::move(inner);
    return made;
}

// Runs the thunk this many frames deeper.
OUT_OF_LINE void deeper(Thunk *thunk, int frames) {
    volatile char room[64];
    room[0] = char(frames);
    if (frames > 0)
        deeper(thunk, frames - 1);
    else
        thunk->Execute(PARAMS);
    STAY;
}

void steps() {
    auto *dot_1 = thunk<DotThunk>("dot.1", work_dot_1);
    auto *dot_2 = thunk<DotThunk>("dot.2, which no string keeps within itself", work_dot_2);
    auto *long_2 = thunk<DotThunk>("dot.with_a_name_that_no_string_keeps_within_itself.2", work_dot_2);
    auto *other = thunk<DotThunk>("dot.1", work_dot_of_other, {}, LONG, 9);
    auto *sort = thunk<SortThunk>("sort.0", work_sort);
    auto *loop = thunk<WhileThunk>("while.4", work_loop, {thunk<DotThunk>("dot.5", work_dot_in_loop)});
    auto *called = thunk<CustomCallThunk>("custom-call.6", work_called_back);
    auto *calls = thunk<CustomCallThunk>("custom-call.7", work_calls_back, {called});
    auto *nameless = thunk<SortThunk>("\001\002 no name", work_nameless);
    delete dot_2;
    for (int n = 0;; n++) {
        dot_1->Execute(PARAMS);
        long_2->Execute(PARAMS);
        deeper(other, n % 5);
        sort->Execute(PARAMS);
        deeper(loop, n % 3);
        calls->Execute(PARAMS);
        nameless->Execute(PARAMS);
    }
}

// `program`: prints `ready`, waits for a line, and runs thunks on two threads until killed.
int main() {
    std::puts("ready");
    std::fflush(stdout);
    std::getchar();
    std::thread second(steps);
    steps();
}

#endif
