"""A problem that is easy at some points and hard at others, for the tests of stopping rules."""

import functools
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import scasml
from helpers import manufactured, rough
from scasml import Picard

PROBLEM, EXACT = manufactured(uses_z=False)
METHOD = Picard(2, 2)
# The horizon is 0.8, so the last two points are easy. The first point has a bias of 0.02.
T = np.array([0.1, 0.4, 0.6, 0.7, 0.78, 0.79], np.float32)
X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
NUMBERS = ("raw_value", "stderr", "bias", "gradient", "gradient_stderr", "replicates")
# The point at which the surrogate HOLED is NaN.
BAD = 2


class Patchy(eqx.Module):
    """`rough`, but NaN at times from `low` to `high`.

    The two times are data, so one program serves every choice of them.
    """

    low: Any
    high: Any

    def __call__(self, t: Any, x: Any) -> Any:
        return jnp.where((t >= self.low) & (t <= self.high), jnp.nan, rough(t, x))


def patchy(low, high):
    """Return a surrogate that is NaN from `low` to `high`."""
    return Patchy(jnp.float32(low), jnp.float32(high))


WHOLE, HOLED, NOWHERE = patchy(2.0, 1.0), patchy(T[BAD], T[BAD]), patchy(0.0, 1.0)


def correct(t=T, x=X, surrogate=WHOLE, **options):
    """Return a raw answer, unless the options say otherwise.

    A shrunken answer would depend on the other points of the batch; see test_shrinkage.py.
    """
    return scasml.correct(PROBLEM, surrogate, t, x, **{"method": METHOD, "safe": False, **options})


def refine(**options):
    """Return the iterator of raw answers at all points."""
    return scasml.refine(PROBLEM, WHOLE, T, X, **{"method": METHOD, "safe": False, **options})


@functools.cache
def adaptive():
    """Return the answer to an absolute tolerance of 0.05."""
    return correct(atol=0.05)


@functools.cache
def compiled():
    """Compile the program, so that a test with a clock does not measure the compiler."""
    return correct(replicates=2)


def half(answer):
    """Return half of the width of the 95 % interval."""
    low, high = answer.interval(0.95)
    return (high - low) / 2


def check_same_bits(one, other, rows=slice(None), names=NUMBERS):
    """Check that `other` equals, bit for bit, the rows `rows` of `one`."""
    for name in names:
        want, got = np.asarray(getattr(one, name))[rows], np.asarray(getattr(other, name))
        assert want.shape == got.shape
        assert want.tobytes() == got.tobytes(), name


def part(answer, rows):
    """Return the numbers of an answer at some of its points."""
    return {name: getattr(answer, name)[rows] for name in NUMBERS}
