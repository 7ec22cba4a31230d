"""Where replicates run."""

from .local import Kernel, at_points, point_keys, surrogate_at, terminal_at

__all__ = ["Kernel", "at_points", "point_keys", "surrogate_at", "terminal_at"]
