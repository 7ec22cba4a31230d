"""Errors about a point name it by its index in the arguments of the user.

Planning sees the points with t < T only, and `auto` may plan for a part of them. Neither may change
the number of a point in a message.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from bad_input_case import NoReplicates, refused
from scasml import Linearised, Picard

HORIZON = 0.5
GOOD = [1.0, 1.0, 1.0]


def problem(diffusion=jnp.sqrt, drift=None):
    """Return a linear problem; `diffusion` and `drift` are functions of x."""
    return scasml.Problem(
        dim=3,
        horizon=HORIZON,
        drift=0.0 if drift is None else lambda t, x: drift(x),
        diffusion=lambda t, x: diffusion(x),
        terminal=jnp.sum,
    )


# A problem, a point at which it cannot be simulated, and words of the message.
BAD = {
    "diffusion not finite": (problem(), [1.0, 1.0, -0.1], "diffusion(t, x), which is not finite"),
    "drift not finite": (
        problem(jnp.ones_like, lambda x: 1 / x),
        [1.0, 0.0, 1.0],
        "drift(t, x), which is not finite",
    ),
    "diffusion singular": (problem(lambda x: x), [1.0, 0.0, 2.0], "a singular one"),
    # Paths from this point fall below 0, where the square root is not defined.
    "paths leave the domain": (
        problem(drift=lambda x: -x),
        [0.04, 0.04, 0.04],
        "along simulated paths from",
    ),
}


def check(case, t, x, surrogate, method, number):
    equation, point, words = BAD[case]
    x = np.array([point if each is None else each for each in x])
    options = {"method": method, "replicates": 2, "executor": NoReplicates()}
    call = lambda: scasml.correct(equation, surrogate, t, x, **options)
    refused(call, words, f"point {number}:")


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize(
    "method", ["auto", Linearised(), Picard(1, 4)], ids=["auto", "linearised", "picard"]
)
def test_after_a_point_at_the_horizon(case, method):
    check(case, [HORIZON, 0.0], [GOOD, None], None, method, 1)


@pytest.mark.parametrize("case", BAD)
def test_in_a_part_of_the_points(case):
    """`auto` plans for the points at which the surrogate is not finite first."""
    surrogate = lambda t, x: jnp.where(jnp.all(x == 1.0), 0.0, jnp.nan)
    check(case, [HORIZON, 0.0, 0.0], [GOOD, GOOD, None], surrogate, "auto", 2)
