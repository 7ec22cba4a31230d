"""Rules of Ito's formula that keep the noise banded, for one equation of a jaxpr.

`apply_banded` takes a `Step` and returns the process of its output. It returns None if an operand
has dense noise, or if the primitive has no rule here. The caller then makes the noise dense.
"Coordinates" are the entries along the axis of a `BandedNoise`.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .ito_process import (
    BandedNoise,
    Ito,
    Outputs,
    Step,
    restrict_to_noisy,
    slope_and_curvature,
    value_and_drift,
)
from .primitives import POSITIONWISE

# The largest number of bands, that is of directions per entry. Noise with more bands is made dense.
MAX_BANDS = 4


def apply_banded(step: Step) -> Ito | None:
    """Return the output of a step, or None if no rule here applies."""
    name, params, operands, f, moving = step
    noises = [operands[i].noise for i in step.noisy]
    if (
        not all(isinstance(noise, BandedNoise) for noise in noises)
        or len({noise.axis for noise in noises}) > 1
    ):
        return None
    if len(set().union(*(noise.scales for noise in noises))) > MAX_BANDS:
        return None
    if name in POSITIONWISE:
        return _positionwise(f, moving)
    if name == "dot_general":
        return _product(step)
    noise, axis = noises[0], noises[0].axis
    shape = next(iter(noise.scales.values())).shape
    if name == "reduce_sum" and axis in params["axes"]:
        others = tuple(i + (i < axis) for i in params["axes"] if i != axis)
        after: Any = noise.rows(lambda scale: jnp.sum(jnp.moveaxis(scale, axis, 0), others))
    elif (new := _axis_after(name, params, shape, axis)) is not None:
        after = noise.map(lambda scale: jax.jvp(f, (moving[0].value,), (scale,))[1][0], new)
        if name == "slice":
            # Entry i of the slice is entry i + start of the operand.
            start = params["start_indices"][axis]
            after = after._replace(
                scales={shift + start: scale for shift, scale in after.scales.items()}
            )
    else:
        return None
    (out,), (drift,) = value_and_drift(f, moving)
    return Ito(out, after, drift)


def _positionwise(f: Outputs, moving: Sequence[Ito]) -> Ito:
    """Apply Ito's formula to a function that acts on the entries at each position separately.

    Within the band of one shift, entry i moves with direction i + shift only. So one jvp along the
    scales of the band differentiates every entry along its own direction.
    """
    (out,), (drift,) = value_and_drift(f, moving)
    f, value, noises = restrict_to_noisy(f, moving)
    scales = {}
    for shift in sorted(set().union(*(noise.scales for noise in noises))):
        along = tuple(
            noise.scales.get(shift, jnp.zeros_like(v))
            for noise, v in zip(noises, value, strict=True)
        )
        (scales[shift],), (curvature,) = slope_and_curvature(f, value, along)
        drift = drift + 0.5 * curvature
    return Ito(out, BandedNoise(scales, noises[0].axis, noises[0].directions), drift)


def _axis_after(name: str, params: dict[str, Any], shape: tuple[int, ...], axis: int) -> int | None:
    """Return the axis of the coordinates in the output of a linear primitive of one operand.

    `shape` and `axis` are the shape and the axis of the coordinates of the operand. Returns None if
    the primitive has no rule, or if it removes, strides over or repeats that axis.
    """
    match name:
        case "reduce_sum":
            return axis - sum(i < axis for i in params["axes"])
        case "squeeze":
            return (
                None
                if axis in params["dimensions"]
                else axis - sum(i < axis for i in params["dimensions"])
            )
        case "transpose":
            return params["permutation"].index(axis)
        case "slice":
            return axis if params["strides"] is None or params["strides"][axis] == 1 else None
        case "broadcast_in_dim":
            new = params["broadcast_dimensions"][axis]
            return new if params["shape"][new] == shape[axis] else None
        case _:
            return None


def _product(step: Step) -> Ito | None:
    """Apply Ito's formula to a `dot_general` that sums over the axis of the coordinates.

    The output has dense noise. Within a band, the k-th term of the sum moves with direction
    k + shift only. The derivative of that term is added to row k + shift. Returns None for other
    `dot_general`s.
    """
    contracted, batch = step.params["dimension_numbers"]
    operands, noisy = step.operands, step.noisy
    if batch != ((), ()) or any(contracted[i] != (operands[i].noise.axis,) for i in noisy):
        return None
    front = lambda i, a: jnp.moveaxis(a, contracted[i][0], 0)
    first, second = (
        front(i, each.value if isinstance(each, Ito) else each) for i, each in enumerate(operands)
    )
    (out,), (drift,) = value_and_drift(step.f, step.moving)
    noise = jnp.zeros((), out.dtype)
    if 0 in noisy:
        noise = noise + operands[0].noise.rows(
            lambda scale: _outer(front(0, scale), second)
        ).astype(out.dtype)
    if 1 in noisy:
        noise = noise + operands[1].noise.rows(lambda scale: _outer(first, front(1, scale))).astype(
            out.dtype
        )
    if len(noisy) == 2:
        # f'' contributes only where one direction moves both factors of a product.
        one, other = (operands[i].noise.scales for i in noisy)
        for shift in sorted(one.keys() & other.keys()):
            drift = drift + jnp.sum(_outer(front(0, one[shift]), front(1, other[shift])), 0).astype(
                out.dtype
            )
    return Ito(out, noise, drift)


def _outer(a: Array, b: Array) -> Array:
    """Return the outer products of a[k] and b[k], stacked over k, the index of the first axis."""
    return a.reshape(a.shape + (1,) * (b.ndim - 1)) * b.reshape(
        b.shape[:1] + (1,) * (a.ndim - 1) + b.shape[1:]
    )
