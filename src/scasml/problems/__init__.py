"""The zoo: benchmark PDEs with reference solutions whose error is bounded.

Each module `_name` defines one or two constructors, which take parameters and return a `Problem`:
u_t + <mu, grad u> + 1/2 Tr(sigma sigma^T Hess u) + F(t, x, u, z) = 0 with u(T, .) = g and
z = sigma^T grad u. The decorator `zoo` registers a new constructor.
"""

# A module with a new constructor is imported here, so that `catalogue` contains the constructor.
# The order of these imports is the order of `catalogue()` and of `scasml problems`.
# isort: off
from ._zoo import catalogue, zoo
from ._convection_diffusion import convection_diffusion
from ._burgers import BURGERS_PAPER, BURGERS_TABLE, burgers
from ._lqg import lqg
from ._diffusion_reaction import diffusion_reaction
from ._hjb import hjb
from ._radial import allen_cahn, sine_gordon
from ._burgers_type import burgers_type
from ._quadratic_gradient import quadratic_gradient
from ._hjb_lin import hjb_lin
from ._black_scholes_barenblatt import black_scholes_barenblatt
from ._default_risk import default_risk
from ._different_rates import different_rates
from ._heston import heston
from ._ornstein_uhlenbeck import ornstein_uhlenbeck
from ._allen_cahn_variable import allen_cahn_variable
from ._black_scholes_basket import black_scholes_basket
# isort: on

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
    "zoo",
]
