"""`scasml train`, `scasml solve`, and `scasml correct` of a file."""

import csv
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from scasml import _cli as cli
from scasml import problems, surrogates
from scasml.__main__ import main
from test_bad_input import assert_one_sentence


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "keep_compiled_programs", lambda: None)
    return tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(name: str) -> list[dict[str, str]]:
    with Path(name).open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A surrogate on disk, its picture, and what was said."""
    folder = tmp_path_factory.mktemp("trained")
    output, picture = folder / "b.safetensors", folder / "loss.png"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "keep_compiled_programs", lambda: None)
        shown = run(
            "train",
            "burgers",
            "--dim",
            "2",
            "--steps",
            "50",
            "-o",
            str(output),
            "--plot",
            str(picture),
        )
    return output, picture, shown


def test_train(trained):
    output, picture, shown = trained
    model = surrogates.load(output)
    assert model.problem is problems.burgers(2)
    assert model.record["steps"] == 50
    assert shown.startswith("Trained a pinn of burgers 2d, ")
    assert shown.endswith(f"Wrote {output}.\n")
    assert picture.stat().st_size > 1000


def test_correct_a_file(trained):
    output, *_ = trained
    path = str(output)
    few = ("--levels", "1", "--samples", "4", "--replicates", "2", "-o", "a.csv")
    run("correct", path, *few)
    alone = rows("a.csv")
    run("correct", "burgers", "--dim", "2", "--surrogate", path, *few)
    assert alone == rows("a.csv")
    assert float(alone[0]["surrogate"]) == pytest.approx(0.5, abs=0.05)


def test_solve(monkeypatch):
    """What it asks of the library."""
    asked = {}

    def fake(problem, t, x, **keywords):
        asked.update(keywords, problem=problem, t=t, x=x)
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "run_solve", fake)
    for extra, want in (
        ((), ("auto", None)),
        (("--train", "--steps", "70"), ("pinn", {"steps": 70})),
        (("--train", "--surrogate", "gp"), ("gp", None)),
    ):
        CliRunner().invoke(cli.app, ["solve", "hjb", "--dim", "3", "--rtol", "1e-3", *extra])
        assert (asked["surrogate"], asked["training"]) == want
    assert asked["problem"] is problems.hjb(3)
    assert asked["rtol"] == 1e-3
    np.testing.assert_array_equal(asked["x"], np.zeros((1, 3)))


BAD = {
    "train-where": (["train", "hjb", "-o", "a.pt"], ("output", "'a.pt'")),
    "train-no-folder": (["train", "hjb", "-o", "no/a.safetensors"], ("output", "no folder")),
    "train-plot": (["train", "hjb", "-o", "a.safetensors", "--plot", "a.gif"], ("plot", "'a.gif'")),
    "train-preset": (
        ["train", "hjb", "-o", "a.safetensors", "--preset", "best"],
        ("preset", "'best'"),
    ),
    "train-steps": (["train", "hjb", "-o", "a.safetensors", "--steps", "0"], ("steps", "got 0")),
    "train-kind": (
        ["train", "hjb", "-o", "a.safetensors", "--surrogate", "oracle"],
        ("surrogate", "'oracle'"),
    ),
    "train-option": (
        ["train", "burgers", "-o", "a.safetensors", "--surrogate", "gp", "--seconds", "3"],
        ("seconds", "3.0", "a gp"),
    ),
    "no-surrogate": (["correct", "hjb"], ("surrogate", "missing")),
    "no-file": (["correct", "a.safetensors"], ("path", "'a.safetensors'")),
    "file-and-dim": (["correct", "a.safetensors", "--dim", "3"], ("problem", "'a.safetensors'")),
    "solve-rtol": (["solve", "hjb", "--dim", "3", "--rtol", "-1"], ("rtol", "-1")),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_input(kind, monkeypatch):
    monkeypatch.setattr("scasml.surrogates._pinn.train", None)
    arguments, words = BAD[kind]
    monkeypatch.setattr("sys.argv", ["scasml", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    message = str(left.value.code).removeprefix("error: ")
    assert_one_sentence(message)
    assert all(word in message for word in words)
