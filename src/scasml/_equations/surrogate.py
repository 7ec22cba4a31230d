"""The interface of a surrogate: a function u(t, x) of one point, with what is known of its form.

The residual needs u, its derivative in t, and its first two derivatives in x. A surrogate whose
`form` is known (`Layered` or `ClosedForm`) has a cheaper residual than one that is only a function.
"""

import abc
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, ArrayLike

Scalar = Callable[[Array, Array], Array]


class Layered(NamedTuple):
    """The form u(t, x) = head(t, W x) + offset(t, x), with W of shape (width, d).

    `weight` is W. If sigma is constant, the residual differentiates the head along min(d, width)
    directions instead of d. The offset is for a function that is cheap to differentiate, such as a
    built-in terminal condition.
    """

    weight: Array
    head: Scalar
    offset: Scalar | None = None


class Derivatives(NamedTuple):
    """The value and the derivatives of u at one point.

    `u` and `u_t` are scalars, `gradient` is (d,), and `curvature`, (d,), is the diagonal of the
    Hessian in x.
    """

    u: Array
    u_t: Array
    gradient: Array
    curvature: Array


class ClosedForm(NamedTuple):
    """The form u = w + offset, where `derivatives(t, x)` returns the derivatives of w by formula.

    The form is used if sigma is a scalar or a diagonal matrix.
    """

    derivatives: Callable[[Array, Array], Derivatives]
    offset: Scalar | None = None


class AbstractSurrogate(eqx.Module):
    """An approximation u(t, x) of the solution, for one point: t is a scalar and x is (d,).

    A subclass defines `terminal_function` and `form`; both may be None.
    """

    @abc.abstractmethod
    def __call__(self, t: Array, x: Array) -> Array:
        """Return the value, a scalar in the dtype of x."""

    @property
    @abc.abstractmethod
    def terminal_function(self) -> Callable[[Array], ArrayLike] | None:
        """The function g that u(T, .) equals by construction, or None if none is known."""

    @property
    @abc.abstractmethod
    def form(self) -> Layered | ClosedForm | None:
        """The form of the surrogate, or None if it is only a function."""
