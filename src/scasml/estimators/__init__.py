"""Estimators: how one replicate at one point is computed.

An extender subclasses `AbstractEstimator`, implements its six members, and passes an instance to
`scasml.correct(..., method=...)`. `AbstractTunable` adds what a pilot needs.
"""

from .base import (
    AbstractEstimator,
    AbstractLevelled,
    AbstractTunable,
    Replicate,
    Tuning,
    Variant,
    steps_of,
    total_evaluations,
)
from .evaluations import Evaluations
from .linearised import Linearised
from .picard import Picard

__all__ = [
    "AbstractEstimator",
    "AbstractLevelled",
    "AbstractTunable",
    "Evaluations",
    "Linearised",
    "Picard",
    "Replicate",
    "Tuning",
    "Variant",
    "steps_of",
    "total_evaluations",
]
