"""correct: an answer depends on the seed and on the point and on nothing else, and says what it is.

One problem, one surrogate and one method serve nearly every test, so one program is compiled for them all.
"""

import csv
import dataclasses
import functools
import subprocess
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import scasml
from helpers import heat, manufactured, rough
from scasml import Picard
from scasml.defect import Defect
from scasml.engine import Kernel
from scasml.estimators.base import ORDINARY
from scasml.precision import cast
from scasml.statistics import Groups, Moments
from scasml.surrogates import wrap

PROBLEM, EXACT = manufactured(uses_z=False)
HEAT, _ = heat()
METHOD = Picard(2, 2)
RNG = np.random.default_rng(0)
T, X = RNG.uniform(0, 0.7, 9).astype(np.float32), RNG.normal(size=(9, 3)).astype(np.float32)
NUMBERS = ("value", "stderr", "correction", "bias", "gradient", "gradient_stderr")


def correct(t=T, x=X, surrogate=rough, problem=PROBLEM, **options):
    """Raw, unless asked: how far a correction is shrunk depends on its company, see test_safety.py."""
    return scasml.correct(problem, surrogate, t, x, **{"method": METHOD, "replicates": 5, "safe": False, **options})


@functools.cache
def answer():
    return correct()


def check_same_bits(one, other, rows=slice(None)):
    """`other` holds, bit for bit, the answers that `one` holds at `rows`."""
    for name in NUMBERS:
        want, got = np.asarray(getattr(one, name))[rows], np.asarray(getattr(other, name))
        assert want.shape == got.shape
        assert want.tobytes() == got.tobytes(), name


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
        law = Defect(cast(PROBLEM, kind), cast(wrap(rough, PROBLEM), kind))
        value, gradient = np.full((len(replicates), 9), np.nan), np.full((len(replicates), 9, 3), np.nan)
        point, row = np.tile(np.arange(9), len(replicates)), np.repeat(np.arange(len(replicates)), 9)
        kernel = Kernel(law, METHOD, T, X, seed=0, gradient=True, **options)
        at = 0
        for part, out in kernel.run(point, replicates.start + row, np.full(len(point), ORDINARY)):
            assert part.start == at
            at = part.stop
            value[row[part], point[part]], gradient[row[part], point[part]] = out.value, out.gradient
        assert at == len(point)
        return value, gradient

    def test_a_replicate_is_the_same_row_in_any_range(self):
        value, gradient = self.rows(range(8))
        assert np.isfinite(value).all()
        assert len(np.unique(value)) == value.size
        for some, options in ((range(3, 8), {}), (range(5), {"chunk": 4}), (range(6, 7), {"chunk": 100})):
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
            np.testing.assert_allclose(got.stderr, np.std(value[:count], 0, ddof=1) / np.sqrt(count), rtol=1e-12)
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
        g, slope = jax.vmap(jax.value_and_grad(EXACT, 1), (None, 0))(jnp.float32(0.8), jnp.atleast_2d(jnp.asarray(x)))
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
        check_same_bits(correct(0.8, X[::2]), types.SimpleNamespace(**{n: getattr(got, n)[::2] for n in NUMBERS}))
        check_same_bits(
            answer(), types.SimpleNamespace(**{n: getattr(got, n)[1::2] for n in NUMBERS}), slice(1, None, 2)
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
        one, other = (correct(T / 2, X, None, HEAT, method=Picard(1, 4), with_gradient=w) for w in (True, False))
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


class TestTraces:
    """Python runs F, g and the surrogate to trace them, and never again for other data."""

    calls = dict.fromkeys("uFg", 0)

    @classmethod
    def counted(cls, name, value):
        cls.calls[name] += 1
        return value

    @classmethod
    @functools.cache
    def traced(cls):
        """The problem and the surrogate, after a first call."""
        problem = scasml.Problem(
            dim=2,
            horizon=1.0,
            nonlinearity=lambda t, x, u, z: cls.counted("F", u * z[0]),
            terminal=lambda x: cls.counted("g", jnp.sum(x**2)),
        )
        surrogate = lambda t, x: cls.counted("u", t * jnp.sum(jnp.sin(x)))
        run = functools.partial(scasml.correct, problem, surrogate, method=Picard(1, 3))
        run(np.array([0.1, 1.0]), np.zeros((2, 2)), replicates=2)
        assert min(cls.calls.values()) > 0
        return run

    OTHERS = {  # noqa: RUF012
        "the same": lambda run: run(np.array([0.1, 1.0]), np.zeros((2, 2)), replicates=2),
        "points": lambda run: run(0.2, np.ones((5, 2)), replicates=2),
        "a scalar": lambda run: run(0.2, np.ones(2), replicates=2),
        "replicates": lambda run: run(0.1, np.zeros((2, 2)), replicates=7),
        "seed": lambda run: run(0.1, np.zeros((2, 2)), replicates=2, seed=9),
        "chunk": lambda run: run(0.1, np.zeros((2, 2)), replicates=3, chunk=2),
    }

    def count(self, name):
        run = self.traced()
        before = dict(self.calls)
        self.OTHERS[name](run)
        return {key: self.calls[key] - before[key] for key in self.calls}

    @pytest.mark.parametrize("name", OTHERS)
    def test_the_problem(self, name):
        count = self.count(name)
        assert count["F"] == count["g"] == 0

    @pytest.mark.parametrize("name", OTHERS)
    def test_the_surrogate(self, name):
        assert self.count(name)["u"] == 0

    def test_nothing_is_compiled_again(self):
        """By JAX's own count of its compilations."""
        run, events = self.traced(), []
        listen = lambda event, duration, **_: events.append(event)
        jax.monitoring.register_event_duration_secs_listener(listen)
        try:
            for other in self.OTHERS.values():
                other(run)
            assert not [event for event in events if "backend_compile" in event]
            jax.jit(lambda x: x * 3)(1.0)
            assert [event for event in events if "backend_compile" in event]  # the listener hears
        finally:
            jax.monitoring.unregister_event_duration_listener(listen)


class TestWords:
    def test_scalar(self):
        """u = value +- half width (95 %), surrogate, replicates, seconds: to two figures of the error bar."""
        one = correct(T[0], X[0])
        half = (one.interval(0.95)[1] - one.interval(0.95)[0]) / 2
        text = str(one)
        assert repr(one) == text
        assert "\n" not in text
        shown = {word: float(text.split(word)[1].split()[0].rstrip(",")) for word in ("u =", "+-", "surrogate")}
        digits = 0.06 * half
        assert shown["u ="] == pytest.approx(one.value, abs=digits)
        assert shown["+-"] == pytest.approx(half, abs=digits)
        assert shown["surrogate"] == pytest.approx(one.surrogate_value, abs=digits)
        assert "5 replicates" in text
        assert "95 %" in text

    def test_batch(self):
        """A line of words, a line of headings, and a row for each of the first points."""
        got = answer()
        head, names, *rows = str(got).split("\n")
        assert "9 points" in head
        assert "5 replicates" in head
        assert {"u", "surrogate", "status", "95"} <= set(names.split())
        lower, upper = got.interval(0.95)
        for i, row in enumerate(rows[:6]):
            index, _, value, half, _, surrogate, *status = row.split()
            assert int(index) == i
            digits = 0.03 * (upper[i] - lower[i])
            assert float(value) == pytest.approx(got.value[i], abs=digits)
            assert float(half) == pytest.approx((upper[i] - lower[i]) / 2, abs=digits)
            assert float(surrogate) == pytest.approx(got.surrogate_value[i], abs=digits)
            assert " ".join(status) == got.status[i] == "budget exhausted"
        assert "9 budget exhausted" in rows[6]

    def test_not_finite(self):
        """An infinite answer has an error bar of no meaning, but not for want of replicates."""
        one = dataclasses.replace(
            correct(T[0], X[0]), value=np.float64(np.nan), stderr=np.float64(np.nan), status="not finite"
        )
        assert "not finite" in str(one)
        assert "one replicate" not in str(one)


class TestOutput:
    def test_columns(self):
        got = answer()
        columns = got.columns(gradient=True)
        assert all(len(column) == 9 for column in columns.values())
        for name in (
            "t",
            "x",
            "value",
            "stderr",
            "correction",
            "bias",
            "replicates",
            "status",
            "gradient",
            "gradient_stderr",
        ):
            np.testing.assert_array_equal(columns[name], getattr(got, name))
        np.testing.assert_array_equal(columns["surrogate"], got.surrogate_value)
        np.testing.assert_array_equal([columns["lower95"], columns["upper95"]], got.interval(0.95))
        one = correct(T[0], X[0]).columns(gradient=True)
        for name, column in one.items():
            np.testing.assert_array_equal(column, columns[name][:1])

    @pytest.mark.parametrize("suffix", [".npy", ".npz"])
    def test_numpy_files(self, tmp_path, suffix):
        """Read back without unpickling, bit for bit."""
        path = tmp_path / f"answer{suffix}"
        answer().save(path)
        saved = np.load(path, allow_pickle=False)
        for name, column in answer().columns(gradient=True).items():
            np.testing.assert_array_equal(saved[name], column)
            assert np.issubdtype(saved[name].dtype, np.floating) == np.issubdtype(column.dtype, np.floating)
        if suffix == ".npz":
            saved.close()

    @pytest.mark.parametrize("scalar", [False, True])
    def test_csv(self, tmp_path, scalar):
        """Every number is written in full."""
        got = correct(T[0], X[0]) if scalar else answer()
        path = tmp_path / "answer.csv"
        got.save(path)
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == (1 if scalar else 9)
        for name, column in got.columns(gradient=True).items():
            parts = {name: column} if column.ndim == 1 else {f"{name}{i + 1}": column[:, i] for i in range(3)}
            for key, values in parts.items():
                read = [row[key] if name == "status" else float(row[key]) for row in rows]
                np.testing.assert_array_equal(read, values)

    def test_xarray(self, monkeypatch):
        """Every column as a variable over (point, axis), with real xarray where it is installed."""
        try:
            import xarray  # noqa: F401
        except ImportError:
            fake = types.ModuleType("xarray")
            fake.Dataset = lambda variables, attrs: types.SimpleNamespace(
                attrs=attrs, **{k: types.SimpleNamespace(dims=d, values=v) for k, (d, v) in variables.items()}
            )
            monkeypatch.setitem(sys.modules, "xarray", fake)
        data = answer().to_xarray()
        for name, column in answer().columns(gradient=True).items():
            variable = getattr(data, name)
            assert tuple(variable.dims) == ("point", "axis")[: column.ndim]
            np.testing.assert_array_equal(variable.values, column)
        assert data.attrs["stopped"] == answer().stopped

    @pytest.mark.parametrize("chunk", [None, 4])
    def test_progress(self, chunk):
        seen = []
        check_same_bits(answer(), correct(chunk=chunk, progress=seen.append))
        assert {now.points for now in seen} == {9}
        assert np.all(np.diff([now.rows for now in seen]) >= 0)
        assert (seen[-1].points_done, seen[-1].rows, seen[-1].seconds_left) == (9, 45, 0)

    def test_progress_without_a_total(self):
        seen = []
        free = correct(replicates=None, progress=seen.append)
        assert seen[-1].rows == free.cost.replicates
        assert all(0 <= now.seconds_left <= 1 for now in seen)

    def test_progress_bar(self, capfd):
        check_same_bits(answer(), correct(progress=True))
        assert capfd.readouterr().out == ""


class TestPlot:
    @staticmethod
    def axes(got, **options):
        matplotlib = pytest.importorskip("matplotlib")
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        ax = got.plot(**options)
        heights = {line.get_label(): np.asarray(line.get_ydata()) for line in ax.get_lines()}
        heights["corrected, 95 %"] = np.asarray(ax.containers[0].lines[0].get_ydata())
        ends = np.array([segment[:, 1] for segment in ax.containers[0].lines[2][0].get_segments()]).T
        legend = {text.get_text() for text in ax.get_legend().get_texts()}
        ax.figure.canvas.draw()
        plt.close(ax.figure)
        return ax, heights, ends, legend

    def test_points(self):
        """Every point with its interval, in the order of its value, and the surrogate beside it."""
        got = answer()
        ax, heights, ends, legend = self.axes(got)
        order = np.argsort(got.value)
        np.testing.assert_array_equal(heights["corrected, 95 %"], got.value[order])
        np.testing.assert_array_equal(heights["surrogate"], got.surrogate_value[order])
        np.testing.assert_allclose(ends, np.array(got.interval(0.95))[:, order], rtol=1e-12)
        assert legend == {"surrogate", "corrected, 95 %"}
        assert ax.get_xlabel()
        assert ax.get_ylabel()

    def test_against_the_exact_value(self):
        exact = lambda t, x: np.sin(x @ np.linspace(0.4, 0.9, 3) + t)
        known = scasml.Problem(dim=3, horizon=0.8, terminal=jnp.sum, reference=scasml.Reference(exact, 0.0, "by hand"))
        got = dataclasses.replace(answer(), problem=known)
        np.testing.assert_allclose(got.exact(), exact(got.t, got.x), rtol=1e-12)
        _, heights, _, legend = self.axes(got)
        order = np.argsort(got.exact())
        np.testing.assert_allclose(heights["corrected, 95 %"], (got.value - got.exact())[order], atol=1e-12)
        assert legend == {"surrogate", "corrected, 95 %", "exact"}

    def test_one_point_on_axes_of_ones_own(self):
        plt = pytest.importorskip("matplotlib.pyplot")
        _, own = plt.subplots()
        one = correct(T[0], X[0])
        ax, heights, _, _ = self.axes(one, ax=own)
        assert ax is own
        np.testing.assert_array_equal(heights["corrected, 95 %"], [one.value])


def test_plot_of_convergence():
    """A point a round, and a line through a round of 16 replicates or more that falls as 1/sqrt(N)."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    *_, last = scasml.refine(PROBLEM, rough, T, X, method=METHOD, replicates=64)
    lines = {line.get_label(): np.asarray(line.get_xydata()) for line in last.plot_convergence().get_lines()}
    np.testing.assert_allclose(lines["median point"], [[r.replicates, r.median] for r in last.history])
    np.testing.assert_allclose(lines["widest of all points"][:, 1], [r.worst for r in last.history])
    n, height = lines[r"$1/\sqrt{N}$"].T
    np.testing.assert_allclose(n, [16, 32, 64])
    np.testing.assert_allclose(height * np.sqrt(n), 4 * lines["median point"][3, 1])
    with pytest.raises(scasml.ScasmlError, match="history"):
        correct(0.8, X).plot_convergence()


@pytest.mark.parametrize(
    "code",
    [
        """
F = lambda t, x, u, z: jnp.linalg.solve(jnp.eye(40) * (1 + x[0] ** 2) + 0.1, z)[0]
problem = scasml.Problem(dim=40, horizon=1.0, nonlinearity=F, terminal=jnp.sum)
print(scasml.correct(problem, None, 0.0, np.ones(40), replicates=16, with_gradient=False, method=scasml.Picard(2, 10)))
""",
        """
sigma = lambda t, x: jnp.eye(40) * (2 + jnp.tanh(x[0])) + 0.1
problem = scasml.Problem(dim=40, horizon=1.0, diffusion=sigma, terminal=jnp.sum)
print(scasml.correct(problem, None, 0.0, np.ones(40), replicates=16, method=scasml.Picard(1, 10, gradient="weights")))
""",
    ],
    ids=["in F", "in the weights"],
)
def test_a_factorisation_does_not_hang(code):
    """XLA's calls of LAPACK from two threads wait for each other: such programs run one at a time."""
    code = "import jax.numpy as jnp, numpy as np, scasml" + code
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.startswith("u = ")


class TestRoom:
    """Compiled programs are forgotten before there is no room for more, and made again: the bits are the same."""

    @pytest.mark.parametrize(("used", "forgets"), [(400, False), (600, True)])
    def test_it_is_made_in_time(self, used, forgets, monkeypatch):
        from scasml.engine import local

        forgotten, clear = [], jax.clear_caches
        monkeypatch.setattr(jax, "clear_caches", lambda: (forgotten.append(True), clear()))
        monkeypatch.setattr(local, "_mappings", lambda: (used, 1000))
        monkeypatch.setattr(local, "KERNELS", 2**30)
        want = correct(T, X)
        assert not forgotten  # not every kernel looks
        monkeypatch.setattr(local, "KERNELS", 1)
        got = correct(T, X)
        assert bool(forgotten) == forgets
        check_same_bits(want, got)

    def test_mappings(self):
        from scasml.engine import local

        used, allowed = local._mappings()
        assert 0 <= used < allowed
        assert (used > 0) == (sys.platform == "linux")
