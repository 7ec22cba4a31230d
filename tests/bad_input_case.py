"""Tools for the tests of refused input: a problem, executors that must not be reached, checks.

A call is refused if it raises one sentence that names the argument and the value received, before
anything is simulated. Calls that may simulate get an executor of this module, which fails the test.
"""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml import ScasmlError
from scasml.execution import AbstractExecutor, LocalExecutor, Part

DIM = 3
NAN, INF = float("nan"), float("inf")


def g(x: Any) -> Any:
    return jnp.sum(x)


def u(t: Any, x: Any) -> Any:
    return t + jnp.sum(x)


def raises(*args: Any) -> Any:
    raise RuntimeError("It went wrong. Very wrong.\nAnd more.")


PROBLEM = scasml.Problem(dim=DIM, horizon=0.5, terminal=g)


@functools.cache
def answer() -> scasml.Correction:
    """Return an answer. At the horizon it needs no simulation."""
    return scasml.correct(PROBLEM, u, PROBLEM.horizon, np.zeros(DIM))


def fail_if_reached(*args: Any) -> Any:
    """Fail the test. Also a replacement for methods of `LocalExecutor`."""
    pytest.fail("bad input reached the simulation")


class MustNotRun(AbstractExecutor):
    """An executor that fails the test when anything is evaluated or simulated."""

    def run(self, program: Any, rows: Any) -> Iterator[Part]:
        return fail_if_reached()

    def map(self, function: Any, *columns: Any) -> Any:
        return fail_if_reached()


class NoReplicates(LocalExecutor):
    """An executor that evaluates functions at points, and fails the test at the first replicate."""

    def run(self, program: Any, rows: Any) -> Iterator[Part]:
        return fail_if_reached()


def assert_one_sentence(message: str) -> None:
    assert "\n" not in message
    assert message == message.strip()
    assert message.endswith(".")
    assert not message.endswith("..")
    assert len(message) <= 300
    assert not re.search(r"[.!?]\s+[A-Z]", message), f"more than one sentence: {message}"


def refused(call: Callable[[], Any], *fragments: str) -> None:
    """Check that a call raises an error of scasml, in one sentence that contains the fragments."""
    with pytest.raises(ScasmlError) as caught:
        call()
    assert isinstance(caught.value, ValueError | TypeError)
    message = str(caught.value)
    assert_one_sentence(message)
    for fragment in fragments:
        assert fragment in message, message


def bad(name: str, call: Callable[[], Any], *fragments: str) -> Any:
    """Return one case of `each`: a call, and what its message must contain."""
    assert len(fragments) >= 2, "name the argument and what was received"
    return pytest.param(call, fragments, id=name)


def each(*cases: Any) -> Any:
    """Parametrise a test over cases made by `bad`."""
    return pytest.mark.parametrize(("call", "fragments"), cases)
