"""Estimators: one replicate at one point."""

from .base import AbstractEstimator, Evaluations, Replicate
from .linearised import Linearised
from .picard import Picard

__all__ = ["AbstractEstimator", "Evaluations", "Linearised", "Picard", "Replicate"]
