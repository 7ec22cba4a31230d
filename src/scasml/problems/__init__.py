"""The zoo: benchmark PDEs, each with a reference solution and a bound on that reference's error.

u_t + <mu, grad u> + 1/2 Tr(sigma sigma^T Hess u) + F(t, x, u, z) = 0,    z = sigma^T grad u,    u(T, .) = g
"""

from collections.abc import Callable

from ..problem import Problem
from ._burgers import BURGERS_PAPER, BURGERS_TABLE, burgers, burgers_type
from ._convection_diffusion import convection_diffusion
from ._diffusion_reaction import diffusion_reaction
from ._hjb_lin import hjb_lin
from ._lqg import hjb, lqg
from ._quadratic_gradient import quadratic_gradient
from ._radial import allen_cahn, sine_gordon

__all__ = [
    "BURGERS_PAPER",
    "BURGERS_TABLE",
    "allen_cahn",
    "burgers",
    "burgers_type",
    "catalogue",
    "convection_diffusion",
    "diffusion_reaction",
    "hjb",
    "hjb_lin",
    "lqg",
    "quadratic_gradient",
    "sine_gordon",
]


def catalogue() -> dict[str, Callable[..., Problem]]:
    """Every constructor of the zoo by name; the first line of its docstring says what it builds and where it is from."""
    zoo = (
        convection_diffusion,
        burgers,
        lqg,
        diffusion_reaction,
        hjb,
        allen_cahn,
        sine_gordon,
        burgers_type,
        quadratic_gradient,
        hjb_lin,
    )
    return {build.__name__: build for build in zoo}
