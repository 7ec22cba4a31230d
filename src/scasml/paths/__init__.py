"""Path laws: how X moves from (s, x) to time t, and the gradient weight of that move. The only room that draws Brownian noise."""

from .gaussian import Jump as Jump
from .gaussian import gaussian_jump as gaussian_jump

__all__ = ["Jump", "gaussian_jump"]
