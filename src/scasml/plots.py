"""Pictures of arrays. matplotlib is imported when one is asked for."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import missing_extra


def correction(
    *,
    value: NDArray[Any],
    half_width: NDArray[Any],
    surrogate: NDArray[Any] | None,
    exact: NDArray[Any] | None,
    ax: Any = None,
) -> Any:
    """Points in the order of their corrected value; errors against the exact value where it is known."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise missing_extra("matplotlib", "plot", "answer.plot()") from error
    if ax is None:
        _, ax = plt.subplots(figsize=(7.0, 4.0), layout="constrained")
    order = np.argsort(value if exact is None else exact, kind="stable")
    place = np.arange(len(value))
    base = np.zeros_like(value) if exact is None else exact
    if surrogate is not None:
        ax.plot(place, (surrogate - base)[order], ".", color="#c44e52", label="surrogate")
    ax.errorbar(
        place,
        (value - base)[order],
        half_width[order],
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
