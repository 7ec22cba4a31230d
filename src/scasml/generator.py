"""The residual engine: value, z = sigma^T grad u and u_t + L u of a surrogate in one forward pass.

If Y is an Ito process, dY = b dt + sum_k S_k dW^k, then so is f(Y), and Ito's formula says which:

    b'   = f'(Y)[b] + 1/2 sum_k f''(Y)[S_k, S_k]
    S'_k = f'(Y)[S_k]

Push (t, X) through u one primitive at a time by that rule and out come u, z = S' and
u_t + <mu, grad u> + 1/2 Tr(sigma sigma^T Hess u) = b'. This is the forward Laplacian with the time
derivative and the drift carried along in the same slot. No Hessian is formed and nothing is
approximate: a primitive without a rule of its own gets the formula above by two nested jvp's.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun
from jaxtyping import Array, PRNGKeyArray

from .coefficients import Coefficient, columns, diffuse_transposed
from .errors import whole
from .paths import AbstractDynamics
from .problem import AbstractLaw
from .structure import once_per_structure
from .surrogate.base import AbstractSurrogate


class Ito(NamedTuple):
    """A value moving as dY = drift dt + sum_k noise[k] dW^k."""

    value: Array
    noise: Array
    drift: Array


class Hutchinson(eqx.Module):
    """Estimate the trace from `dims` of the d columns of sigma, drawn without replacement.

    Unbiased, because the residual enters the simulation linearly. It buys memory more than time:
    the exact trace through a first layer of 50 units costs about as much as 25 random coordinates.
    """

    dims: int = eqx.field(static=True)

    def __init__(self, dims: int):
        self.dims = whole("dims", dims, 1, "pass how many coordinates to draw")


# Linear in all operands that carry noise, taken together.
_LINEAR = frozenset(
    [
        "add",
        "add_any",
        "sub",
        "neg",
        "reshape",
        "transpose",
        "broadcast_in_dim",
        "squeeze",
        "expand_dims",
        "concatenate",
        "slice",
        "rev",
        "reduce_sum",
        "convert_element_type",
        "copy",
        "cumsum",
        "real",
        "symbolic_zeros",
        "pad",
        "reduce_precision",
    ]
)
# Linear in one operand when the other carries no noise; `None` means in either.
_LINEAR_IN_ONE: dict[str, int | None] = {
    "mul": None,
    "dot_general": None,
    "conv_general_dilated": None,
    "div": 0,
    "dynamic_slice": 0,
    "gather": 0,
}
# Acts on each entry by itself.
_ELEMENTWISE = frozenset(
    [
        "tanh",
        "exp",
        "exp2",
        "log",
        "log1p",
        "expm1",
        "logistic",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "asinh",
        "acosh",
        "sqrt",
        "rsqrt",
        "cbrt",
        "erf",
        "erfc",
        "integer_pow",
        "square",
    ]
)
_CALLS = frozenset({"jit", "pjit", "remat", "remat2", "checkpoint"})


def ito(function: Callable[..., Array], *inputs: Ito) -> Ito:
    """Ito's formula for `function` of one point, applied primitive by primitive."""
    closed = jax.make_jaxpr(function)(*(i.value for i in inputs))
    (out,) = _interpret(closed.jaxpr, closed.consts, list(inputs))
    if isinstance(out, Ito):
        return out
    directions = inputs[0].noise.shape[0]
    return Ito(out, jnp.zeros((directions, *jnp.shape(out)), jnp.result_type(out)), jnp.zeros_like(out))


def _interpret(jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
    env: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, inputs, strict=True))
    for equation in jaxpr.eqns:
        env.update(zip(equation.outvars, _apply(equation, env, jaxpr), strict=True))
    return [_value(v, env) for v in jaxpr.outvars]


def _value(variable: Any, env: dict[Any, Any]) -> Any:
    return variable.val if isinstance(variable, Literal) else env[variable]


def _apply(equation: Any, env: dict[Any, Any], jaxpr: Any) -> list[Any]:
    name = equation.primitive.name
    operands = [v for v in equation.invars if not isinstance(v, Literal)]
    moving = [i for i, v in enumerate(equation.invars) if not isinstance(v, Literal) and isinstance(env[v], Ito)]
    if moving and name in _CALLS:
        inner = equation.params["jaxpr"]
        jaxpr, consts = (inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, ())
        return _interpret(jaxpr, consts, [_value(v, env) for v in equation.invars])

    # The equation as a function of its distinct variables: an operand may stand in it twice, as in x * x.
    variables = list(dict.fromkeys(operands))
    alone = jaxpr.replace(
        constvars=[], invars=variables, outvars=equation.outvars, eqns=[equation], effects=equation.effects
    )
    function = jaxpr_as_fun(ClosedJaxpr(alone, ()))
    if not moving:
        return list(function(*(env[v] for v in variables)))
    movers = [v for v in variables if isinstance(env[v], Ito)]
    smooth = [jnp.issubdtype(v.aval.dtype, jnp.inexact) for v in equation.outvars]

    def of_movers(*values: Array) -> list[Array]:
        at = dict(zip(movers, values, strict=True))
        return list(function(*(at[v] if v in at else env[v] for v in variables)))

    def smooth_part(*values: Array) -> list[Array]:
        return [out for out, keep in zip(of_movers(*values), smooth, strict=True) if keep]

    value, noise, drift = (tuple(part) for part in zip(*(env[v] for v in movers), strict=True))
    if name == "dot_general" and moving == [1] and _is_matrix_vector(equation):
        weight = _value(equation.invars[0], env)
        return [_matrix_vector(weight, equation.params, *(part[0] for part in (value, noise, drift)))]
    if name in _LINEAR or (name in _LINEAR_IN_ONE and len(moving) == 1 and _LINEAR_IN_ONE[name] in (None, moving[0])):
        outs = _first_order(smooth_part, value, noise, drift)
    elif name in _ELEMENTWISE:
        outs = [_elementwise(lambda v: smooth_part(v)[0], value[0], noise[0], drift[0])]
    else:
        outs = _second_order(smooth_part, value, noise, drift)
    if all(smooth):
        return outs
    # Integers and booleans do not move.
    still, carried = of_movers(*value), iter(outs)
    return [next(carried) if keep else out for out, keep in zip(still, smooth, strict=True)]


def _is_matrix_vector(equation: Any) -> bool:
    ((axes, _), batch), (matrix, vector) = equation.params["dimension_numbers"], (v.aval for v in equation.invars)
    one_dtype = matrix.dtype == vector.dtype == equation.outvars[0].aval.dtype
    return len(axes) == 1 and batch == ((), ()) and matrix.ndim == 2 and vector.ndim == 1 and one_dtype


def _matrix_vector(matrix: Array, params: dict[str, Any], *parts: Array) -> Ito:
    """W y for a layer's weights W, with the y's on the left of the product: thousands of them go
    through one W, and XLA then needs no transpose between layers. Half of the whole cost."""
    ((axis,), _), _ = params["dimension_numbers"]
    transposed = matrix.T if axis == 1 else matrix
    product = lambda y: jnp.matmul(y, transposed, precision=params["precision"])
    return Ito(*map(product, parts))


Arrays = tuple[Array, ...]


def _first_order(f: Callable[..., list[Array]], value: Arrays, noise: Arrays, drift: Arrays) -> list[Ito]:
    out, moved = jax.jvp(f, value, drift)
    spread = jax.vmap(lambda *s: jax.jvp(f, value, s)[1])(*noise)
    return [Ito(*parts) for parts in zip(out, spread, moved, strict=True)]


def _elementwise(f: Callable[[Array], Array], value: Array, noise: Array, drift: Array) -> Ito:
    one = jnp.ones_like(value)
    (out, d1), (_, d2) = jax.jvp(lambda v: jax.jvp(f, (v,), (one,)), (value,), (one,))
    return Ito(out, d1[None] * noise, d1 * drift + 0.5 * d2 * jnp.sum(noise * noise, 0))


def _second_order(f: Callable[..., list[Array]], value: Arrays, noise: Arrays, drift: Arrays) -> list[Ito]:
    out, moved = jax.jvp(f, value, drift)

    def along(*s: Array) -> tuple[list[Array], list[Array]]:
        return jax.jvp(lambda *v: jax.jvp(f, v, s)[1], value, s)

    spread, curved = jax.vmap(along)(*noise)
    return [Ito(o, s, m + 0.5 * jnp.sum(c, 0)) for o, s, m, c in zip(out, spread, moved, curved, strict=True)]


class Generator(eqx.Module):
    """(t, x) -> u, z = sigma^T grad u and u_t + <mu, grad u> + 1/2 Tr(sigma sigma^T Hess u).

    A surrogate that exposes a linear first layer, u(t, x) = head(t, W x), is differentiated along the
    columns of W sigma. For a constant sigma min(d, width) directions do:
    (W sigma)^T = Q R gives W sigma sigma^T W^T = R^T R, exactly. While W is trained, Q is held and R = Q^T (W sigma)^T:
    so is the derivative of R^T R, and no factorisation is differentiated.
    """

    surrogate: AbstractSurrogate
    dynamics: AbstractDynamics
    dim: int = eqx.field(static=True)
    hutchinson: Hutchinson | None
    fixed: tuple[Coefficient, Coefficient | None] | None  # R and Q, or W sigma and None; of a constant sigma
    gradient_apart: bool = eqx.field(static=True)  # whether z takes a pass of its own
    route: str = eqx.field(static=True)

    def __init__(self, law: AbstractLaw, surrogate: AbstractSurrogate, hutchinson: Hutchinson | None = None):
        self.surrogate = surrogate
        self.dynamics, self.dim = law.dynamics, law.dim
        self.hutchinson = hutchinson
        self.fixed = None
        self.gradient_apart = hutchinson is not None
        if (sigma := law.dynamics.constant_diffusion) is not None:
            self.fixed, spans = _fixed_directions(sigma, surrogate, law.dim, hutchinson is None)
            self.gradient_apart |= not spans
        self.route = "ito" if _has_forward_mode(surrogate, law.dim) else "hessian"

    def __call__(self, t: Array, x: Array, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        if self.route == "hessian":
            return self._by_hessian(t, x, key)
        noise, rotation = self._directions(t, x)
        drawn = None if self.hutchinson is None else self._drawn(key)
        out = self._by_ito(t, x, self._thinned(noise, drawn))
        z = out.noise if rotation is None else rotation @ out.noise
        if self.surrogate.first_layer is not None and (offset := self.surrogate.offset) is not None:
            noise = self._thinned(columns(self.dynamics.diffusion(t, x), self.dim), drawn)
            rest = ito(offset, _clock(t, noise), Ito(x, noise, self.dynamics.drift(t, x)))
            out = Ito(out.value + rest.value, out.noise, out.drift + rest.drift)
            z = z if self.gradient_apart else z + rest.noise
        if self.gradient_apart:
            z = diffuse_transposed(self.dynamics.diffusion(t, x), jax.grad(self.surrogate, argnums=1)(t, x))
        return out.value, z, out.drift

    def _thinned(self, noise: Array, drawn: Array | None) -> Array:
        """Those columns that were drawn, and larger by what the others are worth."""
        if drawn is None:
            return noise
        assert self.hutchinson is not None
        return noise[drawn] * np.sqrt(self.dim / self.hutchinson.dims)

    def _directions(self, t: Array, x: Array) -> tuple[Array, Array | None]:
        """The columns of sigma as rows, seen through the first layer if there is one; or as many as span them, and Q."""
        if self.fixed is not None:
            directions, rotation = self.fixed
            return jnp.asarray(directions, x.dtype), None if rotation is None else jnp.asarray(rotation, x.dtype)
        sigma, weight = self.dynamics.diffusion(t, x), self.surrogate.first_layer
        if weight is None:
            return columns(sigma, self.dim), None
        weight = weight.astype(x.dtype).T
        return (sigma.T @ weight if sigma.ndim == 2 else jnp.broadcast_to(sigma, x.shape)[:, None] * weight), None

    def _drawn(self, key: PRNGKeyArray) -> Array:
        assert self.hutchinson is not None
        return jax.random.permutation(key, self.dim)[: self.hutchinson.dims]

    def _by_ito(self, t: Array, x: Array, noise: Array) -> Ito:
        drift = self.dynamics.drift(t, x)
        weight = self.surrogate.first_layer
        if weight is None:
            return ito(self.surrogate, _clock(t, noise), Ito(x, noise, drift))
        h = weight @ x
        return ito(self.surrogate.head, _clock(t, noise), Ito(h, noise.astype(h.dtype), weight @ drift))

    def _by_hessian(self, t: Array, x: Array, key: PRNGKeyArray) -> tuple[Array, Array, Array]:
        """Second derivatives along the columns of sigma by reverse mode alone, for what forward mode cannot follow."""
        value, (time_derivative, gradient) = jax.value_and_grad(self.surrogate, argnums=(0, 1))(t, x)
        sigma = self.dynamics.diffusion(t, x)
        directions, scale = columns(sigma, self.dim), 1.0
        if self.hutchinson is not None:
            directions, scale = directions[self._drawn(key)], self.dim / self.hutchinson.dims

        def curvature(column: Array) -> Array:
            slope = lambda y: column @ jax.grad(self.surrogate, argnums=1)(t, y)
            return column @ jax.grad(slope)(x)

        trace = scale * jnp.sum(jax.lax.map(curvature, directions, batch_size=min(16, len(directions))))
        drift = self.dynamics.drift(t, x) @ gradient
        return value, diffuse_transposed(sigma, gradient), time_derivative + drift + 0.5 * trace


def _clock(t: Array, noise: Array) -> Ito:
    return Ito(t, jnp.zeros((noise.shape[0],), t.dtype), jnp.ones_like(t))


def _fixed_directions(
    sigma: Any, surrogate: AbstractSurrogate, dim: int, reduce: bool
) -> tuple[tuple[Coefficient, Coefficient | None], bool]:
    """The rows to differentiate along, and the rotation that makes z of their derivatives, None if they are z; and whether they do."""
    weight = surrogate.first_layer
    is_trained = isinstance(weight, Tracer)
    if not is_trained:
        sigma = np.asarray(sigma, np.float64)
    directions = (sigma if np.ndim(sigma) == 2 else np.diag(np.broadcast_to(sigma, (dim,)))).T
    if weight is None:
        return (directions, None), True
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


@once_per_structure
def _has_forward_mode(surrogate: AbstractSurrogate, dim: int) -> bool:
    """Whether jvp of jvp can be taken; a custom_vjp, or a callback with no rule, has reverse mode at most."""
    t, x = jnp.zeros(()), jnp.zeros((dim,))
    slope = lambda t, x: jax.jvp(surrogate, (t, x), (t, x))[1]
    try:
        jax.eval_shape(lambda t, x: jax.jvp(slope, (t, x), (t, x)), t, x)
    except (TypeError, ValueError, NotImplementedError):
        return False
    return True
