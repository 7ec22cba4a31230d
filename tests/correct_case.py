"""A small problem, a surrogate, a method and a few points: what the tests of `correct`, of its answer and of the engine share, so that one program serves
nearly all of them."""

import functools

import numpy as np

import scasml
from helpers import heat, manufactured, rough
from scasml import Picard

PROBLEM, EXACT = manufactured(uses_z=False)
HEAT, _ = heat()
METHOD = Picard(2, 2)
RNG = np.random.default_rng(0)
T, X = RNG.uniform(0, 0.7, 9).astype(np.float32), RNG.normal(size=(9, 3)).astype(np.float32)
NUMBERS = ("value", "stderr", "correction", "bias", "gradient", "gradient_stderr")


def correct(t=T, x=X, surrogate=rough, problem=PROBLEM, **options):
    """Raw, unless asked: how far a correction is shrunk depends on its company, see test_safety.py."""
    return scasml.correct(
        problem, surrogate, t, x, **{"method": METHOD, "replicates": 5, "safe": False, **options}
    )


@functools.cache
def answer():
    return correct()


def check_same_bits(one, other, rows=slice(None)):
    """`other` holds, bit for bit, the answers that `one` holds at `rows`."""
    for name in NUMBERS:
        want, got = np.asarray(getattr(one, name))[rows], np.asarray(getattr(other, name))
        assert want.shape == got.shape
        assert want.tobytes() == got.tobytes(), name
