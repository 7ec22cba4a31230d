"""A reference that is one number: what is published of problems without a solution formula."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class OnePoint:
    """`value` at t = 0 where every coordinate is `coordinate`, NaN elsewhere."""

    value: float
    coordinate: float

    def __call__(self, t: NDArray[Any], x: NDArray[Any]) -> NDArray[Any]:
        known = (t == 0) & np.all(x == self.coordinate, axis=-1)
        return np.where(known, self.value, np.nan)
