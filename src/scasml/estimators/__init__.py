"""Estimators: one replicate at one point."""

from .base import AbstractEstimator, Evaluations, Replicate
from .picard import Picard

__all__ = ["AbstractEstimator", "Evaluations", "Picard", "Replicate"]
