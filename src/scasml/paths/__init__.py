"""Path laws: how X is drawn at a later time, and how its expectations are differentiated.

A path law takes a state (s, x), a duration and standard normal numbers. It returns a `Jump`: the
state at time s + duration, and on request a gradient weight. `AbstractDynamics` and `SCHEMES` say
how to add a diffusion and a stepping scheme.
"""

from .base import AbstractDynamics, AbstractPathLaw, Jump
from .gaussian import Gaussian
from .general import General
from .geometric import GeometricBrownian
from .ornstein_uhlenbeck import OrnsteinUhlenbeck
from .schemes import SCHEMES, Scheme
from .stepped import Stepped

__all__ = [
    "SCHEMES",
    "AbstractDynamics",
    "AbstractPathLaw",
    "Gaussian",
    "General",
    "GeometricBrownian",
    "Jump",
    "OrnsteinUhlenbeck",
    "Scheme",
    "Stepped",
]
