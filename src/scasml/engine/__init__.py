"""Where replicates run."""

from .local import at_points, point_keys, run_replicates, surrogate_at, terminal_at

__all__ = ["at_points", "point_keys", "run_replicates", "surrogate_at", "terminal_at"]
