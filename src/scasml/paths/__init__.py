"""Path laws: how X moves from (s, x) to a later time, and the gradient weight of that move. The only room that draws Brownian noise.

Each diffusion is one file: its coefficients, and its exact law where there is one.
"""

from .base import AbstractDynamics, AbstractPathLaw, Jump
from .gaussian import Gaussian
from .general import General
from .geometric import GeometricBrownian
from .ornstein_uhlenbeck import OrnsteinUhlenbeck
from .stepped import Stepped
from .tilted import Tilted

__all__ = [
    "AbstractDynamics",
    "AbstractPathLaw",
    "Gaussian",
    "General",
    "GeometricBrownian",
    "Jump",
    "OrnsteinUhlenbeck",
    "Stepped",
    "Tilted",
]
