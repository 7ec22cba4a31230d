"""The samples of a term of a Picard iterate: random streams, and factors in variants."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from .base import Variant

MAIN, HALF_A, NOISE = int(Variant.MAIN), int(Variant.HALF_A), int(Variant.NOISE)


def streams(
    key: PRNGKeyArray, n: int, level: int, i: Array, first: int
) -> tuple[PRNGKeyArray, PRNGKeyArray]:
    """Return streams `first` and `first + 1` of sample i of term number `level` of U_n.

    Term 0 is the terminal term, and term l + 1 is level l. Streams 0 and 1 draw the path and the
    time of the sample. Streams 2 and 3 are the keys of U_l and U_{l-1} inside F.
    """
    numbers = (i * (n + 1) + level) * 4 + first + jnp.arange(2)
    one, other = jax.vmap(jax.random.fold_in, (None, 0))(key, numbers.astype(jnp.uint32))
    return one, other


def multiplicity(variant: Array, sample: Array, samples: int | Array) -> Array:
    """Return the factor with which the number `sample` enters the mean of a variant.

    `samples` is the number of samples. The mean over all samples, with these factors, is the mean
    over one half for `HALF_A` and `HALF_B`, and plus or minus half the difference of the means over
    both halves for `NOISE` and `MINUS_NOISE`.
    """
    first = sample % 2 == 0
    half = samples / jnp.where(first, (samples + 1) // 2, samples // 2)
    sign = jnp.where(first == (variant == NOISE), 0.5, -0.5)
    return jnp.select(
        [variant == MAIN, variant >= NOISE],
        [jnp.ones_like(half), sign * half],
        jnp.where(first == (variant == HALF_A), half, 0),
    )
