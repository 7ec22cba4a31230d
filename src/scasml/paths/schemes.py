"""Stepping schemes: one step of a path, and the registry `SCHEMES` of schemes by name.

A scheme takes the dynamics, the time t and state x at the beginning of a step, its length h and
its Brownian increment dw of shape (d,). It returns the state at the end of the step.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .base import AbstractDynamics
from .coefficients import diffuse

Scheme = Callable[[AbstractDynamics, Array, Array, Array, Array], Array]


def euler(dynamics: AbstractDynamics, t: Array, x: Array, h: Array, dw: Array) -> Array:
    """Return x + mu h + sigma dw, the Euler-Maruyama step: strong order 1/2, weak order 1."""
    return x + h * dynamics.drift(t, x) + diffuse(dynamics.diffusion(t, x), dw)


def milstein(dynamics: AbstractDynamics, t: Array, x: Array, h: Array, dw: Array) -> Array:
    """Return the Euler step plus 1/2 sum_jk (V_j . grad) V_k (dw_j dw_k - h delta_jk).

    V_j are the columns of sigma. The strong order is 1 if the columns commute as vector fields.
    Otherwise it is 1/2, because Levy areas are not simulated. The weak order is always 1.
    """

    def second_order(w: Array) -> Array:
        """Return sum_jk (V_j . grad) V_k w_j w_k, by one directional derivative."""
        push = lambda y: diffuse(dynamics.diffusion(t, y), w)
        return jax.jvp(push, (x,), (push(x),))[1]

    if dynamics.diffusion(t, x).ndim == 2:
        mean = jnp.sum(jax.vmap(second_order)(jnp.eye(len(x), dtype=x.dtype)), 0)
    else:
        # Estimate sum_j (V_j . grad) V_j by one derivative instead of d. The signs of dw are
        # independent of each other, so the estimate is unbiased. It is exact if sigma_i depends on
        # x_i alone.
        mean = second_order(jnp.where(dw < 0, -1.0, 1.0).astype(x.dtype))
    return euler(dynamics, t, x, h, dw) + 0.5 * (second_order(dw) - h * mean)


# To add a scheme, write a function like `euler` and register it: `SCHEMES["heun"] = heun`. A scheme
# must
# - be differentiable in x by reverse mode, because gradient weights differentiate the path;
# - return x if h = 0 and dw = 0, because coarse paths contain steps of length zero;
# - have weak order 1 or higher, because estimates of the step bias assume it.
# A program that was compiled under a name keeps the function that had this name at that time.
SCHEMES: dict[str, Scheme] = {"euler": euler, "milstein": milstein}
