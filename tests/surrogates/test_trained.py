"""The limits that `scasml bench surrogates` must keep.

Each trained surrogate is at least as accurate as the paper's, and a correction improves it.
"""

import numpy as np
import pytest

from scasml._bench import surrogates
from scasml._bench.surrogates import ENTRIES

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.kind} {entry.name}")
def test_trained_and_corrected(entry):
    """Training takes at most 5 CPU minutes; a correction multiplies the error by at most 0.95.

    The solution of convection-diffusion is built into the network, so its error is that of
    float32, and a correction must only not increase it. Seeds are fixed, so the test cannot fail
    by chance. With other seeds the case nearest to its limit is Burgers with sigma0 = sqrt 2 by
    pinn, with factors from 0.90 to 0.93.
    """
    row = surrogates.row(entry)
    print(row)
    if entry.published is not None:
        assert row.error <= entry.published
    assert row.cpu_seconds < 300
    is_exact = entry.kind == "pinn" and "convection" in entry.name
    assert (row.before < np.finfo(np.float32).eps) == is_exact
    assert row.after < 0.95 * row.before or (is_exact and row.after <= row.before)
