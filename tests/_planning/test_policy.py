"""The policy: its constants are all used, and `correct` takes another one."""

import dataclasses
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from fake_executors import RecordingExecutor
from scasml import _planning
from scasml._planning.measurement import FIRST_PILOT
from scasml._planning.policy import Policy


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Policy)])
def test_every_constant_is_used(name):
    folder = Path(_planning.__file__).parent
    texts = [path.read_text() for path in folder.glob("*.py") if path.name != "policy.py"]
    assert any(f"policy.{name}" in text for text in texts)


def test_a_policy_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy().worth = 1.0


@pytest.mark.parametrize("method", ["auto", Policy(), Policy(pilot_replicates=6)])
def test_correct_takes_a_policy(method):
    """A policy as `method` is the automatic choice with other constants."""
    problem = scasml.Problem(dim=2, horizon=0.5, terminal=lambda x: jnp.cos(x[0]))
    executor = RecordingExecutor()
    answer = scasml.correct(
        problem, None, 0.1, np.zeros(2), method=method, rtol=0.1, executor=executor
    )
    assert answer.method == "auto"
    assert answer.status == "converged"
    _, _, rows = executor.pilots()[0]
    wanted = method.pilot_replicates if isinstance(method, Policy) else 4
    np.testing.assert_array_equal(np.unique(rows.replicate) - FIRST_PILOT, np.arange(wanted))


def test_a_pilot_has_enough_replicates_for_a_variance():
    """The variance is multiplied by (n - 1)/(n - 3)."""
    with pytest.raises(scasml.ScasmlError, match="pilot_replicates must be at least 4, got 3"):
        Policy(pilot_replicates=3)
