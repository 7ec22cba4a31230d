"""Tests of `scasml train`, of `scasml solve`, and of `scasml correct` for a file."""

import csv
import functools
from pathlib import Path

import numpy as np
import pytest

from bad_input_case import fail_if_reached
from cli_case import check_refused, run
from scasml import problems, surrogates

pytestmark = pytest.mark.usefixtures("no_disk_cache", "here")


def rows(name: str) -> list[dict[str, str]]:
    with Path(name).open() as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def trained(tmp_path_factory, no_disk_cache):
    """A surrogate on disk, its picture, and what the command printed."""
    folder = tmp_path_factory.mktemp("trained")
    output, picture = folder / "b.safetensors", folder / "loss.png"
    shown = run(f"train burgers --dim 2 --iterations 50 -o {output} --plot {picture}")
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
    options = "--levels 1 --samples 4 --replicates 2 -o a.csv"
    run(f"correct {output} {options}")
    alone = rows("a.csv")
    run(f"correct burgers --dim 2 --surrogate {output} {options}")
    assert alone == rows("a.csv")
    assert float(alone[0]["surrogate"]) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("options", "kind", "training"),
    [
        ("", "auto", None),
        ("--train --iterations 70", "pinn", {"iterations": 70}),
        ("--train --kind gp", "gp", None),
    ],
)
def test_options_of_solve(options, kind, training, monkeypatch):
    """Every option reaches `scasml.solve`. A replacement of it records them and runs nothing."""
    asked = {}

    class Asked(Exception):
        pass

    def record(problem, t, x, **keywords):
        asked.update(keywords, problem=problem, t=t, x=x)
        raise Asked

    monkeypatch.setattr("scasml._api.solve", record)
    with pytest.raises(Asked):
        run(f"solve hjb --dim 3 --rtol 1e-3 {options}")
    assert (asked["kind"], asked["training"]) == (kind, training)
    assert asked["problem"] is problems.hjb(3)
    assert asked["rtol"] == 1e-3
    np.testing.assert_array_equal(asked["x"], np.zeros((1, 3)))


BAD = {
    "train-where": ("train hjb -o a.pt", ("output", "'a.pt'")),
    "train-no-folder": ("train hjb -o no/a.safetensors", ("output", "no folder")),
    "train-plot": ("train hjb -o a.safetensors --plot a.gif", ("plot", "'a.gif'")),
    "train-preset": ("train hjb -o a.safetensors --preset best", ("preset", "'best'")),
    "train-iterations": (
        "train hjb -o a.safetensors --iterations 0",
        ("iterations", "got 0"),
    ),
    "train-kind": ("train hjb -o a.safetensors --kind oracle", ("kind", "'oracle'")),
    "train-option": (
        "train burgers -o a.safetensors --kind gp --seconds 3",
        ("seconds", "3.0", "a gp"),
    ),
    "no-surrogate": ("correct hjb", ("surrogate", "missing")),
    "no-file": ("correct a.safetensors", ("path", "'a.safetensors'")),
    "file-and-dim": ("correct a.safetensors --dim 3", ("problem", "'a.safetensors'")),
    "solve-rtol": ("solve hjb --dim 3 --rtol -1", ("rtol", "-1")),
    "solve-kind": ("solve hjb --dim 3 --kind oracle", ("kind", "'oracle'")),
    "solve-iterations": ("solve hjb --dim 3 --iterations 0", ("iterations", "got 0")),
}


@pytest.mark.parametrize(("command", "fragments"), BAD.values(), ids=BAD)
def test_bad_input(command, fragments, monkeypatch):
    """The input is refused before a training begins."""
    pinn = surrogates.KINDS["pinn"]

    @functools.wraps(pinn.train)
    def train(problem, **options):
        return pinn.train(problem, **options | {"progress": fail_if_reached})

    monkeypatch.setitem(surrogates.KINDS, "pinn", pinn._replace(train=train))
    check_refused(monkeypatch, command, *fragments)
