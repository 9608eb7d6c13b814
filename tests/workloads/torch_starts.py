"""A training loop that is counted: `torch_starts.py SAID STEPS`.

Writes to the file SAID what one step is made of, as torch itself tells; then says `ready`, waits for a line on its standard
input, takes STEPS steps, says `done`, and waits for another line. What is written: `chain COUNT NAMES` for the operators within
operators that its profiler recorded, outermost first; `tensors COUNT OPERATOR TENSORS` for those in PROBED; and
`flops COUNT OPERATOR` as its counter of operations has them.
"""

import sys
from collections import Counter

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

torch.manual_seed(0)
torch.set_num_threads(1)

# Operators, and how many of their first arguments are tensors that are always there.
PROBED = {
    "aten::addmm": 3,
    "aten::mm": 2,
    "aten::bmm": 2,
    "aten::baddbmm": 3,
    "aten::linear": 2,
    "aten::convolution": 2,
    "aten::native_layer_norm": 1,
    "aten::gelu": 1,
    "aten::add_": 2,
    "aten::embedding": 2,
    "aten::_log_softmax": 1,
    "aten::_scaled_dot_product_flash_attention_for_cpu": 3,
}
TYPES = {"float32": "f32", "float64": "f64", "int64": "i64", "int32": "i32"}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.first = torch.nn.Linear(8 * 8 * 8, 64)
        self.norm = torch.nn.LayerNorm(64)
        self.second = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.convolution(x)).flatten(1)
        return self.second(self.norm(torch.nn.functional.gelu(self.first(x))))


net = Net()
embedding = torch.nn.Embedding(100, 16)
optimizer = torch.optim.SGD(list(net.parameters()) + list(embedding.parameters()), lr=1e-3, foreach=False)
images = torch.randn(4, 3, 16, 16)
labels = torch.randint(0, 10, (4,))
words = torch.randint(0, 100, (8,))
batch = torch.randn(5, 6, 7)
heads = torch.randn(2, 4, 6, 8)


def step():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(images), labels)
    loss = loss + embedding(words).sum() * 1e-3
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        torch.baddbmm(torch.bmm(batch, batch.mT), batch, batch.mT)
        torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)


def tensor(one):
    sizes = "x".join(str(size) for size in one.sizes) or "scalar"
    return sizes, TYPES[str(one.dtype).removeprefix("torch.")]


def tensors(inputs):
    told = [tensor(one) for one in inputs]
    kinds = {kind for _, kind in told}
    if len(kinds) == 1:
        return f"[{', '.join(sizes for sizes, _ in told)}] {kinds.pop()}"
    return f"[{', '.join(f'{sizes} {kind}' for sizes, kind in told)}]"


for _ in range(3):
    step()
chains, shapes = Counter(), Counter()
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
    step()


def visit(event, above):
    chain = above + [event.name]
    if event.name.startswith("aten::"):
        chains[";".join(chain)] += 1
    known = PROBED.get(event.name)
    if known:
        shapes[f"{event.name} {tensors(event.typed[1].inputs[:known])}"] += 1
    for child in event.children:
        visit(child, chain)


for root in seen.profiler.kineto_results.experimental_event_tree():
    visit(root, [])
with FlopCounterMode(display=False) as counter:
    step()
with open(sys.argv[1], "w") as said:
    said.writelines(f"chain {count} {chain}\n" for chain, count in chains.items())
    said.writelines(f"tensors {count} {shape}\n" for shape, count in shapes.items())
    for operator, count in counter.get_flop_counts()["Global"].items():
        said.write(f"flops {count} {str(operator).replace('aten.', 'aten::')}\n")
# What the profiler leaves behind is met.
step()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    step()
print("done", flush=True)
sys.stdin.readline()
