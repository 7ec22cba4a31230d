"""The answer of `correct`: intervals, columns, files, progress, and its arrays as a pytree."""

import csv
import dataclasses
import sys
import types

import jax
import numpy as np
import pytest
from scipy import stats

import elastic_case
from correct_case import HEAT, PROBLEM, T, X, answer, check_same_bits, correct
from elastic_case import adaptive
from scasml import Linearised
from scasml.estimators import steps_of


class TestInterval:
    def test_the_bias_widens_it(self):
        got = adaptive()
        assert np.all(got.bias > 0)
        low, high = got.interval(0.95)
        inner_low, inner_high = got.interval(0.95, include_bias=False)
        assert np.all((low < inner_low) & (inner_high < high))
        np.testing.assert_allclose((low + high) / 2, got.raw_value, rtol=1e-12)
        assert np.all(inner_low - low <= got.bias * (1 + 1e-9))
        np.testing.assert_allclose(
            (inner_high - inner_low) / 2,
            stats.t.ppf(0.975, got.replicates - 1) * got.stderr,
            rtol=1e-9,
        )

    @pytest.mark.parametrize("bias", [0.0, np.nan])
    def test_no_bias_and_an_unknown_one(self, bias):
        got = dataclasses.replace(adaptive(), bias=np.full(6, bias))
        np.testing.assert_array_equal(
            got.interval(0.95), adaptive().interval(0.95, include_bias=False)
        )


class TestColumns:
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
        """They are read without unpickling, bit for bit."""
        path = tmp_path / f"answer{suffix}"
        answer().save(path)
        saved = np.load(path, allow_pickle=False)
        for name, column in answer().columns(gradient=True).items():
            np.testing.assert_array_equal(saved[name], column)
            is_float = np.issubdtype(saved[name].dtype, np.floating)
            assert is_float == np.issubdtype(column.dtype, np.floating)
        if suffix == ".npz":
            saved.close()

    @pytest.mark.parametrize("scalar", [False, True])
    def test_csv(self, tmp_path, scalar):
        """Every number is written with all of its digits."""
        got = correct(T[0], X[0]) if scalar else answer()
        path = tmp_path / "answer.csv"
        got.save(path)
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert len(rows) == (1 if scalar else 9)
        for name, column in got.columns(gradient=True).items():
            parts = {name: column}
            if column.ndim == 2:
                parts = {f"{name}{i + 1}": column[:, i] for i in range(3)}
            for key, values in parts.items():
                read = [row[key] if name == "status" else float(row[key]) for row in rows]
                np.testing.assert_array_equal(read, values)

    def test_a_shrunken_answer(self, tmp_path):
        """Columns and files contain the raw value and the kept share."""
        got = elastic_case.correct(replicates=3, safe=True)
        columns = got.columns()
        np.testing.assert_array_equal(columns["raw_value"], got.raw_value)
        np.testing.assert_array_equal(columns["kept_share"], got.kept_share)
        got.save(tmp_path / "answer.csv")
        with open(tmp_path / "answer.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        np.testing.assert_array_equal([float(row["raw_value"]) for row in rows], got.raw_value)
        np.testing.assert_array_equal([float(row["kept_share"]) for row in rows], got.kept_share)

    def test_xarray(self, monkeypatch):
        """Every column is a variable over (point, axis), in xarray or in a stand-in for it."""
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


class TestProgress:
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


@pytest.mark.parametrize(
    ("problem", "steps"), [(PROBLEM, [4, 8]), (HEAT, [0, 0])], ids=["steps", "exact paths"]
)
def test_the_steps_of_linearised_are_those_of_the_base_level(problem, steps):
    estimator, level = Linearised(4), np.array([2, 3], np.int32)
    tuning = estimator.default_tuning(problem, False).with_samples(None, level)
    np.testing.assert_array_equal(steps_of(estimator, problem, tuning), steps)


def test_an_answer_is_a_pytree_of_arrays():
    got = answer()
    doubled = jax.tree.map(lambda a: 2 * a, got)
    np.testing.assert_array_equal(doubled.value, 2 * got.value)
    np.testing.assert_array_equal(doubled.gradient, 2 * got.gradient)
    assert doubled.problem is got.problem
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(got))
