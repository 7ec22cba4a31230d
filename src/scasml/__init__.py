"""scasml: correct any surrogate of a high-dimensional semilinear PDE by simulating its defect, with error bars."""

from importlib.metadata import version as _version

from . import problems, surrogates
from .correct import correct, refine
from .correction import Correction
from .defect import Defect
from .domain import Ball, Box
from .errors import ScasmlError, ToleranceError
from .estimators import Linearised, Picard
from .generator import Hutchinson
from .paths import GeometricBrownian, OrnsteinUhlenbeck
from .problem import Problem, Reference
from .progress import Progress, Training
from .solve import solve

__version__ = _version("scasml")

__all__ = [
    "Ball",
    "Box",
    "Correction",
    "Defect",
    "GeometricBrownian",
    "Hutchinson",
    "Linearised",
    "OrnsteinUhlenbeck",
    "Picard",
    "Problem",
    "Progress",
    "Reference",
    "ScasmlError",
    "ToleranceError",
    "Training",
    "correct",
    "problems",
    "refine",
    "solve",
    "surrogates",
]
