"""The bias of `Picard`: its estimate from the increments, and the variants that measure noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import heat, manufactured, replicate
from scasml import Picard
from scasml.estimators import Variant

TIME = {"full-history": {}, "quadrature": {"time": "quadrature", "nodes": 2}}
VARIANTS = (
    Variant.MAIN,
    Variant.HALF_A,
    Variant.HALF_B,
    Variant.NOISE,
    Variant.MINUS_NOISE,
)


def test_the_bias_is_unknown_if_the_increments_do_not_show_it():
    """A quadrature in time and a threshold bias even a linear problem."""
    problem, _ = heat()
    zero = np.zeros((1, 2))
    assert np.isnan(Picard(1, 2, time="quadrature").level_bias(problem, zero, zero)).all()
    assert np.isnan(Picard(1, 2, threshold=0.1).level_bias(problem, zero, zero)).all()
    assert (Picard(1, 2).level_bias(problem, zero, zero) == 0).all()


def test_the_bias_is_unknown_if_samples_cannot_be_halved():
    """With one sample inside F, its noise causes a bias that no half of it can measure."""
    problem, _ = manufactured(uses_z=False)
    increments = np.ones((3, 3))
    assert np.isnan(Picard(2, 1).level_bias(problem, increments, increments)).all()
    assert np.isfinite(Picard(2, 2).level_bias(problem, increments, increments)).all()


def test_the_bias_extrapolates_the_last_two_increments():
    problem, _ = manufactured()
    mean, size = np.array([[9.0, 9.0, 0.4, 0.1]]), np.zeros((1, 4))
    bias = lambda method, mean, size: method.level_bias(problem, mean, size)
    np.testing.assert_allclose(bias(Picard(3, 2), mean, size), 0.1 * 0.25 / 0.75)
    np.testing.assert_allclose(bias(Picard(3, 2), mean[:, [0, 1, 3, 2]], size), 0.4)
    np.testing.assert_allclose(bias(Picard(2, 2), mean[:, :3], size[:, :3]), 0.4)


@pytest.mark.parametrize(("sigma0", "is_steep"), [(0.25, False), (3.0, True)])
def test_the_bias_is_unknown_where_f_is_steep(sigma0, is_steep):
    """The steepness of Burgers' F in z is sigma0^2 u^2 d (T - t).

    It is 0.03 and 4.5 in the middle of the wave, and almost zero far behind it.
    """
    x = np.array([[0.0, 0.0, 0.0, 0.0], [-3.0, -3.0, -3.0, -3.0]])
    surrogate = lambda t, x: jax.nn.sigmoid(1.02 * t + jnp.sum(x))
    answer = scasml.correct(
        scasml.problems.burgers(4, sigma0), surrogate, 0.0, x, method=Picard(2, 2), replicates=4
    )
    assert np.isnan(answer.bias).tolist() == [is_steep, False]
    assert np.isnan(answer.gradient_bias).all(1).tolist() == [is_steep, False]
    assert ("too steep" in str(answer.diagnose())) == is_steep


class TestVariants:
    """The variants of a replicate that measure what noise inside F does."""

    @staticmethod
    def last(terminal, nonlinearity, levels=2, samples=4, **options):
        """Return, by variant, the last increment of one replicate, the first one, and its slope."""
        problem = scasml.Problem(
            dim=2, horizon=0.5, diffusion=0.8, terminal=terminal, nonlinearity=nonlinearity
        )
        method = Picard(levels, samples, **options)

        @jax.jit
        def run(variant):
            key, x = jax.random.key(3), jnp.array([0.2, -0.3])
            got = replicate(method, problem, key, 0.1, x, variant=variant)
            return got.increments[-1], got.increments[0], got.gradient_increments[-1]

        return {variant: run(int(variant)) for variant in VARIANTS}

    @pytest.mark.usefixtures("x64")
    @pytest.mark.parametrize(
        ("gradient", "time"),
        [
            ("pathwise", "full-history"),
            ("mixed", "quadrature"),
            ("centred", "full-history"),
            ("weights", "quadrature"),
        ],
    )
    def test_jackknife_and_noise_alone_agree_on_a_quadratic(self, gradient, time):
        """(F(a) + F(b))/2 - F((a + b)/2) = F(e) - F(0) with e = (a - b)/2, if F has no linear part.

        The equation holds sample by sample.
        """
        # Centred weights centre each half at its own mean, so z is left out for them.
        factor = 0.3 if gradient in ("pathwise", "mixed") else 0.0
        got = self.last(
            lambda x: jnp.sum(jnp.sin(x)),
            lambda t, x, u, z: u**2 - factor * jnp.sum(z) ** 2,
            gradient=gradient,
            **TIME[time],
        )
        for i in (0, 2):
            halves = (got[Variant.HALF_A][i] + got[Variant.HALF_B][i]) / 2
            jackknife = halves - got[Variant.MAIN][i]
            alone = (got[Variant.NOISE][i] + got[Variant.MINUS_NOISE][i]) / 2
            assert np.all(jackknife != 0)
            if not (i == 2 and gradient in ("centred", "weights")):
                np.testing.assert_allclose(alone, jackknife, rtol=1e-9)

    @pytest.mark.usefixtures("x64")
    def test_noise_alone_does_not_depend_on_the_solution(self):
        """A constant that is added to g is added to U, but not to the difference of its halves."""
        bend = lambda t, x, u, z: jnp.cos(3 * u)
        low, high = (
            self.last(lambda x, c=c: jnp.sum(x) + c, bend)[Variant.NOISE][0] for c in (0.0, 50.0)
        )
        np.testing.assert_allclose(low, high, rtol=1e-9)
        assert low != 0

    @pytest.mark.usefixtures("x64")
    @pytest.mark.parametrize("levels", [2, pytest.param(3, marks=pytest.mark.slow)])
    def test_noise_in_a_linear_function_has_no_bias(self, levels):
        got = self.last(lambda x: 3 + jnp.sum(x), lambda t, x, u, z: 0.5 * u, levels)
        assert got[Variant.NOISE][0] != 0
        np.testing.assert_allclose(got[Variant.NOISE][0], -got[Variant.MINUS_NOISE][0], rtol=1e-9)

    def test_variants_compute_the_last_increment_only(self):
        got = self.last(jnp.sum, lambda t, x, u, z: u**2)
        assert got[Variant.MAIN][1] != 0
        assert all(got[variant][1] == 0 for variant in VARIANTS[1:])

    def test_a_bias_that_the_jackknife_cannot_see(self):
        """F = min(1, u^2) is 1 for noise of size 20, and for twice that noise too.

        The solution of F = 0 with a g of mean 0 is 0, so the bias is about 1.
        """
        problem = scasml.Problem(
            dim=2,
            horizon=1.0,
            diffusion=1.0,
            terminal=lambda x: 60 * jnp.sum(jnp.sin(5 * x)),
            nonlinearity=lambda t, x, u, z: jnp.minimum(1, u**2),
        )
        answer = scasml.correct(
            problem, None, 0.0, np.zeros((8, 2)), method=Picard(2, 4), replicates=32, safe=False
        )
        assert np.all(answer.bias > 0.4)
