"""In how many steps paths are taken: a bias that shows takes more, noise a larger pilot, and steps that tell nothing are too long."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import setting
from scasml import Defect, Linearised, problems
from scasml._planning import pilots
from scasml._planning.pilots import APART, MOST_PILOTS, Pilot, steps
from scasml._planning.task import Control
from scasml.execution.stopping import Budget
from scasml.surrogates.wrapping import wrap

STDERR = 1.0


def made(replicates=4, **told):
    """A pilot at one point; all that is not told is as good as can be."""
    each = dict.fromkeys(("value", "defect", "bias", "noise", "apart"), 0.0) | {"rest": 1.5} | told
    arrays = {name: np.array([value]) for name, value in each.items() if name != "size"}
    wide = dict.fromkeys(("slope", "increments", "variance", "gradient_bias"), np.zeros((1, 3)))
    return Pilot(
        **arrays,
        **wide,
        sizes=np.full((1, 3), told.get("size", 30.0) / 3),
        seconds=1.0,
        replicates=replicates,
    )


@pytest.fixture
def looked(monkeypatch):
    """What `steps` asks for, of pilots that answer by a function of the number of steps and of replicates."""

    def look(answer, pilots_before=4):
        asked = []

        def pilot(setting, control, estimator, points, rest=None):
            count = max(setting.pilots, pilots_before)
            asked.append((estimator.steps, count, rest is not None))
            return made(count, **answer(estimator.steps, count))

        monkeypatch.setattr(pilots, "pilot", pilot)
        budget = SimpleNamespace(expected_stderr=lambda *_: np.full(1, STDERR))
        planned = setting(None, np.zeros(1), np.zeros((1, 3)), budget)
        equation = scasml.problems.burgers(3)
        (share,) = steps(
            planned, Control("it", equation, None), Linearised(gradient="pathwise"), np.arange(1)
        )
        return asked, share

    return look


class TestSteps:
    def test_a_small_bias_is_enough(self, looked):
        asked, share = looked(lambda steps, count: {"bias": 0.4, "noise": 0.1})
        assert asked == [(2, 4, False)]
        assert share.estimator.steps == 2
        assert share.bias == 0.4

    def test_one_that_shows_takes_more_steps(self, looked):
        """16 times too large, of second order: four times as many; what is not asked of the steps is not run again."""
        asked, share = looked(lambda steps, count: {"bias": 32 / steps**2, "noise": 0.1 / steps**2})
        assert asked == [(2, 4, False), (8, 4, True)]
        assert share.estimator.steps == 8

    def test_noise_takes_a_larger_pilot(self, looked):
        asked, share = looked(
            lambda steps, count: {"bias": 3 / np.sqrt(count), "noise": 2 / np.sqrt(count)}
        )
        assert asked == [(2, 4, False), (2, 16, True), (2, 64, True)]
        assert share.estimator.steps == 2
        assert asked[-1][1] == MOST_PILOTS

    def test_noise_that_is_too_much_takes_more_steps_after_all(self, looked):
        asked, share = looked(
            lambda steps, count: {
                "bias": 60 / steps / np.sqrt(count),
                "noise": 50 / steps / np.sqrt(count),
            }
        )
        assert asked[:3] == [(2, 4, False), (2, 16, True), (2, 64, True)]
        assert share.estimator.steps > 2
        assert share.bias <= STDERR / 2

    def test_steps_that_are_too_long_to_tell(self, looked):
        """Fine and coarse paths do not know of one another: that their means agree says nothing."""
        asked, share = looked(
            lambda steps, count: {"bias": 0.01, "noise": 0.008, "apart": 1 / steps}
        )
        assert [(count, first) for count, first, _ in asked] == [(2, 4), (8, 4)]
        assert share.estimator.steps == 8

    def test_not_where_nothing_is_at_stake(self, looked):
        """The whole of the increments is smaller than the error bar."""
        _, share = looked(
            lambda steps, count: {"bias": 0.01, "noise": 0.008, "apart": 1.0, "size": 0.4}
        )
        assert share.estimator.steps == 2

    def test_not_without_end(self, looked):
        _, share = looked(lambda steps, count: {"bias": 10.0, "noise": 0.1, "apart": 1.0})
        assert share.estimator.steps == pilots.MOST_STEPS


class TestApart:
    """Of a wave that is steep for its steps, and of one that is not."""

    @staticmethod
    def run(sigma, estimator_steps):
        problem = problems.burgers(20, sigma)
        wave = lambda t, x: jax.nn.sigmoid(t + jnp.sum(x)) * (1 + 0.002 * jnp.sin(jnp.sum(x)))
        model = wrap(wave, problem)
        x = np.full((2, 20), [[0.05], [-0.05]], np.float32)
        planned = setting(problem, np.zeros(2, np.float32), x, Budget(rtol=1e-4), model, pilots=16)
        method = Linearised(estimator_steps, gradient="pathwise", remainder=0)
        return pilots.pilot(
            planned, Control("the surrogate", Defect(problem, model), model), method, np.arange(2)
        )

    def test_apart(self):
        assert (self.run(np.sqrt(2.0), 2).apart > APART).all()
        assert (self.run(0.25, 2).apart < 0.05).all()


def test_what_many_replicates_would_leave():
    """Of noise its share, of a bias all of it, and all of what cannot be trusted."""
    many = lambda **told: made(**told).bias_of_many[0]
    assert many(bias=3.0, noise=2.0) == pytest.approx(1.0 + 2.0 * np.sqrt(4 / MOST_PILOTS))
    assert many(bias=3.0, noise=1.0) == 3.0
    assert many(bias=3.0, noise=2.0, apart=1.0) == 3.0
    assert many(bias=3.0, noise=2.0, replicates=2 * MOST_PILOTS) == 3.0


def test_what_is_not_asked_of_the_steps_is_not_run(monkeypatch):
    """With the `rest` of an earlier pilot R has no samples, and its share of the bias is that of before."""
    problem = problems.burgers(2)
    model = wrap(lambda t, x: 0.9 * jax.nn.sigmoid(t + jnp.sum(x)), problem)
    planned = setting(
        problem, np.zeros(1, np.float32), np.zeros((1, 2), np.float32), Budget(rtol=1e-3), model
    )
    control, method = (
        Control("it", Defect(problem, model), model),
        Linearised(2, gradient="pathwise"),
    )
    whole = pilots.pilot(planned, control, method, np.arange(1))
    part = pilots.pilot(planned, control, method, np.arange(1), whole.rest)
    assert whole.increments[0, 2] != 0
    assert part.increments[0, 2] == 0
    assert part.rest == whole.rest > 1
    assert part.bias == whole.bias
