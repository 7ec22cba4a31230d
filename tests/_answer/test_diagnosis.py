"""`diagnose()`: each finding is reported where it is true, and not for a healthy run."""

import dataclasses
import functools
import re
import warnings
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from test_levels import tails_of

import scasml
from helpers import manufactured, rough
from scasml import Picard
from scasml.execution.stopping import Estimate

# One problem, one kind of surrogate and one method serve all tests, so one program is compiled.
PROBLEM, EXACT = manufactured(uses_z=False)
METHOD = Picard(2, 2)
T = np.array([0.3, 0.5, 0.6, 0.7, 0.75, 0.78], np.float32)
X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)


class Off(eqx.Module):
    """The solution plus `factor` times `rough`, but NaN at times from `low` to `high`.

    All three numbers are data.
    """

    factor: Any
    low: Any
    high: Any

    def __call__(self, t: Any, x: Any) -> Any:
        return jnp.where(
            (t >= self.low) & (t <= self.high), jnp.nan, EXACT(t, x) + self.factor * rough(t, x)
        )


def correct(factor=0.1, hole=(2.0, 1.0), **options):
    surrogate = Off(*map(jnp.float32, (factor, *hole)))
    options = {"method": METHOD, "replicates": 100, "with_gradient": False, **options}
    return scasml.correct(PROBLEM, surrogate, T, X, **options)


ONE, EVERYWHERE = (T[4], T[4]), (0.0, 1.0)


@functools.cache
def healthy():
    return correct()


def texts(answer, kind):
    """Return the text of the findings of one kind, which must exist."""
    found = [finding.text for finding in answer.diagnose().findings if finding.kind == kind]
    assert found, f"{answer.diagnose().kinds} lacks {kind}"
    for text in found:
        assert "\n" not in text
        assert text.endswith(".")
    return " ".join(found)


def with_levels(answer, **changes):
    """Return the answer with other statistics of its increments."""
    (levels,) = answer.levels
    return dataclasses.replace(answer, levels=(dataclasses.replace(levels, **changes),))


def test_healthy():
    got = healthy().diagnose()
    assert got.findings == ()
    assert str(got).startswith("- nothing is wrong that these checks can see\n\n")


def test_the_table_has_a_row_for_each_increment():
    (levels,) = healthy().levels
    head, *rows = healthy().diagnose().table.split("\n")
    assert head.split()[:4] == ["increment", "mean", "variance", "kurtosis"]
    assert [row[:10].strip() for row in rows] == ["terminal", "level 0", "level 1"]
    costs = METHOD.evaluations(PROBLEM, METHOD.default_tuning(PROBLEM, False))
    for k, row in enumerate(rows):
        figures = [float(figure.replace(",", "")) for figure in row[10:].split()]
        want = [a[:, k].mean() for a in (levels.mean, levels.variance, levels.kurtosis)]
        np.testing.assert_allclose(figures[:3], want, rtol=0.1, atol=0.05)
        assert figures[3:] == [costs[k].functions, costs[k].random_numbers]
    assert str(healthy().diagnose()).endswith(healthy().diagnose().table)


def test_the_table_names_the_points_of_several_programs():
    (levels,) = healthy().levels
    parts = [dataclasses.replace(levels, points=np.array(at)) for at in ([0, 2], [1, 3, 4, 5])]
    _, *rows = dataclasses.replace(healthy(), levels=tuple(parts)).diagnose().table.split("\n")
    assert rows[::4] == ["at point 0, 2:", "at point 1, 3, 4, 5:"]
    assert rows[1:4] == rows[5:] == healthy().diagnose().table.split("\n")[1:]


def test_not_finite():
    assert texts(correct(hole=ONE), "not finite").startswith("point 4: ")


def test_few_replicates():
    """One replicate of a hundred is ten deviations out, and makes most of the variance."""
    rows = np.random.default_rng(6).normal(size=(6, 96))
    rows[:, 7] = 15.0
    loose = dataclasses.replace(tails_of(rows), is_heavy=np.zeros(6, bool))
    got = dataclasses.replace(healthy(), tails=loose)
    assert "known to" in texts(got, "few replicates")
    fine = dataclasses.replace(got, tails=tails_of(np.delete(rows, 7, 1)))
    assert "few replicates" not in fine.diagnose().kinds


class TestBias:
    def test_a_large_bias(self):
        """Omitted levels leave a bias of several standard errors."""
        text = texts(correct(factor=1.0, replicates=1000), "bias")
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
    def test_the_largest_part_is_named(self, part, cure):
        bias = {
            name: np.full(6, 1.0 if name == part else 0.1)
            for name in ("levels", "noise", "steps", "rounding")
        }
        got = dataclasses.replace(with_levels(healthy(), bias=bias), bias=np.full(6, 1.2))
        assert cure in texts(got, "bias")

    def test_an_unknown_bias(self):
        got = dataclasses.replace(healthy(), bias=np.full(6, np.nan))
        assert "cannot be told" in texts(got, "bias")


class TestTolerance:
    def test_the_time_that_it_takes(self):
        """It follows from the 1/sqrt(N) law."""
        got = correct(atol=1e-4, replicates=60)
        assert got.unmet.sum() == 6
        got = dataclasses.replace(with_levels(got, seconds_per_replicate=2.0), bias=np.zeros(6))
        text = texts(got, "tolerance")
        needed = got.rule.needed(Estimate(got.raw_value, np.full(6, 60.0), got.stderr, got.bias))
        hours = float(re.findall(r"about ([0-9]+) hours more", text)[0])
        assert abs(hours - 2 * np.sum(needed - 60) / 3600) <= 0.5
        assert "at point 0, 1, 2, 3, 4 and 1 more" in text
        assert "no number" not in text

    def test_a_tolerance_below_the_bias(self):
        got = correct(factor=1.0, atol=1e-3, replicates=100)
        assert (got.status == "bias above tolerance").any()
        assert "the bias alone exceeds it" in texts(got, "tolerance")

    def test_a_value_that_is_not_finite_misses_no_tolerance(self):
        got = correct(hole=ONE, atol=0.5)
        assert "tolerance" not in got.diagnose().kinds
        assert "not finite" in got.diagnose().kinds

    def test_a_tolerance_that_is_met(self):
        assert "tolerance" not in correct(atol=0.5).diagnose().kinds


class TestSurrogate:
    def test_a_useless_surrogate(self):
        assert "compare with surrogate None" in texts(correct(factor=4.0), "surrogate")

    def test_a_surrogate_within_the_noise(self):
        got = healthy()
        close = dataclasses.replace(got, raw_value=got.surrogate_value + 1.5 * got.stderr)
        assert "cannot be told from its noise" in texts(close, "surrogate")

    def test_no_surrogate_no_finding(self):
        useless = correct(factor=4.0)
        assert "surrogate" in useless.diagnose().kinds
        assert "surrogate" not in dataclasses.replace(useless, has_surrogate=False).diagnose().kinds


class TestLevels:
    def test_a_last_level_of_noise(self):
        noise, mean = np.full((6, 3), 1e-4), np.full((6, 3), 1e-3)
        noise[:, 2] = 1.0
        text = texts(with_levels(healthy(), variance=noise, mean=mean), "level")
        assert "level 1 makes 100 % of the variance and adds only 0.001" in text
        mean[:, 2] = 0.2
        assert "level" not in with_levels(healthy(), variance=noise, mean=mean).diagnose().kinds

    def test_levels_that_do_not_fit_together(self):
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
def test_a_diagnosis_raises_no_warning(options):
    with warnings.catch_warnings(action="ignore"):
        got = correct(**options)
    assert "increment" in str(got.diagnose())
