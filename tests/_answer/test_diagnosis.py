"""diagnose: each thing it can say is said where it is so, and not of a healthy run."""

import dataclasses
import functools
import re
import types
import warnings
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import heat, manufactured, rough
from scasml import Picard, problems
from scasml._answer.diagnosis import Tails, tail_slope
from scasml.execution.moments import Extremes, Groups, Moments

RUNS = 1000


def tails_of(rows):
    """Of (points, n) replicates, through the classes that a run keeps them in."""
    points, n = rows.shape
    value, extremes = Moments((points,), order=4), Extremes(points)
    for part in np.array_split(rows, n // 32, axis=1):
        groups = Groups(np.tile(np.arange(points), part.shape[1]))
        value.add(groups, part.T.ravel())
        extremes.add(groups, part.T.ravel())
    tally = types.SimpleNamespace(value=value, extremes=extremes)
    return Tails.of(points, [(np.arange(points), tally)])


LAWS = {
    "student": lambda rng, size: rng.standard_t(1.5, size),
    "pareto": lambda rng, size: rng.pareto(1.5, size),
    "gaussian": lambda rng, size: rng.normal(size=size),
    "uniform": lambda rng, size: rng.uniform(size=size),
    "exponential": lambda rng, size: rng.exponential(size=size),
}


def flagged(equation, n):
    return tails_of(LAWS[equation](np.random.default_rng(1), (RUNS, n))).is_heavy.mean()


class TestTails:
    """A density that falls as x^-2.5 has a mean and no variance. Of 1000 runs, so a rate of 1 % is known to 0.3 %."""

    @pytest.mark.parametrize("n", [256, 1024, 4096])
    @pytest.mark.parametrize("equation", ["student", "pareto"])
    def test_heavy(self, equation, n):
        assert flagged(equation, n) >= 0.99

    @pytest.mark.parametrize("n", [64, 256, 1024, 4096])
    @pytest.mark.parametrize("equation", ["gaussian", "uniform"])
    def test_light(self, equation, n):
        assert flagged(equation, n) <= 0.01

    @pytest.mark.parametrize("n", [1024, 4096])
    def test_a_skew_light_tail(self, n):
        """Of 256 replicates its largest dozen do not tell it from a heavy one: a third of runs is flagged."""
        assert flagged("exponential", n) <= 0.01

    def test_slope_of_a_pareto(self):
        """The density of X^-1/1.5, X uniform, falls as x^-2.5: Hill's estimate of 1.5 has a relative error of 1/sqrt(k).

        The median of 1000 runs is off by 2 % from one in twenty being a thin tail; 5 % are allowed, ten errors of a median.
        """
        rows = np.random.default_rng(2).pareto(1.5, (RUNS, 1024)) + 1
        largest = np.sort(rows, axis=1)[:, :-33:-1]
        slope = tail_slope(largest, np.full(RUNS, 1024.0))
        assert abs(np.median(slope) - 2.5) < 0.05 * 2.5
        assert abs(np.std(slope) / (1.5 / np.sqrt(31)) - 1) < 0.2

    def test_slope_of_a_gaussian(self):
        """Falls faster than any power: of more replicates, further out, steeper."""
        slopes = [
            np.median(tails_of(np.random.default_rng(3).normal(size=(200, n))).slope)
            for n in (256, 1024, 4096)
        ]
        assert slopes == sorted(slopes)
        assert slopes[-1] > 8

    def test_the_heavier_side_counts(self):
        rows = np.random.default_rng(4).pareto(1.5, (50, 1024))
        one, other = tails_of(rows), tails_of(-rows)
        np.testing.assert_allclose(one.slope, other.slope)
        assert one.is_heavy.all()
        assert other.is_heavy.all()

    def test_too_few_to_tell(self):
        few = tails_of(np.random.default_rng(5).standard_t(1.5, (200, 255)))
        assert np.isnan(few.slope).all()
        assert not few.is_heavy.any()


@functools.cache
def exponential_of_a_square():
    """g = exp(0.4 x^2) of X ~ N(x, 1): a mean, since 0.4 < 1/2, and no variance, since 0.4 > 1/4. Its density falls as x^-2.25."""
    return scasml.Problem(
        dim=1, horizon=1.0, diffusion=1.0, terminal=lambda x: jnp.exp(0.4 * x @ x)
    )


class TestHeavyTail:
    @pytest.mark.parametrize("points", [1, 20])
    def test_found(self, points):
        x = np.linspace(-0.5, 0.5, points)[:, None]
        got = scasml.correct(
            exponential_of_a_square(), None, 0.0, x, method=Picard(1, 1), replicates=1024
        )
        assert got.tails.is_heavy.all()
        (finding,) = [f for f in got.diagnose().findings if f.kind == "heavy tail"]
        assert f"point {'0, 1, 2, 3, 4 and 15 more' if points > 1 else 0}: " in finding.text
        assert float(re.findall(r"falls as x\^-([0-9.]+) ", finding.text)[0]) < 3

    def test_not_found(self):
        x = np.random.default_rng(0).normal(size=(20, 3))
        got = scasml.correct(heat()[0], None, 0.0, x, method=Picard(1, 1), replicates=1024)
        assert "heavy tail" not in got.diagnose().kinds


# The same problem, surrogates and method for all findings below, so one program.
PROBLEM, EXACT = manufactured(uses_z=False)
METHOD = Picard(2, 2)
T = np.array([0.3, 0.5, 0.6, 0.7, 0.75, 0.78], np.float32)
X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


class Off(eqx.Module):
    """The solution plus so much of `rough`, NaN at times from `low` to `high`: all data."""

    share: Any
    low: Any
    high: Any

    def __call__(self, t: Any, x: Any) -> Any:
        return jnp.where(
            (t >= self.low) & (t <= self.high), jnp.nan, EXACT(t, x) + self.share * rough(t, x)
        )


def correct(share=0.1, hole=(2.0, 1.0), **options):
    surrogate = Off(*map(jnp.float32, (share, *hole)))
    options = {"method": METHOD, "replicates": 100, "with_gradient": False, **options}
    return scasml.correct(PROBLEM, surrogate, T, X, **options)


ONE, EVERYWHERE = (T[4], T[4]), (0.0, 1.0)


@functools.cache
def healthy():
    return correct()


def texts(answer, kind):
    found = [finding.text for finding in answer.diagnose().findings if finding.kind == kind]
    assert found, f"{answer.diagnose().kinds} lacks {kind}"
    for text in found:
        assert "\n" not in text
        assert text.endswith(".")
    return " ".join(found)


def with_levels(answer, **changes):
    (levels,) = answer.levels
    return dataclasses.replace(answer, levels=(dataclasses.replace(levels, **changes),))


class TestFindings:
    def test_healthy(self):
        got = healthy().diagnose()
        assert got.findings == ()
        assert str(got).startswith("- nothing is wrong that these checks can see\n\n")

    def test_table(self):
        """A row for each increment, and its figures."""
        (levels,) = healthy().levels
        head, *rows = healthy().diagnose().table.split("\n")
        assert head.split()[:4] == ["increment", "mean", "variance", "kurtosis"]
        assert [row[:10].strip() for row in rows] == ["terminal", "level 0", "level 1"]
        for k, row in enumerate(rows):
            figures = [float(figure.replace(",", "")) for figure in row[10:].split()]
            want = [a[:, k].mean() for a in (levels.mean, levels.variance, levels.kurtosis)]
            np.testing.assert_allclose(figures[:3], want, rtol=0.1, atol=0.05)
            cost = METHOD.costs(PROBLEM)[k]
            assert figures[3:] == [cost.functions, cost.random_numbers]
        assert str(healthy().diagnose()).endswith(healthy().diagnose().table)

    def test_not_finite(self):
        assert texts(correct(hole=ONE), "not finite").startswith("point 4: ")

    def test_few_replicates(self):
        """One replicate of a hundred is ten deviations out: the variance is all its own."""
        rows = np.random.default_rng(6).normal(size=(6, 96))
        rows[:, 7] = 15.0
        got = dataclasses.replace(
            healthy(), tails=dataclasses.replace(tails_of(rows), is_heavy=np.zeros(6, bool))
        )
        assert "known to" in texts(got, "few replicates")
        assert (
            "few replicates"
            not in dataclasses.replace(got, tails=tails_of(np.delete(rows, 7, 1))).diagnose().kinds
        )

    def test_bias(self):
        """Of `rough` alone the bias is several standard errors, from levels that are not there."""
        text = texts(correct(share=1.0, replicates=1000), "bias")
        assert "more replicates hardly help" in text
        assert "one more Picard level" in text

    @pytest.mark.parametrize(
        ("part", "cure"),
        [
            ("levels", "one more Picard level"),
            ("noise", "more samples"),
            ("steps", "more steps"),
            ("rounding", "float64"),
        ],
    )
    def test_the_largest_bias_is_named(self, part, cure):
        bias = {
            name: np.full(6, 1.0 if name == part else 0.1)
            for name in ("levels", "noise", "steps", "rounding")
        }
        got = dataclasses.replace(with_levels(healthy(), bias=bias), bias=np.full(6, 1.2))
        assert cure in texts(got, "bias")

    def test_unknown_bias(self):
        got = dataclasses.replace(healthy(), bias=np.full(6, np.nan))
        assert "cannot be told" in texts(got, "bias")

    def test_tolerance(self):
        """How long it takes, by the law of 1/sqrt(N)."""
        got = correct(atol=1e-4, replicates=60)
        assert got.unmet.sum() == 6
        got = dataclasses.replace(with_levels(got, seconds_per_replicate=2.0), bias=np.zeros(6))
        text = texts(got, "tolerance")
        needed = got.budget.needed(got.raw_value, np.full(6, 60.0), got.stderr, got.bias)
        hours = float(re.findall(r"about ([0-9]+) hours more", text)[0])
        assert abs(hours - 2 * np.sum(needed - 60) / 3600) <= 0.5
        assert "at point 0, 1, 2, 3, 4 and 1 more" in text
        assert "no number" not in text

    def test_tolerance_below_the_bias(self):
        got = correct(share=1.0, atol=1e-3, replicates=100)
        assert (got.status == "bias above tolerance").any()
        assert "the bias alone exceeds it" in texts(got, "tolerance")

    def test_tolerance_and_a_nan(self):
        got = correct(hole=ONE, atol=0.5)
        assert "tolerance" not in got.diagnose().kinds
        assert "not finite" in got.diagnose().kinds

    def test_no_tolerance_is_missed(self):
        assert "tolerance" not in correct(atol=0.5).diagnose().kinds

    def test_useless_surrogate(self):
        assert "compare with surrogate None" in texts(correct(share=4.0), "surrogate")

    def test_surrogate_within_the_noise(self):
        got = healthy()
        close = dataclasses.replace(got, raw_value=got.surrogate_value + 1.5 * got.stderr)
        assert "cannot be told from its noise" in texts(close, "surrogate")

    def test_no_surrogate_no_finding(self):
        useless = correct(share=4.0)
        assert "surrogate" in useless.diagnose().kinds
        assert "surrogate" not in dataclasses.replace(useless, has_surrogate=False).diagnose().kinds

    def test_level(self):
        """The last level all noise and next to no mean."""
        noise, mean = np.full((6, 3), 1e-4), np.full((6, 3), 1e-3)
        noise[:, 2] = 1.0
        text = texts(with_levels(healthy(), variance=noise, mean=mean), "level")
        assert "level 1 makes 100 % of the variance and adds only 0.001" in text
        mean[:, 2] = 0.2
        assert "level" not in with_levels(healthy(), variance=noise, mean=mean).diagnose().kinds

    def test_telescoping(self):
        off = np.zeros((6, 1))
        off[3] = -7.0
        assert "differ by 7 standard errors" in texts(
            with_levels(healthy(), telescoping=off), "telescoping"
        )
        off[3] = -4.0
        assert "telescoping" not in with_levels(healthy(), telescoping=off).diagnose().kinds

    @pytest.mark.parametrize(
        "options",
        [
            {"replicates": 2},
            {"replicates": 20, "hole": ONE},
            {"replicates": 1},
            {"hole": EVERYWHERE},
        ],
        ids=["two", "one NaN", "one", "all NaN"],
    )
    def test_it_does_not_warn(self, options):
        with warnings.catch_warnings(action="ignore"):
            got = correct(**options)
        assert "increment" in str(got.diagnose())


class TestTelescoping:
    def test_picard(self):
        """What level 1 adds and what level 2 takes off have one mean: 4 t statistics, each beyond 5 once in 10^6."""
        problem, _ = manufactured(dim=2, uses_z=False)
        x = np.random.default_rng(0).normal(size=(4, 2))
        with jax.numpy_rank_promotion(
            "allow"
        ):  # as in the kernel's own threads, so that it is compiled once
            got = scasml.correct(
                problem, None, 0.0, x, method=Picard(3, 2), replicates=600, with_gradient=False
            )
        (levels,) = got.levels
        assert levels.telescoping.shape == (4, 1)
        assert np.all(np.abs(levels.telescoping) < 5)
        assert np.all(levels.telescoping != 0)
        assert "telescoping" not in got.diagnose().kinds

    def test_two_levels_have_nothing_to_compare(self):
        (levels,) = healthy().levels
        assert levels.telescoping.shape == (6, 0)


class TestJackknife:
    def test_noise_inside_a_square(self):
        """F = -|z|^2 of a noisy z is too low by the variance of z, and that is nearly all of the error here.

        The mean of 4096 replicates is known to 0.0018, the bias is 0.024, and its estimate from 16 halved
        replicates has a relative error of 8 % over seeds: a factor of 3 is never missed by chance.
        """
        problem = problems.hjb(dim=10)
        options = {"method": Picard(2, 4), "replicates": 4096, "with_gradient": False}
        with jax.numpy_rank_promotion("allow"):  # as above
            got = scasml.correct(problem, None, 0.0, problem.x0, **options)
        true = float(got.value - got.exact())
        noise = float(got.levels[0].bias["noise"][0])
        assert true < -6 * got.stderr
        assert abs(true) / 3 < noise < abs(true) * 3
        low, high = got.interval(0.95)
        assert low < got.exact() < high
        low, high = got.interval(0.95, include_bias=False)
        assert not low < got.exact() < high
