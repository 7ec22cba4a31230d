"""Tools for the tests of the command line: run it in this process, read and write its files."""

import csv
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from bad_input_case import assert_one_sentence
from scasml import Correction
from scasml.__main__ import main
from scasml._cli import app

DIM = 3
# Numbers without a short decimal form. The last point is at the horizon.
T = np.array([0.1 + 0.2, 1 / 3, 0.0, 0.5])
X = np.array([[1 / 3, -2 / 7, 1e-17], [np.pi, 0.1, -0.1], [1e5 / 3, 2.0, -1 / 9], [0.1, 0.2, 0.3]])
ZOO = "correct convection_diffusion --dim 3"


def run(command: str, *more: str) -> str:
    """Run `scasml` with the words of `command` and further arguments; return what it prints."""
    result = CliRunner().invoke(app, [*shlex.split(command), *more], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def check_refused(monkeypatch: pytest.MonkeyPatch, command: str, *fragments: str) -> None:
    """Check that `scasml` ends with an error of one sentence that contains the fragments."""
    monkeypatch.setattr(sys, "argv", ["scasml", *shlex.split(command)])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # typer replaces it
    with pytest.raises(SystemExit) as caught:
        main()
    line = caught.value.code  # a text, which Python prints on stderr before it exits with 1
    assert isinstance(line, str)
    assert line.startswith("error: ")
    assert_one_sentence(line.removeprefix("error: "))
    for fragment in fragments:
        assert fragment in line


def write_csv(path: Path, header: list[str], rows: Any) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header] * bool(header) + np.asarray(rows).tolist())


def read(path: Path) -> dict[str, np.ndarray]:
    """Return the columns of an output file by name. No file needs unpickling."""
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
    """Check that an output file holds an answer, bit for bit."""
    got, expected = read(path), answer.columns(gradient=True)
    assert set(got) == set(expected)
    for name, column in expected.items():
        if name == "status":
            assert got[name].tolist() == column.tolist()
        else:
            assert got[name].dtype.kind == column.dtype.kind
            assert got[name].shape == column.shape
            assert got[name].tobytes() == column.tobytes(), name
