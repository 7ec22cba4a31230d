"""The command line: the same answers as the library, bit for bit, and errors of one line."""

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import scasml
from helpers import rough
from scasml import Hutchinson, Linearised, Picard, problems
from scasml import _cli as cli
from scasml.__main__ import main
from scasml._answer.correction import Correction
from scasml._planning import auto as choice
from scasml._planning import task as setting
from scasml.surrogates import wrap
from test_bad_input import assert_one_sentence

DIM = 3
# Numbers without a short decimal form, the last point at the horizon.
T = np.array([0.1 + 0.2, 1 / 3, 0.0, 0.5])
X = np.array([[1 / 3, -2 / 7, 1e-17], [np.pi, 0.1, -0.1], [1e5 / 3, 2.0, -1 / 9], [0.1, 0.2, 0.3]])
METHOD = ["--levels", "1", "--samples", "8", "--replicates", "4"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own; and no cache of compiled programs, which belongs to the whole process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "keep_compiled_programs", lambda: None)
    # The same function each time, so that the compiled program is found again.
    (tmp_path / "model.py").write_text("from helpers import rough as u\n")
    write_csv(tmp_path / "points.csv", ["t", "x1", "x2", "x3"], np.column_stack([T, X]))
    return tmp_path


@pytest.fixture(scope="module")
def answer() -> Correction:
    return scasml.correct(
        problems.convection_diffusion(DIM), rough, T, X, method=Picard(1, 8), replicates=4
    )


def write_csv(path: Path, header: list[str], rows: Any) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header] * bool(header) + np.asarray(rows).tolist())


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def correct(*arguments: str) -> str:
    return run("correct", "convection_diffusion", "--dim", str(DIM), *METHOD, *arguments)


def read(path: Path) -> dict[str, np.ndarray]:
    """What was written, one column per name; nothing needs unpickling."""
    if path.suffix.lower() == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    if path.suffix.lower() == ".npy":
        records = np.load(path, allow_pickle=False)
        return {name: records[name] for name in records.dtype.names}
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    columns: dict[str, Any] = dict(zip(header, np.array(rows).T, strict=True))
    for name in ("x", "gradient", "gradient_stderr", "gradient_bias"):
        columns[name] = np.stack([columns.pop(f"{name}{i + 1}") for i in range(DIM)], axis=1)
    kinds = {"status": str, "replicates": int, "steps": int}
    return {name: column.astype(kinds.get(name, float)) for name, column in columns.items()}


def assert_same(path: Path, answer: Correction) -> None:
    got, expected = read(path), answer.columns(gradient=True)
    assert set(got) == set(expected)
    for name, column in expected.items():
        if name == "status":
            assert got[name].tolist() == column.tolist()
        else:
            assert got[name].dtype.kind == column.dtype.kind
            assert got[name].shape == column.shape
            assert got[name].tobytes() == column.tobytes(), name


class TestProblems:
    def test_every_problem_is_listed(self):
        lines = run("problems").splitlines()
        assert {line.split()[0] for line in lines if not line.startswith(" ")} == {
            "name",
            *problems.catalogue(),
        }

    def test_names_survive_a_narrow_terminal(self, monkeypatch):
        monkeypatch.setattr(cli, "console", Console(width=60))
        listed = run("problems")
        assert all(name in listed for name in problems.catalogue())


class TestCorrect:
    @pytest.mark.parametrize(
        "output", ["answers.csv", "answers.npy", "answers.npz", "A.CSV", "A.NPY", "A.NPZ"]
    )
    def test_output(self, here, answer, output):
        shown = correct("--surrogate", "model.py:u", "--points", "points.csv", "-o", output)
        assert f"Wrote 4 answers to {output}." in shown
        assert "16 replicates" not in shown  # the point at the horizon needs none
        assert "12 replicates" in shown
        assert_same(here / output, answer)

    @pytest.mark.parametrize(
        "form", ["no-header", "blank-lines", "byte-order-mark", "npy", "npy-big-endian"]
    )
    def test_points(self, here, answer, form):
        rows = np.column_stack([T, X])
        name = "other.npy" if form.startswith("npy") else "other.csv"
        if form == "npy":
            np.save(here / name, rows)
        elif form == "npy-big-endian":
            np.save(here / name, rows.astype(">f8"))
        else:
            write_csv(here / name, [], rows)
        text = (here / name).read_bytes()
        if form == "blank-lines":
            (here / name).write_bytes(b"\r\n" + text.replace(b"\r\n", b"\r\n\r\n"))
        elif form == "byte-order-mark":
            (here / name).write_bytes(b"\xef\xbb\xbf" + text)
        correct("--surrogate", "model.py:u", "--points", name, "-o", "answers.csv")
        assert_same(here / "answers.csv", answer)

    def test_integers_as_points(self, here, answer):
        np.save(here / "whole.npy", np.array([[0, 1, 2, 3]]))
        correct("--surrogate", "model.py:u", "--points", "whole.npy", "-o", "answers.npz")
        np.testing.assert_array_equal(read(here / "answers.npz")["x"], [[1.0, 2.0, 3.0]])

    def test_one_time_for_all(self, here):
        write_csv(here / "places.csv", ["x1", "x2", "x3"], X)
        correct(
            "--surrogate",
            "model.py:u",
            "--points",
            "places.csv",
            "--t",
            "0.125",
            "-o",
            "answers.csv",
        )
        expected = scasml.correct(
            problems.convection_diffusion(DIM), rough, 0.125, X, method=Picard(1, 8), replicates=4
        )
        assert_same(here / "answers.csv", expected)

    def test_the_origin_by_default(self, here):
        correct("--surrogate", "model.py:u", "--t", "0.25", "-o", "answers.npz")
        written = read(here / "answers.npz")
        np.testing.assert_array_equal(written["t"], [0.25])
        np.testing.assert_array_equal(written["x"], np.zeros((1, DIM)))

    def test_no_surrogate(self, here):
        shown = correct("--surrogate", "none", "--points", "points.csv", "-o", "answers.csv")
        expected = scasml.correct(
            problems.convection_diffusion(DIM), None, T, X, method=Picard(1, 8), replicates=4
        )
        assert_same(here / "answers.csv", expected)
        assert "none" in shown

    def test_what_is_shown(self, answer):
        shown = correct("--surrogate", "model.py:u", "--points", "points.csv")
        assert "Wrote" not in shown
        for i in range(len(T)):
            assert f"{answer.value[i]:.6g}" in shown
            assert answer.status[i] in shown

    @pytest.mark.parametrize("output", ["run [b]1.csv", ":smile:.csv", f"{'long' * 35}.csv"])
    def test_the_path_is_shown_as_it_is(self, here, output):
        assert f"to {output}." in correct("--surrogate", "model.py:u", "-o", output)
        assert (here / output).is_file()


class TestOptions:
    """Every option reaches the library; nothing is simulated here."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch, answer: Correction) -> dict[str, Any]:
        asked: dict[str, Any] = {}

        def fake(problem: Any, surrogate: Any, t: Any, x: Any, **keywords: Any) -> Correction:
            asked.update(keywords, problem=problem, surrogate=surrogate, t=t, x=x)
            return answer

        monkeypatch.setattr(cli, "run_correct", fake)
        return asked

    def test_parameters_of_the_problem(self, asked):
        run("correct", "burgers", "--dim", "3", "--surrogate", "none", "--param", "sigma0=0.5")
        assert asked["problem"] is problems.burgers(3, sigma0=0.5)
        run(
            "correct",
            "burgers",
            "--surrogate",
            "none",
            "--param",
            "dim=4",
            "--param",
            "drift_in=nonlinearity",
        )
        assert asked["problem"] is problems.burgers(4, drift_in="nonlinearity")
        run("correct", "lqg", "--surrogate", "none", "--param", "seed=5", "--param", "horizon=1")
        assert asked["problem"] is problems.lqg(seed=5, horizon=1.0)

    def test_defaults(self, asked):
        run("correct", "hjb", "--dim", "2", "--surrogate", "none")
        assert asked["problem"] is problems.hjb(2)
        assert asked["method"] == "auto"
        assert asked["surrogate"] is None
        assert (asked["replicates"], asked["seed"], asked["laplacian"], asked["dtype"]) == (
            None,
            0,
            "exact",
            "float32",
        )
        assert asked["progress"] is False  # no terminal to show it on

    def test_the_other_method(self, asked):
        options = [
            "--samples",
            "64",
            "--remainder",
            "0",
            "--steps",
            "8",
            "--sampling",
            "antithetic",
        ]
        run(
            "correct",
            "hjb",
            "--dim",
            "2",
            "--surrogate",
            "none",
            "--method",
            "linearised",
            *options,
        )
        got = asked["method"]
        assert isinstance(got, Linearised)
        assert (got.samples, got.remainder, got.steps, got.sampling) == (64, 0, 8, "antithetic")

    def test_the_method(self, asked):
        paper = ["--levels", "3", "--samples", "4", "--gradient", "weights", "--threshold", "0.01"]
        run("correct", "hjb", "--surrogate", "none", *paper)
        assert asked["method"] == Picard(3, 4, gradient="weights", threshold=0.01)
        run("correct", "hjb", "--surrogate", "none", "--time", "quadrature", "--nodes", "5")
        assert asked["method"] == Picard(2, 10, time="quadrature", nodes=5)

    def test_the_rest(self, asked):
        rest = ["--hutchinson", "2", "--seed", "7", "--dtype", "float64", "--replicates", "9"]
        run("correct", "hjb", "--dim", "3", "--surrogate", "model.py:u", *rest)
        assert asked["laplacian"] == Hutchinson(2)
        assert (asked["seed"], asked["dtype"], asked["replicates"]) == (7, "float64", 9)
        assert asked["surrogate"].model is rough

    def test_a_network(self, here, asked):
        (here / "net.py").write_text(
            "import equinox as eqx, jax\nu = eqx.nn.MLP(4, 1, 5, 1, key=jax.random.key(0))\n"
        )
        run("correct", "hjb", "--dim", "3", "--surrogate", "net.py:u", "--inputs", "xt")
        network = eqx.nn.MLP(4, 1, 5, 1, key=jax.random.key(0))
        assert eqx.tree_equal(asked["surrogate"], wrap(network, problems.hjb(3), inputs="xt"))

    def test_a_model_of_several_files_and_classes(self, here, asked, monkeypatch):
        """The model may import its neighbours when it is loaded, and when it is called."""
        monkeypatch.setattr(sys, "path", list(sys.path))
        (here / "deep").mkdir()
        (here / "deep" / "neighbour.py").write_text("SLOPE, OFFSET = 2.0, 1.0\n")
        (here / "deep" / "net.py").write_text(
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
        run("correct", "hjb", "--dim", "3", "--surrogate", "deep/net.py:u")
        assert asked["surrogate"].model.slope == 2.0
        assert asked["surrogate"](jnp.asarray(3.0), jnp.zeros(3)) == 7.0


MODELS = {
    "raises.py": "raise RuntimeError('No weights here. Look elsewhere.')\n",
    "leaves.py": "import sys\nsys.exit(0)\n",
    "broken.py": "def u(t, x) return 0\n",
    "number.py": "u = 3\n",
    "vector.py": "def u(t, x):\n    return x\n",
    "net.py": "import equinox as eqx, jax\nu = eqx.nn.MLP(4, 1, 5, 1, key=jax.random.key(0))\n",
    "marks.py": "open('mark', 'w').close()\ndef u(t, x):\n    return t\n",
}
OK = ["--surrogate", "model.py:u"]
ZOO = ["correct", "convection_diffusion", "--dim", "3"]
ERRORS = {
    "unknown-problem": (["correct", "burger", *OK], ("problem", "'burger'", "burgers")),
    "dim-of-a-fixed-one": (
        ["correct", "heston", "--surrogate", "none", "--dim", "3"],
        ("dim", "heston", "got 3"),
    ),
    "steps": (["correct", "heston", "--surrogate", "none", "--steps", "-2"], ("steps", "got -2")),
    "steps-a-word": (
        ["correct", "heston", "--surrogate", "none", "--steps", "few"],
        ("steps", "got 'few'"),
    ),
    "scheme": (
        ["correct", "heston", "--surrogate", "none", "--scheme", "heun"],
        ("scheme", "got 'heun'"),
    ),
    "param-without-value": (
        ["correct", "burgers", *OK, "--param", "sigma0"],
        ("param", "'sigma0'"),
    ),
    "param-unknown": (
        ["correct", "burgers", *OK, "--param", "sigma=1"],
        ("param", "'sigma=1'", "sigma0"),
    ),
    "param-not-a-number": (
        ["correct", "burgers", *OK, "--param", "sigma0=big"],
        ("param sigma0", "float", "'big'"),
    ),
    "param-not-whole": (
        ["correct", "lqg", *OK, "--param", "seed=1.5"],
        ("param seed", "int", "'1.5'"),
    ),
    "param-out-of-range": (["correct", "burgers", *OK, "--param", "sigma0=-1"], ("sigma0", "-1.0")),
    "dim-0": (["correct", "hjb", "--dim", "0", *OK], ("dim", "got 0")),
    "model-missing": ([*ZOO, "--surrogate", "nowhere.py:u"], ("surrogate", "'nowhere.py'")),
    "model-is-a-folder": ([*ZOO, "--surrogate", "folder.py:u"], ("surrogate", "'folder.py'")),
    "model-without-name": ([*ZOO, "--surrogate", "model.py"], ("surrogate", "'model.py'")),
    "model-not-python": ([*ZOO, "--surrogate", "points.csv:u"], ("surrogate", "'points.csv:u'")),
    "model-raises": (
        [*ZOO, "--surrogate", "raises.py:u"],
        ("surrogate", "'raises.py'", "RuntimeError: No weights here"),
    ),
    "model-leaves": (
        [*ZOO, "--surrogate", "leaves.py:u"],
        ("surrogate", "'leaves.py'", "SystemExit"),
    ),
    "model-broken": (
        [*ZOO, "--surrogate", "broken.py:u"],
        ("surrogate", "'broken.py'", "SyntaxError"),
    ),
    "name-undefined": ([*ZOO, "--surrogate", "model.py:v"], ("surrogate", "'model.py'", "'v'")),
    "name-not-callable": ([*ZOO, "--surrogate", "number.py:u"], ("surrogate", "got int")),
    "vector": ([*ZOO, "--surrogate", "vector.py:u"], ("surrogate", "shape (3,)")),
    "network-without-inputs": ([*ZOO, "--surrogate", "net.py:u"], ("inputs", "got None")),
    "inputs-unknown": ([*ZOO, *OK, "--inputs", "both"], ("inputs", "'both'")),
    "points-missing": ([*ZOO, *OK, "--points", "nowhere.csv"], ("points", "'nowhere.csv'")),
    "points-text": ([*ZOO, *OK, "--points", "text.csv"], ("points", "line 2", "'zero'")),
    "points-width": ([*ZOO, *OK, "--points", "narrow.csv"], ("points", "shape (1, 3)", "--t")),
    "points-nan": ([*ZOO, *OK, "--points", "nan.csv"], ("x", "point 1")),
    "points-late": ([*ZOO, *OK, "--points", "late.csv"], ("t", "[0, 0.5]", "0.75 at point 1")),
    "t-outside": ([*ZOO, *OK, "--t", "2"], ("t", "[0, 0.5]", "got 2.0 at point 0")),
    "t-nan": ([*ZOO, *OK, "--t", "nan"], ("t", "got nan at point 0")),
    "output-ending": (
        [*ZOO, "--surrogate", "marks.py:u", "-o", "answers.xlsx"],
        ("output", "'.xlsx'"),
    ),
    "output-folder": (
        [*ZOO, "--surrogate", "marks.py:u", "-o", "nowhere/answers.csv"],
        ("output", "nowhere'"),
    ),
    "levels": ([*ZOO, *OK, "--levels", "0"], ("levels", "got 0")),
    "method": ([*ZOO, *OK, "--method", "euler"], ("method", "euler", "linearised")),
    "not an option of it": (
        [*ZOO, *OK, "--method", "linearised", "--levels", "3"],
        ("levels", "Linearised", "got 3"),
    ),
    "samples": ([*ZOO, *OK, "--samples", "-3"], ("samples", "got -3")),
    "time": ([*ZOO, *OK, "--time", "later"], ("time", "'later'")),
    "nodes": ([*ZOO, *OK, "--nodes", "3"], ("nodes", "3")),
    "gradient": ([*ZOO, *OK, "--gradient", "none"], ("gradient", "'none'")),
    "threshold": ([*ZOO, *OK, "--threshold", "-1"], ("threshold", "-1.0")),
    "hutchinson": ([*ZOO, *OK, "--hutchinson", "9"], ("laplacian", "9 of only 3")),
    "replicates": ([*ZOO, *OK, "--replicates", "0"], ("replicates", "got 0")),
    "seed": ([*ZOO, *OK, "--seed", "-1"], ("seed", "got -1")),
    "dtype": ([*ZOO, *OK, "--dtype", "float16"], ("dtype", "'float16'")),
    "bench": (["bench", "speed"], ("bench", "'speed'")),
}


class TestErrors:
    @pytest.mark.parametrize(("arguments", "fragments"), ERRORS.values(), ids=ERRORS)
    def test_one_line(self, here, monkeypatch, capsys, arguments, fragments):
        for name, text in MODELS.items():
            (here / name).write_text(text)
        (here / "folder.py").mkdir()
        (here / "text.csv").write_text("t,x1,x2,x3\n0,zero,0,0\n")
        (here / "narrow.csv").write_text("0,0,0\n")
        (here / "nan.csv").write_text("0,0,0,0\n0,nan,0,0\n")
        (here / "late.csv").write_text("0,0,0,0\n0.75,0,0,0\n")
        monkeypatch.setattr(sys, "argv", ["scasml", *arguments])
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer replaces it
        module = sys.modules["scasml._correct"]
        for room, entry in (
            (setting, "Kernel"),
            (choice, "surrogate_at"),
            (module, "surrogate_at"),
            (module, "terminal_at"),
        ):
            monkeypatch.setattr(
                room, entry, lambda *args, **kwargs: pytest.fail("reached the simulation")
            )
        with pytest.raises(SystemExit) as caught:
            main()
        line = caught.value.code  # a text: Python prints it on stderr and exits with 1
        assert isinstance(line, str)
        assert line.startswith("error: ")
        assert_one_sentence(line.removeprefix("error: "))
        for fragment in fragments:
            assert fragment in line
        assert capsys.readouterr() == ("", "")
        assert not (here / "mark").exists(), "the model ran before the output was checked"


def process(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m scasml` with a folder of its own for caches."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    return subprocess.run(
        [sys.executable, "-m", "scasml", *arguments],
        capture_output=True, text=True, timeout=300, check=False,
        env=inherited | {"XDG_CACHE_HOME": str(Path("cache").absolute())} | environment,
    )  # fmt: skip


class TestProcess:
    """The real thing; each start of Python with JAX takes seconds."""

    def test_correct(self, here, answer):
        (here / "alone.py").write_text(
            "import jax.numpy as jnp\ndef u(t, x):\n    return 0.5 * jnp.sin(x[0] * x[1] + t) + 0.1 * x[2] ** 2\n"
        )
        done = process(
            *ZOO,
            *METHOD,
            "--surrogate",
            "alone.py:u",
            "--points",
            "points.csv",
            "-o",
            "answers.csv",
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert "Wrote 4 answers to answers.csv." in done.stdout
        assert_same(here / "answers.csv", answer)
        if sys.platform == "linux":  # elsewhere the cache has its place by other customs
            assert list((here / "cache" / "scasml" / "jax").iterdir())

    def test_error(self, here):
        done = process(
            "correct", "heat", "--surrogate", "none", JAX_COMPILATION_CACHE_DIR=str(here / "mine")
        )
        assert done.returncode == 1
        assert done.stdout == ""
        (line,) = done.stderr.splitlines()
        assert line.startswith("error: problem must be one of ")
        assert not (here / "cache").exists(), "the user named a folder of his own"

    def test_usage(self):
        done = process("correct")
        assert done.returncode == 2
        assert "Missing argument" in done.stderr
        assert "Traceback" not in done.stderr
