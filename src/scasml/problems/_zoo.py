"""The registry of the zoo, and what its constructors have in common.

A constructor takes parameters and returns a `Problem`. The decorator `zoo` registers a constructor,
and `catalogue` returns all registered ones. The other functions check parameters that many
constructors take. `Discount` and `QuadraticHamiltonian` are the nonlinearities of several problems.
"""

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import Problem
from .._support.errors import ArgumentError, listing, positive, whole

Parameters = ParamSpec("Parameters")

REGISTRY: dict[str, Callable[..., Problem]] = {}
"""The constructors by name, in the order of their registration."""

# Bound on the error of a closed form: the float64 rounding of a sum over a thousand coordinates.
ROUNDING = 1e-12


def catalogue() -> dict[str, Callable[..., Problem]]:
    """Return every constructor of the zoo by name, in the order of registration.

    The first line of a constructor's docstring says what it builds.
    """
    return dict(REGISTRY)


def zoo(build: Callable[Parameters, Problem]) -> Callable[Parameters, Problem]:
    """Register a constructor of problems and cache the problems that it builds.

    To add a constructor outside of scasml, decorate it in any module with `scasml.problems.zoo`;
    `scasml --import module` loads it.

    `build` needs a docstring, because `scasml problems` prints its first line, and a default for
    every parameter. If the dimension can be chosen, its parameter is called `dim`.

    The returned constructor has the signature of `build`. Equal parameters give the same `Problem`
    object, whether they are passed by position or by keyword. The `name` of the problem is the
    name of the constructor, and its `parameters` are those of the call. The file of a surrogate
    contains both, so `surrogates.load` can build the problem again.

    Raises `ArgumentError` if the docstring or a default is missing, or if another function has
    registered the same name.
    """
    signature = inspect.signature(build)
    name = build.__name__
    _check_constructor(build, signature)

    # The cache distinguishes types, because 10.0 equals 10 but is not a valid dimension.
    @functools.lru_cache(maxsize=64, typed=True)
    def cached(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Problem:
        # `build` may return a problem that another constructor has cached, so change a copy only.
        problem = copy.copy(build(*args, **kwargs))
        parameters = tuple(signature.bind(*args, **kwargs).arguments.items())
        # A problem is frozen, so its fields cannot be assigned.
        object.__setattr__(problem, "name", name)
        object.__setattr__(problem, "parameters", parameters)
        return problem

    @functools.wraps(build)
    def construct(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Problem:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        try:
            hash((bound.args, *bound.kwargs.values()))
        except TypeError:
            # A value without a hash, such as a list, cannot be a key of the cache. `build` raises
            # an error that names the parameter.
            return build(*bound.args, **bound.kwargs)
        return cached(*bound.args, **bound.kwargs)

    REGISTRY[name] = construct
    return construct


def _check_constructor(build: Callable[..., Problem], signature: inspect.Signature) -> None:
    name = build.__name__
    if not inspect.getdoc(build):
        raise ArgumentError(
            f"constructor {name} must have a docstring, got none: say in one line what it builds."
        )
    required = [p.name for p in signature.parameters.values() if p.default is p.empty]
    if required:
        raise ArgumentError(
            f"constructor {name} must have a default for every parameter, got none for "
            f"{', '.join(required)}: give it one."
        )
    registered = REGISTRY.get(name)
    # A notebook cell or a reloaded module may define the same function again.
    if registered is not None and _origin(registered) != _origin(build):
        raise ArgumentError(
            f"constructor {name} must have a new name, got the name of {_origin(registered)}: "
            "rename it."
        )


def _origin(build: Callable[..., Problem]) -> str:
    """Return the module and the qualified name of a function."""
    return f"{build.__module__}.{build.__qualname__}"


def dimension(dim: Any, at_least: int = 1) -> int:
    """Return `dim` if it is a whole number of at least `at_least`; otherwise raise."""
    return whole("dim", dim, at_least, "pass the number of space dimensions")


def final_time(horizon: Any) -> float:
    """Return `horizon` as a float if it is positive and finite; otherwise raise."""
    return positive("horizon", horizon, "pass the final time T")


def time_to_go(t: NDArray[Any], horizon: float) -> NDArray[Any]:
    """Return T - t for times (B,), and raise `ArgumentError` if one lies outside [0, T]."""
    # A final time that was rounded to float32 may exceed T slightly.
    slack = 1e-6 * horizon
    outside = np.flatnonzero(~((t >= -slack) & (t <= horizon + slack)))
    if outside.size:
        raise ArgumentError(
            f"t must lie in [0, {horizon:g}], got {t[outside[0]]} at point "
            f"{listing(outside.tolist())}: the reference is defined up to the horizon only."
        )
    return np.clip(horizon - t, 0.0, horizon)


class Discount(eqx.Module):
    """F = -r u, the nonlinearity of linear pricing, where r is the interest rate `rate`."""

    rate: float = eqx.field(static=True)

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        return -self.rate * u


class QuadraticHamiltonian(eqx.Module):
    """F = -|z|^2/2, the nonlinearity of linear-quadratic control."""

    def __call__(self, t: Array, x: Array, u: Array, z: Array) -> Array:
        return -0.5 * jnp.sum(jnp.square(z))
