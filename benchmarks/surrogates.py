"""Our own surrogates: relative L2 error at 1200 uniform points, before and after correction, and CPU seconds."""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

import scasml
from scasml import Ball, Picard, problems, surrogates
from scasml._equations.domain import AbstractDomain
from scasml.surrogates.collocation import domain_of

POINTS, CORRECTED = 1200, 100
METHOD, REPLICATES = Picard(2, 10), 16


class Entry(NamedTuple):
    name: str
    problem: Callable[[], scasml.Problem]
    kind: str
    published: float | None  # the paper's surrogate column
    domain: AbstractDomain | None = None  # None for the problem's own


ENTRIES = [
    Entry("convection-diffusion 10d", lambda: problems.convection_diffusion(10), "pinn", 5.2e-2),
    Entry("Burgers 20d, sigma0 0.25", lambda: problems.burgers(20), "pinn", 1.17e-2),
    Entry(
        "Burgers 20d, sigma0 sqrt 2",
        lambda: problems.burgers(20, problems.BURGERS_PAPER),
        "pinn",
        1.17e-2,
    ),
    Entry("LQG 100d, T = 0.5", lambda: problems.lqg(100), "pinn", 8e-2),
    Entry("LQG 100d, T = 1", lambda: problems.lqg(100, 1.0), "pinn", 8e-2),
    Entry("diffusion-reaction 100d", lambda: problems.diffusion_reaction(100), "pinn", 1.4e-2),
    Entry("HJB 100d", lambda: problems.hjb(100), "pinn", None),
    Entry("Allen-Cahn 100d", lambda: problems.allen_cahn(100), "pinn", None, Ball(1.0)),
    *(
        Entry(
            f"Burgers {dim}d, sigma0 {name}",
            functools.partial(problems.burgers, dim, sigma0),
            "gp",
            published,
        )
        for name, sigma0 in (("0.25", problems.BURGERS_TABLE), ("sqrt 2", problems.BURGERS_PAPER))
        for dim, published in ((20, 0.147), (40, 0.181), (60, 0.240), (80, 0.266))
    ),
    Entry("HJB 100d", lambda: problems.hjb(100), "tensor_train", None),
    Entry("Allen-Cahn 100d", lambda: problems.allen_cahn(100), "tensor_train", None, Ball(1.0)),
    Entry("Burgers 20d, sigma0 0.25", lambda: problems.burgers(20), "tensor_train", 1.17e-2),
    Entry("LQG 100d, T = 0.5", lambda: problems.lqg(100), "tensor_train", 8e-2),
    Entry(
        "diffusion-reaction 100d", lambda: problems.diffusion_reaction(100), "tensor_train", 1.4e-2
    ),
]


class Result(NamedTuple):
    error: float
    cpu_seconds: float
    surrogate: Any


def queries(
    problem: scasml.Problem, domain: AbstractDomain | None, count: int, seed: int = 7
) -> tuple[Any, Any]:
    domain = domain or domain_of(problem)
    draw = jax.jit(jax.vmap(lambda key: domain.draw(key, problem.dim, problem.horizon)))
    t, x = draw(jax.random.split(jax.random.key(seed), count))
    return np.asarray(t), np.asarray(x)


def relative(a: Any, exact: Any) -> float:
    return float(np.linalg.norm(a - exact) / np.linalg.norm(exact))


def trained(entry: Entry, seed: int = 0) -> Result:
    problem, began = entry.problem(), time.process_time()
    model = getattr(surrogates, entry.kind)(problem, seed=seed, domain=entry.domain)
    spent = time.process_time() - began
    t, x = queries(problem, entry.domain, POINTS)
    return Result(
        relative(np.asarray(jax.jit(jax.vmap(model))(t, x)), problem.exact(t, x)), spent, model
    )


def corrected(entry: Entry, model: Any, points: int = CORRECTED) -> tuple[float, float, float]:
    """Relative errors of the surrogate and of its correction at the same points, and CPU milliseconds a point."""
    problem = entry.problem()
    t, x = queries(problem, entry.domain, points)
    t = 0.9 * t  # at the horizon there is nothing to correct
    began = time.process_time()
    answer = scasml.correct(
        problem, model, t, x, method=METHOD, replicates=REPLICATES, with_gradient=False
    )
    spent = 1e3 * (time.process_time() - began) / points
    exact = problem.exact(t, x)
    return relative(answer.surrogate_value, exact), relative(answer.value, exact), spent


class Row(NamedTuple):
    entry: Entry
    error: float
    cpu_seconds: float
    before: float
    after: float
    milliseconds: float

    def __str__(self) -> str:
        entry, paper = (
            self.entry,
            "" if self.entry.published is None else f"{self.entry.published:.1e}",
        )
        return (
            f"{entry.name:32} {entry.kind:>13} {self.error:>9.1e} {paper:>9} {self.cpu_seconds:>7.0f} "
            f"{self.before:>9.1e} {self.after:>10.1e} {self.milliseconds:>15.0f}"
        )


def row(entry: Entry) -> Row:
    got = trained(entry)
    return Row(entry, got.error, got.cpu_seconds, *corrected(entry, got.surrogate))


def main() -> None:
    print(
        f"{'':32} {'kind':>13} {'rel. L2':>9} {'paper':>9} {'CPU s':>7} {'before':>9} {'corrected':>10} {'CPU ms a point':>15}"
    )
    for entry in ENTRIES:
        print(row(entry), flush=True)
