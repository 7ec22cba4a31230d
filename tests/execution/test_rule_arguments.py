"""Bad arguments of the stopping rules are refused in one sentence, before anything runs."""

import numpy as np
import pytest

from elastic_case import correct, refine
from fake_executors import RefusingExecutor
from helpers import check_one_sentence
from scasml import ScasmlError

VALUES = (
    0,
    0.0,
    -1e-3,
    float("nan"),
    float("inf"),
    -float("inf"),
    "0.1",
    True,
    np.True_,
    [0.1],
    np.array([0.1]),
    1j,
)


def check_refused(call, name, got, **options):
    """Check that the call raises, and that the message has the name, the value and a remedy."""
    with pytest.raises(ScasmlError) as caught:
        call(executor=RefusingExecutor(), **options)
    message = str(caught.value)
    assert isinstance(caught.value, ValueError | TypeError)
    check_one_sentence(message)
    assert message.startswith(f"{name} must ")
    assert f"got {got}" in message
    assert ": " in message.split("got ")[1]  # a remedy


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("name", ["rtol", "atol", "seconds"])
@pytest.mark.parametrize("function", [correct, refine])
def test_numbers(function, name, value):
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    check_refused(function, name, value if is_number else repr(value), **{name: value})


@pytest.mark.parametrize("value", [None, 0, 1, "yes", [True]], ids=repr)
@pytest.mark.parametrize("name", ["safe", "throw"])
def test_switches(name, value):
    check_refused(correct, name, repr(value), **{"rtol": 0.1, name: value})


@pytest.mark.parametrize("rules", [{}, {"replicates": 3}, {"seconds": 1.0}])
def test_throw_without_a_tolerance(rules):
    check_refused(correct, "throw", "True and none", throw=True, **rules)


def test_good_arguments_are_not_refused():
    """They reach the executor, which fails the test."""
    with pytest.raises(pytest.fail.Exception, match="reached the simulation"):
        check_refused(correct, "", "", rtol=np.float32(0.1), atol=1, seconds=np.int64(2))
