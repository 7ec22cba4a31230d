"""Surrogates on disk: safetensors, with words beside the arrays. Nothing is ever unpickled or run."""

import json
import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .. import problems
from .._equations.problem import Problem, require_problem
from .._support.errors import FileError, brief, first_line
from .._support.precision import use_dtype
from .trained import AbstractTrained, Record

FORMAT = "scasml 1"
# Of the numbers that tell two problems apart, computed on another machine.
SAME = 1e-4


def identity(problem: Problem) -> dict[str, Any]:
    """What is known of a problem: its name and parameters if it is of the zoo, and a few values of its functions."""
    rng = np.random.default_rng(0)
    x = problem.x0 + 0.05 * (1 + np.abs(problem.x0)) * rng.uniform(size=problem.dim)
    points: Any = (
        np.float32(a) for a in (problem.horizon / 3, x, 0.3, rng.normal(size=problem.dim))
    )
    with use_dtype(np.dtype(np.float32)):
        values = np.concatenate([np.ravel(a)[:2] for a in _functions(problem, *points)])
    return {
        "name": problem.name,
        "parameters": None if problem.parameters is None else dict(problem.parameters),
        "dim": problem.dim,
        "horizon": problem.horizon,
        "values": [float(f"{float(v):.6g}") for v in values],
    }


@eqx.filter_jit
def _functions(problem: Problem, t: Array, x: Array, u: Array, z: Array) -> tuple[Array, ...]:
    return (
        problem.terminal(x),
        problem.nonlinearity(t, x, u, z),
        problem.drift(t, x),
        problem.diffusion(t, x),
    )


def save(surrogate: AbstractTrained, path: str | Path) -> None:
    words = {
        "kind": surrogate.kind,
        "architecture": json.dumps(surrogate.architecture()),
        "problem": json.dumps(identity(surrogate.problem)),
        "record": json.dumps(list(surrogate.record)),
        "scasml": version("scasml"),
    }
    write(Path(path), {name: np.asarray(a) for name, a in surrogate.arrays().items()}, words)


def load(path: str | Path, problem: Problem | None = None) -> AbstractTrained:
    """The surrogate that `surrogate.save(path)` wrote.

    A problem of the zoo is built again from its parameters; for one of your own pass it as `problem`.
    """
    from . import KINDS

    arrays, words = read(Path(path))
    refuse = lambda what, remedy: FileError(f"path: {str(path)!r} {what}: {remedy}.")
    kind = words.get("kind")
    if kind not in KINDS:
        raise refuse(
            f"holds a surrogate of kind {brief(kind)}, which this version does not know",
            "update scasml",
        )
    try:
        architecture, known, record = (
            json.loads(words[name]) for name in ("architecture", "problem", "record")
        )
        if not (
            isinstance(architecture, dict) and isinstance(known, dict) and isinstance(record, list)
        ):
            raise TypeError("not what was saved")
        wanted = (known["name"], known["parameters"], int(known["dim"]))
    except (KeyError, TypeError, ValueError) as error:
        raise refuse(
            f"has damaged metadata ({first_line(error)})", "save the surrogate again"
        ) from error
    if problem is None:
        problem = _rebuilt(*wanted, refuse)
    require_problem(problem)
    _compare(known, identity(problem), refuse)
    try:
        return KINDS[kind].build(
            problem, architecture, arrays, Record((str(k), v) for k, v in record)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise refuse(
            f"does not hold the arrays of a {kind} ({first_line(error)})",
            "save the surrogate again",
        ) from error


def _rebuilt(name: Any, parameters: Any, dim: int, refuse: Any) -> Problem:
    make = problems.catalogue().get(name) if isinstance(name, str) else None
    if make is None or not isinstance(parameters, dict):
        raise refuse(
            f"is of the problem {brief(name)}, which is not of the zoo",
            "pass the problem as problem=",
        )
    try:
        return make(**parameters)
    except (TypeError, ValueError) as error:
        raise refuse(
            f"names parameters that {name} does not take ({first_line(error)})",
            "pass the problem as problem=",
        ) from error


def _compare(known: dict[str, Any], given: dict[str, Any], refuse: Any) -> None:
    for fact in ("dim", "horizon"):
        if known.get(fact) != given[fact]:
            raise refuse(
                f"was trained for {fact} {brief(known.get(fact))}, got a problem of {fact} {given[fact]}",
                "pass the problem it was trained for",
            )
    try:
        same = np.allclose(known["values"], given["values"], rtol=SAME, atol=SAME, equal_nan=True)
    except (KeyError, TypeError, ValueError):
        same = False
    if not same:
        raise refuse(
            f"was trained for another problem than {given['name']!r}: their g, F, drift or diffusion differ",
            "pass the problem it was trained for",
        )


def write(path: Path, arrays: dict[str, NDArray[Any]], words: dict[str, str]) -> None:
    """Whole or not at all: a kill in the middle leaves the file that was there."""
    from safetensors.numpy import save as serialised

    if not path.absolute().parent.is_dir():
        raise FileError(
            f"path: there is no folder {str(path.absolute().parent)!r}: make it first, or name another."
        )
    if path.is_dir():
        raise FileError(f"path: {str(path)!r} is a folder: name a file.")
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        contiguous = {
            name: np.ascontiguousarray(a) if a.ndim else a.copy() for name, a in arrays.items()
        }
        unfinished.write_bytes(serialised(contiguous, {"format": FORMAT, **words}))
        os.replace(unfinished, path)
    except OSError as error:
        raise FileError(
            f"path: writing {str(path)!r} failed with {first_line(error)}: name another file."
        ) from error


def read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise FileError(f"path: there is no file {str(path)!r}: check the path.")
    try:
        with safe_open(path, "numpy") as file:
            words = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is no dict
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise FileError(
            f"path: {str(path)!r} is not a whole safetensors file ({first_line(error)}): save the surrogate again."
        ) from error
    if words.get("format") != FORMAT:
        raise FileError(
            f"path: {str(path)!r} was not written by scasml: load its weights into a model of your own and use surrogates.wrap."
        )
    for name, array in arrays.items():
        if not (np.issubdtype(array.dtype, np.number) and np.isfinite(array).all()):
            raise FileError(
                f"path: {str(path)!r} holds NaN or infinity in {name!r}: train the surrogate again."
            )
    return arrays, words
