"""Physics-informed neural networks: Adam minimises the squared residual of the PDE.

`pinn` takes a problem and returns a trained `Pinn`. The residual is evaluated at points of a domain
and along paths that start there.
"""

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from numpy.typing import NDArray

from .._equations.domain import AbstractDomain, require_domain
from .._equations.generator import Generator, Hutchinson
from .._equations.problem import Problem, Terminal, require_problem
from .._equations.surrogate import Layered
from .._io.progress import TrainingReport
from .._support.errors import positive, whole
from .._support.precision import use_dtype
from ..paths.coefficients import Coefficient
from ._pinn_settings import PinnSettings, resolve_settings
from .adam import Schedule, train
from .collocation import boundary, collocation_points, domain_of, moments
from .files import exact_identity, function_values, problem_identity
from .terminal import choose_draws
from .trained import AbstractTrained, Record, kind, require_shapes

# Number of points from which the mean and the standard deviation of each coordinate are estimated.
SCALE_POINTS = 1024


class Layer(NamedTuple):
    """A linear layer, with network weights (outputs, inputs) and a bias (outputs,)."""

    weight: Array
    bias: Array

    def __call__(self, h: Array) -> Array:
        return self.weight @ h + self.bias


class Pinn(AbstractTrained):
    """The surrogate u(t, x) = offset(t, x) + size (1 - t/T) N(y), with a tanh network N.

    The input of the network is y = (t/T, (x - centre) / spread). The offset is the smoothed g, so
    that u = g at T. If `draws` is None, the terminal condition is learned and u(t, x) = size N(y).
    """

    kind: ClassVar[str] = "pinn"
    problem: Problem
    layers: tuple[Layer, ...]
    centre: Array  # (d,)
    spread: Array  # (d,)
    size: Array  # ()
    draws: Coefficient | None  # of the offset, a SmoothedTerminal; None if there is no offset
    record: Record = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        value = self._head(t, self._weight.astype(x.dtype) @ x)
        return self.add_offset(value, t, x)

    @property
    def terminal_function(self) -> Terminal | None:
        return None if self.draws is None else self.problem.terminal_fn

    @property
    def form(self) -> Layered:
        return Layered(self._weight, self._head, self.offset)

    @property
    def _weight(self) -> Array:
        """The network weights W (width, d) of x in the first layer, divided by `spread`."""
        return self.layers[0].weight[:, 1:] / self.spread[None]

    def _head(self, t: Array, h: Array) -> Array:
        """Return u without the offset from h = W x of shape (width,), with W = `_weight`."""
        first, *inner, last = self.layers
        fraction = t / self.problem.horizon
        bias = first.weight[:, 0] * fraction + first.bias - self._weight @ self.centre
        h = jnp.tanh(h + bias.astype(h.dtype))
        for layer in inner:
            h = jnp.tanh(layer(h))
        (value,) = self.size * last(h)
        return value.astype(h.dtype) * (1 if self.draws is None else 1 - fraction)

    def architecture(self) -> dict[str, Any]:
        return {"width": len(self.layers[0].bias), "depth": len(self.layers) - 1}

    def arrays(self) -> dict[str, Any]:
        named: dict[str, Any] = {"centre": self.centre, "spread": self.spread, "size": self.size}
        if self.draws is not None:
            named["draws"] = self.draws
        for i, layer in enumerate(self.layers):
            named |= {f"weight{i}": layer.weight, f"bias{i}": layer.bias}
        return named

    @classmethod
    def build(
        cls,
        problem: Problem,
        architecture: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        record: Record,
    ) -> Self:
        sizes = _sizes(problem.dim, architecture["width"], architecture["depth"])
        shapes: dict[str, Any] = {"centre": (problem.dim,), "spread": (problem.dim,), "size": ()}
        for i, (n, m) in enumerate(itertools.pairwise(sizes)):
            shapes |= {f"weight{i}": (m, n), f"bias{i}": (m,)}
        require_shapes(arrays, shapes, problem.dim)
        given: dict[str, Any] = {name: jnp.asarray(a) for name, a in arrays.items()}
        layers = tuple(
            Layer(given.pop(f"weight{i}"), given.pop(f"bias{i}")) for i in range(len(sizes) - 1)
        )
        return cls(problem=problem, layers=layers, **{"draws": None, **given}, record=record)


@kind(Pinn)
def pinn(
    problem: Problem,
    *,
    preset: Literal["default", "paper"] = "default",
    terminal: Literal["auto", "hard", "soft"] = "auto",
    iterations: int | None = None,
    interior: int | None = None,
    width: int | None = None,
    depth: int | None = None,
    rate: float | None = None,
    domain: AbstractDomain | None = None,
    seconds: float | None = None,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    progress: bool | TrainingReport = False,
) -> Pinn:
    """Train a tanh network by Adam to make the residual of the PDE small.

    An argument that is None has the value of the preset. Ctrl-C ends the training early.

    **Arguments:**

    - `preset`: "paper" has the settings that the SCaSML paper published for its four problems.
        "default" is more accurate and faster.
    - `terminal`: "hard" builds the terminal condition in, which needs a smooth g. "soft" learns
        it, by a second term of the loss. "auto" takes "hard" with the preset "default" if g is
        smooth, and "soft" otherwise.
    - `iterations`: the largest number of iterations of Adam, rounded up to a multiple of 50. With
        the preset "default" the learning rate goes to 0 at the end, and the run ends earlier if the
        residual stops falling.
    - `interior`: the number of collocation points in each iteration.
    - `width`, `depth`: the units of a hidden layer, and the number of hidden layers.
    - `rate`: the learning rate.
    - `domain`: where answers are wanted; by default the domain of the problem, or x0 at time 0. The
        preset "paper" draws all points there. "default" draws half of them there, and half along
        paths that start there.
    - `seconds`: about how long the iterations may take, with their compilation. The network then
        depends on the speed of the machine.
    - `seed`: the seed of the initial network and of the points.
    - `checkpoint`: a file that keeps the state of the run. If it exists, the run continues from
        it, and returns the same bits as a run without interruption.
    - `progress`: True shows a bar; a function is called with a `Training` every 50 iterations.

    **Returns:** a `Pinn`.

    **Raises:** `ArgumentError` for an invalid argument, `FileError` if the checkpoint is of another
    run or cannot be read or written, `MissingExtraError` if optax is not installed.
    """
    require_problem(problem)
    settings = resolve_settings(problem, preset, terminal, iterations, interior, width, depth, rate)
    if seconds is not None:
        seconds = positive("seconds", seconds, "pass how long to train, or leave it out")
    domain = domain_of(problem) if domain is None else domain
    require_domain(domain, problem.dim)
    seed = whole("seed", seed, 0, "pass a number to draw from")
    began, cpu = time.perf_counter(), time.process_time()
    with use_dtype(np.dtype(np.float32)):
        untrained = untrained_pinn(problem, settings, domain, seed)
        run = train(
            untrained.layers,
            _loss(untrained, settings, domain, seed),
            Schedule(
                settings.iterations,
                settings.rate,
                settings.betas,
                settings.decay,
                seconds or math.inf,
            ),
            seed,
            checkpoint,
            {
                "problem": problem_identity(problem),
                "functions": exact_identity(function_values(problem)),
                "settings": exact_identity(settings),
                "domain": exact_identity(domain),
            },
            progress,
        )
    facts = {
        "steps": run.step,
        "residual": run.residuals[-1],
        "loss": run.losses[-1],
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "stopped": run.stopped or "at the last step",
        "residuals": run.residuals,
    }
    return replace(untrained, layers=run.parameters, record=Record(facts.items()))


def _sizes(dim: int, width: int, depth: int) -> list[int]:
    """Return the number of inputs of the first layer and the numbers of outputs of all layers."""
    return [dim + 1, *[width] * depth, 1]


def untrained_pinn(
    problem: Problem, settings: PinnSettings, domain: AbstractDomain, seed: int
) -> Pinn:
    """Return an untrained `Pinn` with Glorot's normal network weights.

    If some points lie along paths, `centre` and `spread` are the mean and the standard deviation of
    x at collocation points, and `size` is the standard deviation of g there. Otherwise they are 0,
    1 and 1.
    """
    rng = np.random.default_rng([seed, 0])
    sizes = _sizes(problem.dim, settings.width, settings.depth)
    weights = [np.sqrt(2 / (n + m)) * rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
    centre, scale, size, draws = np.zeros(problem.dim), np.ones(problem.dim), 1.0, None
    if settings.along_paths > 0:
        x, g = _sample(problem, domain, jax.random.key(seed), settings.along_paths)
        centre, scale, size = *moments(x), float(np.std(g)) or 1.0
    if settings.hard:
        draws = jnp.asarray(choose_draws(problem, domain, seed))
        weights[-1] = np.zeros_like(weights[-1])  # so that u is the offset before training
    return Pinn(
        problem=problem,
        layers=tuple(
            Layer(jnp.asarray(w, jnp.float32), jnp.zeros(len(w), jnp.float32)) for w in weights
        ),
        centre=jnp.asarray(centre, jnp.float32),
        spread=jnp.asarray(scale, jnp.float32),
        size=jnp.asarray(size, jnp.float32),
        draws=draws,
        record=Record(),
    )


@eqx.filter_jit
def _sample(
    problem: Problem, domain: AbstractDomain, key: PRNGKeyArray, along_paths: float
) -> tuple[Array, Array]:
    """Return collocation points x (SCALE_POINTS, d), and g there (SCALE_POINTS,)."""
    _, x = collocation_points(problem, domain, key, SCALE_POINTS, along_paths)
    return x, jax.vmap(problem.terminal)(x)


def _loss(
    untrained: Pinn, settings: PinnSettings, domain: AbstractDomain, seed: int
) -> Callable[[Any, PRNGKeyArray], tuple[Array, Array]]:
    """Return a function of (layers, key) that returns the loss and the mean squared residual.

    The loss is the sum of three means: the squared residual, the squared error at T, and the
    squared error on the faces of a box. The last two are zero if the settings have no points there.
    """
    problem = untrained.problem
    fraction = settings.hutchinson
    hutchinson = Hutchinson(max(1, round(fraction * problem.dim))) if fraction else None
    t_boundary, x_boundary = boundary(problem, domain, settings.boundary, seed)
    u_boundary = problem.exact(t_boundary, x_boundary) if len(t_boundary) else t_boundary
    boundary_data = tuple(jnp.asarray(a, jnp.float32) for a in (t_boundary, x_boundary, u_boundary))

    def points(key: PRNGKeyArray, count: int) -> tuple[Array, Array]:
        return collocation_points(problem, domain, key, count, settings.along_paths)

    def loss(layers: Any, key: PRNGKeyArray) -> tuple[Array, Array]:
        model = eqx.tree_at(lambda m: m.layers, untrained, layers)
        generator = Generator(problem, model, hutchinson)
        key_points, key_trace, key_end = jax.random.split(key, 3)

        def residual(t: Array, x: Array, key: PRNGKeyArray) -> Array:
            u, z, generated = generator(t, x, key)
            return generated + problem.nonlinearity(t, x, u, z)

        t, x = points(key_points, settings.interior)
        keys = jax.random.split(key_trace, settings.interior)
        square = jnp.mean(jax.vmap(residual)(t, x, keys) ** 2)
        total = square
        if settings.terminal:
            _, x = points(key_end, settings.terminal)
            end = jnp.full(settings.terminal, problem.horizon, x.dtype)
            total = total + jnp.mean((jax.vmap(model)(end, x) - jax.vmap(problem.terminal)(x)) ** 2)
        if len(boundary_data[0]):
            t, x, u = boundary_data
            total = total + jnp.mean((jax.vmap(model)(t, x) - u) ** 2)
        return total, square

    return loss
