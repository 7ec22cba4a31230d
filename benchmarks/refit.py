"""What a correction of a correction could gain at best: a surrogate plus a refit of its defect at states along paths, from the exact defect there.

A refit from simulated values would be worse, and costs their simulation. What decides is how much the samples of a path deviate: that is what an error bar takes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import scasml
from accuracy import Run
from scasml import Linearised, problems, surrogates
from scasml._equations.defect import Defect
from scasml._support.precision import cast, use_dtype
from scasml.execution import Kernel, surrogate_at
from scasml.surrogates.wrapping import wrap
from surrogates import queries

POINTS, REPLICATES, PATHS = 6, 32, 32
STATES, LENGTHS, RIDGE = 1000, (0.5, 1.0, 3.0), 1e-4
KIND = np.dtype(np.float32)


class Gain(NamedTuple):
    """After over before, of the best of the lengths."""

    error: float  # rms, at the points
    deviation: float  # of one replicate, geometric mean over points


def states(problem: scasml.Problem, t: Any, x: Any, count: int) -> tuple[Any, Any]:
    """Where paths from the points are at uniform times."""
    each = -(-count // len(t))
    keys = jax.random.split(jax.random.key(1), len(t) * each)
    paths, start, at = problem.dynamics.exact, np.repeat(t, each), np.repeat(x, each, 0)
    assert paths is not None
    duration = np.random.default_rng(1).uniform(size=len(start)).astype(KIND) * (
        problem.horizon - start
    )
    ends = jax.vmap(lambda key, s, y, r: paths.jump(key, s, y, r, False).x)(
        keys, start, at, duration
    )
    return (start + duration).astype(KIND), np.asarray(ends)


def refit(problem: scasml.Problem, model: Any, s: Any, y: Any, length: float) -> Callable[..., Any]:
    """The surrogate and a kernel ridge regression of its defect at these states."""
    spread = np.sqrt(np.mean(np.sum((y - y.mean(0)) ** 2, 1)))
    inputs = np.concatenate([s[:, None] / problem.horizon, y / spread], 1) / length
    kernel = np.exp(-((inputs[:, None] - inputs[None]) ** 2).sum(-1) / 2)
    defect = problem.exact(s, y) - surrogate_at(model, s, y)[0]
    weights = jnp.asarray(np.linalg.solve(kernel + RIDGE * np.eye(len(s)), defect), KIND)
    centres = jnp.asarray(inputs, KIND)

    def better(t: Any, x: Any) -> Any:
        at = jnp.concatenate([t[None] / problem.horizon, x / spread]) / length
        return model(t, x) + jnp.exp(-jnp.sum((centres - at[None]) ** 2, 1) / 2) @ weights

    return better


def deviation(problem: scasml.Problem, surrogate: Any, t: Any, x: Any) -> Any:
    """Of one replicate of first order at every point."""
    model, equation = wrap(surrogate, problem), cast(problem, KIND)
    method = Linearised(2, PATHS, 0, gradient="pathwise")
    kernel = Kernel(
        Defect(equation, model, None), method, t, x, seed=0, gradient=False, surrogate=model
    )
    run = Run(kernel, [])
    run.add(REPLICATES)
    return np.std(run.values, 0, ddof=1)


def gain(problem: scasml.Problem, surrogate: Any, count: int = STATES) -> Gain:
    t, x = queries(problem, None, POINTS)
    t, x = (0.9 * t).astype(KIND), x.astype(KIND)
    exact = problem.exact(t, x)
    with use_dtype(KIND):
        model = wrap(cast(surrogate, KIND), problem)
        before, error = deviation(problem, model, t, x), exact - surrogate_at(model, t, x)[0]
        found, (s, y) = [], states(problem, t, x, count)
        for length in LENGTHS:
            better = refit(problem, model, s, y, length)
            off = exact - surrogate_at(wrap(better, problem), t, x)[0]
            ratio = deviation(problem, better, t, x) / before
            found.append(
                Gain(
                    float(np.sqrt(np.mean(off**2) / np.mean(error**2))),
                    float(np.exp(np.log(ratio).mean())),
                )
            )
    return min(found, key=lambda each: each.deviation)


def main() -> None:
    for name, problem, options in (
        (
            "convection-diffusion 10d",
            problems.convection_diffusion(10),
            {"preset": "paper", "steps": 1000},
        ),
        ("Burgers 20d", problems.burgers(20), {}),
        ("LQG 100d", problems.lqg(100), {}),
    ):
        got = gain(problem, surrogates.pinn(problem, seed=0, **options))
        print(
            f"{name}: refitted to the exact defect at {STATES} states, the surrogate has {got.error:.2f} of its error and a replicate "
            f"{got.deviation:.2f} of its deviation",
            flush=True,
        )
