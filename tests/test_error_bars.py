"""The error bars hold, and a correction is never worse than its surrogate: the tables of `scasml bench`, asserted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import intervals
import never_worse
import scasml
from cases import cases
from helpers import SIGMAS
from scasml import Linearised, problems

pytestmark = pytest.mark.slow
BY_NAME = {case.name: case for case in cases()}
# The bias of these is several standard errors at 64 replicates, and its size is known to a factor of two: see docs/elastic.md.
HARDLY_KNOWN = {
    "LQG 20d, no surrogate",
    "HJB lin 20d, no surrogate",
    "Burgers 20d",
    "mean-reverting control 5d",
}


@pytest.mark.parametrize("name", [name for name in BY_NAME if name not in HARDLY_KNOWN])
@pytest.mark.parametrize("replicates", [intervals.SMALL, intervals.LARGE])
def test_coverage(name, replicates):
    """Between 93 and 97 % of 1000 repeats; at 95 % exactly, 0.4 % of runs would be outside. Fixed seeds."""
    assert 0.93 <= intervals.coverage(BY_NAME[name], replicates).covered <= 0.97


@pytest.mark.parametrize("name", [name for name in BY_NAME if "Heston" not in name])
@pytest.mark.parametrize("method", ["Linearised", "auto"])
def test_coverage_beyond_picard(name, method):
    """The same, the remainder included; at the larger budget, where a bias that is not stated would show. Paths of Heston's take 64 steps and more, and
    minutes. Where no replicate varies the interval is that of rounding, which may cover more."""
    got = intervals.coverage(BY_NAME[name], intervals.LARGE, method=method)
    assert got.covered >= 0.93
    assert got.covered <= 0.97 or np.isinf(got.bias)


@pytest.mark.parametrize("name", sorted(HARDLY_KNOWN))
def test_coverage_at_a_small_budget(name):
    assert intervals.coverage(BY_NAME[name], intervals.SMALL).covered >= 0.92


def test_an_interval_that_a_tolerance_ended_covers_too():
    """Stopping when the error bar is small enough prefers those that are too small by chance: 16 replicates at least make that harmless."""
    got = intervals.coverage(BY_NAME["basket of 10 stocks (GBM)"], 0, rtol=0.05)
    assert 0.93 <= got.covered <= 0.97


@pytest.mark.parametrize(
    "name", ["convection-diffusion 10d", "diffusion-reaction 20d", "Burgers 20d"]
)
@pytest.mark.parametrize("replicates", never_worse.REPLICATES)
@pytest.mark.parametrize(("size", "roughness"), never_worse.SPOILED)
def test_never_worse(name, size, roughness, replicates):
    """Over 200 batches. The margin over the surrogate is that of one false alarm in 200 batches, 1 % of runs; fixed seeds."""
    got = never_worse.errors(BY_NAME[name], size, roughness, replicates)
    assert got.safe**2 <= 1.01 * got.surrogate**2
    assert got.safe**2 <= 1.05 * min(got.surrogate, got.raw) ** 2
    assert got.worse < 0.05


@pytest.mark.parametrize(
    "name", ["HJB 100d, no surrogate", "Burgers 20d", "diffusion-reaction 20d"]
)
def test_error_bars_shrink_with_the_root_of_the_paths(name):
    """Sixteen times the paths, a quarter of the standard error or less. Each is known to 9 %, of 64 replicates: over 16 points, so that 1.1 is more
    than four of its standard errors."""
    case = BY_NAME[name]
    t, x = case.points(16, seed=0)
    stderr = [
        scasml.correct(
            case.problem,
            case.surrogate(intervals.SPOILED),
            t,
            x,
            method=Linearised(samples=samples),
            replicates=64,
            with_gradient=False,
        ).stderr
        for samples in (64, 1024)
    ]
    assert np.sqrt(np.mean((stderr[1] / stderr[0]) ** 2)) < 1.1 / 4


@pytest.mark.parametrize(
    "name", ["HJB 100d, no surrogate", "Burgers 20d", "diffusion-reaction 20d"]
)
def test_to_a_ten_thousandth(name):
    """The standard error gets to a relative 1e-4 / 2, bias included, and the error is what it says, to six standard errors."""
    case = BY_NAME[name]
    t, x = case.points(4, seed=0)
    got = scasml.correct(
        case.problem, case.surrogate(intervals.SPOILED), t, x, rtol=1e-4, with_gradient=False
    )
    assert (got.status == "converged").all()
    assert np.all(np.abs(got.value - case.problem.exact(t, x)) < SIGMAS * got.stderr + 2 * got.bias)


def test_a_plane_of_its_own_covers():
    """Steep F, a surrogate off by 30 %: `auto` often starts from the tangent plane of its own estimate, whose levels tell half of its bias.

    Of 40 intervals at most 9 miss. At one in ten, which it is here, 0.5 % of runs would fail; stated as the levels tell it, 22 of 60 missed. Fixed seeds.
    """
    problem = problems.burgers(2, problems.BURGERS_PAPER)
    exact = lambda t, x: jax.nn.sigmoid(
        jax.scipy.special.logit(problem.terminal(x)) - (problem.horizon - t)
    )
    spoiled = lambda t, x: exact(t, x) * (1 + 0.3 * jnp.sin(jnp.sum(x) / np.sqrt(2) + 2 * t + 0.5))
    x = np.random.default_rng(0).uniform(-0.5, 0.5, (3, 2)).astype(np.float32)[2]
    missed, starts = 0, set()
    for seed in range(40):
        got = scasml.correct(
            problem, spoiled, 0.0, x, rtol=5e-3, with_gradient=False, safe=False, seed=seed
        )
        low, high = got.interval(0.95)
        missed += not low <= problem.exact(0.0, x) <= high
        starts |= {each.control for each in got.choices}
    assert "its own first estimate" in starts
    assert missed <= 9
