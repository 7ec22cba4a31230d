"""Pictures of arrays. matplotlib is imported when one is asked for."""

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
    """Points in the order of their corrected value; errors against the exact value where it is known."""
    ax = _axes(ax, "answer.plot()")
    order = np.argsort(value if exact is None else exact, kind="stable")
    place = np.arange(len(value))
    base = np.zeros_like(value) if exact is None else exact
    if surrogate is not None:
        ax.plot(place, (surrogate - base)[order], ".", color="#c44e52", label="surrogate")
    ax.errorbar(
        place,
        (value - base)[order],
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
    """Error bars after every round of a run, the line they should follow, and the bias at which they stop following it."""
    ax = _axes(ax, "answer.plot_convergence()")
    ax.loglog(replicates, worst, "o-", color="#c44e52", label="widest of all points")
    ax.loglog(replicates, median, "o-", color="#4c72b0", label="median point")
    # From where Student's quantile is nearly the normal one.
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
    """The root mean square of the residual over a training run."""
    ax = _axes(ax, "surrogate.plot()")
    ax.semilogy(np.linspace(0, steps, len(residuals) + 1)[1:], residuals, color="#4c72b0")
    ax.set_xlabel("step of training")
    ax.set_ylabel("residual, root mean square")
    return ax


def _axes(ax: Any, what: str) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", what) from error
    return plt.subplots(figsize=(7.0, 4.0), layout="constrained")[1] if ax is None else ax
