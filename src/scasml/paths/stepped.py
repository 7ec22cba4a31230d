"""Euler-Maruyama and Milstein: any diffusion, in steps, with the derivative of its paths.

The weight of Bismut, Elworthy and Li is sigma(s, x)^T/(t - s) times the sum over steps of
D_k^T sigma(t_k, X_k)^-T dW_k, where D_k = dX_k/dx is the derivative process of the scheme. D itself
is never formed: a sum of D_k^T v_k is one reverse pass through the path, at the price of a few paths
instead of d.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .base import AbstractDynamics, AbstractPathLaw, Jump
from .coefficients import diffuse, diffuse_transposed, undiffuse_transposed


class Stepped(AbstractPathLaw):
    """`steps` equal steps of `scheme`.

    Where `halved`, half as many, twice as long, over pairs of the same Brownian increments; the other
    half are of no length. So one compiled program takes both.
    """

    dynamics: AbstractDynamics
    scheme: Literal["euler", "milstein"] = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    halved: bool | Array = False

    def move(self, noise: Array, s: Array, x: Array, duration: Array, weight: bool) -> Jump:
        times, lengths, noise = self.grid(noise, s, duration)
        if not weight:
            return Jump(self.states(x, times, lengths, noise)[0], None)
        (end, states), pull = jax.vjp(lambda x: self.states(x, times, lengths, noise), x)
        integrand = lambda t, y, dw: undiffuse_transposed(self.dynamics.diffusion(t, y), dw)
        # One step after the other: at d = 100 four times faster than all matrices of a batch of paths at once.
        dual = jax.lax.map(lambda at: integrand(*at), (times, states, noise))
        (slope,) = pull((jnp.zeros_like(end), dual))
        return Jump(end, diffuse_transposed(self.dynamics.diffusion(s, x), slope) / duration)

    def grid(self, noise: Array, s: Array, duration: Array) -> tuple[Array, Array, Array]:
        """When every step begins, its length, and its dW."""
        h = duration / self.steps
        times, lengths = (
            s + h * jnp.arange(self.steps, dtype=noise.dtype),
            jnp.broadcast_to(h, (self.steps,)),
        )
        noise = jnp.sqrt(h) * noise
        if self.halved is False:
            return times, lengths, noise
        where_halved = lambda a: jnp.where(self.halved, in_pairs(a), a)
        return times, where_halved(lengths), where_halved(noise)

    def states(self, x: Array, times: Array, lengths: Array, noise: Array) -> tuple[Array, Array]:
        """X at the end, and X at the beginning of every step."""
        move = self._euler if self.scheme == "euler" else self._milstein

        def step(x: Array, at: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            t, h, dw = at
            return move(t, x, h, dw), x

        return jax.lax.scan(step, x, (times, lengths, noise))

    def _euler(self, t: Array, x: Array, h: Array, dw: Array) -> Array:
        return x + h * self.dynamics.drift(t, x) + diffuse(self.dynamics.diffusion(t, x), dw)

    def _milstein(self, t: Array, x: Array, h: Array, dw: Array) -> Array:
        """Euler's step and 1/2 sum_jk (V_j . grad) V_k (dW^j dW^k - h delta_jk), with V_j the columns of sigma.

        Strong order 1 where the columns commute; elsewhere, for want of Levy areas, 1/2. Weak order 1 always.
        """

        def iterated(w: Array) -> Array:
            """sum_jk (V_j . grad) V_k w_j w_k, one directional derivative."""
            push = lambda y: diffuse(self.dynamics.diffusion(t, y), w)
            return jax.jvp(push, (x,), (push(x),))[1]

        if self.dynamics.diffusion(t, x).ndim == 2:
            mean = jnp.sum(jax.vmap(iterated)(jnp.eye(len(x), dtype=x.dtype)), 0)
        else:
            # The signs of dW are independent of each other, so this has the right mean; and it is exact
            # where sigma_i depends on x_i alone.
            mean = iterated(jnp.where(dw < 0, -1.0, 1.0).astype(x.dtype))
        return self._euler(t, x, h, dw) + 0.5 * (iterated(dw) - h * mean)


def in_pairs(a: Array) -> Array:
    """a_0 + a_1, 0, a_2 + a_3, 0, ..."""
    pairs = a.reshape(-1, 2, *a.shape[1:]).sum(1)
    return jnp.stack([pairs, jnp.zeros_like(pairs)], 1).reshape(a.shape)
