"""The Gaussian process surrogate: `gp` fits one to a problem and returns a `GaussianProcess`.

`process` contains both. `constraints` draws points and turns the PDE and g into conditions there.
`newton` computes the function of least norm that satisfies them, with covariances from `kernels`
and, for many points, the iterative solver of `sparse`. `checks` refuses unsupported problems.
"""

from .process import GaussianProcess, gp

__all__ = ["GaussianProcess", "gp"]
