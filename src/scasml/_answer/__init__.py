"""The answer: from the accumulators of a run to a `Correction`, its text and its diagnosis."""
