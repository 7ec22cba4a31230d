"""Type names that several packages use."""

import numpy as np
from numpy.typing import NDArray

# A NumPy array of float64. Statistics are computed in float64 whatever dtype the simulation has.
Floats = NDArray[np.float64]
