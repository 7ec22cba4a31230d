"""CPU time of `correct(..., rtol=...)` with `method="auto"`, beside methods that the caller names.

Pilots and error bars are included, as a user's call includes them. Compilation is not.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import Linearised, Picard, Problem, correct
from .._support.types import Floats
from .accuracy_replicates import REFERENCE

# Seeds of the calls; a call with each seed runs once to compile and once for its time.
SEEDS = 3
# Time that other calls get, over that of `auto`.
PATIENCE = 3
# Seconds that a call that compiles gets.
COMPILING_SECONDS = 30.0


@dataclass
class Call:
    """One way to call `correct`, and what it reached."""

    name: str
    method: Any
    surrogate: Any
    rtol: float
    seconds: float = 0.0  # CPU seconds per point
    error: float = np.inf  # root mean square error; over that of the surrogate in the end
    met: bool = True  # whether every point met its tolerance
    start: str = ""  # the starts that were used

    def run(
        self, problem: Problem, t: Any, x: Any, exact: Any, seed: int, seconds: float | None
    ) -> None:
        """Call `correct` at the points and store time, error and starts."""
        began = time.process_time()
        answer = correct(
            problem,
            self.surrogate,
            t,
            x,
            method=self.method,
            rtol=self.rtol,
            seconds=seconds,
            with_gradient=False,
            safe=False,
            seed=seed,
        )
        self.seconds = (time.process_time() - began) / len(t)
        self.error = float(np.sqrt(np.mean((answer.value - exact) ** 2)))
        # An interval that omits an unknown bias does not count.
        self.met = bool(((answer.status == "converged") & np.isfinite(answer.bias)).all())
        self.start = " and ".join(sorted({choice.start for choice in answer.choices}))


def run_calls(
    problem: Problem, surrogate: Any, t: Any, x: Any, exact: Floats, size: float, rtol: float
) -> list[Call]:
    """Return all calls for one tolerance, run in turns; the first is `auto`.

    `size` is the rms error of the surrogate. A call that misses the tolerance is not repeated.
    """
    many = Linearised(samples=1024)
    calls = [
        Call("auto", "auto", surrogate, rtol),
        Call(REFERENCE, Picard(2, 10), surrogate, rtol),
        Call("Linearised()", Linearised(), surrogate, rtol),
        Call("Linearised(samples=1024)", many, surrogate, rtol),
        Call("Linearised() from zero", Linearised(), None, rtol),
        Call("Linearised(samples=1024) from zero", many, None, rtol),
    ]
    found = np.zeros((SEEDS, len(calls), 2))
    for seed in range(SEEDS):
        for i, call in enumerate(calls):
            if call.met:
                # The second call repeats the first, with everything compiled.
                call.run(problem, t, x, exact, seed, None if i == 0 else COMPILING_SECONDS)
                limit = None if i == 0 else PATIENCE * found[seed, 0, 0] * len(t)
                call.run(problem, t, x, exact, seed, limit)
            found[seed, i] = call.seconds, call.error / size
    for call, (seconds, error) in zip(calls, found.mean(0), strict=True):
        call.seconds, call.error = float(seconds), float(error)
    return calls
