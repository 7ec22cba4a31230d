"""The constraints to which a Gaussian process is fitted.

`draw_points` draws M interior points and B terminal points, which lie at time T.
`rate_and_terminal` turns the PDE and g into conditions at these points. `Constraints` holds points
and conditions, and linearises the conditions for `newton.fit`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._equations.domain import AbstractDomain
from ..._equations.generator import Generator
from ..._equations.problem import Problem
from ..._support.types import Floats
from ..collocation import collocation_points
from ..terminal import SmoothedTerminal
from ..wrapping import wrap
from . import kernels

OFFSET_POINTS_PER_BATCH = 64  # points at which the offset is differentiated at once
# The observations at an interior point on which the rate, the v_t that the PDE requires, depends.
FREE_OBSERVATIONS = [
    kernels.Observation.VALUE,
    kernels.Observation.LAPLACIAN,
    kernels.Observation.SUM,
]
# Maps free observations (M, 3) to the rate (M,) and its derivatives in them (M, 3).
Rate = Callable[[Floats], tuple[Floats, Floats]]


@dataclass(frozen=True)
class Constraints:
    """The constraints v_t = rate at the first M points, and v = terminal at the last B points.

    The time coordinate of the kernel is `clock` times the time of the PDE, so v_t of the PDE is
    `clock` times the observation v_t. `nugget` is the variance of the noise of each observation,
    relative to the prior variance of that observation.
    """

    kernel: kernels.Gaussian
    points: kernels.Points  # M + B of them, in the time of the kernel
    clock: float
    rate: Rate
    terminal: Floats  # (B,)
    nugget: float

    @property
    def interior(self) -> int:
        """The number M of interior points."""
        return len(self.points.t) - len(self.terminal)

    def linearised(self, free: Floats) -> tuple[Floats, Floats, Floats]:
        """Linearise the constraints at the free observations (M, 3) of an iterate.

        Returns the coefficients A (M + B, 4) of the observations at each point, the right-hand side
        (M + B,), and the rate (M,) at `free`.
        """
        value, slope = self.rate(free)
        a = np.zeros((len(self.points.t), 4))
        a[: self.interior, FREE_OBSERVATIONS] = -slope
        a[: self.interior, kernels.Observation.TIME] = self.clock
        a[self.interior :, kernels.Observation.VALUE] = 1.0
        return a, np.concatenate([value - np.sum(slope * free, 1), self.terminal]), value


def draw_points(
    problem: Problem,
    domain: AbstractDomain,
    interior: int,
    boundary: int,
    seed: int,
    along_paths: float,
) -> tuple[Floats, Floats]:
    """Draw times (n,) and points (n, d): first the interior points, then the terminal points.

    `interior` and `boundary` are their numbers M and B, with n = M + B. `along_paths` is the
    fraction of the points that is drawn along paths from the domain.
    """
    key, count = jax.random.key(seed), interior + boundary
    t, x = jax.jit(lambda key: collocation_points(problem, domain, key, count, along_paths))(key)
    # The points along paths come first; the permutation mixes them with the others.
    order = np.random.default_rng([seed, 3]).permutation(count)
    t, x = (np.asarray(a, np.float64)[order] for a in (t, x))
    t[interior:] = problem.horizon
    return t, x


def rate_and_terminal(
    problem: Problem,
    sigma: float,
    mu: float,
    t: Floats,
    x: Floats,
    interior: int,
    draws: Floats | None,
) -> tuple[Rate, Floats]:
    """Return the constraints on v, where u = offset + v solves the PDE.

    `t` (n,) and `x` (n, d) are the results of `draw_points`, of which the first `interior` are
    interior points. The offset is the smoothed g with the `draws` (K, d), or zero if they are None.
    The first result is a `Rate`: v_t as a function of v, Lap v and sum_i d_i v at the interior
    points. The second result (B,) holds v at the terminal points.
    """
    inside = t[:interior], x[:interior]
    if draws is None:
        offset = np.zeros(interior), np.zeros((interior, problem.dim)), np.zeros(interior)
        terminal = np.asarray(jax.jit(jax.vmap(problem.terminal))(x[interior:]))
    else:
        generator = Generator(problem, wrap(SmoothedTerminal(problem, jnp.asarray(draws)), problem))
        at = lambda point: generator(point[0], point[1], jax.random.key(0))
        at_all = lambda t, x: jax.lax.map(at, (t, x), batch_size=OFFSET_POINTS_PER_BATCH)
        offset = jax.jit(at_all)(*inside)
        terminal = np.zeros(len(t) - interior)

    def rate(free: Array, t: Array, x: Array, offset: tuple[Array, Array, Array]) -> Array:
        # `generated` is (d/dt + L) of the offset.
        (v, laplacian, slope_sum), (u, z, generated) = free, offset
        # F depends on z only through its sum, so the sum of the z of v is spread evenly.
        f = problem.nonlinearity(
            t, x, u + v, z + jnp.full(problem.dim, sigma / problem.dim) * slope_sum
        )
        return -(generated + mu * slope_sum + 0.5 * sigma**2 * laplacian + f)

    batched = jax.jit(jax.vmap(jax.value_and_grad(rate)))

    def at_points(free: Floats) -> tuple[Floats, Floats]:
        value, slope = batched(free, *inside, offset)
        return np.asarray(value), np.asarray(slope)

    return at_points, terminal
