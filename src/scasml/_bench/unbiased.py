"""Whether answers to a relative tolerance of 1e-2 are without bias, on hard problems.

For every problem of `hard`, `method="auto"` answers many points that are almost the same,
each with random numbers of its own. The table has the mean error in its standard errors, and how
often the 95 % interval covers the solution, for the value and for the gradient.
"""

import time
from typing import Any, NamedTuple

import numpy as np

from .. import correct
from .hard import Hard, hard_problems

REPEATS = 1000
TOLERANCE = 1e-2


class Bias(NamedTuple):
    """The errors of the converged answers of one problem."""

    converged: float  # fraction of the answers
    mean_error: float  # in its standard errors
    covered: float  # fraction of the converged answers whose interval covers the solution
    stated: float  # median of (stated bias / tolerance)
    gradient_error: float  # largest mean error of a component, in its standard errors
    gradient_covered: float  # fraction of the components; NaN without gradients
    seconds: float  # CPU time of an answer, without compilation


def bias(hard: Hard, repeats: int = REPEATS, gradient: bool = True, **options: Any) -> Bias:
    """Answer `repeats` points of a problem, and compare with the exact values and gradients."""
    states, exact = hard.points(repeats)
    rules = {"rtol": TOLERANCE, "safe": False, "with_gradient": gradient, **options}
    # The first call compiles the programs.
    correct(hard.problem, hard.surrogate, t=0.0, x=states[:2], seed=1, **rules)
    began = time.process_time()
    answer = correct(hard.problem, hard.surrogate, t=0.0, x=states, **rules)
    seconds = (time.process_time() - began) / repeats
    done = answer.status == "converged"
    low, high = answer.interval(0.95)
    error, covered = answer.value - exact, (low <= exact) & (exact <= high)
    worst, of_gradient = np.nan, np.nan
    if answer.gradient is not None and answer.gradient_stderr is not None:
        slopes = (answer.gradient - hard.slopes(states))[done]
        worst = float(np.nanmax(np.abs(_in_standard_errors(slopes)), initial=0.0))
        # The t quantile of a point is that of the interval of its value.
        without_bias = answer.interval(0.95, include_bias=False)
        with np.errstate(invalid="ignore", divide="ignore"):
            quantile = (without_bias[1] - without_bias[0]) / 2 / answer.stderr
        assert answer.gradient_bias is not None
        half = quantile[done, None] * answer.gradient_stderr[done] + answer.gradient_bias[done]
        of_gradient = float(np.mean(np.abs(slopes) <= half)) if done.any() else np.nan
    stated = answer.bias / (TOLERANCE * np.abs(answer.value))
    return Bias(
        float(np.mean(done)),
        float(_in_standard_errors(error[done])),
        float(np.mean(covered[done])) if done.any() else np.nan,
        float(np.median(stated)),
        worst,
        of_gradient,
        seconds,
    )


def _in_standard_errors(errors: Any) -> Any:
    """Return the mean over the first axis, in its standard errors; NaN for fewer than two."""
    if len(errors) < 2:
        return np.nan
    with np.errstate(invalid="ignore", divide="ignore"):  # an error may not vary at all
        return errors.mean(0) / (errors.std(0, ddof=1) / np.sqrt(len(errors)))


def main(*arguments: str) -> None:
    """Print the table, for all problems or for those that are named.

    A number among the arguments is the number of repeats.
    """
    repeats = next((int(each) for each in arguments if each.isdigit()), REPEATS)
    chosen = [each for each in arguments if not each.isdigit()]
    makers = hard_problems()
    for name in chosen:
        if name not in makers:
            raise SystemExit(
                f"unbiased knows {', '.join(makers)}, got {name!r}: name one of these."
            )
    print(
        f"{f'rtol {TOLERANCE:g}, {repeats} repeats':22} {'converged':>9} {'error/se':>9} "
        f"{'covers':>8} {'bias/tolerance':>16} {'gradient error/se':>18} {'covers':>8} {'ms':>7}"
    )
    for name in chosen or makers:
        found = bias(makers[name](), repeats, gradient=name != "kinked")
        print(
            f"{name:22} {100 * found.converged:>7.1f} % {found.mean_error:>9.1f} "
            f"{100 * found.covered:>6.1f} % {found.stated:>16.2f} {found.gradient_error:>18.1f} "
            f"{100 * found.gradient_covered:>6.1f} % {1e3 * found.seconds:>7.1f}",
            flush=True,
        )
