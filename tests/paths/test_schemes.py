"""Conformance tests of every registered stepping scheme, and the registration of a new one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from scasml.paths import SCHEMES, General, Stepped

pytestmark = pytest.mark.usefixtures("x64")

DYNAMICS = {
    "scalar": General(lambda t, x: -x + t, lambda t, x: 0.5 + 0.1 * jnp.sin(x[0])),
    "diagonal": General(lambda t, x: jnp.sin(x[::-1]), lambda t, x: 0.5 * jnp.sqrt(1 + x**2)),
    "full": General(
        lambda t, x: -x, lambda t, x: jnp.diag(1 + 0.1 * x**2) + 0.2 * jnp.outer(x, x[::-1])
    ),
}
X, T = np.array([0.3, -0.4]), 0.2


@pytest.mark.parametrize("dynamics", DYNAMICS)
@pytest.mark.parametrize("name", SCHEMES)
def test_a_step_of_length_zero_keeps_the_state(name, dynamics):
    """Coarse paths contain such steps. Their derivative in x is the identity."""
    step = lambda x: SCHEMES[name](
        DYNAMICS[dynamics], jnp.asarray(T), x, jnp.zeros(()), jnp.zeros(2)
    )
    np.testing.assert_array_equal(step(jnp.asarray(X)), X)
    np.testing.assert_array_equal(jax.jacrev(step)(jnp.asarray(X)), np.eye(2))


@pytest.mark.parametrize("dynamics", DYNAMICS)
@pytest.mark.parametrize("name", SCHEMES)
def test_a_short_step_follows_the_coefficients(name, dynamics):
    """The mean and the covariance of a step are mu h and sigma sigma^T h, up to h^2.

    A Gauss-Hermite rule integrates the normal numbers, so the test is deterministic.
    """
    h, field = 1e-5, DYNAMICS[dynamics]
    nodes, weights = np.polynomial.hermite_e.hermegauss(6)
    xi = np.stack(np.meshgrid(nodes, nodes), -1).reshape(-1, 2)
    mass = np.outer(weights, weights).ravel() / (2 * np.pi)
    t, x = jnp.asarray(T), jnp.asarray(X)
    moved = jax.vmap(lambda dw: SCHEMES[name](field, t, x, jnp.asarray(h), dw))(np.sqrt(h) * xi)
    moved = np.asarray(moved) - X
    sigma = field.diffusion(t, x)
    sigma = sigma if sigma.ndim == 2 else jnp.diag(jnp.broadcast_to(sigma, (2,)))
    np.testing.assert_allclose(mass @ moved / h, field.drift(t, x), atol=1e-3)
    covariance = np.einsum("n,ni,nj->ij", mass, moved, moved) / h
    np.testing.assert_allclose(covariance, sigma @ sigma.T, atol=1e-3)


def test_a_registered_scheme_is_found_by_its_name(monkeypatch):
    """Heun's method without noise has second order, where Euler's has first order."""

    def heun(dynamics, t, x, h, dw):
        first = dynamics.drift(t, x)
        return x + h / 2 * (first + dynamics.drift(t + h, x + h * first))

    monkeypatch.setitem(SCHEMES, "heun", heun)
    dynamics = General(lambda t, x: -x, 1.0)
    end = lambda steps: (
        Stepped(dynamics=dynamics, scheme="heun", steps=steps)
        .move(jnp.zeros((steps, 1)), jnp.zeros(()), jnp.ones(1), jnp.ones(()), False)
        .x
    )
    error = [float(jnp.abs(end(steps) - jnp.exp(-1.0))[0]) for steps in (16, 32)]
    assert 3.8 < error[0] / error[1] < 4.3
