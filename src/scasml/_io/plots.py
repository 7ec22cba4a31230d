"""Plots of corrections, of their convergence and of training runs.

Each function takes arrays and optional matplotlib axes, and returns the axes. matplotlib is
imported inside the functions because it is an optional dependency.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._support.errors import missing_extra


def correction(
    *,
    value: NDArray[Any],
    interval: tuple[NDArray[Any], ...],
    surrogate: NDArray[Any] | None,
    exact: NDArray[Any] | None,
    ax: Any = None,
) -> Any:
    """Plot the corrected values with their 95 % intervals, in ascending order.

    All arrays have shape (B,), with one entry per point, and `interval` is the pair (lower, upper).
    If `exact` is given, the plot shows differences from it, in ascending order of `exact`. If
    `surrogate` is given, its values are drawn too. Returns the axes, which are new if `ax` is None.
    Raises MissingExtraError without matplotlib, as the other plots do.
    """
    ax = _axes(ax, "answer.plot()")
    order = np.argsort(value if exact is None else exact, kind="stable")
    position = np.arange(len(value))
    reference = np.zeros_like(value) if exact is None else exact
    if surrogate is not None:
        ax.plot(position, (surrogate - reference)[order], ".", color="#c44e52", label="surrogate")
    ax.errorbar(
        position,
        (value - reference)[order],
        np.maximum([value - interval[0], interval[1] - value], 0)[:, order],
        fmt=".",
        color="#4c72b0",
        ecolor="#9fb3d4",
        label="corrected, 95 %",
    )
    if exact is not None:
        ax.axhline(0.0, color="black", linewidth=0.8, label="exact")
    ax.set_xlabel("point, by value")
    ax.set_ylabel("u" if exact is None else "u - exact")
    ax.legend(frameon=False)
    return ax


def convergence(
    *,
    replicates: NDArray[Any],
    median: NDArray[Any],
    worst: NDArray[Any],
    bias: NDArray[Any],
    ax: Any = None,
) -> Any:
    """Plot the half width of the 95 % intervals after each round of a run.

    All arrays have shape (rounds,): the mean number of replicates per point, the median and the
    largest half width over the points, and the median of the estimated bias. The dashed line shows
    the decay 1/sqrt(replicates). The half widths stop following it when they reach the bias.
    Returns the axes.
    """
    ax = _axes(ax, "answer.plot_convergence()")
    ax.loglog(replicates, worst, "o-", color="#c44e52", label="widest of all points")
    ax.loglog(replicates, median, "o-", color="#4c72b0", label="median point")
    # With fewer replicates the quantile of Student's distribution is much larger than the normal
    # quantile, and the widths fall faster than 1/sqrt(replicates).
    start = int(np.argmax(replicates >= 16)) if replicates[-1] >= 16 else 0
    line = median[start] * np.sqrt(replicates[start] / replicates[start:])
    ax.loglog(replicates[start:], line, "--", color="black", linewidth=0.8, label=r"$1/\sqrt{N}$")
    if np.any(bias > 0):
        ax.loglog(
            replicates, np.where(bias > 0, bias, np.nan), ":", color="#4c72b0", label="its bias"
        )
    ax.set_xlabel("replicates per point")
    ax.set_ylabel("half of the 95 % interval")
    ax.legend(frameon=False)
    return ax


def training(*, residuals: Sequence[float], steps: int, ax: Any = None) -> Any:
    """Plot the root mean square of the residual over a training run.

    `residuals` holds values after equal numbers of steps, the last one after step number `steps`.
    Returns the axes.
    """
    ax = _axes(ax, "surrogate.plot()")
    ax.semilogy(np.linspace(0, steps, len(residuals) + 1)[1:], residuals, color="#4c72b0")
    ax.set_xlabel("step of training")
    ax.set_ylabel("residual, root mean square")
    return ax


def _axes(ax: Any, caller: str) -> Any:
    """Return `ax`, or new axes if it is None.

    Raises MissingExtraError, which names the `caller`, if matplotlib is not installed.
    """
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", caller) from error
    return plt.subplots(figsize=(7.0, 4.0), layout="constrained")[1] if ax is None else ax
