"""Sampling: every sample has the right law by itself, designs keep their promises, and means stay unbiased under each."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.stats import qmc

import scasml
from helpers import SIGMAS, heat, manufactured, rough
from scasml import Linearised, Picard
from scasml._sampling import designs as sampling
from scasml._sampling.designs import SAMPLINGS, design, in_halves
from scasml._sampling.normals import normal_of

DIM, STEPS, COUNT = 3, 4, 32
HEADING = jnp.array([-3.0, 1.0, 2.0])


def streams_of(key):
    return lambda k: (jax.random.fold_in(key, 2 * k), jax.random.fold_in(key, 2 * k + 1))


@functools.cache
def all_drawn(kind, of, number_is_data):
    @jax.jit
    def every(keys, number):
        def one(key):
            samples = number if number_is_data else COUNT
            draw = of(kind, streams_of(key), samples, (STEPS, DIM), jnp.zeros(DIM), HEADING)
            return jax.vmap(draw)(jnp.arange(COUNT))

        return jax.lax.map(one, keys, batch_size=200)

    return [
        np.asarray(a) for a in every(jax.random.split(jax.random.key(0), 2000), jnp.asarray(COUNT))
    ]


def drawn(kind, repeats=2000, of=design, number_is_data=False):
    """(repeats, COUNT) uniform numbers, and as many of (STEPS, DIM) normal ones."""
    return (a[:repeats] for a in all_drawn(kind, of, number_is_data))


@pytest.mark.parametrize("of", [design, in_halves])
@pytest.mark.parametrize("kind", SAMPLINGS)
def test_every_sample_has_the_right_law(kind, of):
    """Kolmogorov and Smirnov at 1e-6 on the last sample, every axis; the times of a stratum together make up the interval."""
    uniform, noise = drawn(kind, of=of)
    assert uniform.min() > 0
    assert uniform.max() <= 1
    for number in noise[:, -1].reshape(len(noise), -1).T:
        assert stats.kstest(number, "norm").pvalue > 1e-6
    at_random = uniform[np.arange(len(uniform)), np.arange(len(uniform)) % COUNT]
    assert stats.kstest(at_random, "uniform").pvalue > 1e-6
    numbers = noise[:, 0].reshape(len(noise), -1)
    off = np.corrcoef(numbers.T) - np.eye(STEPS * DIM)
    assert np.abs(off).max() < SIGMAS / np.sqrt(len(noise))


def test_pairs_are_mirrored_and_their_times_stratified():
    uniform, noise = drawn("antithetic", repeats=10)
    np.testing.assert_array_equal(noise[:, 0::2], -noise[:, 1::2])
    np.testing.assert_array_equal(uniform[:, 0::2], uniform[:, 1::2])
    np.testing.assert_array_equal(
        np.sort(np.ceil(uniform[:, 0::2] * COUNT / 2), 1) - 1, np.tile(np.arange(16), (10, 1))
    )


def test_a_net_is_one_on_every_axis():
    uniform, _ = drawn("rqmc", repeats=10)
    np.testing.assert_array_equal(
        np.sort(np.ceil(uniform * COUNT), 1) - 1, np.tile(np.arange(COUNT), (10, 1))
    )


def test_direction_numbers_are_those_of_sobol():
    """The first 64 points on 200 axes, as a set."""
    numbers = sampling._directions(200)
    points = [
        np.bitwise_xor.reduce(numbers[[k for k in range(6) if i >> k & 1]], 0) for i in range(64)
    ]
    expected = qmc.Sobol(200, scramble=False, bits=32).random(64) * 2.0**32
    order = lambda a: np.asarray(sorted(map(tuple, np.asarray(a, np.float64))))
    np.testing.assert_array_equal(order(points), order(expected))


def test_a_scrambled_net_is_a_net():
    """On each pair of the first ten axes, as many of the 64 points in each of 64 boxes as Sobol's own have."""
    numbers = sampling._directions(10)
    net = jax.jit(
        jax.vmap(
            lambda key: jax.vmap(
                lambda i: sampling._point(*sampling._scrambled(numbers[:6], key), i)
            )(jnp.arange(64))
        )
    )
    for points in np.asarray(net(jax.random.split(jax.random.key(0), 5))):
        np.testing.assert_array_equal(
            np.sort(points >> 26, 0), np.tile(np.arange(64)[:, None], (1, 10))
        )
        plain = (qmc.Sobol(10, scramble=False, bits=32).random(64) * 2.0**32).astype(np.uint32)
        for (i, j), bits in itertools.product(itertools.combinations(range(10), 2), range(1, 6)):
            counts = [
                np.sort(np.bincount(boxes(a[:, i], a[:, j], bits), minlength=64))
                for a in (points, plain)
            ]
            np.testing.assert_array_equal(*counts)


def boxes(a, b, bits):
    """Which of 64 boxes, 2^bits along one axis, points lie in."""
    return (a >> (32 - bits)).astype(int) * 2 ** (6 - bits) + (b >> (26 + bits)).astype(int)


def test_the_first_axis_of_a_net_moves_along_the_heading():
    """Along it a mean over 32 ends of paths has a tenth of the noise of independent ones; across it there is no such gain to see."""
    ends = {kind: list(drawn(kind, repeats=500))[1].sum(2) for kind in ("mc", "rqmc")}
    along = HEADING / jnp.linalg.norm(HEADING)
    spread = {kind: (a @ np.asarray(along)).mean(1).std() for kind, a in ends.items()}
    assert spread["rqmc"] < 0.1 * spread["mc"]


def test_a_heading_of_zero_length_is_no_heading():
    draw = design(
        "rqmc", streams_of(jax.random.key(0)), 8, (1, DIM), jnp.zeros(DIM), jnp.zeros(DIM)
    )
    assert np.isfinite(np.asarray(jax.vmap(draw)(jnp.arange(8)).noise)).all()


def test_halves_are_independent():
    """The means over the halves of antithetic or net samples: their correlation is 0 to 6 standard errors."""
    for kind in ("antithetic", "rqmc"):
        uniform, noise = drawn(kind, of=in_halves)
        f = uniform + np.exp(0.5 * noise.sum((2, 3)))
        first, second = f[:, 0::2].mean(1), f[:, 1::2].mean(1)
        assert abs(np.corrcoef(first, second)[0, 1]) < SIGMAS / np.sqrt(len(f))


def test_a_number_of_samples_that_is_data_draws_the_same():
    for kind in SAMPLINGS:
        known, data = (list(drawn(kind, number_is_data=is_data)) for is_data in (False, True))
        for a, b in zip(known, data, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("x64")
def test_normal_numbers_of_bits():
    bits = np.concatenate(
        [np.linspace(0, 2**32 - 1, 1001).astype(np.uint32), 2 ** np.arange(32, dtype=np.uint32)]
    )
    expected = stats.norm.ppf((bits + 0.5) / 2.0**32)
    np.testing.assert_allclose(
        normal_of(jnp.asarray(bits), np.dtype(np.float32)), expected, rtol=4e-4, atol=1e-6
    )
    np.testing.assert_allclose(
        normal_of(jnp.asarray(bits), np.dtype(np.float64)), expected, rtol=1e-9, atol=1e-9
    )


def check_unbiased(method, replicates=200):
    """A linear problem with a wrong surrogate: no bias at all, 6 standard errors, 9e-9 a comparison; fixed seed."""
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
def test_means_stay_unbiased_and_get_less_noisy(make):
    noise = {kind: check_unbiased(make(kind)).stderr for kind in SAMPLINGS}
    assert noise["antithetic"] < 0.8 * noise["mc"]
    assert noise["rqmc"] < 0.5 * noise["mc"]


@pytest.mark.parametrize("kind", ["mc", "rqmc", pytest.param("antithetic", marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [Picard, Linearised])
def test_weights_stay_unbiased(make, kind):
    """Centred by the other samples only where these are independent: by its mirror image a gradient would come out too large."""
    levels = {"levels": 1} if make is Picard else {}
    check_unbiased(make(samples=4, gradient="centred", sampling=kind, **levels), 4000)


@pytest.mark.parametrize(("kind", "pairs"), [("antithetic", False), ("rqmc", True)])
@pytest.mark.slow
def test_a_nonlinear_problem(kind, pairs):
    """With halves inside F: the same answer as by independent samples, 6 standard errors of the difference."""
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
    one, other = run("mc"), run(kind)
    assert (
        abs(one.value - other.value)
        < SIGMAS * np.hypot(one.stderr, other.stderr) + one.bias + other.bias
    )
    assert other.stderr < one.stderr


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Picard(2, 10, sampling="antithetic"), ["samples", "10", "12"]),
        (lambda: Picard(2, 10, sampling="rqmc"), ["samples", "10", "16"]),
        (lambda: Linearised(samples=100), ["samples", "100", "128"]),
        (lambda: Linearised(remainder=6), ["remainder", "6", "8"]),
        (lambda: Linearised(remainder=7, sampling="mc"), ["remainder", "7"]),
        (lambda: Linearised(sampling="sobol"), ["sampling", "sobol", "rqmc"]),
        (lambda: Linearised(steps=3), ["steps", "3"]),
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
def test_bad_numbers(make, words):
    with pytest.raises(scasml.ScasmlError) as raised:
        make()
    assert all(word in str(raised.value) for word in words)
