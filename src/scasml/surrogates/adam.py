"""Adam, in chunks of one compiled program: a run can be watched, stopped, kept on disk and gone on with, bit for bit."""

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

CHUNK = 50
# The residual has stopped falling when a window of chunks is above this share of the one before.
WINDOW, STILL_FALLING = 8, 0.93
# The share of the steps of a run over which its learning rate goes to 0, at the end.
DECAY = 0.4
SAVE_EVERY = 20.0


@dataclass(frozen=True)
class Schedule:
    steps: int
    rate: float
    betas: tuple[float, float]
    decay: bool  # to 0 at the end, and the end sooner if the residual has stopped falling
    seconds: float = math.inf

    def chunks(self) -> int:
        return -(-self.steps // CHUNK)


@dataclass
class Run:
    """Where a run stands, after whole chunks."""

    parameters: Any
    moments: Any
    step: int = 0
    end: int = 0  # the step at which it ends
    turn: int = 0  # the step from which its learning rate goes down
    losses: list[float] = field(default_factory=list)
    residuals: list[float] = field(default_factory=list)  # root mean squares
    stopped: str = ""

    def rates(self, schedule: Schedule) -> Any:
        step = self.step + np.arange(CHUNK)
        falling = (
            np.clip((self.end - step) / max(self.end - self.turn, 1), 0, 1)
            if schedule.decay
            else step < self.end
        )
        return (schedule.rate * falling).astype(np.float32)

    def look(self, schedule: Schedule, elapsed: float) -> None:
        """Turn down sooner if the residual has stopped falling, or if time is running out."""
        if self.step >= self.turn:
            return
        squares = np.square(self.residuals[-2 * WINDOW :])
        has_window = schedule.decay and len(squares) == 2 * WINDOW
        if has_window and np.mean(squares[WINDOW:]) > STILL_FALLING * np.mean(squares[:WINDOW]):
            self._turn("the residual stopped falling")
        elif elapsed > (1 - DECAY) * schedule.seconds:
            self._turn("time")

    def _turn(self, reason: str) -> None:
        self.turn, self.stopped = self.step, reason
        self.end = min(
            self.end, self.step + CHUNK * max(1, round(self.step * DECAY / (1 - DECAY) / CHUNK))
        )


def train(
    parameters: Any,
    loss: Callable[[Any, PRNGKeyArray], tuple[Any, Any]],
    schedule: Schedule,
    seed: int,
    checkpoint: str | Path | None,
    identity: dict[str, Any],
    progress: bool | TrainingReport,
) -> Run:
    """`loss(parameters, key)` gives what is made small and a mean squared residual to be watched."""
    try:
        import optax
    except ImportError as error:
        raise missing_extra("optax", "train", "training") from error
    adam = optax.scale_by_adam(*schedule.betas)

    @jax.jit
    def chunk(parameters: Any, moments: Any, first: Any, rates: Any) -> Any:
        def step(held: Any, at: Any) -> Any:
            (parameters, moments), (i, rate) = held, at
            key = jax.random.fold_in(jax.random.key(seed), i)
            (value, square), slope = jax.value_and_grad(loss, has_aux=True)(parameters, key)
            moved, moments = adam.update(slope, moments)
            return (jax.tree.map(lambda p, m: p - rate * m, parameters, moved), moments), (
                value,
                square,
            )

        return jax.lax.scan(step, (parameters, moments), (first + jnp.arange(CHUNK), rates))

    end = CHUNK * schedule.chunks()
    turn = CHUNK * round(schedule.chunks() * (1 - DECAY)) if schedule.decay else end
    run = Run(parameters, adam.init(parameters), end=end, turn=turn)
    path = None if checkpoint is None else Path(checkpoint)
    identity = identity | {"seed": seed}
    if path is not None and path.exists():
        run = _resume(run, path, identity)
    began = saved = time.perf_counter()
    with training_bar(progress) as report, Interruption() as interruption:
        while run.step < run.end and not interruption.heard:
            held, (values, squares) = chunk(
                run.parameters, run.moments, run.step, run.rates(schedule)
            )
            run.parameters, run.moments = held
            run.step += CHUNK
            run.losses.append(float(np.mean(values)))
            run.residuals.append(float(np.sqrt(np.mean(squares))))
            if not np.isfinite(run.losses[-1]):
                run.stopped = "the loss is not finite"
                break
            now = time.perf_counter()
            run.look(schedule, now - began)
            if report is not None:
                report(Training(run.step, run.end, run.losses[-1], run.residuals[-1], now - began))
            if path is not None and now - saved > SAVE_EVERY:
                _keep(run, path, identity)
                saved = now
    if path is not None:
        _keep(run, path, identity)
    if run.step < run.end and interruption.heard:
        run.stopped = "interrupted"
    return run


def _keep(run: Run, path: Path, identity: dict[str, Any]) -> None:
    leaves = jax.tree.leaves((run.parameters, run.moments))
    state = {k: getattr(run, k) for k in ("step", "end", "turn", "losses", "residuals", "stopped")}
    write(
        path,
        {f"leaf{i}": np.asarray(a) for i, a in enumerate(leaves)},
        {"state": json.dumps(state), "run": json.dumps(identity)},
    )


def _resume(run: Run, path: Path, identity: dict[str, Any]) -> Run:
    arrays, words = read(path)
    if words.get("run") != json.dumps(identity):
        raise FileError(
            f"checkpoint: {str(path)!r} is of another run, of other settings, problem or seed: name another file, or delete it."
        )
    leaves, tree = jax.tree.flatten((run.parameters, run.moments))
    restored = [jnp.asarray(arrays[f"leaf{i}"]) for i in range(len(leaves))]
    run.parameters, run.moments = jax.tree.unflatten(tree, restored)
    for name, value in json.loads(words["state"]).items():
        setattr(run, name, value)
    return run
