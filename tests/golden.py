"""Record the answers of many calls bit for bit, and compare them with a later version.

    python tests/golden.py record FILE.npz
    python tests/golden.py compare FILE.npz [case ...]

The calls cover every method, start, path law, gradient method, dtype and stopping rule.  `compare`
prints each array that differs and exits with 1 if there is any.
"""

import inspect
import sys
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import scasml
from scasml import Hutchinson, Linearised, Picard, problems, surrogates

STARTS = {"nothing": "zero", "g where paths end": "smoothed g", "its own first estimate": "tangent"}


def points(problem, count=3, spread=0.3, seed=0, last=0.9):
    """Times in [0, `last` T] and states near x0."""
    rng = np.random.default_rng(seed)
    t = last * problem.horizon * rng.uniform(size=count)
    x = problem.x0 + spread * (1 + np.abs(problem.x0)) * rng.uniform(-1, 1, (count, problem.dim))
    return t, x


def wave(t, x):
    """Burgers' exact solution, 5 % off."""
    return jax.nn.sigmoid(t + jnp.sum(x)) * (1 + 0.05 * jnp.sin(x[0] + 3 * t))


def log_guess(t, x):
    """A fair guess at the HJB solution, spoiled by a ripple."""
    fair = jnp.log((1 + x @ x + 2 * (1 - t) * x.shape[0]) / 2)
    return fair * (1 + 0.03 * jnp.sin(x[0] + t))


def useless(t, x):
    return 5.0 + jnp.sin(3 * x[0]) + t * x[1] ** 2


def small(t, x):
    return 0.3 + 0.05 * jnp.cos(jnp.sum(x) / x.shape[0] + t)


def factored(t, x):
    """A surrogate that factors a matrix."""
    matrix = jnp.eye(3) * (2 + x[0] ** 2) + 0.1
    return jnp.linalg.solve(matrix, x[:3] + t)[0] + small(t, x)


def network(dim, seed=0):
    return eqx.nn.MLP(dim + 1, 1, 16, 2, activation=jnp.tanh, key=jax.random.key(seed))


def digital():
    return scasml.Problem(
        dim=2,
        horizon=1.0,
        diffusion=0.5,
        nonlinearity=lambda t, x, u, z: -0.1 * u + 0.05 * z[0] * u,
        terminal=lambda x: jnp.where(x[0] > 0.2, 1.0, 0.0),
    )


def kinked():
    return scasml.Problem(
        dim=2,
        horizon=1.0,
        drift=lambda t, x: 0.1 * jnp.sin(x[::-1]),
        diffusion=lambda t, x: 0.4 + 0.1 * jnp.cos(x),
        nonlinearity=lambda t, x, u, z: -0.3 * u + 0.1 * jnp.abs(z[0]),
        terminal=lambda x: jnp.maximum(x[0] + x[1], 0.0),
    )


def full_matrix():
    return scasml.Problem(
        dim=3,
        horizon=0.8,
        drift=np.array([0.1, -0.2, 0.0]),
        diffusion=0.4 * np.eye(3) + 0.1,
        nonlinearity=lambda t, x, u, z: jnp.sin(u) + 0.2 * z @ z,
        terminal=lambda x: jnp.cos(jnp.sum(x)),
    )


def ask(problem, surrogate=None, where=None, **options):
    t, x = points(problem) if where is None else where
    return scasml.correct(problem, surrogate, t, x, **options)


def case_auto_hjb():
    return ask(problems.hjb(10), log_guess, rtol=1e-3)


def case_auto_hjb_value_only():
    return ask(problems.hjb(10), log_guess, rtol=1e-3, with_gradient=False)


def case_auto_hjb_none():
    return ask(problems.hjb(10), None, rtol=2e-3, with_gradient=False)


def case_auto_useless():
    return ask(problems.hjb(10), useless, rtol=5e-3, with_gradient=False)


def case_auto_lqg_atol():
    return ask(problems.lqg(10), log_guess, atol=5e-3, safe=False)


def case_auto_burgers():
    problem = problems.burgers(5, problems.BURGERS_PAPER)
    return ask(problem, wave, rtol=5e-3, with_gradient=False)


def case_auto_burgers_replicates():
    return ask(problems.burgers(5), wave, replicates=20)


def case_auto_linear():
    return ask(problems.convection_diffusion(4), small, rtol=1e-2)


def case_auto_digital():
    return ask(digital(), None, replicates=40)


def case_auto_kinked():
    return ask(kinked(), lambda t, x: 0.3 + 0.5 * x[0], rtol=2e-2)


def case_auto_basket():
    return ask(problems.black_scholes_basket(4), None, rtol=1e-2)


def case_auto_barenblatt():
    return ask(problems.black_scholes_barenblatt(4), None, rtol=5e-3, with_gradient=False)


def case_auto_heston():
    return ask(problems.heston(), None, rtol=2e-2)


def case_auto_ou_float64():
    return ask(problems.ornstein_uhlenbeck(4), None, rtol=2e-3, dtype="float64")


def case_auto_allen_cahn_variable():
    return ask(problems.allen_cahn_variable(4), small, rtol=5e-3)


def case_auto_default_risk():
    return ask(problems.default_risk(4), None, rtol=1e-2, with_gradient=False)


def case_auto_different_rates():
    return ask(problems.different_rates(4), None, replicates=24)


def case_auto_steep():
    """Picard serves points where F is too steep."""
    problem = scasml.Problem(
        dim=1,
        horizon=1.0,
        diffusion=0.5,
        nonlinearity=lambda t, x, u, z: -30.0 * jnp.sin(u),
        terminal=lambda x: 0.1 * jnp.sin(x[0]),
    )
    return ask(problem, lambda t, x: 0.01 * jnp.sin(x[0]), replicates=20)


def case_auto_nan_surrogate():
    where = (np.array([0.1, 0.3, 0.2]), points(problems.hjb(5))[1])
    model = lambda t, x: jnp.where(t > 0.25, jnp.nan, log_guess(t, x))
    return ask(problems.hjb(5), model, where, rtol=1e-2)


def case_auto_terminal_time():
    problem = problems.hjb(5)
    return ask(problem, log_guess, (np.array([1.0, 0.4]), points(problem, 2)[1]), rtol=1e-2)


def case_auto_shipped_hjb100():
    problem = problems.hjb(100)
    model = surrogates.load("src/scasml/PRETRAINED/hjb100.safetensors".replace("PRETRAINED", HOME))
    return ask(problem, model, (0.0, np.zeros(100)), rtol=3e-3, with_gradient=False)


def case_auto_hutchinson():
    return ask(problems.hjb(10), log_guess, replicates=20, laplacian=Hutchinson(4))


def case_auto_factored():
    return ask(problems.hjb(5), factored, rtol=1e-2, with_gradient=False)


def case_auto_late():
    return ask(problems.hjb(5), log_guess, replicates=2, seconds=1e-3, method=Linearised(2, 32))


def case_picard():
    return ask(problems.burgers(5), wave, method=Picard(), replicates=8)


def case_picard_three():
    return ask(problems.allen_cahn(5), small, method=Picard(3, 3), replicates=6)


def case_picard_paper():
    method = Picard(2, 5, gradient="weights", threshold=0.05)
    return ask(problems.burgers(5), wave, method=method, replicates=8)


def case_picard_quadrature():
    method = Picard(2, 4, time="quadrature", nodes=3)
    return ask(problems.burgers(5), wave, method=method, replicates=8)


def case_picard_centred():
    return ask(digital(), None, method=Picard(2, 6, gradient="centred"), replicates=10)


def case_picard_mixed():
    return ask(kinked(), None, method=Picard(2, 6, gradient="mixed"), replicates=8)


def case_picard_auto_gradient():
    return ask(digital(), None, method=Picard(2, 6), atol=0.05)


def case_picard_pairs_measured():
    method = Picard(2, 8, pairs=True, allocation="measured")
    return ask(problems.lqg(5), log_guess, method=method, rtol=1e-2, with_gradient=False)


def case_picard_coupled():
    method = Picard(3, 4, pairs=True, allocation="measured")
    return ask(problems.allen_cahn(4), small, method=method, replicates=8)


def case_picard_antithetic():
    method = Picard(2, 8, sampling="antithetic")
    return ask(problems.burgers(5), wave, method=method, replicates=8)


def case_picard_rqmc():
    return ask(problems.hjb(5), log_guess, method=Picard(2, 8, sampling="rqmc"), rtol=2e-2)


def case_picard_milstein():
    method = Picard(2, 4, scheme="milstein", steps=4)
    return ask(problems.allen_cahn_variable(4), small, method=method, replicates=8)


def case_picard_steps_auto():
    return ask(problems.allen_cahn_variable(4), small, method=Picard(2, 4), replicates=16)


def case_picard_float64():
    return ask(full_matrix(), None, method=Picard(2, 4), replicates=8, dtype="float64")


def case_linearised():
    return ask(problems.hjb(10), log_guess, method=Linearised(), rtol=2e-3)


def case_linearised_network():
    problem = problems.burgers(5)
    model = surrogates.wrap(network(5), problem, inputs="xt")
    return ask(problem, model, method=Linearised(4, 64), replicates=20)


def case_linearised_mc():
    return ask(full_matrix(), None, method=Linearised(4, 32, sampling="mc"), replicates=12)


def case_linearised_antithetic():
    method = Linearised(4, 32, sampling="antithetic")
    return ask(full_matrix(), None, method=method, replicates=12)


def case_linearised_centred():
    return ask(digital(), None, method=Linearised(4, 64, gradient="centred"), replicates=12)


def case_linearised_no_remainder():
    return ask(problems.hjb(5), log_guess, method=Linearised(2, 64, remainder=0), replicates=12)


def case_linearised_milstein():
    method = Linearised(4, 32, scheme="milstein")
    return ask(kinked(), None, method=method, replicates=12)


def case_linearised_geometric():
    return ask(problems.black_scholes_barenblatt(4), None, method=Linearised(), replicates=16)


def case_linearised_float64():
    return ask(problems.lqg(5), log_guess, method=Linearised(), atol=1e-3, dtype="float64")


def case_seed():
    return ask(problems.hjb(5), log_guess, method=Linearised(2, 64), replicates=8, seed=7)


def case_refine():
    problem = problems.hjb(5)
    t, x = points(problem)
    answers = scasml.refine(problem, log_guess, t, x, method=Linearised(2, 32))
    return [next(answers) for _ in range(4)][-1]


def case_solve_shipped():
    return scasml.solve(
        problems.burgers(20), 0.1, np.full(20, 0.01), rtol=1e-3, with_gradient=False
    )


def case_solve_none():
    return scasml.solve(problems.allen_cahn(10), 0.0, np.zeros(10), rtol=1e-2)


def case_train_pinn():
    return surrogates.pinn(problems.burgers(4), width=8, depth=2, interior=32, **_iterations(50))


def case_train_gp():
    return surrogates.gp(problems.burgers(4), interior=60, boundary=20)


def case_train_tensor_train():
    return surrogates.tensor_train(problems.allen_cahn(4), paths=300, **_iterations(2))


def _iterations(count):
    """The keyword was `steps` before."""
    known = inspect.signature(surrogates.pinn).parameters
    return {"iterations" if "iterations" in known else "steps": count}


CASES = {name[5:]: make for name, make in list(globals().items()) if name.startswith("case_")}
HOME = "pretrained"


def recorded(result):
    """Every array of an answer or of a trained surrogate, by name."""
    if not isinstance(result, scasml.Correction):
        return {f"array {name}": np.asarray(a) for name, a in result.arrays().items()}
    out = dict(result.columns(gradient=True))
    out["status"] = np.array([str(word) for word in np.atleast_1d(out["status"])])
    out["gradient_method"] = np.array([str(g) for g in np.atleast_1d(result.gradient_method)])
    out["cost"] = np.array([*result.cost.evaluations, result.cost.replicates])
    out["tails"] = np.array([result.tails.kurtosis, result.tails.slope, result.tails.is_heavy])
    out["rounds"] = np.array([[r.replicates, r.median, r.worst, r.bias] for r in result.history])
    names, samples, served = [], [], []
    for choice in result.choices:
        start = getattr(choice, "start", None) or choice.control
        names.append(f"{type(choice.method).__name__} from {STARTS.get(start, start)}")
        tuning = getattr(choice, "tuning", None)
        counts = choice.method.counts if tuning is None else tuning.samples
        samples.append("default" if counts is None else " ".join(map(str, np.asarray(counts))))
        served.append(" ".join(map(str, choice.points)))
    out["choices"] = np.array([names, samples, served])
    for k, level in enumerate(result.levels):
        out[f"level {k} moments"] = np.stack([level.mean, level.variance, level.kurtosis])
        out[f"level {k} telescoping"] = level.telescoping
        out[f"level {k} cost"] = np.array(level.evaluations)
        for name, part in level.bias.items():
            out[f"level {k} bias {name}"] = np.asarray(part)
    return out


def main(verb, path, *names):
    """Run the named cases, all by default, and write or compare their arrays."""
    known = dict(np.load(path)) if verb == "compare" else {}
    found, failed = {}, []
    for name in names or CASES:
        began = time.process_time()
        arrays = {f"{name}/{key}": a for key, a in recorded(CASES[name]()).items()}
        found |= arrays
        bad = []
        if verb == "compare":
            wanted = {key: a for key, a in known.items() if key.startswith(f"{name}/")}
            for key in sorted(arrays.keys() | wanted.keys()):
                bad += _difference(key, wanted.get(key), arrays.get(key))
        print(
            f"{'DIFFERS' if bad else 'same' if known else 'done':8} {name:32}"
            f" {time.process_time() - began:6.1f} CPU s",
            *bad,
            sep="\n" if bad else "",
            flush=True,
        )
        failed += bad
    if verb == "record":
        np.savez(path, **found)
    sys.exit(1 if failed else 0)


def _difference(key, one, other):
    if one is None or other is None:
        return [f"    {key}: only in the {'new' if one is None else 'old'} version"]
    if one.shape == other.shape and (one.tolist() == other.tolist() or _same(one, other)):
        return []
    size = _largest_difference(one, other)
    return [f"    {key}, {size}:\n      old {_brief(one)}\n      new {_brief(other)}"]


def _same(one, other):
    if one.dtype.kind != "f" or other.dtype.kind != "f":
        return False
    return np.array_equal(one, other, equal_nan=True)


def _largest_difference(one, other):
    if one.shape != other.shape or one.dtype.kind != "f" or other.dtype.kind != "f":
        return "of another kind"
    with np.errstate(all="ignore"):
        relative = np.abs(one - other) / np.maximum(np.abs(one), np.abs(other))
    return f"by {np.nanmax(relative, initial=0.0):.1e} of its size at most"


def _brief(a):
    return " ".join(np.array2string(a.ravel()[:6], precision=9).split())


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("record", "compare"):
        sys.exit(__doc__)
    if Path("src/scasml/surrogates/pretrained").is_dir():
        HOME = "surrogates/pretrained"
    main(*sys.argv[1:])
