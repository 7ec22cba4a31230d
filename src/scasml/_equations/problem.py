"""The problem that a user states: a semilinear parabolic PDE with its functions and coefficients.

Functions and numbers come in, a checked `Problem` comes out. It is an `AbstractEquation`, so every
estimator can solve it. A `Reference` is a solution that is known by other means.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, PRNGKeyArray
from numpy.typing import NDArray

from .._support.errors import ArgumentError, ArgumentTypeError, brief, whole
from .._support.jaxprs import inputs_read
from .._support.tracing import abstract_point, hashable
from ..paths import AbstractDynamics, Gaussian, General
from ..paths.coefficients import diffuse_transposed, real_array
from ..paths.general import Function
from .base import AbstractEquation, Solution, check_scalar_function, require_equation
from .domain import AbstractDomain, require_domain

Nonlinearity = Callable[[Array, Array, Array, Array], ArrayLike]
Terminal = Callable[[Array], ArrayLike]


class NoNonlinearity(eqx.Module):
    """F = 0."""

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        return jnp.zeros_like(u)


class Reference(eqx.Module):
    """A solution known by other means.

    Attributes:
        value: a function of t, (B,), and x, (B, d), that returns (B,), with NaN where the solution
            is not known.
        error: a bound on the error of these values.
        source: where the values come from, in words.
    """

    value: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
    error: float
    source: str


class Problem(AbstractEquation):
    """A semilinear parabolic PDE.

        u_t + <mu, grad u> + 1/2 Tr(sigma sigma^T Hess u) + F(t, x, u, z) = 0 on [0, T) x R^d
        u(T, .) = g,    z = sigma^T grad u

    All functions are JAX functions of one point: t is a scalar, x and z have shape (d,).

    Arguments:
        dim: d, the number of space dimensions.
        horizon: T, a positive number.
        terminal: g, a function of x that returns a scalar.
        drift: mu, as a scalar, an array (d,), or a function of (t, x) that returns (d,).
        diffusion: sigma, as a scalar, the diagonal (d,) of a matrix, a matrix (d, d), or a function
            of (t, x) that returns one of these.
        dynamics: replaces `drift` and `diffusion`: an `AbstractDynamics`, such as
            `GeometricBrownian`, `OrnsteinUhlenbeck` or your own.
        nonlinearity: F, a function of (t, x, u, z) that returns a scalar. The default is F = 0.
        name: a name, used in messages and for the files of trained surrogates.
        reference: a known solution, which `exact` returns.
        x0: the state (d,) for which published values are stated. The default is the origin.
        domain: a `Box` or a `Ball` in which answers are wanted; surrogates are trained there. The
            default is the point x0 at time 0.

    All functions are evaluated once, abstractly, at construction, so that a wrong shape raises here
    and not during a simulation. Raises ArgumentError or ArgumentTypeError.
    """

    dim: int = eqx.field(static=True)
    horizon: float = eqx.field(static=True)
    dynamics: AbstractDynamics
    nonlinearity_fn: Nonlinearity
    terminal_fn: Terminal
    uses_u: bool = eqx.field(static=True)
    uses_z: bool = eqx.field(static=True)
    zero_terminal: bool = eqx.field(static=True)
    name: str = eqx.field(static=True)
    reference: Reference | None = eqx.field(static=True)
    x0: NDArray[Any]
    domain: AbstractDomain | None = eqx.field(static=True)
    # Names and values of the arguments, if the problem was made by a function of the zoo.
    parameters: tuple[tuple[str, Any], ...] | None = eqx.field(static=True)

    def __init__(
        self,
        *,
        dim: int,
        horizon: float,
        terminal: Terminal,
        drift: ArrayLike | Function = 0.0,
        diffusion: ArrayLike | Function = 1.0,
        dynamics: AbstractDynamics | None = None,
        nonlinearity: Nonlinearity | None = None,
        name: str = "problem",
        reference: Reference | None = None,
        x0: ArrayLike | None = None,
        domain: AbstractDomain | None = None,
    ):
        self.dim = whole("dim", dim, 1, "pass the number of space dimensions")
        final = real_array("horizon", horizon, "a number, the final time T")
        if final.ndim != 0 or not (np.isfinite(final) and final > 0):
            raise ArgumentError(
                f"horizon must be a positive finite number, got {brief(horizon)}: "
                "pass the final time T."
            )
        self.horizon = float(final)
        self.dynamics = _make_dynamics(drift, diffusion, dynamics)
        self.dynamics.check(self.dim)
        if not callable(terminal):
            raise ArgumentTypeError(
                f"terminal must be a function g(x), got {brief(terminal)}: "
                "pass a JAX function of one point."
            )
        if nonlinearity is not None and not callable(nonlinearity):
            raise ArgumentTypeError(
                f"nonlinearity must be a function F(t, x, u, z), got {brief(nonlinearity)}: "
                "pass a JAX function of one point, or leave it out for a linear problem."
            )
        if reference is not None and not isinstance(reference, Reference):
            raise ArgumentTypeError(
                f"reference must be a scasml.Reference, got {brief(reference)}: "
                "pass one, or leave it out."
            )
        self.terminal_fn = hashable(terminal)
        self.nonlinearity_fn = NoNonlinearity() if nonlinearity is None else hashable(nonlinearity)
        scalar, vector = abstract_point(self.dim)
        check_scalar_function("terminal", "terminal(x)", terminal, vector)
        self.uses_u, self.uses_z, self.zero_terminal = False, False, False
        if nonlinearity is not None:
            inputs = (scalar, vector, scalar, vector)
            check_scalar_function("nonlinearity", "nonlinearity(t, x, u, z)", nonlinearity, *inputs)
            _, _, self.uses_u, self.uses_z = inputs_read(
                jax.make_jaxpr(nonlinearity)(*inputs).jaxpr
            )
        self.name = name
        self.reference = reference
        self.x0 = np.zeros(self.dim) if x0 is None else real_array("x0", x0, f"({self.dim},)")
        if self.x0.shape != (self.dim,) or not np.isfinite(self.x0).all():
            raise ArgumentError(
                f"x0 must be {self.dim} finite numbers, got {brief(x0)}: "
                "pass one state, or leave it out."
            )
        if domain is not None:
            require_domain(domain, self.dim)
        self.domain, self.parameters = domain, None

    def terminal(self, x: Array) -> Array:
        return _as_scalar(self.terminal_fn(x), x)

    def nonlinearity(
        self, t: Array, x: Array, u: Array, z: Array, key: PRNGKeyArray | None = None
    ) -> Array:
        return _as_scalar(self.nonlinearity_fn(t, x, u, z), x)

    def source(self, t: Array, x: Array, key: PRNGKeyArray | None = None) -> Array:
        return self.nonlinearity(t, x, *Solution.zero(t, x))

    def difference(self, t: Array, x: Array, new: Solution, old: Solution) -> Array:
        return self.nonlinearity(t, x, *new) - self.nonlinearity(t, x, *old)

    def heading(self, t: Array, x: Array) -> Array:
        """Return sigma^T grad g."""
        return diffuse_transposed(self.diffusion(t, x), jax.grad(self.terminal)(x))

    def exact(self, t: ArrayLike, x: ArrayLike) -> Any:
        """Return the reference solution in float64, at one point or at many.

        `t` is a number or (B,), `x` is (d,) or (B, d). `reference.error` bounds the error. Raises
        ArgumentError if there is no reference or if the shapes do not fit.
        """
        if self.reference is None:
            raise ArgumentError(
                f"problem {self.name!r} has no reference solution: "
                "pass reference= to Problem to give it one."
            )
        ts, xs = real_array("t", t, "a number or (B,)"), real_array("x", x, "(d,) or (B, d)")
        if xs.ndim not in (1, 2) or xs.shape[-1] != self.dim:
            raise ArgumentError(
                f"x must be ({self.dim},) or (B, {self.dim}), got shape {xs.shape}: "
                "pass points of the problem."
            )
        try:
            batch = np.broadcast_shapes(ts.shape, xs.shape[:-1])
        except ValueError as error:
            raise ArgumentError(
                f"t and x must agree, got shapes {ts.shape} and {xs.shape}: "
                "pass one time per point, or one number."
            ) from error
        ts = np.broadcast_to(ts, batch).reshape(-1)
        xs = np.broadcast_to(xs, (*batch, self.dim)).reshape(-1, self.dim)
        values = np.asarray(self.reference.value(ts, xs), np.float64).reshape(batch)
        return values if batch else values[()]


def require_problem(problem: Any) -> None:
    """Raise ArgumentTypeError if `problem` is not a `Problem`.

    The training of a surrogate needs the domain of a `Problem`, which other equations do not have.
    """
    require_equation(problem, Problem)


def _as_scalar(value: ArrayLike, like: Array) -> Array:
    """Return a value of shape () or (1,) as a scalar with the dtype of `like`."""
    return jnp.asarray(value, like.dtype).reshape(())


def _make_dynamics(drift: Any, diffusion: Any, dynamics: Any) -> AbstractDynamics:
    """Return `dynamics`, or if it is None the dynamics with this drift and diffusion.

    Raises ArgumentTypeError for a wrong type, and ArgumentError if both are given.
    """
    if dynamics is None:
        return (
            General(drift, diffusion)
            if callable(drift) or callable(diffusion)
            else Gaussian(drift, diffusion)
        )
    if not isinstance(dynamics, AbstractDynamics):
        raise ArgumentTypeError(
            f"dynamics must be a GeometricBrownian or an OrnsteinUhlenbeck, got {brief(dynamics)}: "
            "build one, or pass drift= and diffusion=."
        )
    for argument, value, default in (("drift", drift, 0.0), ("diffusion", diffusion, 1.0)):
        if not (isinstance(value, float) and value == default):
            raise ArgumentError(
                f"{argument} is given by dynamics already, got {argument}={brief(value)} as well: "
                "pass one of the two."
            )
    return dynamics
