"""One call between its checked arguments and its answer.

`begin` plans a call: it decides which start, estimator and tuning serve which points. `finish` runs
rounds of replicates until the run is over. `answers` yields an answer after every round.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ._answer.assembly import AtHorizon, assemble
from ._answer.correction import Correction
from ._io.interruption import Interruption
from ._io.progress import correction_bar
from ._planning.auto import choose
from ._planning.starts import given_start, offered_starts
from ._planning.task import Plan, Task
from ._planning.trials import plan_given
from ._request import Request
from ._support.errors import ToleranceError
from ._support.precision import cast, use_dtype
from .execution.points import Points
from .execution.rounds import Run
from .surrogates import wrap


class Session(NamedTuple):
    """One call between planning and its answer."""

    request: Request
    task: Task
    plan: Plan
    run: Run
    horizon: AtHorizon

    @property
    def predicted_work(self) -> float:
        """The predicted work of all points; infinite where it is unknown."""
        return sum(float(sum(each.work + 0 * each.step_bias)) for each in self.plan.assignments)

    def answer(self) -> Correction:
        """Return the answer as it stands."""
        with use_dtype(self.request.dtype):
            return assemble(self.request, self.task, self.plan, self.run, self.horizon)


def begin(request: Request, began: float) -> Session:
    """Plan a call: decide which start, estimator and tuning serve which points."""
    rule, inside, dtype = request.rule, request.is_inside, request.dtype
    with use_dtype(dtype):
        equation = cast(request.problem, dtype)
        surrogate = None
        if request.surrogate is not None:
            surrogate = wrap(cast(request.surrogate, dtype), request.problem)
        # Pilots may take half of the time.
        deadline = float("inf") if rule.seconds is None else began + rule.seconds / 2
        task = Task(
            equation=equation,
            surrogate=surrogate,
            points=Points.of(
                inside.nonzero()[0], request.t[inside], request.x[inside], request.seed
            ),
            gradient=request.gradient,
            rule=rule,
            executor=request.executor,
            deadline=deadline,
            policy=request.policy,
        )
        found = Plan()
        if len(task) and request.estimator is not None:
            start = given_start(equation, surrogate, request.hutchinson)
            found = plan_given(task, start, request.estimator)
        elif len(task):
            starts = offered_starts(equation, surrogate, request.hutchinson)
            found = choose(task, starts)
        accumulators = [each.accumulator(task) for each in found.assignments]
        run = Run(rule, accumulators, began, len(request.t))
        return Session(request, task, found, run, AtHorizon.of(request, task))


def finish(session: Session) -> Correction:
    """Run rounds until the run is over, and return the answer."""
    request, run = session.request, session.run
    with correction_bar(request.progress) as report, Interruption() as interruption:
        while not run.is_over:
            run.round(interruption, report)
        answer = session.answer()
    if request.throw and answer.unmet.any():
        raise ToleranceError(answer)
    return answer


def answers(request: Request, began: float) -> Iterator[Correction]:
    """Yield an answer after every round."""
    session = begin(request, began)
    run = session.run
    with correction_bar(request.progress) as report:
        while True:
            with Interruption() as interruption:
                run.round(interruption, report)
                answer = session.answer()
            yield answer
            # An interruption may come while the answer is assembled.
            if run.is_over or interruption.heard:
                return
