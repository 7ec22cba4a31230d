"""A gradient squared, with a source that makes sin(w^0.4), w = T - t + |x|^2/d, the solution."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import Problem, Reference
from ._zoo import ROUNDING, constructor, dimension

HORIZON = 1.0
POWER = 0.4


def _off_zero(w: Array) -> tuple[Array, Array]:
    """w made safe for negative powers, and where that was not needed: derivatives of the unused branch must be finite too."""
    regular = w > jnp.finfo(w.dtype).tiny
    return jnp.where(regular, w, 1.0), regular


class _SquareMinusSource(eqx.Module):
    """F = |z|^2 - f,    f = psi_t + |grad psi|^2 + 1/2 Lap psi,    psi = sin(w^a),    a = 0.4.

    With psi = phi(w): psi_t = -phi', grad psi = (2/d) x phi', 1/2 Lap psi = phi' + (2/d^2) |x|^2 phi''. The first and
    last phi' cancel, and with r = |x|^2/d <= w what is left is

        f = (2 r/d) (2 phi'^2 + phi'')
          = (2 a/d) (r/w) [w^(a-1) ((a - 1) cos w^a - a w^a sin w^a) + 2 a w^(2a-1) cos^2 w^a]

    written so that nothing overflows as w falls to 0. At the one singular point, t = T and x = 0, f is set to 0:
    its value all along x = 0.
    """

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        r = jnp.mean(jnp.square(x))
        w, regular = _off_zero(HORIZON - t + r)
        v = w**POWER
        sine, cosine = jnp.sin(v), jnp.cos(v)
        bracket = (
            v / w * ((POWER - 1) * cosine - POWER * v * sine + 2 * POWER * v * jnp.square(cosine))
        )
        source = 2 * POWER / x.size * (r / w) * bracket
        return jnp.sum(jnp.square(z)) - jnp.where(regular, source, 0.0)


class _Terminal(eqx.Module):
    """g = sin((|x|^2/d)^0.4), with slope 0 at its cusp x = 0."""

    def __call__(self, x: Array) -> Array:
        r, regular = _off_zero(jnp.mean(jnp.square(x)))
        return jnp.where(regular, jnp.sin(r**POWER), 0.0)


def _exact(t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    return np.sin(np.maximum(HORIZON - t + np.mean(np.square(x), axis=-1), 0.0) ** POWER)


@constructor
def quadratic_gradient(dim: int = 100) -> Problem:
    """Quadratic gradient (E, Han & Jentzen, CMS 2017), exact solution u = sin((T - t + |x|^2/d)^0.4).

    u_t + 1/2 Lap u + |grad u|^2 = f(t, x),    u(T, x) = sin((|x|^2/d)^0.4),    T = 1

    f is what the left side gives for the exact solution. It and the slope of g are unbounded at t = T, x = 0 only.
    """
    return Problem(
        dim=dimension(dim),
        horizon=HORIZON,
        diffusion=1.0,
        nonlinearity=_SquareMinusSource(),
        terminal=_Terminal(),
        name="quadratic_gradient",
        reference=Reference(
            _exact, ROUNDING, "exact, u = sin((T - t + |x|^2/d)^0.4) (E, Han & Jentzen 2017)"
        ),
    )
