"""solve: no surrogate at hand, so train one, then correct it; or none, if a simulation of the problem itself takes less than training."""

import inspect
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from jaxtyping import ArrayLike

from . import surrogates
from ._answer.correction import Correction, Preparation
from ._correct import Run, correct, finish
from ._equations.domain import Queries
from ._equations.problem import Problem, require_problem
from ._io.progress import Report
from ._request import query
from ._support.errors import ArgumentError, brief, one_of
from .surrogates import AbstractTrained

TRAINED: dict[str, Callable[..., AbstractTrained]] = {
    "pinn": surrogates.pinn,
    "gp": surrogates.gp,
    "tensor_train": surrogates.tensor_train,
}
# Of a network that is to be corrected anyway, at a few points: further ones cost more than they spare.
STEPS = 400
# In operations, about 100 CPU seconds: a simulation from nothing that takes less needs no network, whose training takes as long in 100 dimensions.
LITTLE = 1.5e12
KINDS = ("auto", *TRAINED)


def solve(
    problem: Problem,
    t: ArrayLike,
    x: ArrayLike,
    *,
    surrogate: Literal["auto", "pinn", "gp", "tensor_train"] = "auto",
    training: dict[str, Any] | None = None,
    seed: int = 0,
    progress: bool | Report = False,
    **options: Any,
) -> Correction:
    """The solution of `problem` at (t, x): a surrogate trained where paths from these points go, then corrected.

    - `surrogate`: the kind to train. "auto" takes the one that is shipped for this problem, if there is one; none, if a pilot says that the
      tolerance takes less work from nothing than training does; and else a PINN.
    - `training`: further arguments of `surrogates.pinn`, or of the kind that was named, such as {"steps": 2000}; a PINN takes 400 unless told.
    - `options`: those of `correct`: `rtol`, `atol`, `seconds`, `replicates`, `method` and so on. Training a PINN takes at most half
      of the `seconds`; the other kinds take what they take.

    `answer.preparation` says what was trained and how long that took; its `surrogate` can be saved and used again. It is None if nothing was.
    """
    require_problem(problem)
    one_of("surrogate", surrogate, KINDS)
    # Bad input is refused before anything is trained.
    asked = query(problem, None, t, x, seed=seed, progress=progress, **options)
    began = time.perf_counter()
    is_free = surrogate == "auto" and training is None
    model = shipped(problem) if is_free else None
    if is_free and model is None and asked.method is None and asked.budget.has_tolerance:
        run = Run(asked, time.monotonic())
        if run.work < LITTLE:
            return finish(run)
    seconds, verb = _left(asked.budget.seconds, began), "loaded"
    began = time.perf_counter()
    if model is None:
        verb, kind = "trained", "pinn" if surrogate == "auto" else surrogate
        extra: dict[str, Any] = {
            "domain": Queries(asked.t, asked.x),
            "seed": seed,
            **(training or {}),
        }
        if kind == "pinn":
            extra.setdefault("steps", STEPS)
        if kind == "pinn" and seconds is not None:
            extra.setdefault("seconds", seconds / 2)
        model = trained(problem, kind, progress=progress is True, **extra)
    spent = time.perf_counter() - began
    options["seconds"] = _left(seconds, began)
    answer = correct(problem, model, t, x, seed=seed, progress=progress, **options)
    return replace(answer, preparation=Preparation(model, verb, spent))


def _left(seconds: float | None, began: float) -> float | None:
    return None if seconds is None else max(seconds - (time.perf_counter() - began), 1e-3)


def trained(problem: Problem, kind: str, **options: Any) -> AbstractTrained:
    """A surrogate of that kind; an option that it does not have is refused by name."""
    one_of("surrogate", kind, tuple(TRAINED))
    known = inspect.signature(TRAINED[kind]).parameters
    for name, value in options.items():
        if name not in known:
            raise ArgumentError(
                f"{name} is not an option of the training of a {kind}, got {brief(value)}: leave it out, or take one of {', '.join(known)}."
            )
    return TRAINED[kind](problem, **options)


def shipped(problem: Problem) -> AbstractTrained | None:
    """The surrogate that comes with the library for this very problem."""
    if problem.parameters is None:
        return None
    path = Path(
        str(files("scasml").joinpath("pretrained", f"{problem.name}{problem.dim}.safetensors"))
    )
    model = surrogates.load(path) if path.is_file() else None
    return model if model is not None and model.problem.parameters == problem.parameters else None
