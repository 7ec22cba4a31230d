"""Plots of an answer: every point with its interval, and the convergence of a run."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import scasml
from correct_case import METHOD, PROBLEM, T, X, answer, correct
from helpers import rough


def drawn(got, **options):
    """Return the axes, the heights of all points by label, the ends of bars, and the legend."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ax = got.plot(**options)
    heights = {line.get_label(): np.asarray(line.get_ydata()) for line in ax.get_lines()}
    heights["corrected, 95 %"] = np.asarray(ax.containers[0].lines[0].get_ydata())
    ends = np.array([segment[:, 1] for segment in ax.containers[0].lines[2][0].get_segments()]).T
    legend = {text.get_text() for text in ax.get_legend().get_texts()}
    ax.figure.canvas.draw()
    plt.close(ax.figure)
    return ax, heights, ends, legend


def test_points():
    """Every point has its interval, in the order of the values, and the surrogate beside it."""
    got = answer()
    ax, heights, ends, legend = drawn(got)
    order = np.argsort(got.value)
    np.testing.assert_array_equal(heights["corrected, 95 %"], got.value[order])
    np.testing.assert_array_equal(heights["surrogate"], got.surrogate_value[order])
    np.testing.assert_allclose(ends, np.array(got.interval(0.95))[:, order], rtol=1e-12)
    assert legend == {"surrogate", "corrected, 95 %"}
    assert ax.get_xlabel()
    assert ax.get_ylabel()


def test_points_against_the_exact_value():
    exact = lambda t, x: np.sin(x @ np.linspace(0.4, 0.9, 3) + t)
    known = scasml.Problem(
        dim=3, horizon=0.8, terminal=jnp.sum, reference=scasml.Reference(exact, 0.0, "by hand")
    )
    got = dataclasses.replace(answer(), problem=known)
    np.testing.assert_allclose(got.exact(), exact(got.t, got.x), rtol=1e-12)
    _, heights, _, legend = drawn(got)
    order = np.argsort(got.exact())
    np.testing.assert_allclose(
        heights["corrected, 95 %"], (got.value - got.exact())[order], atol=1e-12
    )
    assert legend == {"surrogate", "corrected, 95 %", "exact"}


def test_one_point_on_given_axes():
    plt = pytest.importorskip("matplotlib.pyplot")
    _, own = plt.subplots()
    one = correct(T[0], X[0])
    ax, heights, _, _ = drawn(one, ax=own)
    assert ax is own
    np.testing.assert_array_equal(heights["corrected, 95 %"], [one.value])


def test_convergence():
    """Every round is a point. A line falls as 1/sqrt(N) from a round of 16 replicates or more."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    *_, last = scasml.refine(PROBLEM, rough, T, X, method=METHOD, replicates=64)
    lines = {
        line.get_label(): np.asarray(line.get_xydata())
        for line in last.plot_convergence().get_lines()
    }
    np.testing.assert_allclose(
        lines["median point"], [[r.replicates, r.median] for r in last.history]
    )
    np.testing.assert_allclose(lines["widest of all points"][:, 1], [r.worst for r in last.history])
    n, height = lines[r"$1/\sqrt{N}$"].T
    np.testing.assert_allclose(n, [16, 32, 64])
    np.testing.assert_allclose(height * np.sqrt(n), 4 * lines["median point"][3, 1])
    with pytest.raises(scasml.ScasmlError, match="history"):
        correct(0.8, X).plot_convergence()
