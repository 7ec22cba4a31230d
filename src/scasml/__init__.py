"""scasml: correct any surrogate of a high-dimensional semilinear PDE by simulating its defect.

Every answer comes with an error bar.
"""

from importlib.metadata import version as _version

from . import problems, surrogates
from ._answer.correction import Correction
from ._answer.status import Status
from ._api import correct, refine, solve
from ._equations.defect import Defect
from ._equations.domain import Ball, Box
from ._equations.generator import Hutchinson
from ._equations.problem import Problem, Reference
from ._io.progress import Progress, Training
from ._support.errors import ScasmlError, ToleranceError
from .estimators import Linearised, Picard
from .paths import GeometricBrownian, OrnsteinUhlenbeck

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
    "Status",
    "ToleranceError",
    "Training",
    "correct",
    "problems",
    "refine",
    "solve",
    "surrogates",
]
