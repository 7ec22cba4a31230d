"""The sums of one replicate: telescoping, expected samples, streams, and planted defects."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import SIGMAS
from scasml import Problem, problems
from scasml._equations.base import AbstractEquation
from scasml._equations.defect import Defect
from scasml.estimators import _preparation
from scasml.estimators._families import CLUSTER, FAMILIES, NAMES, SOURCE, TERMINAL
from scasml.estimators._level_paths import LevelPaths
from scasml.estimators._preparation import Preparation, Setting
from scasml.estimators._remainder_tree import RemainderMean
from scasml.estimators._replicate import replicate_sums
from scasml.estimators._schedule import INNER
from scasml.surrogates import wrap

DIM, T, X = 3, 0.1, np.array([0.3, -0.2, 0.5])
MOST_LEVELS = 7
# Replicates of one call of a program, which is compiled for this number.
AT_ONCE = 20


class Case(NamedTuple):
    """The defect equation of a surrogate, the exact defect at (T, X), and its gradient."""

    equation: AbstractEquation
    value: float
    gradient: np.ndarray


class Run(NamedTuple):
    """The sums of many replicates, (replicates, increments) and (replicates, increments, d)."""

    value: np.ndarray
    gradient: np.ndarray


def case_of(problem: Problem, exact: Callable[..., Any], surrogate: Callable[..., Any]) -> Case:
    """Return the case of a surrogate, from a solution that takes float64."""
    with jax.enable_x64(True):
        defect = lambda x: exact(jnp.asarray(T), x) - surrogate(jnp.asarray(T), x)
        value, slope = jax.value_and_grad(defect)(jnp.asarray(X))
        return Case(Defect(problem, wrap(surrogate, problem)), float(value), np.asarray(slope))


@functools.cache
def hjb() -> Case:
    """Return HJB with a surrogate that is 30 % off: F is quadratic in z."""
    problem = problems.hjb(DIM)
    off = lambda t, x: 1.3 * jnp.log((1 + x @ x + 2 * (1 - t) * DIM) / 2)
    moved = X + np.concatenate([np.zeros((1, DIM)), 1e-4 * np.eye(DIM), -1e-4 * np.eye(DIM)])
    u = problem.exact(np.full(len(moved), T), moved)
    slope = (u[1 : DIM + 1] - u[DIM + 1 :]) / 2e-4
    plane = lambda t, x: u[0] + jnp.asarray(slope) @ (x - X)
    return case_of(problem, plane, off)


@functools.cache
def cubic() -> Case:
    """Return a case with F = u - u^3 + source and the solution u = 0.9 sin(a x + t) + 0.2."""
    a, sigma, horizon = np.array([0.7, 0.5, -0.6]), 0.8, 0.9

    def exact(t: Any, x: Any) -> Any:
        return 0.9 * jnp.sin(jnp.asarray(a, x.dtype) @ x + t) + 0.2

    def nonlinearity(t: Any, x: Any, u: Any, z: Any) -> Any:
        phase, true = jnp.asarray(a, x.dtype) @ x + t, exact(t, x)
        parabolic = 0.9 * (jnp.cos(phase) - 0.5 * sigma**2 * (a @ a) * jnp.sin(phase))
        return u - u**3 - (true - true**3) - parabolic

    problem = Problem(
        dim=DIM,
        horizon=horizon,
        diffusion=sigma,
        nonlinearity=nonlinearity,
        terminal=lambda x: exact(jnp.asarray(horizon, x.dtype), x),
    )
    return case_of(problem, exact, lambda t, x: exact(t, x) + 0.35 * jnp.cos(2 * x[0] - x[1] + t))


def program(
    equation: AbstractEquation,
    groups: int,
    gradient: bool = False,
    pathwise: bool = True,
    sampling: Any = "rqmc",
    by_vmap: bool = False,
) -> Callable[..., Run]:
    """Return a compiled function of keys and of the expected samples of each increment."""
    slopes = gradient or equation.uses_z

    def one(key: Any, t: Any, x: Any, expected: Any) -> Any:
        paths = LevelPaths(equation, "milstein", MOST_LEVELS, slopes, jnp.all(expected >= 0))
        mean = RemainderMean(paths, groups)
        factors = jnp.asarray(np.tile(mean.exact, (len(FAMILIES), 1)), x.dtype)
        level = jnp.asarray(0, jnp.int32)
        setting = Setting(paths, mean, factors, 2, sampling, gradient, pathwise, t, x, level)
        sums = replicate_sums(setting, expected, key)
        return sums.value, jax.vmap(lambda pulled: paths.pull_begin(t, x, pulled))(sums.pulled)

    def replicates(keys: Any, t: Any, x: Any, expected: Any) -> Any:
        of = lambda key: one(key, t, x, expected)
        return jax.vmap(of)(keys) if by_vmap else jax.lax.map(of, keys)

    # More optimisation costs more time to compile than it saves.
    compiled = jax.jit(replicates, compiler_options={"xla_backend_optimization_level": 0})

    def run(keys: Any, expected: np.ndarray) -> Run:
        t, x = np.asarray(T, np.float32), X.astype(np.float32)
        parts = [compiled(part, t, x, expected) for part in keys.reshape(-1, AT_ONCE)]
        return Run(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    return run


@functools.cache
def shared_program(name: str) -> Callable[..., Run]:
    """Return the program of a case, which several tests share.

    Gradients of HJB are path derivatives, and those of the cubic case use gradient weights.
    """
    if name == "hjb":
        return program(hjb().equation, 2, gradient=True)
    return program(cubic().equation, 3, gradient=name == "cubic with gradient", pathwise=False)


def keys(count: int, seed: int = 0) -> Any:
    """Return the keys of replicates."""
    return jax.random.split(jax.random.key(seed), count)


def expected(**samples: float) -> np.ndarray:
    """Return the expected samples of all increments; those that are not named have none."""
    found = np.zeros(len(NAMES), np.float32)
    for name, count in samples.items():
        found[NAMES.index(name.replace("_", " "))] = count
    return found


BASE = expected(terminal=128, source=128, remainder=16)
STEPS = {f"steps_{2**k}": max(20 / 2**k, 0.5) for k in range(1, 8)}
ALL = BASE + expected(
    **STEPS,
    **{f"remainder_{name}": max(6 / 2**k, 0.5) for k, name in enumerate(STEPS) if k < 6},
    remainder_depth_1=4,
    remainder_depth_2=2,
)


def z_scores(case: Case, run: Run) -> np.ndarray:
    """Return the errors of the value and the gradient in standard errors."""
    sums = np.concatenate([run.value.sum(1)[:, None], run.gradient.sum(1)], 1).astype(np.float64)
    error = sums.mean(0) - np.concatenate([[case.value], case.gradient])
    return error / np.maximum(sums.std(0, ddof=1) / np.sqrt(len(sums)), 1e-30)


@pytest.mark.parametrize("name", ["hjb", "cubic with gradient"])
def test_increments_telescope(name):
    """The sum of all increments is unbiased for the value and the gradient.

    The increments that are left out are below 0.3 standard errors. The bound of 4.9 standard errors
    of four means has a false-fail rate below 1e-5 for a random seed. The base increments alone are
    wrong by more than 4.9 standard errors.
    """
    case = hjb() if name == "hjb" else cubic()
    run = shared_program(name)(keys(1000), ALL)
    assert np.all(np.abs(z_scores(case, run)) < 4.9)
    base = [TERMINAL, SOURCE, NAMES.index("remainder")]
    z = np.abs(z_scores(case, Run(run.value[:, base], run.gradient[:, base])))
    assert z[0] > 10
    assert np.max(z[1:]) > 4.9


def check(replicates: int = 1000, sampling: str = "rqmc") -> float:
    """Return the z-score of the value for the cubic case, from a program that is not shared."""
    run = program(cubic().equation, 3, sampling=sampling)(keys(replicates, 1), ALL)
    return abs(float(z_scores(cubic(), run)[0]))


@pytest.mark.parametrize("sampling", ["mc", "antithetic"])
def test_every_sampling_telescopes(sampling):
    """The false-fail rate is 1e-6."""
    assert check(sampling=sampling) < 4.9


def _plus(right: Any) -> Any:
    """Give coarse paths the weight +1."""

    def wrong(self: Preparation, place: Any) -> Any:
        order = right(self, place)
        time, horizon = abs(order.factor_time), abs(order.factor_horizon)
        return order._replace(factor_time=time, factor_horizon=horizon)

    return wrong


def _no_span(right: Any) -> Any:
    """Leave the factor T - s out of the time weights of all but inner paths."""

    def wrong(self: Preparation, place: Any, tree: Any) -> Any:
        tile = right(self, place, tree)
        span = self.setting.paths.span(tile.lanes.s)
        return tile._replace(weight=tile.weight / jnp.where(tile.kind == INNER, 1, span))

    return wrong


def _one_key(right: Any) -> Any:
    """Give all groups of inner paths the keys of the first group."""

    def wrong(self: Preparation, place: Any, tree: Any) -> Any:
        order = right(self, place, tree)
        return order._replace(second=order.second - 32 * _preparation.MOST_NODES * order.group)

    return wrong


def _all_fine(right: Any) -> Any:
    """Let coarse paths take the steps of the fine grid."""

    def wrong(self: Preparation, place: Any) -> Any:
        order = right(self, place)
        return order._replace(coarse=order.coarse & False)

    return wrong


PLANTS = {_plus: "_difference", _all_fine: "_difference", _no_span: "__call__", _one_key: "_inner"}


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "method"), PLANTS.items())
def test_planted_defects_are_seen(plant, method, monkeypatch):
    """Each defect makes the sum of all increments wrong by more than 6 standard errors."""
    monkeypatch.setattr(Preparation, method, plant(getattr(Preparation, method)))
    assert check() > 6


def test_fractional_expected_samples_do_not_change_the_mean():
    """With 0.3 expected clusters, 70 % of the replicates have no sample, and the mean is the same.

    Six means are compared within 6 standard errors: the false-fail rate is below 2e-8. The
    number of empty replicates is binomial, within 6 standard deviations.
    """
    names = ("terminal", "source", "steps 2", "steps 4", "remainder", "remainder steps 2")
    at = [NAMES.index(name) for name in names]
    few, many = np.zeros((2, len(NAMES)), np.float32)
    few[at], many[at] = 0.3 * CLUSTER[at], 3 * CLUSTER[at]
    count = 2000
    run = shared_program("cubic")
    one, other = run(keys(count, 2), few).value[:, at], run(keys(count // 2, 3), many).value[:, at]
    error = np.sqrt(one.var(0) / len(one) + other.var(0) / len(other))
    assert np.all(np.abs(one.mean(0) - other.mean(0)) < SIGMAS * error)
    # An increment that is not divided by its expected number would be off by 70 %.
    assert np.all(error[1:-1] < 0.115 * np.abs(other.mean(0))[1:-1])
    assert np.all(np.abs(np.sum(one == 0, 0) - 0.7 * count) < SIGMAS * np.sqrt(0.21 * count))
    assert not np.any(other == 0)


def test_an_increment_does_not_depend_on_the_samples_of_others():
    """A key gives an increment bitwise the same sum, whatever the others have, whole or fractional.

    The number of clusters of each increment is rounded with its own uniform number, and its paths
    have their own keys. The promise has one exception: the source shares its paths with the
    terminal values, and a path that ends at r uses its normal numbers in another way.
    """
    run = shared_program("cubic with gradient")
    first = run(keys(AT_ONCE, 4), ALL)
    changes = 0
    for changed in ("steps", "remainder", "remainder depth", "source"):
        others = np.array([not name.startswith(changed) for name in NAMES])
        for factor in (0.0, 0.37, 3.0):
            second = run(keys(AT_ONCE, 4), np.where(others, ALL, np.float32(factor) * ALL))
            np.testing.assert_array_equal(first.value[:, others], second.value[:, others])
            if changed != "source":  # the derivatives of the source count as those of `TERMINAL`
                assert np.array_equal(first.gradient[:, others], second.gradient[:, others])
            changes += np.any(first.value[:, ~others] != second.value[:, ~others])
    assert changes == 12
    without = run(keys(AT_ONCE, 4), np.where(np.arange(len(NAMES)) == TERMINAL, 0, ALL))
    assert not np.any(without.value[:, TERMINAL])
    assert np.all(without.value[:, SOURCE] != first.value[:, SOURCE])
    others = np.arange(len(NAMES)) > SOURCE
    np.testing.assert_array_equal(first.value[:, others], without.value[:, others])


def test_results_do_not_depend_on_vmap_or_on_the_order_of_keys():
    """The order changes no bit. `vmap` changes the order of sums, so results agree to rounding."""
    run, some = shared_program("cubic"), keys(AT_ONCE, 5)
    first, backwards = run(some, ALL).value, run(some[::-1], ALL).value
    np.testing.assert_array_equal(first, backwards[::-1])
    assert len(np.unique(first[:, SOURCE])) == len(first)
    together = program(cubic().equation, 3, by_vmap=True)(some, ALL).value
    np.testing.assert_allclose(together, first, rtol=1e-4, atol=1e-5)
