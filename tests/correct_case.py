"""A small problem, a surrogate, a method and points for the tests of `correct` and of its answer.

The test files share them, so that one compiled program serves nearly all of their tests.
"""

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
    """Return a raw answer from five replicates, unless the options say otherwise.

    A shrunken answer would depend on the other points of the batch; see test_shrinkage.py.
    """
    return scasml.correct(
        problem, surrogate, t, x, **{"method": METHOD, "replicates": 5, "safe": False, **options}
    )


@functools.cache
def answer():
    """Return the answer at all points."""
    return correct()


def check_same_bits(one, other, rows=slice(None)):
    """Check that `other` equals, bit for bit, the rows `rows` of `one`."""
    for name in NUMBERS:
        want, got = np.asarray(getattr(one, name))[rows], np.asarray(getattr(other, name))
        assert want.shape == got.shape
        assert want.tobytes() == got.tobytes(), name
