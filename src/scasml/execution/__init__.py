"""Execution: compiled programs, the executors that run them, and the sums of their replicates.

To run programs elsewhere, subclass `AbstractExecutor`, implement `run` and `map`, and pass an
instance as `scasml.correct(..., executor=...)`. A worker process calls `compute(program, rows)`.
"""

from .compilation import forget_programs
from .executor import AbstractExecutor, Part
from .local import LocalExecutor, apply_at_points
from .program import Program, Replicates, Rows, compute

__all__ = [
    "AbstractExecutor",
    "LocalExecutor",
    "Part",
    "Program",
    "Replicates",
    "Rows",
    "apply_at_points",
    "compute",
    "forget_programs",
]
