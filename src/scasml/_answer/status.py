"""The status of a point: why it stopped."""

import enum


class Status(enum.StrEnum):
    """Why the simulation of a point ended. A status prints as its words and equals them."""

    CONVERGED = "converged"
    KEPT_SURROGATE = "kept the surrogate"
    BUDGET_EXHAUSTED = "budget exhausted"
    OVER_TIME = "over time"
    INTERRUPTED = "interrupted"
    BIAS_ABOVE_TOLERANCE = "bias above tolerance"
    BIAS_UNKNOWN = "bias unknown"
    # Reserved: this version sets neither of the next two.
    HEAVY_TAIL = "heavy tail"
    NOTHING_SEEN = "nothing seen"
    NOT_FINITE = "not finite"

    def __repr__(self) -> str:
        # NumPy prints the entries of an array by their `repr`.
        return self.value

    @property
    def code(self) -> int:
        """The number of this status in arrays."""
        return STATUSES.index(self)


STATUSES = tuple(Status)
