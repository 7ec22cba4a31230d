"""A call on 100 correlated stocks, with cash lent at 4 % and borrowed at 6 %.

The surrogate is the formula of a trading desk, which knows the rate of 4 % only. The program prints
prices, intervals and deltas at seven states, and draws a picture if a file is given:

    python examples/pricing.py [picture.png]
"""

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

import scasml

ASSETS, STRIKE, MATURITY = 100, 100.0, 1.0
LEND, BORROW = 0.04, 0.06
# Each stock has a volatility of 25 % a year, and any two have a correlation of 0.4.
VOLATILITY = 0.25 * np.linalg.cholesky(0.6 * np.eye(ASSETS) + 0.4)
# INVESTED @ z is the money in stocks, which is the sum of x_i d_i u.
INVESTED = np.linalg.solve(VOLATILITY, np.ones(ASSETS))


def rates(t: Any, x: Any, u: Any, z: Any) -> Any:
    """Return F. The paths grow at 6 %. Cash is lent at 4 %, and missing cash is borrowed at 6 %."""
    stocks = jnp.asarray(INVESTED, x.dtype) @ z
    return -LEND * u - (BORROW - LEND) * stocks + (BORROW - LEND) * jnp.maximum(stocks - u, 0.0)


def geometric_mean(x: Any) -> Any:
    return jnp.exp(jnp.mean(jnp.log(x)))


def formula(rate: float, t: Any, x: Any) -> Any:
    """Return the Black-Scholes price of a call on the geometric mean, with one rate."""
    tau = jnp.maximum(MATURITY - t, 1e-6)
    deviation = np.linalg.norm(VOLATILITY.sum(0)) / ASSETS * jnp.sqrt(tau)
    forward = geometric_mean(x) * jnp.exp(
        (rate - 0.5 * np.mean(np.sum(VOLATILITY**2, 1))) * tau + 0.5 * deviation**2
    )
    d1 = jnp.log(forward / STRIKE) / deviation + 0.5 * deviation
    return jnp.exp(-rate * tau) * (forward * norm.cdf(d1) - STRIKE * norm.cdf(d1 - deviation))


def desk(t: Any, x: Any) -> Any:
    """Return the price of the desk, which is the surrogate."""
    return formula(LEND, t, x)


PROBLEM = scasml.Problem(
    dim=ASSETS,
    horizon=MATURITY,
    dynamics=scasml.GeometricBrownian(BORROW, VOLATILITY),
    nonlinearity=rates,
    terminal=lambda x: jnp.maximum(geometric_mean(x) - STRIKE, 0.0),
)


def main(picture: str | None = None) -> None:
    """Correct the price of the desk at seven states and print the answers."""
    spots = np.linspace(90.0, 120.0, 7)
    x = np.outer(spots, np.linspace(0.9, 1.1, ASSETS))  # different prices, so different deltas
    answer = scasml.correct(PROBLEM, desk, 0.0, x, replicates=32)
    # The hedge of a long call always borrows, so the exact price is the formula at 6 %.
    exact, delta = jax.vmap(jax.value_and_grad(lambda state: formula(BORROW, 0.0, state)))(
        jnp.asarray(x)
    )
    for i, spot in enumerate(spots):
        lower, upper = (side[i] for side in answer.interval(0.95))
        print(
            f"spot {spot:5.1f}: price {answer.value[i]:.4f}, 95 % [{lower:.4f}, {upper:.4f}], "
            f"of which bias {answer.bias[i]:.0e}; desk {answer.surrogate_value[i]:.4f}, "
            f"exact {exact[i]:.4f}; delta of the first stock {answer.gradient[i, 0]:.6f} "
            f"+- {1.96 * answer.gradient_stderr[i, 0]:.6f}, exact {delta[i, 0]:.6f}"
        )
    if picture is not None:
        draw(picture, spots, answer, exact, delta)


def draw(picture: str, spots: Any, answer: Any, exact: Any, delta: Any) -> None:
    """Draw the errors of the prices, and the deltas at the middle spot."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    half = np.abs(np.array(answer.interval(0.95)) - answer.value)
    left.axhline(0, color="black", linewidth=1, label="exact")
    left.plot(
        spots,
        answer.surrogate_value - exact,
        "o--",
        color="tab:gray",
        label="desk's formula, one rate",
    )
    left.errorbar(
        spots,
        answer.value - exact,
        half,
        fmt="s",
        color="tab:blue",
        capsize=3,
        label="corrected, 95 %",
    )
    left.set(
        xlabel="spot",
        ylabel="price minus exact price",
        title="A call on 100 stocks, two interest rates",
    )
    left.legend()
    i = len(spots) // 2
    stocks = np.arange(1, ASSETS + 1)
    error = 1.96 * answer.gradient_stderr[i]
    right.errorbar(
        stocks,
        answer.gradient[i],
        error,
        fmt=".",
        color="tab:blue",
        alpha=0.6,
        label="corrected, 95 %",
    )
    right.plot(stocks, delta[i], color="black", linewidth=1, zorder=3, label="exact")
    right.set(xlabel="stock", ylabel="delta", title=f"Deltas at spot {spots[i]:.0f}")
    right.legend()
    figure.savefig(picture, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:2])
