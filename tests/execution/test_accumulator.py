"""The accumulator: which rows it asks for, its sums, and the cost of its replicates."""

import numpy as np
import pytest

from correct_case import METHOD, PROBLEM, T, X
from helpers import cost, rough
from scasml._equations.defect import Defect
from scasml.estimators import Evaluations, Variant
from scasml.execution import LocalExecutor, Program
from scasml.execution.accumulator import Accumulator, KnownBias
from scasml.execution.points import Points
from scasml.surrogates import wrap

SURROGATE = wrap(rough, PROBLEM)
EQUATION = Defect(PROBLEM, SURROGATE)


def accumulator(points=3, chunk=None, **known):
    """Return an empty accumulator of two Picard levels that start from the surrogate."""
    tuning = METHOD.default_tuning(EQUATION, True)
    program = Program(EQUATION, METHOD, tuning, surrogate=SURROGATE, start=SURROGATE)
    where = Points.of(np.arange(points), T[:points], X[:points], seed=0)
    bias = KnownBias(np.zeros(points), np.zeros((points, 3)))._replace(**known)
    return Accumulator(LocalExecutor(chunk), program, where, tuning, bias)


def bits(total):
    """Return all that an answer takes from an accumulator, as bytes."""
    arrays = [*total.estimate(), total.gradient.mean, total.gradient.stderr, total.gradient_bias()]
    return [array.tobytes() for array in arrays]


def run(total, *counts):
    for count in counts:
        for _ in total.run(np.full(len(total.points), count)):
            pass
    return total


def test_rows_come_replicate_by_replicate():
    """The first replicate of every point comes first, with its two variants."""
    point, replicate, variant = accumulator().missing(np.array([3, 3, 1]))
    first, rest = slice(0, 9), slice(9, None)
    assert point[first].tolist() == [0, 1, 2] * 3
    assert replicate[first].tolist() == [0] * 9
    variants = [Variant.MAIN, Variant.HALF_A, Variant.HALF_B]
    assert variant[first].tolist() == np.repeat(variants, 3).tolist()
    # The third point has one replicate only. The third replicates run no variants.
    assert point[rest].tolist() == [0, 1] * 4
    assert replicate[rest].tolist() == [1] * 6 + [2] * 2


@pytest.mark.parametrize("chunk", [1, 4, None])
def test_the_rounds_do_not_change_the_bits(chunk):
    assert bits(run(accumulator(chunk=chunk), 2, 3, 8)) == bits(run(accumulator(), 8))


def test_the_cost_includes_the_variants():
    """Two replicates of each point run two variants, which compute the last increment only."""
    total = run(accumulator(), 4)
    tuning = METHOD.default_tuning(EQUATION, True)
    last = METHOD.evaluations(EQUATION, tuning)[-1]
    main = cost(METHOD, EQUATION).times(3 * 4)
    assert total.evaluations() == sum([main, last.times(3 * 2 * 2)], Evaluations())
    assert total.rows_run == 3 * (4 + 2 * 2)


def test_known_biases_are_added():
    """Pilots bound the bias of steps and of omitted increments."""
    plain = run(accumulator(), 4).biases()
    steps, omitted = np.array([0.1, 0.2, 0.3]), np.array([1.0, 0.0, 0.0])
    got = run(accumulator(steps=steps, omitted=omitted), 4).biases()
    np.testing.assert_array_equal(got["steps"], steps)
    np.testing.assert_allclose(got["levels"], plain["levels"] + omitted)
    np.testing.assert_array_equal(got["noise"], plain["noise"])


def test_no_replicates_no_estimate():
    estimate = accumulator().estimate()
    assert estimate.replicates.tolist() == [0, 0, 0]
    assert np.isnan(estimate.stderr).all()
