"""The interface of surrogates that scasml trains, and the registry of their kinds.

A kind is a subclass of `AbstractTrained`, together with a function that trains such a surrogate for
a problem. `@kind` puts both into `KINDS`, where `load`, `solve` and the command line find them.
"""

import abc
import inspect
import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import equinox as eqx
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._equations.problem import Problem
from .._equations.surrogate import AbstractSurrogate
from .._io import plots
from .._support.errors import ArgumentError, ArgumentTypeError, brief, one_of
from ..paths.coefficients import Coefficient
from .files import problem_identity, write
from .terminal import SmoothedTerminal

# Options that `solve` and the command line pass to every training function.
COMMON_OPTIONS = ("domain", "seed", "progress")


class Record(tuple[tuple[str, Any], ...]):
    """A tuple of pairs: a name, and a value that JSON can hold. `record[name]` is the value.

    All records compare as equal and have the same hash. A surrogate that is trained a second time
    therefore uses the program that was compiled for the first one.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record)

    def __hash__(self) -> int:
        return hash(Record)

    def __getitem__(self, name: Any) -> Any:
        return dict(self)[name]


class AbstractTrained(AbstractSurrogate):
    """A surrogate u(t, x) that scasml trained; `build` makes it from `architecture` and `arrays`.

    `kind` is the name of its kind in `KINDS` and in files. `problem` is the problem that it was
    trained for. `record` describes the training: the number of `steps`, the `residuals` (root mean
    squares) during the training, `seconds`, `cpu_seconds`, and further entries of the kind. Only
    `steps` and `residuals` are needed, by `plot`. `draws` (K, d) are the draws of the offset: the
    smoothed g that is added to what was learned. They are None if there is no offset, and the
    terminal condition was learned too. A subclass also defines `terminal_function` and `form`; both
    may be None.
    """

    kind: ClassVar[str]
    residual_name: ClassVar[str] = "residual"  # how the "residual" of the record is shown
    problem: eqx.AbstractVar[Problem]
    record: eqx.AbstractVar[Record]
    draws: eqx.AbstractVar[Coefficient | None]

    @property
    def offset(self) -> SmoothedTerminal | None:
        """The smoothed g that is added to what was learned, or None."""
        return None if self.draws is None else SmoothedTerminal(self.problem, self.draws)

    def add_offset(self, value: Array, t: Array, x: Array) -> Array:
        """Add the offset, if there is one, to the value that was learned."""
        return value if (offset := self.offset) is None else value + offset(t, x)

    @abc.abstractmethod
    def architecture(self) -> dict[str, Any]:
        """Return what `build` needs in addition to the arrays, as a dict that JSON can hold."""

    @abc.abstractmethod
    def arrays(self) -> dict[str, Any]:
        """Return the arrays of the surrogate by name."""

    @classmethod
    @abc.abstractmethod
    def build(
        cls,
        problem: Problem,
        architecture: dict[str, Any],
        arrays: dict[str, NDArray[Any]],
        record: Record,
    ) -> Self:
        """Build a surrogate from its `architecture()` and its `arrays()`, as read from a file.

        Raises KeyError, TypeError or ValueError if the arguments do not describe a surrogate.
        """

    def save(self, path: str | Path) -> None:
        """Write the surrogate as a safetensors file that `surrogates.load` reads.

        Raises `FileError` if the file cannot be written.
        """
        words = {
            "kind": self.kind,
            "architecture": json.dumps(self.architecture()),
            "problem": json.dumps(problem_identity(self.problem)),
            "record": json.dumps(list(self.record)),
            "scasml": version("scasml"),
        }
        write(Path(path), {name: np.asarray(a) for name, a in self.arrays().items()}, words)

    def plot(self, ax: Any = None) -> Any:
        """Plot the `residuals` of the record over the steps, in the axes `ax` or in new ones.

        Returns the axes.
        """
        ax = plots.training(residuals=self.record["residuals"], steps=self.record["steps"], ax=ax)
        ax.set_ylabel(f"{self.residual_name}, root mean square")
        return ax

    def described(self) -> str:
        """Return one line, as "pinn of hjb 100d, 15,501 numbers; steps 2000, residual 0.012"."""
        count = sum(leaf.size for leaf in self.arrays().values())
        facts = (
            f"{self.residual_name if name == 'residual' else name} {_short(value)}"
            for name, value in self.record
            if isinstance(value, str | int | float)
        )
        return (
            f"{self.kind} of {self.problem.name} {self.problem.dim}d, {count:,} numbers; "
            f"{', '.join(facts)}"
        )

    def __repr__(self) -> str:
        return f"<{self.described()}>"


def require_shapes(
    arrays: dict[str, NDArray[Any]], shapes: dict[str, tuple[int, ...]], dim: int
) -> None:
    """Raise ValueError unless `arrays` has these names and shapes, and no others but `draws`.

    `draws` may be absent; its shape is (K, dim).
    """
    if "draws" in arrays:
        shapes = shapes | {"draws": (len(arrays["draws"]), dim)}
    found = {name: array.shape for name, array in arrays.items()}
    if found != shapes:
        wrong = sorted({name for name, _ in found.items() ^ shapes.items()})
        raise ValueError(f"missing, unknown or of another shape: {', '.join(wrong)}")


def _short(value: float | str) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


class Kind(NamedTuple):
    """A class of surrogates, and the function `train(problem, **options)` that returns one."""

    model: type[AbstractTrained]
    train: Callable[..., AbstractTrained]


KINDS: dict[str, Kind] = {}

Train = TypeVar("Train", bound=Callable[..., AbstractTrained])


def kind(model: type[AbstractTrained]) -> Callable[[Train], Train]:
    """Return a decorator that puts `model` and its training function into `KINDS`.

        @kind(Spline)
        def spline(problem, *, knots=8, domain=None, seed=0, progress=False): ...

    The key is `model.kind`. The function takes the problem and keywords, among them `domain`,
    `seed` and `progress`. A definition that runs a second time, as in a notebook, replaces the
    first. Raises `ArgumentError` if another kind has this name, or if a keyword is missing.
    """
    if not (isinstance(model, type) and issubclass(model, AbstractTrained)):
        raise ArgumentTypeError(
            f"model must be a subclass of AbstractTrained, got {brief(model)}: pass such a class."
        )
    name = getattr(model, "kind", None)
    if not isinstance(name, str) or name == "auto":
        raise ArgumentError(
            f'kind must be a word other than "auto", got {brief(name)}: '
            f"set {model.__name__}.kind to the name of the kind."
        )

    def register(train: Train) -> Train:
        missing = [option for option in COMMON_OPTIONS if not _takes(train, option)]
        if missing:
            raise ArgumentError(
                f"train must take the keywords {', '.join(COMMON_OPTIONS)}, "
                f"got a function without {', '.join(missing)}: add them to its arguments."
            )
        new, old = Kind(model, train), KINDS.get(name)
        if old is not None and _definitions(old) != _definitions(new):
            raise ArgumentError(
                f"kind must be new, got {name!r}, which is the kind of "
                f"{old.model.__module__}.{old.model.__qualname__}: choose another name."
            )
        KINDS[name] = new
        return train

    return register


def _definitions(entry: Kind) -> list[tuple[str, str]]:
    """Return the module and the qualified name of the class and of the function of a kind."""
    return [(each.__module__, each.__qualname__) for each in entry]


def _takes(function: Callable[..., Any], option: str) -> bool:
    """Whether the function takes the keyword `option`."""
    parameters = inspect.signature(function).parameters
    return option in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def check_training_options(name: str, options: dict[str, Any]) -> None:
    """Raise `ArgumentError` for an unknown kind, and for an option that the kind does not have."""
    one_of("kind", name, tuple(KINDS))
    train = KINDS[name].train
    for option, value in options.items():
        if not _takes(train, option):
            known = ", ".join(inspect.signature(train).parameters)
            raise ArgumentError(
                f"{option} is not an option of the training of a {name}, got {brief(value)}: "
                f"leave it out, or take one of {known}."
            )


def train_kind(problem: Problem, name: str, /, **options: Any) -> AbstractTrained:
    """Train a surrogate of the kind `name`, with `options` of its training function.

    Raises `ArgumentError` for an unknown kind, and for an option that the kind does not have.
    """
    check_training_options(name, options)
    return KINDS[name].train(problem, **options)
