"""Where replicates run."""

from .local import run_replicates, surrogate_at, terminal_at

__all__ = ["run_replicates", "surrogate_at", "terminal_at"]
