"""The policy: every constant that steers `method="auto"` and the settling of an estimator.

`correct(..., method=Policy(...))` is the automatic choice with another policy. Tests use it.
"""

from dataclasses import dataclass

from .._support.errors import whole


@dataclass(frozen=True)
class Policy:
    """Constants of the automatic choice, with their units.

    "Work" is counted in operations, see `_support.operation_counts`. "Value" is the estimated
    solution, and a "defect" is the solution minus the start. "A over B" is a quotient A/B.
    """

    # Pilots.
    pilot_replicates: int = 4  # replicates of a first pilot
    replicates_per_pilot: int = 8  # replicates that the user requests, per pilot replicate
    pilot_growth: int = 4  # replicates of a larger pilot over those of the one before
    largest_pilot: int = 64  # replicates of the largest pilot
    second_look: int = 16  # replicates of a second pilot of a candidate that may win
    last_look: int = 64  # replicates of a pilot where all candidates seem too biased

    # Levels of an `AbstractLevelled`.
    level_replicates: int = 2  # replicates of a pilot of levels
    fall: float = 0.4  # second moment of a level over that of the one before, if levels fall
    most_pilot_level: int = 6  # the finest level that a pilot draws
    large_bound: float = 0.5  # bound over standard error, above which more pilots may pay
    most_truncation: float = 0.1  # bound on omitted levels over the tolerance, at most
    # The second moment of a difference falls by 2^-decay from level to level. A decay that few
    # samples suggest is trusted within the first two limits.
    least_decay: float = 0.5
    most_decay: float = 2.0
    smooth_decay: float = 2.0  # of the number of inner paths, for a smooth F
    kink_decay: float = 1.5  # the same for an F with kinks
    least_order: float = 1.0  # the mean of a difference falls at least by 2^-least_order
    most_depth_ratio: float = 0.9  # the largest factor by which R changes from depth to depth
    doubt: float = 2.0  # standard errors that are added to a measured mean to bound it
    much_work: float = 0.1  # fraction of the work that leaving out levels must save
    most_level_samples: float = 1e5  # expected samples of a level in one replicate, at most
    most_other_work: float = 4.0  # work of levels and of R over that of the base, no tolerance
    tail_work: float = 0.02  # least work of a level over that of the base, as a fraction

    # Steps of paths.
    step_growth: int = 4  # factor between numbers of steps, so that points share programs
    most_steps: int = 1024  # steps of a path at most
    largest_step_increase: int = 5  # factors `step_growth` in one increase of the steps, at most
    uncoupled: float = 0.25  # coupling, at and above which a step bias cannot be measured

    # Which candidates are tried.
    worth: float = 4.0  # remaining work over work of a pilot, above which the pilot is run
    suspect_defect: float = 0.1  # defect over value, above which a candidate is suspect
    suspect_work: float = 1e9  # work above which a candidate is suspect
    second_look_ratio: float = 10.0  # work over least work, below which a second pilot is run
    factor: float = 0.3  # delta over phi at the query, of a candidate with a factor
    factor_work: float = 1e10  # work above which a factor is tried
    sure: float = 6.0  # standard errors, above which a difference counts as certain
    negligible: float = 0.25  # bias over standard error, below which a bias does not matter
    tangents: int = 3  # tangents that are tried, one after the other

    # Allocation of samples to increments.
    planned_replicates: int = 32  # replicates to plan for, if the user gives no rule for them
    net_size: int = 32  # samples of a net of a pilot
    net_rate_for_sizing: float = 2.5  # a in (variance of a net) ~ (its samples)^-a, to choose sizes
    net_rate_for_prediction: float = 1.5  # the same exponent a, for predictions of work
    replicate_overhead: float = 5e5  # work of a replicate whatever its samples
    default_samples: int = 128  # samples of a replicate without a tolerance
    largest_omission: float = 0.1  # bound on all omitted increments over the tolerance, at most

    def __post_init__(self) -> None:
        remedy = "the variance of fewer replicates is unknown"
        whole("pilot_replicates", self.pilot_replicates, 4, remedy)


DEFAULT_POLICY = Policy()
