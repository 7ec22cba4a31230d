"""An Ito process as a value with its noise and drift, and the derivatives that Ito's formula needs.

The noise S of a process has d rows, most of which are often 0. A clock has no noise at all (None).
If sigma is diagonal, each coordinate has its own noise, and functions of one coordinate or of some
neighbours keep it so. `BandedNoise` then stores some multiples of d numbers instead of d^2.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

Outputs = Callable[..., list[Array]]


class BandedNoise(NamedTuple):
    """A noise in which entry i along `axis` depends on the directions i + shift only.

    `scales` maps each shift to an array in the shape of the value: how much an entry moves with
    direction i + shift. `directions` is the total number of directions.
    """

    scales: dict[int, Array]
    axis: int
    directions: int

    def map(self, linear: Callable[[Array], Array], axis: int) -> "BandedNoise":
        """Apply a linear function to every band; `axis` is the axis of the coordinates after it."""
        return BandedNoise(
            {shift: linear(scale) for shift, scale in self.scales.items()}, axis, self.directions
        )

    def rows(self, of_scale: Callable[[Array], Array]) -> Array:
        """Return dense rows of noise, (directions, ...).

        `of_scale` makes of the scale of one band one row for each entry along the axis.
        """
        return sum(
            _pad_rows(of_scale(scale), shift, self.directions)
            for shift, scale in self.scales.items()
        )  # pyright: ignore[reportReturnType]


def diagonal_noise(scale: Array) -> BandedNoise:
    """Return the noise of a vector whose entry i moves by `scale[i]` with direction i."""
    return BandedNoise({0: scale}, 0, len(scale))


def _pad_rows(rows: Array, shift: int, directions: int) -> Array:
    """Return the rows at positions `shift` and following of `directions` rows; others are 0."""
    return jnp.pad(rows, [(shift, directions - len(rows) - shift), *[(0, 0)] * (rows.ndim - 1)])


class Ito(NamedTuple):
    """A value that moves as dY = drift dt + sum_k noise[k] dW^k.

    A dense noise is (directions, *shape of the value). None stands for zero noise.
    """

    value: Array
    noise: Array | BandedNoise | None
    drift: Array


class Step(NamedTuple):
    """An equation of a jaxpr, where `f` is a function of its distinct moving operands."""

    name: str
    params: dict[str, Any]
    operands: Sequence[Any]
    f: Outputs
    moving: Sequence[Ito]

    @property
    def noisy(self) -> list[int]:
        """Indices of the operands that carry noise."""
        return [
            i
            for i, each in enumerate(self.operands)
            if isinstance(each, Ito) and each.noise is not None
        ]


def number_of_directions(noise: Array | BandedNoise) -> int:
    """Return the number of rows that the dense noise has."""
    return noise.directions if isinstance(noise, BandedNoise) else noise.shape[0]


def dense_noise(noise: Array | BandedNoise | None) -> Array | None:
    """Return the noise as rows, one for each direction."""
    if not isinstance(noise, BandedNoise):
        return noise

    def diagonal_rows(scale: Array) -> Array:
        """Row i has the entries i of the scale, and 0 elsewhere."""
        shape = [1] * scale.ndim
        shape[noise.axis] = count = scale.shape[noise.axis]
        return scale[None] * jnp.eye(count, dtype=scale.dtype).reshape(count, *shape)

    return noise.rows(diagonal_rows)


def value_and_drift(f: Outputs, moving: Sequence[Ito]) -> tuple[list[Array], list[Array]]:
    """Return f(Y) and f'(Y)[b]: the drift of f(Y), except for the second-order term."""
    return jax.jvp(f, tuple(each.value for each in moving), tuple(each.drift for each in moving))


def restrict_to_noisy(f: Outputs, moving: Sequence[Ito]) -> tuple[Outputs, Any, Any]:
    """Return `f` as a function of the operands that carry noise, their values and their noises.

    The other operands are constant in that function.
    """
    noisy = [i for i, each in enumerate(moving) if each.noise is not None]

    def of_noisy(*values: Array) -> list[Array]:
        replaced = dict(zip(noisy, values, strict=True))
        return f(*(replaced.get(i, each.value) for i, each in enumerate(moving)))

    return of_noisy, tuple(moving[i].value for i in noisy), tuple(moving[i].noise for i in noisy)


def slope_and_curvature(f: Outputs, value: Any, along: Any) -> tuple[list[Array], list[Array]]:
    """Return f'[s] and f''[s, s] for a direction s."""
    return jax.jvp(lambda *v: jax.jvp(f, v, along)[1], value, along)
