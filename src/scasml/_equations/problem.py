"""The PDE, written for one point.

    u_t + <mu, grad u> + 1/2 Tr(sigma sigma^T Hess u) + F(t, x, u, z) = 0 on [0, T) x R^d
    u(T, .) = g,    z = sigma^T grad u

`Law` is what the estimators see of it. Both the user's `Problem` and the law of defect of a
surrogate are laws, which is why the naive simulation, the correction, and the correction of a
correction are one code path.
"""

import abc
import math
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, PRNGKeyArray
from numpy.typing import NDArray

from .._support.errors import ArgumentError, ArgumentTypeError, brief, first_line
from .._support.tracing import hashable
from ..paths import AbstractDynamics, Gaussian, General
from ..paths.coefficients import diffuse_transposed, real_array
from .domain import AbstractDomain, require_domain

Nonlinearity = Callable[[Array, Array, Array, Array], ArrayLike]
Terminal = Callable[[Array], ArrayLike]
Function = Callable[[Array, Array], ArrayLike]


class Solution(NamedTuple):
    """U = (u, z): a value and its sigma^T grad, or estimates of them."""

    u: Array
    z: Array


class AbstractEquation(eqx.Module):
    """A semilinear parabolic law as the estimators see it.

    The nonlinearity F is split where the simulation needs it split: `source` is F(t, x, 0, 0) and
    `difference` is F(t, x, U) - F(t, x, V). For the law of defect the residual of the surrogate
    lives in `source` alone; it cancels in every difference.
    """

    dim: eqx.AbstractVar[int]
    horizon: eqx.AbstractVar[float]
    dynamics: eqx.AbstractVar[AbstractDynamics]
    uses_u: eqx.AbstractVar[bool]
    uses_z: eqx.AbstractVar[bool]
    zero_terminal: eqx.AbstractVar[
        bool
    ]  # g is 0 everywhere, by construction: no path need go there

    @abc.abstractmethod
    def terminal(self, x: Array) -> Array:
        """g(x)."""

    @abc.abstractmethod
    def source(self, t: Array, x: Array, key: PRNGKeyArray) -> Array:
        """F(t, x, 0, 0), or an unbiased estimate of it that draws from `key`."""

    @abc.abstractmethod
    def nonlinearity(self, t: Array, x: Array, u: Array, z: Array, key: PRNGKeyArray) -> Array:
        """F(t, x, u, z); like `source`, a law may estimate the part that depends on neither u nor z."""

    @abc.abstractmethod
    def difference(self, t: Array, x: Array, new: Solution, old: Solution) -> Array:
        """F(t, x, new) - F(t, x, old)."""

    @abc.abstractmethod
    def heading(self, t: Array, x: Array) -> Array:
        """A guess at z, for its direction: where the value of a path is thought to change most."""

    def drift(self, t: Array, x: Array) -> Array:
        """mu(t, x)."""
        return self.dynamics.drift(t, x)

    def diffusion(self, t: Array, x: Array) -> Array:
        """sigma(t, x): a scalar, a diagonal or a matrix."""
        return self.dynamics.diffusion(t, x)

    @property
    def is_linear(self) -> bool:
        """True if F depends on neither u nor z: one Picard level is then unbiased."""
        return not (self.uses_u or self.uses_z)


class NoNonlinearity(eqx.Module):
    """F = 0."""

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        return jnp.zeros_like(u)


class Reference(eqx.Module):
    """A solution known by other means: `value(t, x)` on arrays (B,) and (B, d), NaN where it is not known, and how far it may be off."""

    value: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]
    error: float
    source: str


class Problem(AbstractEquation):
    """A semilinear parabolic PDE.

    `drift` is a scalar, (d,) or a function of (t, x) that gives (d,); `diffusion` a scalar, (d,)
    for a diagonal, (d, d), or a function of (t, x) that gives any of these. `dynamics` takes the place
    of both where the paths are known exactly: `GeometricBrownian` or `OrnsteinUhlenbeck`. `x0` is the
    state that published values speak of, by default the origin. `domain`, a `Box` or a `Ball`, is where answers are
    wanted, for those who train a surrogate; by default x0 at time 0.

    `terminal(x)` and `nonlinearity(t, x, u, z)` are JAX functions of one point; z is sigma^T grad u.
    Leave the nonlinearity out for a linear problem. Every part is evaluated once, abstractly, at
    construction, so a wrong shape is refused here and not in the middle of a simulation.
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
    parameters: tuple[tuple[str, Any], ...] | None = eqx.field(
        static=True
    )  # of a member of the zoo

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
        if isinstance(dim, bool) or not isinstance(dim, numbers.Integral):
            raise ArgumentTypeError(
                f"dim must be a whole number, got {brief(dim)}: pass the number of space dimensions."
            )
        if dim < 1:
            raise ArgumentError(
                f"dim must be at least 1, got {dim}: pass the number of space dimensions."
            )
        final = real_array("horizon", horizon, "a number, the final time T")
        if final.ndim != 0 or not (np.isfinite(final) and final > 0):
            raise ArgumentError(
                f"horizon must be a positive finite number, got {brief(horizon)}: pass the final time T."
            )
        self.dim = int(dim)
        self.horizon = float(final)
        self.dynamics = _dynamics(drift, diffusion, dynamics)
        self.dynamics.check(self.dim)
        if not callable(terminal):
            raise ArgumentTypeError(
                f"terminal must be a function g(x), got {brief(terminal)}: pass a JAX function of one point."
            )
        if nonlinearity is not None and not callable(nonlinearity):
            raise ArgumentTypeError(
                f"nonlinearity must be a function F(t, x, u, z), got {brief(nonlinearity)}: "
                "pass a JAX function of one point, or leave it out for a linear problem."
            )
        if reference is not None and not isinstance(reference, Reference):
            raise ArgumentTypeError(
                f"reference must be a scasml.Reference, got {brief(reference)}: pass one, or leave it out."
            )
        self.terminal_fn = hashable(terminal)
        self.nonlinearity_fn = NoNonlinearity() if nonlinearity is None else hashable(nonlinearity)
        scalar = jax.ShapeDtypeStruct((), jnp.result_type(float))
        vector = jax.ShapeDtypeStruct((self.dim,), jnp.result_type(float))
        check_scalar_function("terminal", "terminal(x)", terminal, vector)
        self.uses_u, self.uses_z, self.zero_terminal = False, False, False
        if nonlinearity is not None:
            inputs = (scalar, vector, scalar, vector)
            check_scalar_function("nonlinearity", "nonlinearity(t, x, u, z)", nonlinearity, *inputs)
            _, _, self.uses_u, self.uses_z = _inputs_used(nonlinearity, *inputs)
        self.name = name
        self.reference = reference
        self.x0 = np.zeros(self.dim) if x0 is None else real_array("x0", x0, f"({self.dim},)")
        if self.x0.shape != (self.dim,) or not np.isfinite(self.x0).all():
            raise ArgumentError(
                f"x0 must be {self.dim} finite numbers, got {brief(x0)}: pass one state, or leave it out."
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
        return self.nonlinearity(t, x, jnp.zeros_like(t), jnp.zeros_like(x))

    def difference(self, t: Array, x: Array, new: Solution, old: Solution) -> Array:
        return self.nonlinearity(t, x, *new) - self.nonlinearity(t, x, *old)

    def heading(self, t: Array, x: Array) -> Array:
        """Of g."""
        return diffuse_transposed(self.diffusion(t, x), jax.grad(self.terminal)(x))

    def exact(self, t: ArrayLike, x: ArrayLike) -> Any:
        """The reference solution in float64, at one point or many. See `reference.error` for how exact it is."""
        if self.reference is None:
            raise ArgumentError(
                f"problem {self.name!r} has no reference solution: pass reference= to Problem to give it one."
            )
        ts, xs = real_array("t", t, "a number or (B,)"), real_array("x", x, "(d,) or (B, d)")
        if xs.ndim not in (1, 2) or xs.shape[-1] != self.dim:
            raise ArgumentError(
                f"x must be ({self.dim},) or (B, {self.dim}), got shape {xs.shape}: pass points of the problem."
            )
        try:
            batch = np.broadcast_shapes(ts.shape, xs.shape[:-1])
        except ValueError as error:
            raise ArgumentError(
                f"t and x must agree, got shapes {ts.shape} and {xs.shape}: pass one time per point, or one number."
            ) from error
        ts = np.broadcast_to(ts, batch).reshape(-1)
        xs = np.broadcast_to(xs, (*batch, self.dim)).reshape(-1, self.dim)
        values = np.asarray(self.reference.value(ts, xs), np.float64).reshape(batch)
        return values if batch else values[()]


def require_equation(problem: Any, kind: type[AbstractEquation] = AbstractEquation) -> None:
    if not isinstance(problem, kind):
        raise ArgumentTypeError(
            f"problem must be a scasml.Problem, got {brief(problem)}: build one, or take one of scasml.problems."
        )


def require_problem(problem: Any) -> None:
    """Not any law: a surrogate is trained where a Problem says that answers are wanted."""
    require_equation(problem, Problem)


def check_scalar_function(
    argument: str, signature: str, function: Callable[..., Any], *inputs: Any
) -> None:
    """One abstract evaluation at one point: it must run under JAX and give one real number."""
    try:
        out = jax.eval_shape(function, *inputs)
    except Exception as error:
        raise ArgumentTypeError(
            f"{argument}: evaluating {signature} at one point with d = {_width(inputs)} failed with "
            f"{first_line(error)}: write it with jax.numpy for one point, x of shape (d,)."
        ) from error
    shape, dtype = getattr(out, "shape", None), getattr(out, "dtype", None)
    if shape is None or dtype is None:
        raise ArgumentTypeError(
            f"{argument}: {signature} must return one number, got {type(out).__name__}: return a scalar."
        )
    if math.prod(shape) != 1 or len(shape) > 1:
        raise ArgumentError(
            f"{argument}: {signature} must return one number for one point, got shape {tuple(shape)}: "
            "reduce it to a scalar; batching is done for you."
        )
    if not (jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)):
        raise ArgumentTypeError(
            f"{argument}: {signature} must return a real number, got {dtype}: return a float."
        )


def _width(inputs: tuple[Any, ...]) -> int:
    return max(i.shape[0] for i in inputs if i.shape)


def _as_scalar(value: ArrayLike, like: Array) -> Array:
    return jnp.asarray(value, like.dtype).reshape(())


def _inputs_used(function: Callable[..., Any], *inputs: Any) -> list[bool]:
    """Which inputs the value can depend on, read off the jaxpr.

    Conservative: an input that enters any equation counts, so an unused z is found when F never
    touches it, and F = 0 * z counts as using it.
    """
    jaxpr = jax.make_jaxpr(function)(*inputs).jaxpr
    read = {id(v) for equation in jaxpr.eqns for v in equation.invars} | {
        id(v) for v in jaxpr.outvars
    }
    return [id(v) in read for v in jaxpr.invars]


def _dynamics(drift: Any, diffusion: Any, dynamics: Any) -> AbstractDynamics:
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
                f"{argument} is given by dynamics already, got {argument}={brief(value)} as well: pass one of the two."
            )
    return dynamics
