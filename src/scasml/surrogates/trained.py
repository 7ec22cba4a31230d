"""What our own surrogates share: the problem they were trained for, a record of the training, and a file on disk."""

import abc
from pathlib import Path
from typing import Any, ClassVar, Self

import equinox as eqx
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import Problem
from .._io import plots
from ..paths.coefficients import Coefficient
from .terminal import Base
from .wrapping import AbstractSurrogate


class Record(tuple[tuple[str, Any], ...]):
    """Pairs of a name and what JSON can hold. All records are equal, so that a model trained again runs through the program compiled for the first."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record)

    def __hash__(self) -> int:
        return hash(Record)

    def __getitem__(self, name: Any) -> Any:
        return dict(self)[name]


class AbstractTrained(AbstractSurrogate):
    """u(t, x) from arrays and an architecture; `build` makes one of what `architecture` and `arrays` give.

    `record` tells of its training, in numbers and words that JSON can hold: `steps`, the `residuals` (root mean squares) on the way, `seconds`
    and `cpu_seconds`, and what else there is to say.
    """

    kind: ClassVar[str]
    problem: eqx.AbstractVar[Problem]
    record: eqx.AbstractVar[Record]
    draws: eqx.AbstractVar[Coefficient | None]  # of what is built in; None: nothing is

    @property
    def base(self) -> Base | None:
        """What is built in."""
        return None if self.draws is None else Base(self.problem, self.draws)

    def on_base(self, value: Array, t: Array, x: Array) -> Array:
        """A value of what was learned, and what is built in."""
        return value if (base := self.base) is None else value + base(t, x)

    @abc.abstractmethod
    def architecture(self) -> dict[str, Any]:
        """What it takes beside the arrays to build it again: numbers, words, lists of them."""

    @abc.abstractmethod
    def arrays(self) -> dict[str, Any]:
        """Its arrays by name."""

    @classmethod
    @abc.abstractmethod
    def build(
        cls,
        problem: Problem,
        architecture: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        record: Record,
    ) -> Self:
        """The same surrogate again; KeyError, TypeError or ValueError if these do not make one."""

    def save(self, path: str | Path) -> None:
        """Write it as safetensors, for `surrogates.load`."""
        from .files import save

        save(self, path)

    def plot(self, ax: Any = None) -> Any:
        """The residual over the steps of training."""
        return plots.training(residuals=self.record["residuals"], steps=self.record["steps"], ax=ax)

    def described(self) -> str:
        """`pinn of hjb 100d, 15,501 numbers; steps 2000, residual 0.012, ...`"""
        count = sum(leaf.size for leaf in self.arrays().values())
        facts = (
            f"{name} {_short(value)}"
            for name, value in self.record
            if isinstance(value, str | int | float)
        )
        return f"{self.kind} of {self.problem.name} {self.problem.dim}d, {count:,} numbers; {', '.join(facts)}"

    def __repr__(self) -> str:
        return f"<{self.described()}>"


def _short(value: float | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
