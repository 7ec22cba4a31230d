"""Tests of designs: the distribution of single samples, the structure of a design, and the means.

The distribution of the samples must be right, and means must be unbiased, under every design.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import scasml
from helpers import SIGMAS, heat, manufactured, rough
from scasml import Linearised, Picard
from scasml._sampling.designs import SAMPLINGS, design, in_halves

DIM, STEPS, COUNT = 3, 4, 32
HEADING = jnp.array([-3.0, 1.0, 2.0])


def streams_of(key):
    return lambda k: (jax.random.fold_in(key, 2 * k), jax.random.fold_in(key, 2 * k + 1))


@functools.cache
def all_draws(kind, make, number_is_traced):
    @jax.jit
    def draw_all(keys, number):
        def one(key):
            samples = number if number_is_traced else COUNT
            draw = make(kind, streams_of(key), samples, (STEPS, DIM), jnp.zeros(DIM), HEADING)
            return jax.vmap(draw)(jnp.arange(COUNT))

        return jax.lax.map(one, keys, batch_size=200)

    return [
        np.asarray(a)
        for a in draw_all(jax.random.split(jax.random.key(0), 2000), jnp.asarray(COUNT))
    ]


def draws(kind, repetitions=2000, make=design, number_is_traced=False):
    """Return uniform numbers (repetitions, COUNT) and normals (repetitions, COUNT, STEPS, DIM)."""
    return (a[:repetitions] for a in all_draws(kind, make, number_is_traced))


@pytest.mark.parametrize("make", [design, in_halves])
@pytest.mark.parametrize("kind", SAMPLINGS)
def test_every_sample_has_the_right_distribution(kind, make):
    """Kolmogorov-Smirnov tests at 1e-6 on each axis of the last sample, and on the times.

    A stratified time is uniform only on its stratum, so the times are taken from all strata.
    """
    uniform, noise = draws(kind, make=make)
    assert uniform.min() > 0
    assert uniform.max() <= 1
    for number in noise[:, -1].reshape(len(noise), -1).T:
        assert stats.kstest(number, "norm").pvalue > 1e-6
    all_strata = uniform[np.arange(len(uniform)), np.arange(len(uniform)) % COUNT]
    assert stats.kstest(all_strata, "uniform").pvalue > 1e-6
    numbers = noise[:, 0].reshape(len(noise), -1)
    correlations = np.corrcoef(numbers.T) - np.eye(STEPS * DIM)
    assert np.abs(correlations).max() < SIGMAS / np.sqrt(len(noise))


def test_antithetic_pairs_are_opposite_and_their_times_stratified():
    uniform, noise = draws("antithetic", repetitions=10)
    np.testing.assert_array_equal(noise[:, 0::2], -noise[:, 1::2])
    np.testing.assert_array_equal(uniform[:, 0::2], uniform[:, 1::2])
    np.testing.assert_array_equal(
        np.sort(np.ceil(uniform[:, 0::2] * COUNT / 2), 1) - 1, np.tile(np.arange(16), (10, 1))
    )


def test_times_of_a_net_are_stratified():
    uniform, _ = draws("rqmc", repetitions=10)
    np.testing.assert_array_equal(
        np.sort(np.ceil(uniform * COUNT), 1) - 1, np.tile(np.arange(COUNT), (10, 1))
    )


def test_first_axis_of_a_net_moves_along_the_heading():
    """Along the heading, a mean over 32 ends of paths has at most a tenth of the noise of mc."""
    ends = {kind: list(draws(kind, repetitions=500))[1].sum(2) for kind in ("mc", "rqmc")}
    along = HEADING / jnp.linalg.norm(HEADING)
    spread = {kind: (a @ np.asarray(along)).mean(1).std() for kind, a in ends.items()}
    assert spread["rqmc"] < 0.1 * spread["mc"]


def test_heading_of_zero_gives_finite_draws():
    draw = design(
        "rqmc", streams_of(jax.random.key(0)), 8, (1, DIM), jnp.zeros(DIM), jnp.zeros(DIM)
    )
    assert np.isfinite(np.asarray(jax.vmap(draw)(jnp.arange(8)).noise)).all()


def test_halves_are_independent():
    """The means over the two halves of a design have no correlation, to 6 standard errors."""
    for kind in ("antithetic", "rqmc"):
        uniform, noise = draws(kind, make=in_halves)
        f = uniform + np.exp(0.5 * noise.sum((2, 3)))
        first, second = f[:, 0::2].mean(1), f[:, 1::2].mean(1)
        assert abs(np.corrcoef(first, second)[0, 1]) < SIGMAS / np.sqrt(len(f))


def test_traced_number_of_samples_gives_the_same_draws():
    for kind in SAMPLINGS:
        static, traced = (
            list(draws(kind, number_is_traced=is_traced)) for is_traced in (False, True)
        )
        for a, b in zip(static, traced, strict=True):
            np.testing.assert_array_equal(a, b)


def check_unbiased(method, replicates=200):
    """Correct a wrong surrogate of a linear problem, whose estimate has no bias.

    Each comparison allows 6 standard errors: a false-fail rate of 9e-9. The seed is fixed.
    """
    problem, exact = heat()
    x = np.array([0.3, -0.2, 0.5], np.float32)[: problem.dim]
    answer = scasml.correct(
        problem, rough, 0.1, x, method=method, replicates=replicates, seed=3, safe=False
    )
    truth, slope = jax.value_and_grad(exact, 1)(jnp.asarray(0.1), jnp.asarray(x, jnp.float32))
    assert abs(answer.value - truth) < SIGMAS * answer.stderr + 2e-6
    assert np.all(np.abs(answer.gradient - slope) < SIGMAS * answer.gradient_stderr + 4e-6)
    return answer


@pytest.mark.parametrize(
    "make",
    [lambda kind: Picard(1, 64, sampling=kind), lambda kind: Linearised(samples=64, sampling=kind)],
)
def test_means_are_unbiased_and_less_noisy_than_mc(make):
    noise = {kind: check_unbiased(make(kind)).stderr for kind in SAMPLINGS}
    assert noise["antithetic"] < 0.8 * noise["mc"]
    assert noise["rqmc"] < 0.5 * noise["mc"]


@pytest.mark.parametrize("kind", ["mc", "rqmc", pytest.param("antithetic", marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [Picard, Linearised])
def test_centred_weights_are_unbiased(make, kind):
    """A term is centred only by independent samples.

    If a term were centred by its antithetic partner, the gradient would be too large.
    """
    levels = {"levels": 1} if make is Picard else {}
    check_unbiased(make(samples=4, gradient="centred", sampling=kind, **levels), 4000)


@pytest.mark.parametrize(("kind", "pairs"), [("antithetic", False), ("rqmc", True)])
@pytest.mark.slow
def test_nonlinear_problem_agrees_with_mc(kind, pairs):
    """`in_halves` is used inside F. The difference is at most 6 standard errors and the biases."""
    problem, _ = manufactured()
    x = np.array([0.2, -0.4, 0.3], np.float32)
    run = lambda kind: scasml.correct(
        problem,
        rough,
        0.1,
        x,
        method=Picard(2, 16, sampling=kind, pairs=pairs),
        replicates=100,
        with_gradient=False,
        safe=False,
    )
    independent, dependent = run("mc"), run(kind)
    assert (
        abs(independent.value - dependent.value)
        < SIGMAS * np.hypot(independent.stderr, dependent.stderr)
        + independent.bias
        + dependent.bias
    )
    assert dependent.stderr < independent.stderr


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Picard(2, 10, sampling="antithetic"), ["samples", "10", "12"]),
        (lambda: Picard(2, 10, sampling="rqmc"), ["samples", "10", "16"]),
        (lambda: Linearised(samples=100), ["samples", "100", "128"]),
        (lambda: Linearised(remainder=7), ["remainder", "7", "8"]),
        (lambda: Linearised(sampling="sobol"), ["sampling", "sobol", "rqmc"]),
        (lambda: Linearised(steps=6), ["steps", "6", "power of two", "1024"]),
        (lambda: Linearised(steps=2048), ["steps", "2048", "1024"]),
        (lambda: Linearised(gradient="mixed"), ["gradient", "mixed", "centred"]),
        (lambda: Linearised(gradient="weights"), ["gradient", "weights", "pathwise"]),
        (lambda: Linearised(samples=2**24), ["samples", "2^24"]),
        (lambda: Linearised(samples=2**17), ["samples", "131072", "2^16"]),
        (lambda: Picard(2, 512, sampling="rqmc"), ["samples", "512**2", "2^16"]),
        (lambda: Picard(2, 5, pairs=True), ["samples", "5", "6"]),
        (lambda: Picard(2, 10, allocation="best"), ["allocation", "best", "measured"]),
        (lambda: Picard(2, 4, pairs=True, threshold=0.5), ["threshold", "0.5", "pairs"]),
        (
            lambda: Picard(2, 8, sampling="rqmc", time="quadrature"),
            ["sampling", "rqmc", "full-history"],
        ),
    ],
)
def test_bad_options_are_refused(make, words):
    """The message contains the argument, the received value and a remedy."""
    with pytest.raises(scasml.ScasmlError) as raised:
        make()
    assert all(word in str(raised.value) for word in words)
