"""The policy: every constant that steers `method="auto"` and the settling of an estimator.

`correct(..., method=Policy(...))` is the automatic choice with another policy. Tests use it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """Constants of the automatic choice, with their units.

    "Work" is counted in operations, see `_support.operation_counts`. "Value" is the estimated
    solution. A "defect" is the solution minus the start.
    """

    # Pilots.
    pilot_replicates: int = 4  # replicates of a first pilot
    replicates_per_pilot: int = 8  # requested replicates for each replicate of a pilot
    pilot_growth: int = 4  # factor of a larger pilot
    largest_pilot: int = 64  # replicates of the largest pilot
    second_look: int = 16  # replicates of a second pilot of a candidate that may win
    last_look: int = 64  # replicates of a pilot whose bias decides

    # Steps of paths.
    step_growth: int = 4  # factor between numbers of steps, so that points share programs
    most_steps: int = 1024  # steps of a path at most
    largest_step_jump: int = 5  # powers of `step_growth` in one increase at most
    most_refined_steps: int = 128  # steps of a pilot that looks for a smaller level bias
    uncoupled: float = 0.25  # coupling from which on coarse paths say nothing about fine ones

    # Which candidates are tried.
    worth: float = 4.0  # work left over work of a pilot, above which the pilot is run
    take_at_once: float = 4.0  # a start is taken if its work is below this times the next minimum
    suspect_defect: float = 0.1  # defect over value, above which the surrogate is suspect
    suspect_work: float = 5e9  # work above which the surrogate is suspect
    useless_defect: float = 0.15  # defect over value, above which the surrogate is tried last
    second_look_ratio: float = 10.0  # work over least work, below which a second pilot is run
    sure: float = 6.0  # standard errors that make a difference certain
    negligible: float = 0.25  # bias over standard error, below which a bias does not matter
    tangents: int = 3  # tangents that are tried, one after the other
    tangent_bias_factor: float = 2.0  # level bias over its estimate, for a tangent

    # Allocation of samples to increments.
    min_replicates: int = 16  # replicates that an error bar needs
    planned_replicates: int = 32  # replicates that a plan without a rule counts on
    net_size: int = 32  # samples of a net of a pilot
    net_rate_for_sizing: float = 2.5  # exponent of the variance of a net in its size
    net_rate_for_prediction: float = 1.5  # the same exponent, for predictions of work
    replicate_overhead: float = 5e5  # work of a replicate whatever its samples
    default_samples: int = 128  # samples of a replicate without a tolerance
    largest_omission: float = 0.1  # bound on an omitted increment over the tolerance


DEFAULT_POLICY = Policy()
