"""Paths with a further drift v and a potential a, in steps: dX = (mu + v) dt + sigma dW, growth = int a dt.

A step of length h is half of v, the jump J of mu and sigma alone, and the other half of v where that leads:

    Y = J(X + h/2 v),    v' = v(t + h, Y + h/2 v),    X' = Y + h/2 v',    growth' = growth + h/2 (a + a')

The next step begins with v' and a', so that each takes one evaluation of the two. Where J is exact the error falls as h^2: the halves stand
about J as Strang's do, and what Euler's half step of v lacks on one side it has too much of on the other.
"""

from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .base import AbstractDynamics, AbstractPathLaw, Jump
from .coefficients import diffuse_transposed, undiffuse_transposed
from .stepped import Stepped, in_pairs


class Tilted(AbstractPathLaw):
    """`tilt(t, x)` is (v, a). Where `halved`, half as many steps over pairs of the same noise, as in `Stepped`."""

    dynamics: AbstractDynamics
    tilt: Callable[[Array, Array], tuple[Array, Array]]
    scheme: Literal["euler", "milstein"] = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    halved: bool | Array = False

    def move(self, noise: Array, s: Array, x: Array, duration: Array, weight: bool) -> Jump:
        lengths = jnp.broadcast_to(duration / self.steps, (self.steps,))
        if self.halved is not False:
            lengths = jnp.where(self.halved, in_pairs(lengths), lengths)
            noise = jnp.where(self.halved, in_pairs(noise) / jnp.sqrt(2.0).astype(x.dtype), noise)
        times = s + jnp.cumsum(lengths) - lengths
        path = lambda x: self.path(x, times, lengths, noise)
        if not weight:
            end, (_, grown) = path(x)
            return Jump(end, None, jnp.sum(grown))
        (end, (states, grown)), pull = jax.vjp(path, x)
        # A shift of x that dies away in equal parts: the noise makes up for what is gone of it, the growth sees what is left.
        integrand = lambda t, y, dw: undiffuse_transposed(self.dynamics.diffusion(t, y), dw)
        dual = jax.lax.map(
            lambda at: integrand(*at),
            (times, states, jnp.sqrt(lengths)[:, None] * noise / duration),
        )
        left = 1 - (times + lengths / 2 - s) / duration
        none = jnp.zeros_like(end)
        slope = lambda states, grown: diffuse_transposed(
            self.dynamics.diffusion(s, x), pull((none, (states, grown)))[0]
        )
        return Jump(
            end,
            slope(dual, jnp.zeros_like(left)),
            jnp.sum(grown),
            slope(jnp.zeros_like(dual), left),
        )

    def path(
        self, x: Array, times: Array, lengths: Array, noise: Array
    ) -> tuple[Array, tuple[Array, Array]]:
        """X at the end; X at the beginning of every step, and the growth over it."""
        jumps = self.dynamics.exact or Stepped(dynamics=self.dynamics, scheme=self.scheme, steps=1)

        def step(
            held: tuple[Array, Array, Array], at: tuple[Array, Array, Array]
        ) -> tuple[tuple[Array, Array, Array], tuple[Array, Array]]:
            (x, v, a), (t, h, xi) = held, at
            y = jumps.move(xi[None], t, x + h / 2 * v, h, False).x
            v_next, a_next = self.tilt(t + h, y + h / 2 * v)
            if self.halved is not False:  # a step of no length leaves all as it is
                v_next, a_next = jnp.where(h > 0, v_next, v), jnp.where(h > 0, a_next, a)
            return (y + h / 2 * v_next, v_next, a_next), (x, h / 2 * (a + a_next))

        (end, _, _), along = jax.lax.scan(
            step, (x, *self.tilt(times[0], x)), (times, lengths, noise)
        )
        return end, along
