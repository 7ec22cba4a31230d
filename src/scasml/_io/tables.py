"""Tables on disk and in memory: points are read, answers are written.

`read_points` reads a CSV or .npy file of points. `write` writes named columns as CSV, .npy or .npz,
and `to_xarray` turns them into a dataset. Pickled data is never read.
"""

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._support.errors import (
    ArgumentError,
    ArgumentTypeError,
    FileError,
    brief,
    first_line,
    missing_extra,
)

Columns = dict[str, NDArray[Any]]


def read_points(
    path: str | Path, dim: int, t: float | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Read times (B,) and points (B, dim) from a CSV or .npy file.

    A row of the file is t, x1, ..., xd. If `t` is given, a row is x1, ..., xd and all points have
    the time `t`. Raises `FileError` if the file cannot be read or has another shape.
    """
    path = _path("points", path)
    if not path.is_file():
        raise FileError(f"points: there is no file {str(path)!r}: check the path.")
    suffix = path.suffix.lower()
    if suffix == ".npy":
        rows = _read_npy(path)
    elif suffix == ".csv":
        rows = _read_csv(path)
    else:
        raise FileError(
            f"points: cannot read {str(path)!r}, whose ending is {suffix!r}: "
            "give a .csv or .npy file."
        )
    width = dim + (t is None)
    if rows.ndim != 2 or rows.shape[1] != width or not len(rows):
        columns = f"t, x1, ..., x{dim}" if t is None else f"x1, ..., x{dim}"
        no_time = t is None and rows.ndim == 2 and rows.shape[1] == dim
        hint = ", or pass --t for points without a time column" if no_time else ""
        raise FileError(
            f"points: {str(path)!r} must hold rows of {width} numbers, {columns}, "
            f"got shape {rows.shape}: save one row per point{hint}."
        )
    return (rows[:, 0], rows[:, 1:]) if t is None else (np.full(len(rows), t), rows)


def _path(argument: str, path: Any) -> Path:
    """Convert `path`, or raise an error that names the argument."""
    try:
        return Path(path)
    except TypeError as error:
        raise ArgumentTypeError(
            f"{argument} must be a path, got {brief(path)}: pass a str or a pathlib.Path."
        ) from error


def _read_npy(path: Path) -> NDArray[Any]:
    """Read an array of real numbers as float64."""
    try:
        with path.open("rb") as file:
            rows = np.lib.format.read_array(file, allow_pickle=False)
    except Exception as error:  # damaged files raise many types, MemoryError among them
        raise FileError(
            f"points: {str(path)!r} is not a .npy array of numbers ({first_line(error)}): "
            "save one with numpy.save."
        ) from error
    if rows.dtype.kind not in "fiu":
        raise FileError(
            f"points: {str(path)!r} must hold real numbers, got {rows.dtype!s:.60}: "
            "save floats with numpy.save."
        )
    return rows.astype(np.float64)


def _read_csv(path: Path) -> NDArray[Any]:
    """Read rows of numbers as a float64 matrix (rows, columns).

    Empty lines are skipped, and so is a first line without any number, which is a header.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [(number, row) for number, row in enumerate(csv.reader(file), 1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileError(
            f"points: cannot read {str(path)!r} as CSV text ({first_line(error)}): "
            "save it as UTF-8 CSV."
        ) from error
    if lines and not any(_is_number(cell) for cell in lines[0][1]):
        lines = lines[1:]  # the header
    rows = []
    for number, row in lines:
        bad = [cell for cell in row if not _is_number(cell)]
        if bad:
            raise FileError(
                f"points: line {number} of {str(path)!r} holds {brief(bad[0])}, "
                "which is not a number: correct that line."
            )
        if rows and len(row) != len(rows[0]):
            raise FileError(
                f"points: line {number} of {str(path)!r} has {len(row)} numbers "
                f"and the lines before it {len(rows[0])}: correct that line."
            )
        rows.append([float(cell) for cell in row])
    return np.asarray(rows, np.float64).reshape(len(rows), len(rows[0]) if rows else 0)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def check_writable(
    path: str | Path, endings: tuple[str, ...] = (".csv", ".npy", ".npz"), argument: str = "output"
) -> None:
    """Raise `FileError` if a path has a wrong suffix, is a folder, or has no parent folder.

    A long run calls this check at its beginning. `endings` are the accepted suffixes, and
    `argument` is the name of the argument, for the message.
    """
    path = _path(argument, path)
    if path.suffix.lower() not in endings:
        names = " or ".join(filter(None, [", ".join(endings[:-1]), endings[-1]]))
        raise FileError(
            f"{argument}: cannot write {str(path)!r}, whose ending is {path.suffix!r}: "
            f"name a {names} file."
        )
    if path.is_dir():
        raise FileError(f"{argument}: cannot write {str(path)!r}, which is a folder: name a file.")
    if not path.absolute().parent.is_dir():
        raise FileError(
            f"{argument}: there is no folder {str(path.absolute().parent)!r}: make it first."
        )


def write(path: str | Path, columns: Columns) -> None:
    """Write columns of shape (B,) or (B, d) to a .csv, .npy or .npz file.

    A .npy file holds one structured array, and a .npz file one array per column. Raises `FileError`
    if writing fails.
    """
    check_writable(path)
    path = Path(path)
    try:
        _write(
            path, {name: c.astype(str) if c.dtype == object else c for name, c in columns.items()}
        )
    except OSError as error:
        raise FileError(
            f"output: writing {str(path)!r} failed with {first_line(error)}: "
            "correct the cause, or name another file."
        ) from error


def _write(path: Path, columns: Columns) -> None:
    """Write columns, none of which holds Python objects, in the format of the suffix."""
    suffix = path.suffix.lower()
    if suffix in (".npy", ".npz"):
        with path.open("wb") as file:  # given the name A.NPY, NumPy would write A.NPY.npy
            if suffix == ".npz":
                np.savez(file, **columns)  # type: ignore[arg-type]
            else:
                np.save(file, _records(columns), allow_pickle=False)
    else:
        flat = _flatten(columns)
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(flat)
            writer.writerows(zip(*(column.tolist() for column in flat.values()), strict=True))


def _flatten(columns: Columns) -> Columns:
    """Split each column of shape (B, d), such as x, into d columns x1, ..., xd."""
    flat: Columns = {}
    for name, column in columns.items():
        if column.ndim == 1:
            flat[name] = column
        else:
            flat.update({f"{name}{i + 1}": column[:, i] for i in range(column.shape[1])})
    return flat


def _records(columns: Columns) -> NDArray[Any]:
    """Join the columns into one structured array of shape (B,)."""
    fields = [(name, column.dtype, column.shape[1:]) for name, column in columns.items()]
    records = np.empty(len(next(iter(columns.values()))), fields)
    for name, column in columns.items():
        records[name] = column
    return records


def to_xarray(columns: Columns, attributes: dict[str, str]) -> Any:
    """Return an `xarray.Dataset` of the columns, with dimensions "point" and "axis".

    The columns have shape (B,) or (B, d). Raises MissingExtraError if xarray is not installed, and
    ArgumentError if there are no columns.
    """
    try:
        import xarray
    except ImportError as error:
        raise missing_extra("xarray", "io", "answer.to_xarray()") from error
    if not columns:
        raise ArgumentError("columns must not be empty, got none: pass at least one quantity.")
    variables = {
        name: (("point", "axis")[: column.ndim], column) for name, column in columns.items()
    }
    return xarray.Dataset(variables, attrs=attributes)
