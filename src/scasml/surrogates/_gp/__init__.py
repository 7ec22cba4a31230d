"""The Gaussian process surrogate: `gp` fits one to a problem and returns a `GaussianProcess`."""

from .process import GaussianProcess, gp

__all__ = ["GaussianProcess", "gp"]
