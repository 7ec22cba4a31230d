"""CPU-time ratios from one interleaved run: the machine may be shared, and both sides then suffer alike."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax


def cpu_seconds(sides: dict[str, Callable[[], Any]], rounds: int = 9) -> dict[str, float]:
    """The median over rounds of the process's CPU time, each side run once in every round after one warm-up."""
    for side in sides.values():
        jax.block_until_ready(side())
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.process_time()
            jax.block_until_ready(side())
            times[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}
