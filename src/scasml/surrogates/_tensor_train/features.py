"""The basis functions of a tensor train at states of paths, with the generator applied to them.

`FeatureMap` compiles the functions of one problem. `FeatureMap.batch` takes states (t, x) and
returns a `Batch` of arrays, from which `sweeps` computes the residual of any tensor train.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..._equations.generator import Generator
from ..._equations.problem import Problem
from ..._support.types import Floats
from ..terminal import SmoothedTerminal
from ..wrapping import wrap
from .products import hermite, jet, legendre

TIME_DEGREE = 7  # of the Legendre polynomials in time
STATES_PER_CHUNK = 256  # states at which a compiled function is evaluated at once


class Batch(NamedTuple):
    """States of paths and the basis functions there.

    The train is a sum of products f_0(t) f_1(h_1) ... f_d(h_d), where h_1 ... h_d are the
    coordinates. The coordinates are driven by independent Brownian motions, so L has no mixed
    derivatives and

        (d/dt + L) prod_k f_k = sum_k (G_k f_k) prod_{j != k} f_j

    with G_0 = d/dt and G_k = mu_k d_k + 1/2 sigma_k^2 d_kk for the coordinates.

    `values`, `slopes` and `generated` have one array per variable: (n, q) for the time, then (n, p)
    for each coordinate. They hold phi, sigma_k d_k phi and G_k phi for every basis function phi of
    variable k. The slopes sigma_k d_k phi give entry k of z, and are zero for the time.
    """

    # Maps t (n,), x (n, d), u (n,) and z (n, d) to F (n,) and to the pair of its derivatives in u
    # (n,) and z (n, d).
    reaction: Callable[..., Any]
    t: Floats  # (n,)
    x: Floats  # (n, d)
    # u (n,), z (n, d) and (d/dt + L) u (n,) of the offset; zeros if there is no offset.
    offset: tuple[Floats, Floats, Floats]
    values: Sequence[Floats]
    slopes: Sequence[Floats]
    generated: Sequence[Floats]


class FeatureMap:
    """The functions that compute a `Batch`, compiled once for all sweeps.

    - `frame`: the matrix P (d, d) of the coordinates h = P x, or None for h = x.
    - `draws`: the draws of the `SmoothedTerminal` that is the offset, or None for no offset.
    - `centre`, `scale`: arrays (d,); the basis functions are polynomials of
        y = (h - centre) / scale.
    - `degree`: the largest degree of these polynomials.

    Without an offset, u(T, x) = g(x) is imposed at the states with t = T. At these states F is
    replaced by (u - g)/T, and `slopes` and `generated` are zero, so the residual is (u - g)/T.
    """

    def __init__(
        self,
        problem: Problem,
        frame: Floats | None,
        draws: Floats | None,
        centre: Floats,
        scale: Floats,
        degree: int,
    ):
        horizon, has_offset = problem.horizon, draws is not None
        generator = (
            None
            if draws is None
            else Generator(problem, wrap(SmoothedTerminal(problem, jnp.asarray(draws)), problem))
        )

        def reaction(t: Array, x: Array, u: Array, z: Array) -> Array:
            f = problem.nonlinearity(t, x, u, z)
            if has_offset:
                return f
            return jnp.where(t < horizon, f, (u - problem.terminal(x)) / horizon)

        def features(t: Array, x: Array) -> Any:
            drift, sigma = problem.drift(t, x), problem.diffusion(t, x)
            # The frame is the inverse of sigma, so sigma is the identity in its coordinates.
            h, drift, sigma = (
                (x, drift, sigma)
                if frame is None
                else (jnp.asarray(frame) @ x, jnp.asarray(frame) @ drift, jnp.ones(()))
            )
            sigma = jnp.broadcast_to(sigma, x.shape)[:, None]
            value, slope, curvature = jet(lambda h: hermite((h - centre) / scale, degree + 1), h)
            time_value, time_slope, _ = jet(
                lambda t: legendre(t, horizon, TIME_DEGREE + 1, has_offset), t
            )
            generated = drift[:, None] * slope + 0.5 * sigma**2 * curvature
            offset = (
                (0 * t, 0 * x, 0 * t) if generator is None else generator(t, x, jax.random.key(0))
            )
            before_end = jnp.where(t < horizon, 1.0, 0.0)
            return (
                offset,
                (time_value, before_end * time_slope),
                (value, before_end * sigma * slope, before_end * generated),
            )

        self.reaction = jax.jit(jax.vmap(jax.value_and_grad(reaction, (2, 3))))
        self.features = jax.jit(jax.vmap(features))

    def batch(self, t: Floats, x: Floats) -> Batch:
        """Evaluate the basis functions at the states t (n,), x (n, d)."""
        offset, (time_value, time_slope), of_x = in_chunks(self.features, t, x)
        value, slope, generated = (list(np.ascontiguousarray(a.transpose(1, 0, 2))) for a in of_x)
        return Batch(
            reaction=self.reaction,
            t=t,
            x=x,
            offset=offset,
            values=[time_value, *value],
            slopes=[np.zeros_like(time_value), *slope],
            generated=[time_slope, *generated],
        )


def in_chunks(function: Callable[..., Any], *arrays: Any) -> Any:
    """Apply a batched function to chunks of the arrays, and join the results as NumPy arrays.

    The first axis of every array and of every result counts the states. All chunks have the same
    size, so the function is compiled once. The last chunk is filled up with the first states, whose
    repeated results are dropped.
    """
    count = len(arrays[0])
    chunks = (np.arange(math.ceil(count / STATES_PER_CHUNK) * STATES_PER_CHUNK) % count).reshape(
        -1, STATES_PER_CHUNK
    )
    outs = [jax.tree.map(np.asarray, function(*(a[chunk] for a in arrays))) for chunk in chunks]
    return jax.tree.map(lambda *parts: np.concatenate(parts)[:count], *outs)
