"""Paths of the linearised equation: where they begin, one step, and the exact law of a linear one.

`_tiles` simulates the paths of `LevelPaths` on grids of any level.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._equations.base import AbstractEquation
from .._equations.linearised import LinearisedEquation
from ..paths import SCHEMES, Jump
from ..paths.coefficients import undiffuse_transposed
from ._factor import Factor
from ._step_grids import Noise, changes_of

# Paths of a tile, which are computed side by side.
LANES = 32


class State(NamedTuple):
    """A path at one time: its state x, (d,), and the tilt at or near it.

    The tilt is the additional drift v, (d,), and the potential a, a scalar. `c`, a scalar, is log
    phi at the beginning of the path, and does not change.
    """

    x: Array
    v: Array
    a: Array
    c: Array

    @classmethod
    def zero(cls, like: Array, *leading: int) -> "State":
        """Return zeros with leading axes; `like` has the shape and dtype of x."""
        vector = jnp.zeros((*leading, *like.shape), like.dtype)
        scalar = jnp.zeros(leading, like.dtype)
        return cls(vector, vector, scalar, scalar)


class Lanes(NamedTuple):
    """The paths of a tile before they are simulated. Every field has a leading axis of lanes."""

    s: Array  # time at the beginning
    start: State
    rho: Array  # (r - s) / (T - s), in (0, 1]
    changes: Array  # normal numbers of W from s to T, and of its bridge at r, (2, d)
    noise: Noise


class Job(NamedTuple):
    """What all lanes of a tile have in common. All fields are scalars, and data of the program."""

    level: Array  # of the fine grid
    paired: Array  # whether lanes on the coarse grid, or reflected lanes, occur
    to_horizon: Array  # whether paths go on from r to T
    slopes: Array  # whether derivatives in the start are computed


class Ends(NamedTuple):
    """A path at r and at T. `growth` is the integral of the potential.

    If the path ends at r, the fields at T have no meaning.
    """

    x_time: Array
    growth_time: Array
    x_horizon: Array
    growth_horizon: Array


class Seeds(NamedTuple):
    """What is differentiated, for one path.

    `ends` has the derivatives of a result in the fields of `Ends`. The factors `weight_...`
    multiply the gradient weight of the path to r or to T, and `lift_...` its lift. Gradient weights
    are here those of the gradient in x, without the factor sigma(s, x)^T of `scasml.paths.Jump`.
    """

    ends: Ends
    weight_time: Array
    lift_time: Array
    weight_horizon: Array
    lift_horizon: Array
    total: Array  # derivative of the result in the growth of the whole path


class LevelPaths(eqx.Module):
    """Paths of dX = (mu + sigma b) dt + sigma dW with the potential a, on grids of any level.

    a = F_u and b = F_z are those of `LinearisedEquation`. Where the dynamics has no exact path law,
    a step uses `scheme`, a name in `SCHEMES`. `most_levels` is the largest level. `slopes` says
    whether any job asks for derivatives. With a `factor` the paths are those of w, where v = phi w.
    """

    equation: AbstractEquation
    scheme: str = eqx.field(static=True)
    most_levels: int = eqx.field(static=True)
    slopes: bool = eqx.field(static=True)
    true: Array  # true, but unknown to the compiler: see `prevent_fusion`
    factor: Factor | None = None

    def span(self, s: Array) -> Array:
        """Return T - s. Where it rounds to 0, it is a small positive number."""
        return jnp.maximum(self.equation.horizon - s, 1e-7 * self.equation.horizon)

    def begin(self, s: Array, x: Array) -> State:
        """Return the state of a path that begins at (s, x)."""
        if self.equation.is_linear:
            return State.zero(x)._replace(x=x)
        return State(x, *self.tilt(s, x), self.log_factor(s, x))

    def tilt(self, t: Array, x: Array) -> tuple[Array, Array]:
        """Return the additional drift, (d,), and the potential, a scalar."""
        tilt = LinearisedEquation(self.equation).tilt(t, x)
        return tilt if self.factor is None else self.factor.tilted(t, x, *tilt)

    def log_factor(self, t: Array, x: Array) -> Array:
        """Return log phi; 0 without a factor."""
        return jnp.zeros_like(t) if self.factor is None else self.factor.log(t, x)

    def pull_begin(self, s: Array, x: Array, pulled: State) -> Array:
        """Return the derivative in x, (d,), from the derivatives in the fields of `begin(s, x)`."""
        if self.equation.is_linear:
            return pulled.x
        (slope,) = jax.vjp(lambda x: self.begin(s, x), x)[1](pulled)
        return slope

    def step(self, state: State, t: Array, h: Array, dw: Array) -> tuple[State, Array]:
        """Return the state after a step of length h, and the growth over the step.

        `dw` (d,) is the increment of the Brownian motion. With J as the step of the dynamics alone,

            Y = J(X + h/2 v),    (v', a') = tilt(t + h, Y + h/2 v),    X' = Y + h/2 v'

        and the growth is h/2 (a + a'). The half steps with v surround J symmetrically, and the
        errors of the two Euler half steps cancel. So the weak order is 2 if J is exact. A step of
        length 0 changes nothing.
        """
        y = self._move(t, state.x + h / 2 * state.v, h, dw)
        if self.equation.is_linear:
            return state._replace(x=jnp.where(h > 0, y, state.x)), jnp.zeros_like(h)
        v, a = self.tilt(t + h, y + h / 2 * state.v)
        moved = State(y + h / 2 * v, v, a, state.c)
        moved = jax.tree.map(lambda new, old: jnp.where(h > 0, new, old), moved, state)
        return moved, h / 2 * (state.a + a)

    def _move(self, t: Array, x: Array, h: Array, dw: Array) -> Array:
        exact = self.equation.dynamics.exact
        if exact is None:
            return SCHEMES[self.scheme](self.equation.dynamics, t, x, h, dw)
        root = jnp.sqrt(jnp.where(h > 0, h, 1))
        return exact.move((dw / root)[None], t, x, h, False).x

    @property
    def is_exact(self) -> bool:
        """Whether paths are drawn from an exact law, so that levels make no difference."""
        return self.equation.is_linear and self.equation.dynamics.exact is not None

    def run_exact(
        self, lanes: Lanes, job: Job, at_ends: Callable[[Ends], tuple[Any, Seeds]]
    ) -> tuple[Any, State]:
        """Do what `_tiles.simulate` does, with an exact path law."""
        law = self.equation.dynamics.exact
        assert law is not None

        def jumps(x: Array, lane: Lanes) -> tuple[Jump, Jump]:
            span = self.span(lane.s)
            first, _ = changes_of(lane.changes, lane.rho, span, job.to_horizon)
            duration = lane.rho * span
            to_time = law.move((first / jnp.sqrt(duration))[None], lane.s, x, duration, self.slopes)
            return to_time, law.move(lane.changes[:1], lane.s, x, span, self.slopes)

        def ends(x: Array) -> tuple[tuple[Array, Array], tuple[Jump, Jump]]:
            found = jax.vmap(jumps)(x, lanes)
            return (found[0].x, found[1].x), found

        x, zero = lanes.start.x, jnp.zeros_like(lanes.s)
        (at_time, at_horizon), pull, (to_time, to_horizon) = jax.vjp(ends, x, has_aux=True)
        result, seeds = at_ends(Ends(at_time, zero, at_horizon, zero))
        if not self.slopes:
            return result, jax.tree.map(jnp.zeros_like, lanes.start)
        (slope,) = pull((seeds.ends.x_time, seeds.ends.x_horizon))
        weights = jnp.asarray(to_time.weight), jnp.asarray(to_horizon.weight)
        by_weights = seeds.weight_time[:, None] * weights[0]
        by_weights += seeds.weight_horizon[:, None] * weights[1]
        sigma = jax.vmap(self.equation.diffusion)(lanes.s, x)
        slope = slope + jax.vmap(undiffuse_transposed)(sigma, by_weights)
        return result, jax.tree.map(jnp.zeros_like, lanes.start)._replace(x=slope)
