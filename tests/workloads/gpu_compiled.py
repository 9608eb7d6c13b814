"""Kernels as compilers hand them to a device: Inductor's below its wrapper, XLA's by module, one written for Triton.

Owns: a program that leaves the files that those compilers leave, at the same places, loads kernels of their names, and
launches each a known number of times. Because: the profile must show the lines in those files, and no others. Does
not: compile anything, or need more than the driver's library.

    gpu_compiled.py FOLDER --steps N [--attended]

Files are found through the process's view of the file system, so it stays until its input ends.
"""

import argparse
import ctypes
import os
import pathlib
import sys
import types

from gpu_train import Account, Code, Device

FUSED = "triton_poi_fused_add_relu_0"
# Two programs that were compiled to a kernel of the same name, which the first one also launches for another line.
WRAPPERS = {
    "cy7oyaxvmmvair25e3xb2owvvvhbgl4y2kdhqbk6dkmjogrpuddv": ("/srv/net.py", 9),
    "c3huqbkuzfly2git3g53ezx53kptgi57vjruzeugtrbjnfkm5s47": ("/srv/eval.py", 5),
}
# Modules with kernels of the same name.
MODULES = {
    "jit_f": {"loop_add_fusion": 3, "loop_exp_fusion_1": 4},
    "jit_g": {"loop_add_fusion": 7, "input_reduce_fusion": 8},
}
COMMENT = "# Topologically Sorted Source Nodes: [{}], Original ATen: [{}]"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def wrapper(folder, stem, file, line):
    """Inductor's generated code, and the entry of its cache with the graph."""
    comment = COMMENT.format("h", "aten.add, aten.relu")
    text = f"""{comment}
# Graph fragment:
#   %add : Tensor "f32[8]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.add.Tensor](args = (%x, 1.0), kwargs = {{}})
#   %relu : Tensor "f32[8]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.relu.default](args = (%add,), kwargs = {{}})
{FUSED} = async_compile.triton('{FUSED}', '''
import triton

@triton.jit
def {FUSED}(in_ptr0, xnumel):
    pass
''', device_str='cuda')


def call(args):
    {comment}
    raw_stream0 = get_raw_stream(0)
    {FUSED}.run(raw_stream0)
    {COMMENT.format("k", "aten.tanh")}
    {FUSED}.run(raw_stream0)
"""
    graph = f"""\x08cache_key\x044{stem}\x08inductor_post_grad_graph_str
        # File: {file}:{line} in forward, code: h = torch.relu(x + 1.0)
        add: "f32[8]cuda:0" = torch.ops.aten.add.Tensor(x, 1.0);  x = None
        relu: "f32[8]cuda:0" = torch.ops.aten.relu.default(add);  add = None

        # File: {file}:{line + 2} in forward, code: k = torch.tanh(h)
        tanh: "f32[8]cuda:0" = torch.ops.aten.tanh.default(relu)
"""
    write(folder / "fxgraph" / stem[1:3] / "key" / stem[:8], graph)
    return write(folder / stem[1:3] / f"{stem}.py", text)


def module(name, kernels):
    """XLA's dump of a module after optimization."""
    fusion = (
        "  %{kernel} = f32[8]{{0}} fusion(%x), kind=kLoop, calls=%fused_{kernel}, "
        'metadata={{op_name="jit({name})/{kernel}" source_file="/srv/jitted.py" source_line={line}}}'
    )
    rows = [fusion.format(kernel=kernel.replace("_1", ".1"), name=name[4:], line=line) for kernel, line in kernels.items()]
    head = [f"HloModule {name}, is_scheduled=true", "", "ENTRY %main (x: f32[8]) -> f32[8] {", "  %x = f32[8]{0} parameter(0)"]
    return "\n".join([*head, *rows, "}"]) + "\n"


def triton_code(name):
    """The files that Triton keeps of a kernel."""
    return f"""#loc = loc("/srv/scale.py":8:1)
module {{
  tt.func public @{name}(%x: !tt.ptr<f32> loc("x"(#loc))) attributes {{noinline = false}} {{
    tt.return loc(#loc)
  }} loc(#loc)
}} loc(#loc)
"""


class Kernel:
    """A kernel as a generated wrapper refers to it."""

    def __init__(self, device, functions, name):
        self.device, self.functions, self.name = device, functions, name

    def run(self, stream):
        if self.name not in self.functions:
            self.functions[self.name] = self.device.load([self.name])[self.name]
        launch(self.device, self.functions[self.name], stream)


def launch(device, function, stream):
    device.check(device.driver.cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, stream, None, None))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--attended", action="store_true")
    options = parser.parse_args()
    folder = options.folder
    os.environ["XLA_FLAGS"] = f"--xla_dump_to={folder}/dump"
    os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"

    device = Device(Account(False), driver_only=True)
    stream = device.stream()
    if options.attended:
        Code().wait_for_attention()

    calls = []
    for stem, (file, line) in WRAPPERS.items():
        path = wrapper(folder / "inductor", stem, file, line)
        functions = {}
        compiler = types.SimpleNamespace(triton=lambda name, source, device_str, of=functions: Kernel(device, of, name))
        generated = {"async_compile": compiler, "get_raw_stream": lambda number: stream}
        exec(compile(path.read_text(), path, "exec"), generated)
        calls.append(generated["call"])
    jitted = []
    for n, (name, kernels) in enumerate(MODULES.items()):
        write(folder / "dump" / f"module_{n:04}.{name}.sm_9.0_gpu_after_optimizations.txt", module(name, kernels))
        jitted += device.load(list(kernels)).values()
    write(folder / "triton" / "ENTRY" / "scale_shift.ttir", triton_code("scale_shift"))
    write(folder / "triton" / "ENTRY" / "__grp__scale_shift.json", "{}")
    written = device.load(["scale_shift"])["scale_shift"]

    for _ in range(options.steps):
        for call in calls:
            call([])
        for function in [*jitted, written]:
            launch(device, function, stream)
        device.synchronize(stream)
    sys.stdin.read()


if __name__ == "__main__":
    main()
