"""`OnePoint`: a reference for problems whose solution is published at a single point only."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class OnePoint:
    """Returns `value` at t = 0 where every coordinate equals `coordinate`, and NaN elsewhere."""

    value: float
    coordinate: float

    def __call__(self, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        known = (t == 0) & np.all(x == self.coordinate, axis=-1)
        return np.where(known, self.value, np.nan)
