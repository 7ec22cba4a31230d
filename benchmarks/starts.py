"""What regression weights among starts could gain: {nothing, g where paths end, the surrogate} on the same noise, mixed, beside the best one of them.

Every start is an estimate of the same u, so any mixture whose weights add up to one is another; the weights of the least variance are those of a regression with the
others as control variates. They are fitted on one half of the replicates and tried on the other, and what is simulated has to be paid for: the figure that counts
is variance times work, of the mixture over that of the best start alone.
"""

from typing import Any, NamedTuple

import numpy as np

import scasml
from accuracy import Run
from scasml import Linearised, problems, surrogates
from scasml._planning.auto import controls
from scasml._support.precision import cast, use_dtype
from scasml.execution import Kernel
from scasml.surrogates.wrapping import wrap
from surrogates import queries

POINTS, REPLICATES, PATHS = 6, 64, 32
KIND = np.dtype(np.float32)


class Gain(NamedTuple):
    """Of the mixture over the best start, geometric means over points."""

    deviation: float
    variance_times_work: float
    best: str  # at most points


def weights(covariance: Any) -> Any:
    """Of the mixture of the least variance; they add up to one."""
    ridge = 1e-9 * np.trace(covariance) * np.eye(len(covariance))
    solved = np.linalg.solve(covariance + ridge, np.ones(len(covariance)))
    return solved / solved.sum()


def gain(problem: scasml.Problem, surrogate: Any, sampling: Any) -> Gain:
    t, x = queries(problem, None, POINTS)
    t, x = (0.9 * t).astype(KIND), x.astype(KIND)
    with use_dtype(KIND):
        model = wrap(cast(surrogate, KIND), problem)
        starts = controls(cast(problem, KIND), model, None)
        method = Linearised(
            "auto" if problem.is_linear else 2, PATHS, 0, gradient="pathwise", sampling=sampling
        )
        values, work = [], []
        for start in starts:
            kernel = Kernel(
                start.equation,
                method,
                t,
                x,
                seed=0,
                gradient=False,
                surrogate=model,
                control=start.model,
            )
            run = Run(kernel, [])
            run.add(REPLICATES)
            values.append(np.array(run.values).T)  # (points, replicates)
            work.append(float(np.sum(method.work(start.equation, False)[:2])))
    values, work = np.moveaxis(np.array(values), 0, 1), np.array(work)
    half, ratios, best = REPLICATES // 2, [], []
    for point in values:
        mixed = np.zeros(REPLICATES)
        for fit, tried in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
            mixed[tried] = weights(np.cov(point[:, fit])) @ (
                point[:, tried] - point[:, fit].mean(1, keepdims=True)
            )
        variance, alone = np.mean(mixed**2), point.var(1, ddof=1)
        k = int(np.argmin(alone * work))
        best.append(k)
        ratios.append(
            (np.sqrt(variance / alone.min()), variance * work.sum() / (alone[k] * work[k]))
        )
    deviation, cost = np.exp(np.mean(np.log(ratios), 0))
    return Gain(float(deviation), float(cost), starts[int(np.bincount(best).argmax())].name)


def main() -> None:
    for name, problem, options in (
        ("convection-diffusion 10d", problems.convection_diffusion(10), {"preset": "paper"}),
        ("Burgers 20d, sigma0 0.25", problems.burgers(20), {}),
        ("Burgers 20d, sigma0 sqrt 2", problems.burgers(20, problems.BURGERS_PAPER), {}),
        ("LQG 100d", problems.lqg(100), {}),
        ("diffusion-reaction 100d", problems.diffusion_reaction(100), {}),
    ):
        for label, steps in (("trained", 1000), ("briefly", 60)):
            model = surrogates.pinn(problem, seed=0, **{**options, "steps": steps})
            for sampling in ("mc", "rqmc"):
                got = gain(problem, model, sampling)
                print(
                    f"{name}, {label}, {sampling}: a mixture deviates by {got.deviation:.2f} of the best start, and has {got.variance_times_work:.2f} of "
                    f"the variance times work of {got.best}",
                    flush=True,
                )
