"""`diagnose()` advises what the method in use can do, and its table has the levels that it drew."""

import functools
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml import Linearised, Picard
from scasml.execution.stopping import StoppingRule

PARTS = ("levels", "noise", "steps", "rounding")


def steep(rate):
    return scasml.Problem(
        dim=1,
        horizon=1.0,
        diffusion=0.5,
        nonlinearity=lambda t, x, u, z: rate * jnp.sin(u),
        terminal=lambda x: 1.0 + 0.1 * jnp.sin(x[0]),
    )


@functools.cache
def answer(method, rate):
    """Return the answer at one point, with an axis of points."""
    options = {"replicates": 64, "with_gradient": False}
    return scasml.correct(steep(rate), None, 0.0, [[0.0]], method=method, **options)


LINEARISED = Linearised(2, 32, remainder=0)


@pytest.mark.parametrize(
    ("method", "rate", "words", "absent"),
    [
        (LINEARISED, 1.0, "remainder=8", "two levels"),
        (Picard(1, 8), 1.0, "two levels or more", "remainder"),
        (Picard(2, 32), 0.9, "one more Picard level", "a start nearer"),
    ],
)
def test_advice(method, rate, words, absent):
    text = str(answer(method, rate).diagnose())
    assert words in text
    assert absent not in text


def biased(answer, part, size):
    """Return the answer with a bias of this size, most of which is one of its parts."""
    parts = {name: np.full(1, size if name == part else 0.0) for name in PARTS}
    levels = tuple(replace(level, bias=parts) for level in answer.levels)
    return replace(answer, bias=np.full(1, size), levels=levels)


def test_the_advice_is_for_the_points_with_a_large_bias():
    """Picard served another point, so one more Picard level would not help."""
    got = biased(answer(LINEARISED, 1.0), "levels", 1.0)
    other = replace(got.choices[0], points=np.array([1]), method=Picard(2, 8))
    text = str(replace(got, choices=(*got.choices, other)).diagnose())
    assert "a start nearer to the solution" in text
    assert "Picard level" not in text


@pytest.mark.parametrize(("atol", "is_found"), [(5.0, True), (20.0, False), (None, True)])
def test_a_bias_far_below_the_tolerance_is_no_finding(atol, is_found):
    """A plan leaves out levels whose bound is below a tenth of the tolerance."""
    got = biased(answer(LINEARISED, 1.0), "levels", 1.0)
    tolerant = replace(got, rule=StoppingRule(atol=atol))
    assert ("bias" in tolerant.diagnose().kinds) == is_found


class TestLevelsOfLinearised:
    def test_the_table_has_a_row_for_each_increment_that_was_drawn(self):
        """Without R no increment of it is drawn, and the base has two steps already."""
        head, *rows = answer(LINEARISED, 1.0).diagnose().table.split("\n")
        names = [" ".join(row.split()[:-5]) for row in rows]
        assert names == ["terminal", "source", *(f"steps {2**level}" for level in range(2, 11))]
        ends = {len(row) for row in rows}
        assert ends == {len(head) - len("   per replicate")}

    def test_means_below_one_are_shown(self):
        """Few replicates draw a fine level, so its mean numbers are fractions."""
        rows = answer(LINEARISED, 1.0).diagnose().table.split("\n")
        functions = float(rows[-1].split()[-2])
        assert 0 < functions < 10
        assert functions != round(functions)

    def test_pilots_choose_the_levels_so_none_should_be_left_out(self):
        """The same statistics of a Picard run are a finding."""
        got = answer(LINEARISED, 1.0)
        (level,) = got.levels
        noise, mean = np.full(level.mean.shape, 1e-4), np.full(level.mean.shape, 1e-3)
        noise[:, -1] = 1.0
        noisy = replace(got, levels=(replace(level, variance=noise, mean=mean),))
        assert "level" not in noisy.diagnose().kinds
        other = replace(got.choices[0], method=Picard(2, 8))
        assert "level" in replace(noisy, choices=(other,)).diagnose().kinds
