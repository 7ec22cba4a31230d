"""The interface of an equation, as the estimators see it, and the value and gradient it has.

The user's `Problem` is an equation, and so is the `Defect` of a surrogate. Simulation without a
surrogate, correction, and correction of a correction are therefore the same code.
"""

import abc
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from .._support.errors import ArgumentError, ArgumentTypeError, brief, first_line
from ..paths import AbstractDynamics


class Solution(NamedTuple):
    """The value u and the scaled gradient z = sigma^T grad u at one point, or estimates of them."""

    u: Array
    z: Array

    @classmethod
    def zero(cls, t: Array, x: Array) -> "Solution":
        """Return u = 0 and z = 0, with the shapes and dtypes of t and x."""
        return cls(jnp.zeros_like(t), jnp.zeros_like(x))


class AbstractEquation(eqx.Module):
    """A semilinear parabolic PDE, as the estimators see it.

        u_t + <mu, grad u> + 1/2 Tr(sigma sigma^T Hess u) + F(t, x, u, z) = 0 on [0, T) x R^d
        u(T, .) = g,    z = sigma^T grad u

    The estimators use F in two parts: `source` is F(t, x, 0, 0) and `difference` is
    F(t, x, new) - F(t, x, old). The residual of a surrogate appears in the `source` of its defect
    only, because it cancels in every difference. All methods take one point: t is a scalar, x and
    z have shape (d,), u is a scalar. `dim` is d, `horizon` is T, and `dynamics` has mu and sigma.
    """

    dim: eqx.AbstractVar[int]
    horizon: eqx.AbstractVar[float]
    dynamics: eqx.AbstractVar[AbstractDynamics]
    # Whether F depends on u, and on z.
    uses_u: eqx.AbstractVar[bool]
    uses_z: eqx.AbstractVar[bool]
    # g is 0 by construction, so no path to T is simulated.
    zero_terminal: eqx.AbstractVar[bool]

    @abc.abstractmethod
    def terminal(self, x: Array) -> Array:
        """Return g(x), a scalar."""

    @abc.abstractmethod
    def source(self, t: Array, x: Array, key: PRNGKeyArray) -> Array:
        """Return F(t, x, 0, 0), or an unbiased estimate of it that draws from `key`."""

    @abc.abstractmethod
    def nonlinearity(self, t: Array, x: Array, u: Array, z: Array, key: PRNGKeyArray) -> Array:
        """Return F(t, x, u, z). As in `source`, F(t, x, 0, 0) may be estimated from `key`."""

    @abc.abstractmethod
    def difference(self, t: Array, x: Array, new: Solution, old: Solution) -> Array:
        """Return F(t, x, new) - F(t, x, old)."""

    @abc.abstractmethod
    def heading(self, t: Array, x: Array) -> Array:
        """Return a guess of z, of shape (d,). Only its direction is used.

        The first principal component of an rqmc path moves along it, because the value at the end
        of the path changes most in this direction.
        """

    def drift(self, t: Array, x: Array) -> Array:
        """Return mu(t, x), of shape (d,)."""
        return self.dynamics.drift(t, x)

    def diffusion(self, t: Array, x: Array) -> Array:
        """Return sigma(t, x): a scalar, the (d,) diagonal of a matrix, or a (d, d) matrix."""
        return self.dynamics.diffusion(t, x)

    @property
    def is_linear(self) -> bool:
        """Whether F depends on neither u nor z. One Picard level is then unbiased."""
        return not (self.uses_u or self.uses_z)


def require_equation(problem: Any, kind: type[AbstractEquation] = AbstractEquation) -> None:
    """Raise ArgumentTypeError if `problem` is not an instance of `kind`."""
    if not isinstance(problem, kind):
        raise ArgumentTypeError(
            f"problem must be a scasml.Problem, got {brief(problem)}: "
            "build one, or take one of scasml.problems."
        )


def check_scalar_function(
    argument: str, signature: str, function: Callable[..., Any], *inputs: Any
) -> None:
    """Check by one abstract evaluation that a JAX function of one point returns one real number.

    `argument` and `signature` name the function in the message, e.g. "terminal" and "terminal(x)".
    `inputs` are `jax.ShapeDtypeStruct`s. Raises ArgumentError if the result has a shape other than
    () and (1,), and ArgumentTypeError if the evaluation fails or the result is not a real number.
    """
    try:
        # JAX crashes if the same NumPy function is traced a second time, so it gets a new function.
        out = jax.eval_shape(lambda *inputs: function(*inputs), *inputs)
    except Exception as error:
        dim = max(i.shape[0] for i in inputs if i.shape)
        raise ArgumentTypeError(
            f"{argument}: evaluating {signature} at one point with d = {dim} failed with "
            f"{first_line(error)}: write it with jax.numpy for one point, x of shape (d,)."
        ) from error
    shape, dtype = getattr(out, "shape", None), getattr(out, "dtype", None)
    if shape is None or dtype is None:
        raise ArgumentTypeError(
            f"{argument}: {signature} must return one number, got {type(out).__name__}: "
            "return a scalar."
        )
    if math.prod(shape) != 1 or len(shape) > 1:
        raise ArgumentError(
            f"{argument}: {signature} must return one number for one point, "
            f"got shape {tuple(shape)}: reduce it to a scalar; batching is done for you."
        )
    if not (jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)):
        raise ArgumentTypeError(
            f"{argument}: {signature} must return a real number, got {dtype}: return a float."
        )
