#!/usr/bin/env python3
"""Modules that call each other, each of which prints the modules that it is called in and then spins for a while.

Every place that spins prints one JSON line when it first does:
    {"leaf": FUNCTION, "chain": [TEXT, ...]}        outermost first
FUNCTION spins and has one caller. A text is `PATH (CLASS)`, `CLASS` for the outermost module, `(CLASS)` for a module
that is in no other and contains none; paths are those of `named_modules`. The last line is {"ready": true, "pid"}.
Ends with its standard input.

usage: python_layers.py [--plain]        --plain: as PyTorch up to 2.0 calls modules
"""
import json
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_modules"))
from torch.nn.modules.module import Module  # noqa: E402

said = {}
running = []
paths = {}


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def leaf(name):
    """A private function that spins; prints its callers the first time."""
    scope = {"spin": spin}
    exec(f"def {name}():\n    spin(0.002)\n", scope)

    def call():
        if name not in said:
            said[name] = [label(module) for module in running]
        scope[name]()

    return call


def label(module):
    kind = type(module).__name__
    root = type(running[0]).__name__
    path = paths.get(id(module))
    if path is None or path == "" and not module._modules:
        return f"({kind})"
    return root if path == "" else f"{root}.{path} ({kind})"


class Layer(Module):
    """Tracks the modules that run."""

    def forward(self):
        running.append(self)
        try:
            self.run()
        finally:
            running.pop()


class Mixin:
    """A base class that precedes Module in the bases of another class."""

    extra = 1


class Leaf(Layer):
    def __init__(self, name):
        super().__init__()
        self.work = leaf(name)

    def run(self):
        self.work()


class Größe(Mixin, Leaf):
    pass


class Hooked(Leaf):
    """Called through a closure."""

    def __init__(self, name):
        super().__init__(name)
        self._forward_hooks[1] = print


class List(Layer):
    """A container that is not called itself."""

    def __init__(self, modules):
        super().__init__()
        for number, module in enumerate(modules):
            self._modules[str(number)] = module


class Block(Layer):
    def __init__(self, name):
        super().__init__()
        self.work = leaf(name)
        self.first = Leaf(name + "_first")
        self.nothing = None
        self._modules["none"] = None
        self.second = Hooked(name + "_second")

    def run(self):
        self.work()
        self.first()
        self.second()


class Model(Layer):
    def __init__(self):
        super().__init__()
        self.blocks = List([Block(f"block{n}") for n in range(3)])
        self.shared = Leaf("shared")
        self.again = self.shared
        self.größe = Größe("size")
        # Contains itself, through another module.
        self.blocks._modules["up"] = self
        # Not registered as a module of the model.
        self.hidden = [Leaf("hidden")]
        self.fresh = leaf("fresh")

    def run(self):
        for name, block in self.blocks._modules.items():
            if name != "up":
                block()
        self.shared()
        self.again()
        self.größe()
        self.hidden[0]()
        Fresh(self.fresh)()


class Fresh(Layer):
    """Created for one call."""

    def __init__(self, work):
        super().__init__()
        self.work = work

    def run(self):
        self.work()


class Loss(Leaf):
    pass


def step(model, loss):
    model()
    loss()
    # A new module at each step, at the address of the previous one or at another.
    Fresh(alone)()


alone = leaf("alone")


def main():
    model, loss = Model(), Loss("loss")
    for root in (model, loss):
        for path, module in root.named_modules():
            paths[id(module)] = path
    step(model, loss)
    for name, chain in said.items():
        print(json.dumps({"leaf": name, "chain": chain}))
    print(json.dumps({"ready": True, "pid": os.getpid()}), flush=True)

    def watch():
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    while True:
        step(model, loss)


if __name__ == "__main__":
    main()
