"""A physics-informed network: its squared residual made small by Adam, where the queries are and where their paths go."""

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
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
from .._equations.smoothness import terminal_may_be_rough
from .._io.progress import TrainingReport
from .._support.errors import ArgumentError, one_of, positive, whole
from .._support.precision import use_dtype
from ..paths.coefficients import Coefficient
from .adam import Schedule, train
from .collocation import boundary, collocation_points, domain_of, moments
from .files import identity
from .terminal import built_in
from .trained import AbstractTrained, Record
from .wrapping import Layered

# Points whose spread tells the scale of a coordinate.
SCALE_POINTS = 1024


class Layer(NamedTuple):
    weight: Array
    bias: Array

    def __call__(self, h: Array) -> Array:
        return self.weight @ h + self.bias


class Pinn(AbstractTrained):
    """offset + size (1 - t/T) N(t/T, (x - centre)/spread) with the terminal condition built in, else size N."""

    kind: ClassVar[str] = "pinn"
    problem: Problem
    layers: tuple[Layer, ...]
    centre: Array
    spread: Array
    size: Array
    draws: Coefficient | None
    record: Record = eqx.field(static=True)

    def __call__(self, t: Array, x: Array) -> Array:
        value = self._head(t, self._weight.astype(x.dtype) @ x)
        return self.on_base(value, t, x)

    @property
    def terminal_function(self) -> Terminal | None:
        return None if self.draws is None else self.problem.terminal_fn

    @property
    def form(self) -> Layered:
        return Layered(self._weight, self._head, self.base)

    @property
    def _weight(self) -> Array:
        return self.layers[0].weight[:, 1:] / self.spread[None]

    def _head(self, t: Array, h: Array) -> Array:
        first, *inner, last = self.layers
        share = t / self.problem.horizon
        h = jnp.tanh(
            h
            + (first.weight[:, 0] * share + first.bias - self._weight @ self.centre).astype(h.dtype)
        )
        for layer in inner:
            h = jnp.tanh(layer(h))
        (value,) = self.size * last(h)
        return value.astype(h.dtype) * (1 if self.draws is None else 1 - share)

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
        layers = tuple(
            Layer(_shaped(arrays, f"weight{i}", m, n), _shaped(arrays, f"bias{i}", m))
            for i, (n, m) in enumerate(itertools.pairwise(sizes))
        )
        return cls(
            problem=problem,
            layers=layers,
            centre=_shaped(arrays, "centre", problem.dim),
            spread=_shaped(arrays, "spread", problem.dim),
            size=_shaped(arrays, "size"),
            draws=_shaped(arrays, "draws", len(arrays["draws"]), problem.dim)
            if "draws" in arrays
            else None,
            record=record,
        )


def _shaped(arrays: dict[str, NDArray[Any]], name: str, *shape: int) -> Array:
    if arrays[name].shape != shape:
        raise ValueError(f"{name} has shape {arrays[name].shape} for {shape}")
    return jnp.asarray(arrays[name])


@dataclass(frozen=True)
class Settings:
    """Of a training run; `interior`, `boundary` and `terminal` are numbers of points of a step."""

    width: int = 50
    depth: int = 5
    steps: int = 2000
    interior: int = 256
    boundary: int = 0
    terminal: int = 0
    rate: float = 2e-3
    betas: tuple[float, float] = (0.9, 0.99)
    along_paths: float = 0.5
    hard: bool = True  # the terminal condition is built in, not learned
    decay: bool = True
    hutchinson: float = (
        0.0  # the share of dimensions drawn for the trace; 0 for all of them, exactly
    )


DEFAULT = Settings()
# Sections 5.1 to 5.4 of the SCaSML paper. A ball there is all of space, whose only boundary is the terminal time.
_PAPER = Settings(hard=False, along_paths=0.0, decay=False)
_BOX = replace(_PAPER, steps=10_000, interior=2500, boundary=100, rate=7e-4)
_BALL = replace(_PAPER, steps=2500, terminal=1000, rate=1e-3)
PAPER: dict[str, Settings] = {
    "convection_diffusion": replace(_BOX, terminal=160),
    "burgers": replace(_BOX, terminal=160),
    "lqg": replace(_BALL, interior=100, hutchinson=0.25),
    "diffusion_reaction": replace(_BALL, interior=1000),
}


def pinn(
    problem: Problem,
    *,
    preset: Literal["default", "paper"] = "default",
    terminal: Literal["auto", "hard", "soft"] = "auto",
    steps: int | None = None,
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
    """Train a network of `depth` layers of `width` tanh units.

    - `preset`: "paper" has the published settings of its four problems; "default" is better and faster.
    - `terminal`: "hard" builds the terminal condition in, which needs a smooth g; "soft" learns it; "auto" decides.
    - `steps`, `interior`, `rate`: of Adam at most, of collocation points at each, and its learning rate.
      It ends sooner once the residual has stopped falling; the rate then goes to 0.
    - `seconds`: end after about so long, compilation not counted; the network then depends on the machine.
    - `domain`: where answers are wanted, a `Box` or a `Ball`; by default the problem's own. Half of the points are
      drawn there, half along paths started there.
    - `checkpoint`: a file to go on from, if it is there, and to keep the state of the run in. Ctrl-C ends the
      training with what there is; run again, it ends bitwise where it would have.
    """
    require_problem(problem)
    settings = _settings(problem, preset, terminal, steps, interior, width, depth, rate)
    if seconds is not None:
        seconds = positive("seconds", seconds, "pass how long to train, or leave it out")
    domain = domain_of(problem) if domain is None else domain
    require_domain(domain, problem.dim)
    seed = whole("seed", seed, 0, "pass a number to draw from")
    began, cpu = time.perf_counter(), time.process_time()
    with use_dtype(np.dtype(np.float32)):
        start = _start(problem, settings, domain, seed)
        run = train(
            start.layers,
            _loss(start, settings, domain, seed),
            Schedule(
                settings.steps, settings.rate, settings.betas, settings.decay, seconds or math.inf
            ),
            seed,
            checkpoint,
            {"problem": identity(problem), "settings": repr((settings, domain))},
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
    return replace(start, layers=run.parameters, record=Record(facts.items()))


def _settings(
    problem: Problem,
    preset: Any,
    terminal: Any,
    steps: Any,
    interior: Any,
    width: Any,
    depth: Any,
    rate: Any,
) -> Settings:
    one_of("preset", preset, ("default", "paper"))
    one_of("terminal", terminal, ("auto", "hard", "soft"))
    if preset == "paper" and problem.name not in PAPER:
        raise ArgumentError(
            f'preset "paper" is for {", ".join(PAPER)}, got it for {problem.name!r}: leave it out for the default.'
        )
    settings = DEFAULT if preset == "default" else PAPER[problem.name]
    counts = {"steps": steps, "interior": interior, "width": width, "depth": depth}
    given: dict[str, Any] = {
        name: whole(name, value, 1, "pass how many, or leave it out")
        for name, value in counts.items()
        if value is not None
    }
    if rate is not None:
        given["rate"] = positive("rate", rate, "pass a learning rate, or leave it out")
    is_rough = terminal_may_be_rough(problem)
    if terminal == "hard" and is_rough:
        raise ArgumentError(
            f'terminal="hard" needs a smooth g, got one with kinks or jumps in {problem.name!r}: pass terminal="soft".'
        )
    is_hard = given["hard"] = terminal == "hard" or (
        terminal == "auto" and settings.hard and not is_rough
    )
    settings = replace(settings, **given)
    return replace(settings, terminal=0 if is_hard else settings.terminal or settings.interior)


def _sizes(dim: int, width: int, depth: int) -> list[int]:
    return [dim + 1, *[width] * depth, 1]


def _start(problem: Problem, settings: Settings, domain: AbstractDomain, seed: int) -> Pinn:
    """An untrained network of Glorot's normal weights. The default one sees every coordinate, and gives the solution, in units of their spread."""
    rng, sizes = (
        np.random.default_rng([seed, 0]),
        _sizes(problem.dim, settings.width, settings.depth),
    )
    weights = [np.sqrt(2 / (n + m)) * rng.normal(size=(m, n)) for n, m in itertools.pairwise(sizes)]
    centre, scale, size, draws = np.zeros(problem.dim), np.ones(problem.dim), 1.0, None
    if settings.along_paths > 0:
        x, g = _sample(problem, domain, jax.random.key(seed), settings.along_paths)
        centre, scale, size = *moments(x), float(np.std(g)) or 1.0
    if settings.hard:
        draws = jnp.asarray(built_in(problem, domain, seed))
        weights[-1] = np.zeros_like(weights[-1])  # it starts from what is built in
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
    _, x = collocation_points(problem, domain, key, SCALE_POINTS, along_paths)
    return x, jax.vmap(problem.terminal)(x)


def _loss(
    start: Pinn, settings: Settings, domain: AbstractDomain, seed: int
) -> Callable[[Any, PRNGKeyArray], tuple[Array, Array]]:
    """(layers, key) -> the loss, and the mean squared residual that is its first part."""
    problem = start.problem
    share = settings.hutchinson
    hutchinson = Hutchinson(max(1, round(share * problem.dim))) if share else None
    t_side, x_side = boundary(problem, domain, settings.boundary, seed)
    u_side = problem.exact(t_side, x_side) if len(t_side) else t_side
    side = tuple(jnp.asarray(a, jnp.float32) for a in (t_side, x_side, u_side))

    def loss(layers: Any, key: PRNGKeyArray) -> tuple[Array, Array]:
        model = eqx.tree_at(lambda m: m.layers, start, layers)
        generator = Generator(problem, model, hutchinson)
        key_points, key_trace, key_end = jax.random.split(key, 3)

        def residual(t: Array, x: Array, key: PRNGKeyArray) -> Array:
            u, z, moved = generator(t, x, key)
            return moved + problem.nonlinearity(t, x, u, z)

        t, x = collocation_points(
            problem, domain, key_points, settings.interior, settings.along_paths
        )
        square = jnp.mean(
            jax.vmap(residual)(t, x, jax.random.split(key_trace, settings.interior)) ** 2
        )
        total = square
        if settings.terminal:
            _, x = collocation_points(
                problem, domain, key_end, settings.terminal, settings.along_paths
            )
            end = jnp.full(settings.terminal, problem.horizon, x.dtype)
            total = total + jnp.mean((jax.vmap(model)(end, x) - jax.vmap(problem.terminal)(x)) ** 2)
        if len(side[0]):
            t, x, u = side
            total = total + jnp.mean((jax.vmap(model)(t, x) - u) ** 2)
        return total, square

    return loss
