"""An equation with the squared gradient as nonlinearity.

`quadratic_gradient` builds the problem. A source term makes u = sin((T - t + |x|^2/d)^0.4) its
solution.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import Problem, Reference
from ._zoo import ROUNDING, dimension, zoo

HORIZON = 1.0
POWER = 0.4


def _replace_zero(w: Array) -> tuple[Array, Array]:
    """Return w with 1 in place of values too small for negative powers, and where w is kept.

    Without the replacement, the branch that `where` does not take would have infinite derivatives.
    """
    regular = w > jnp.finfo(w.dtype).tiny
    return jnp.where(regular, w, 1.0), regular


class _SquareMinusSource(eqx.Module):
    """F = |z|^2 - f,    f = psi_t + |grad psi|^2 + 1/2 Lap psi.

    psi = sin(w^a) is the solution, with a = 0.4, r = |x|^2/d and w = T - t + r. With psi = phi(w),

        psi_t = -phi',    grad psi = (2/d) x phi',    1/2 Lap psi = phi' + (2/d^2) |x|^2 phi''

    The terms -phi' and phi' cancel, which leaves

        f = (2 r/d) (2 phi'^2 + phi'')
          = (2 a/d) (r/w) [w^(a-1) ((a - 1) cos w^a - a w^a sin w^a) + 2 a w^(2a-1) cos^2 w^a]

    Since r <= w, the second form does not overflow as w tends to 0. At the singular point t = T,
    x = 0 the code sets f to 0, which is the value of f at x = 0 for all other t.
    """

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        r = jnp.mean(jnp.square(x))
        w, regular = _replace_zero(HORIZON - t + r)
        v = w**POWER
        sine, cosine = jnp.sin(v), jnp.cos(v)
        bracket = (
            v / w * ((POWER - 1) * cosine - POWER * v * sine + 2 * POWER * v * jnp.square(cosine))
        )
        source = 2 * POWER / x.size * (r / w) * bracket
        return jnp.sum(jnp.square(z)) - jnp.where(regular, source, 0.0)


class _Terminal(eqx.Module):
    """g = sin((|x|^2/d)^0.4). Its gradient is set to 0 at the cusp x = 0."""

    def __call__(self, x: Array) -> Array:
        r, regular = _replace_zero(jnp.mean(jnp.square(x)))
        return jnp.where(regular, jnp.sin(r**POWER), 0.0)


def _exact(t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    return np.sin(np.maximum(HORIZON - t + np.mean(np.square(x), axis=-1), 0.0) ** POWER)


@zoo
def quadratic_gradient(dim: int = 100) -> Problem:
    """Quadratic gradient (E, Han & Jentzen 2017), exact solution u = sin((T - t + |x|^2/d)^0.4).

    u_t + 1/2 Lap u + |grad u|^2 = f(t, x),    u(T, x) = sin((|x|^2/d)^0.4),    T = 1

    f is the left side evaluated at the exact solution. f and the gradient of g are unbounded near
    t = T, x = 0 and bounded elsewhere. The problem is from CMS 2017.
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
