"""Each of our own surrogates is at least as good as the paper's, and corrected better than itself: `scasml bench surrogates`, asserted."""

import numpy as np
import pytest

import surrogates
from surrogates import ENTRIES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.kind} {entry.name}")
def test_trained_and_corrected(entry):
    """At most 5 CPU-minutes, and an error after correction of at most 0.95 times that before it, at 100 points; no more than that of a network that is right
    to the last digit, which has the solution of convection-diffusion built in.

    Seeds are fixed, so it cannot fail by chance; of other seeds the one nearest to its limit, Burgers with sigma0 = sqrt 2 by pinn (0.90 to 0.93), might.
    """
    row = surrogates.row(entry)
    print(row)
    if entry.published is not None:
        assert row.error <= entry.published
    assert row.cpu_seconds < 300
    is_exact = entry.kind == "pinn" and "convection" in entry.name
    assert (row.before < np.finfo(np.float32).eps) == is_exact
    assert row.after < 0.95 * row.before or (is_exact and row.after <= row.before)
