"""Trained surrogates from disk: `load` reads a file, `shipped` finds one that comes with scasml."""

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from .. import problems
from .._equations.problem import Problem, require_problem
from .._support.errors import FileError, brief, first_line
from .files import problem_identity, read
from .trained import KINDS, AbstractTrained, Record

# Relative and absolute tolerance of the comparison of the `values` of two `problem_identity`. The
# saved values may have been computed on another machine.
IDENTITY_TOLERANCE = 1e-4

Refusal = Callable[[str, str], FileError]


def load(path: str | Path, problem: Problem | None = None) -> AbstractTrained:
    """Return the surrogate that `surrogate.save(path)` wrote.

    A problem of the zoo is built again from the parameters in the file. Any other problem must be
    passed as `problem`. Raises `FileError` if the file cannot be read, or if it does not hold a
    surrogate of this problem.
    """
    arrays, words = read(Path(path))
    refuse = lambda what, remedy: FileError(f"path: {str(path)!r} {what}: {remedy}.")
    kind = words.get("kind")
    if kind not in KINDS:
        raise refuse(
            f"holds a surrogate of kind {brief(kind)}, which this version does not know",
            "update scasml",
        )
    try:
        architecture, identity, record = (
            json.loads(words[name]) for name in ("architecture", "problem", "record")
        )
        if not (
            isinstance(architecture, dict)
            and isinstance(identity, dict)
            and isinstance(record, list)
        ):
            raise TypeError("not what was saved")
        name, parameters, _ = identity["name"], identity["parameters"], int(identity["dim"])
    except (KeyError, TypeError, ValueError) as error:
        raise refuse(
            f"has damaged metadata ({first_line(error)})", "save the surrogate again"
        ) from error
    if problem is None:
        problem = _build_problem(name, parameters, refuse)
    require_problem(problem)
    _require_same_problem(identity, problem_identity(problem), refuse)
    try:
        return KINDS[kind].model.build(
            problem, architecture, arrays, Record((str(k), v) for k, v in record)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise refuse(
            f"does not hold the arrays of a {kind} ({first_line(error)})",
            "save the surrogate again",
        ) from error


def shipped(problem: Problem) -> AbstractTrained | None:
    """Return the surrogate that comes with scasml for this problem and its parameters, or None."""
    if problem.parameters is None:
        return None
    folder = files("scasml.surrogates").joinpath("pretrained")
    path = Path(str(folder.joinpath(f"{problem.name}{problem.dim}.safetensors")))
    model = load(path) if path.is_file() else None
    return model if model is not None and model.problem.parameters == problem.parameters else None


def _build_problem(name: Any, parameters: Any, refuse: Refusal) -> Problem:
    """Build the problem of the zoo that has this name and these parameters, both from a file.

    Raises the error that `refuse(what, remedy)` returns if there is no such problem.
    """
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


def _require_same_problem(saved: dict[str, Any], given: dict[str, Any], refuse: Refusal) -> None:
    """Raise unless two results of `problem_identity` describe the same problem.

    The error is that of `refuse(what, remedy)`.
    """
    for fact in ("dim", "horizon"):
        if saved.get(fact) != given[fact]:
            raise refuse(
                f"was trained for {fact} {brief(saved.get(fact))}, "
                f"got a problem of {fact} {given[fact]}",
                "pass the problem it was trained for",
            )
    try:
        is_same = np.allclose(
            saved["values"],
            given["values"],
            rtol=IDENTITY_TOLERANCE,
            atol=IDENTITY_TOLERANCE,
            equal_nan=True,
        )
    except (KeyError, TypeError, ValueError):
        is_same = False
    if not is_same:
        raise refuse(
            f"was trained for another problem than {given['name']!r}: "
            "their g, F, drift or diffusion differ",
            "pass the problem it was trained for",
        )
