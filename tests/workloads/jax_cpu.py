"""A jitted training step on the CPU with jax, until killed.

Owns: only calls into jax. Because: jaxlib's libraries are built by another compiler than torch's, with other
unwind rows, their own thread pools, and machine code generated while the program runs.
"""

import os

import jax
import jax.numpy as jnp


def loss(parameters, x, y):
    """Squared error of a two-layer network."""
    up, down = parameters
    return jnp.mean((jnp.tanh(x @ up) @ down - y) ** 2)


@jax.jit
def step(parameters, x, y):
    """One step of gradient descent."""
    gradients = jax.grad(loss)(parameters, x, y)
    return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients)


def main():
    """Train forever on one batch."""
    keys = jax.random.split(jax.random.key(0), 4)
    parameters = (jax.random.normal(keys[0], (256, 512)) * 0.05, jax.random.normal(keys[1], (512, 256)) * 0.05)
    x, y = jax.random.normal(keys[2], (128, 256)), jax.random.normal(keys[3], (128, 256))
    parameters = jax.block_until_ready(step(parameters, x, y))
    print("ready", os.getpid(), flush=True)
    while True:
        parameters = step(parameters, x, y)
        # Dispatch is asynchronous; without this the profile would show the queue instead of the work.
        jax.block_until_ready(parameters)


if __name__ == "__main__":
    main()
