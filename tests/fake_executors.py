"""Executors for tests. They record, invent or refuse replicates."""

from typing import ClassVar

import numpy as np
import pytest

from scasml._planning.measurement import FIRST_PILOT
from scasml.estimators import AbstractLevelled, Variant
from scasml.execution import AbstractExecutor, LocalExecutor, Part, Replicates


class RefusingExecutor(AbstractExecutor):
    """An executor that fails the test if anything is run."""

    def run(self, program, rows):
        pytest.fail("bad input reached the simulation")

    def map(self, function, *columns):
        pytest.fail("bad input reached the simulation")


class RecordingExecutor(LocalExecutor):
    """The default executor, which also records all programs and their rows."""

    def __init__(self):
        super().__init__()
        self.runs = []

    def run(self, program, rows):
        self.runs.append((program, rows))
        return super().run(program, rows)

    def pilots(self):
        """Return start, estimator and rows of every pilot of two replicates or more."""
        return [
            (start_of(program), program.estimator, rows)
            for program, rows in self.runs
            if np.any(rows.replicate > FIRST_PILOT)
        ]


def start_of(program):
    """Return the name of the start of a program."""
    if program.start_model is None:
        return "zero"
    if program.starts_from_surrogate:
        return "the surrogate"
    return "tangent" if program.start.terminal_function is None else "smoothed g"


class ScriptedExecutor(LocalExecutor):
    """An executor that invents the replicates of pilots of `Picard` and `Linearised`.

    `script(steps, replicates, t)` returns a dict for the point with time t. Its entries are the
    step bias that the pilot shall measure ("bias"), the noise of the step bias ("noise"), the
    coupling of fine and coarse paths ("coupling"), the size of all increments together ("size"),
    and the mean of the last increment ("last"). A pilot of `Linearised` has the noise in its first
    increment, and the mean square "level" of samples of step levels. `asked` records steps and
    replicates of every pilot, and `starts` its start.
    """

    DEFAULTS: ClassVar[dict[str, float]] = {
        "bias": 0.0,
        "noise": 0.0,
        "coupling": 1e-6,
        "size": 30.0,
        "last": 0.0,
        "level": 0.0,
    }

    def __init__(self, script):
        super().__init__()
        self.script, self.asked, self.starts = script, [], []

    def run(self, program, rows):
        steps, count = program.tuning.steps, len(np.unique(rows.replicate))
        self.asked.append((steps, count))
        self.starts.append(start_of(program))
        estimator, width = program.estimator, len(program.estimator.increments)
        divisor = max(2 ** estimator.step_order(program.equation) - 1, 1)
        number = rows.replicate.astype(np.int64) - FIRST_PILOT
        # Two patterns of +1 and -1 whose means and whose product have the mean zero.
        change_sign, fine_sign = 1 - 2 * (number % 2), 1 - 2 * (number // 2 % 2)
        increments, sizes, square = (np.zeros((len(rows), width)) for _ in range(3))
        for t in np.unique(rows.t):
            here, wanted = rows.t == t, self.DEFAULTS | self.script(steps, count, t)
            change = divisor * (wanted["bias"] - wanted["noise"])
            spread = divisor * wanted["noise"] * np.sqrt(count - 1)
            fine = spread * np.sqrt((1 / wanted["coupling"] - 1) / 2)
            is_coarse = (rows.variant == Variant.COARSE_STEPS)[here]
            increments[here, 0] = fine * fine_sign[here]
            increments[here, 0] -= is_coarse * (change + spread * change_sign[here])
            increments[here, -1] = wanted["last"]
            sizes[here] = wanted["size"] / width
            if isinstance(estimator, AbstractLevelled):
                is_drawn = rows.samples[here] > 0
                increments[here, 0] = wanted["noise"] * change_sign[here] * is_drawn[:, 0]
                square[here] = wanted["level"] * is_drawn
        surrogate = None
        if program.surrogate is not None:
            surrogate = np.zeros(len(rows)), np.zeros(rows.x.shape)
        slope = np.zeros(rows.x.shape) if program.gradient else None
        value, no_telescoping = np.sum(increments, 1), np.zeros((len(rows), 0))
        found = Replicates(value, slope, increments, None, sizes, no_telescoping, square, surrogate)
        yield Part(slice(0, len(rows)), found)
