"""Step grids that contain a random time, and Brownian increments on them.

A path runs from s to T and passes a random time r. The grid of level l has the nodes r + j h with
h = (T - s) / 2^l and any integer j, and the two ends. Grids of successive levels are nested. Times
of a `Grid` are in units of h, counted from s. `rho` is (r - s) / (T - s), in (0, 1].
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array

from ._integers import is_odd
from ._streams import normals


class Grid(NamedTuple):
    """The grid of one path at one level. All fields are scalars.

    Step 0 has the length `first`, step 2^level has 1 - `first`, and the steps between have the
    length 1. Steps before step 0 and after step 2^level have the length 0.

    A path takes one step in every iteration of its loop. If steps are `paired`, the iterations 2 p
    and 2 p + 1 take the two fine steps of one coarse step. The first or the last coarse step can
    consist of a single fine step. Then its other iteration takes a step of length 0.
    """

    steps: Array  # 2^level
    before: Array  # number of whole steps between the end of step 0 and r
    first: Array  # length of step 0, in (0, 1]
    shift: Array  # the iteration that takes step 0: 0 or 1
    unit: Array  # h

    @classmethod
    def of(cls, rho: Array, span: Array, level: Array, paired: Array) -> "Grid":
        """Return the grid of a path with T - s = `span`."""
        steps = jnp.left_shift(1, level)
        # The product with a power of two is exact, so grids of different levels are nested exactly.
        position = rho * steps.astype(rho.dtype)
        before = jnp.ceil(position).astype(jnp.int32) - 1
        shift = jnp.where(paired & ~is_odd(before), 1, 0)
        first = position - before.astype(rho.dtype)
        return cls(steps, before, first, shift, span / steps.astype(rho.dtype))

    @property
    def arrival(self) -> Array:
        """The iteration at whose end the path is at r. It is the second one of a pair."""
        return self.before + self.shift

    def length(self, step: Array) -> Array:
        """Return the length of a step."""
        inner = jnp.where((step >= 1) & (step < self.steps), 1.0, 0.0).astype(self.first.dtype)
        last = jnp.where(step == self.steps, 1 - self.first, inner)
        return jnp.where(step == 0, self.first, last)

    def beginning(self, step: Array) -> Array:
        """Return the time at which a step begins."""
        time = self.first + (step - 1).astype(self.first.dtype)
        return jnp.clip(time, 0, self.steps.astype(self.first.dtype))

    def remaining(self, step: Array) -> Array:
        """Return the time from the beginning of a step to r, or to T for steps after r."""
        dtype = self.first.dtype
        of_first = jnp.where(step >= 1, 1, self.first)
        to_time = (self.before - jnp.maximum(step, 0)).astype(dtype) + of_first
        # The lengths of the last two steps add up to this number exactly.
        to_horizon = (self.steps - step).astype(dtype) + (1 - self.first)
        return jnp.where(step <= self.before, to_time, jnp.maximum(to_horizon, 0))


def step_of(i: Array, grid: Grid, paired: Array, coarse: Array) -> tuple[Array, Array]:
    """Return the beginning and the length of the step of one path in iteration i, in real time.

    The beginning is counted from s. A coarse path waits in the first iteration of a pair, and takes
    both steps in the second one.
    """
    step, is_second = i - grid.shift, is_odd(i)
    begins, length = grid.beginning(step), grid.length(step)
    joined = jnp.where(is_second, grid.length(step - 1) + length, 0)
    earlier = jnp.where(is_second, grid.beginning(step - 1), begins)
    use = paired & coarse
    return grid.unit * jnp.where(use, earlier, begins), grid.unit * jnp.where(use, joined, length)


class Bridge(NamedTuple):
    """A Brownian motion W of which the value at the next of the times r and T is known."""

    rest: Array  # what W still adds until that time, (d,)
    stored: Array  # the increment of the second iteration of the present pair, (d,)


def changes_of(noise: Array, rho: Array, span: Array, to_horizon: Array) -> Array:
    """Return the change of W from s to r and from r to T, (2, d).

    `noise` (2, d) has the normal numbers of the change from s to T, and of the bridge at r. Paths
    that end at r use the first ones for r, because a net spreads these best.
    """
    whole, bridge = noise
    mixed = jnp.sqrt(rho) * whole + jnp.sqrt(1 - rho) * bridge
    first = jnp.sqrt(rho * span) * jnp.where(to_horizon, mixed, whole)
    return jnp.stack([first, jnp.sqrt(span) * whole - first])


class Noise(NamedTuple):
    """What the normal numbers of one path between s, r and T depend on."""

    key: Array  # (2,), of a path; see `_streams`
    flip: Array  # factor of all normal numbers: 1, or -1 for the second path of an antithetic pair
    mirror: Array  # -1 reflects the path between the nodes of the coarse grid; otherwise 1
    coarse: Array  # whether the path takes the steps of the coarse grid


def _rest(i: Array, grid: Grid, noise: Noise, bridge: Bridge) -> tuple[Array, Bridge]:
    return bridge.rest, bridge


def _single(i: Array, grid: Grid, noise: Noise, bridge: Bridge) -> tuple[Array, Bridge]:
    (xi,) = _normals(i, noise, 1, bridge.rest)
    step = i - grid.shift
    dw = _increment(bridge.rest, grid, step, grid.length(step), xi)
    return dw, bridge._replace(rest=bridge.rest - dw)


def _first_of_pair(i: Array, grid: Grid, noise: Noise, bridge: Bridge) -> tuple[Array, Bridge]:
    xi = _normals(i, noise, 2, bridge.rest)
    step = i - grid.shift
    first, second = grid.length(step), grid.length(step + 1)
    both = _increment(bridge.rest, grid, step, first + second, xi[0])
    total = jnp.where(first + second > 0, first + second, 1)
    deviation = jnp.sqrt(grid.unit * first * second / total) * noise.mirror * xi[1]
    one = (first / total) * both + deviation
    stored = jnp.where(noise.coarse, both, both - one)
    return jnp.where(noise.coarse, 0, one), Bridge(bridge.rest - both, stored)


def _second_of_pair(i: Array, grid: Grid, noise: Noise, bridge: Bridge) -> tuple[Array, Bridge]:
    return bridge.stored, bridge


# Functions that return the increment of W in iteration i for one path, and the bridge after it:
# - on a grid of level 0, whose only nodes are s, r and T;
# - on another grid without pairs;
# - in the first and in the second iteration of a pair.
INCREMENTS = (_rest, _single, _first_of_pair, _second_of_pair)


def which_increment(i: Array, level: Array, paired: Array) -> Array:
    """Return the index into `INCREMENTS` for iteration i."""
    return jnp.where(paired, 2 + jnp.bitwise_and(i, 1), jnp.where(level > 0, 1, 0))


def _normals(i: Array, noise: Noise, count: int, like: Array) -> Array:
    return noise.flip * normals(noise.key, 1 + i, (count, *like.shape), like.dtype)


def _increment(rest: Array, grid: Grid, step: Array, length: Array, xi: Array) -> Array:
    """Return the increment of W over the given length from the beginning of a step."""
    remaining = grid.remaining(step)
    safe = jnp.where(remaining > 0, remaining, 1)
    variance = grid.unit * length * jnp.maximum(remaining - length, 0) / safe
    return (length / safe) * rest + jnp.sqrt(variance) * xi
