"""Settling the steps of a path, and the samples of each increment, from pilots.

Invented pilots test the steps: a visible bias takes more steps, noise takes a larger pilot, and
steps without coupling are too long.
"""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from fake_executors import ScriptedExecutor
from helpers import STEPPED, task
from scasml import Picard, Problem
from scasml._planning.allocation import allocate
from scasml._planning.pilots import Look
from scasml._planning.policy import DEFAULT_POLICY
from scasml._planning.settling import sample_work, step_factor
from scasml._planning.steps import settle_steps
from scasml._planning.task import Start
from scasml._planning.trials import run_trial
from scasml.execution.stopping import StoppingRule

STDERR = 1.0


def settled(script):
    """Return the pilots that `settle_steps` runs at one point, and its assignment.

    The expected standard error is 1.
    """
    executor = ScriptedExecutor(lambda steps, count, t: script(steps, count))
    rule = SimpleNamespace(expected_stderr=lambda *_: np.full(1, STDERR), replicates=None)
    equation, estimator = STEPPED, Picard(2, 16, gradient="pathwise", allocation="measured")
    some = task(equation, np.zeros(1), np.zeros((1, 3)), rule, executor=executor)
    start = Start("zero", equation, None)
    tuning = estimator.pilot_tuning(equation, "pathwise")
    look = Look(start, estimator, tuning, DEFAULT_POLICY.pilot_replicates)
    (assignment,) = settle_steps(some, look).assignments
    return executor.asked, assignment


class TestSteps:
    """`asked` lists steps and replicates."""

    def test_a_small_bias_is_enough(self):
        asked, assignment = settled(lambda steps, count: {"bias": 0.4, "noise": 0.1})
        assert asked == [(16, 4)]
        assert assignment.tuning.steps == 16
        assert assignment.step_bias == pytest.approx(0.4)

    def test_a_visible_bias_takes_more_steps(self):
        """A bias of first order that is 3 times too large takes four times the steps."""
        asked, assignment = settled(lambda steps, count: {"bias": 24 / steps, "noise": 0.1 / steps})
        assert asked == [(16, 4), (64, 4)]
        assert assignment.tuning.steps == 64

    def test_noise_takes_a_larger_pilot(self):
        asked, assignment = settled(
            lambda steps, count: {"bias": 3 / np.sqrt(count), "noise": 2 / np.sqrt(count)}
        )
        assert asked == [(16, 4), (16, 16), (16, 64)]
        assert assignment.tuning.steps == 16
        assert asked[-1][1] == DEFAULT_POLICY.largest_pilot

    def test_noise_of_the_largest_pilot_takes_more_steps(self):
        asked, assignment = settled(
            lambda steps, count: {
                "bias": 480 / steps / np.sqrt(count),
                "noise": 400 / steps / np.sqrt(count),
            }
        )
        assert asked[:3] == [(16, 4), (16, 16), (16, 64)]
        assert assignment.tuning.steps > 16
        assert assignment.step_bias <= STDERR / 2

    def test_uncoupled_paths_take_more_steps(self):
        """Fine and coarse paths are nearly independent, so equal means do not show a small bias."""
        asked, assignment = settled(
            lambda steps, count: {"bias": 0.01, "noise": 0.008, "coupling": 8 / steps}
        )
        assert asked == [(16, 4), (64, 4)]
        assert assignment.tuning.steps == 64

    def test_uncoupled_paths_of_small_increments_do_not_matter(self):
        """All increments together are smaller than the standard error."""
        _, assignment = settled(
            lambda steps, count: {"bias": 0.01, "noise": 0.008, "coupling": 1.0, "size": 0.4}
        )
        assert assignment.tuning.steps == 16

    def test_the_steps_are_bounded(self):
        _, assignment = settled(lambda steps, count: {"bias": 10.0, "noise": 0.1, "coupling": 1.0})
        assert assignment.tuning.steps == DEFAULT_POLICY.most_steps


def test_the_factor_of_the_steps_is_a_power_of_four():
    """The bias falls as 1/steps or as 1/steps^2. NaN takes no more steps; the factor is bounded."""
    bias, stderr = np.array([0.4, 0.6, 3.0, 20.0, np.nan, np.inf, 0.0]), np.ones(7)
    factor = lambda order: step_factor(bias, stderr, order, DEFAULT_POLICY).tolist()
    assert factor(1) == [1, 4, 16, 64, 1, 1024, 1]
    assert factor(2) == [1, 4, 4, 16, 1, 1024, 1]


def test_a_variance_from_few_replicates_is_inflated():
    """Jeffreys' prior gives (n - 1)/(n - 3) times the measured variance: 3 times for 4 of them."""
    problem = Problem(
        dim=2,
        horizon=0.5,
        nonlinearity=lambda t, x, u, z: jnp.sin(u),
        terminal=lambda x: jnp.cos(x[0]),
    )
    rule = StoppingRule(rtol=1e-6)
    some = task(problem, np.zeros(1, np.float32), np.zeros((1, 2), np.float32), rule)
    estimator = Picard(2, 16, gradient="pathwise", allocation="measured")
    trial = run_trial(some, Start("zero", problem, None), estimator, "pathwise")
    measured = trial.measurement.variance * trial.look.tuning.samples
    of_samples = sample_work(estimator, problem, trial.look.tuning.with_samples(None), False)
    work = lambda variance: (
        allocate(
            rule,
            estimator.sample_bounds(),
            of_samples,
            trial.measurement.value,
            variance,
        ).work
    )
    # The tolerance is loose because the trial may omit increments.
    np.testing.assert_allclose(trial.settled.work, work(3 * measured), rtol=0.5)
    assert trial.settled.work > 2 * work(measured)
