"""A Burgers-type equation, whose solution is a logistic travelling wave.

`burgers_type` builds the problem from the parts of `burgers`.
"""

from .._equations.problem import Problem, Reference
from ._burgers import Convection, LogisticTerminal, LogisticWave
from ._zoo import ROUNDING, dimension, zoo


@zoo
def burgers_type(dim: int = 50) -> Problem:
    """Burgers-type (E, Han & Jentzen, CMS 2017), exact solution u = logistic(t + sum x / d).

    u_t + (d^2/2) Lap u + (u - (2 + d)/(2 d)) sum z = 0,    z = d grad u,    T = 0.2
    """
    dim = dimension(dim)
    horizon = 0.2
    return Problem(
        dim=dim,
        horizon=horizon,
        diffusion=float(dim),
        nonlinearity=Convection(1.0, (2 + dim) / (2 * dim)),
        terminal=LogisticTerminal(horizon, 1 / dim),
        name="burgers_type",
        reference=Reference(
            LogisticWave(1 / dim),
            ROUNDING,
            "exact, u = logistic(t + sum x / d) (E, Han & Jentzen 2017)",
        ),
    )
