"""Loops of JAX on the CPU with one defect each, and their twins without it: `jax_cases.py FOLDER [LOOP KIND]`.

Waits for a line on its input, then runs each loop below `defect` and below `twin`, one after the other, or LOOP below
KIND alone; prints `done` after the last, and stays until it is killed: names of compiled code are read from running
processes. Files go to FOLDER.

Because: a rule must fire on the defect, at its line, and not in the twin (tests/tests/jax/defects.rs). Everything is
compiled before the line comes: the first call of a function compiles it. Loops end after a fixed CPU time of their
thread, so that a busy machine takes the same number of samples, or after a number of steps.
"""

import os
import pickle
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

FOLDER = sys.argv[1]
# CPU time of the training thread: some hundred samples at 499 Hz.
CPU_SECONDS = 0.8
# Steps of loops whose thread waits.
STEPS = 300

KEYS = jax.random.split(jax.random.key(0), 4)
WEIGHTS = [jax.random.normal(key, (128, 128)) * 0.1 for key in KEYS]
# A step with few rows takes about as long as its dispatch; one with many takes milliseconds.
FEW = jnp.ones((4, 128))
MANY = jnp.ones((512, 128))


def loss(weights, inputs):
    for layer in weights:
        inputs = jnp.tanh(inputs @ layer)
    return jnp.mean(inputs**2)


@jax.jit
def step(weights, inputs):
    value, gradients = jax.value_and_grad(loss)(weights, inputs)
    return [layer - 0.01 * gradient for layer, gradient in zip(weights, gradients)], value


@jax.jit
def average(inputs):
    return jnp.mean(jnp.tanh(inputs))


def converted(images):
    return images.astype(jnp.float32)  # line: conversions


def share():
    """A function that says whether a loop, from now on, has used its share of CPU time."""
    end = time.thread_time() + CPU_SECONDS
    return lambda: time.thread_time() >= end


def float_loss(defect):
    weights = WEIGHTS
    losses = []
    for number in range(STEPS):
        weights, value = step(weights, MANY)
        if defect or number % 100 == 99:
            value = float(value)  # line: float_loss
        losses.append(value)


def recompilation(defect):
    rows = 4
    enough = share()
    while not enough():
        if defect:
            rows += 1
        step(WEIGHTS, np.ones((rows, 128), np.float32))  # line: recompilation


def pickles(defect):
    weights = WEIGHTS
    enough = share()
    while not enough():
        weights, _ = step(weights, FEW)
        if defect:
            with open(os.path.join(FOLDER, "weights"), "wb") as file:
                pickle.dump(weights, file)  # line: pickles


def conversions(defect):
    images = jnp.ones((4096, 128), jnp.int32)
    inputs = converted(images)
    # The names of compiled code are read in the first second.
    for number in range(10 * STEPS):
        value = average(converted(images) if defect else inputs)
        if number % 10 == 0:
            # No queue of steps that holds a gigabyte.
            value.block_until_ready()


def defect(case):
    case(True)


def twin(case):
    case(False)


def compile_all():
    weights, value = WEIGHTS, 0.0
    for inputs in [MANY, FEW, np.ones((4, 128), np.float32)]:
        for _ in range(2):
            weights, value = step(weights, inputs)
    float(value)
    pickle.dumps(weights)
    average(converted(jnp.ones((4096, 128), jnp.int32))).block_until_ready()


def main():
    compile_all()
    loops = [(case, kind) for case in [float_loss, recompilation, pickles] for kind in [defect, twin]]
    if len(sys.argv) > 2:
        loops = [(globals()[sys.argv[2]], globals()[sys.argv[3]])]
    print("ready", os.getpid(), flush=True)
    sys.stdin.readline()
    for case, kind in loops:
        began = time.monotonic()
        kind(case)
        print(case.__name__, kind.__name__, f"{time.monotonic() - began:.1f} s", flush=True)
    print("done", flush=True)
    sys.stdin.read()


main()
