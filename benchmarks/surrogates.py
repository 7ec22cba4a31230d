"""Our own surrogates: relative L2 error at 1200 uniform points, before and after correction, and CPU seconds."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import scasml
from scasml import Picard, problems, surrogates
from scasml.surrogates.collocation import domain_of

POINTS, CORRECTED = 1200, 200
METHOD, REPLICATES = Picard(2, 10), 16


class Entry(NamedTuple):
    name: str
    problem: Callable[[], scasml.Problem]
    kind: str
    published: float | None  # the paper's surrogate column
    options: tuple[tuple[str, Any], ...] = ()


ENTRIES = [
    Entry("convection-diffusion 10d", lambda: problems.convection_diffusion(10), "pinn", 5.2e-2),
    Entry("Burgers 20d, sigma0 0.25", lambda: problems.burgers(20), "pinn", 1.17e-2),
    Entry("Burgers 20d, sigma0 sqrt 2", lambda: problems.burgers(20, problems.BURGERS_PAPER), "pinn", 1.17e-2),
    Entry("LQG 100d, T = 0.5", lambda: problems.lqg(100), "pinn", 8e-2),
    Entry("LQG 100d, T = 1", lambda: problems.lqg(100, 1.0), "pinn", 8e-2),
    Entry("diffusion-reaction 100d", lambda: problems.diffusion_reaction(100), "pinn", 1.4e-2),
    Entry("HJB 100d", lambda: problems.hjb(100), "pinn", None),
]


class Result(NamedTuple):
    error: float
    cpu_seconds: float
    surrogate: Any


def queries(problem: scasml.Problem, count: int, seed: int = 7) -> tuple[Any, Any]:
    domain = domain_of(problem)
    draw = jax.jit(jax.vmap(lambda key: domain.draw(key, problem.dim, problem.horizon)))
    t, x = draw(jax.random.split(jax.random.key(seed), count))
    return np.asarray(t), np.asarray(x)


def relative(a: Any, exact: Any) -> float:
    return float(np.linalg.norm(a - exact) / np.linalg.norm(exact))


def trained(entry: Entry, seed: int = 0) -> Result:
    problem, began = entry.problem(), time.process_time()
    model = getattr(surrogates, entry.kind)(problem, seed=seed, **dict(entry.options))
    spent = time.process_time() - began
    t, x = queries(problem, POINTS)
    return Result(relative(np.asarray(jax.jit(jax.vmap(model))(t, x)), problem.exact(t, x)), spent, model)


def corrected(problem: scasml.Problem, model: Any, points: int = CORRECTED) -> tuple[float, float, float]:
    """Relative errors of the surrogate and of its correction at the same points, and CPU milliseconds a point."""
    t, x = queries(problem, points)
    t = 0.9 * t  # at the horizon there is nothing to correct
    began = time.process_time()
    answer = scasml.correct(problem, model, t, x, method=METHOD, replicates=REPLICATES, with_gradient=False)
    spent = 1e3 * (time.process_time() - began) / points
    exact = problem.exact(t, x)
    return relative(answer.surrogate_value, exact), relative(answer.value, exact), spent


def main() -> None:
    print(
        f"{'':32} {'kind':>13} {'rel. L2':>9} {'paper':>9} {'CPU s':>7} {'before':>9} {'corrected':>10} {'CPU ms a point':>15}"
    )
    for entry in ENTRIES:
        got = trained(entry)
        before, after, spent = corrected(entry.problem(), got.surrogate)
        paper = "" if entry.published is None else f"{entry.published:.1e}"
        print(
            f"{entry.name:32} {entry.kind:>13} {got.error:>9.1e} {paper:>9} {got.cpu_seconds:>7.0f} {before:>9.1e} {after:>10.1e} {spent:>15.0f}",
            flush=True,
        )
