"""A Hamilton-Jacobi-Bellman equation whose solution is linear in x.

`hjb_lin` builds the problem. The power of the gradient in F is a parameter.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import Problem, Reference
from .._support.errors import ArgumentError, number
from ._zoo import ROUNDING, dimension, zoo

HORIZON = 1.0


def _absolute_power(z: Array, exponent: float) -> Array:
    """Return |z|^c with c = `exponent`, such that automatic derivatives are finite at z = 0.

    For an even c the derivatives are those of z^c. Where a derivative does not exist, the automatic
    derivative is 0.
    """
    even = 2 * int(exponent // 2)
    rest = exponent - even
    if rest == 0:
        return z**even
    if rest == 1:
        return z**even * jnp.abs(z)
    nonzero = z != 0
    return z**even * jnp.where(nonzero, jnp.abs(jnp.where(nonzero, z, 1.0)) ** rest, 0.0)


class _Hamiltonian(eqx.Module):
    """F = 2 - (1/d) sum_i |z_i / sqrt 2|^c."""

    exponent: float = eqx.field(static=True)

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        return 2 - jnp.mean(_absolute_power(z / math.sqrt(2.0), self.exponent))


class _Terminal(eqx.Module):
    """g = sum x."""

    def __call__(self, x: Array) -> Array:
        return jnp.sum(x)


def _exact(t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
    return np.sum(x, axis=-1) + HORIZON - t


@zoo
def hjb_lin(dim: int = 100, exponent: float = 1.0) -> Problem:
    """HJB-Lin (Hu, Shukla, Karniadakis & Kawaguchi 2024), exact solution u = sum x + T - t.

    u_t + Lap u + 2 - (1/d) sum_i |d_i u|^c = 0,    u(T, x) = sum x,    T = 1

    c is `exponent`, at least 1. The problem is from the paper on SDGD.
    """
    dim = dimension(dim)
    exponent = number("exponent", exponent, "pass the power of |d_i u|")
    if exponent < 1:
        raise ArgumentError(
            f"exponent must be at least 1, got {exponent!r}: "
            "below it |d_i u|^exponent is not Lipschitz at 0."
        )
    return Problem(
        dim=dim,
        horizon=HORIZON,
        diffusion=np.sqrt(2.0),
        nonlinearity=_Hamiltonian(exponent),
        terminal=_Terminal(),
        name="hjb_lin",
        reference=Reference(_exact, ROUNDING, "exact, u = sum x + T - t (SDGD 2024)"),
    )
