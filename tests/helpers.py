"""Laws with known answers, a literal Picard recursion, and the arithmetic of false-fail rates.

Stochastic tests fix their seed, so they do not flicker; the rate they state is the chance that a
correct library fails for a seed drawn at random. `SIGMAS` = 6 standard errors of a mean of many
replicates: 2e-9 per comparison, under 1e-6 for the whole suite.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import scasml
from scasml.surrogates import wrap

SIGMAS = 6.0


def manufactured(dim=3, diffusion=0.7, uses_z=True, horizon=0.8):
    """A nonlinear problem with u = sin(a.x + t) known: F(u, z) - F(u*, z*) - (u*_t + L u*)."""
    a = np.linspace(0.4, 0.9, dim)
    sigma = np.asarray(diffusion, np.float64)
    matrix = sigma if sigma.ndim == 2 else np.diag(np.broadcast_to(sigma, (dim,)))
    spread = matrix.T @ a
    mu = np.linspace(-0.3, 0.2, dim)

    def exact(t, x):
        return jnp.sin(jnp.asarray(a, x.dtype) @ x + t)

    def law(u, z):
        f = 0.6 * u - 0.2 * u**3
        return f + 0.3 * jnp.sum(z) * u + 0.1 * z @ z if uses_z else f

    def nonlinearity(t, x, u, z):
        phase = jnp.asarray(a, x.dtype) @ x + t
        true_u, slope = jnp.sin(phase), jnp.cos(phase)
        generator = slope * (1 + mu @ a) - 0.5 * true_u * (spread @ spread)
        return law(u, z) - law(true_u, slope * jnp.asarray(spread, x.dtype)) - generator

    problem = scasml.Problem(
        dim=dim, horizon=horizon, drift=mu, diffusion=diffusion, nonlinearity=nonlinearity, terminal=lambda x: exact(jnp.asarray(horizon, x.dtype), x)
    )
    return problem, exact


def heat(dim=3, horizon=0.5):
    """A linear problem with a source: u = |x|^2 + exp(t) sum x, sigma = 0.8."""
    sigma = 0.8
    exact = lambda t, x: x @ x + jnp.exp(t) * jnp.sum(x)
    source = lambda t, x, u, z: -(jnp.exp(t) * jnp.sum(x) + sigma**2 * dim)
    problem = scasml.Problem(
        dim=dim, horizon=horizon, diffusion=sigma, nonlinearity=source, terminal=lambda x: exact(jnp.asarray(horizon, x.dtype), x)
    )
    return problem, exact


def network(dim, seed=0, width=8, activation=jnp.tanh):
    return eqx.nn.MLP(dim + 1, 1, width, 2, activation=activation, key=jax.random.key(seed))


def network_surrogate(problem, seed=0, **options):
    return wrap(network(problem.dim, seed, **options), problem, inputs="tx")


def rough(t, x):
    """A cheap closed-form surrogate, wrong everywhere."""
    return 0.5 * jnp.sin(x[0] * x[1] + t) + 0.1 * x[2] ** 2


def literal_picard(problem, surrogate, n, samples, key, s, x, *, nodes=None, exponent=0.0, weights=False, threshold=None, log=None):
    """U_n(s, x) by the formula of METHOD.md section 3 and nothing else: Python loops, full Hessians, no sharing.

    Only the layout of the streams is the library's: the key of U_n folded with ((sample * (n + 1) + level) * 4 + purpose).
    `log` collects what is evaluated and drawn.
    """
    dim, horizon = problem.dim, problem.horizon
    sigma = jnp.asarray(problem.diffusion)
    matrix = sigma if sigma.ndim == 2 else jnp.diag(jnp.broadcast_to(sigma, (dim,)))
    mu = jnp.broadcast_to(jnp.asarray(problem.drift), (dim,))
    count = log if log is not None else {"g": 0, "F": 0, "normals": 0, "uniforms": 0}

    def hat(t, y):
        if surrogate is None:
            return jnp.zeros(()), jnp.zeros(dim)
        return surrogate(t, y), matrix.T @ jax.grad(surrogate, 1)(t, y)

    def gb(y):
        return problem.terminal(y) - hat(jnp.asarray(horizon), y)[0]

    def fb(t, y, u, z):
        count["F"] += 1
        uh, zh = hat(t, y)
        moved = 0.0
        if surrogate is not None:
            moved = jax.grad(surrogate, 0)(t, y) + mu @ jax.grad(surrogate, 1)(t, y)
            moved = moved + 0.5 * jnp.trace(matrix @ matrix.T @ jax.hessian(surrogate, 1)(t, y))
        eps = moved + problem.nonlinearity(t, y, uh, zh)
        return problem.nonlinearity(t, y, uh + u, zh + z) - problem.nonlinearity(t, y, uh, zh) + eps

    def big_u(n, key, s, x):
        if n == 0:
            return jnp.zeros(()), jnp.zeros(dim)
        if weights:
            u, z = total(n, key, s, x)
        else:
            u, slope = jax.value_and_grad(lambda y: total(n, key, s, y)[0])(x)
            z = matrix.T @ slope
        if threshold is not None:
            u, z = jnp.clip(u, -threshold, threshold), jnp.clip(z, -threshold, threshold)
        return u, z

    def stream(key, n, level, i, purpose):
        return jax.random.fold_in(key, (i * (n + 1) + level) * 4 + purpose)

    def move(key, x, duration):
        count["normals"] += dim
        xi = jax.random.normal(key, (dim,))
        return x + mu * duration + matrix @ xi * jnp.sqrt(duration), xi / jnp.sqrt(duration)

    def total(n, key, s, x):
        u, z = gb(x), jnp.zeros(dim)
        for i in range(samples**n):
            y, weight = move(stream(key, n, 0, i, 0), x, horizon - s)
            count["g"] += 1
            change = (gb(y) - gb(x)) / samples**n
            u, z = u + change, z + change * weight
        for l in range(n):
            for i in range(samples ** (n - l)):
                for q in range(nodes or 1):
                    index = i * (nodes or 1) + q
                    key_path, key_time, key_new, key_old = (stream(key, n, l + 1, index, j) for j in range(4))
                    if nodes is None:
                        count["uniforms"] += 1
                        r = (1 - jax.random.uniform(key_time, ())) ** (1 / (1 - exponent))
                        duration, w = (horizon - s) * r, (horizon - s) / ((1 - exponent) * r**-exponent)
                    else:
                        c, v = np.polynomial.legendre.leggauss(nodes)
                        duration, w = (horizon - s) / 2 * (1 + c[q]), (horizon - s) / 2 * v[q]
                    y, weight = move(key_path, x, duration)
                    f = fb(s + duration, y, *big_u(l, key_new, s + duration, y))
                    if l >= 1:
                        f = f - fb(s + duration, y, *big_u(l - 1, key_old, s + duration, y))
                    f = f * w / samples ** (n - l)
                    u, z = u + f, z + f * weight
        return u, z

    return big_u(n, key, jnp.asarray(s), jnp.asarray(x))
