"""What the law of defect needs of a surrogate: one number at one point, differentiable twice in x and once in t."""

import abc
from collections.abc import Callable

import equinox as eqx
from jaxtyping import Array


class AbstractSurrogate(eqx.Module):
    """u(t, x) at one point.

    A surrogate whose first layer is linear may say so: with `first_layer` = W of shape (width, d),
    u(t, x) = head(t, W x) + offset(t, x), and the residual of the head then costs min(d, width) directions
    instead of d. The offset is for what is cheap, such as a terminal condition that is built in.
    """

    @abc.abstractmethod
    def __call__(self, t: Array, x: Array) -> Array:
        """The value, a scalar in the dtype of x."""

    @property
    @abc.abstractmethod
    def first_layer(self) -> Array | None:
        """W, or None."""

    @abc.abstractmethod
    def head(self, t: Array, h: Array) -> Array:
        """u(t, x) from h = W x, less the offset; never called when `first_layer` is None."""

    @property
    @abc.abstractmethod
    def offset(self) -> Callable[[Array, Array], Array] | None:
        """What is added to the head, a function of (t, x); or None."""
