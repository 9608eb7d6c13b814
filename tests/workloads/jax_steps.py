"""Jitted functions whose steps call libraries, until killed: `jax_steps.py`.

Owns: steps that are identified by what they call: products of several types, sorts with comparisons of their own.
Because: a name is checked by the code that runs below it. Prints `ready` once it is compiled.
"""

import jax
import jax.numpy as jnp

@jax.jit
def products(whole, pairs):
    """Two products whose functions differ by type."""
    first = whole @ whole  # line: whole
    second = pairs @ pairs  # line: complex
    return first.sum() + second.sum().real


@jax.jit
def sorts(numbers, whole):
    """Two sorts, each with a comparison of its own."""
    return jnp.sort(numbers, axis=-1)[0, 0] + jnp.sort(whole, axis=-1)[0, 0]


@jax.jit
def loop(single):
    """Products in a loop."""
    return jax.lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x @ single), single)  # line: loop


@jax.jit
def others(signal, image, square):
    """Calls into other libraries."""
    spectrum = jnp.abs(jnp.fft.fft(signal)).sum()
    filtered = jax.lax.conv_general_dilated(image, jnp.ones((8, 8, 3, 3), image.dtype), (1, 1), "SAME").sum()
    factor = jnp.linalg.cholesky(square @ square.T + 1000 * jnp.eye(64)).sum()
    return spectrum + filtered + factor


def main():
    """Run all of them forever."""
    key = jax.random.key(0)
    single = jax.random.normal(key, (192, 192), jnp.float32)
    pairs = jax.lax.complex(single, single)
    numbers = jax.random.normal(key, (64, 512))
    whole = jax.random.randint(key, (192, 192), 0, 1 << 20)
    signal, image = jax.random.normal(key, (4096,)), jax.random.normal(key, (2, 8, 32, 32))
    square = jax.random.normal(key, (64, 64))

    def run():
        results = [products(whole, pairs), sorts(numbers, whole), loop(single), others(signal, image, square)]
        jax.block_until_ready(results)

    run()
    print("ready", flush=True)
    while True:
        run()


main()
