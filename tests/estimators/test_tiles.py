"""The simulation of a tile: derivatives, coupled grids, and exact laws."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import SIGMAS
from scasml import GeometricBrownian, OrnsteinUhlenbeck, Problem
from scasml.estimators._level_paths import LANES, Ends, Job, Lanes, LevelPaths, Seeds
from scasml.estimators._step_grids import (
    INCREMENTS,
    Bridge,
    Grid,
    Noise,
    changes_of,
    step_of,
    which_increment,
)
from scasml.estimators._streams import path_keys
from scasml.estimators._tiles import SEGMENT, empty_tape, simulate
from scasml.paths import Gaussian

pytestmark = pytest.mark.usefixtures("x64")

DIM, S, HORIZON = 2, 0.2, 1.0
SPAN = HORIZON - S
X = np.array([0.3, -0.5])
MOST = 7
# Programs run briefly, so they are compiled quickly.
QUICK: Any = {"xla_backend_optimization_level": 0}


def curved_paths() -> LevelPaths:
    """Return paths whose drift, diffusion, potential and tilt all depend on t and x."""
    sigma = lambda t, x: jnp.eye(DIM) * (0.7 + 0.2 * jnp.sin(x[1] + t)) + jnp.outer(x, x) * 0.1
    problem = Problem(
        dim=DIM,
        horizon=HORIZON,
        drift=lambda t, x: jnp.cos(x[::-1]) - t * x,
        diffusion=sigma,
        nonlinearity=lambda t, x, u, z: jnp.sin(u) * x[0] + 0.3 * z @ z + z[1] * (u + x[0]),
        terminal=lambda x: jnp.sum(x),
    )
    return LevelPaths(problem, "milstein", MOST, True, jnp.asarray(True))


def lanes_of(paths: LevelPaths, x: Any, key: Any, paired: Any, rho: Any = None) -> Lanes:
    """Return lanes in groups of three: a fine path, its reflection, and a coarse path."""
    triple, member = jnp.arange(LANES) // 3, jnp.arange(LANES) % 3
    keys = path_keys(jax.random.key_data(key), triple, 0 * triple)
    s, one = jnp.full(LANES, S), jnp.ones(LANES)
    drawn = 1 - jax.random.uniform(jax.random.fold_in(key, 1), (LANES,))
    changes = jax.random.normal(jax.random.fold_in(key, 2), (LANES, 2, DIM))
    mirror = jnp.where(paired & (member == 1), -one, one)
    noise = Noise(keys, one, mirror, paired & (member == 2))
    rho = drawn[triple] if rho is None else rho * one
    return Lanes(s, jax.vmap(paths.begin)(s, x), rho, changes[triple], noise)


def functional(ends: Ends) -> Any:
    """Return a function of the ends of one path."""
    at_time = jnp.exp(ends.growth_time) * jnp.sin(ends.x_time[0] + 2 * ends.x_time[1])
    return at_time + jnp.exp(ends.growth_horizon) * (ends.x_horizon[1] ** 2 + ends.x_horizon[0])


def by_pathwise(ends: Ends) -> tuple[Any, Seeds]:
    """Return `functional` and the seeds of its derivative, and the ends."""
    value, pulled = jax.vmap(jax.value_and_grad(functional))(ends)
    zero = jnp.zeros(LANES)
    return (value, ends), Seeds(pulled, zero, zero, zero, zero, zero)


FACTORS = 0.3, -0.6, 0.8, 1.1


def by_weights(ends: Ends) -> tuple[Any, Seeds]:
    """Return the seeds of gradient weights and lifts, each with another factor."""
    zeros = jax.tree.map(jnp.zeros_like, ends)
    return ends, Seeds(zeros, *(jnp.full(LANES, factor) for factor in FACTORS), jnp.zeros(LANES))


@functools.cache
def program(at_ends: Callable[..., Any]) -> Callable[..., Any]:
    """Return the compiled program of one tile, whose level is data, with slopes in x."""
    paths = curved_paths()

    def run(x: Any, level: Any, paired: Any, to_horizon: Any) -> Any:
        lanes = lanes_of(paths, x, jax.random.key(3), paired)
        job = Job(level, paired, to_horizon, jnp.asarray(True))
        result, pulled, _ = simulate(paths, lanes, job, at_ends, empty_tape(paths, x[0]))
        return result, jax.vmap(paths.pull_begin)(lanes.s, x, pulled)

    compiled = jax.jit(run, compiler_options=QUICK)
    return lambda x, level, paired, to_horizon=True: jax.tree.map(
        np.asarray,
        compiled(x, jnp.int32(level), jnp.asarray(paired), jnp.asarray(to_horizon)),
    )


STARTS = X + np.linspace(-0.2, 0.2, LANES)[:, None]
GRIDS = [(0, False), (1, True), (1, False), (3, True), (3, False), (7, True), (7, False)]


@pytest.mark.parametrize(("level", "paired"), GRIDS)
def test_derivatives_against_finite_differences(level, paired):
    """Grids of level 7 have more iterations than a tape holds, and those of level 3 have fewer."""
    assert 2**3 + 2 < SEGMENT < 2**7
    run = program(by_pathwise)
    (value, _), slope = run(STARTS, level, paired)
    size = 1e-5
    for k in range(DIM):
        shift = size * np.eye(DIM)[k]
        (up, _), _ = run(STARTS + shift, level, paired)
        (down, _), _ = run(STARTS - shift, level, paired)
        np.testing.assert_allclose(slope[:, k], (up - down) / (2 * size), rtol=2e-6, atol=2e-7)
    assert np.all(np.abs(slope) > 1e-4)
    assert np.ptp(value) > 0.1


def literal(level: int, paired: bool) -> Callable[..., Any]:
    """Return a function of x whose gradient is the sum of the weights and lifts with `FACTORS`.

    The weight to r is the sum of <sigma^-1 dW, dX_i> over the steps, divided by r - s. The lift is
    the sum of the derivatives of the growth, each times the time left to r as a fraction. Weights
    to T are the same with T.
    """
    paths, count = curved_paths(), 2**level + (2 if paired else 1)

    def one(x: Any, lane: Lanes) -> Any:
        grid = Grid.of(lane.rho, jnp.asarray(SPAN), jnp.int32(level), jnp.asarray(paired))
        changes = changes_of(lane.changes, lane.rho, jnp.asarray(SPAN), jnp.asarray(True))
        first = paths.begin(lane.s, x), Bridge(changes[0], jnp.zeros(DIM)), jnp.zeros(())
        paired_, level_ = jnp.asarray(paired), jnp.int32(level)

        def step(carry: Any, i: Any) -> Any:
            state, bridge, total = carry
            which = which_increment(i, level_, paired_)
            dw, bridge = jax.lax.switch(which, INCREMENTS, i, grid, lane.noise, bridge)
            t, h = step_of(i, grid, paired_, lane.noise.coarse)
            sigma = paths.equation.diffusion(lane.s + t, jax.lax.stop_gradient(state.x))
            weight = (h > 0) * (jnp.linalg.solve(sigma.T, dw) @ state.x)
            state, grown = paths.step(state, lane.s + t, h, dw)
            spans = (i <= grid.arrival, lane.rho * SPAN), (True, SPAN)
            for (use, span), (a, b) in zip(spans, (FACTORS[:2], FACTORS[2:]), strict=True):
                total += use * (a * weight / span + b * grown * (1 - (t + h / 2) / span))
            rest = jnp.where(i == grid.arrival, changes[1], bridge.rest)
            return (state, bridge._replace(rest=rest), total), None

        return jax.lax.scan(step, first, jnp.arange(count))[0][2]

    return lambda x, lanes: jax.vmap(jax.grad(one))(x, lanes)


def test_gradient_weights_against_a_literal_sum():
    lanes = lanes_of(curved_paths(), jnp.asarray(STARTS), jax.random.key(3), jnp.asarray(True))
    wanted = jax.jit(literal(2, True), compiler_options=QUICK)(jnp.asarray(STARTS), lanes)
    _, got = program(by_weights)(STARTS, 2, True)
    np.testing.assert_allclose(got, wanted, rtol=1e-8, atol=1e-10)
    assert np.all(np.abs(got) > 1e-4)


def test_a_coarse_path_is_a_fine_path_of_the_level_below():
    """On level 0 no normal numbers are drawn between s, r and T, so the paths are the same."""
    run = program(by_pathwise)
    (values, paired), slopes = run(STARTS, 1, True)
    (below, single), slopes_below = run(STARTS, 0, False)
    is_coarse = np.arange(LANES) % 3 == 2
    for one, other in zip((values, slopes, *paired), (below, slopes_below, *single), strict=True):
        np.testing.assert_allclose(one[is_coarse], other[is_coarse], rtol=1e-12, atol=1e-13)
    assert np.all(np.abs(values - below)[~is_coarse] > 1e-6)


@pytest.mark.parametrize(("level", "paired"), [(0, False), (3, True), (7, False)])
def test_levels_agree_on_the_brownian_motion_at_r_and_T(level, paired):
    """With little curvature all levels move a path in nearly the same way.

    So the ends of all levels are close to those of level 6, but not equal. Paths that end at r
    have different changes, so those ends differ.
    """
    run = program(by_pathwise)
    (_, fine), _ = run(STARTS, 6, False)
    (_, ends), _ = run(STARTS, level, paired)
    for one, other in zip(ends, fine, strict=True):
        assert np.max(np.abs(one - other)) > 1e-12
        assert np.sqrt(np.mean(np.square(one - other))) < 0.35
    (_, short), _ = run(STARTS, level, paired, False)
    assert np.max(np.abs(short.x_time - ends.x_time)) > 0.1


LAWS = {
    "gaussian": lambda: Gaussian([0.3, -0.2], [[0.8, 0.1], [-0.3, 0.6]]),
    "ornstein-uhlenbeck": lambda: OrnsteinUhlenbeck([1.3, 0.4], [0.5, -0.2], [0.6, 0.9]),
    "geometric": lambda: GeometricBrownian([0.2, -0.1], [[0.3, 0.1], [0.0, 0.4]]),
}
RHO = 0.4


def closed_form(name: str, x: Any, duration: float) -> Any:
    """Return E (c.X)^2 for c = (1, 0.6), from the mean and the covariance of X."""
    c, law = np.array([1.0, 0.6]), LAWS[name]()
    if isinstance(law, Gaussian):
        covariance = duration * law.sigma @ law.sigma.T
        return (c @ (x + law.mu * duration)) ** 2 + c @ covariance @ c
    if isinstance(law, OrnsteinUhlenbeck):
        mean = law.mean + jnp.exp(-law.rate * duration) * (x - law.mean)
        variance = law.sigma**2 * (1 - np.exp(-2 * law.rate * duration)) / (2 * law.rate)
        return (c @ mean) ** 2 + c**2 @ variance
    mean = c * x * jnp.exp(law.rate * duration)
    growth = np.exp(duration * law.volatility @ law.volatility.T)
    return mean @ growth @ mean


@pytest.mark.parametrize("to_horizon", [True, False])
@pytest.mark.parametrize("name", LAWS)
def test_exact_laws(name, to_horizon):
    """Value and gradient of E (c.X_r)^2, and of E (c.X_T)^2, agree with a closed form.

    The gradient is computed from path derivatives and from gradient weights. Values and gradients
    are within 6 standard errors: the false-fail rate is below 2e-8.
    """
    problem = Problem(dim=DIM, horizon=HORIZON, dynamics=LAWS[name](), terminal=lambda x: x[0])
    paths = LevelPaths(problem, "milstein", 0, True, jnp.asarray(True))
    assert paths.is_exact
    c = np.array([1.0, 0.6])
    f = lambda x: (x @ c) ** 2
    start = np.array([0.9, 0.4])
    spans = {"time": RHO * SPAN, **({"horizon": SPAN} if to_horizon else {})}

    def at_ends(weighted: bool, at: str, ends: Ends) -> tuple[Any, Seeds]:
        x = getattr(ends, f"x_{at}")
        zeros, zero = jax.tree.map(jnp.zeros_like, ends), jnp.zeros(LANES)
        seeds = Seeds(zeros, zero, zero, zero, zero, zero)
        if weighted:
            return f(x), seeds._replace(**{f"weight_{at}": f(x)})
        return f(x), seeds._replace(ends=zeros._replace(**{f"x_{at}": jax.vmap(jax.grad(f))(x)}))

    @jax.jit
    def samples(keys: Any) -> Any:
        def tile(key: Any) -> Any:
            x = jnp.tile(jnp.asarray(start), (LANES, 1))
            lanes = lanes_of(paths, x, key, jnp.asarray(False), RHO)
            job = Job(jnp.int32(0), jnp.asarray(False), jnp.asarray(to_horizon), jnp.asarray(True))
            found = {}
            for at in spans:
                for weighted in (False, True):
                    ends = functools.partial(at_ends, weighted, at)
                    value, pulled, _ = simulate(paths, lanes, job, ends, None)
                    row = jnp.concatenate([value[:, None], pulled.x], 1)
                    found[at, weighted] = row[::3]  # one path of each triple
            return found

        return jax.lax.map(tile, keys)

    found = samples(jax.random.split(jax.random.key(7), 4000))
    for (at, _), rows in found.items():
        rows = np.asarray(rows).reshape(-1, 1 + DIM)
        of = lambda x, at=at: closed_form(name, x, spans[at])
        value, slope = jax.value_and_grad(of)(jnp.asarray(start))
        error = rows.mean(0) - np.concatenate([[value], slope])
        stderr = rows.std(0) / np.sqrt(len(rows))
        assert np.all(np.abs(error) < SIGMAS * stderr)
        assert np.all(stderr < 0.1 * np.concatenate([[value], slope]))
