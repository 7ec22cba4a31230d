"""Path laws: how X is drawn at a later time, and how its expectations are differentiated.

A path law (`AbstractPathLaw`) takes a state (s, x), a duration and standard normal numbers. It
returns a `Jump`: the state X at time s + duration, and on request a gradient weight. The gradient
weight turns an expectation of a function of X into its gradient in x. The coefficients of X are an
`AbstractDynamics`: dX = mu(t, X) dt + sigma(t, X) dW, with `drift` mu and `diffusion` sigma.

Every dynamics has the path laws `Stepped` and `Tilted`, which simulate it in steps. A dynamics
whose distribution is known in closed form also has an exact path law, its property `exact`.

To add a diffusion, write one file with a subclass of `AbstractDynamics`, and pass an instance to
`Problem(dynamics=...)`. The subclass defines

- `drift(t, x)` and `diffusion(t, x)` for one point, written with `jax.numpy`;
- `constant_diffusion`: sigma as an array if it depends on neither t nor x, otherwise None;
- `check(dim)`, which raises an error if the coefficients do not fit the dimension;
- `exact`: None, or a path law. If X can be drawn exactly, derive the class from `AbstractPathLaw`
  too, return `self` from `exact`, set `steps = 1` and define `move`. `geometric.py` is an example.

To add a stepping scheme, register a function in `SCHEMES`; see `schemes.py`.
"""

from .base import AbstractDynamics, AbstractPathLaw, Jump
from .gaussian import Gaussian
from .general import General
from .geometric import GeometricBrownian
from .ornstein_uhlenbeck import OrnsteinUhlenbeck
from .schemes import SCHEMES, Scheme
from .stepped import Stepped
from .tilted import Tilted

__all__ = [
    "SCHEMES",
    "AbstractDynamics",
    "AbstractPathLaw",
    "Gaussian",
    "General",
    "GeometricBrownian",
    "Jump",
    "OrnsteinUhlenbeck",
    "Scheme",
    "Stepped",
    "Tilted",
]
