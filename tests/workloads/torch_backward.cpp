// A library and a program whose functions have the names, and whose autograd nodes have the layout, of PyTorch's, for
// the link between its backward pass and its forward pass. `-DLIBRARY` builds the library (`libtorch_cpu.so`); without
// it, it is the program.
//
// Owns: three operators, run on two threads, with their backward passes on the first one; one of them runs operators
// and a backward pass of its own within its node, as checkpoints do. Because: the real library is half a gigabyte. Does
// not: compute anything. `-DGARBAGE` builds both for invalid nodes. The layout is that of 2.15
// (`torch/csrc/autograd/function.h`).

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#define OUT_OF_LINE __attribute__((noinline))
// Prevents a tail call.
#define STAY asm volatile("" ::: "memory")

namespace at {
struct Tensor {
    std::uint64_t value = 1;
};
namespace sequence_number {
std::uint64_t peek();
std::uint64_t get_and_increment();
}  // namespace sequence_number
struct RecordFunction {
    static std::uint64_t currentThreadId();
};
}  // namespace at

namespace c10 {
namespace detail {
template <class T>
struct intrusive_target_default_null_type {};
}  // namespace detail
template <class T, class Null = detail::intrusive_target_default_null_type<T>>
struct intrusive_ptr {
    T *target;
    ~intrusive_ptr() {}
};
}  // namespace c10

namespace torch::autograd {
struct Node {
    std::uint64_t references = 1;
    const std::uint64_t sequence_nr_;
    std::uint64_t topological_nr_ = 0;
    bool has_parent_ = false;
    std::uint64_t thread_id_;
    std::vector<Node *> next;

    explicit Node(std::uint64_t number)
        : sequence_nr_(number), thread_id_(at::RecordFunction::currentThreadId()) {}
    virtual ~Node() = default;
    virtual at::Tensor apply(at::Tensor &&gradient) = 0;
};
struct GraphTask {
    std::uint64_t outstanding = 0;
    std::uint64_t nodes = 0;
};
struct InputBuffer {
    at::Tensor gradient;
};
struct ReadyQueue {};
struct Engine {
    virtual ~Engine() = default;
    static Engine &get_default_engine();
    void compute_dependencies(Node *root, GraphTask &task, std::uint64_t min_topo_nr);
    void evaluate_function(std::shared_ptr<GraphTask> &task, Node *function, InputBuffer &inputs,
                           const std::shared_ptr<ReadyQueue> &queue);
    virtual at::Tensor execute_with_graph_task(const std::shared_ptr<GraphTask> &task, c10::intrusive_ptr<Node> root,
                                               InputBuffer &&inputs);
};
}  // namespace torch::autograd

#ifdef LIBRARY

// The body of a node. `-DGARBAGE`: empty, so that the node need not be valid.
#ifdef GARBAGE
#define APPLY(function, gradient) (gradient)
#else
#define APPLY(function, gradient) (function)->apply(gradient)
#endif

// As in the real library, whose thread-local variables are in one block.
#ifndef ONE_BLOCK
#define ONE_BLOCK __attribute__((tls_model("local-dynamic")))
#endif

namespace at {
namespace sequence_number {
namespace {
ONE_BLOCK thread_local std::uint64_t sequence_nr_ = 0;
}  // namespace
OUT_OF_LINE std::uint64_t peek() { return sequence_nr_; }
OUT_OF_LINE std::uint64_t get_and_increment() { return sequence_nr_++; }
}  // namespace sequence_number
namespace {
std::atomic<std::uint64_t> next_thread_id_{0};
ONE_BLOCK thread_local std::uint64_t current_thread_id_ = 0;
}  // namespace
OUT_OF_LINE std::uint64_t RecordFunction::currentThreadId() {
    if (!current_thread_id_) {
        current_thread_id_ = ++next_thread_id_;
    }
    return current_thread_id_;
}
}  // namespace at

namespace torch::autograd {
OUT_OF_LINE Engine &Engine::get_default_engine() {
    static Engine engine;
    return engine;
}
OUT_OF_LINE void Engine::compute_dependencies(Node *root, GraphTask &task, std::uint64_t min_topo_nr) {
    std::vector<Node *> queue{root};
    while (!queue.empty()) {
        Node *node = queue.back();
        queue.pop_back();
        node->has_parent_ = true;
        if (node->topological_nr_ < min_topo_nr) {
            continue;
        }
        task.nodes += 1;
        for (Node *next : node->next) {
            queue.push_back(next);
        }
    }
}
OUT_OF_LINE void Engine::evaluate_function(std::shared_ptr<GraphTask> &task, Node *function, InputBuffer &inputs,
                                           const std::shared_ptr<ReadyQueue> &) {
    (void)function;
    inputs.gradient = APPLY(function, static_cast<at::Tensor &&>(inputs.gradient));
    task->outstanding -= 1;
    STAY;
}
OUT_OF_LINE at::Tensor Engine::execute_with_graph_task(const std::shared_ptr<GraphTask> &task,
                                                       c10::intrusive_ptr<Node> root, InputBuffer &&inputs) {
    std::shared_ptr<GraphTask> own = task;
    compute_dependencies(root.target, *own, 0);
    std::shared_ptr<ReadyQueue> queue;
    for (Node *node = root.target; node; node = node->next.empty() ? nullptr : node->next.front()) {
        own->outstanding += 1;
        evaluate_function(own, node, inputs, queue);
    }
    return inputs.gradient;
}
}  // namespace torch::autograd

#else

using at::Tensor;
using torch::autograd::Node;

namespace at::native {
OUT_OF_LINE Tensor work(Tensor in, int times) {
    for (int i = 0; i < times * 20000; ++i) {
        in.value = in.value * 6364136223846793005u + 1442695040888963407u;
        asm volatile("" : "+r"(in.value));
    }
    return in;
}
}  // namespace at::native

static Tensor backward(Node *node, Tensor gradient) {
    auto &engine = torch::autograd::Engine::get_default_engine();
    Tensor out = engine.execute_with_graph_task(std::make_shared<torch::autograd::GraphTask>(), {node}, {gradient});
    STAY;
    return out;
}

#define OPERATOR(id, forward, Backward, ...)                                           \
    namespace torch::autograd::generated {                                             \
    struct Backward : Node {                                                           \
        using Node::Node;                                                              \
        Tensor apply(Tensor &&gradient) override;                                      \
    };                                                                                 \
    OUT_OF_LINE Tensor Backward::apply(Tensor &&gradient) {                            \
        Tensor out = gradient;                                                         \
        __VA_ARGS__                                                                    \
        STAY;                                                                          \
        return out;                                                                    \
    }                                                                                  \
    }                                                                                  \
    namespace at::_ops {                                                               \
    struct id {                                                                        \
        static Node *call(Tensor &in);                                                 \
    };                                                                                 \
    OUT_OF_LINE Node *id::call(Tensor &in) {                                           \
        in = at::native::work(in, forward);                                            \
        auto number = at::sequence_number::get_and_increment();                        \
        Node *node = new torch::autograd::generated::Backward(number);                 \
        STAY;                                                                          \
        return node;                                                                   \
    }                                                                                  \
    }

// Cheap forward, expensive backward; and the other way round.
OPERATOR(index_Tensor, 1, IndexBackward0, out = at::native::work(out, 6);)
OPERATOR(addmm, 4, AddmmBackward0, out = at::native::work(out, 2);)
OPERATOR(mul_Tensor, 1, MulBackward0, out = at::native::work(out, 3);)
// A node that runs an operator again, then its backward pass, and then continues.
OPERATOR(sum, 1, SumBackward0, {
    Node *again = at::_ops::mul_Tensor::call(out);
    out = backward(again, out);
    delete again;
    out = at::native::work(out, 2);
})

#ifdef GARBAGE
// Invalid nodes: the code that runs them never looks at them, unlike the real engine.
static void steps_that_are_none(torch::autograd::Engine &engine, Node *made) {
    auto task = std::make_shared<torch::autograd::GraphTask>();
    std::shared_ptr<torch::autograd::ReadyQueue> queue;
    torch::autograd::InputBuffer inputs;
    const auto *sound = reinterpret_cast<const std::uint64_t *>(made);
    static const char text[] = "this is no virtual table at all, and leads nowhere";
    static const std::uint64_t without_type[4] = {0, 0, 0x10, 0x10};
    const std::uint64_t tables[] = {0xdeadbeefdeadbeef, 0, 0x10, reinterpret_cast<std::uint64_t>(text),
                                    reinterpret_cast<std::uint64_t>(without_type + 2),
                                    reinterpret_cast<std::uint64_t>(&steps_that_are_none)};
    // The values of a node behind an invalid virtual table.
    for (std::uint64_t table : tables) {
        std::uint64_t step[16] = {table, sound[1], sound[2], sound[3], sound[4], sound[5]};
        asm volatile("" : : "m"(step) : "memory");
        engine.evaluate_function(task, reinterpret_cast<Node *>(step), inputs, queue);
    }
    // No node at all.
    std::uint64_t garbage[16];
    for (std::uint64_t &word : garbage) {
        word = 0xdeadbeefdeadbeef;
    }
    asm volatile("" : : "m"(garbage) : "memory");
    const std::uint64_t nowhere[] = {reinterpret_cast<std::uint64_t>(garbage), 0xdeadbeefdeadbeef, 0, 0x10};
    for (std::uint64_t address : nowhere) {
        engine.evaluate_function(task, reinterpret_cast<Node *>(address), inputs, queue);
    }
    STAY;
}

int main() {
    auto &engine = torch::autograd::Engine::get_default_engine();
    Tensor tensor;
    // The framework numbers a thread when the thread creates its first node.
    delete at::_ops::index_Tensor::call(tensor);
    std::puts("ready");
    std::fflush(stdout);
    std::getchar();
    for (int round = 0; round < 1000; ++round) {
        Node *index = at::_ops::index_Tensor::call(tensor);
        steps_that_are_none(engine, index);
        delete index;
    }
    std::puts("done");
    std::fflush(stdout);
    std::getchar();
    std::getchar();
}
#else
int main() {
    std::mutex mutex;
    std::condition_variable turn;
    Node *made = nullptr;
    bool wanted = false;
    // Operators of another thread: its numbers coincide with those of the first one.
    std::thread helper([&] {
        Tensor tensor;
        for (;;) {
            std::unique_lock lock(mutex);
            turn.wait(lock, [&] { return wanted; });
            made = at::_ops::addmm::call(tensor);
            wanted = false;
            turn.notify_all();
        }
    });
    std::puts("ready");
    std::fflush(stdout);
    Tensor tensor;
    for (;;) {
        {
            std::unique_lock lock(mutex);
            wanted = true;
            turn.notify_all();
            turn.wait(lock, [&] { return !wanted; });
        }
        Node *index = at::_ops::index_Tensor::call(tensor);
        Node *sum = at::_ops::sum::call(tensor);
        sum->next = {index};
        index->next = {made};
        tensor = backward(sum, tensor);
        delete sum;
        delete index;
        delete made;
    }
}
#endif

#endif
