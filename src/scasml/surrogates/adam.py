"""Training by Adam, in calls of one compiled program of `STEPS_PER_CALL` steps each.

`train` takes parameters, a loss and a `Schedule`, and returns a `TrainingRun`. Between two calls of
the program a run can report its progress, stop, or be saved. A run that resumes from a checkpoint
ends with the same bits as one that was never interrupted.
"""

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from .._io.interruption import Interruption
from .._io.progress import Training, TrainingReport, training_bar
from .._support.errors import FileError, missing_extra
from .files import read, write

STEPS_PER_CALL = 50
# The residual has stopped falling when its mean square over the last STALL_WINDOW calls is above
# STALL_RATIO times its mean square over the same number of calls before them.
STALL_WINDOW, STALL_RATIO = 8, 0.93
# Fraction of the steps of a run, at its end, over which the learning rate goes to 0.
DECAY_FRACTION = 0.4
SECONDS_BETWEEN_SAVES = 20.0


@dataclass(frozen=True)
class Schedule:
    """The number of steps, the learning rate and betas of Adam, and the time limit in seconds.

    With `decay` the learning rate goes to 0 over the last `DECAY_FRACTION` of the steps. This decay
    begins earlier, and the run ends earlier, if the residual stops falling. With or without `decay`
    a run takes about `seconds` at most, in which the compilation of the steps is included.
    """

    steps: int
    rate: float
    betas: tuple[float, float]
    decay: bool
    seconds: float = math.inf

    def calls(self) -> int:
        """The number of calls of the compiled program, which together make at least `steps`."""
        return -(-self.steps // STEPS_PER_CALL)


@dataclass
class TrainingRun:
    """The state of a run between two calls of the compiled program."""

    parameters: Any
    moments: Any  # the state of Adam
    step: int = 0  # steps made so far
    end: int = 0  # the step at which the run ends
    decay_from: int = 0  # the step from which the learning rate decreases
    losses: list[float] = field(default_factory=list)  # the mean over the steps of each call
    residuals: list[float] = field(default_factory=list)  # the root mean square of each call
    stopped: str = ""  # why the run ended early; empty if it did not

    def rates(self, schedule: Schedule) -> Any:
        """Return the learning rates (STEPS_PER_CALL,) of the steps of the next call."""
        step = self.step + np.arange(STEPS_PER_CALL)
        factor = (
            np.clip((self.end - step) / max(self.end - self.decay_from, 1), 0, 1)
            if schedule.decay
            else step < self.end
        )
        return (schedule.rate * factor).astype(np.float32)

    def decay_if_due(self, schedule: Schedule, elapsed: float) -> None:
        """Let the decay begin now if the residual has stopped falling, or if the time requires it.

        `elapsed` is the time since the run began, in seconds.
        """
        if self.step >= self.decay_from:
            return
        squares = np.square(self.residuals[-2 * STALL_WINDOW :])
        has_window = schedule.decay and len(squares) == 2 * STALL_WINDOW
        before, after = squares[:STALL_WINDOW], squares[STALL_WINDOW:]
        if has_window and np.mean(after) > STALL_RATIO * np.mean(before):
            self._decay_now("the residual stopped falling")
        elif elapsed > (1 - DECAY_FRACTION) * schedule.seconds:
            self._decay_now("time")

    def _decay_now(self, reason: str) -> None:
        """Let the decay begin now, and last for DECAY_FRACTION of the steps of the shortened run.

        The run is never made longer, so the decay may be shorter.
        """
        self.decay_from, self.stopped = self.step, reason
        decay_steps = self.step * DECAY_FRACTION / (1 - DECAY_FRACTION)
        calls = max(1, round(decay_steps / STEPS_PER_CALL))
        self.end = min(self.end, self.step + STEPS_PER_CALL * calls)


def train(
    parameters: Any,
    loss: Callable[[Any, PRNGKeyArray], tuple[Any, Any]],
    schedule: Schedule,
    seed: int,
    checkpoint: str | Path | None,
    identity: dict[str, Any],
    progress: bool | TrainingReport,
) -> TrainingRun:
    """Minimise `loss(parameters, key)`, which returns the loss and a mean squared residual.

    `parameters` is a pytree of arrays, and every step has its own key. If the file `checkpoint`
    exists, the run continues from it; `FileError` is raised if the file was written for another
    `identity`, a description that JSON can hold. The state of the run is saved there at intervals
    and at the end. A run that Ctrl-C or a loss that is not finite ends early is returned as it is,
    with the reason in `stopped`. Ctrl-C before the first step raises KeyboardInterrupt.
    """
    try:
        import optax
    except ImportError as error:
        raise missing_extra("optax", "train", "training") from error
    adam = optax.scale_by_adam(*schedule.betas)

    @jax.jit
    def make_steps(parameters: Any, moments: Any, first: Any, rates: Any) -> Any:
        def step(carry: Any, step_inputs: Any) -> Any:
            (parameters, moments), (i, rate) = carry, step_inputs
            key = jax.random.fold_in(jax.random.key(seed), i)
            (value, square), slope = jax.value_and_grad(loss, has_aux=True)(parameters, key)
            direction, moments = adam.update(slope, moments)
            parameters = jax.tree.map(lambda p, m: p - rate * m, parameters, direction)
            return (parameters, moments), (value, square)

        steps = first + jnp.arange(STEPS_PER_CALL)
        return jax.lax.scan(step, (parameters, moments), (steps, rates))

    end = STEPS_PER_CALL * schedule.calls()
    decay_from = (
        STEPS_PER_CALL * round(schedule.calls() * (1 - DECAY_FRACTION)) if schedule.decay else end
    )
    run = TrainingRun(parameters, adam.init(parameters), end=end, decay_from=decay_from)
    path = None if checkpoint is None else Path(checkpoint)
    identity = identity | {"seed": seed}
    if path is not None and path.exists():
        run = _resume(run, path, identity)
    began = saved = time.perf_counter()
    with training_bar(progress) as report, Interruption() as interruption:
        while run.step < run.end and not interruption.heard:
            (run.parameters, run.moments), (values, squares) = make_steps(
                run.parameters, run.moments, run.step, run.rates(schedule)
            )
            run.step += STEPS_PER_CALL
            run.losses.append(float(np.mean(values)))
            run.residuals.append(float(np.sqrt(np.mean(squares))))
            if not np.isfinite(run.losses[-1]):
                run.stopped = "the loss is not finite"
                break
            now = time.perf_counter()
            run.decay_if_due(schedule, now - began)
            if report is not None:
                report(Training(run.step, run.end, run.losses[-1], run.residuals[-1], now - began))
            if path is not None and now - saved > SECONDS_BETWEEN_SAVES:
                _save(run, path, identity)
                saved = now
    if run.step == 0:
        raise KeyboardInterrupt
    if path is not None:
        _save(run, path, identity)
    if run.step < run.end and interruption.heard:
        run.stopped = "interrupted"
    return run


def _save(run: TrainingRun, path: Path, identity: dict[str, Any]) -> None:
    """Write the state of the run to its checkpoint."""
    leaves = jax.tree.leaves((run.parameters, run.moments))
    names = ("step", "end", "decay_from", "losses", "residuals", "stopped")
    state = {name: getattr(run, name) for name in names}
    write(
        path,
        {f"leaf{i}": np.asarray(a) for i, a in enumerate(leaves)},
        {"state": json.dumps(state), "run": json.dumps(identity)},
    )


def _resume(run: TrainingRun, path: Path, identity: dict[str, Any]) -> TrainingRun:
    """Replace the state of a new run by that in its checkpoint, and return the run.

    Raises `FileError` if the checkpoint was written for another `identity`.
    """
    arrays, words = read(path)
    if words.get("run") != json.dumps(identity):
        raise FileError(
            f"checkpoint: {str(path)!r} is of another run, of other settings, problem or seed: "
            "name another file, or delete it."
        )
    leaves, tree = jax.tree.flatten((run.parameters, run.moments))
    restored = [jnp.asarray(arrays[f"leaf{i}"]) for i in range(len(leaves))]
    run.parameters, run.moments = jax.tree.unflatten(tree, restored)
    for name, value in json.loads(words["state"]).items():
        setattr(run, name, value)
    return run
