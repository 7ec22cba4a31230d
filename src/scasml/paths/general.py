"""`General`: any drift and diffusion, each a function of (t, x) or a constant.

The paths of a `General` have no exact path law, so they are simulated in steps.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike

from .._support.errors import ArgumentError, ArgumentTypeError, first_line
from .._support.tracing import abstract_point, hashable
from .base import AbstractDynamics
from .coefficients import Coefficient
from .gaussian import Gaussian

Function = Callable[[Array, Array], ArrayLike]


class General(AbstractDynamics):
    """dX = mu(t, X) dt + sigma(t, X) dW, where mu and sigma are JAX functions or constants.

    A function `drift(t, x)` returns (d,), for a scalar t and x of shape (d,). A function
    `diffusion(t, x)` returns a scalar, the diagonal (d,) of a matrix, or a matrix (d, d). Constants
    are as for `Gaussian`.

    Attributes:
        mu: the drift if it is a function; None if it is constant.
        sigma: the diffusion if it is a function; None if it is constant.
        constants: a `Gaussian` with the coefficients that are constant. Its default stands in
            for a coefficient that is a function.
    """

    mu: Function | None
    sigma: Function | None
    constants: Gaussian

    def __init__(self, drift: Any = 0.0, diffusion: Any = 1.0):
        self.mu = hashable(drift) if callable(drift) else None
        self.sigma = hashable(diffusion) if callable(diffusion) else None
        self.constants = Gaussian(
            0.0 if callable(drift) else drift, 1.0 if callable(diffusion) else diffusion
        )

    def check(self, dim: int) -> None:
        self.constants.check(dim)
        if self.mu is not None:
            _check_shape("drift", self.mu, dim, ((dim,),), f"({dim},)")
        if self.sigma is not None:
            _check_shape(
                "diffusion",
                self.sigma,
                dim,
                ((), (dim,), (dim, dim)),
                f"a scalar, ({dim},) or ({dim}, {dim})",
            )

    def drift(self, t: Array, x: Array) -> Array:
        if self.mu is None:
            return self.constants.drift(t, x)
        return jnp.asarray(self.mu(t, x), x.dtype)

    def diffusion(self, t: Array, x: Array) -> Array:
        if self.sigma is None:
            return self.constants.diffusion(t, x)
        return jnp.asarray(self.sigma(t, x), x.dtype)

    @property
    def constant_diffusion(self) -> Coefficient | None:
        return self.constants.sigma if self.sigma is None else None

    @property
    def exact(self) -> None:
        return None


def _check_shape(
    argument: str, function: Function, dim: int, shapes: tuple[Any, ...], words: str
) -> None:
    """Evaluate a coefficient and its derivative abstractly at one point, and check the result.

    Paths are differentiated in reverse mode, so the derivative must exist. `shapes` are the allowed
    shapes, and `words` names them in messages. Raises `ArgumentError` or `ArgumentTypeError`.
    """
    t, x = abstract_point(dim)
    try:
        out = jax.eval_shape(function, t, x)
    except Exception as error:
        raise ArgumentTypeError(
            f"{argument}: evaluating {argument}(t, x) at one point with d = {dim} "
            f"failed with {first_line(error)}: "
            "write it with jax.numpy for one point, x of shape (d,)."
        ) from error
    shape, dtype = getattr(out, "shape", None), getattr(out, "dtype", None)
    if shape is None or dtype is None:
        # A Python number has no shape or dtype, but is a valid scalar.
        if not isinstance(out, int | float) or isinstance(out, bool):
            raise ArgumentTypeError(
                f"{argument}: {argument}(t, x) must return an array, got {type(out).__name__}."
            )
        shape, dtype = (), jnp.result_type(float)
    if tuple(shape) not in shapes:
        raise ArgumentError(
            f"{argument}: {argument}(t, x) must return {words} for one point, "
            f"got shape {tuple(shape)}: write it for x of shape (d,); batching is done for you."
        )
    if not (jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)):
        raise ArgumentTypeError(
            f"{argument}: {argument}(t, x) must return real numbers, got {dtype}: return floats."
        )
    try:
        jax.eval_shape(
            jax.grad(lambda t, x: jnp.sum(jnp.asarray(function(t, x), x.dtype)), argnums=1), t, x
        )
    except Exception as error:
        raise ArgumentTypeError(
            f"{argument}: {argument}(t, x) cannot be differentiated in x by reverse mode "
            f"({first_line(error)}): write it without while_loop, or with a custom gradient."
        ) from error
