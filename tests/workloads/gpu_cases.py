"""Training loops on a device with one defect each, and their twins without it: `gpu_cases.py KIND:LOOP…`.

Runs each of these loops, by name, below `defect` or `twin`. Because: a rule must fire on the defect, at its line or
kernel, and not in the twin (tests/tests/gpu_cases_live.rs). Needs no package, and no device if the libraries are the
simulated ones, whose kernels take as long as their names state.
"""

import ctypes
import functools
import sys

from gpu_train import Account, Code, Device, Dim3, LaunchConfig

KERNELS = [
    "ampere_bf16_s16816gemm_forward_400us",
    "ampere_bf16_s16816gemm_backward_600us",
    "ampere_sgemm_128x64_forward_400us",
    "ampere_tf32_s1688gemm_forward_100us",
    "softmax_scale_4us",
    "softmax_mask_5us",
    "softmax_sum_6us",
    "softmax_fused_15us",
    "loss_60us",
]
DEVICE_TO_HOST = 2
LOGITS = 8 << 20


class Trainer:
    def __init__(self):
        self.device = Device(Account(False), False)
        self.device.functions.update(self.device.load(KERNELS))
        self.runtime = self.device.runtime
        self.stream = self.device.stream()
        self.logits = self.device.allocate(LOGITS)
        self.host = self.device.allocate_pinned(LOGITS)

        self.config = LaunchConfig(Dim3(8, 2, 1), Dim3(128, 1, 1), 1024, self.stream.value, None, 0)

    def kernel(self, name):
        """A launch as one call into the driver, so that its line is that of the loop."""
        launch, function = self.device.driver.cuLaunchKernelEx, self.device.functions[name]
        return functools.partial(launch, ctypes.byref(self.config), function, None, None)

    def train(self):
        self.kernel("ampere_bf16_s16816gemm_forward_400us")()
        self.kernel("ampere_bf16_s16816gemm_backward_600us")()

    def read(self, size):
        """A value that is read back at some time."""
        self.device.copy_out(self.host, self.logits, size, self.stream)

    def wait(self):
        self.device.synchronize(self.stream)


def item(trainer, defect):
    """`.item()` of the loss in every step: copies four bytes and waits for all launched work."""
    for step in range(2000):
        trainer.train()
        if defect or step % 500 == 499:
            trainer.read(4)
            trainer.runtime.cudaStreamSynchronize(trainer.stream)  # line: item


def loss_on_cpu(trainer, defect):
    """The loss is computed on the host, which needs the output of the model."""
    for _ in range(300):
        trainer.train()
        if defect:
            size = ctypes.c_size_t(LOGITS)
            trainer.runtime.cudaMemcpy(trainer.host, trainer.logits, size, DEVICE_TO_HOST)  # line: loss_on_cpu
        else:
            trainer.kernel("loss_60us")()
            trainer.read(4)
    trainer.wait()


def small_kernels(trainer, defect):
    """A softmax of several kernels, each as long as its launch."""
    parts = ["softmax_scale_4us", "softmax_mask_5us", "softmax_sum_6us"] if defect else ["softmax_fused_15us"]
    softmax = [trainer.kernel(part) for part in parts]
    for _ in range(100):
        trainer.train()
        for _ in range(10):
            for launch in softmax:
                launch()  # line: small_kernels
    trainer.wait()


def single_precision(trainer, defect):
    """A matrix product in fp32, or on tensor cores."""
    product = trainer.kernel("ampere_sgemm_128x64_forward_400us" if defect else "ampere_tf32_s1688gemm_forward_100us")
    for _ in range(300):
        product()  # line: single_precision
    trainer.wait()


LOOPS = {loop.__name__: loop for loop in [item, loss_on_cpu, small_kernels, single_precision]}


def defect(loop, trainer):
    loop(trainer, True)


def twin(loop, trainer):
    loop(trainer, False)


def main():
    code = Code()
    trainer = Trainer()
    print("ready", flush=True)
    code.wait_for_attention()
    for word in sys.argv[1:]:
        kind, name = word.split(":")
        {"defect": defect, "twin": twin}[kind](LOOPS[name], trainer)
    print("done", flush=True)


main()
