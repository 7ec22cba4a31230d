"""Tests of the command line: it gives the same answers as the library, bit for bit."""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from cli_case import DIM, ZOO, T, X, assert_same, read, run, write_csv
from helpers import rough
from scasml import Correction, Hutchinson, Linearised, Picard, problems
from scasml._cli.output import console
from scasml.surrogates import wrap

pytestmark = pytest.mark.usefixtures("no_disk_cache")
METHOD = "--levels 1 --samples 8 --replicates 4"


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    """Work in a new folder with a model and a file of points."""
    # The model is the same function in every test, so its compiled program is found again.
    (here / "model.py").write_text("from helpers import rough as u\n")
    write_csv(here / "points.csv", ["t", "x1", "x2", "x3"], np.column_stack([T, X]))
    return here


@pytest.fixture(scope="module")
def answer() -> Correction:
    return scasml.correct(
        problems.convection_diffusion(DIM), rough, T, X, method=Picard(1, 8), replicates=4
    )


def correct(command: str, *more: str) -> str:
    return run(f"{ZOO} {METHOD} {command}", *more)


class TestProblems:
    def test_every_problem_is_listed(self):
        lines = run("problems").splitlines()
        assert {line.split()[0] for line in lines if not line.startswith(" ")} == {
            "name",
            *problems.catalogue(),
        }

    def test_a_narrow_terminal_does_not_cut_names(self, monkeypatch):
        monkeypatch.setattr(console, "width", 60)
        listed = run("problems")
        assert max(len(line) for line in listed.splitlines()) <= 60
        assert all(name in listed for name in problems.catalogue())


class TestCorrect:
    @pytest.mark.parametrize(
        "output", ["answers.csv", "answers.npy", "answers.npz", "A.CSV", "A.NPY", "A.NPZ"]
    )
    def test_output(self, folder, answer, output):
        shown = correct(f"--surrogate model.py:u --points points.csv -o {output}")
        assert f"Wrote 4 answers to {output}." in shown
        assert "16 replicates" not in shown  # the point at the horizon needs none
        assert "12 replicates" in shown
        assert_same(folder / output, answer)

    @pytest.mark.parametrize(
        "form", ["no-header", "blank-lines", "byte-order-mark", "npy", "npy-big-endian"]
    )
    def test_points(self, folder, answer, form):
        rows = np.column_stack([T, X])
        name = "other.npy" if form.startswith("npy") else "other.csv"
        if form == "npy":
            np.save(folder / name, rows)
        elif form == "npy-big-endian":
            np.save(folder / name, rows.astype(">f8"))
        else:
            write_csv(folder / name, [], rows)
        text = (folder / name).read_bytes()
        if form == "blank-lines":
            (folder / name).write_bytes(b"\r\n" + text.replace(b"\r\n", b"\r\n\r\n"))
        elif form == "byte-order-mark":
            (folder / name).write_bytes(b"\xef\xbb\xbf" + text)
        correct(f"--surrogate model.py:u --points {name} -o answers.csv")
        assert_same(folder / "answers.csv", answer)

    def test_integers_as_points(self, folder):
        np.save(folder / "whole.npy", np.array([[0, 1, 2, 3]]))
        correct("--surrogate model.py:u --points whole.npy -o answers.npz")
        np.testing.assert_array_equal(read(folder / "answers.npz")["x"], [[1.0, 2.0, 3.0]])

    def test_one_time_for_all_points(self, folder):
        write_csv(folder / "places.csv", ["x1", "x2", "x3"], X)
        correct("--surrogate model.py:u --points places.csv --t 0.125 -o answers.csv")
        expected = scasml.correct(
            problems.convection_diffusion(DIM), rough, 0.125, X, method=Picard(1, 8), replicates=4
        )
        assert_same(folder / "answers.csv", expected)

    def test_the_default_point_is_the_origin(self, folder):
        correct("--surrogate model.py:u --t 0.25 -o answers.npz")
        written = read(folder / "answers.npz")
        np.testing.assert_array_equal(written["t"], [0.25])
        np.testing.assert_array_equal(written["x"], np.zeros((1, DIM)))

    def test_no_surrogate(self, folder):
        shown = correct("--surrogate none --points points.csv -o answers.csv")
        expected = scasml.correct(
            problems.convection_diffusion(DIM), None, T, X, method=Picard(1, 8), replicates=4
        )
        assert_same(folder / "answers.csv", expected)
        assert "none" in shown

    def test_values_and_statuses_are_shown(self, answer):
        shown = correct("--surrogate model.py:u --points points.csv")
        assert "Wrote" not in shown
        for i in range(len(T)):
            assert f"{answer.value[i]:.6g}" in shown
            assert answer.status[i] in shown

    @pytest.mark.parametrize("output", ["run [b]1.csv", ":smile:.csv", f"{'long' * 35}.csv"])
    def test_the_path_is_shown_without_changes(self, folder, output):
        assert f"to {output}." in correct("--surrogate model.py:u -o", output)
        assert (folder / output).is_file()


class TestOptions:
    """Every option reaches `scasml.correct`. A replacement of it records them and runs nothing."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch, answer: Correction) -> dict[str, Any]:
        asked: dict[str, Any] = {}

        def record(problem: Any, surrogate: Any, t: Any, x: Any, **keywords: Any) -> Correction:
            asked.update(keywords, problem=problem, surrogate=surrogate, t=t, x=x)
            return answer

        monkeypatch.setattr("scasml._api.correct", record)
        return asked

    def test_parameters_of_the_problem(self, asked):
        run("correct burgers --dim 3 --surrogate none --param sigma0=0.5")
        assert asked["problem"] is problems.burgers(3, sigma0=0.5)
        run("correct burgers --surrogate none --param dim=4 --param drift_in=nonlinearity")
        assert asked["problem"] is problems.burgers(4, drift_in="nonlinearity")
        run("correct lqg --surrogate none --param seed=5 --param horizon=1")
        assert asked["problem"] is problems.lqg(seed=5, horizon=1.0)

    def test_defaults(self, asked):
        run("correct hjb --dim 2 --surrogate none")
        assert asked["problem"] is problems.hjb(2)
        assert asked["method"] == "auto"
        assert asked["surrogate"] is None
        names = ("replicates", "seed", "laplacian", "dtype")
        assert tuple(asked[name] for name in names) == (None, 0, "exact", None)
        assert asked["progress"] is False  # there is no terminal to show it on

    def test_linearised(self, asked):
        options = "--samples 64 --remainder 0 --steps 8 --sampling antithetic"
        run(f"correct hjb --dim 2 --surrogate none --method linearised {options}")
        got = asked["method"]
        assert isinstance(got, Linearised)
        assert (got.samples, got.remainder, got.steps, got.sampling) == (64, 0, 8, "antithetic")

    def test_picard(self, asked):
        options = "--levels 3 --samples 4 --gradient weights --threshold 0.01"
        run(f"correct hjb --surrogate none {options}")
        assert asked["method"] == Picard(3, 4, gradient="weights", threshold=0.01)
        run("correct hjb --surrogate none --time quadrature --nodes 5")
        assert asked["method"] == Picard(2, 10, time="quadrature", nodes=5)

    def test_the_other_options(self, asked):
        options = "--hutchinson 2 --seed 7 --dtype float64 --replicates 9"
        run(f"correct hjb --dim 3 --surrogate model.py:u {options}")
        assert asked["laplacian"] == Hutchinson(2)
        assert (asked["seed"], asked["dtype"], asked["replicates"]) == (7, "float64", 9)
        assert asked["surrogate"].model is rough

    def test_a_network(self, folder, asked):
        (folder / "net.py").write_text(
            "import equinox as eqx, jax\nu = eqx.nn.MLP(4, 1, 5, 1, key=jax.random.key(0))\n"
        )
        run("correct hjb --dim 3 --surrogate net.py:u --inputs xt")
        network = eqx.nn.MLP(4, 1, 5, 1, key=jax.random.key(0))
        assert eqx.tree_equal(asked["surrogate"], wrap(network, problems.hjb(3), inputs="xt"))

    def test_a_model_of_several_files_and_classes(self, folder, asked, monkeypatch):
        """The model may import its neighbours when it is loaded, and when it is called."""
        monkeypatch.setattr(sys, "path", list(sys.path))
        (folder / "deep").mkdir()
        (folder / "deep" / "neighbour.py").write_text("SLOPE, OFFSET = 2.0, 1.0\n")
        (folder / "deep" / "net.py").write_text(
            "from __future__ import annotations\n"
            "import equinox as eqx\n"
            "from neighbour import SLOPE\n"
            "class Net(eqx.Module):\n"
            "    slope: float\n"
            "    def __call__(self, t, x):\n"
            "        from neighbour import OFFSET\n"
            "        return self.slope * t + OFFSET\n"
            "u = Net(SLOPE)\n"
        )
        run("correct hjb --dim 3 --surrogate deep/net.py:u")
        assert asked["surrogate"].model.slope == 2.0
        assert asked["surrogate"](jnp.asarray(3.0), jnp.zeros(3)) == 7.0


def process(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m scasml` with the words of `command` and a new folder for caches."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return subprocess.run(
        [sys.executable, "-m", "scasml", *shlex.split(command)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=inherited | {"XDG_CACHE_HOME": str(Path("cache").absolute())} | environment,
    )


class TestProcess:
    """The command runs in a process of its own. Each start of Python with JAX takes seconds."""

    def test_correct(self, folder, answer):
        (folder / "alone.py").write_text(
            "import jax.numpy as jnp\n"
            "def u(t, x):\n"
            "    return 0.5 * jnp.sin(x[0] * x[1] + t) + 0.1 * x[2] ** 2\n"
        )
        options = f"{METHOD} --surrogate alone.py:u --points points.csv -o answers.csv"
        done = process(f"{ZOO} {options}")
        assert (done.returncode, done.stderr) == (0, "")
        assert "Wrote 4 answers to answers.csv." in done.stdout
        assert_same(folder / "answers.csv", answer)
        if sys.platform == "linux":  # other systems keep caches elsewhere
            assert list((folder / "cache" / "scasml" / "jax").iterdir())

    def test_error(self, folder):
        named = str(folder / "named")
        done = process("correct heat --surrogate none", JAX_COMPILATION_CACHE_DIR=named)
        assert done.returncode == 1
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: problem must be one of ")
        assert not (folder / "cache").exists(), "the user named another folder for the cache"

    def test_usage(self):
        done = process("correct")
        assert done.returncode == 2
        assert "Missing argument" in done.stderr
        assert "Traceback" not in done.stderr
