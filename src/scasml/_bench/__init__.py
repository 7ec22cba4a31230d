"""Benchmarks: CPU time, accuracy and error bars of the library, measured on this machine.

`scasml bench NAME [ARGUMENT ...]`, or `python -m scasml._bench NAME [ARGUMENT ...]`, runs one of
`BENCHMARKS` and prints a table. A benchmark is the function `main` in the module of its name, and
its arguments are strings. The other modules contain what several benchmarks, or tests, use.
"""

from typing import NamedTuple


class Benchmark(NamedTuple):
    """Which arguments a benchmark takes, in words; empty if it takes none."""

    arguments: str = ""


# The benchmarks by the names of their modules.
BENCHMARKS = {
    "residual": Benchmark(),
    "correction": Benchmark(),
    "paths": Benchmark(),
    "naive": Benchmark(),
    "published": Benchmark(),
    "memory": Benchmark("the number of points"),
    "intervals": Benchmark("methods"),
    "unbiased": Benchmark("problems, and the number of repeats"),
    "never_worse": Benchmark(),
    "elastic": Benchmark(),
    "deadline": Benchmark("problems"),
    "surrogates": Benchmark(),
    "gp": Benchmark("the number of interior points"),
    "values": Benchmark(),
    "accuracy": Benchmark("a saved surrogate, and a file of points"),
}


def names() -> list[str]:
    """Return the names of all benchmarks, without importing their modules."""
    return list(BENCHMARKS)
