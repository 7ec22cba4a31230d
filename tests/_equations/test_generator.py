"""The generator against derivatives by reverse mode: u, z = sigma^T grad u and u_t + L u.

The oracle uses jax.grad and jacrev(jacrev). It has no forward mode, and no code in common with the
generator. A function that reverse mode cannot follow (while_loop) has a twin without the loop. The
strict settings of conftest hold. A generator that violated them would take the slow route without
an error, so `route` is checked everywhere.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import SIGMAS
from scasml._equations.generator import Generator, Hutchinson
from scasml._support.jaxprs import inner_jaxprs
from scasml.surrogates import wrap
from scasml.surrogates.adapters.functions import Function

pytestmark = pytest.mark.usefixtures("x64")

DIM = 4
MU = np.linspace(-0.6, 0.5, DIM)
FULL = np.array(
    [[0.7, 0.1, 0.0, 0.2], [0.0, 0.6, -0.2, 0.1], [0.1, 0.0, 0.8, -0.3], [0.3, 0.2, 0.0, 0.5]]
)
SIGMA = {"scalar": 0.7, "diagonal": np.linspace(0.5, 1.1, DIM), "full": FULL}
T, X = np.float64(0.3), np.array([0.4, -0.7, 0.2, 1.1])
KEY = jax.random.key(0)


def _accepted(options):
    """Return the compiler options, or no options if this version of XLA does not know them."""
    try:
        jax.jit(lambda x: x + 1, compiler_options=options)(1.0)
    except jax.errors.JaxRuntimeError:
        return {}
    return options


# Every program here runs once, so it is compiled with little optimisation, which is faster.
QUICK = {
    **_accepted({"xla_backend_optimization_level": 0}),
    **_accepted({"xla_cpu_use_fusion_emitters": False}),
}


def jit(function):
    return jax.jit(function, compiler_options=QUICK)


def equation(diffusion=FULL, drift=MU, dim=DIM):
    return scasml.Problem(dim=dim, horizon=1.0, drift=drift, diffusion=diffusion, terminal=jnp.sum)


def by_definition(problem, u):
    """Return a function that computes u, z and u_t + L u with a full Hessian, by reverse mode."""
    sigma = np.asarray(problem.dynamics.sigma)
    matrix = sigma if sigma.ndim == 2 else np.diag(np.broadcast_to(sigma, (problem.dim,)))
    mu = np.broadcast_to(problem.dynamics.mu, (problem.dim,))

    def at(t, x):
        value, (rate, gradient) = jax.value_and_grad(u, (0, 1))(t, x)
        hessian = jax.jacrev(jax.jacrev(u, 1), 1)(t, x)
        return (
            value,
            matrix.T @ gradient,
            rate + mu @ gradient + 0.5 * jnp.trace(matrix @ matrix.T @ hessian),
        )

    return at


def check(problem, model, route="ito", twin=None, t=T, x=X, **options):
    """Compare the generator and the oracle; `twin` is the same function, for the oracle."""
    surrogate = model if isinstance(model, Function) else wrap(model, problem, **options)
    generator = Generator(problem, surrogate)
    assert generator.route == route
    oracle = by_definition(problem, surrogate if twin is None else twin)
    got, want = jit(lambda t, x: (generator(t, x, KEY), oracle(t, x)))(t, x)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == np.float64
        np.testing.assert_allclose(g, w, rtol=1e-11, atol=1e-12)
    return generator


class TestNetworks:
    @pytest.mark.parametrize(
        ("inputs", "sigma"), [("tx", "scalar"), ("xt", "diagonal"), ("tx", "full"), ("xt", "full")]
    )
    def test_shapes_of_sigma_and_orders_of_inputs(self, inputs, sigma):
        network = eqx.nn.MLP(DIM + 1, 1, 6, 2, jnp.tanh, key=jax.random.key(1))
        check(equation(SIGMA[sigma]), network, inputs=inputs)

    @pytest.mark.parametrize(
        ("width", "activation"), [(2, jax.nn.gelu), (6, jax.nn.softplus), (2, jax.nn.silu)]
    )
    def test_first_layer(self, width, activation):
        """min(d, width) directions are followed, for a width below d and for one above."""
        network = eqx.nn.MLP(DIM + 1, "scalar", width, 2, activation, key=jax.random.key(2))
        generator = check(equation(), network, inputs="tx")
        assert generator.constant_directions[0].shape[0] == min(DIM, width)

    @pytest.mark.parametrize(
        "options",
        [
            {"depth": 3, "scan": True},
            {"depth": 0},
            {"depth": 1, "use_bias": False, "final_activation": jnp.tanh},
        ],
        ids=["scan", "one layer", "no bias"],
    )
    def test_options_of_networks(self, options):
        network = eqx.nn.MLP(DIM + 1, 1, 3, activation=jnp.tanh, key=jax.random.key(3), **options)
        generator = check(equation(), network, inputs="xt")
        assert generator.constant_directions[0].shape[0] == (3 if network.depth else 1)

    def test_sequential(self):
        keys = jax.random.split(jax.random.key(4), 2)
        layers = [
            eqx.nn.Linear(DIM + 1, 3, key=keys[0]),
            eqx.nn.LayerNorm(3),
            eqx.nn.Lambda(jnp.sin),
            eqx.nn.Linear(3, 1, key=keys[1]),
        ]
        assert (
            check(equation(), eqx.nn.Sequential(layers), inputs="tx")
            .constant_directions[0]
            .shape[0]
            == 3
        )
        behind = eqx.nn.Sequential([eqx.nn.Lambda(jnp.sin), *layers])
        assert check(equation(), behind, inputs="xt").constant_directions is None

    def test_residual(self):
        class Residual(eqx.Module):
            """x is normalised and t enters every block, so there is no linear first layer."""

            enter: eqx.nn.Linear
            blocks: list[eqx.nn.Linear]

            def __call__(self, t, x):
                h = self.enter(x / (1 + jnp.linalg.norm(x)))
                for block in self.blocks:
                    h = h + jnp.tanh(block(h) + t)
                return h @ h

        keys = jax.random.split(jax.random.key(5), 3)
        model = Residual(
            eqx.nn.Linear(DIM, 3, key=keys[0]), [eqx.nn.Linear(3, 3, key=k) for k in keys[1:]]
        )
        check(equation(), model)

    def test_convolution(self):
        layer = eqx.nn.Conv1d(1, 2, 3, key=jax.random.key(6))
        weight = np.asarray(layer.weight)
        convolved = lambda x: jax.lax.conv_general_dilated(
            x[None, None], jnp.asarray(weight, x.dtype), (1,), "VALID"
        )
        check(equation(), lambda t, x: jnp.sum(jnp.tanh(convolved(x)) ** 2) * t)

    def test_folx_agrees(self):
        """The forward Laplacian of folx is L u for sigma = sqrt 2 and no drift."""
        folx = pytest.importorskip("folx")
        problem = equation(np.sqrt(2.0), 0.0)
        network = eqx.nn.MLP(DIM + 1, "scalar", 6, 2, jnp.tanh, key=jax.random.key(7))
        surrogate = wrap(network, problem, inputs="tx")
        generator = Generator(problem, surrogate)
        u, z, parabolic = jit(lambda t, x: generator(t, x, KEY))(T, X)
        with jax.numpy_rank_promotion("allow"):
            other = folx.forward_laplacian(
                lambda x: network(jnp.concatenate([jnp.asarray(T)[None], x]))
            )(jnp.asarray(X))
        rate = jax.grad(lambda t: network(jnp.concatenate([t[None], X])))(jnp.asarray(T))
        np.testing.assert_allclose(u, other.x, rtol=1e-12)
        np.testing.assert_allclose(z, np.sqrt(2.0) * other.dense_jacobian, rtol=1e-11)
        np.testing.assert_allclose(parabolic, rate + other.laplacian, rtol=1e-11)


MATRIX = np.arange(12.0).reshape(DIM, 3) / 10 - 0.4


def elementwise(t, x):
    """All elementwise functions that have a rule, inside their domains."""
    y = 0.4 * jnp.sin(x) + 0.1 * t
    plus = 1.5 + y
    anywhere = [
        jnp.tanh,
        jnp.exp,
        jnp.exp2,
        jnp.expm1,
        jax.nn.sigmoid,
        jnp.sin,
        jnp.cos,
        jnp.tan,
        jnp.sinh,
        jnp.cosh,
        jnp.asinh,
    ]
    inside = [
        jnp.arcsin,
        jnp.arccos,
        jnp.arctan,
        jnp.atanh,
        jax.lax.erf,
        jax.lax.erfc,
        jnp.square,
        lambda y: y**5,
        lambda y: y**-3,
    ]
    positive = [
        jnp.log,
        jnp.log1p,
        jnp.sqrt,
        jax.lax.rsqrt,
        jnp.cbrt,
        jnp.arccosh,
        lambda y: y**2.3,
        lambda y: 2.0**y,
        jax.lax.lgamma,
    ]
    parts = [jnp.sum(f(y)) for f in anywhere + inside] + [jnp.sum(f(plus)) for f in positive]
    return sum(
        weight * part for weight, part in zip(np.linspace(0.3, 1.1, len(parts)), parts, strict=True)
    )


def shapes(t, x):
    """Primitives that only rearrange numbers."""
    y = jnp.concatenate([x[::-1], jnp.pad(x[1:3], 1, constant_values=0.5), t[None]])
    y = jnp.stack([y, y[::-1]]).T.reshape(-1)
    y = jnp.cumsum(y)[2:-1:2]
    picked = jax.lax.dynamic_slice(y, (jnp.asarray(1),), (3,))
    return (
        jnp.sum(jnp.where(y > 0.3, y**2, jnp.sin(y)))
        + jnp.prod(picked)
        + jnp.max(y) * y[jnp.array([0, 3])] @ picked[:2]
    )


def integers(t, x):
    """Primitives with integer or boolean outputs, with and without floating-point outputs."""
    order = jnp.argsort(x)
    largest, where = jax.lax.top_k(x * t, 2)
    steps = jnp.round(3 * x).astype(int) + (2 * x).astype(int)
    return (
        x[order] @ jnp.arange(4.0) ** 2 * t
        + largest @ largest
        + jnp.sum(jnp.cos(x[where]))
        + jnp.sum(steps * x**2)
        + x[jnp.argmax(x)] ** 3
    )


def loops(t, x):
    """A loop with a fixed number of steps and a scan; their carries depend on the input."""
    y = jax.lax.fori_loop(0, 3, lambda i, y: jnp.sin(y + i * t) + 0.1 * x, x)
    carry, ys = jax.lax.scan(lambda c, a: (jnp.tanh(c * a + t), c**2), x[0], x)
    return y @ x + carry + jnp.sum(ys)


def branches(t, x):
    y = jax.lax.cond(x[0] > 0, lambda x: jnp.sin(x) * t, lambda x: x**2, x)
    z = jax.lax.switch(jnp.argmin(x), [jnp.cos, jnp.tanh, jnp.exp, jnp.square], x)
    return jnp.sum(y * z)


def nested(t, x):
    """jit, jax.checkpoint and a custom_jvp, nested in each other."""
    inner = jax.jit(lambda y: jnp.sum(jnp.sin(y) * y))
    outer = jax.checkpoint(lambda y, t: inner(y * t) + jnp.sum(jax.nn.silu(y)))
    return outer(x, t) ** 2 + jax.jit(lambda y, n: y**n, static_argnums=1)(inner(x), 3)


def solved(t, x):
    """A linear system and a determinant, of a matrix that depends on the input."""
    matrix = jnp.diag(2 + x**2) + 0.1 * jnp.outer(x, x) + t * np.eye(DIM)
    return x @ jnp.linalg.solve(matrix, jnp.sin(x)) + jnp.linalg.slogdet(matrix)[1]


def stopped(t, x):
    return jnp.sum(jax.lax.stop_gradient(x) * x**2) + t * jnp.clip(x, -0.5, 0.5) @ x


def places(t, x):
    """Functions of single coordinates, at several points at once, and sums over either axis."""
    points = np.linspace(-0.5, 0.7, 3 * DIM).reshape(3, DIM)
    at = jnp.sqrt(1 + t) * points + x[None]
    turned = jnp.squeeze(jnp.expand_dims(jnp.sin(at).T, 1), 1)
    chosen = jnp.where(turned > 0.2, turned * turned, jnp.maximum(turned, -t) / (2 + turned))
    sums = jnp.sum(chosen, 1) * x + jnp.sum(jnp.cos(at), 0)
    return (
        jnp.log1p(jnp.sum(at**2, 1)) @ np.arange(3.0)
        + sums @ sums
        + jnp.sum(chosen) * (points @ x)[0]
        + jnp.sum(jnp.tanh(at)) ** 2
    )


def chain(t, x):
    """Functions of neighbouring coordinates, for which the noise has several bands."""
    steps = x[1:] - x[:-1]
    bends = (steps[1:] - steps[:-1]) * jnp.sin(x[1:-1])
    energy = (
        jnp.sum(jnp.square(steps) + 0.3 * jnp.square(x[1:]) * t)
        + bends @ bends
        + bends @ (x[2:] * x[:-2])
    )
    return (
        jnp.log1p(energy) * jnp.sum(x[:, None] * x[None])
        + jnp.sum(x[::2] ** 3)
        + jnp.sum(MATRIX[:, 1:] @ steps[1:])
    )


FUNCTIONS = {
    "places": places,
    "chain": chain,
    "elementwise": elementwise,
    "shapes": shapes,
    "integers": integers,
    "loops": loops,
    "branches": branches,
    "nested": nested,
    "solved": solved,
    "stopped": stopped,
    "sort": lambda t, x: jnp.sort(x) @ jnp.arange(4.0) ** 2 * t + jnp.median(x) ** 2,
    "quotients": lambda t, x: (
        jnp.sum(1 / (2 + x)) + jnp.sum(x / 3) * t + jnp.sum(t / (1 + x**2)) + jnp.sum(x % 0.3)
    ),
    "where": lambda t, x: jnp.sum(jnp.where(x > t, x**3, jnp.cos(x) * t)),
    "logsumexp": lambda t, x: jax.nn.logsumexp(x * t) * jax.nn.softmax(x)[0],
    "norm": lambda t, x: jnp.linalg.norm(x - t) * jnp.linalg.norm(x, 1),
    "powers": lambda t, x: (
        jnp.sum(jnp.abs(x) ** 2.5) * (1 + t) ** 1.5 + jnp.sum((2 + x) ** x) + x[0] ** 4
    ),
    "an operand twice": lambda t, x: (
        jnp.sum(x * x * t) + jnp.dot(x, x) ** 2 + jnp.dot(x, x) / jnp.dot(x * x, x * x)
    ),
    "products": lambda t, x: (
        jnp.sum(jnp.tanh(x[None] @ MATRIX))
        + x @ (MATRIX @ MATRIX.T @ x) * t
        + jnp.sum(jnp.sin(MATRIX.T @ x))
    ),
    "batched products": lambda t, x: (
        jnp.sum(jnp.einsum("bij,bi->bj", np.stack([MATRIX, 2 * MATRIX]), jnp.stack([x, x**2])) ** 3)
        * t
    ),
    "outer products": lambda t, x: (
        jnp.sum(jnp.tensordot(MATRIX, jnp.sin(x), axes=0) ** 2)
        + jnp.einsum("i,j->ij", x, x)[0, 1] * t
    ),
    "t only": lambda t, x: jnp.sin(3 * t),
    "t itself": lambda t, x: t,
    "x only": lambda t, x: jnp.sum(jnp.sin(x)),
    "a constant": lambda t, x: 2.5,
    "a whole number": lambda t, x: jnp.sum(x > 0),
}


class TestFunctions:
    @pytest.mark.parametrize("sigma", ["full", "diagonal"])
    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_against_the_hessian(self, name, sigma):
        """With a full sigma the noise is dense from the start, with a diagonal one it is banded."""
        check(equation(SIGMA[sigma]), FUNCTIONS[name])

    def test_a_scalar_sigma(self):
        check(equation(SIGMA["scalar"], 0.3), FUNCTIONS["products"])

    @pytest.mark.parametrize("sigma", ["scalar", "full"])
    def test_one_dimension(self, sigma):
        """An axis of length 1 is either the axis of coordinates or one that is broadcast."""
        problem = equation(0.7 if sigma == "scalar" else np.array([[0.7]]), 0.3, dim=1)
        model = lambda t, x: (
            jnp.sum(jnp.broadcast_to(jnp.sin(x), (3,)) * np.arange(3.0) * t) + jnp.sum(x) ** 3
        )
        check(problem, model, x=np.array([0.4]))

    def test_while_loop(self):
        """The generator follows a while_loop, which reverse mode and therefore `wrap` cannot.

        The number of steps depends on the input. Here it is 2.
        """
        step = lambda y: 0.8 * jnp.sin(y)

        def looped(t, x):
            y, steps = jax.lax.while_loop(
                lambda s: s[0] @ s[0] > 1, lambda s: (step(s[0]), s[1] + 1), (3 * x, 0)
            )
            return jnp.sum(y**3) * t + steps

        assert step(3 * X) @ step(3 * X) > 1 > step(step(3 * X)) @ step(step(3 * X))
        check(
            equation(),
            Function(looped, "t, x"),
            twin=lambda t, x: jnp.sum(step(step(3 * x)) ** 3) * t + 2,
        )

    def test_outside_jit(self):
        """Without jit, the result equals the derivatives by hand."""
        problem, u = equation(), lambda t, x: jnp.dot(x, x) * t
        got = Generator(problem, wrap(u, problem))(jnp.asarray(T), jnp.asarray(X), KEY)
        np.testing.assert_allclose(got[1], 2 * T * FULL.T @ X, rtol=1e-12)
        np.testing.assert_allclose(got[2], X @ X + 2 * T * MU @ X + T * np.sum(FULL**2), rtol=1e-12)


@jax.custom_vjp
def reverse_only(x):
    return jnp.sum(jnp.sin(x) * x[::-1])


def _backward(x, cotangent):
    return (cotangent * (jnp.cos(x) * x[::-1] + jnp.sin(x[::-1])),)


# The forward rule calls the function itself, so that forward mode fails under grad too.
reverse_only.defvjp(lambda x: (reverse_only(x), x), _backward)


def reverse_only_model(t, x):
    return reverse_only(x) * jnp.cos(t) + t * jnp.sum(x**3)


def smooth_twin(t, x):
    return jnp.sum(jnp.sin(x) * x[::-1]) * jnp.cos(t) + t * jnp.sum(x**3)


class TestBandedNoise:
    def test_the_noise_stays_banded_up_to_the_sum(self):
        """At eight points in 50 dimensions, no array of the program has 50 x 50 numbers per point.

        The function consists of logarithms of sums, over neighbours too.
        """
        problem = equation(0.7, 0.1, dim=50)
        points = np.random.default_rng(0).normal(size=(8, 50))

        def model(t, x):
            at = x[None] + jnp.sqrt(t) * points
            return jnp.sum(jnp.log1p(jnp.sum(at**2, 1) + jnp.sum((at[:, 1:] - at[:, :-1]) ** 2, 1)))

        largest = lambda problem: max(
            v.aval.size
            for v in outputs(jax.make_jaxpr(generator_of(problem, model))(T, np.zeros(50)).jaxpr)
        )
        assert largest(problem) == 8 * 50
        assert largest(equation(0.7 * np.eye(50), 0.1, dim=50)) == 8 * 50 * 50


def generator_of(problem, model):
    """Return the generator of a model as a function of (t, x)."""
    generator = Generator(problem, wrap(model, problem))
    return lambda t, x: generator(t, x, KEY)


def outputs(jaxpr):
    """Yield the output variables of every equation, those of inner jaxprs included."""
    for equation in jaxpr.eqns:
        yield from equation.outvars
        for inner in inner_jaxprs(equation):
            yield from outputs(inner)


class TestReverseOnly:
    def test_forward_mode_fails(self):
        with pytest.raises(TypeError):
            jax.jacfwd(jax.grad(reverse_only))(X)

    @pytest.mark.parametrize("sigma", SIGMA)
    def test_by_hessian(self, sigma):
        check(equation(SIGMA[sigma]), reverse_only_model, route="hessian", twin=smooth_twin)

    def test_gradient(self):
        """Both routes have the same third derivatives, which pathwise gradients need."""
        problem = equation()
        slow, fast = (
            Generator(problem, wrap(u, problem)) for u in (reverse_only_model, smooth_twin)
        )
        assert (slow.route, fast.route) == ("hessian", "ito")
        slope = lambda generator, t, x: jax.grad(lambda x: generator(t, x, KEY)[2])(x)
        one, other = jit(lambda t, x: [slope(generator, t, x) for generator in (slow, fast)])(T, X)
        np.testing.assert_allclose(one, other, rtol=1e-11)


class TestTransformations:
    @staticmethod
    def generator(width=3):
        problem = equation()
        network = eqx.nn.MLP(DIM + 1, 1, width, 2, jnp.tanh, key=jax.random.key(8))
        return Generator(problem, wrap(network, problem, inputs="tx"))

    def test_vmap(self):
        """The values of a batch are those of its points."""
        generator = self.generator()
        t, x = np.linspace(0, 1, 3), np.random.default_rng(0).normal(size=(3, DIM))
        one = jit(lambda t, x: generator(t, x, KEY))
        many = jit(jax.vmap(lambda t, x: generator(t, x, KEY)))(t, x)
        for i in range(3):
            for m, o in zip(many, one(t[i], x[i]), strict=True):
                np.testing.assert_allclose(m[i], o, rtol=1e-12)

    @pytest.mark.parametrize("name", ["network", "solved"])
    def test_third_derivatives(self, name):
        """Compare the gradient of u_t + L u with central differences.

        With step 1e-5, truncation and rounding contribute an error of about 1e-10 each.
        """
        problem = equation()
        generator = (
            self.generator()
            if name == "network"
            else Generator(problem, wrap(FUNCTIONS[name], problem))
        )
        assert generator.route == "ito"
        parabolic = lambda t, x: generator(t, x, KEY)[2]
        h = 1e-5
        points = np.concatenate([h * np.eye(DIM + 1), -h * np.eye(DIM + 1)]) + np.append(T, X)
        (rate, slope), values = jit(
            lambda t, x, p: (
                jax.grad(parabolic, (0, 1))(t, x),
                jax.lax.map(lambda v: parabolic(v[0], v[1:]), p),
            )
        )(T, X, points)
        differences = (values[: DIM + 1] - values[DIM + 1 :]) / (2 * h)
        scale = np.max(np.abs(differences))
        np.testing.assert_allclose(
            np.append(rate, slope), differences, rtol=1e-6, atol=1e-7 * scale
        )


class TestHutchinson:
    MODELS = {  # noqa: RUF012
        "function": lambda: (smooth_twin, {}),
        "first layer": lambda: (
            eqx.nn.MLP(DIM + 1, 1, 3, 2, jnp.tanh, key=jax.random.key(9)),
            {"inputs": "tx"},
        ),
        "reverse only": lambda: (reverse_only_model, {}),
    }

    @pytest.mark.parametrize("model", MODELS)
    def test_unbiased(self, model):
        """The mean over 4000 keys is the exact trace, to 6 standard errors.

        The false-fail rate is 2e-9 for each of 3 models. The standard deviation of one draw is over
        0.1 % of the answer, so the test is not vacuous. u and z are exact in every draw.
        """
        problem = equation()
        function, options = self.MODELS[model]()
        surrogate = wrap(function, problem, **options)
        exact, drawn = Generator(problem, surrogate), Generator(problem, surrogate, Hutchinson(2))
        keys = jax.random.split(jax.random.key(10), 4000)
        draw = lambda key, t, x: drawn(t, x, key)
        (u, z, parabolic), (values, gradients, traces) = jit(
            lambda t, x: (exact(t, x, KEY), jax.vmap(draw, (0, None, None))(keys, t, x))
        )(T, X)
        np.testing.assert_allclose(values, np.broadcast_to(u, values.shape), rtol=1e-12)
        np.testing.assert_allclose(
            gradients, np.broadcast_to(z, gradients.shape), rtol=1e-11, atol=1e-14
        )
        spread = np.std(traces, ddof=1)
        assert spread > 1e-3 * abs(parabolic)
        assert abs(np.mean(traces) - parabolic) < SIGMAS * spread / np.sqrt(len(traces))

    @pytest.mark.parametrize("model", MODELS)
    def test_all_coordinates_are_the_exact_trace(self, model):
        """Columns are drawn without replacement, so K = d has no randomness."""
        problem = equation()
        function, options = self.MODELS[model]()
        surrogate = wrap(function, problem, **options)
        pair = [Generator(problem, surrogate, h) for h in (None, Hutchinson(DIM))]
        keys = jax.random.split(jax.random.key(11), 8)
        one, other = jit(
            lambda t, x: [jax.vmap(lambda key, g=g: g(t, x, key))(keys) for g in pair]
        )(T, X)
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
