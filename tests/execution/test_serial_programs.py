"""A program that calls LAPACK anywhere runs in one thread at a time: two calls could deadlock."""

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml import Linearised, Picard
from scasml._equations.defect import Defect
from scasml.execution import Program
from scasml.execution.compilation import prepare
from scasml.execution.points import Points
from scasml.execution.row_numbers import RowNumbers, rows_at

PROBLEM = scasml.Problem(dim=3, horizon=1.0, terminal=lambda x: jnp.sum(x**2))


def plain(t, x):
    return jnp.sum(x**2) + 3 * (1 - t)


def factoring(t, x):
    matrix = jnp.eye(3) * (2 + x[0] ** 2) + 0.1
    return jnp.linalg.solve(matrix, x + t)[0]


def is_serial(estimator, surrogate, start):
    surrogate = None if surrogate is None else scasml.surrogates.wrap(surrogate, PROBLEM)
    start = None if start is None else scasml.surrogates.wrap(start, PROBLEM)
    equation = PROBLEM if start is None else Defect(PROBLEM, start)
    tuning = estimator.default_tuning(equation, False)
    program = Program(equation, estimator, tuning, surrogate=surrogate, start=start, gradient=False)
    points = Points.of(np.arange(1), np.zeros(1, np.float32), np.zeros((1, 3), np.float32), 0)
    rows = rows_at(points, tuning, RowNumbers(*np.zeros((3, 1), int)))
    return prepare(program, rows, np.dtype(np.float32)).compiled.is_serial


@pytest.mark.parametrize(
    ("estimator", "surrogate", "start", "expected"),
    [
        # The loops of `Linearised` are searched too.
        (Linearised(2, 32), factoring, factoring, True),
        (Linearised(2, 32), plain, plain, False),
        (Picard(1, 1), factoring, factoring, True),
        (Picard(1, 1), plain, plain, False),
        # The equation is that of another start, and only the reported surrogate factors a matrix.
        (Picard(1, 1), factoring, None, True),
        (Picard(1, 1), factoring, plain, True),
        (Picard(1, 1), None, None, False),
    ],
)
def test_the_whole_program_is_searched(estimator, surrogate, start, expected):
    assert is_serial(estimator, surrogate, start) is expected
