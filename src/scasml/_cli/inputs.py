"""What the user names on the command line: problems, models, points, methods.

Each function turns words of the command line into the objects that the Python interface takes.
They raise `ArgumentError` for words that do not fit, and `FileError` for files that cannot be read.
"""

import contextlib
import difflib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import problems
from .._equations.problem import Problem
from .._io import tables
from .._support.errors import ArgumentError, FileError, brief, first_line, one_of
from ..estimators import AbstractEstimator, Linearised, Picard
from ..surrogates import load, wrap


def read_model(
    problem: str, surrogate: str | None, dim: int | None, param: list[str], inputs: str | None
) -> tuple[Problem, Any]:
    """Return the problem and the surrogate, which is None for the word "none".

    **Arguments:**

    - `problem`: a name of the zoo, or a surrogate file of this library. Such a file contains its
      problem, so the other arguments must then be None or empty.
    - `surrogate`: "model.py:u", a surrogate file, or "none".
    - `dim`, `param`: as in `read_problem`.
    - `inputs`: how the model in "model.py" is called, as in `surrogates.wrap`. It must be None for
      a surrogate file and for "none".
    """
    source = problem if problem.endswith(".safetensors") else str(surrogate)
    if inputs is not None and (source == "none" or source.endswith(".safetensors")):
        raise ArgumentError(
            f"inputs is for a model in a Python file, got {inputs!r} with {source!r}: leave it out."
        )
    if problem.endswith(".safetensors"):
        if surrogate is not None or dim is not None or param:
            raise ArgumentError(
                f"problem is given by the file already, got {problem!r} and more: "
                "leave out --surrogate, --dim and --param."
            )
        model = load(problem)
        return model.problem, model
    equation = read_problem(problem, dim, param)
    if surrogate is None:
        raise ArgumentError(
            "surrogate is missing: pass --surrogate model.py:u, a surrogate.safetensors, or none."
        )
    if surrogate == "none":
        return equation, None
    if surrogate.endswith(".safetensors"):
        return equation, load(surrogate, equation)
    return equation, wrap(read_object(surrogate), equation, inputs=inputs)


def read_problem(name: str, dim: int | None, parameters: list[str]) -> Problem:
    """Return the problem of the zoo with that name.

    `parameters` are strings name=value. Values are converted to the types of the defaults. `dim` is
    None for the default dimension.
    """
    catalogue = problems.catalogue()
    if name not in catalogue:
        near = ", ".join(difflib.get_close_matches(name, catalogue, n=3, cutoff=0.3)) or "hjb"
        raise ArgumentError(
            f"problem must be one of those that `scasml problems` lists, got {name!r}: take one, "
            f"such as {near}."
        )
    make = catalogue[name]
    known = inspect.signature(make).parameters
    if dim is not None and "dim" not in known:
        raise ArgumentError(
            f"dim is not a parameter of {name}, got {dim}: leave it out, its dimension is fixed."
        )
    keywords: dict[str, Any] = {} if dim is None else {"dim": dim}
    for text in parameters:
        key, equals, value = text.partition("=")
        if not equals or key not in known:
            raise ArgumentError(
                f"param must be name=value with a name among {', '.join(known)}, got {text!r}: "
                "correct it."
            )
        if key in keywords:
            raise ArgumentError(
                f"param {key} must be given once, got {keywords[key]!r} and {text!r}: "
                "leave one of them out."
            )
        keywords[key] = _converted(key, value, known[key].default)
    return make(**keywords)


def _converted(name: str, text: str, default: Any) -> Any:
    """Return the value of a parameter in the type of its default.

    If the default is None, the value is a number if `text` is one, and otherwise `text`.
    """
    kind = next((kind for kind in _CONVERSIONS if isinstance(default, kind)), None)
    if kind is None:
        raise ArgumentError(
            f"param {name} cannot be set on the command line, got {text!r}: leave it out, or build "
            "the problem in Python."
        )
    for convert in _CONVERSIONS[kind]:
        with contextlib.suppress(ValueError):
            return convert(text)
    wanted = "True or False" if kind is bool else kind.__name__
    raise ArgumentError(f"param {name} must be {wanted}, got {text!r}: correct it.")


def _truth(text: str) -> bool:
    """Return the truth value that "true" or "false" names; otherwise raise ValueError."""
    return ("false", "true").index(text.lower()) == 1


# The conversions of a text that are tried in turn, for each type of a default. A bool is an int,
# so bool comes first.
_CONVERSIONS: dict[type, tuple[Callable[[str], Any], ...]] = {
    bool: (_truth,),
    int: (int,),
    float: (float,),
    str: (str,),
    type(None): (int, float, str),
}


def read_method(method: str, **options: Any) -> AbstractEstimator | str:
    """Return the estimator of that name with the options that are not None, or "auto".

    With an option, "auto" means Picard iteration.
    """
    one_of("method", method, ("auto", "picard", "linearised"))
    given = {name: value for name, value in options.items() if value is not None}
    if method == "auto" and not given:
        return "auto"
    make = Linearised if method == "linearised" else Picard
    known = inspect.signature(make).parameters
    for name, value in given.items():
        if name not in known:
            raise ArgumentError(
                f"{name} is not an option of {make.__name__}, got {brief(value)}: leave it out."
            )
    return make(**given)


def read_points(points: Path | None, equation: Problem, t: float | None) -> tuple[Any, Any]:
    """Return t (points,) and x (points, d), from a file or else only the problem's x0.

    `t` is the time of all points if it is given. Without it, a file contains the times, and x0 has
    the time 0.
    """
    if points is not None:
        return tables.read_points(points, equation.dim, t)
    return np.full(1, t or 0.0), equation.x0[None]


def read_object(reference: str) -> Any:
    """Return the object `u` of `model.py:u`. This runs the file, which is the user's own code."""
    file, colon, name = reference.rpartition(":")
    if not colon or not file.endswith(".py") or not name.isidentifier():
        raise ArgumentError(
            f"surrogate must be file.py:name or none, got {reference!r}: name a function in a "
            "Python file."
        )
    path = Path(file)
    if not path.is_file():
        raise FileError(f"surrogate: there is no file {file!r}: check the path.")
    spec = importlib.util.spec_from_file_location(f"scasml_model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = (
        module  # dataclasses, and so equinox modules, look their annotations up there
    )
    sys.path.insert(
        0, str(path.absolute().parent)
    )  # the model may import its neighbours, now or when it is called
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise FileError(
            f"surrogate: running {file!r} failed with {first_line(error)}: correct the file."
        ) from error
    if name not in vars(module):
        raise ArgumentError(f"surrogate: {file!r} defines no {name!r}: name one of its functions.")
    return vars(module)[name]
