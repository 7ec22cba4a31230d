"""The level bias is unknown where F is too steep, and the bias of a gradient has its units."""

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import Tuned, accumulator, task
from scasml import Linearised, Picard
from scasml._planning.candidates import try_candidate
from scasml._planning.starts import given_start
from scasml.execution.stopping import StoppingRule
from scasml.surrogates import wrap


def cubic(horizon=1.0):
    """F = -u^3 with u about 2: the steepness 3 u^2 (T - t) is far above 1 at the solution."""
    return scasml.Problem(
        dim=1,
        horizon=horizon,
        diffusion=0.2,
        nonlinearity=lambda t, x, u, z: -(u**3),
        terminal=lambda x: 2.0 + 0.1 * jnp.sin(x[0]),
    )


def quadratic_in_z():
    """F = |z|^2 with a steep solution: the steepness |2 z|^2 (T - t) is far above 1."""
    return scasml.Problem(
        dim=1,
        horizon=1.0,
        diffusion=1.0,
        nonlinearity=lambda t, x, u, z: z @ z,
        terminal=lambda x: 2.0 * x[0],
    )


class TestStartFromZero:
    """A run from zero evaluates the steepness at its own estimate, not at zero."""

    def test_without_a_gradient(self):
        """F_z = 2 z is zero at z = 0 and 4 at the solution."""
        options = {"method": Picard(2, 8), "replicates": 8}
        with_gradient = scasml.correct(quadratic_in_z(), None, 0.0, [0.0], **options)
        without = scasml.correct(quadratic_in_z(), None, 0.0, [0.0], with_gradient=False, **options)
        assert np.isnan(with_gradient.bias)
        assert np.isnan(without.bias)

    def test_with_a_surrogate(self):
        """A run may start from zero although a surrogate was passed; F_u = 0 at u = 0."""
        useless = wrap(lambda t, x: 50.0 + jnp.sin(x[0]), cubic())
        total = accumulator(cubic(), Picard(2, 8), surrogate=useless, start=None, gradient=False)
        assert list(total.run(np.array([2])))
        assert np.isnan(total.bias()).all()

    def test_a_candidate(self):
        """The pilot of a candidate from zero refuses it, although a surrogate was passed."""
        problem = cubic()
        useless = wrap(lambda t, x: 50.0 + jnp.sin(x[0]), problem)
        t, x = np.zeros(1, np.float32), np.zeros((1, 1), np.float32)
        some = task(problem, t, x, StoppingRule(rtol=0.1), useless)
        start = given_start(problem, None, None)
        estimator = Picard(2, 16, pairs=True, allocation="measured")
        assert np.isinf(try_candidate(some, start, estimator, some.everywhere).score).all()

    def test_a_flat_nonlinearity_has_a_known_bias(self):
        flat = scasml.Problem(
            dim=1,
            horizon=1.0,
            diffusion=0.2,
            nonlinearity=lambda t, x, u, z: -0.01 * u**3,
            terminal=lambda x: 2.0 + 0.1 * jnp.sin(x[0]),
        )
        answer = scasml.correct(flat, None, 0.0, [0.0], method=Picard(2, 8), replicates=8)
        assert np.isfinite(answer.bias)


def test_the_level_bias_of_an_estimator_from_outside_is_believed():
    """Only an `AbstractTunable` has a largest steepness."""
    method = Picard(2, 4)
    outside = Tuned(method, method.default_tuning(cubic(0.02), False))
    total = accumulator(cubic(0.02), outside, surrogate=None, start=None, gradient=False)
    assert list(total.run(np.array([2])))
    assert total.biases()["levels"] > 0


class TestUnitsOfTheGradient:
    """The same problem with x in 1/1024 has a gradient, and a bias of it, 1024 times larger."""

    @staticmethod
    def problem(unit):
        return scasml.Problem(
            dim=2,
            horizon=1.0,
            diffusion=0.5 * unit,
            nonlinearity=lambda t, x, u, z: 0.1 * jnp.sin(2 * u) + 0.02 * z @ z,
            terminal=lambda x: jnp.cos(jnp.sum(x) / unit + 0.3),
        )

    @pytest.mark.parametrize("method", [Linearised(4, 64, sampling="mc"), Picard(2, 4)])
    def test_it_scales(self, method):
        # At x = 0 both problems have the same keys, and so the same noise. A power of two changes
        # no digits.
        options = {"method": method, "replicates": 4, "dtype": "float64"}
        one = scasml.correct(self.problem(1.0), None, 0.0, np.zeros(2), **options)
        other = scasml.correct(self.problem(2.0**-10), None, 0.0, np.zeros(2), **options)
        # A bias of rounding alone is far smaller.
        assert np.all(one.gradient_bias > 1e-6)
        np.testing.assert_allclose(other.gradient_bias, 2**10 * one.gradient_bias, rtol=1e-6)

    def test_one_steep_point_makes_every_component_unknown(self):
        """Also if the first component of the gradient of the last increment is zero."""
        steep = scasml.Problem(
            dim=2,
            horizon=1.0,
            diffusion=0.5,
            nonlinearity=lambda t, x, u, z: 30.0 * jnp.sin(u) * x[1],
            terminal=lambda x: jnp.cos(x[1]),
        )
        answer = scasml.correct(steep, None, 0.0, [0.0, 1.0], method=Picard(2, 8), replicates=8)
        assert np.isnan(answer.bias)
        assert np.isnan(answer.gradient_bias).all()
