"""Conformance of estimators to the interface: shapes, sums, cost and work of a replicate."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from outside import MonteCarlo

from helpers import replicate
from scasml import Linearised, Picard, Problem
from scasml.estimators import (
    AbstractEstimator,
    AbstractLevelled,
    AbstractTunable,
    Evaluations,
    Tuning,
    total_evaluations,
)

LINEAR = Problem(dim=2, horizon=1.0, diffusion=0.5, terminal=lambda x: jnp.cos(x[0]))
NONLINEAR = Problem(
    dim=2,
    horizon=1.0,
    diffusion=0.5,
    nonlinearity=lambda t, x, u, z: jnp.sin(u) + 0.1 * z @ z,
    terminal=lambda x: jnp.cos(x[0]),
)
CASES = {
    "one level": (Picard(1, 3), NONLINEAR),
    "two levels": (Picard(2, 2), NONLINEAR),
    "three levels": (Picard(3, 2), NONLINEAR),
    "quadrature": (Picard(2, 2, time="quadrature", nodes=2), NONLINEAR),
    "weights": (Picard(2, 2, gradient="weights"), NONLINEAR),
    "mixed": (Picard(2, 4, gradient="mixed", sampling="rqmc"), NONLINEAR),
    "pairs": (Picard(2, 2, pairs=True), NONLINEAR),
    "measured": (Picard(2, 4, allocation="measured"), NONLINEAR),
    "steps": (Picard(2, 2, steps=2), NONLINEAR),
    "picard, linear": (Picard(2, 2), LINEAR),
    "linearised": (Linearised(2, 8), NONLINEAR),
    "linearised, weights": (Linearised(2, 8, gradient="centred", sampling="mc"), NONLINEAR),
    "linearised, no remainder": (Linearised(2, 8, remainder=0), NONLINEAR),
    "linearised, linear": (Linearised(samples=8), LINEAR),
    "outside": (MonteCarlo(), LINEAR),
}
each_case = pytest.mark.parametrize("case", CASES)


def test_an_estimator_has_six_abstract_members():
    assert AbstractEstimator.__abstractmethods__ == {
        "increments",
        "default_tuning",
        "replicate",
        "evaluations",
        "work",
        "level_bias",
    }


@each_case
@pytest.mark.parametrize("gradient", [False, True])
def test_shapes_of_a_replicate(case, gradient):
    """They are found by abstract evaluation, without compilation."""
    estimator, equation = CASES[case]
    names = estimator.increments
    assert all(isinstance(name, str) for name in names)
    assert len(set(names)) == len(names)
    got = jax.eval_shape(
        lambda key, t, x: replicate(estimator, equation, key, t, x, gradient),
        jax.random.key(0),
        jnp.zeros(()),
        jnp.zeros(2),
    )
    assert got.value.shape == ()
    assert got.increments.shape == got.sizes.shape == (len(names),)
    assert got.telescoping.ndim == 1
    assert got.value.dtype == got.increments.dtype == jnp.float32
    is_levelled = isinstance(estimator, AbstractLevelled)
    assert got.square.shape == (len(names),) if is_levelled else got.square is None
    if gradient:
        assert got.gradient.shape == (2,)
        slopes = got.gradient_increments
        assert slopes is None if is_levelled else slopes.shape == (len(names), 2)
    else:
        assert got.gradient is None
        assert got.gradient_increments is None


@pytest.mark.parametrize(
    "case", ["two levels", "weights", "pairs", "linearised", "linearised, linear", "outside"]
)
def test_value_and_gradient_are_sums_of_increments(case):
    """Two calls with one key agree, and another key gives another replicate."""
    estimator, equation = CASES[case]
    run = jax.jit(
        lambda seed: replicate(estimator, equation, jax.random.key(seed), 0.1, jnp.ones(2))
    )
    got, again, other = run(0), run(0), run(1)
    np.testing.assert_allclose(got.value, jnp.sum(got.increments), rtol=1e-5, atol=1e-6)
    if got.gradient_increments is not None:
        slope = jnp.sum(got.gradient_increments, 0)
        np.testing.assert_allclose(got.gradient, slope, rtol=1e-4, atol=1e-5)
    assert np.all(np.abs(got.increments) <= got.sizes * (1 + 1e-5) + 1e-6)
    if got.square is not None:
        assert np.all(np.square(got.sizes) <= got.square * (1 + 1e-5) + 1e-6)
    jax.tree.map(np.testing.assert_array_equal, got, again)
    assert got.value != other.value


@each_case
def test_evaluations_and_work(case):
    """An increment has a cost if and only if it has work, and both count in samples."""
    estimator, equation = CASES[case]
    tuning = estimator.default_tuning(equation, True)
    assert isinstance(tuning, Tuning)
    evaluations, work = (
        estimator.evaluations(equation, tuning),
        estimator.work(equation, tuning, True),
    )
    assert len(evaluations) == len(work) == len(estimator.increments)
    assert all(isinstance(each, Evaluations) for each in evaluations)
    for each, of_sample in zip(evaluations, work, strict=True):
        assert min(each) >= 0
        if each.functions:
            assert of_sample > 0
    assert evaluations[0].terminal > 0
    ten = total_evaluations(estimator, equation, tuning, np.array([4, 6]))
    assert ten == [each.times(10) for each in evaluations]


@each_case
@pytest.mark.parametrize("leading", [(), (4,), (4, 3)])
def test_the_level_bias(case, leading):
    """It has one entry per set of increments, at least zero or NaN, and zero if F is linear."""
    estimator, equation = CASES[case]
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(*leading, len(estimator.increments)))
    bias = estimator.level_bias(equation, mean, 2 * np.abs(mean))
    assert np.shape(bias) == leading
    assert np.all(np.isnan(bias) | (bias >= 0))
    if equation is LINEAR:
        assert np.all(bias == 0)


@pytest.mark.parametrize(
    "case", [name for name, (method, _) in CASES.items() if isinstance(method, AbstractTunable)]
)
def test_what_a_pilot_needs(case):
    estimator, equation = CASES[case]
    tuning, count = estimator.pilot_tuning(equation, "pathwise"), len(estimator.increments)
    default = estimator.default_tuning(equation, True)
    assert tuning.gradient == "pathwise"
    if default.samples is not None:
        assert np.all(tuning.samples <= default.samples)
    fewest, most = estimator.sample_bounds()
    assert len(fewest) == len(most) == count
    assert np.all(fewest <= most)
    assert (estimator.step_order(equation) == 0) == (default.steps == 0)
    assert estimator.derivative_order(equation, True) >= estimator.derivative_order(equation, False)
    assert all(len(pair) == 2 for pair in estimator.bias_variants(equation))
    of_u, _ = estimator.max_steepness
    assert not estimator.exceeds_max_steepness(np.zeros(1), np.zeros(1)).any()
    assert estimator.exceeds_max_steepness(np.full(1, 2 * of_u), np.zeros(1)).all()


@pytest.mark.parametrize(
    "case", [name for name, (method, _) in CASES.items() if isinstance(method, AbstractLevelled)]
)
def test_levels(case):
    """Each increment is a base increment, or belongs to at most one telescoping sum."""
    estimator, equation = CASES[case]
    base = np.flatnonzero(estimator.base_samples)
    tails = [k for tail in estimator.tails(equation).values() for k in tail]
    assert len({*base, *tails}) == len(base) + len(tails)
    assert set(estimator.tails(equation)) == {
        "steps",
        "depth",
        "remainder steps",
        "remainder paths",
    }
    assert len(estimator.clusters) == len(estimator.increments)
    assert np.all(estimator.clusters >= 1)
    evaluations = estimator.evaluations(equation, estimator.default_tuning(equation, True))
    costs = np.array([each.functions > 0 for each in evaluations])
    assert not costs[tails].any()
