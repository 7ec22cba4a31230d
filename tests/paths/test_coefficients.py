"""Tests of the linear algebra of sigma."""

import jax
import numpy as np
import pytest

from scasml.paths.coefficients import solve_linear

pytestmark = pytest.mark.usefixtures("x64")


@pytest.mark.parametrize("dim", [1, 2, 7, 40])
def test_solve_linear(dim):
    """A batch of systems whose first entry is zero, so that rows must be exchanged."""
    rng = np.random.default_rng(dim)
    matrices, vectors = rng.normal(size=(5, dim, dim)), rng.normal(size=(5, dim))
    matrices[:, 0, 0] = 0.0 if dim > 1 else 2.0
    got = jax.jit(jax.vmap(solve_linear))(matrices, vectors)
    np.testing.assert_allclose(
        got, np.linalg.solve(matrices, vectors[..., None])[..., 0], rtol=1e-9
    )
