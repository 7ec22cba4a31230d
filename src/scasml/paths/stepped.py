"""`Stepped`: any diffusion, simulated in equal steps of a scheme, with its gradient weight."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .base import AbstractDynamics, AbstractPathLaw, Jump
from .coefficients import diffuse_transposed, undiffuse_transposed
from .schemes import SCHEMES


class Stepped(AbstractPathLaw):
    """The path law of `steps` equal steps of a scheme.

    The gradient weight of Bismut, Elworthy and Li over a duration t - s is

        sigma(s, x)^T / (t - s) sum_k D_k^T sigma(t_k, X_k)^-T dW_k,    D_k = dX_k / dx,

    where X_k is the state at the beginning of step k and D is the derivative process of the scheme.

    If `coarse` is true, the path takes half the number of steps, each twice as long. The Brownian
    increment of a long step is the sum of two consecutive increments. The program still runs
    `steps` steps, every second one of length zero. So `coarse` can be traced, and one compiled
    program simulates fine and coarse paths.

    Attributes:
        dynamics: the coefficients of X.
        scheme: a name in `SCHEMES`.
        steps: the number of steps; even if `coarse` can be true.
        coarse: a bool, or a traced boolean scalar.
    """

    dynamics: AbstractDynamics
    scheme: str = eqx.field(static=True)
    steps: int = eqx.field(static=True)
    coarse: bool | Array = False

    def move(self, noise: Array, s: Array, x: Array, duration: Array, weight: bool) -> Jump:
        times, lengths, noise = self.grid(noise, s, duration)
        if not weight:
            return Jump(self.states(x, times, lengths, noise)[0], None)
        (end, states), pull = jax.vjp(lambda x: self.states(x, times, lengths, noise), x)
        integrand = lambda t, y, dw: undiffuse_transposed(self.dynamics.diffusion(t, y), dw)
        # `map` and not `vmap`, because solving for all steps of a batch of paths at once is slower.
        dual = jax.lax.map(lambda inputs: integrand(*inputs), (times, states, noise))
        # The sum over k is one reverse pass through the path, so the matrices D_k are never formed.
        (slope,) = pull((jnp.zeros_like(end), dual))
        return Jump(end, diffuse_transposed(self.dynamics.diffusion(s, x), slope) / duration)

    def grid(self, noise: Array, s: Array, duration: Array) -> tuple[Array, Array, Array]:
        """Return the time at which each step begins, its length, and its Brownian increment.

        The shapes are (steps,), (steps,) and (steps, d). `noise` is as in `move`.
        """
        h = duration / self.steps
        times, lengths = (
            s + h * jnp.arange(self.steps, dtype=noise.dtype),
            jnp.broadcast_to(h, (self.steps,)),
        )
        noise = jnp.sqrt(h) * noise
        if self.coarse is False:
            return times, lengths, noise
        coarsen = lambda a: jnp.where(self.coarse, sum_pairs(a), a)
        return times, coarsen(lengths), coarsen(noise)

    def states(self, x: Array, times: Array, lengths: Array, noise: Array) -> tuple[Array, Array]:
        """Return X at the end, and X at the beginning of each step, of shape (steps, d).

        The last three arguments are the results of `grid`.
        """
        scheme = SCHEMES[self.scheme]

        def step(x: Array, inputs: tuple[Array, Array, Array]) -> tuple[Array, Array]:
            t, h, dw = inputs
            return scheme(self.dynamics, t, x, h, dw), x

        return jax.lax.scan(step, x, (times, lengths, noise))


def sum_pairs(a: Array) -> Array:
    """Return a_0 + a_1, 0, a_2 + a_3, 0, ... along the first axis, whose length must be even."""
    pairs = a.reshape(-1, 2, *a.shape[1:]).sum(1)
    return jnp.stack([pairs, jnp.zeros_like(pairs)], 1).reshape(a.shape)
