"""`Tilted`: paths with an additional drift v and a potential a, simulated in steps."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .base import AbstractDynamics, AbstractPathLaw, Jump
from .coefficients import diffuse_transposed, undiffuse_transposed
from .stepped import Stepped, sum_pairs


class Tilted(AbstractPathLaw):
    """The path law of a dynamics with an additional drift v and a potential a.

    The paths follow dX = (mu + v) dt + sigma dW and accumulate growth = int a dt.

    If `coarse` is true, the path takes half the number of steps, each twice as long; see `Stepped`.
    The `Jump` that `move` returns has a `growth`, and on request a `weight` and a `lift`.

    Attributes:
        dynamics: the coefficients mu and sigma of X.
        tilt: a function of (t, x) that returns v of shape (d,) and the scalar a.
        scheme: a name in `SCHEMES`, used if the dynamics has no exact path law.
        steps: the number of steps; even if `coarse` can be true.
        coarse: a bool, or a traced boolean scalar.
    """

    dynamics: AbstractDynamics
    tilt: Callable[[Array, Array], tuple[Array, Array]]
    scheme: str = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    coarse: bool | Array = False

    def move(self, noise: Array, s: Array, x: Array, duration: Array, weight: bool) -> Jump:
        lengths = jnp.broadcast_to(duration / self.steps, (self.steps,))
        if self.coarse is not False:
            lengths = jnp.where(self.coarse, sum_pairs(lengths), lengths)
            noise = jnp.where(self.coarse, sum_pairs(noise) / jnp.sqrt(2.0).astype(x.dtype), noise)
        times = s + jnp.cumsum(lengths) - lengths
        path = lambda x: self.path(x, times, lengths, noise)
        if not weight:
            end, (_, growths) = path(x)
            return Jump(end, None, jnp.sum(growths))
        (end, (states, growths)), pull = jax.vjp(path, x)
        # A shift of x is removed linearly over the duration: at time r, a fraction (t - r)/(t - s)
        # of it remains. The change of measure that removes it gives the gradient weight. The
        # derivative of the growth along the remaining shift is the lift.
        integrand = lambda t, y, dw: undiffuse_transposed(self.dynamics.diffusion(t, y), dw)
        dual = jax.lax.map(
            lambda inputs: integrand(*inputs),
            (times, states, jnp.sqrt(lengths)[:, None] * noise / duration),
        )
        # The fraction that remains in the middle of each step.
        remaining = 1 - (times + lengths / 2 - s) / duration
        zero = jnp.zeros_like(end)
        pull_back = lambda states, growths: diffuse_transposed(
            self.dynamics.diffusion(s, x), pull((zero, (states, growths)))[0]
        )
        return Jump(
            end,
            pull_back(dual, jnp.zeros_like(remaining)),
            jnp.sum(growths),
            pull_back(jnp.zeros_like(dual), remaining),
        )

    def path(
        self, x: Array, times: Array, lengths: Array, noise: Array
    ) -> tuple[Array, tuple[Array, Array]]:
        """Simulate one path from x.

        One step of length h moves with v for h/2, then by the path law J of the dynamics without v,
        then with v for h/2:

            Y = J(X + h/2 v),    v' = v(t + h, Y + h/2 v),    X' = Y + h/2 v',
            growth' = growth + h/2 (a + a')

        where a' is the potential at the same point as v'. The next step begins with v' and a', so
        each step evaluates v and a once. If J is exact, the weak error falls as h^2. The reasons
        are that the half steps with v surround J symmetrically, as in Strang splitting, and that
        the errors of the two Euler half steps cancel.

        Arguments:
            x: the state at the beginning, of shape (d,).
            times: the time at which each step begins, of shape (steps,).
            lengths: the length of each step, of shape (steps,).
            noise: standard normal numbers of shape (steps, d).

        Returns X at the end, and a pair: X at the beginning of each step, of shape (steps, d), and
        the growth over each step, of shape (steps,).
        """
        jumps = self.dynamics.exact or Stepped(dynamics=self.dynamics, scheme=self.scheme, steps=1)

        def step(
            carry: tuple[Array, Array, Array], inputs: tuple[Array, Array, Array]
        ) -> tuple[tuple[Array, Array, Array], tuple[Array, Array]]:
            (x, v, a), (t, h, xi) = carry, inputs
            y = jumps.move(xi[None], t, x + h / 2 * v, h, False).x
            v_next, a_next = self.tilt(t + h, y + h / 2 * v)
            if self.coarse is not False:  # a step of length zero must keep v and a unchanged
                v_next, a_next = jnp.where(h > 0, v_next, v), jnp.where(h > 0, a_next, a)
            return (y + h / 2 * v_next, v_next, a_next), (x, h / 2 * (a + a_next))

        (end, _, _), along = jax.lax.scan(
            step, (x, *self.tilt(times[0], x)), (times, lengths, noise)
        )
        return end, along
