"""The zoo: benchmark PDEs, each with a reference solution and a bound on that reference's error.

u_t + <mu, grad u> + 1/2 Tr(sigma sigma^T Hess u) + F(t, x, u, z) = 0,    z = sigma^T grad u,    u(T, .) = g
"""

from collections.abc import Callable

from .._equations.problem import Problem
from ._allen_cahn_variable import allen_cahn_variable
from ._black_scholes_barenblatt import black_scholes_barenblatt
from ._black_scholes_basket import black_scholes_basket
from ._burgers import BURGERS_PAPER, BURGERS_TABLE, burgers, burgers_type
from ._convection_diffusion import convection_diffusion
from ._default_risk import default_risk
from ._different_rates import different_rates
from ._diffusion_reaction import diffusion_reaction
from ._heston import heston
from ._hjb_lin import hjb_lin
from ._lqg import hjb, lqg
from ._ornstein_uhlenbeck import ornstein_uhlenbeck
from ._quadratic_gradient import quadratic_gradient
from ._radial import allen_cahn, sine_gordon

__all__ = [
    "BURGERS_PAPER",
    "BURGERS_TABLE",
    "allen_cahn",
    "allen_cahn_variable",
    "black_scholes_barenblatt",
    "black_scholes_basket",
    "burgers",
    "burgers_type",
    "catalogue",
    "convection_diffusion",
    "default_risk",
    "different_rates",
    "diffusion_reaction",
    "heston",
    "hjb",
    "hjb_lin",
    "lqg",
    "ornstein_uhlenbeck",
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
        black_scholes_barenblatt,
        default_risk,
        different_rates,
        heston,
        ornstein_uhlenbeck,
        allen_cahn_variable,
        black_scholes_basket,
    )
    return {build.__name__: build for build in zoo}
