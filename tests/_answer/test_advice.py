"""`diagnose()` advises what the method in use can do."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from scasml import Linearised, Picard


def steep(rate):
    return scasml.Problem(
        dim=1,
        horizon=1.0,
        diffusion=0.5,
        nonlinearity=lambda t, x, u, z: rate * jnp.sin(u),
        terminal=lambda x: 1.0 + 0.1 * jnp.sin(x[0]),
    )


@pytest.mark.parametrize(
    ("method", "rate", "words", "absent"),
    [
        (Linearised(2, 32, remainder=0), 1.0, "remainder=8", "two levels"),
        (Picard(1, 8), 1.0, "two levels or more", "remainder"),
        # Linearised about zero, the level bias is the largest part of the bias.
        (Linearised(16, 256), 3.0, "a start nearer to the solution", "Picard level"),
        (Picard(2, 32), 0.9, "one more Picard level", "a start nearer"),
    ],
)
def test_advice(method, rate, words, absent):
    answer = scasml.correct(steep(rate), None, 0.0, [0.0], method=method, replicates=64)
    text = str(answer.diagnose())
    assert words in text
    assert absent not in text


def test_the_advice_is_for_the_points_with_a_large_bias():
    """Picard served another point, so one more Picard level would not help."""
    method = Linearised(16, 256)
    answer = scasml.correct(steep(3.0), None, 0.0, [[0.0]], method=method, replicates=64)
    other = replace(answer.choices[0], points=np.array([1]), method=Picard(2, 8))
    text = str(replace(answer, choices=(*answer.choices, other)).diagnose())
    assert "a start nearer to the solution" in text
    assert "Picard level" not in text
