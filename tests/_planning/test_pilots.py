"""What a pilot measures: coupling, step bias, and what a larger pilot would measure."""

import jax.numpy as jnp
import numpy as np
import pytest

from helpers import task
from scasml import Picard, Problem
from scasml._planning.measurement import Measurement
from scasml._planning.pilots import Look, measure
from scasml._planning.policy import DEFAULT_POLICY
from scasml._planning.task import Start
from scasml.estimators import Evaluations
from scasml.execution.stopping import StoppingRule


def invented(replicates=4, **entries):
    """Return a measurement at one point; entries that are not given are harmless."""
    names = ("value", "defect", "step_bias", "step_noise", "coupling")
    each = dict.fromkeys(names, 0.0) | entries
    names = ("slope", "mean", "variance", "size", "gradient_step_bias", "square", "drawn")
    wide = dict.fromkeys(names, np.zeros((1, 3))) | {"level": np.zeros(1, np.int64)}
    arrays = {name: np.array([value]) for name, value in each.items()}
    return Measurement(**arrays, **wide, seconds=1.0, replicates=replicates, cost=Evaluations())


class TestCoupling:
    """Fine and coarse paths along which the drift oscillates faster than their steps, and not."""

    @staticmethod
    def run(waves):
        problem = Problem(
            dim=1,
            horizon=1.0,
            drift=lambda t, x: jnp.sin(waves * x),
            diffusion=lambda t, x: 2.0 + 0 * x,
            terminal=lambda x: jnp.sin(waves * x[0]),
        )
        t, x = np.zeros(2, np.float32), np.array([[0.0], [0.3]], np.float32)
        some = task(problem, t, x, StoppingRule(rtol=1e-4))
        method = Picard(1, 64, steps=2, allocation="measured")
        tuning = method.pilot_tuning(problem, "pathwise")
        return measure(some, Look(Start("zero", problem, None), method, tuning, 64))

    def test_coupling(self):
        steep, flat = self.run(40.0), self.run(0.1)
        assert (steep.coupling > DEFAULT_POLICY.uncoupled).all()
        assert steep.is_uncoupled(DEFAULT_POLICY).all()
        assert (flat.coupling < 0.05).all()


def test_the_step_bias_of_a_large_pilot():
    """More replicates reduce the noise of the step bias, but neither bias nor uncoupled paths."""
    largest = DEFAULT_POLICY.largest_pilot
    large = lambda **entries: invented(**entries).step_bias_of_large_pilot(DEFAULT_POLICY)[0]
    assert large(step_bias=3.0, step_noise=2.0) == pytest.approx(1.0 + 2.0 * np.sqrt(4 / largest))
    assert large(step_bias=3.0, step_noise=1.0) == 3.0
    assert large(step_bias=3.0, step_noise=2.0, coupling=1.0) == 3.0
    assert large(step_bias=3.0, step_noise=2.0, replicates=2 * largest) == 3.0
