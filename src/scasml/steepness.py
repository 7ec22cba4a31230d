"""How steep F is: whether Picard's increments fall from the first one on, or grow before they fall.

To first order a defect v solves a linear law, v_t + L v + a v + <b, z> + eps = 0 with a = F_u and b = F_z. Picard's iteration is the power
series in a and b of its solution, and over the time that is left its terms go by

    steepness = (T - t) (|a| + |b|^2)

as those of an exponential do, with a and b at the surrogate, or without one at the estimate. Where it is larger than 1 the first increments say nothing of the sum: for Burgers' equation in 20 dimensions with sigma0 = sqrt 2
it is 3 to 19, and the defect was 10 times the second increment and 200 times the first.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .coefficients import diffuse_transposed
from .defect import Defect
from .engine import at_points
from .problem import AbstractLaw, Solution

STEEP = 1.0


def is_steep(
    law: AbstractLaw, t: NDArray[Any], x: NDArray[Any], u: NDArray[Any], slope: NDArray[Any]
) -> NDArray[np.bool_]:
    """At each point, for u and grad u as far as they are known; F is that of the problem, whatever law of defect it stands in."""
    while isinstance(law, Defect):
        law = law.law
    return at_points(_Steepness(law), t, x, u.astype(x.dtype), slope.astype(x.dtype)) > STEEP


class _Steepness(eqx.Module):
    law: AbstractLaw

    def __call__(self, t: Array, x: Array, u: Array, slope: Array) -> Array:
        here = Solution(u, diffuse_transposed(self.law.diffusion(t, x), slope))
        a, b = jax.grad(lambda new: self.law.difference(t, x, new, here))(here)
        return (self.law.horizon - t) * (jnp.abs(a) + b @ b)
