"""`method="auto"` is unbiased on problems that misled earlier versions, which estimated biases."""

import numpy as np
import pytest

import scasml
from helpers import SIGMAS
from scasml._bench.hard import aliased_drift, hard_problems
from scasml._bench.unbiased import bias

REPEATS = 200
# A known defect: the bound on levels of R that no pilot drew is 0.2 of the tolerance there.
TOO_LARGE_BOUND = pytest.mark.xfail(strict=True, reason="the stated bias is too large")
NAMES = [
    pytest.param(name, marks=TOO_LARGE_BOUND) if name == "large remainder" else name
    for name in hard_problems()
]


def test_a_periodic_drift_is_not_aliased():
    """Whole steps see only the maxima of the drift, and would add 2 to the value."""
    hard = aliased_drift()
    states, exact = hard.points(20)
    answer = scasml.correct(
        hard.problem, None, t=0.0, x=states, method=scasml.Linearised(), replicates=16
    )
    error = answer.value - exact
    assert np.abs(error.mean()) < SIGMAS * np.sqrt(np.mean(answer.stderr**2) / len(error))
    assert np.all(np.abs(error) < 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_hard_problems(name):
    """The mean error is below 4.5 standard errors, and intervals cover the solution.

    If intervals cover with probability 0.95, fewer than 88 % of 200 do with probability 3e-5. A
    mean exceeds 4.5 standard errors with probability 7e-6. The stated bias is at most
    a tenth of the tolerance.
    """
    found = bias(hard_problems()[name](), REPEATS, gradient=name != "kinked")
    assert found.converged > 0.9
    assert abs(found.mean_error) < 4.5
    assert found.covered > 0.88
    assert found.stated < 0.1
