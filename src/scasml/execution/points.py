"""The points of a call, under the user's numbering, each with its random key."""

import hashlib
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

# Number of the random stream of probe paths at a point. No replicate has this number.
PROBES = 2**32 - 1


def point_keys(seed: int, t: NDArray[Any], x: NDArray[Any]) -> NDArray[np.uint32]:
    """Return the random key of each point t (points,), x (points, d), of shape (points, 2).

    A key is a hash of the seed and of the coordinates of its point. So it depends neither on the
    index of the point nor on the other points.
    """
    rows = np.concatenate([t[:, None], x], axis=1) + 0.0  # -0.0 and 0.0 are the same point
    prefix = f"scasml {seed} ".encode()
    digests = b"".join(
        hashlib.blake2b(prefix + row.astype("<f8").tobytes(), digest_size=8).digest()
        for row in rows
    )
    return np.frombuffer(digests, "<u4").reshape(-1, 2)


def stream(key: Array, number: Array | int) -> PRNGKeyArray:
    """Return the random stream of a replicate at a point, or that of its probe paths.

    `key` (2,) is a row of `Points.key`. `number` is that of the replicate, or `PROBES`.
    """
    return jax.random.fold_in(jax.random.wrap_key_data(key, impl="threefry2x32"), number)


@dataclass(frozen=True, eq=False)
class Points:
    """Points with t < T.

    `index` has the number of each point in the arrays of the user, for messages and answers.
    """

    index: NDArray[np.int64]  # (points,)
    t: NDArray[Any]  # (points,), in the dtype of the simulation
    x: NDArray[Any]  # (points, d)
    key: NDArray[np.uint32]  # (points, 2)

    @classmethod
    def of(cls, index: NDArray[np.int64], t: NDArray[Any], x: NDArray[Any], seed: int) -> "Points":
        """Return the points with their keys for a seed."""
        return cls(index, t, x, point_keys(seed, t, x))

    def __len__(self) -> int:
        return len(self.index)

    def at(self, rows: Any) -> "Points":
        """Return a subset of the points; `rows` are indices or a mask into these points."""
        return Points(self.index[rows], self.t[rows], self.x[rows], self.key[rows])
