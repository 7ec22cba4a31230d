"""Problems with known solutions, and shorthands that several test files share.

Stochastic tests fix their seed, so their outcome does not change from run to run. The false-fail
rate that a test states is the probability that a correct library fails for a random seed. A bound
of `SIGMAS` = 6 standard errors of a mean of many replicates is exceeded with probability 2e-9 per
comparison, which is below 1e-6 for the whole suite.
"""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import scasml
from scasml import Defect
from scasml._planning.task import Task
from scasml.estimators import AbstractEstimator, Evaluations, Tuning, Variant
from scasml.execution import LocalExecutor, Program
from scasml.execution.accumulator import Accumulator, KnownBias
from scasml.execution.points import Points
from scasml.surrogates import wrap

SIGMAS = 6.0
# An equation whose paths are simulated in steps, so that `Picard` has a step bias.
STEPPED = scasml.Problem(
    dim=3,
    horizon=0.5,
    diffusion=lambda t, x: 0.5 + 0.1 * jnp.sin(x),
    nonlinearity=lambda t, x, u, z: 0.1 * u**2,
    terminal=lambda x: jnp.cos(x[0]),
)


def task(problem, t, x, rule, surrogate=None, seed=0, **options):
    """Return the task of a value without gradient at the points (t, x), without a deadline."""
    points = Points.of(np.arange(len(t)), t, x, seed)
    chosen = {"gradient": False, "executor": LocalExecutor()} | options
    return Task(equation=problem, surrogate=surrogate, points=points, rule=rule, **chosen)


def accumulator(problem, method, *, surrogate, start, gradient=True):
    """Return an empty accumulator for the point (0, 0), without biases from pilots.

    The equation is that of the defect of `start`; None stands for zero.
    """
    equation = problem if start is None else Defect(problem, start)
    tuning = method.default_tuning(equation, gradient)
    program = Program(equation, method, tuning, surrogate=surrogate, start=start, gradient=gradient)
    t, x = np.zeros(1, np.float32), np.zeros((1, problem.dim), np.float32)
    known = KnownBias(np.zeros(1), np.zeros((1, problem.dim)))
    return Accumulator(LocalExecutor(), program, Points.of(np.arange(1), t, x, 0), tuning, known)


def replicate(method, equation, key, t, x, gradient=True, tuning=None, variant=Variant.MAIN):
    """Return one replicate of an estimator, by default with the tuning that needs no pilot."""
    tuning = method.default_tuning(equation, gradient) if tuning is None else tuning
    return method.replicate(
        equation, tuning, jnp.asarray(variant), key, jnp.asarray(t), jnp.asarray(x), gradient
    )


def cost(method, equation, gradient=True):
    """Return the evaluations of one replicate with the tuning that needs no pilot."""
    tuning = method.default_tuning(equation, gradient)
    return sum(method.evaluations(equation, tuning), Evaluations())


class Tuned(AbstractEstimator):
    """An estimator with a given tuning, such as that of a `Choice`, which runs no pilot."""

    estimator: AbstractEstimator
    tuning: Tuning

    @property
    def increments(self):
        return self.estimator.increments

    def default_tuning(self, equation, gradient):
        return self.tuning

    def replicate(self, equation, tuning, variant, key, t, x, gradient):
        return replicate(self.estimator, equation, key, t, x, gradient, tuning, variant)

    def evaluations(self, equation, tuning):
        return self.estimator.evaluations(equation, tuning)

    def work(self, equation, tuning, gradient):
        return self.estimator.work(equation, tuning, gradient)

    def level_bias(self, equation, mean, size):
        return self.estimator.level_bias(equation, mean, size)


def bias_but_rounding(answer):
    """Return the bias without its rounding part, at each simulated point."""
    return np.concatenate(
        [
            sum(part for name, part in level.bias.items() if name != "rounding")
            for level in answer.levels
        ]
    )


def manufactured(dim=3, diffusion=0.7, uses_z=True, horizon=0.8):
    """Return a nonlinear problem and its solution u = sin(a.x + t).

    The nonlinearity is F(u, z) - F(u*, z*) - (u*_t + L u*) for the known solution u*.
    """
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
    """Return a nonlinear problem in three dimensions whose coefficients depend on t and x.

    Its solution is not known.
    """
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
    """Return a linear problem with a source, and its solution u = |x|^2 + exp(t) sum x."""
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
    """Return an untrained network of (t, x)."""
    return eqx.nn.MLP(dim + 1, 1, width, 2, activation=activation, key=jax.random.key(seed))


def network_surrogate(problem, seed=0, **options):
    """Return an untrained network, wrapped as a surrogate of the problem."""
    return wrap(network(problem.dim, seed, **options), problem, inputs="tx")


def rough(t, x):
    """Return a cheap surrogate in closed form, which is wrong everywhere."""
    return 0.5 * jnp.sin(x[0] * x[1] + t) + 0.1 * x[2] ** 2


def check_one_sentence(message):
    """Check that a message is one sentence of at most 300 characters."""
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) <= 300
    assert not re.search(r"[.!?]\s+[A-Z]", message), f"more than one sentence: {message}"
