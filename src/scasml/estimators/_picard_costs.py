"""Cost of multilevel Picard iteration: the recursions FE, RV and RN of the SCaSML paper."""

from typing import TYPE_CHECKING, Any

from .._equations.base import AbstractEquation
from .base import Tuning
from .evaluations import Evaluations

if TYPE_CHECKING:
    from .picard import Picard


def level_samples(estimator: "Picard", n: int) -> list[int]:
    """Return the samples of the terms of U_n: M^n of the terminal term, then M^(n-l) of level l."""
    m = estimator.samples
    return [m**n, *(m ** (n - l) for l in range(n))]


def picard_evaluations(
    estimator: "Picard", equation: AbstractEquation, tuning: Tuning
) -> list[Evaluations]:
    """Return the cost of each increment of one replicate, `levels` + 1 in all."""
    return _iterate(estimator, equation, tuning.steps, estimator.levels, tuning.samples)


def _iterate(
    estimator: "Picard", equation: AbstractEquation, steps: int, n: int, samples: Any = None
) -> list[Evaluations]:
    """Return the cost of each term of U_n, with `samples` (n + 1,) or, if None, M^n and M^(n-l)."""
    numbers = level_samples(estimator, n) if samples is None else [int(count) for count in samples]
    one = sample_evaluations(estimator, equation, steps, n)
    return [cost.times(number) for cost, number in zip(one, numbers, strict=True)]


def sample_evaluations(
    estimator: "Picard", equation: AbstractEquation, steps: int, n: int
) -> list[Evaluations]:
    """Return the cost of one sample of the terminal term of U_n and of each level, n + 1 in all.

    The levels of a linear equation beyond level 0 are zero, and are not computed.
    """
    normals = equation.dim * estimator.paths(equation, steps).steps
    uniforms = 1 if estimator.nodes is None else 0
    total = [Evaluations(terminal=1, normals=normals)]
    for l in range(1 if equation.is_linear else n):
        is_coupled = estimator.pairs and estimator.sampling == "mc"
        one = Evaluations(
            nonlinearity=_evaluations_of_f(estimator, l, is_coupled),
            normals=normals,
            uniforms=uniforms,
        )
        inner_levels = (l,) if is_coupled else (l, l - 1)
        inner = [
            cost for k in inner_levels if k >= 1 for cost in _iterate(estimator, equation, steps, k)
        ]
        total.append((one + sum(inner, Evaluations())).times(estimator.nodes or 1))
    return total + [Evaluations()] * (n + 1 - len(total))


def _evaluations_of_f(estimator: "Picard", l: int, is_coupled: bool) -> int:
    """Return how often one sample of level l evaluates F at its own time and state."""
    if l == 0:
        return 1
    if not estimator.pairs:
        return 2
    if l == 1:
        return 3
    return 3 * (estimator.samples + 1) if is_coupled else 6
