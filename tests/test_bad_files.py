"""Files that cannot be read as points, or cannot be written as answers."""

import io
from typing import Any

import numpy as np
import pytest

from bad_input_case import DIM, answer, bad, each, refused
from scasml._io import tables


def as_npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def as_npz(array: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, points=array)
    return file.getvalue()


def header_only(shape: str) -> bytes:
    """Return the first 128 bytes of a .npy file whose header claims this shape."""
    return as_npy(np.zeros((2, 4))).replace(
        b"(2, 4), }" + b" " * (len(shape) - 6), shape.encode() + b", }"
    )[:128]


UNREADABLE = {
    "missing": (None, "points.csv", ("no file", "'points.csv'")),
    "no-ending": (b"0,0,0,0\n", "points", ("'points'", "ending is ''")),
    "wrong-ending": (b"0,0,0,0\n", "points.txt", ("'points.txt'", "ending is '.txt'")),
    "empty": (b"", "points.csv", ("'points.csv'", "4 numbers", "shape (0, 0)")),
    "blank-lines": (b"\n\n\n", "points.csv", ("'points.csv'", "4 numbers", "shape (0, 0)")),
    "header-alone": (b"t,x1,x2,x3\n", "points.csv", ("'points.csv'", "4 numbers", "shape (0, 0)")),
    "text-cell": (
        b"t,x1,x2,x3\n0,0,0,0\n0,0,zero,0\n",
        "points.csv",
        ("line 3", "'points.csv'", "'zero'"),
    ),
    "text-cell-first": (b"0,zero,0,0\n", "points.csv", ("line 1", "'points.csv'", "'zero'")),
    "empty-cell": (b"0,0,,0\n", "points.csv", ("line 1", "'points.csv'", "''")),
    "endless-cell": (
        b"0,0,0,0\n0,0,0," + b"z" * 9999 + b"\n",
        "points.csv",
        ("line 2", "'points.csv'", "'zzz"),
    ),
    "ragged": (b"0,0,0,0\n0,0,0\n", "points.csv", ("line 2", "'points.csv'", "3 numbers", "4")),
    "too-wide": (b"0,0,0,0,0\n" * 2, "points.csv", ("'points.csv'", "4 numbers", "shape (2, 5)")),
    "no-time-column": (b"0,0,0\n" * 2, "points.csv", ("'points.csv'", "shape (2, 3)", "--t")),
    "semicolons": (b"0;0;0;0\n0;0;0;0\n", "points.csv", ("line 2", "'points.csv'", "'0;0;0;0'")),
    "binary": (bytes(range(128, 256)), "points.csv", ("'points.csv'", "UnicodeDecodeError")),
    "npy-named-csv": (
        as_npy(np.zeros((2, 4))),
        "points.csv",
        ("'points.csv'", "UnicodeDecodeError"),
    ),
    "npy-empty": (b"", "points.npy", ("'points.npy'", "EOF")),
    "npy-rubbish": (
        bytes(range(256)),
        "points.npy",
        ("'points.npy'", "ValueError", "magic string"),
    ),
    "npy-objects": (
        as_npy(np.array([[0.0, None]])),
        "points.npy",
        ("'points.npy'", "ValueError: Object arrays"),
    ),
    "npy-truncated": (as_npy(np.zeros((2, 4)))[:-8], "points.npy", ("'points.npy'", "ValueError")),
    "npy-truncated-header": (
        as_npy(np.zeros((2, 4)))[:40],
        "points.npy",
        ("'points.npy'", "ValueError"),
    ),
    "npy-boastful-header": (header_only("(10**9, 10**9)"), "points.npy", ("'points.npy'", "Error")),
    "npy-immense": (header_only("(99999999999, 9999)"), "points.npy", ("'points.npy'", "Error")),
    "npz-named-npy": (as_npz(np.zeros((2, 4))), "points.npy", ("'points.npy'", "magic string")),
    "npy-one-axis": (
        as_npy(np.zeros(4)),
        "points.npy",
        ("'points.npy'", "4 numbers", "shape (4,)"),
    ),
    "npy-no-rows": (
        as_npy(np.zeros((0, 4))),
        "points.npy",
        ("'points.npy'", "4 numbers", "shape (0, 4)"),
    ),
    "npy-complex": (
        as_npy(np.zeros((2, 4), complex)),
        "points.npy",
        ("'points.npy'", "complex128"),
    ),
    "npy-text": (as_npy(np.full((2, 4), "0")), "points.npy", ("'points.npy'", "<U1")),
    "npy-bool": (as_npy(np.full((2, 4), True)), "points.npy", ("'points.npy'", "bool")),
    "npy-records": (
        as_npy(np.zeros(2, [("t", float), ("x", float, 3)])),
        "points.npy",
        ("'points.npy'", "[('t'"),
    ),
}


@pytest.mark.parametrize(("content", "name", "fragments"), UNREADABLE.values(), ids=UNREADABLE)
def test_points_file(here, content, name, fragments):
    if content is not None:
        (here / name).write_bytes(content)
    refused(lambda: tables.read_points(name, DIM), "points", *fragments)


@each(
    bad("none", lambda: tables.read_points(None, DIM), "points", "got None"),  # type: ignore[arg-type]
    bad("array", lambda: tables.read_points(np.zeros((9, 4)), DIM), "points", "got array([[0."),  # type: ignore[arg-type]
    bad("folder", lambda: tables.read_points(".", DIM), "points", "'.'"),
    bad(
        "width-with-t",
        lambda: tables.read_points("wide.csv", DIM, t=0.0),
        "points",
        "rows of 3 numbers",
        "shape (1, 4)",
    ),
)
def test_points_path(here, call, fragments):
    (here / "wide.csv").write_text("0,0,0,0\n")
    refused(call, *fragments)


@each(
    bad("no-ending", lambda: answer().save("answers"), "output", "'answers'", "''"),
    bad("bad-ending", lambda: answer().save("answers.xlsx"), "output", "'answers.xlsx'", "'.xlsx'"),
    bad(
        "missing-folder",
        lambda: answer().save("nowhere/answers.csv"),
        "output",
        "no folder",
        "nowhere'",
    ),
    bad("folder", lambda: answer().save("folder.csv"), "output", "'folder.csv'", "folder"),
    bad("full-disk", lambda: answer().save("full.csv"), "output", "'full.csv'", "OSError"),
    bad("none", lambda: answer().save(None), "output", "got None"),  # type: ignore[arg-type]
    bad("number", lambda: answer().save(3), "output", "got 3"),  # type: ignore[arg-type]
)
def test_output(here, call, fragments):
    (here / "folder.csv").mkdir()
    (here / "full.csv").symlink_to("/dev/full")
    refused(call, *fragments)
