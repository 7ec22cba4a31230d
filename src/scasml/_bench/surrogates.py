"""Trained surrogates: CPU seconds, and relative L2 errors before and after correction."""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import Ball, Picard, Problem, correct, problems
from .._equations.domain import AbstractDomain
from ..surrogates.trained import train_kind
from .measuring import relative_error, uniform_points

# Points at which a surrogate is evaluated, and at which it is corrected.
TEST_POINTS, CORRECTED_POINTS = 1200, 100
CORRECTION_METHOD, CORRECTION_REPLICATES = Picard(2, 10), 16


class Entry(NamedTuple):
    """A problem and the kind of surrogate to train for it."""

    name: str
    problem: Callable[[], Problem]
    kind: str
    published: float | None  # relative L2 error of the surrogate of the paper
    domain: AbstractDomain | None = None  # None for the domain of the problem


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


class Trained(NamedTuple):
    """A trained surrogate, its relative error at TEST_POINTS points, and the cost of training."""

    error: float
    cpu_seconds: float
    surrogate: Any


class Row(NamedTuple):
    """One line of the table. Errors are relative L2 errors."""

    entry: Entry
    error: float  # of the surrogate, at TEST_POINTS points
    cpu_seconds: float  # of training
    before: float  # error of the surrogate at the points that are corrected
    after: float  # error of the correction there
    milliseconds: float  # CPU time of the correction, per point

    def __str__(self) -> str:
        entry, published = self.entry, ""
        if entry.published is not None:
            published = f"{entry.published:.1e}"
        return (
            f"{entry.name:32} {entry.kind:>13} {self.error:>9.1e} {published:>9} "
            f"{self.cpu_seconds:>7.0f} {self.before:>9.1e} {self.after:>10.1e} "
            f"{self.milliseconds:>16.0f}"
        )


def trained(entry: Entry, seed: int = 0, **options: Any) -> Trained:
    """Train the surrogate of an entry; `options` are those of its kind of surrogate."""
    problem, began = entry.problem(), time.process_time()
    model = train_kind(problem, entry.kind, seed=seed, domain=entry.domain, **options)
    spent = time.process_time() - began
    t, x = uniform_points(problem, entry.domain, TEST_POINTS)
    values = np.asarray(jax.jit(jax.vmap(model))(t, x))
    return Trained(relative_error(values, problem.exact(t, x)), spent, model)


def corrected(
    entry: Entry, model: Any, points: int = CORRECTED_POINTS
) -> tuple[float, float, float]:
    """Return the relative L2 errors before and after correction, and the CPU ms per point."""
    problem = entry.problem()
    t, x = uniform_points(problem, entry.domain, points)
    t = 0.9 * t  # there is no defect at the horizon
    began = time.process_time()
    answer = correct(
        problem,
        model,
        t,
        x,
        method=CORRECTION_METHOD,
        replicates=CORRECTION_REPLICATES,
        with_gradient=False,
    )
    milliseconds = 1e3 * (time.process_time() - began) / points
    exact = problem.exact(t, x)
    before = relative_error(answer.surrogate_value, exact)
    return before, relative_error(answer.value, exact), milliseconds


def row(entry: Entry) -> Row:
    """Train and correct the surrogate of an entry, and return its line of the table."""
    result = trained(entry)
    return Row(entry, result.error, result.cpu_seconds, *corrected(entry, result.surrogate))


def main() -> None:
    """Print a line for every entry."""
    print(
        f"{'':32} {'kind':>13} {'rel. L2':>9} {'paper':>9} {'CPU s':>7} {'before':>9} "
        f"{'corrected':>10} {'CPU ms per point':>16}"
    )
    for entry in ENTRIES:
        print(row(entry), flush=True)
