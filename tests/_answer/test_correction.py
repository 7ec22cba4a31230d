"""The answer says what it is: in words, in files, in a progress bar, in pictures."""

import csv
import dataclasses
import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from correct_case import METHOD, PROBLEM, T, X, answer, check_same_bits, correct
from helpers import rough


class TestWords:
    def test_scalar(self):
        """u = value +- half width (95 %), surrogate, replicates, seconds: to two figures of the error bar."""
        one = correct(T[0], X[0])
        half = (one.interval(0.95)[1] - one.interval(0.95)[0]) / 2
        text = str(one)
        assert repr(one) == text
        assert "\n" not in text
        shown = {
            word: float(text.split(word)[1].split()[0].rstrip(","))
            for word in ("u =", "+-", "surrogate")
        }
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
            correct(T[0], X[0]),
            value=np.float64(np.nan),
            stderr=np.float64(np.nan),
            status="not finite",
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
            assert np.issubdtype(saved[name].dtype, np.floating) == np.issubdtype(
                column.dtype, np.floating
            )
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
            parts = (
                {name: column}
                if column.ndim == 1
                else {f"{name}{i + 1}": column[:, i] for i in range(3)}
            )
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
                attrs=attrs,
                **{k: types.SimpleNamespace(dims=d, values=v) for k, (d, v) in variables.items()},
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
        ends = np.array(
            [segment[:, 1] for segment in ax.containers[0].lines[2][0].get_segments()]
        ).T
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
        known = scasml.Problem(
            dim=3, horizon=0.8, terminal=jnp.sum, reference=scasml.Reference(exact, 0.0, "by hand")
        )
        got = dataclasses.replace(answer(), problem=known)
        np.testing.assert_allclose(got.exact(), exact(got.t, got.x), rtol=1e-12)
        _, heights, _, legend = self.axes(got)
        order = np.argsort(got.exact())
        np.testing.assert_allclose(
            heights["corrected, 95 %"], (got.value - got.exact())[order], atol=1e-12
        )
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
    lines = {
        line.get_label(): np.asarray(line.get_xydata())
        for line in last.plot_convergence().get_lines()
    }
    np.testing.assert_allclose(
        lines["median point"], [[r.replicates, r.median] for r in last.history]
    )
    np.testing.assert_allclose(lines["widest of all points"][:, 1], [r.worst for r in last.history])
    n, height = lines[r"$1/\sqrt{N}$"].T
    np.testing.assert_allclose(n, [16, 32, 64])
    np.testing.assert_allclose(height * np.sqrt(n), 4 * lines["median point"][3, 1])
    with pytest.raises(scasml.ScasmlError, match="history"):
        correct(0.8, X).plot_convergence()
