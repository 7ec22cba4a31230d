"""CPU time of `correct(..., rtol=...)` with `method="auto"`, beside methods that the caller names.

The time includes pilots and error bars, as in the call of a user, but no compilation. `run_calls`
returns time and error of all calls for one tolerance.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import Linearised, Picard, Problem, correct
from .._support.types import Floats
from .accuracy_replicates import REFERENCE

# Number of seeds. With each seed, a call runs once to compile and once for its time.
SEEDS = 3
# Time limit of the other calls, over the time of `auto`.
PATIENCE = 3
# Time limit, in seconds, of a call that compiles.
COMPILING_SECONDS = 30.0


@dataclass
class Call:
    """One way to call `correct`, and the results of its last run."""

    name: str
    method: Any
    surrogate: Any
    rtol: float
    seconds: float = 0.0  # CPU seconds per point
    # Root mean square error. `run_calls` returns it divided by that of the surrogate.
    error: float = np.inf
    met: bool = True  # whether every point met its tolerance
    start: str = ""  # the names of the starts that were used

    def run(
        self, problem: Problem, t: Any, x: Any, exact: Any, seed: int, seconds: float | None
    ) -> None:
        """Call `correct` at t (points,) and x (points, d), and store time, error and starts.

        `exact` (points,) is the solution. `seconds` is the time limit of the call, or None.
        """
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
    """Return all calls for one tolerance; the first is `auto`.

    The calls run in turns, and their results are means over the seeds. A call that misses the
    tolerance is not repeated with another seed. `size` is the rms error of the surrogate.
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
