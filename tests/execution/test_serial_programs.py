"""A program that calls LAPACK anywhere runs in one thread at a time: two calls could deadlock."""

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml import Linearised
from scasml._equations.defect import Defect
from scasml.execution import Program, Rows
from scasml.execution.compilation import prepare

PROBLEM = scasml.Problem(dim=3, horizon=1.0, terminal=lambda x: jnp.sum(x**2))


def plain(t, x):
    return jnp.sum(x**2) + 3 * (1 - t)


def factoring(t, x):
    matrix = jnp.eye(3) * (2 + x[0] ** 2) + 0.1
    return jnp.linalg.solve(matrix, x + t)[0]


def is_serial(surrogate, start):
    estimator = Linearised(2, 32)
    surrogate = None if surrogate is None else scasml.surrogates.wrap(surrogate, PROBLEM)
    start = None if start is None else scasml.surrogates.wrap(start, PROBLEM)
    equation = PROBLEM if start is None else Defect(PROBLEM, start)
    tuning = estimator.default_tuning(equation, False)
    program = Program(equation, estimator, tuning, surrogate=surrogate, start=start, gradient=False)
    one = lambda *shape: np.zeros((1, *shape), np.float32)
    rows = Rows(
        one(),
        one(3),
        np.zeros((1, 2), np.uint32),
        np.zeros(1, np.uint32),
        np.zeros(1, np.int32),
        np.asarray(tuning.samples)[None],
    )
    return prepare(program, rows, np.dtype(np.float32)).compiled.is_serial


@pytest.mark.parametrize(
    ("surrogate", "start", "expected"),
    [
        (plain, plain, False),
        (factoring, factoring, True),
        # The equation is that of another start, and only the reported surrogate factors a matrix.
        (factoring, None, True),
        (factoring, plain, True),
        (None, None, False),
    ],
)
def test_the_whole_program_is_searched(surrogate, start, expected):
    assert is_serial(surrogate, start) is expected
