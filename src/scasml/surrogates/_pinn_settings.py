"""The settings of PINN training: defaults, those of the paper, and the check of the arguments.

`resolve_settings` takes the arguments of `surrogates.pinn` and returns `PinnSettings`.
"""

from dataclasses import dataclass, replace
from typing import Any

from .._equations.problem import Problem
from .._equations.smoothness import terminal_may_be_rough
from .._support.errors import ArgumentError, one_of, positive, whole


@dataclass(frozen=True)
class PinnSettings:
    """Settings of one training run of a PINN."""

    width: int = 50  # units per hidden layer
    depth: int = 5  # hidden layers
    iterations: int = 2000  # largest number of iterations of Adam
    interior: int = 256  # collocation points in each iteration
    boundary: int = 0  # points on the faces of a box, the same in all iterations
    terminal: int = 0  # points at time T in each iteration, if the terminal condition is learned
    rate: float = 2e-3  # learning rate
    betas: tuple[float, float] = (0.9, 0.99)
    along_paths: float = 0.5  # fraction of the points that lie along paths
    hard: bool = True  # whether the terminal condition is built in instead of learned
    decay: bool = True  # whether the learning rate goes to 0 at the end
    hutchinson: float = 0.0  # fraction of the columns of sigma drawn for the trace; 0: exact trace


DEFAULT_SETTINGS = PinnSettings()
# Sections 5.1 to 5.4 of the SCaSML paper. It uses a ball as a sample of the whole space, which has
# no boundary except at time T.
_PAPER = PinnSettings(hard=False, along_paths=0.0, decay=False)
_BOX = replace(_PAPER, iterations=10_000, interior=2500, boundary=100, rate=7e-4)
_BALL = replace(_PAPER, iterations=2500, terminal=1000, rate=1e-3)
PAPER_SETTINGS: dict[str, PinnSettings] = {
    "convection_diffusion": replace(_BOX, terminal=160),
    "burgers": replace(_BOX, terminal=160),
    "lqg": replace(_BALL, interior=100, hutchinson=0.25),
    "diffusion_reaction": replace(_BALL, interior=1000),
}


def resolve_settings(
    problem: Problem,
    preset: Any,
    terminal: Any,
    iterations: Any,
    interior: Any,
    width: Any,
    depth: Any,
    rate: Any,
) -> PinnSettings:
    """Return the settings of `preset`, changed by the other arguments where they are not None.

    `hard` of the result follows from `terminal` and the smoothness of g. Without `hard`, the number
    of points at T is that of the preset, or the number of interior points if the preset has none.
    Raises `ArgumentError` or `ArgumentTypeError` for an argument that cannot be used.
    """
    one_of("preset", preset, ("default", "paper"))
    one_of("terminal", terminal, ("auto", "hard", "soft"))
    if preset == "paper" and problem.name not in PAPER_SETTINGS:
        raise ArgumentError(
            f'preset "paper" is for {", ".join(PAPER_SETTINGS)}, '
            f"got it for {problem.name!r}: leave it out for the default."
        )
    settings = DEFAULT_SETTINGS if preset == "default" else PAPER_SETTINGS[problem.name]
    counts = {"iterations": iterations, "interior": interior, "width": width, "depth": depth}
    changes: dict[str, Any] = {
        name: whole(name, value, 1, "pass how many, or leave it out")
        for name, value in counts.items()
        if value is not None
    }
    if rate is not None:
        changes["rate"] = positive("rate", rate, "pass a learning rate, or leave it out")
    is_rough = terminal_may_be_rough(problem)
    if terminal == "hard" and is_rough:
        raise ArgumentError(
            'terminal="hard" needs a smooth g, '
            f'got one with kinks or jumps in {problem.name!r}: pass terminal="soft".'
        )
    is_hard = changes["hard"] = terminal == "hard" or (
        terminal == "auto" and settings.hard and not is_rough
    )
    settings = replace(settings, **changes)
    return replace(settings, terminal=0 if is_hard else settings.terminal or settings.interior)
