"""Tests of `correct`: an answer depends on the seed, the point and the dtype only.

The tests also cover the shapes of the answer, points at the horizon, and the meaning of its fields.
"""

import functools
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
from helpers import cost, rough, varying
from scasml import Linearised, Picard, Status
from scasml._equations.defect import Defect
from scasml._support.precision import cast
from scasml.estimators import Variant
from scasml.execution import LocalExecutor, Program
from scasml.execution.moments import Groups, Moments
from scasml.execution.points import Points
from scasml.execution.row_numbers import RowNumbers, rows_at
from scasml.surrogates import wrap


class TestSameBits:
    """Whatever the order, batch, chunk or kind of array, a point gets the same bits."""

    @pytest.mark.parametrize("chunk", [1, 7, 64, None])
    def test_chunk(self, chunk):
        check_same_bits(answer(), correct(chunk=chunk))

    def test_order_of_points(self):
        order = np.random.default_rng(1).permutation(len(T))
        check_same_bits(answer(), correct(T[order], X[order], chunk=4), order)

    def test_one_point_alone(self):
        """The point is passed as a batch of one, and as a scalar query."""
        check_same_bits(answer(), correct(T[3:4], X[3:4]), slice(3, 4))
        check_same_bits(answer(), correct(T[3], X[3]), 3)

    def test_repeated_points(self):
        rows = np.array([2, 5, 2, 2, 5])
        check_same_bits(answer(), correct(T[rows], X[rows]), rows)

    def test_more_points_than_one_call_holds(self):
        rows = np.arange(300) % len(T)
        check_same_bits(answer(), correct(T[rows], X[rows]), rows)

    def test_with_points_at_the_horizon(self):
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
        """A dtype that is named overrides the flag, set for this thread or for the process."""
        with jax.enable_x64(True):
            check_same_bits(answer(), correct(dtype="float32"))
        before = jax.config.jax_enable_x64
        jax.config.update("jax_enable_x64", not before)
        try:
            check_same_bits(answer(), correct(dtype="float32"))
        finally:
            jax.config.update("jax_enable_x64", before)

    def test_second_call(self):
        check_same_bits(answer(), correct())

    def test_seed(self):
        """Another seed gives another answer at every point, for the same surrogate."""
        other = correct(seed=1)
        assert np.all(other.value != answer().value)
        assert np.all(other.stderr != answer().stderr)
        np.testing.assert_array_equal(other.surrogate_value, answer().surrogate_value)

    def test_neighbouring_points_use_different_random_numbers(self):
        """The two points differ by one rounding unit."""
        near = np.nextafter(X[0], np.float32(9))
        pair = correct(np.full(2, T[0]), np.stack([X[0], near]))
        assert abs(pair.value[0] - pair.value[1]) > 1e-4


class TestSameBitsOfLevels:
    """The same for `Linearised`, whose base level and samples differ from point to point.

    Its loops run until the slowest row of a chunk is done, and its pilots plan each point alone.
    """

    PROBLEM = varying()

    @classmethod
    def correct(cls, t=T, x=X, **options):
        return correct(t, x, problem=cls.PROBLEM, method=Linearised(samples=32), **options)

    @classmethod
    @functools.cache
    def answer(cls):
        return cls.correct()

    def test_points_differ_in_their_levels_and_samples(self):
        (choice,) = self.answer().choices
        assert len(np.unique(choice.tuning.level)) > 1
        assert len(np.unique(choice.tuning.samples, axis=0)) == len(T)
        np.testing.assert_array_equal(self.answer().steps, 2**choice.tuning.level)

    @pytest.mark.parametrize("chunk", [1, 7])
    def test_chunk(self, chunk):
        check_same_bits(self.answer(), self.correct(chunk=chunk))

    def test_order_of_points(self):
        order = np.random.default_rng(1).permutation(len(T))
        check_same_bits(self.answer(), self.correct(T[order], X[order], chunk=4), order)

    def test_one_point_alone(self):
        check_same_bits(self.answer(), self.correct(T[3:4], X[3:4]), slice(3, 4))
        check_same_bits(self.answer(), self.correct(T[3], X[3]), 3)


class TestReplicates:
    @staticmethod
    def rows(replicates, chunk=None):
        """Run the replicates with the given numbers at all points, without accumulator.

        Returns values, shape (replicates, 9), and gradients, shape (replicates, 9, 3).
        """
        dtype, model = np.dtype("float32"), wrap(rough, PROBLEM)
        equation = Defect(cast(PROBLEM, dtype), cast(model, dtype))
        tuning = METHOD.default_tuning(equation, True)
        program = Program(equation, METHOD, tuning, surrogate=model, start=model)
        shape = (len(replicates), len(T))
        value, gradient = np.full(shape, np.nan), np.full((*shape, 3), np.nan)
        number, point = (a.ravel() for a in np.indices(shape))
        points = Points.of(np.arange(len(T)), T, X, seed=0)
        variant = np.full(len(point), Variant.MAIN)
        rows = rows_at(points, tuning, RowNumbers(point, replicates.start + number, variant))
        done = 0
        for part in LocalExecutor(chunk).run(program, rows):
            assert part.rows.start == done
            done = part.rows.stop
            at = number[part.rows], point[part.rows]
            value[at], gradient[at] = part.replicates.value, part.replicates.gradient
        assert done == len(point)
        return value, gradient

    def test_a_replicate_does_not_depend_on_the_others(self):
        value, gradient = self.rows(range(8))
        assert np.isfinite(value).all()
        assert len(np.unique(value)) == value.size
        for replicates, chunk in ((range(3, 8), None), (range(5), 4), (range(6, 7), 100)):
            part, numbers = self.rows(replicates, chunk), slice(replicates.start, replicates.stop)
            np.testing.assert_array_equal(part[0], value[numbers])
            np.testing.assert_array_equal(part[1], gradient[numbers])

    def test_more_replicates_extend_the_earlier_ones(self):
        """Answers from 5 and from 8 replicates are means over the first 5, and all 8, rows."""
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

    def test_one_replicate(self):
        """There is a value without an error bar, and the text of the answer says so."""
        for one in (correct(replicates=1), correct(T[0], X[0], replicates=1)):
            assert np.all(np.isfinite(one.value))
            assert np.all(np.isnan(one.stderr))
            assert np.all(np.isnan(one.gradient_stderr))
            assert np.all(np.isnan(one.interval()))
        assert "no error bar from one replicate" in str(one)

    def test_no_stopping_rule(self):
        """The run takes about a second, at least two replicates, and the answer says so."""
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
        assert isinstance(one.status, Status)
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
    """At t = T the solution is g, so no replicate is run and rounding is the only error."""

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


class TestDtype:
    X = np.full(3, 1 / 3)

    def correct(self, **options):
        method = Picard(1, 2)
        return correct(0.1, self.X, EXACT, method=method, with_gradient=False, **options)

    @pytest.mark.parametrize(("x64", "dtype"), [(False, "float32"), (True, "float64")])
    def test_none_follows_jax(self, x64, dtype):
        """Without a dtype, the flag of JAX decides, and a dtype that is named gives the bits."""
        with jax.enable_x64(x64):
            default, none = self.correct(), self.correct(dtype=None)
        named = self.correct(dtype=dtype)
        np.testing.assert_array_equal(named.x, self.X.astype(dtype))
        for got in (default, none):
            assert (got.value, got.stderr) == (named.value, named.stderr)
            np.testing.assert_array_equal(got.x, named.x)

    def test_float64(self):
        """An exact surrogate leaves rounding errors only; 1e-10 is out of reach of float32."""
        x = np.array([0.1, -0.7, 1 / 3])
        got = correct(0.1, x, EXACT, method=Picard(1, 2), dtype="float64", with_gradient=False)
        assert abs(got.value - np.sin(np.linspace(0.4, 0.9, 3) @ x + 0.1)) < 1e-10
        assert abs(got.correction) < 1e-10
        np.testing.assert_array_equal(got.x, x)
        assert got.t == 0.1

    def test_arrays_of_the_answer_are_float64(self):
        single = answer()
        for name in ("t", "x", *NUMBERS):
            assert getattr(single, name).dtype == np.float64


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
        """Another program rounds differently, by a few units in the last place of float32."""
        one, other = (
            correct(T / 2, X, None, HEAT, method=Picard(1, 4), with_gradient=w)
            for w in (True, False)
        )
        assert other.gradient is other.gradient_stderr is None
        np.testing.assert_allclose(one.value, other.value, rtol=1e-6)
        np.testing.assert_allclose(one.stderr, other.stderr, rtol=1e-4)
        assert not any(name.startswith("gradient") for name in other.columns(gradient=True))
        assert "u" in str(other)

    def test_interval(self):
        """The interval is Student's with replicates - 1 degrees of freedom, and symmetric."""
        got = answer()
        for level in (0.5, 0.95):
            lower, upper = got.interval(level, include_bias=False)
            half = stats.t.ppf((1 + level) / 2, 4) * got.stderr
            np.testing.assert_allclose(upper - got.value, half, rtol=1e-9)
            np.testing.assert_allclose(got.value - lower, half, rtol=1e-9)

    def test_cost(self):
        got, one = answer(), cost(METHOD, PROBLEM)
        last = METHOD.evaluations(PROBLEM, METHOD.default_tuning(PROBLEM, True))[-1]
        assert got.cost.replicates == 45
        # Two replicates of each point run two variants each, which compute the last level only.
        assert got.cost.functions == 45 * one.functions + 36 * last.functions
        assert got.cost.random_numbers == 45 * one.random_numbers + 36 * last.random_numbers
        assert got.cost.seconds > 0
