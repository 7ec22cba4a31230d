"""What the law of defect needs of a surrogate: one number at one point, differentiable twice in x and once in t."""

import abc
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, ArrayLike

Scalar = Callable[[Array, Array], Array]


class Layered(NamedTuple):
    """u(t, x) = head(t, W x) + offset(t, x), W of shape (width, d): the residual of the head costs min(d, width) directions, not d.

    The offset is for what is cheap, such as a terminal condition that is built in.
    """

    weight: Array
    head: Scalar
    offset: Scalar | None = None


class Derivatives(NamedTuple):
    """Of u at a point; `curvature` is the diagonal of its Hessian."""

    u: Array
    u_t: Array
    gradient: Array
    curvature: Array


class ClosedForm(NamedTuple):
    """u(t, x) less the offset, with derivatives that need not be traced; for a sigma that is a number or a diagonal."""

    derivatives: Callable[[Array, Array], Derivatives]
    offset: Scalar | None = None


class AbstractSurrogate(eqx.Module):
    """u(t, x) at one point. A surrogate may say of what `form` it is; its residual is then cheaper."""

    @abc.abstractmethod
    def __call__(self, t: Array, x: Array) -> Array:
        """The value, a scalar in the dtype of x."""

    @property
    @abc.abstractmethod
    def terminal_function(self) -> Callable[[Array], ArrayLike] | None:
        """The g that u(T, .) is by construction; None if it is not, or nobody knows."""

    @property
    @abc.abstractmethod
    def form(self) -> Layered | ClosedForm | None:
        """What is known of its inside; None for nothing."""
