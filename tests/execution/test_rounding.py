"""Intervals hold where all that is wrong is rounding."""

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml import Linearised, Picard, problems
from scasml.execution.rounding import rounding_error

POINTS = np.random.default_rng(0).uniform(-1, 1, (64, 20))


class TestOfAFunction:
    @staticmethod
    def at(model, x):
        return model(x), np.ones_like(x, float)

    @staticmethod
    def total(x):
        """Twenty numbers, one after the other, of which a thousand is taken off in the end: most of the digits go with it."""
        total = np.full(len(x), 1000, x.dtype)
        for each in x.T:
            total = total + each
        return (total - 1000).astype(float)

    def test_it_is_what_was_lost(self):
        """Some units in the last place of 1000, not of the sum, which is near 1."""
        x = POINTS.astype(np.float32)
        value, slope = rounding_error(self.at, self.total, x)
        assert np.all(np.abs(self.total(x) - POINTS.sum(1)) <= value)
        assert 1e-5 < np.median(value) < 3e-4
        assert np.all(slope == 0)

    def test_of_double_precision(self):
        """Only what rounding x did is known of it."""
        value, _ = rounding_error(self.at, self.total, POINTS)
        assert np.all(value < 1e-14)

    def test_of_x(self):
        """A sum that is exact in float32, of numbers that are not."""
        x = np.array([[0.1, -0.1 + 1e-9]])
        value, _ = rounding_error(self.at, lambda x: x.sum(1).astype(float), x.astype(np.float32))
        assert abs(x.astype(np.float32).sum() - x.sum()) <= value[0] < 1e-7

    def test_a_model_of_single_precision_alone(self):
        def model(x):
            if x.dtype == np.float64:
                raise TypeError("a carry of float32")
            return x.sum(1).astype(float)

        value, slope = rounding_error(self.at, model, POINTS.astype(np.float32))
        assert np.all((value > 0) & (value < 1e-6))
        assert np.all(slope == 0)


def plane(x):
    return jnp.sum(x) + 1000.0


class TestOfAnAnswer:
    """u = sum(x) + 1000 and g are one function, so that all of a correction is 0 and all of an error is rounding: some units of 6e-5."""

    problem = scasml.Problem(dim=20, horizon=1.0, terminal=plane)

    def answer(self, surrogate=lambda t, x: plane(x), **options):
        return scasml.correct(
            self.problem, surrogate, 0.5, POINTS, replicates=8, safe=False, **options
        )

    @pytest.mark.parametrize("method", ["auto", Picard(1, 4), Linearised(samples=4)])
    def test_it_is_in_the_interval(self, method):
        got, truth = self.answer(method=method), 1000 + POINTS.sum(1)
        low, high = got.interval()
        assert np.mean((low <= truth) & (truth <= high)) > 0.9
        np.testing.assert_array_less(got.stderr, 1e-4)
        np.testing.assert_array_less(got.bias, 1e-3)

    def test_it_is_smaller_in_float64(self):
        wide, narrow = (
            self.answer(method=Picard(1, 4)),
            self.answer(method=Picard(1, 4), dtype="float64"),
        )
        np.testing.assert_array_less(narrow.bias, 1e-7 * wide.bias)
        np.testing.assert_array_less(narrow.gradient_bias, 1e-6)

    def test_a_tolerance_below_it_is_not_met_and_float64_advised(self):
        got = scasml.correct(
            self.problem, lambda t, x: plane(x), 0.5, POINTS[:3], rtol=1e-9, method=Picard(1, 4)
        )
        assert set(got.status) <= {"bias above tolerance", "kept the surrogate"}
        assert not np.any(np.asarray(got.status) == "converged")
        assert 'dtype="float64"' in str(got.diagnose())

    def test_at_the_horizon(self):
        got, truth = scasml.correct(self.problem, None, 1.0, POINTS), 1000 + POINTS.sum(1)
        low, high = got.interval()
        assert np.mean((low <= truth) & (truth <= high)) > 0.9
        np.testing.assert_array_less(0, got.bias)
        assert "bias" not in got.diagnose().kinds

    def test_a_unit_in_the_last_place_at_least(self):
        """Of a constant that is one of float32's, where nothing else is to be seen."""
        problem = scasml.Problem(dim=2, horizon=1.0, terminal=lambda x: 1000.0 + 0 * x[0])
        got = scasml.correct(
            problem,
            lambda t, x: 1000.0 + 0 * x[0],
            0.5,
            np.ones(2),
            method=Picard(1, 4),
            replicates=8,
        )
        assert got.bias == 1000 * np.finfo(np.float32).eps

    def test_of_a_surrogate_that_was_not_started_from(self):
        """It is added and taken off all the same."""
        problem = problems.hjb(4)
        offs = [
            scasml.correct(
                problem, lambda t, x, c=c: c + jnp.sum(x**2), 0.0, POINTS[0, :4], rtol=0.1
            )
            for c in (0.5, 1e5)
        ]
        assert offs[1].choices[0].control != "the surrogate"
        assert offs[1].levels[0].bias["rounding"] > 100 * offs[0].levels[0].bias["rounding"]
