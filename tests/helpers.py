"""Laws with known answers, and the arithmetic of false-fail rates.

Stochastic tests fix their seed, so they do not flicker; the rate they state is the chance that a
correct library fails for a seed drawn at random. `SIGMAS` = 6 standard errors of a mean of many
replicates: 2e-9 per comparison, under 1e-6 for the whole suite.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import scasml
from scasml._planning.task import Setting
from scasml.surrogates import wrap

SIGMAS = 6.0


def setting(problem, t, x, budget, surrogate=None, **options):
    """What a value alone is planned for, without a deadline."""
    told = {"seed": 0, "gradient": False, "deadline": np.inf} | options
    return Setting(problem=problem, surrogate=surrogate, t=t, x=x, budget=budget, **told)


def bias_but_rounding(answer):
    """At each point that was simulated: what the method itself leaves."""
    return np.concatenate(
        [
            sum(part for name, part in level.bias.items() if name != "rounding")
            for level in answer.levels
        ]
    )


def manufactured(dim=3, diffusion=0.7, uses_z=True, horizon=0.8):
    """A nonlinear problem with u = sin(a.x + t) known: F(u, z) - F(u*, z*) - (u*_t + L u*)."""
    a = np.linspace(0.4, 0.9, dim)
    sigma = np.asarray(diffusion, np.float64)
    matrix = sigma if sigma.ndim == 2 else np.diag(np.broadcast_to(sigma, (dim,)))
    spread = matrix.T @ a
    mu = np.linspace(-0.3, 0.2, dim)

    def exact(t, x):
        return jnp.sin(jnp.asarray(a, x.dtype) @ x + t)

    def equation(u, z):
        f = 0.6 * u - 0.2 * u**3
        return f + 0.3 * jnp.sum(z) * u + 0.1 * z @ z if uses_z else f

    def nonlinearity(t, x, u, z):
        phase = jnp.asarray(a, x.dtype) @ x + t
        true_u, slope = jnp.sin(phase), jnp.cos(phase)
        generator = slope * (1 + mu @ a) - 0.5 * true_u * (spread @ spread)
        return equation(u, z) - equation(true_u, slope * jnp.asarray(spread, x.dtype)) - generator

    problem = scasml.Problem(
        dim=dim,
        horizon=horizon,
        drift=mu,
        diffusion=diffusion,
        nonlinearity=nonlinearity,
        terminal=lambda x: exact(jnp.asarray(horizon, x.dtype), x),
    )
    return problem, exact


def varying(sigma="diagonal", horizon=0.8):
    """A nonlinear problem in three dimensions whose coefficients depend on t and x; its solution is not known."""
    shapes = {
        "scalar": lambda t, x: 0.6 + 0.2 * jnp.sin(x[0] + t),
        "diagonal": lambda t, x: 0.6 + 0.2 * jnp.sin(x + t),
        "full": lambda t, x: 0.5 * jnp.eye(3) + 0.1 * jnp.sin(jnp.outer(x, x[::-1]) + t),
    }
    return scasml.Problem(
        dim=3,
        horizon=horizon,
        drift=lambda t, x: jnp.cos(x[::-1]) - t * x,
        diffusion=shapes[sigma],
        nonlinearity=lambda t, x, u, z: jnp.sin(u) + 0.3 * z @ z + x[0] * z[1] - u * t,
        terminal=lambda x: jnp.sin(x @ x),
    )


def heat(dim=3, horizon=0.5):
    """A linear problem with a source: u = |x|^2 + exp(t) sum x, sigma = 0.8."""
    sigma = 0.8
    exact = lambda t, x: x @ x + jnp.exp(t) * jnp.sum(x)
    source = lambda t, x, u, z: -(jnp.exp(t) * jnp.sum(x) + sigma**2 * dim)
    problem = scasml.Problem(
        dim=dim,
        horizon=horizon,
        diffusion=sigma,
        nonlinearity=source,
        terminal=lambda x: exact(jnp.asarray(horizon, x.dtype), x),
    )
    return problem, exact


def network(dim, seed=0, width=8, activation=jnp.tanh):
    return eqx.nn.MLP(dim + 1, 1, width, 2, activation=activation, key=jax.random.key(seed))


def network_surrogate(problem, seed=0, **options):
    return wrap(network(problem.dim, seed, **options), problem, inputs="tx")


def rough(t, x):
    """A cheap closed-form surrogate, wrong everywhere."""
    return 0.5 * jnp.sin(x[0] * x[1] + t) + 0.1 * x[2] ** 2
