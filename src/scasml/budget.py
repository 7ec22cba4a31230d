"""When to stop: sees counts and clocks only."""

from typing import NamedTuple

DEFAULT_SECONDS = 1.0


class Budget(NamedTuple):
    """So many replicates at every point; or, with none named, as many as fit in one second, and at least two."""

    replicates: int | None

    def proceed(self, done: int, seconds: float) -> int:
        """How many replicates the next round has; 0 to stop."""
        if self.replicates is not None:
            return self.replicates - done
        if done < 2:
            return 2 - done
        left = (DEFAULT_SECONDS - seconds) / max(seconds, 1e-3) * done
        return max(0, min(done, int(left)))  # at most doubling: the early rounds time badly

    def foresee(self, seconds: float) -> int:
        """How many replicates every point will get, if one of each point takes so many seconds."""
        return self.replicates or max(2, int(DEFAULT_SECONDS / max(seconds, 1e-6)))

    def __str__(self) -> str:
        if self.replicates is not None:
            return f"{self.replicates} replicates were asked for"
        return "one second's worth of replicates, for want of a stopping rule: name replicates= for more"
