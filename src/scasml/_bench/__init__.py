"""Benchmarks: CPU time, accuracy and error bars of the library, measured on this machine.

`scasml bench NAME [ARGUMENT ...]`, or `python -m scasml._bench NAME [ARGUMENT ...]`, runs one of
`BENCHMARKS` and prints a table. A benchmark is the function `main` in the module of its name, and
its arguments are strings. The other modules contain what several benchmarks, or tests, use.
"""

from typing import NamedTuple


class Benchmark(NamedTuple):
    """What a benchmark prints, and which arguments it takes."""

    prints: str  # in words
    arguments: str = ""  # in words; empty if it takes none


# The benchmarks by the names of their modules.
BENCHMARKS = {
    "residual": Benchmark("CPU time of the residual of a network over that of its forward pass"),
    "correction": Benchmark("CPU time of a replicate over that of its residuals; compile times"),
    "paths": Benchmark("CPU time of exact paths over Gaussian ones, and of stepped paths"),
    "naive": Benchmark(
        "errors of the simulation from zero, with z by weights and path derivatives"
    ),
    "published": Benchmark("the simulation from zero, compared with published values"),
    "memory": Benchmark("the peak memory of a large correction", "the number of points"),
    "intervals": Benchmark("how often the 95 % interval covers the solution", "methods"),
    "never_worse": Benchmark("errors of corrections with and without `safe`"),
    "elastic": Benchmark("what adaptive numbers of replicates save, and what they cost"),
    "deadline": Benchmark("how long `seconds=10` takes on every problem", "problems"),
    "surrogates": Benchmark("errors of trained surrogates before and after correction"),
    "gp": Benchmark("time and memory of large Gaussian processes", "the number of interior points"),
    "values": Benchmark("published values in 100 dimensions by one call of `solve`"),
    "accuracy": Benchmark(
        "error against CPU time of every method", "a saved surrogate, and a file of points"
    ),
}


def names() -> list[str]:
    """Return the names of all benchmarks, without importing their modules."""
    return list(BENCHMARKS)
