"""Expected samples of levels, and the bound on what is left out, from invented measurements."""

import jax.numpy as jnp
import numpy as np
import pytest

from helpers import task
from scasml import Linearised, Problem
from scasml._planning.level_settling import settle_levels
from scasml._planning.measurement import Measurement
from scasml._planning.pilots import Look
from scasml._planning.policy import DEFAULT_POLICY
from scasml._planning.task import Start
from scasml.estimators import Evaluations
from scasml.execution.stopping import StoppingRule

METHOD = Linearised()
# An equation without R, whose paths are simulated in steps.
AFFINE = Problem(
    dim=1,
    horizon=1.0,
    diffusion=lambda t, x: 0.5 + 0.1 * jnp.sin(x),
    nonlinearity=lambda t, x, u, z: -u,
    terminal=lambda x: jnp.cos(x[0]),
)
STEPS = METHOD.tails(AFFINE)["steps"]


def measurement(variance, levels, level=0, value=1.0):
    """Return a measurement at one point, whose levels have these means and mean squares.

    `variance` is that of a sample of the base. `levels` maps the number of a level to a pair.
    """
    width = len(METHOD.increments)
    zeros = lambda: np.zeros((1, width))
    mean, square, drawn, spread = zeros(), zeros(), zeros(), zeros()
    samples = METHOD.pilot_tuning(AFFINE, "pathwise").samples
    spread[0, :2] = variance / samples[:2]
    drawn[0, :2] = 4 * samples[:2]
    for number, (of_mean, of_square) in levels.items():
        at = STEPS[number - 1]
        mean[0, at], square[0, at], drawn[0, at] = of_mean, of_square, 1e6
    scalars = ("defect", "step_bias", "step_noise")
    return Measurement(
        value=np.array([value]),
        slope=np.zeros((1, 1)),
        mean=mean,
        variance=spread,
        size=np.ones((1, width)),
        coupling=np.zeros(1),
        gradient_step_bias=np.zeros((1, 1)),
        seconds=1.0,
        replicates=4,
        cost=Evaluations(),
        square=square,
        drawn=drawn,
        level=np.array([level]),
        **{name: np.zeros(1) for name in scalars},
    )


def settled(found, gradient=False, **rule):
    """Return what the measurement implies, for an absolute tolerance of 0.02 by default."""
    t, x = np.zeros(1, np.float32), np.zeros((1, 1), np.float32)
    some = task(AFFINE, t, x, StoppingRule(**(rule or {"atol": 0.02})), gradient=gradient)
    start = Start("zero", AFFINE, None)
    look = Look(start, METHOD, METHOD.pilot_tuning(AFFINE, "pathwise"), 4)
    return settle_levels(some, look, found)


def falling(decay, first=1e-2, count=4):
    """Return levels whose mean squares fall by 2^-decay, and whose means fall by its root."""
    squares = {k: first * 2.0 ** (-decay * (k - 1)) for k in range(1, count + 1)}
    return {k: (0.1 * np.sqrt(square), square) for k, square in squares.items()}


def test_every_level_above_the_base_is_drawn_if_levels_fall_quickly():
    got = settled(measurement(1.0, falling(2.0)))
    expected = got.samples[0, STEPS]
    base = int(got.level[0])
    assert np.all(expected[:base] == 0)
    assert np.all(expected[base:] > 0)
    assert np.all(np.diff(expected[base:]) < 0)
    # What lies beyond the finest level is the only bound.
    assert 0 < got.omitted[0] < 1e-4


def test_expected_samples_follow_second_moment_and_work():
    """N_k is proportional to sqrt(v_k / c_k) where the least work of a level does not count."""
    got = settled(measurement(1.0, falling(1.5)))
    level = int(got.level[0])
    tuning = METHOD.pilot_tuning(AFFINE, "pathwise").with_samples(None, level)
    work = METHOD.work(AFFINE, tuning, False)[STEPS]
    one, other = got.samples[0, STEPS][[level, level + 1]]
    ratio = np.sqrt(2.0**1.5 * work[level + 1] / work[level])
    assert one / other == pytest.approx(ratio, rel=0.3)


def test_levels_that_fall_slower_than_they_cost_are_truncated():
    """Their bound is stated, and is at most the allowed part of the tolerance."""
    got = settled(measurement(1e-3, falling(0.5, first=1e-5)))
    assert np.any(got.samples[0, STEPS[int(got.level[0]) :]] == 0)
    goal = got.stderr[0]
    assert 0 < got.omitted[0] <= 2 * DEFAULT_POLICY.most_truncation * goal * (1 + 1e-9)


def test_no_level_is_truncated_with_gradients():
    got = settled(measurement(1e-3, falling(0.5, first=1e-5)), gradient=True)
    assert np.all(got.samples[0, STEPS[int(got.level[0]) :]] > 0)


def test_a_large_difference_of_levels_raises_the_base_level():
    """The first difference varies more than the base: two steps are as good as one, and cheaper.

    Levels from the third on are small, so the base level is at least two.
    """
    levels = {1: (0.3, 1.0), 2: (0.3, 1.0), 3: (1e-4, 1e-6), 4: (1e-5, 1e-7)}
    assert settled(measurement(1.0, levels)).level[0] >= 2
    assert settled(measurement(1.0, falling(2.0, first=1e-6))).level[0] == 0


def test_less_tolerance_takes_more_work():
    found = measurement(1.0, falling(2.0))
    assert settled(found, atol=0.002).work[0] > 20 * settled(found, atol=0.02).work[0]


def test_a_zero_difference_gets_some_samples():
    """A pilot that saw no difference does not prove that there is none."""
    got = settled(measurement(1.0, {1: (0.0, 0.0), 2: (0.0, 0.0)}))
    tuning = METHOD.pilot_tuning(AFFINE, "pathwise").with_samples(None, 0)
    spent = got.samples[0] * METHOD.work(AFFINE, tuning, False)
    assert got.level[0] == 0
    share = DEFAULT_POLICY.tail_work / len(STEPS)
    np.testing.assert_allclose(spent[STEPS], share * spent[:2].sum(), rtol=1e-5)
