"""Files of arrays and words in the safetensors format, and descriptions that go into them.

`write` and `read` handle the files; no part of a file is unpickled or run. The words of a file are
its metadata, a dict of strings. `problem_identity` and `exact_identity` describe a problem and
settings by values that JSON can hold.
"""

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import Problem
from .._support.errors import FileError, first_line
from .._support.precision import cast, use_dtype

FILE_FORMAT = "scasml 1"


def problem_identity(problem: Problem) -> dict[str, Any]:
    """Describe a problem by a dict that JSON can hold.

    The dict has the name of the problem, its parameters if it is in the zoo, d and T. Its `values`
    are g, F, drift and diffusion at one point, at most two numbers each, rounded to 6 digits.
    """
    values = np.concatenate([np.ravel(a)[:2] for a in function_values(problem)])
    return {
        "name": problem.name,
        "parameters": None if problem.parameters is None else dict(problem.parameters),
        "dim": problem.dim,
        "horizon": problem.horizon,
        "values": [float(f"{float(v):.6g}") for v in values],
    }


def function_values(problem: Problem) -> list[NDArray[np.float32]]:
    """Return g, F, drift and diffusion at one point, in float32."""
    rng = np.random.default_rng(0)
    x = problem.x0 + 0.05 * (1 + np.abs(problem.x0)) * rng.uniform(size=problem.dim)
    point: Any = (
        np.float32(a) for a in (problem.horizon / 3, x, 0.3, rng.normal(size=problem.dim))
    )
    with use_dtype(np.dtype(np.float32)):
        single = cast(problem, np.dtype(np.float32))
        return [np.asarray(a) for a in _functions_at(single, *point)]


@eqx.filter_jit
def _functions_at(problem: Problem, t: Array, x: Array, u: Array, z: Array) -> tuple[Array, ...]:
    return (
        problem.terminal(x),
        problem.nonlinearity(t, x, u, z),
        problem.drift(t, x),
        problem.diffusion(t, x),
    )


def exact_identity(value: Any) -> Any:
    """Describe a value by what JSON can hold, such that different values have different results.

    A dataclass becomes its class and fields, and an array the digest of its bytes. `repr` of an
    array would not suffice: NumPy prints 8 digits of a number and omits the middle of a long array.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: exact_identity(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"class": type(value).__qualname__, **fields}
    if isinstance(value, np.ndarray | jax.Array):
        array = np.ascontiguousarray(value)
        digest = hashlib.sha256(array.tobytes()).hexdigest()
        return {"dtype": str(array.dtype), "shape": list(np.shape(value)), "sha256": digest}
    if isinstance(value, tuple | list):
        return [exact_identity(each) for each in value]
    return value if isinstance(value, str | int | float | None) else repr(value)


def write(path: Path, arrays: dict[str, NDArray[Any]], words: dict[str, str]) -> None:
    """Write arrays and words to a file, or raise `FileError`.

    An existing file is replaced only when the new one is complete. If the process is killed before,
    the old file remains.
    """
    from safetensors.numpy import save as serialised

    if not path.absolute().parent.is_dir():
        raise FileError(
            f"path: there is no folder {str(path.absolute().parent)!r}: "
            "make it first, or name another."
        )
    if path.is_dir():
        raise FileError(f"path: {str(path)!r} is a folder: name a file.")
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        contiguous = {
            name: np.ascontiguousarray(a) if a.ndim else a.copy() for name, a in arrays.items()
        }
        unfinished.write_bytes(serialised(contiguous, {"format": FILE_FORMAT, **words}))
        os.replace(unfinished, path)
    except OSError as error:
        raise FileError(
            f"path: writing {str(path)!r} failed with {first_line(error)}: name another file."
        ) from error


def read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the arrays and words of a file that `write` wrote.

    Raises `FileError` if the file is missing or damaged, was not written by scasml, or holds a
    number that is not finite.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileError(f"path: there is no file {str(path)!r}: check the path.")
    try:
        with safe_open(path, "numpy") as file:
            words = file.metadata() or {}
            # `file` is not a dict, so it cannot be iterated over.
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise FileError(
            f"path: {str(path)!r} is not a whole safetensors file ({first_line(error)}): "
            "save the surrogate again."
        ) from error
    if words.get("format") != FILE_FORMAT:
        raise FileError(
            f"path: {str(path)!r} was not written by scasml: "
            "load its weights into a model of your own and use surrogates.wrap."
        )
    for name, array in arrays.items():
        if not (np.issubdtype(array.dtype, np.number) and np.isfinite(array).all()):
            raise FileError(
                f"path: {str(path)!r} holds NaN or infinity in {name!r}: train the surrogate again."
            )
    return arrays, words
