"""The residual engine: value, z = sigma^T grad u and u_t + L u of a surrogate in one forward pass.

Push (t, X) through u by Ito's formula (`ito`) and out come u, z = S' and u_t + <mu, grad u> + 1/2 Tr(sigma sigma^T Hess u) = b'.
This is the forward Laplacian with the time derivative and the drift carried along in the same slot. No Hessian is formed.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PRNGKeyArray

from .._support.errors import whole
from .._support.tracing import cached_by_structure
from ..paths import AbstractDynamics
from ..paths.coefficients import Coefficient, columns, diffuse_transposed
from ..surrogates.wrapping import AbstractSurrogate, ClosedForm, Layered
from .ito import Ito, apply_ito, own
from .problem import AbstractEquation


class Hutchinson(eqx.Module):
    """Estimate the trace from `dims` of the d columns of sigma, drawn without replacement.

    Unbiased, because the residual enters the simulation linearly. It buys memory more than time:
    the exact trace through a first layer of 50 units costs about as much as 25 random coordinates.
    """

    dims: int = eqx.field(static=True)

    def __init__(self, dims: int):
        self.dims = whole("dims", dims, 1, "pass how many coordinates to draw")


class Generator(eqx.Module):
    """(t, x) -> u, z = sigma^T grad u and u_t + <mu, grad u> + 1/2 Tr(sigma sigma^T Hess u).

    A `Layered` surrogate, u(t, x) = head(t, W x), is differentiated along the columns of W sigma. For a constant sigma
    min(d, width) directions do: (W sigma)^T = Q R gives W sigma sigma^T W^T = R^T R, exactly. While W is trained, Q is held and
    R = Q^T (W sigma)^T: so is the derivative of R^T R, and no factorisation is differentiated.
    """

    surrogate: AbstractSurrogate
    dynamics: AbstractDynamics
    dim: int = eqx.field(static=True)
    hutchinson: Hutchinson | None  # a closed form needs none
    fixed: (
        tuple[Coefficient, Coefficient | None] | None
    )  # R and Q, or W sigma and None; of a constant sigma
    gradient_apart: bool = eqx.field(static=True)  # whether z takes a pass of its own
    route: str = eqx.field(static=True)

    def __init__(
        self,
        equation: AbstractEquation,
        surrogate: AbstractSurrogate,
        hutchinson: Hutchinson | None = None,
    ):
        self.surrogate = surrogate
        self.dynamics, self.dim = equation.dynamics, equation.dim
        self.hutchinson = hutchinson
        self.fixed = None
        self.gradient_apart = hutchinson is not None
        form, sigma = surrogate.form, equation.dynamics.constant_diffusion
        if sigma is not None and isinstance(form, Layered):
            self.fixed, spans = _fixed_directions(
                sigma, form.weight, equation.dim, hutchinson is None
            )
            self.gradient_apart |= not spans
        if isinstance(form, ClosedForm) and _is_diagonal(equation):
            self.route = "closed"
        else:
            self.route = "ito" if _has_forward_mode(surrogate, equation.dim) else "hessian"

    def __call__(self, t: Array, x: Array, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        form = self.surrogate.form
        if self.route == "hessian":
            return self._by_hessian(t, x, key)
        if self.route == "closed":
            assert isinstance(form, ClosedForm)
            return self._closed(form, t, x)
        drawn = None if self.hutchinson is None else self._drawn(key)
        u, z, moved = (
            self._layered(form, t, x, drawn)
            if isinstance(form, Layered)
            else self._traced(t, x, drawn)
        )
        if self.gradient_apart:
            z = diffuse_transposed(
                self.dynamics.diffusion(t, x), jax.grad(self.surrogate, argnums=1)(t, x)
            )
        return u, z, moved

    def _traced(self, t: Array, x: Array, drawn: Array | None) -> tuple[Array, Array, Array]:
        return apply_ito(self.surrogate, _clock(t), self._moving(t, x, drawn))

    def _layered(
        self, form: Layered, t: Array, x: Array, drawn: Array | None
    ) -> tuple[Array, Array, Array]:
        noise, rotation = self._through(form.weight, t, x)
        h = form.weight @ x
        noise = self._thinned(noise, drawn).astype(h.dtype)
        u, z, moved = apply_ito(
            form.head, _clock(t), Ito(h, noise, form.weight @ self.dynamics.drift(t, x))
        )
        z = z if rotation is None else rotation @ z
        if form.offset is not None:
            u_rest, z_rest, moved_rest = apply_ito(
                form.offset, _clock(t), self._moving(t, x, drawn)
            )
            u, moved = u + u_rest, moved + moved_rest
            z = z if self.gradient_apart else z + z_rest
        return u, z, moved

    def _closed(self, form: ClosedForm, t: Array, x: Array) -> tuple[Array, Array, Array]:
        u, u_t, gradient, curvature = form.derivatives(t, x)
        sigma = jnp.broadcast_to(self.dynamics.diffusion(t, x), x.shape)
        moved = u_t + self.dynamics.drift(t, x) @ gradient + 0.5 * jnp.sum(sigma**2 * curvature)
        z = sigma * gradient
        if form.offset is not None:
            rest = apply_ito(form.offset, _clock(t), self._moving(t, x, None))
            u, z, moved = u + rest[0], z + rest[1], moved + rest[2]
        return u, z, moved

    def _moving(self, t: Array, x: Array, drawn: Array | None) -> Ito:
        """X itself."""
        sigma = jnp.asarray(self.dynamics.diffusion(t, x), x.dtype)
        if drawn is None and sigma.ndim < 2:
            noise: Any = own(jnp.broadcast_to(sigma, x.shape))
        else:
            noise = self._thinned(columns(sigma, self.dim), drawn)
        return Ito(x, noise, self.dynamics.drift(t, x))

    def _through(self, weight: Array, t: Array, x: Array) -> tuple[Array, Array | None]:
        """The columns of sigma as rows, seen through the first layer; or as many as span them, and Q."""
        if self.fixed is not None:
            directions, rotation = self.fixed
            return jnp.asarray(directions, x.dtype), None if rotation is None else jnp.asarray(
                rotation, x.dtype
            )
        sigma, transposed = self.dynamics.diffusion(t, x), weight.astype(x.dtype).T
        return (
            sigma.T @ transposed
            if sigma.ndim == 2
            else jnp.broadcast_to(sigma, x.shape)[:, None] * transposed
        ), None

    def _thinned(self, noise: Array, drawn: Array | None) -> Array:
        """Those columns that were drawn, and larger by what the others are worth."""
        if drawn is None:
            return noise
        assert self.hutchinson is not None
        return noise[drawn] * np.sqrt(self.dim / self.hutchinson.dims)

    def _drawn(self, key: PRNGKeyArray) -> Array:
        assert self.hutchinson is not None
        return jax.random.permutation(key, self.dim)[: self.hutchinson.dims]

    def _by_hessian(self, t: Array, x: Array, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        """Second derivatives along the columns of sigma by reverse mode alone, for what forward mode cannot follow."""
        value, (time_derivative, gradient) = jax.value_and_grad(self.surrogate, argnums=(0, 1))(
            t, x
        )
        sigma = self.dynamics.diffusion(t, x)
        directions, scale = columns(sigma, self.dim), 1.0
        if self.hutchinson is not None:
            directions, scale = directions[self._drawn(key)], self.dim / self.hutchinson.dims

        def curvature(column: Array) -> Array:
            slope = lambda y: column @ jax.grad(self.surrogate, argnums=1)(t, y)
            return column @ jax.grad(slope)(x)

        trace = scale * jnp.sum(
            jax.lax.map(curvature, directions, batch_size=min(16, len(directions)))
        )
        drift = self.dynamics.drift(t, x) @ gradient
        return value, diffuse_transposed(sigma, gradient), time_derivative + drift + 0.5 * trace


def _clock(t: Array) -> Ito:
    return Ito(t, None, jnp.ones_like(t))


def _is_diagonal(equation: AbstractEquation) -> bool:
    t, x = (jax.ShapeDtypeStruct(shape, jnp.result_type(float)) for shape in ((), (equation.dim,)))
    return (
        jax.eval_shape(lambda t, x: jnp.asarray(equation.dynamics.diffusion(t, x)), t, x).ndim < 2
    )


def _fixed_directions(
    sigma: Any, weight: Array, dim: int, reduce: bool
) -> tuple[tuple[Coefficient, Coefficient | None], bool]:
    """The rows to differentiate along, and the rotation that makes z of their derivatives, None if they are z; and whether they do."""
    is_trained = isinstance(weight, Tracer)
    if not is_trained:
        sigma = np.asarray(sigma, np.float64)
    directions = (sigma if np.ndim(sigma) == 2 else np.diag(np.broadcast_to(sigma, (dim,)))).T
    if is_trained:
        directions = jnp.asarray(directions, weight.dtype) @ weight.T
        if reduce and directions.shape[1] < dim:
            return (jax.lax.stop_gradient(jnp.linalg.qr(directions)[0]).T @ directions, None), False
        return (directions, None), True
    directions = directions @ np.asarray(weight, np.float64).T
    if reduce and directions.shape[1] < dim:
        rotation, triangle = np.linalg.qr(directions)
        return (triangle, rotation), True
    return (directions, None), True


@cached_by_structure
def _has_forward_mode(surrogate: AbstractSurrogate, dim: int) -> bool:
    """Whether jvp of jvp can be taken; a custom_vjp, or a callback with no rule, has reverse mode at most."""
    t, x = jnp.zeros(()), jnp.zeros((dim,))
    slope = lambda t, x: jax.jvp(surrogate, (t, x), (t, x))[1]
    try:
        jax.eval_shape(lambda t, x: jax.jvp(slope, (t, x), (t, x)), t, x)
    except (TypeError, ValueError, NotImplementedError):
        return False
    return True
