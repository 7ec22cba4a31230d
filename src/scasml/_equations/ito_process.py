"""An Ito process as a value with its noise and drift, and the derivatives that Ito's formula needs.

A process `Ito` moves as dY = b dt + sum_k S_k dW^k. A direction k is one component W^k of the
Brownian motion. The noise S has one row S_k, in the shape of Y, for each direction. `BandedNoise`
stores a noise most of whose entries are 0.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

Outputs = Callable[..., list[Array]]


class BandedNoise(NamedTuple):
    """A noise in which entry i along `axis` moves with the directions i + shift only.

    `scales` maps each shift to an array in the shape of the value. Its entries at index i along
    `axis` are the coefficients of dW^(i + shift). One shift with its array is a band. `directions`
    is the total number of directions.

    If sigma is diagonal, entry i of X moves with direction i only, and most entries of its noise
    are 0. They stay 0 under functions that act on each coordinate, or on a coordinate and some
    neighbours. A banded noise stores d numbers for each of a small number of bands, instead of d^2.
    """

    scales: dict[int, Array]
    axis: int
    directions: int

    def map(self, linear: Callable[[Array], Array], axis: int) -> "BandedNoise":
        """Return the noise with `linear` applied to every band, and with the new `axis`."""
        return BandedNoise(
            {shift: linear(scale) for shift, scale in self.scales.items()}, axis, self.directions
        )

    def rows(self, of_scale: Callable[[Array], Array]) -> Array:
        """Return a dense noise (directions, ...), the sum of the rows of all bands.

        `of_scale` maps the array of one band to its rows. Row i belongs to entry i along the axis,
        and so to direction i + shift.
        """
        return sum(
            _pad_rows(of_scale(scale), shift, self.directions)
            for shift, scale in self.scales.items()
        )  # pyright: ignore[reportReturnType]


def diagonal_noise(scale: Array) -> BandedNoise:
    """Return the noise of a vector whose entry i moves by `scale[i]` with direction i."""
    return BandedNoise({0: scale}, 0, len(scale))


def _pad_rows(rows: Array, shift: int, directions: int) -> Array:
    """Return `directions` rows: `rows` from position `shift` on, and 0 elsewhere."""
    return jnp.pad(rows, [(shift, directions - len(rows) - shift), *[(0, 0)] * (rows.ndim - 1)])


class Ito(NamedTuple):
    """A value that moves as dY = drift dt + sum_k noise[k] dW^k.

    Attributes:
        value: an array of any shape.
        noise: a dense array (directions, *shape of the value), a `BandedNoise`, or None
            (as for time).
        drift: an array in the shape of the value.
    """

    value: Array
    noise: Array | BandedNoise | None
    drift: Array


class Step(NamedTuple):
    """One jaxpr equation with its operands.

    Attributes:
        name: the name of the primitive.
        params: the parameters of the primitive.
        operands: all operands in order, each an `Ito` or an array.
        f: maps the values of `moving` to the list of the floating-point outputs.
        moving: the distinct operands that are an `Ito`.
    """

    name: str
    params: dict[str, Any]
    operands: Sequence[Any]
    f: Outputs
    moving: Sequence[Ito]

    @property
    def noisy(self) -> list[int]:
        """The indices in `operands` of the operands whose noise is not None."""
        return [
            i
            for i, each in enumerate(self.operands)
            if isinstance(each, Ito) and each.noise is not None
        ]


def number_of_directions(noise: Array | BandedNoise) -> int:
    """Return the number of directions of a noise, which is its number of dense rows."""
    return noise.directions if isinstance(noise, BandedNoise) else noise.shape[0]


def dense_noise(noise: Array | BandedNoise | None) -> Array | None:
    """Return the noise as an array (directions, *shape of the value), or None if it is None."""
    if not isinstance(noise, BandedNoise):
        return noise

    def diagonal_rows(scale: Array) -> Array:
        """Return rows in the shape of the scale. Row i is 0 except at index i along the axis."""
        shape = [1] * scale.ndim
        shape[noise.axis] = count = scale.shape[noise.axis]
        return scale[None] * jnp.eye(count, dtype=scale.dtype).reshape(count, *shape)

    return noise.rows(diagonal_rows)


def value_and_drift(f: Outputs, moving: Sequence[Ito]) -> tuple[list[Array], list[Array]]:
    """Return f(Y) and f'(Y)[b], the drift of f(Y) without its second-order term.

    `moving` holds the processes Y, one for each argument of `f`; b are their drifts.
    """
    return jax.jvp(f, tuple(each.value for each in moving), tuple(each.drift for each in moving))


def restrict_to_noisy(f: Outputs, moving: Sequence[Ito]) -> tuple[Outputs, Any, Any]:
    """Return `f` as a function of the noisy operands alone, with their values and their noises.

    `moving` has one process for each argument of `f`. The processes without noise become constants.
    """
    noisy = [i for i, each in enumerate(moving) if each.noise is not None]

    def of_noisy(*values: Array) -> list[Array]:
        replaced = dict(zip(noisy, values, strict=True))
        return f(*(replaced.get(i, each.value) for i, each in enumerate(moving)))

    return of_noisy, tuple(moving[i].value for i in noisy), tuple(moving[i].noise for i in noisy)


def slope_and_curvature(f: Outputs, value: Any, along: Any) -> tuple[list[Array], list[Array]]:
    """Return f'[s] and f''[s, s] at `value` for a tangent s, given as `along`.

    Both are tuples with one array for each argument of `f`.
    """
    return jax.jvp(lambda *v: jax.jvp(f, v, along)[1], value, along)
