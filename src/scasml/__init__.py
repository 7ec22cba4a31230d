"""scasml: correct any surrogate of a high-dimensional semilinear PDE by simulating its defect, with error bars."""

from importlib.metadata import version as _version

from . import problems, surrogates
from .correct import correct
from .correction import Correction
from .defect import Defect
from .errors import ScasmlError
from .estimators import Picard
from .generator import Hutchinson
from .paths import GeometricBrownian, OrnsteinUhlenbeck
from .problem import Problem, Reference

__version__ = _version("scasml")

__all__ = [
    "Correction",
    "Defect",
    "GeometricBrownian",
    "Hutchinson",
    "OrnsteinUhlenbeck",
    "Picard",
    "Problem",
    "Reference",
    "ScasmlError",
    "correct",
    "problems",
    "surrogates",
]
