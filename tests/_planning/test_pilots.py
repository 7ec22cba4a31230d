"""What a pilot measures: coupling, step bias, and what a larger pilot would measure."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import task
from scasml import Defect, Linearised, problems
from scasml._planning.measurement import Measurement
from scasml._planning.pilots import Look, measure
from scasml._planning.policy import DEFAULT_POLICY
from scasml._planning.task import Start
from scasml.estimators import Evaluations
from scasml.execution.stopping import StoppingRule
from scasml.surrogates import wrap


def invented(replicates=4, **entries):
    """Return a measurement at one point; entries that are not given are harmless."""
    names = ("value", "defect", "step_bias", "step_noise", "coupling")
    each = dict.fromkeys(names, 0.0) | {"size_ratio": 1.5} | entries
    wide = dict.fromkeys(
        ("slope", "mean", "variance", "size", "gradient_step_bias"), np.zeros((1, 3))
    )
    arrays = {name: np.array([value]) for name, value in each.items()}
    return Measurement(**arrays, **wide, seconds=1.0, replicates=replicates, cost=Evaluations())


def defect_start(problem, surrogate):
    """Return the surrogate as a start."""
    model = wrap(surrogate, problem)
    return Start("the surrogate", Defect(problem, model), model)


class TestCoupling:
    """Fine and coarse paths through a wave that is steep for their steps, and a flat one."""

    @staticmethod
    def run(sigma):
        problem = problems.burgers(20, sigma)
        wave = lambda t, x: jax.nn.sigmoid(t + jnp.sum(x)) * (1 + 0.002 * jnp.sin(jnp.sum(x)))
        start = defect_start(problem, wave)
        x = np.full((2, 20), [[0.05], [-0.05]], np.float32)
        rule = StoppingRule(rtol=1e-4)
        some = task(problem, np.zeros(2, np.float32), x, rule, start.model)
        method = Linearised(2, gradient="pathwise", remainder=0)
        tuning = method.pilot_tuning(start.equation, "pathwise")
        return measure(some, Look(start, method, tuning, 16))

    def test_coupling(self):
        steep, flat = self.run(np.sqrt(2.0)), self.run(0.25)
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


def test_a_second_pilot_runs_only_what_measures_the_step_bias():
    """With the size ratio of an earlier pilot, R has no samples and the step bias is the same."""
    problem = problems.burgers(2)
    start = defect_start(problem, lambda t, x: 0.9 * jax.nn.sigmoid(t + jnp.sum(x)))
    t, x = np.zeros(1, np.float32), np.zeros((1, 2), np.float32)
    some = task(problem, t, x, StoppingRule(rtol=1e-3), start.model)
    method = Linearised(2, gradient="pathwise")
    tuning = method.pilot_tuning(start.equation, "pathwise")
    run = lambda size_ratio=None: measure(some, Look(start, method, tuning, 4, size_ratio))
    whole = run()
    part = run(whole.size_ratio)
    assert whole.mean[0, 2] != 0
    assert part.mean[0, 2] == 0
    assert part.size_ratio == whole.size_ratio > 1
    assert part.step_bias == whole.step_bias
