"""How many samples of each increment are taken, which are left out, and that a Picard iteration by such numbers is right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import SIGMAS, manufactured, setting
from scasml import Defect, Linearised, Picard, Problem
from scasml._planning.allocation import COUNTED_ON, LEFT_OUT, NET, REPLICATE, allocate
from scasml._planning.task import Control
from scasml._planning.tuning import Trial
from scasml.execution import Kernel
from scasml.execution.stopping import Budget
from scasml.surrogates.wrapping import wrap

PROBLEM, EXACT = manufactured()
X = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
T = np.array([0.1, 0.3, 0.5], np.float32)
WORK = np.array([1e5, 4e5, 1e7])
BOUNDS = np.array([32.0, 32.0, 2.0]), np.array([8192.0, 8192.0, 1024.0])


def good(t, x):
    return EXACT(t, x) + 0.02 * jnp.cos(x[0] - x[1] + t)


def allocation(variance, adds=None, **rules):
    adds = None if adds is None else np.array([adds])
    return allocate(Budget(**rules), BOUNDS, WORK, np.ones(1), np.array([variance]), adds)


def counts(variance, adds=None, **rules):
    return allocation(variance, adds, **rules).counts[0]


class TestCounts:
    def test_they_are_powers_of_two_within_bounds(self):
        for variance in ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1e30, 1.0, 0.0], [np.nan] * 3):
            got = counts(variance, rtol=1e-3)
            assert np.all((got & (got - 1)) == 0)
            assert np.all(got >= BOUNDS[0])
            assert np.all(got <= BOUNDS[1])

    def test_they_follow_the_variance_and_the_work(self):
        """N_k ~ sqrt(v_k/c_k): four times the work, half as many; a hundred times the variance, ten times as many."""
        got = counts([1.0, 1.0, 1.0], rtol=0.1)
        assert got[0] == 2 * got[1]
        assert got[0] in (8 * got[2], 16 * got[2])
        assert counts([64.0, 1.0, 0.0], rtol=0.03)[0] == 16 * counts([64.0, 1.0, 0.0], rtol=0.03)[1]

    @pytest.mark.parametrize("rtol", [0.02, 0.006])
    def test_they_are_as_many_as_the_tolerance_takes(self, rtol):
        """For a standard error of half the tolerance: were the variance of a net (32/N)^1.5/N that of a sample, 16 replicates would do, to the
        rounding of powers of two: N is off by sqrt(2) at most, the deviation by 2^0.625."""
        variance = np.array([1.0, 2.0, 0.5])
        got = counts(variance, rtol=rtol)
        smaller = (32 / np.max(got)) ** 1.5
        assert 2**-0.625 < np.sqrt(np.sum(variance / got) * smaller / 16) / (rtol / 2) < 2**0.625

    def test_a_replicate_of_cheap_samples_is_worth_its_scrambles(self):
        """Its samples take about as long, or are as many as leave 16 replicates, were the variance N^-1. Here none of the last increment."""
        variance = np.array([[1.0, 2.0, 1e-12]])
        cheap = lambda work: allocate(Budget(rtol=0.02), BOUNDS, work, np.ones(1), variance).counts[
            0
        ]
        some, all_of_them = cheap(WORK / 3e3), cheap(WORK / 1e6)
        assert 0.6 < some[:2] @ WORK[:2] / 3e3 / (REPLICATE + some[2] * WORK[2] / 3e3) < 1.5
        assert np.max(some) > 1.9 * np.max(counts(variance[0], rtol=0.02))
        assert 0.7 < np.sqrt(np.sum(variance / all_of_them) / 16) / 0.01 < 1.4


class TestLeftOut:
    """Of the last increment, at a tolerance of 0.01."""

    VARIANCE = (1.0, 1.0, 0.01)

    def test_where_it_adds_less_than_it_costs(self):
        got = allocation(self.VARIANCE, [1.0, 1.0, 1e-5], rtol=0.01)
        assert got.counts[0, 2] == 0
        assert got.left_out[0] == 1e-5
        assert got.work[0] < allocation(self.VARIANCE, rtol=0.01).work[0]

    @pytest.mark.parametrize("adds", [1e-2, np.nan, 2 * LEFT_OUT * 0.01])
    def test_not_where_it_would_show_or_is_unknown(self, adds):
        got = allocation(self.VARIANCE, [1.0, 1.0, adds], rtol=0.01)
        assert got.counts[0, 2] > 0
        assert got.left_out[0] == 0

    def test_not_where_it_costs_next_to_nothing(self):
        """Its share of the tolerance is 5 %, that of the work below."""
        cheap = allocate(
            Budget(rtol=0.01),
            BOUNDS,
            np.array([100.0, 400.0, 1.0]),
            np.ones(1),
            np.ones((1, 3)),
            np.array([[1, 1, 5e-4]]),
        )
        assert cheap.counts[0, 2] > 0

    def test_not_without_a_rule_that_says_how_exact(self):
        assert counts(self.VARIANCE, [1.0, 1.0, 1e-9], seconds=1.0)[2] > 0
        assert counts(self.VARIANCE, [1.0, 1.0, 1e-9], replicates=32)[2] == 0

    def test_only_from_the_last_on(self):
        work, bounds = (
            np.array([100.0, 400.0, 1e4, 1e4]),
            (np.array([32, 32, 2, 2.0]), np.full(4, 8192.0)),
        )
        adds = np.array([[1, 1, 1e-6, 1.0], [1, 1, 1.0, 1e-6], [1, 1, 1e-6, 1e-6]])
        got = allocate(
            Budget(rtol=0.01), bounds, work, np.ones(3), np.tile([1, 1, 0.01, 0.01], (3, 1)), adds
        )
        assert (got.counts[:, 2:] > 0).tolist() == [[True, True], [True, False], [False, False]]


SMALL = Problem(
    dim=2, horizon=0.5, nonlinearity=lambda t, x, u, z: jnp.sin(u), terminal=lambda x: jnp.cos(x[0])
)


def replicate(method):
    run = jax.jit(
        lambda: method.replicate(SMALL, jax.random.key(3), jnp.asarray(0.2), jnp.zeros(2), False)
    )
    return run()


@pytest.mark.parametrize("sampling", ["mc", "antithetic", "rqmc"])
def test_numbers_that_are_data_give_the_same_samples(sampling):
    """In tiles of another size, so to rounding; but nets of so many points are the same at any length."""
    method = Picard(2, 8, gradient="pathwise", sampling=sampling)
    got = replicate(method.allot(np.array([64, 64, 8], np.int32)))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(replicate(method)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)


def test_an_increment_left_out_is_zero_and_takes_no_evaluations():
    method = Picard(2, 8, gradient="pathwise").allot(np.array([64, 64, 0], np.int32))
    got = replicate(method)
    assert got.increments[2] == 0
    assert got.value == got.increments[0] + got.increments[1]
    assert method.costs(SMALL)[2].functions == 0


def right(got):
    exact = [EXACT(jnp.asarray(a), jnp.asarray(b)) for a, b in zip(T, X, strict=True)]
    return np.abs(got.value - exact) < SIGMAS * got.stderr + got.bias


def test_measured():
    """False-fail rate as everywhere here that of SIGMAS standard errors at three points."""
    method = Picard(2, 8, allocation="measured")
    got = scasml.correct(
        PROBLEM, good, T, X, method=method, rtol=0.004, safe=False, with_gradient=False
    )
    assert right(got).all()
    assert (got.status == "converged").all()
    chosen = [each.method for each in got.choices]
    assert all(each.counts.tolist() != [64, 64, 8] for each in chosen)
    assert got.cost.evaluations.functions > 0
    # What was chosen can be asked for.
    i = int(got.choices[0].points[0])
    options = {"replicates": int(got.replicates[i]), "with_gradient": False, "safe": False}
    again = scasml.correct(PROBLEM, good, T[i], X[i], method=chosen[0], **options)
    assert again.raw_value == got.raw_value[i]


def test_a_useless_level_is_not_taken_and_is_stated():
    """F is so flat that level 1 adds about 1e-6: it would be most of the work."""
    flat = Problem(
        dim=2,
        horizon=0.5,
        nonlinearity=lambda t, x, u, z: 1e-6 * jnp.sin(u),
        terminal=lambda x: jnp.cos(x[0]),
    )
    method = Picard(2, 8, allocation="measured")
    got = scasml.correct(
        flat, None, 0.0, np.zeros(2), method=method, rtol=1e-2, with_gradient=False
    )
    assert got.choices[0].method.counts[2] == 0
    assert 0 < got.bias < 1e-3
    assert abs(got.value - np.exp(-0.25)) < SIGMAS * got.stderr + got.bias


def test_a_level_left_out_raises_no_alarm():
    """Of the differences that telescope, the one that it would take off is not reported."""
    method = Picard(3, 4).allot(np.array([64, 64, 16, 0], np.int32))
    assert np.all(replicate(method).telescoping == 0)


def test_every_point_has_its_own_numbers():
    """One kernel for points with different ones gives what each of them has alone, bit for bit."""
    each = np.array([[32, 64, 2], [64, 32, 0], [128, 32, 2]], np.int32)
    equation, method = Defect(PROBLEM, wrap(good, PROBLEM)), Linearised(2, gradient="pathwise")

    def values(counts, rows):
        kernel = Kernel(equation, method.allot(counts), T[rows], X[rows], seed=0, gradient=False)
        point = np.arange(len(T[rows]))
        return np.concatenate([row.value for _, row in kernel.run(point, 7 + 0 * point, 0 * point)])

    together = values(each, slice(None))
    alone = [values(each[i], slice(i, i + 1))[0] for i in range(3)]
    assert together.tolist() == alone
    assert together.tolist() != values(each[0], slice(None)).tolist()


def test_a_variance_of_few_replicates_is_thought_larger():
    """By Jeffreys' prior its mean is (n - 1)/(n - 3) times what they show: three times that of four."""
    asked = setting(SMALL, np.zeros(1, np.float32), np.zeros((1, 2), np.float32), Budget(rtol=1e-6))
    control = Control("nothing", SMALL, None)
    trial = Trial(asked, control, Linearised(gradient="pathwise"), np.arange(1))
    seen = trial.run.variance * trial.thin.counts
    work = lambda variance: (
        allocate(
            asked.budget, trial.thin.bounds, trial.work, trial.run.value, variance, rate=COUNTED_ON
        ).work
    )
    np.testing.assert_allclose(
        trial.allocation.work, work(3 * seen), rtol=0.5
    )  # but for what may be left out
    assert trial.allocation.work > 2 * work(seen)


def test_nets_are_counted_on_to_gain_by_their_size():
    """As N^-1.5: of nets of 32 N times as many points the work is less by sqrt(N); of independent samples it is not."""
    variance = np.array([[1.0, 1e-12, 0.0]])
    run = lambda rate: allocate(Budget(rtol=1e-4), BOUNDS, WORK, np.ones(1), variance, rate=rate)
    plain, nets = run(1.0), run(1.5)
    np.testing.assert_array_equal(plain.counts, nets.counts)
    larger = plain.counts[0, 0] / NET
    assert larger > 8
    np.testing.assert_allclose(plain.work / nets.work, np.sqrt(larger), rtol=1e-3)
