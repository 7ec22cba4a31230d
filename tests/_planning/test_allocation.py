"""Allocation: samples per increment, omitted increments, and `Picard(allocation="measured")`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from helpers import SIGMAS, Tuned, manufactured, replicate
from scasml import Defect, Picard, Problem
from scasml._planning.allocation import allocate
from scasml._planning.policy import DEFAULT_POLICY
from scasml.estimators import Tuning
from scasml.execution import LocalExecutor, Program
from scasml.execution.points import Points
from scasml.execution.row_numbers import RowNumbers, rows_at
from scasml.execution.stopping import StoppingRule
from scasml.surrogates import wrap

PROBLEM, EXACT = manufactured()
X = np.random.default_rng(0).normal(size=(3, 3)).astype(np.float32)
T = np.array([0.1, 0.3, 0.5], np.float32)
WORK = np.array([1e5, 4e5, 1e7])
BOUNDS = np.array([32.0, 32.0, 2.0]), np.array([8192.0, 8192.0, 1024.0])


def good(t, x):
    """Return the solution with an error of 0.02."""
    return EXACT(t, x) + 0.02 * jnp.cos(x[0] - x[1] + t)


def allocation(variance, contribution=None, **rules):
    """Return the allocation at one point where the solution is 1."""
    bound = None if contribution is None else np.array([contribution])
    return allocate(StoppingRule(**rules), BOUNDS, WORK, np.ones(1), np.array([variance]), bound)


def samples(variance, contribution=None, **rules):
    """Return the samples per increment at one point where the solution is 1."""
    return allocation(variance, contribution, **rules).samples[0]


class TestSamples:
    def test_they_are_powers_of_two_within_bounds(self):
        for variance in ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1e30, 1.0, 0.0], [np.nan] * 3):
            got = samples(variance, rtol=1e-3)
            assert np.all((got & (got - 1)) == 0)
            assert np.all(got >= BOUNDS[0])
            assert np.all(got <= BOUNDS[1])

    def test_they_follow_the_variance_and_the_work(self):
        """N_k is proportional to sqrt(v_k/c_k)."""
        got = samples([1.0, 1.0, 1.0], rtol=0.1)
        assert got[0] == 2 * got[1]
        assert got[0] in (8 * got[2], 16 * got[2])
        got = samples([64.0, 1.0, 0.0], rtol=0.03)
        assert got[0] == 16 * got[1]

    @pytest.mark.parametrize("rtol", [0.02, 0.006])
    def test_sixteen_replicates_reach_the_tolerance(self, rtol):
        """The standard error aimed for is half the tolerance.

        The variance of a net of N samples is taken as (32/N)^1.5/N times that of a sample. Powers
        of 2 change N by sqrt(2) at most, and the deviation by 2^0.625.
        """
        variance = np.array([1.0, 2.0, 0.5])
        got = samples(variance, rtol=rtol)
        reduction = (32 / np.max(got)) ** 1.5
        deviation = np.sqrt(np.sum(variance / got) * reduction / 16)
        assert 2**-0.625 < deviation / (rtol / 2) < 2**0.625

    def test_a_replicate_of_cheap_samples_is_as_large_as_its_overhead(self):
        """Its samples take about the work of its overhead.

        If they are cheaper still, they are those of 16 replicates with a variance that falls as
        1/N. The variance of the last increment is negligible here.
        """
        variance = np.array([[1.0, 2.0, 1e-12]])
        rule = StoppingRule(rtol=0.02)
        cheap = lambda work: allocate(rule, BOUNDS, work, np.ones(1), variance).samples[0]
        matching, enough = cheap(WORK / 3e3), cheap(WORK / 1e6)
        overhead = DEFAULT_POLICY.replicate_overhead + matching[2] * WORK[2] / 3e3
        assert 0.6 < matching[:2] @ WORK[:2] / 3e3 / overhead < 1.5
        assert np.max(matching) > 1.9 * np.max(samples(variance[0], rtol=0.02))
        assert 0.7 < np.sqrt(np.sum(variance / enough) / 16) / 0.01 < 1.4


class TestOmission:
    """The last increment, at a tolerance of 0.01."""

    VARIANCE = (1.0, 1.0, 0.01)

    def test_it_is_omitted_if_it_adds_less_than_it_costs(self):
        got = allocation(self.VARIANCE, [1.0, 1.0, 1e-5], rtol=0.01)
        assert got.samples[0, 2] == 0
        assert got.omitted[0] == 1e-5
        assert got.work[0] < allocation(self.VARIANCE, rtol=0.01).work[0]

    @pytest.mark.parametrize("bound", [1e-2, np.nan, 2 * DEFAULT_POLICY.largest_omission * 0.01])
    def test_not_if_its_bound_is_large_or_unknown(self, bound):
        got = allocation(self.VARIANCE, [1.0, 1.0, bound], rtol=0.01)
        assert got.samples[0, 2] > 0
        assert got.omitted[0] == 0

    def test_not_if_it_costs_almost_no_work(self):
        """Its bound is 5 % of the tolerance, and its work is less than 5 % of the work."""
        cheap = allocate(
            StoppingRule(rtol=0.01),
            BOUNDS,
            np.array([100.0, 400.0, 1.0]),
            np.ones(1),
            np.ones((1, 3)),
            np.array([[1, 1, 5e-4]]),
        )
        assert cheap.samples[0, 2] > 0

    def test_not_without_a_rule_for_the_error(self):
        assert samples(self.VARIANCE, [1.0, 1.0, 1e-9], seconds=1.0)[2] > 0
        assert samples(self.VARIANCE, [1.0, 1.0, 1e-9], replicates=32)[2] == 0

    def test_only_if_all_later_increments_are_omitted(self):
        work = np.array([100.0, 400.0, 1e4, 1e4])
        bounds = np.array([32, 32, 2, 2.0]), np.full(4, 8192.0)
        contribution = np.array([[1, 1, 1e-6, 1.0], [1, 1, 1.0, 1e-6], [1, 1, 1e-6, 1e-6]])
        variance = np.tile([1, 1, 0.01, 0.01], (3, 1))
        rule = StoppingRule(rtol=0.01)
        got = allocate(rule, bounds, work, np.ones(3), variance, contribution)
        assert (got.samples[:, 2:] > 0).tolist() == [[True, True], [True, False], [False, False]]


def test_the_work_of_nets_falls_with_their_size():
    """For a rate of 1.5, nets of 32 N points take less work by sqrt(N) than independent samples."""
    variance = np.array([[1.0, 1e-12, 0.0]])
    rule = StoppingRule(rtol=1e-4)
    run = lambda rate: allocate(rule, BOUNDS, WORK, np.ones(1), variance, rate=rate)
    plain, nets = run(1.0), run(1.5)
    np.testing.assert_array_equal(plain.samples, nets.samples)
    larger = plain.samples[0, 0] / DEFAULT_POLICY.net_size
    assert larger > 8
    np.testing.assert_allclose(plain.work / nets.work, np.sqrt(larger), rtol=1e-3)


SMALL = Problem(
    dim=2, horizon=0.5, nonlinearity=lambda t, x, u, z: jnp.sin(u), terminal=lambda x: jnp.cos(x[0])
)


def one_replicate(method, counts=None):
    """Return one replicate, with the given samples per increment, or with the default ones."""
    tuning = Tuning("pathwise", 0, None if counts is None else np.array(counts, np.int32))
    key, x = jax.random.key(3), jnp.zeros(2)
    return jax.jit(lambda: replicate(method, SMALL, key, 0.2, x, False, tuning))()


class TestSamplesAsData:
    @pytest.mark.parametrize("sampling", ["mc", "antithetic", "rqmc"])
    def test_they_are_the_same_samples(self, sampling):
        """Tiles have another size, so replicates agree to rounding.

        Nets of a given number of points are the same, whatever number was allowed for.
        """
        method = Picard(2, 8, gradient="pathwise", sampling=sampling)
        data, fixed = one_replicate(method, [64, 64, 8]), one_replicate(method)
        for a, b in zip(jax.tree.leaves(data), jax.tree.leaves(fixed), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)

    def test_an_omitted_increment_is_zero_and_costs_no_evaluations(self):
        method = Picard(2, 8, gradient="pathwise")
        got = one_replicate(method, [64, 64, 0])
        assert got.increments[2] == 0
        assert got.value == got.increments[0] + got.increments[1]
        tuning = Tuning("pathwise", 0, np.array([64, 64, 0]))
        assert method.evaluations(SMALL, tuning)[2].functions == 0

    def test_an_omitted_level_is_not_compared_with_the_one_before(self):
        """The difference that it would subtract is not reported."""
        assert np.all(one_replicate(Picard(3, 4), [64, 64, 16, 0]).telescoping == 0)

    def test_points_with_different_samples_share_a_program(self):
        """Together they give what each of them gives alone, bit for bit."""
        each = np.array([[32, 64, 2], [64, 32, 0], [128, 32, 2]], np.int32)
        equation = Defect(PROBLEM, wrap(good, PROBLEM))
        method = Picard(2, 8, allocation="measured")
        program = Program(equation, method, Tuning("pathwise", 0), gradient=False)

        def values(counts, at=slice(None)):
            points = Points.of(np.arange(3)[at], T[at], X[at], seed=0)
            row = np.arange(len(points))
            tuning = Tuning("pathwise", 0, counts)
            rows = rows_at(
                points, tuning, RowNumbers(row, np.full_like(row, 7), np.zeros_like(row))
            )
            parts = LocalExecutor().run(program, rows)
            return np.concatenate([part.replicates.value for part in parts])

        together = values(each)
        alone = [values(each[i], slice(i, i + 1))[0] for i in range(3)]
        assert together.tolist() == alone
        assert together.tolist() != values(each[0]).tolist()


class TestMeasured:
    """`Picard(allocation="measured")`; false-fail rates are those of SIGMAS standard errors."""

    METHOD = Picard(2, 8, allocation="measured")

    def test_it_is_right(self):
        options = {"with_gradient": False, "safe": False}
        got = scasml.correct(PROBLEM, good, T, X, method=self.METHOD, rtol=0.004, **options)
        exact = [EXACT(jnp.asarray(a), jnp.asarray(b)) for a, b in zip(T, X, strict=True)]
        assert np.all(np.abs(got.value - exact) < SIGMAS * got.stderr + got.bias)
        assert (got.status == "converged").all()
        assert all(each.tuning.samples.tolist() != [64, 64, 8] for each in got.choices)
        assert got.cost.evaluations.functions > 0
        # The chosen tuning gives the same replicates again.
        chosen = got.choices[0]
        i, again = int(chosen.points[0]), Tuned(chosen.method, chosen.tuning)
        count = int(got.replicates[i])
        repeated = scasml.correct(
            PROBLEM, good, T[i], X[i], method=again, replicates=count, **options
        )
        assert repeated.raw_value == got.raw_value[i]

    def test_a_useless_level_is_omitted_and_its_bound_is_part_of_the_bias(self):
        """F is so flat that level 1 adds about 1e-6, and would be most of the work."""
        flat = Problem(
            dim=2,
            horizon=0.5,
            nonlinearity=lambda t, x, u, z: 1e-6 * jnp.sin(u),
            terminal=lambda x: jnp.cos(x[0]),
        )
        got = scasml.correct(
            flat, None, 0.0, np.zeros(2), method=self.METHOD, rtol=1e-2, with_gradient=False
        )
        assert got.choices[0].tuning.samples[2] == 0
        assert 0 < got.bias < 1e-3
        assert abs(got.value - np.exp(-0.25)) < SIGMAS * got.stderr + got.bias
