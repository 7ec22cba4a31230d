"""The contract of an executor: rows in, replicates out, in any order, from anywhere.

Every executor gives the same bits as the default one.
"""

import itertools
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml import Linearised, Picard, problems
from scasml.execution import AbstractExecutor, LocalExecutor, Part, compute

PROBLEM = problems.burgers(2)
T, X = np.array([0.0, 0.3, 0.1]), np.array([[0.1, 0.2], [-0.2, 0.0], [0.3, -0.1]])
METHODS = {
    "linearised": {"method": Linearised(2, 32, remainder=0), "replicates": 6},
    "picard": {"method": Picard(2, 4), "replicates": 6},
    "auto": {"method": "auto", "rtol": 0.02, "with_gradient": False},
}
NUMBERS = ("value", "stderr", "bias", "replicates", "steps", "kept_share", "status_code")


def surrogate(t, x):
    """Return the solution of Burgers' equation with an error of 2 %.

    A module-level function is pickled by its name.
    """
    return jnp.tanh((t + jnp.sum(x)) / 2) * 0.51 + 0.5


class ShuffledExecutor(AbstractExecutor):
    """Computes pieces of 1 to 5 rows and yields them in random order."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)

    def run(self, program, rows):
        ends = np.cumsum(self.rng.integers(1, 6, len(rows)))
        cuts = [0, *ends[ends < len(rows)].tolist(), len(rows)] if len(rows) else [0]
        pieces = [slice(*ends) for ends in itertools.pairwise(cuts)]
        for k in self.rng.permutation(len(pieces)):
            yield Part(pieces[k], compute(program, rows.at(pieces[k])))

    def map(self, function, *columns):
        return LocalExecutor().map(function, *columns)


class PoolExecutor(AbstractExecutor):
    """Computes pieces of rows in other processes."""

    def __init__(self, pool, rows_per_task=5):
        self.pool, self.rows_per_task = pool, rows_per_task

    def run(self, program, rows):
        pieces = [
            slice(at, min(at + self.rows_per_task, len(rows)))
            for at in range(0, len(rows), self.rows_per_task)
        ]
        tasks = [self.pool.submit(compute, program, rows.at(piece)) for piece in pieces]
        for piece, task in zip(pieces, tasks, strict=True):
            yield Part(piece, task.result())

    def map(self, function, *columns):
        return LocalExecutor().map(function, *columns)


@pytest.fixture(scope="module")
def pool():
    """Two processes that are started anew and share no memory with this one."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as processes:
        yield processes


def answer(name, **options):
    return scasml.correct(PROBLEM, surrogate, T, X, **METHODS[name], **options)


def check_same_answer(one, other):
    for name in NUMBERS:
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name
    if one.gradient is not None:
        assert one.gradient.tobytes() == other.gradient.tobytes()
        assert one.gradient_bias.tobytes() == other.gradient_bias.tobytes()
    reasons = [[(c.start, c.reason, c.points.tolist()) for c in a.choices] for a in (one, other)]
    assert reasons[0] == reasons[1]


@pytest.mark.parametrize("name", METHODS)
def test_the_order_of_the_parts_does_not_matter(name):
    check_same_answer(answer(name), answer(name, executor=ShuffledExecutor()))


@pytest.mark.parametrize("name", METHODS)
def test_other_processes_give_the_same_bits(name, pool):
    assert pool.submit(os.getpid).result() != os.getpid()
    check_same_answer(answer(name), answer(name, executor=PoolExecutor(pool)))


class ForgetfulExecutor(LocalExecutor):
    """Leaves out the parts with a given number."""

    def __init__(self, dropped):
        super().__init__(chunk=2)
        self.dropped = dropped

    def run(self, program, rows):
        parts = list(super().run(program, rows))
        yield from (part for k, part in enumerate(parts) if k != self.dropped % len(parts))


class RepeatingExecutor(LocalExecutor):
    """Returns all parts twice."""

    def run(self, program, rows):
        for part in super().run(program, rows):
            yield from (part, part)


@pytest.mark.parametrize("dropped", [0, 1, -1])
@pytest.mark.parametrize("name", ["linearised", "auto"])
def test_an_executor_that_leaves_rows_out_raises(name, dropped):
    with pytest.raises(RuntimeError, match=r"returned no replicates for row [0-9]+: "):
        answer(name, executor=ForgetfulExecutor(dropped))


def test_an_executor_that_repeats_rows_raises():
    with pytest.raises(RuntimeError, match="returned repeated replicates for row 0: "):
        answer("linearised", executor=RepeatingExecutor())


class OverlappingExecutor(LocalExecutor):
    """Returns overlapping parts."""

    def run(self, program, rows):
        for part in (slice(5, len(rows)), slice(0, 10), slice(10, len(rows))):
            yield Part(part, compute(program, rows.at(part)))


def test_an_executor_whose_parts_overlap_raises():
    with pytest.raises(RuntimeError, match="returned repeated replicates for row 5: "):
        answer("linearised", executor=OverlappingExecutor())


class MiscountingExecutor(LocalExecutor):
    """Returns parts that have fewer replicates than rows."""

    def run(self, program, rows):
        for part in super().run(program, rows):
            yield part._replace(rows=slice(part.rows.start, part.rows.stop + 1))


def test_an_executor_with_too_few_replicates_raises():
    with pytest.raises(RuntimeError, match="returned 6 replicates for rows 0 to 6: "):
        answer("linearised", executor=MiscountingExecutor(chunk=6))
