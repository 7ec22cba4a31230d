"""The entry points: `correct`, `refine` and `solve`.

One call goes through these steps: `validate` checks the arguments. `begin` plans the call: `plan`
settles the estimator that the user named, or `choose` makes the automatic choice. `finish` runs
rounds of replicates, and `assemble` makes the answer.
"""

import inspect
import time
from collections.abc import Iterator
from typing import Any

from jaxtyping import ArrayLike

from ._answer.correction import Correction, with_preparation
from ._answer.records import Preparation
from ._equations.base import AbstractEquation
from ._equations.domain import Queries
from ._equations.generator import Hutchinson
from ._equations.problem import Problem, require_problem
from ._io.progress import Report
from ._request import validate
from ._session import answers, begin, finish
from ._support.errors import ArgumentTypeError, brief, one_of
from .estimators import AbstractEstimator
from .execution.executor import AbstractExecutor
from .surrogates import KINDS
from .surrogates.loading import shipped
from .surrogates.trained import check_training_options, train_kind

# Iterations of a network that is corrected afterwards: more cost more than they save.
TRAINING_ITERATIONS = 400
# Work of a simulation from zero, about 100 CPU seconds, below which no network is trained: training
# in 100 dimensions takes as long.
WORK_WITHOUT_TRAINING = 1.5e12


def correct(
    problem: AbstractEquation,
    surrogate: Any,
    t: ArrayLike,
    x: ArrayLike,
    *,
    method: AbstractEstimator | str = "auto",
    rtol: float | None = None,
    atol: float | None = None,
    seconds: float | None = None,
    replicates: int | None = None,
    safe: bool = True,
    throw: bool = False,
    seed: int = 0,
    laplacian: Hutchinson | str = "exact",
    dtype: Any = None,
    with_gradient: bool = True,
    chunk: int | None = None,
    executor: AbstractExecutor | None = None,
    progress: bool | Report = False,
) -> Correction:
    """Return the solution of `problem` at (t, x): the surrogate plus a simulation of its defect.

    **Arguments:**

    - `problem`: the PDE.
    - `surrogate`: what `surrogates.wrap` takes or returns; None simulates the problem itself.
    - `t`: a number or (B,); `x`: (d,) or (B, d). One point gives scalar answers.
    - `method`: an estimator, or "auto", which lets pilots choose separately at each point.
      `answer.choices` says what was chosen and why.
    - `rtol`, `atol`: a point is done when half of its 95 % interval, bias included, is at most
      rtol |value| or at most atol.
    - `seconds`: limit for the whole call, compilation included.
    - `replicates`: independent repeats at a point, at most.
    - `safe`: shrinks corrections that are hardly larger than their noise toward the surrogate.
      False gives the raw estimate. Error bars are those of the raw estimate either way.
    - `throw`: raise `ToleranceError`, which holds the answer, if a point is `unmet`.
    - `seed`: fixes the replicates of a point, bit for bit, whatever the order, batch or chunk.
    - `laplacian`: "exact", or `Hutchinson(dims=K)` for an unbiased estimate of the trace.
    - `dtype`: of the simulation, "float32" or "float64"; None follows JAX's default. Answers are
      float64 arrays either way.
    - `with_gradient`: False leaves the gradient out, at about half the cost.
    - `chunk`: rows per call of a compiled program. It changes latency only, never results.
    - `executor`: where programs run; None for the cores of this process.
    - `progress`: True for a progress bar, or a function of one `Progress`.

    The first stopping rule that is reached ends a point. Without a rule the call simulates for one
    second, pilots and compilation not counted. Ctrl-C returns the answer so far, once every point
    has two replicates.

    **Returns:**

    A `Correction`.
    """
    began = time.monotonic()
    request = validate(
        problem,
        surrogate,
        t,
        x,
        method=method,
        rtol=rtol,
        atol=atol,
        seconds=seconds,
        replicates=replicates,
        safe=safe,
        throw=throw,
        seed=seed,
        laplacian=laplacian,
        dtype=dtype,
        with_gradient=with_gradient,
        chunk=chunk,
        executor=executor,
        progress=progress,
    )
    return finish(begin(request, began))


def refine(
    problem: AbstractEquation,
    surrogate: Any,
    t: ArrayLike,
    x: ArrayLike,
    *,
    method: AbstractEstimator | str = "auto",
    rtol: float | None = None,
    atol: float | None = None,
    seconds: float | None = None,
    replicates: int | None = None,
    safe: bool = True,
    seed: int = 0,
    laplacian: Hutchinson | str = "exact",
    dtype: Any = None,
    with_gradient: bool = True,
    chunk: int | None = None,
    executor: AbstractExecutor | None = None,
    progress: bool | Report = False,
) -> Iterator[Correction]:
    """Yield an answer after every round; a round at most doubles the replicates of a point.

    The arguments are those of `correct`. The iteration ends with its stopping rules. Without a rule
    it ends when the caller leaves the loop. Ctrl-C ends it after one more answer.
    """
    began = time.monotonic()
    request = validate(
        problem,
        surrogate,
        t,
        x,
        anytime=True,
        method=method,
        rtol=rtol,
        atol=atol,
        seconds=seconds,
        replicates=replicates,
        safe=safe,
        seed=seed,
        laplacian=laplacian,
        dtype=dtype,
        with_gradient=with_gradient,
        chunk=chunk,
        executor=executor,
        progress=progress,
    )
    # Arguments are checked at the call; the simulation begins with the first answer.
    return answers(request, began)


def solve(
    problem: Problem,
    t: ArrayLike,
    x: ArrayLike,
    *,
    kind: str = "auto",
    training: dict[str, Any] | None = None,
    seed: int = 0,
    progress: bool | Report = False,
    **options: Any,
) -> Correction:
    """Return the solution of `problem` at (t, x): train a surrogate there, then correct it.

    **Arguments:**

    - `kind`: the kind of surrogate to train, a name in `surrogates.KINDS`. "auto" without
      `training` takes the surrogate that is shipped for this problem. If there is none, a tolerance
      is given and `method` is "auto", pilots predict the work without a surrogate. Below
      WORK_WITHOUT_TRAINING nothing is trained. In all other cases "auto" trains a PINN.
    - `training`: further arguments of the training function, such as {"iterations": 2000}. A PINN
      takes 400 iterations by default.
    - `options`: those of `correct`. Training a PINN takes at most half of `seconds`; other kinds
      take the time they need.

    **Returns:**

    A `Correction`. Its `preparation` says what was trained or loaded, and holds the surrogate; it
    is None if there was none.
    """
    require_problem(problem)
    one_of("kind", kind, ("auto", *KINDS))
    chosen = "pinn" if kind == "auto" else kind
    if training is not None and not isinstance(training, dict):
        raise ArgumentTypeError(
            f"training must be None or a dictionary of options, got {brief(training)}: "
            'pass one such as {"iterations": 2000}.'
        )
    extra: dict[str, Any] = {"seed": seed, "progress": progress is True, **(training or {})}
    check_training_options(chosen, extra)
    # All options are checked before anything is trained. An unknown option raises a TypeError.
    inspect.signature(correct).bind(problem, None, t, x, **options)
    request = validate(problem, None, t, x, seed=seed, progress=progress, **options)
    began = prepared = time.monotonic()
    seconds = request.rule.seconds
    model = shipped(problem) if kind == "auto" and training is None else None
    verb = "loaded"
    if model is None:
        may_skip = kind == "auto" and training is None and request.rule.has_tolerance
        if may_skip and request.estimator is None:
            session = begin(request, began)
            if session.predicted_work < WORK_WITHOUT_TRAINING:
                return finish(session)
        verb, prepared = "trained", time.monotonic()
        extra.setdefault("domain", Queries(request.t, request.x))
        if chosen == "pinn":
            extra.setdefault("iterations", TRAINING_ITERATIONS)
            if seconds is not None:
                extra.setdefault("seconds", _left(seconds, began) / 2)
        model = train_kind(problem, chosen, **extra)
    spent = time.monotonic() - prepared
    if seconds is not None:
        options["seconds"] = _left(seconds, began)
    answer = correct(problem, model, t, x, seed=seed, progress=progress, **options)
    return with_preparation(answer, Preparation(model, verb, spent))


def _left(seconds: float, began: float) -> float:
    """Return the seconds that are left of a limit, at least a millisecond."""
    return max(seconds - (time.monotonic() - began), 1e-3)
