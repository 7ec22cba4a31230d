"""A problem that is easy at some points and hard at others, and the ways of asking it: what the tests of stopping rules share."""

import functools
import importlib
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import scasml
from helpers import manufactured, rough
from scasml import Picard

CORRECT = importlib.import_module(
    "scasml._correct"
)  # the module, which the function of that name hides
PROBLEM, EXACT = manufactured(uses_z=False)
METHOD = Picard(2, 2)
# The horizon is 0.8: the last two are easy. The first has a bias of 0.02.
T = np.array([0.1, 0.4, 0.6, 0.7, 0.78, 0.79], np.float32)
X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
NUMBERS = ("raw_value", "stderr", "bias", "gradient", "gradient_stderr", "replicates")
BAD = 2


class Patchy(eqx.Module):
    """`rough`, but NaN at times from `low` to `high`, which are data: one program with and without a hole."""

    low: Any
    high: Any

    def __call__(self, t: Any, x: Any) -> Any:
        return jnp.where((t >= self.low) & (t <= self.high), jnp.nan, rough(t, x))


def patchy(low, high):
    return Patchy(jnp.float32(low), jnp.float32(high))


WHOLE, HOLED, NOWHERE = patchy(2.0, 1.0), patchy(T[BAD], T[BAD]), patchy(0.0, 1.0)


def correct(t=T, x=X, surrogate=WHOLE, **options):
    """Raw, unless asked: how far a correction is shrunk depends on its company, see test_safety.py."""
    return scasml.correct(PROBLEM, surrogate, t, x, **{"method": METHOD, "safe": False, **options})


def refine(**options):
    return scasml.refine(PROBLEM, WHOLE, T, X, **{"method": METHOD, "safe": False, **options})


@functools.cache
def adaptive():
    return correct(atol=0.05)


@functools.cache
def compiled():
    """So that a clock does not see a compiler."""
    return correct(replicates=2)


def half(answer):
    low, high = answer.interval(0.95)
    return (high - low) / 2


def check_same_bits(one, other, rows=slice(None), names=NUMBERS):
    """`other` holds, bit for bit, what `one` holds at `rows`."""
    for name in names:
        want, got = np.asarray(getattr(one, name))[rows], np.asarray(getattr(other, name))
        assert want.shape == got.shape
        assert want.tobytes() == got.tobytes(), name


def part(answer, rows):
    return {name: getattr(answer, name)[rows] for name in NUMBERS}
