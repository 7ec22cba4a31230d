"""Rounding: its error is measured, and intervals cover it if it is the only error."""

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import accumulator
from scasml import Linearised, Picard, problems
from scasml.execution import LocalExecutor
from scasml.execution.rounding import rounding_error
from scasml.surrogates import wrap

POINTS = np.random.default_rng(0).uniform(-1, 1, (64, 20))


def total(x):
    """Return the sum of 20 numbers. 1000 is added first and subtracted last, so it is rounded."""
    result = jnp.asarray(1000, x.dtype)
    for each in x:
        result = result + each
    return result - 1000


class TestFunction:
    """The rounding error of value and gradient of a function."""

    @staticmethod
    def error(model, x):
        return rounding_error(LocalExecutor(), model, x)

    def test_the_error_is_covered(self):
        """It is some units in the last place of 1000, not of the sum, which is near 1."""
        x = POINTS.astype(np.float32)
        value, slope = self.error(total, x)
        actual = LocalExecutor().map(total, x).astype(np.float64)
        assert np.all(np.abs(actual - POINTS.sum(1)) <= value)
        assert 1e-5 < np.median(value) < 3e-4
        assert np.all(slope == 0)

    @pytest.mark.usefixtures("x64")
    def test_in_float64_only_the_rounding_of_x_is_known(self):
        value, _ = self.error(total, POINTS)
        assert np.all(value < 1e-14)

    def test_the_rounding_of_x(self):
        """The sum is exact in float32, but the numbers are not."""
        x = np.array([[0.1, -0.1 + 1e-9]])
        value, _ = self.error(jnp.sum, x.astype(np.float32))
        assert abs(x.astype(np.float32).sum() - x.sum()) <= value[0] < 1e-7

    def test_a_model_that_works_in_float32_only(self):
        def model(x):
            if x.dtype == np.float64:
                raise TypeError("a carry of float32")
            return jnp.sum(x)

        value, slope = self.error(model, POINTS.astype(np.float32))
        assert np.all((value > 0) & (value < 1e-6))
        assert np.all(slope == 0)


def plane(x):
    return jnp.sum(x) + 1000.0


class TestAnswer:
    """u = sum(x) + 1000 and g are the same function, so every correction is 0.

    All of the error is rounding, some units of 6e-5.
    """

    problem = scasml.Problem(dim=20, horizon=1.0, terminal=plane)

    def answer(self, surrogate=lambda t, x: plane(x), **options):
        return scasml.correct(
            self.problem, surrogate, 0.5, POINTS, replicates=8, safe=False, **options
        )

    @pytest.mark.parametrize("method", ["auto", Picard(1, 4), Linearised(samples=4)])
    def test_the_interval_covers_it(self, method):
        got, truth = self.answer(method=method), 1000 + POINTS.sum(1)
        low, high = got.interval()
        assert np.mean((low <= truth) & (truth <= high)) > 0.9
        np.testing.assert_array_less(got.stderr, 1e-4)
        np.testing.assert_array_less(got.bias, 1e-3)

    def test_it_is_smaller_in_float64(self):
        single = self.answer(method=Picard(1, 4))
        double = self.answer(method=Picard(1, 4), dtype="float64")
        np.testing.assert_array_less(double.bias, 1e-7 * single.bias)
        np.testing.assert_array_less(double.gradient_bias, 1e-6)

    def test_a_tolerance_below_it_is_not_met_and_float64_is_advised(self):
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

    def test_it_is_one_unit_in_the_last_place_at_least(self):
        """The constant is a number of float32, so no other rounding is visible."""
        constant = lambda t, x: 1000.0 + 0 * x[0]
        problem = scasml.Problem(dim=2, horizon=1.0, terminal=lambda x: constant(0.0, x))
        got = scasml.correct(problem, constant, 0.5, np.ones(2), method=Picard(1, 4), replicates=8)
        assert got.bias == 1000 * np.finfo(np.float32).eps

    def test_the_rounding_of_a_surrogate_that_is_not_the_start(self):
        """The surrogate is added and subtracted all the same."""
        problem = problems.hjb(4)

        def rounding(constant):
            model = wrap(lambda t, x: constant + jnp.sum(x**2), problem)
            total = accumulator(problem, Picard(1, 1), surrogate=model, start=None)
            assert list(total.run(np.array([2])))
            return total.biases()["rounding"]

        assert rounding(1e5) > 100 * rounding(0.5)
