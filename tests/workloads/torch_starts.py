"""A training loop with a known count of operators: `torch_starts.py SAID STEPS`.

Writes to the file SAID the operators of one step, as torch itself reports them; then prints `ready`, waits for a line
on standard input, runs STEPS steps, prints `done`, and waits for another line. The file has `chain COUNT NAMES` for the
nested operators that torch's profiler recorded, outermost first; `tensors COUNT OPERATOR TENSORS` for those in PROBED;
and `flops COUNT OPERATOR` from torch's counter of operations.
"""

import sys
import time
from collections import Counter

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

torch.manual_seed(0)
torch.set_num_threads(1)

# Operators, and those of their arguments that are reported: tensors, optional tensors and lists of them.
PROBED = {
    "aten::addmm": (0, 1, 2),
    "aten::mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::baddbmm": (0, 1, 2),
    "aten::linear": (0, 1, 2),
    "aten::convolution": (0, 1),
    "aten::native_layer_norm": (0, 2, 3),
    "aten::gelu": (0,),
    "aten::add_": (0, 1),
    "aten::embedding": (0, 1),
    "aten::_log_softmax": (0,),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (0, 1, 2),
    "aten::stack": (0,),
    "aten::cat": (0,),
}
# Number of dimensions whose strides are reported, if not all.
STRIDES = {
    "aten::linear": (3, 2, 1),
    "aten::convolution": (0, 0),
    "aten::native_layer_norm": (3, 1, 1),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (4, 3, 3),
    "aten::stack": (2,),
    "aten::cat": (2,),
}
ITEMS = 3
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
wide = torch.randn(6, 10)


def step():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(images), labels)
    loss = loss + embedding(words).sum() * 1e-3
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        torch.baddbmm(torch.bmm(batch, batch.mT), batch, batch.mT)
        torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
        # Contiguous, transposed, every other column, a repeated row, channels last, without a bias.
        torch.mm(wide, wide.t())
        torch.mm(wide[:, ::2], wide[:5])
        torch.nn.functional.gelu(wide[0].expand(4, 10))
        torch.nn.functional.gelu(images.to(memory_format=torch.channels_last))
        torch.nn.functional.linear(wide, wide)
        torch.nn.functional.layer_norm(batch, (7,))
        torch.stack([wide[0], wide[1]])
        torch.cat([wide, wide.t().contiguous().t()])
        torch.cat([words, words, words, words, words])


def layout(one, reported):
    """Memory layout of a tensor, as torch itself sees it; unknown with more than `reported` dimensions."""
    if one.dim() > reported:
        return " (strides ?)"
    if one.is_contiguous():
        return ""
    if one.dim() >= 2 and one.mT.is_contiguous():
        return " (transposed)"
    if one.dim() == 4 and one.is_contiguous(memory_format=torch.channels_last):
        return " (channels last)"
    return f" (strides {'x'.join(map(str, one.stride()))})"


def tensor(one, reported):
    if one is None:
        return "none", None
    same = torch.empty_strided(one.sizes, one.strides, dtype=one.dtype, device="meta")
    sizes = "x".join(str(size) for size in one.sizes) or "scalar"
    return sizes + layout(same, reported), TYPES[str(one.dtype).removeprefix("torch.")]


def tensors(inputs, strides):
    reported = []
    for one, dimensions in zip(inputs, strides):
        items = one[:ITEMS] if isinstance(one, list) else [one]
        reported.append((one, [tensor(item, dimensions) for item in items]))
    kinds = {kind for _, items in reported for _, kind in items} - {None}
    same = len(kinds) == 1

    def text(one, items):
        texts = [text if same or not kind else f"{text} {kind}" for text, kind in items]
        if not isinstance(one, list):
            return texts[0]
        return f"list({', '.join(texts)}{f' of {len(one)}' if len(one) > ITEMS else ''})"

    return f"[{', '.join(text(*one) for one in reported)}]{f' {kinds.pop()}' if same else ''}"


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
        inputs = [event.typed[1].inputs[at] for at in known]
        shapes[f"{event.name} {tensors(inputs, STRIDES.get(event.name, [5] * len(known)))}"] += 1
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
# Absorbs the leftovers of the profiler.
step()
print("ready", flush=True)
sys.stdin.readline()
for _ in range(int(sys.argv[2])):
    step()
    # Do not overrun the profiler.
    time.sleep(0.02)
print("done", flush=True)
sys.stdin.readline()
