"""correct: an answer depends on the seed and on the point and on nothing else."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from correct_case import (
    EXACT,
    HEAT,
    METHOD,
    NUMBERS,
    PROBLEM,
    T,
    X,
    answer,
    check_same_bits,
    correct,
)
from helpers import rough
from scasml import Picard
from scasml._equations.defect import Defect
from scasml._support.precision import cast
from scasml.estimators.base import ORDINARY
from scasml.execution import Kernel
from scasml.execution.moments import Groups, Moments
from scasml.surrogates import wrap


class TestNothingElseMatters:
    @pytest.mark.parametrize("chunk", [1, 7, 64, None])
    def test_chunk(self, chunk):
        check_same_bits(answer(), correct(chunk=chunk))

    def test_order(self):
        order = np.random.default_rng(1).permutation(len(T))
        check_same_bits(answer(), correct(T[order], X[order], chunk=4), order)

    def test_company(self):
        """One point alone, as a batch of one and as a scalar query."""
        check_same_bits(answer(), correct(T[3:4], X[3:4]), slice(3, 4))
        check_same_bits(answer(), correct(T[3], X[3]), 3)

    def test_duplicates(self):
        rows = np.array([2, 5, 2, 2, 5])
        check_same_bits(answer(), correct(T[rows], X[rows]), rows)

    def test_more_points_than_the_kernel_holds(self):
        rows = np.arange(300) % len(T)
        check_same_bits(answer(), correct(T[rows], X[rows]), rows)

    def test_points_at_the_horizon_do_not_disturb(self):
        t, x = np.append(T, 0.8), np.concatenate([X, X[:1]])
        many = correct(np.roll(t, 1), np.roll(x, 1, 0))
        for name in NUMBERS:
            assert getattr(many, name)[1:].tobytes() == getattr(answer(), name).tobytes()

    def test_minus_zero(self):
        plus, minus = np.zeros(3), np.array([-0.0, 0.0, -0.0])
        check_same_bits(correct([0.0], plus), correct([-0.0], minus))

    @pytest.mark.parametrize("kind", [list, np.float64, jnp.asarray])
    def test_kind_of_array(self, kind):
        as_kind = lambda a: a.tolist() if kind is list else kind(a)
        check_same_bits(answer(), correct(as_kind(T), as_kind(X)))

    def test_x64_flag(self):
        """Set for this thread, and set for the process."""
        with jax.enable_x64(True):
            check_same_bits(answer(), correct())
        before = jax.config.jax_enable_x64
        jax.config.update("jax_enable_x64", not before)
        try:
            check_same_bits(answer(), correct())
        finally:
            jax.config.update("jax_enable_x64", before)

    def test_again(self):
        check_same_bits(answer(), correct())

    def test_seed(self):
        """Another seed is another answer at every point, from the same surrogate."""
        other = correct(seed=1)
        assert np.all(other.value != answer().value)
        assert np.all(other.stderr != answer().stderr)
        np.testing.assert_array_equal(other.surrogate_value, answer().surrogate_value)

    def test_neighbouring_points_have_streams_of_their_own(self):
        """Two points a rounding apart draw different numbers."""
        near = np.nextafter(X[0], np.float32(9))
        pair = correct(np.full(2, T[0]), np.stack([X[0], near]))
        assert abs(pair.value[0] - pair.value[1]) > 1e-4


class TestReplicates:
    @staticmethod
    def rows(replicates, **options):
        """value and gradient of each replicate, (R, 9) and (R, 9, 3), straight from the engine."""
        kind = np.dtype("float32")
        equation = Defect(cast(PROBLEM, kind), cast(wrap(rough, PROBLEM), kind))
        value, gradient = (
            np.full((len(replicates), 9), np.nan),
            np.full((len(replicates), 9, 3), np.nan),
        )
        point, row = (
            np.tile(np.arange(9), len(replicates)),
            np.repeat(np.arange(len(replicates)), 9),
        )
        kernel = Kernel(equation, METHOD, T, X, seed=0, gradient=True, **options)
        at = 0
        for part, out in kernel.run(point, replicates.start + row, np.full(len(point), ORDINARY)):
            assert part.start == at
            at = part.stop
            value[row[part], point[part]], gradient[row[part], point[part]] = (
                out.value,
                out.gradient,
            )
        assert at == len(point)
        return value, gradient

    def test_a_replicate_is_the_same_row_in_any_range(self):
        value, gradient = self.rows(range(8))
        assert np.isfinite(value).all()
        assert len(np.unique(value)) == value.size
        for some, options in (
            (range(3, 8), {}),
            (range(5), {"chunk": 4}),
            (range(6, 7), {"chunk": 100}),
        ):
            part = self.rows(some, **options)
            np.testing.assert_array_equal(part[0], value[some.start : some.stop])
            np.testing.assert_array_equal(part[1], gradient[some.start : some.stop])

    def test_more_replicates_extend_the_earlier_ones(self):
        """The answer from 5 replicates, and from 8, is the mean of the first 5, and of all 8, of the same rows."""
        value, gradient = self.rows(range(8))
        for count, got in ((5, answer()), (8, correct(replicates=8))):
            moments, slopes = Moments((9,)), Moments((9, 3))
            for v, g in zip(value[:count], gradient[:count], strict=True):
                moments.add(Groups(np.arange(9)), v.astype(np.float64))
                slopes.add(Groups(np.arange(9)), g.astype(np.float64))
            np.testing.assert_array_equal(got.value, got.surrogate_value + moments.mean)
            np.testing.assert_array_equal(got.stderr, moments.stderr)
            np.testing.assert_array_equal(got.gradient_stderr, slopes.stderr)
            np.testing.assert_allclose(
                got.stderr, np.std(value[:count], 0, ddof=1) / np.sqrt(count), rtol=1e-12
            )
            np.testing.assert_array_equal(got.replicates, count)

    def test_one(self):
        """A value, no error bar, and the answer says so."""
        for one in (correct(replicates=1), correct(T[0], X[0], replicates=1)):
            assert np.all(np.isfinite(one.value))
            assert np.all(np.isnan(one.stderr))
            assert np.all(np.isnan(one.gradient_stderr))
            assert np.all(np.isnan(one.interval()))
        assert "no error bar from one replicate" in str(one)

    def test_no_stopping_rule(self):
        """About a second of simulation, never fewer than two replicates, and the answer says so."""
        free = correct(replicates=None)
        assert np.all(free.replicates >= 2)
        assert np.ptp(free.replicates) <= 1
        assert "one second" in free.stopped
        assert "one second" in str(free)
        assert free.cost.seconds > 0.3
        assert answer().stopped == "replicates=5"


class TestShapes:
    def test_scalar(self):
        one = correct(T[0], X[0])
        for name in ("t", "value", "stderr", "surrogate_value", "correction", "bias", "replicates"):
            assert np.ndim(getattr(one, name)) == 0
        assert one.x.shape == one.gradient.shape == one.gradient_stderr.shape == (3,)
        assert isinstance(one.status, str)
        assert all(np.ndim(end) == 0 for end in one.interval())

    def test_one_time_for_many_points(self):
        got = correct(0.25, X)
        np.testing.assert_array_equal(got.t, np.full(9, 0.25))
        check_same_bits(correct(np.full(9, 0.25), X), got)

    def test_many_times_at_one_point(self):
        got = correct(T, X[0])
        assert got.x.shape == (9, 3)
        check_same_bits(correct(T, np.stack([X[0]] * 9)), got)

    def test_a_batch_of_one(self):
        got = correct(T[:1], X[0])
        assert got.value.shape == (1,)
        assert got.gradient.shape == (1, 3)


class TestHorizon:
    """At t = T the solution is g: no simulation, no error but of rounding."""

    @staticmethod
    def check(got, x):
        g, slope = jax.vmap(jax.value_and_grad(EXACT, 1), (None, 0))(
            jnp.float32(0.8), jnp.atleast_2d(jnp.asarray(x))
        )
        np.testing.assert_allclose(np.atleast_1d(got.value), g, rtol=1e-6)
        np.testing.assert_allclose(np.atleast_2d(got.gradient), slope, rtol=1e-6)
        assert np.all(np.asarray(got.stderr) == 0)
        assert np.all(np.asarray(got.gradient_stderr) == 0)
        assert np.all(np.asarray(got.bias) < 2e-6)
        assert np.all(np.asarray(got.status) == "converged")
        np.testing.assert_array_equal(got.interval(), [got.value - got.bias, got.value + got.bias])
        assert got.cost.functions == got.cost.random_numbers == got.cost.replicates == 0

    @pytest.mark.parametrize("surrogate", [rough, None])
    @pytest.mark.parametrize("options", [{}, {"method": "auto"}, {"replicates": None}])
    def test_every_point(self, options, surrogate):
        self.check(correct(0.8, X, surrogate, **options), X)

    def test_scalar(self):
        got = correct(0.8, X[0])
        self.check(got, X[0])
        assert f"{got.value:.4f}" in str(got)

    def test_among_others(self):
        t = np.where(np.arange(9) % 2 == 0, np.float32(0.8), T)
        got = correct(t, X)
        np.testing.assert_array_equal(got.status == "converged", t == np.float32(0.8))
        check_same_bits(
            correct(0.8, X[::2]),
            types.SimpleNamespace(**{n: getattr(got, n)[::2] for n in NUMBERS}),
        )
        check_same_bits(
            answer(),
            types.SimpleNamespace(**{n: getattr(got, n)[1::2] for n in NUMBERS}),
            slice(1, None, 2),
        )


class TestMeaning:
    def test_no_surrogate(self):
        got = correct(T / 2, X, None, HEAT, method=Picard(1, 4))
        assert np.all(got.surrogate_value == 0)
        np.testing.assert_array_equal(got.value, got.correction)
        assert "none" in str(got)
        assert not got.has_surrogate

    def test_a_surrogate_is_corrected(self):
        got = answer()
        values = jax.vmap(rough)(T, X)
        np.testing.assert_allclose(got.surrogate_value, values, rtol=2e-6, atol=1e-7)
        np.testing.assert_array_equal(got.correction, got.value - got.surrogate_value)

    def test_an_already_wrapped_surrogate(self):
        check_same_bits(answer(), correct(surrogate=wrap(rough, PROBLEM)))

    def test_without_the_gradient(self):
        """Another program, so another rounding: the same numbers to a few units of float32."""
        one, other = (
            correct(T / 2, X, None, HEAT, method=Picard(1, 4), with_gradient=w)
            for w in (True, False)
        )
        assert other.gradient is other.gradient_stderr is None
        np.testing.assert_allclose(one.value, other.value, rtol=1e-6)
        np.testing.assert_allclose(one.stderr, other.stderr, rtol=1e-4)
        assert not any(name.startswith("gradient") for name in other.columns(gradient=True))
        assert "u" in str(other)

    def test_float64(self):
        """An exact surrogate leaves rounding only: 1e-10 is a thousand times less than float32 holds."""
        x = np.array([0.1, -0.7, 1 / 3])
        got = correct(0.1, x, EXACT, method=Picard(1, 2), dtype="float64", with_gradient=False)
        assert abs(got.value - np.sin(np.linspace(0.4, 0.9, 3) @ x + 0.1)) < 1e-10
        assert abs(got.correction) < 1e-10
        np.testing.assert_array_equal(got.x, x)
        assert got.t == 0.1

    def test_interval(self):
        """Student's, with one degree of freedom less than replicates, and symmetric."""
        got = answer()
        for level in (0.5, 0.95):
            lower, upper = got.interval(level, include_bias=False)
            half = stats.t.ppf((1 + level) / 2, 4) * got.stderr
            np.testing.assert_allclose(upper - got.value, half, rtol=1e-9)
            np.testing.assert_allclose(got.value - lower, half, rtol=1e-9)

    def test_cost(self):
        got = answer()
        one, last = METHOD.cost(PROBLEM), METHOD.costs(PROBLEM)[-1]
        assert got.cost.replicates == 45
        # Two replicates of each point have their last level run again twice.
        assert got.cost.functions == 45 * one.functions + 36 * last.functions
        assert got.cost.random_numbers == 45 * one.random_numbers + 36 * last.random_numbers
        assert got.cost.seconds > 0
