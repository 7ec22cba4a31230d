"""The increments of `Linearised`, grouped in families that the compiled program runs.

A family is one term of a telescoping sum. `FAMILIES` lists them in the order of their increments,
except that the increments `TERMINAL` and `SOURCE` both belong to the first family.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

# The finest grid has 2^MOST_LEVELS whole steps, and inside R 2^MOST_REMAINDER_LEVELS.
MOST_LEVELS, MOST_REMAINDER_LEVELS = 10, 6
# How often R is evaluated at an estimate that contains R itself.
MOST_DEPTH = 2
# The number of inner paths is doubled at most this often.
MOST_DOUBLINGS = 6

TERMINAL, SOURCE, REMAINDER = 0, 1, 2 + MOST_LEVELS


class Family(NamedTuple):
    """One term of a telescoping sum."""

    name: str
    level: int = 0  # of the grid; 0 is the base level of the tuning
    is_remainder: bool = False
    depth: int = 0  # of R inside R
    doublings: int = 0  # of the number of inner paths

    @property
    def is_paired(self) -> bool:
        """Whether samples are differences between paths on two grids."""
        return self.level > 0


def _remainder(name: str, **options: int) -> Family:
    return Family(name, is_remainder=True, **options)


FAMILIES = (
    Family("terminal"),
    *(Family(f"steps {2**level}", level) for level in range(1, MOST_LEVELS + 1)),
    _remainder("remainder"),
    *(_remainder(f"remainder depth {k}", depth=k) for k in range(1, MOST_DEPTH + 1)),
    *(
        _remainder(f"remainder steps {2**level}", level=level)
        for level in range(1, MOST_REMAINDER_LEVELS + 1)
    ),
    *(_remainder(f"remainder paths {2**k}", doublings=k) for k in range(1, MOST_DOUBLINGS + 1)),
)
NAMES = ("terminal", "source", *(family.name for family in FAMILIES[1:]))
# Index of the increment of each family; for the first family that of TERMINAL.
INCREMENT = np.array([0, *range(2, len(FAMILIES) + 1)])


# Samples of an increment come in clusters, which fill a tile.
CLUSTER = np.array(
    [
        1 if name in ("terminal", "source") else 10 if name.startswith("steps") else 4
        for name in NAMES
    ]
)


def column(field: str) -> Array:
    """Return a field of all families as an array of int32."""
    return jnp.asarray([int(getattr(family, field)) for family in FAMILIES], jnp.int32)


def increments_of(kind: str) -> list[int]:
    """Return the indices of the increments whose family name begins with `kind`."""
    return [k for k, name in enumerate(NAMES) if name.startswith(kind)]
