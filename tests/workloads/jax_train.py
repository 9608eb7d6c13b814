"""A jitted training step of a small network, until killed: `jax_train.py`.

The lines that tests look for end in a comment with their name. Prints `ready` once it is compiled.
"""

import jax
import jax.numpy as jnp


def layer(weights, x):
    up, down = weights
    h = x @ up
    with jax.named_scope("gate"):
        h = jnp.tanh(h) * h  # line: tanh
    return h @ down


def loss(parameters, x, y):
    for weights in parameters:
        x = x + layer(weights, x)
    x = jnp.sort(x, axis=-1)  # line: sort
    return jnp.mean((x - y) ** 2)


@jax.jit
def train_step(parameters, x, y):
    gradients = jax.grad(loss)(parameters, x, y)
    return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients)  # line: update


def main():
    """Train forever on one batch."""
    key = jax.random.key(0)
    parameters = [
        (jax.random.normal(key, (64, 512)), jax.random.normal(key, (512, 64))) for _ in range(2)
    ]
    x, y = jax.random.normal(key, (512, 64)), jnp.zeros((512, 64))
    parameters = jax.block_until_ready(train_step(parameters, x, y))
    print("ready", flush=True)
    while True:
        parameters = jax.block_until_ready(train_step(parameters, x, y))


main()
