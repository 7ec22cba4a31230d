"""Multilevel Picard by its formula alone: Python loops, full Hessians, no shared evaluations.

It is the oracle of the tests of `Picard`, and the slow side of the benchmark `correction`.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Number of independent random streams of one sample: path, time, new iterate, old iterate.
STREAMS_PER_SAMPLE = 4


def literal_picard(
    problem: Any,
    surrogate: Any,
    n: int,
    samples: int,
    key: Any,
    s: Any,
    x: Any,
    *,
    nodes: int | None = None,
    exponent: float = 0.0,
    weights: bool = False,
    threshold: float | None = None,
    log: dict[str, int] | None = None,
    steps: int | None = None,
) -> tuple[Any, Any]:
    """Return U_n(s, x), a value and its z (d,), by the formula of `estimators.picard`.

    Only the layout of the random streams is taken from the library. The increments of U_n are
    numbered k = 0 for the mean of g, and k = l + 1 for level l. Sample i of increment k uses the
    key of U_n folded with (i (n + 1) + k) 4 + j. Here j is 0 for the path, 1 for the time, 2 for
    U_l and 3 for U_{l-1}.

    **Arguments:**

    - `surrogate`: a function of (t, x), or None for zero.
    - `n`, `samples`: levels, and the base M of the number of samples per level.
    - `key`: a random key of JAX.
    - `s`, `x`: the point, a scalar and (d,).
    - `nodes`: number of nodes of a Gauss quadrature in time; None draws random times.
    - `exponent`: a in the density (1 - a) r^-a of the random times, as fractions r of T - s.
    - `weights`: whether z is estimated by gradient weights; otherwise by path derivatives.
    - `threshold`: bound at which iterates are clipped; None for no bound.
    - `log`: a dictionary with the keys "g", "F", "normals" and "uniforms", to whose values the
      numbers of evaluations and random numbers are added.
    - `steps`: Euler steps of a path; None draws paths with constant coefficients exactly.
    """
    dim, horizon = problem.dim, problem.horizon

    def matrix(t, y):
        sigma = problem.diffusion(jnp.asarray(t), y)
        return sigma if sigma.ndim == 2 else jnp.diag(jnp.broadcast_to(sigma, (dim,)))

    def mu(t, y):
        return problem.drift(jnp.asarray(t), y)

    count = log if log is not None else {"g": 0, "F": 0, "normals": 0, "uniforms": 0}

    def value_and_z(t, y):
        """Return the surrogate and its z = sigma^T grad u."""
        if surrogate is None:
            return jnp.zeros(()), jnp.zeros(dim)
        return surrogate(t, y), matrix(t, y).T @ jax.grad(surrogate, 1)(t, y)

    @jax.jit
    def gb(y):
        return problem.terminal(y) - value_and_z(jnp.asarray(horizon), y)[0]

    @jax.jit
    def fb(t, y, u, z):
        uh, zh = value_and_z(t, y)
        moved = 0.0
        if surrogate is not None:
            moved = jax.grad(surrogate, 0)(t, y) + mu(t, y) @ jax.grad(surrogate, 1)(t, y)
            moved = moved + 0.5 * jnp.trace(
                matrix(t, y) @ matrix(t, y).T @ jax.hessian(surrogate, 1)(t, y)
            )
        eps = moved + problem.nonlinearity(t, y, uh, zh)
        return problem.nonlinearity(t, y, uh + u, zh + z) - problem.nonlinearity(t, y, uh, zh) + eps

    def iterate(n, key, s, x):
        """Return U_n and its z."""
        if n == 0:
            return jnp.zeros(()), jnp.zeros(dim)
        if weights:
            u, z = total(n, key, s, x)
        else:
            u, slope = jax.value_and_grad(lambda y: total(n, key, s, y)[0])(x)
            z = matrix(s, x).T @ slope
        if threshold is not None:
            u, z = jnp.clip(u, -threshold, threshold), jnp.clip(z, -threshold, threshold)
        return u, z

    fold = jax.jit(jax.random.fold_in)

    def stream(key, n, level, i, purpose):
        return fold(key, (i * (n + 1) + level) * STREAMS_PER_SAMPLE + purpose)

    @jax.jit
    def jump(key, s, x, duration):
        """Return the end of a path and its gradient weight, each (d,).

        Euler steps update the state y, its derivative d in x, and the integral in the weight.
        """
        if steps is None:
            xi = jax.random.normal(key, (dim,))
            moved = x + mu(s, x) * duration + matrix(s, x) @ xi * jnp.sqrt(duration)
            return moved, xi / jnp.sqrt(duration)
        h, y, d, integral = duration / steps, x, jnp.eye(dim), jnp.zeros(dim)
        for k, xi in enumerate(jax.random.normal(key, (steps, dim))):
            t, dw = s + k * h, jnp.sqrt(h) * xi
            integral = integral + (jnp.linalg.inv(matrix(t, y)) @ d).T @ dw
            change = jax.jacfwd(lambda y, t=t, dw=dw: mu(t, y) * h + matrix(t, y) @ dw)(y)
            y, d = y + mu(t, y) * h + matrix(t, y) @ dw, d + change @ d
        return y, matrix(s, x).T @ integral / duration

    def move(key, s, x, duration):
        count["normals"] += dim * (steps or 1)
        return jump(key, s, x, duration)

    def total(n, key, s, x):
        """Return U_n and its z by gradient weights: the sum over all levels and samples."""
        u, z = gb(x), jnp.zeros(dim)
        for i in range(samples**n):
            y, weight = move(stream(key, n, 0, i, 0), s, x, horizon - s)
            count["g"] += 1
            change = (gb(y) - gb(x)) / samples**n
            u, z = u + change, z + change * weight
        for l in range(n):
            for i in range(samples ** (n - l)):
                for q in range(nodes or 1):
                    index = i * (nodes or 1) + q
                    key_path, key_time, key_new, key_old = (
                        stream(key, n, l + 1, index, j) for j in range(STREAMS_PER_SAMPLE)
                    )
                    if nodes is None:
                        count["uniforms"] += 1
                        r = (1 - jax.random.uniform(key_time, ())) ** (1 / (1 - exponent))
                        duration, w = (
                            (horizon - s) * r,
                            (horizon - s) / ((1 - exponent) * r**-exponent),
                        )
                    else:
                        c, v = np.polynomial.legendre.leggauss(nodes)
                        duration, w = (horizon - s) / 2 * (1 + c[q]), (horizon - s) / 2 * v[q]
                    y, weight = move(key_path, s, x, duration)
                    f = fb(s + duration, y, *iterate(l, key_new, s + duration, y))
                    count["F"] += 1
                    if l >= 1:
                        count["F"] += 1
                        f = f - fb(s + duration, y, *iterate(l - 1, key_old, s + duration, y))
                    f = f * w / samples ** (n - l)
                    u, z = u + f, z + f * weight
        return u, z

    return iterate(n, key, jnp.asarray(s), jnp.asarray(x))
