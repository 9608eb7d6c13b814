"""How PyTorch calls a module, as far as it is visible from outside: names of functions, the closure, `_modules`."""
import sys


class Module:
    def __init__(self):
        for name in ("_parameters", "_buffers", "_backward_hooks", "_forward_hooks"):
            super().__setattr__(name, {})
        super().__setattr__("training", True)
        super().__setattr__("_modules", {})

    def __setattr__(self, name, value):
        if isinstance(value, Module):
            # Like PyTorch, for modules that were pickled without the dictionary.
            modules = self.__dict__.get("_modules")
            modules[name] = value
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name):
        modules = self.__dict__.get("_modules", {})
        if name in modules:
            return modules[name]
        raise AttributeError(name)

    def named_modules(self, memo=None, prefix=""):
        memo = set() if memo is None else memo
        if self in memo:
            return
        memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, prefix + ("." if prefix else "") + name)

    if "--plain" in sys.argv:
        # Up to 2.0.
        def _call_impl(self, *args, **kwargs):
            return self.forward(*args, **kwargs)

        __call__ = _call_impl
    else:

        def _wrapped_call_impl(self, *args, **kwargs):
            return self._call_impl(*args, **kwargs)

        def _call_impl(self, *args, **kwargs):
            forward_call = self.forward
            if not self._forward_hooks:
                return forward_call(*args, **kwargs)

            def inner():
                return self.forward(*args, **kwargs)

            return inner()

        __call__ = _wrapped_call_impl
