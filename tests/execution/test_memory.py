"""The memory of pilots and accumulators grows with the answer, not with the replicates."""

import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import task
from scasml import Linearised, Picard
from scasml._planning.pilots import Look, measure
from scasml._planning.starts import given_start
from scasml.estimators import Tuning
from scasml.execution import LocalExecutor, Program, row_numbers
from scasml.execution.accumulator import Accumulator, KnownBias
from scasml.execution.points import Points
from scasml.execution.stopping import StoppingRule

MEGABYTE = 2**20


def peak(run):
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_pilot_keeps_no_gradients():
    """2000 pilot replicates of 3 increments in 100 dimensions at 4 points: 19 MB if all were kept.

    `Linearised` returns no gradients of increments. The first pilot compiles, which takes memory
    too.
    """
    problem = scasml.Problem(dim=100, horizon=1.0, terminal=lambda x: jnp.sum(x**2))
    x = np.random.default_rng(0).normal(size=(4, 100)).astype(np.float32)
    some = task(problem, np.zeros(4, np.float32), x, StoppingRule(replicates=10), gradient=True)
    start, estimator = given_start(problem, None, None), Picard(2, 4)
    tuning = estimator.pilot_tuning(problem, "pathwise")
    run = lambda count: measure(some, Look(start, estimator, tuning, count))
    run(4)
    assert peak(lambda: run(2000)) < 8 * MEGABYTE


def test_a_round_of_many_replicates():
    """20,000 replicates in 200 dimensions: the states of all rows would take 16 MB."""
    problem = scasml.Problem(dim=200, horizon=1.0, terminal=lambda x: jnp.sum(x))
    run = lambda count: scasml.correct(
        problem,
        None,
        0.0,
        np.zeros(200),
        method=Picard(1, 1),
        replicates=count,
        with_gradient=False,
        executor=LocalExecutor(256),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_numbers, "NUMBERS_PER_BLOCK", 2**18)
        run(4)
        assert peak(lambda: run(20_000)) < 8 * MEGABYTE


def test_many_rows():
    """The numbers of 100,000 rows would take 6 MB, and a pilot of 30,000 replicates 4 MB."""
    problem = scasml.Problem(
        dim=1, horizon=1.0, drift=lambda t, x: -x, terminal=lambda x: jnp.sum(x**2)
    )
    x, estimator = np.zeros((400, 1), np.float32), Linearised(2, 4, remainder=0)
    some = task(problem, x[:, 0], x, StoppingRule(replicates=1), executor=LocalExecutor(256))
    start = given_start(problem, None, None)
    tuning = estimator.pilot_tuning(problem, "pathwise")
    known = KnownBias(np.zeros(400), np.zeros((400, 1)))
    program = some.program(start, estimator, tuning)

    def run(count):
        total = Accumulator(some.executor, program, some.points, tuning, known)
        return sum(total.run(np.full(400, count)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_numbers, "NUMBERS_PER_BLOCK", 2**16)
        measure(some, Look(start, estimator, tuning, 4))
        assert run(4) == 1600
        assert peak(lambda: run(250)) < 3 * MEGABYTE
        assert peak(lambda: measure(some, Look(start, estimator, tuning, 75))) < 3 * MEGABYTE


@pytest.mark.parametrize(
    "estimator",
    [Linearised(2, 4, remainder=0), Picard(2, 4, allocation="measured", steps=4)],
    ids=["linearised", "picard"],
)
def test_blocks_of_points_measure_the_same(estimator):
    """Points have different samples, and for `Linearised` different base levels."""
    problem = scasml.Problem(
        dim=1, horizon=1.0, drift=lambda t, x: -x, terminal=lambda x: jnp.sum(x**2)
    )
    x = np.linspace(0, 1, 5, dtype=np.float32)[:, None]
    some = task(problem, x[:, 0] / 2, x, StoppingRule(replicates=1), gradient=True)
    start = given_start(problem, None, None)
    tuning = estimator.pilot_tuning(problem, "pathwise")
    samples = np.tile(tuning.samples, (5, 1))
    samples[3:] //= 2
    level = None if tuning.level is None else np.array([1, 1, 2, 2, 3], np.int32)
    look = Look(start, estimator, tuning.with_samples(samples, level), 4)
    whole = measure(some, look)
    with pytest.MonkeyPatch.context() as patch:
        # Blocks of two points.
        numbers = 2 * 4 * look.replicates * (len(estimator.increments) + 1)
        patch.setattr(row_numbers, "NUMBERS_PER_BLOCK", numbers)
        blocks = measure(some, look)
    np.testing.assert_allclose(blocks.cost, whole.cost)
    for name, array in vars(whole).items():
        if isinstance(array, np.ndarray):
            np.testing.assert_array_equal(getattr(blocks, name), array, name)


def test_an_accumulator_with_variants():
    """At 1000 points in 100 dimensions; all variants of 16 replicates would take 77 MB."""
    count, dim = 1000, 100
    problem = scasml.Problem(
        dim=dim,
        horizon=1.0,
        nonlinearity=lambda t, x, u, z: u * z[0],
        terminal=lambda x: jnp.sum(x),
    )
    points = Points(
        np.arange(count),
        np.zeros(count, np.float32),
        np.zeros((count, dim), np.float32),
        np.zeros((count, 2), np.uint32),
    )
    tuning, known = Tuning("pathwise", 0), KnownBias(np.zeros(count), np.zeros((count, dim)))
    program = Program(problem, Picard(2, 4), tuning)
    make = lambda: Accumulator(LocalExecutor(), program, points, tuning, known)
    assert peak(make) < 25 * MEGABYTE
