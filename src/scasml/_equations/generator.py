"""The generator of the paths, applied to a surrogate: u, z = sigma^T grad u and u_t + L u.

`Generator` takes an equation and a surrogate, and returns these three at a point (t, x).
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PRNGKeyArray

from .._support.errors import ArgumentError, whole
from .._support.tracing import abstract_point, cached_by_structure
from ..paths import AbstractDynamics
from ..paths.coefficients import Coefficient, columns, diffuse_transposed
from .base import AbstractEquation
from .ito import apply_ito
from .ito_process import Ito, diagonal_noise
from .surrogate import AbstractSurrogate, ClosedForm, Layered

# The number of columns of sigma along which the route "hessian" differentiates at once.
_HESSIAN_BATCH = 16


class Hutchinson(eqx.Module):
    """An option: estimate Tr(sigma sigma^T Hess u) from `dims` of the d columns of sigma.

    The columns are drawn without replacement, and the estimate is unbiased. The simulation stays
    unbiased, because the residual enters it linearly. The option saves more memory than time.
    Raises ArgumentError or ArgumentTypeError if `dims` is not an integer of at least 1.
    """

    dims: int = eqx.field(static=True)

    def __init__(self, dims: int):
        self.dims = whole("dims", dims, 1, "pass how many coordinates to draw")


class Generator(eqx.Module):
    """A function (t, x, key) -> u, z = sigma^T grad u and u_t + L u of one surrogate.

    `route` says how the three are computed:

        "ito"       by Ito's formula.
        "closed"    from the derivatives of a `ClosedForm`, if sigma is a scalar or diagonal.
        "hessian"   by reverse mode, for functions without forward mode.

    Ito's formula is applied to the process u(t, X), which has the value u, the noise z and the
    drift

        u_t + L u = u_t + <mu, grad u> + 1/2 Tr(sigma sigma^T Hess u).

    One forward pass computes all three and forms no Hessian. The method is the forward Laplacian,
    with the time derivative and the drift of X in the same pass.

    The head of a `Layered` surrogate, u(t, x) = head(t, W x), is differentiated along the columns
    of W sigma. For a constant sigma, min(d, width) directions suffice: if (W sigma)^T = Q R, then
    W sigma sigma^T W^T = R^T R. So the head is differentiated along the rows of R, and Q times
    these derivatives is z.

    When u_t + L u is differentiated in W (training), Q counts as a constant, and R is
    Q^T (W sigma)^T. The derivative of R^T R, and so of u_t + L u, is exact all the same, and no
    factorisation is differentiated. The derivative of z, as Q times the derivatives along the rows
    of R, is not exact, so z is computed by reverse mode.
    """

    surrogate: AbstractSurrogate
    dynamics: AbstractDynamics
    dim: int = eqx.field(static=True)
    hutchinson: Hutchinson | None  # not used by a closed form
    # For a constant sigma and a Layered surrogate: R and Q, or R and None while W is trained, or
    # (W sigma)^T and None if all d directions are used. Otherwise None.
    constant_directions: tuple[Coefficient, Coefficient | None] | None
    # Whether z is computed by reverse mode, because the directions of Ito's formula do not
    # determine it.
    separate_gradient: bool = eqx.field(static=True)
    route: str = eqx.field(static=True)

    def __init__(
        self,
        equation: AbstractEquation,
        surrogate: AbstractSurrogate,
        hutchinson: Hutchinson | None = None,
    ):
        if hutchinson is not None and hutchinson.dims > equation.dim:
            raise ArgumentError(
                f"hutchinson: Hutchinson draws {hutchinson.dims} of only {equation.dim} "
                f"coordinates: pass dims of at most {equation.dim}."
            )
        self.surrogate = surrogate
        self.dynamics, self.dim = equation.dynamics, equation.dim
        self.hutchinson = hutchinson
        self.constant_directions = None
        self.separate_gradient = hutchinson is not None
        form, sigma = surrogate.form, equation.dynamics.constant_diffusion
        if sigma is not None and isinstance(form, Layered):
            self.constant_directions, determines_z = _constant_directions(
                sigma, form.weight, equation.dim, hutchinson is None
            )
            self.separate_gradient |= not determines_z
        if isinstance(form, ClosedForm) and _is_diagonal(equation):
            self.route = "closed"
        else:
            self.route = "ito" if has_forward_mode(surrogate, equation.dim) else "hessian"

    def __call__(self, t: Array, x: Array, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        """Return u, z and u_t + L u, of shapes (), (d,) and (), at a point x of shape (d,).

        `key` is used only with `hutchinson`.
        """
        form = self.surrogate.form
        if self.route == "hessian":
            return self._by_hessian(t, x, key)
        if self.route == "closed":
            assert isinstance(form, ClosedForm)
            return self._by_closed_form(form, t, x)
        drawn = None if self.hutchinson is None else self._draw_columns(key)
        u, z, parabolic = (
            self._by_layers(form, t, x, drawn)
            if isinstance(form, Layered)
            else apply_ito(self.surrogate, _clock(t), self._state(t, x, drawn))
        )
        if self.separate_gradient:
            z = diffuse_transposed(
                self.dynamics.diffusion(t, x), jax.grad(self.surrogate, argnums=1)(t, x)
            )
        return u, z, parabolic

    def _by_layers(
        self, form: Layered, t: Array, x: Array, drawn: Array | None
    ) -> tuple[Array, Array, Array]:
        """Apply Ito's formula to the head at the process W X, and to the offset at X.

        `drawn` holds the indices of the columns of sigma that are used, or is None for all.
        """
        noise, rotation = self._layer_directions(form.weight, t, x)
        h = form.weight @ x
        noise = self._select_columns(noise, drawn).astype(h.dtype)
        u, z, parabolic = apply_ito(
            form.head, _clock(t), Ito(h, noise, form.weight @ self.dynamics.drift(t, x))
        )
        z = z if rotation is None else rotation @ z
        if form.offset is not None:
            u_offset, z_offset, parabolic_offset = apply_ito(
                form.offset, _clock(t), self._state(t, x, drawn)
            )
            u, parabolic = u + u_offset, parabolic + parabolic_offset
            z = z if self.separate_gradient else z + z_offset
        return u, z, parabolic

    def _by_closed_form(self, form: ClosedForm, t: Array, x: Array) -> tuple[Array, Array, Array]:
        """Combine the derivatives that the surrogate returns, for a scalar or diagonal sigma."""
        u, u_t, gradient, curvature = form.derivatives(t, x)
        sigma = jnp.broadcast_to(self.dynamics.diffusion(t, x), x.shape)
        parabolic = u_t + self.dynamics.drift(t, x) @ gradient + 0.5 * jnp.sum(sigma**2 * curvature)
        z = sigma * gradient
        if form.offset is not None:
            offset = apply_ito(form.offset, _clock(t), self._state(t, x, None))
            u, z, parabolic = u + offset[0], z + offset[1], parabolic + offset[2]
        return u, z, parabolic

    def _by_hessian(self, t: Array, x: Array, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        """Use reverse mode only, with second derivatives along the columns of sigma."""
        value, (time_derivative, gradient) = jax.value_and_grad(self.surrogate, argnums=(0, 1))(
            t, x
        )
        sigma = self.dynamics.diffusion(t, x)
        directions, scale = columns(sigma, self.dim), 1.0
        if self.hutchinson is not None:
            directions = directions[self._draw_columns(key)]
            scale = self.dim / self.hutchinson.dims

        def curvature(column: Array) -> Array:
            slope = lambda y: column @ jax.grad(self.surrogate, argnums=1)(t, y)
            return column @ jax.grad(slope)(x)

        batch_size = min(_HESSIAN_BATCH, len(directions))
        trace = scale * jnp.sum(jax.lax.map(curvature, directions, batch_size=batch_size))
        drift = self.dynamics.drift(t, x) @ gradient
        return value, diffuse_transposed(sigma, gradient), time_derivative + drift + 0.5 * trace

    def _state(self, t: Array, x: Array, drawn: Array | None) -> Ito:
        """Return the process X at (t, x), whose noise is the columns of sigma or the drawn ones."""
        sigma = jnp.asarray(self.dynamics.diffusion(t, x), x.dtype)
        if drawn is None and sigma.ndim < 2:
            noise: Any = diagonal_noise(jnp.broadcast_to(sigma, x.shape))
        else:
            noise = self._select_columns(columns(sigma, self.dim), drawn)
        return Ito(x, noise, self.dynamics.drift(t, x))

    def _layer_directions(self, weight: Array, t: Array, x: Array) -> tuple[Array, Array | None]:
        """Return the noise of W X, and the matrix that turns the noise of u into z.

        The noise has shape (n, width) and the matrix (d, n), for n directions. The matrix is None
        if the noise of u is z, or if it does not determine z; `separate_gradient` distinguishes the
        two cases.
        """
        if self.constant_directions is not None:
            directions, rotation = self.constant_directions
            return jnp.asarray(directions, x.dtype), None if rotation is None else jnp.asarray(
                rotation, x.dtype
            )
        sigma, transposed = self.dynamics.diffusion(t, x), weight.astype(x.dtype).T
        return (
            sigma.T @ transposed
            if sigma.ndim == 2
            else jnp.broadcast_to(sigma, x.shape)[:, None] * transposed
        ), None

    def _select_columns(self, noise: Array, drawn: Array | None) -> Array:
        """Return the drawn rows of a noise, scaled so that the trace is unbiased.

        If `drawn` is None, the noise is returned as it is.
        """
        if drawn is None:
            return noise
        assert self.hutchinson is not None
        return noise[drawn] * np.sqrt(self.dim / self.hutchinson.dims)

    def _draw_columns(self, key: PRNGKeyArray) -> Array:
        """Return the indices of the columns of sigma that `hutchinson` uses."""
        assert self.hutchinson is not None
        return jax.random.permutation(key, self.dim)[: self.hutchinson.dims]


def _clock(t: Array) -> Ito:
    """Return time as an Ito process: no noise, and drift 1."""
    return Ito(t, None, jnp.ones_like(t))


def _is_diagonal(equation: AbstractEquation) -> bool:
    """Whether sigma(t, x) is a scalar or the diagonal of a matrix."""
    diffusion = lambda t, x: jnp.asarray(equation.dynamics.diffusion(t, x))
    return jax.eval_shape(diffusion, *abstract_point(equation.dim)).ndim < 2


def _constant_directions(
    sigma: Any, weight: Array, dim: int, reduce: bool
) -> tuple[tuple[Coefficient, Coefficient | None], bool]:
    """Return the directions of W X for a constant sigma, and whether they determine z.

    The first result is a pair (directions, rotation). `directions`, (n, width), has the rows along
    which the head is differentiated: n = min(d, width) if `reduce` is true, otherwise n = d.
    `rotation`, (d, n), turns these derivatives into z. It is None if the derivatives are z, or if
    they do not determine z; the second result distinguishes the two cases.
    """
    # While a network is trained, its weights W are traced.
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
def has_forward_mode(surrogate: AbstractSurrogate, dim: int) -> bool:
    """Whether a jvp of a jvp exists. A custom_vjp and a callback have no forward mode."""
    slope = lambda t, x: jax.jvp(surrogate, (t, x), (t, x))[1]
    try:
        jax.eval_shape(lambda t, x: jax.jvp(slope, (t, x), (t, x)), *abstract_point(dim))
    except (TypeError, ValueError, NotImplementedError):
        return False
    return True
