"""The nonlinearity of linear pricing."""

import equinox as eqx
from jaxtyping import Array


class Discount(eqx.Module):
    """F = -r u."""

    rate: float = eqx.field(static=True)

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        return -self.rate * u
