"""Surrogates on disk: the same bits back, and one sentence for every file that is not one of ours."""

import json
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import scasml
from scasml import problems, surrogates
from scasml._support.errors import ScasmlError
from scasml.surrogates._pinn import DEFAULT, _start
from scasml.surrogates.terminal import directions
from scasml.surrogates.trained import Record

DIM = 4


def untrained(problem):
    """A network with weights that are not zero, as good as a trained one for a file."""
    model = _start(problem, DEFAULT, scasml.Ball(1.0), 0)
    layers = jax.tree.map(lambda a: a + 0.1, model.layers)
    pairs = {"steps": 3, "residual": 0.5, "stopped": "", "residuals": [0.5]}.items()
    return type(model)(**{**vars(model), "layers": layers, "record": Record(pairs)})


@pytest.fixture(scope="module")
def model():
    return untrained(problems.burgers(DIM, sigma0=0.5))


@pytest.fixture
def saved(model, tmp_path):
    path = tmp_path / "burgers.safetensors"
    model.save(path)
    return path


def process(problem, draws=4):
    """Of three points."""
    rng = np.random.default_rng(0)
    arrays = {
        "t": rng.uniform(size=3),
        "x": rng.normal(size=(3, DIM)),
        "weights": rng.normal(size=(3, 4)),
    }
    arrays |= {} if draws is None else {"draws": directions(DIM, draws, 0)}
    return surrogates.GaussianProcess.build(
        problem, {"width": 1.5, "clock": 2.0}, arrays, Record({"steps": 2}.items())
    )


def train(problem):
    rng = np.random.default_rng(0)
    arrays = {
        "clock": rng.normal(size=(4, 2)),
        "cores": rng.normal(size=(DIM, 3, 2, 2)),
        "scale": np.ones(DIM),
    }
    arrays |= {"centre": rng.normal(size=DIM), "frame": rng.normal(size=(DIM, DIM))}
    shape = {"dim": DIM, "rank": 2, "degree": 2, "time_degree": 3}
    return surrogates.TensorTrain.build(problem, shape, arrays, Record({"steps": 2}.items()))


@pytest.mark.parametrize(
    "make",
    [
        untrained,
        process,
        lambda problem: process(problem, 0),
        lambda problem: process(problem, None),
        train,
    ],
    ids=["pinn", "gp", "gp about g", "gp about 0", "tensor_train"],
)
def test_the_same_bits_back(make, tmp_path):
    model, saved = make(problems.burgers(DIM, sigma0=0.5)), tmp_path / "it.safetensors"
    model.save(saved)
    again = surrogates.load(saved)
    assert type(again) is type(model)
    assert again.architecture() == model.architecture()
    assert again.arrays().keys() == model.arrays().keys()
    for name, array in model.arrays().items():
        assert again.arrays()[name].dtype == array.dtype
        np.testing.assert_array_equal(again.arrays()[name], array)
    assert again.problem is model.problem
    assert dict(again.record) == dict(model.record)
    points = jax.random.normal(jax.random.key(0), (50, DIM))
    value = jax.jit(jax.vmap(lambda m, x: m(jnp.asarray(0.2), x), (None, 0)))
    np.testing.assert_array_equal(value(again, points), value(model, points))
    assert list(saved.parent.iterdir()) == [saved]


def test_metadata(model, saved):
    words = json.loads(saved.read_bytes()[8 : 8 + struct.unpack("<Q", saved.read_bytes()[:8])[0]])[
        "__metadata__"
    ]
    assert words["kind"] == "pinn"
    assert words["scasml"] == scasml.__version__
    assert json.loads(words["architecture"]) == {"width": 50, "depth": 5}
    known = json.loads(words["problem"])
    assert (known["name"], known["dim"], known["parameters"]["sigma0"]) == ("burgers", DIM, 0.5)
    assert dict(json.loads(words["record"]))["steps"] == 3


def own(scale=1.0, dim=2, horizon=1.0, diffusion=0.5):
    return scasml.Problem(
        dim=dim,
        horizon=horizon,
        diffusion=diffusion,
        terminal=lambda x: scale * jnp.sum(jnp.sin(x)),
        name="mine",
    )


def test_a_problem_of_your_own(tmp_path):
    path = tmp_path / "mine.safetensors"
    untrained(own()).save(path)
    assert surrogates.load(path, own()).problem.name == "mine"
    with pytest.raises(ScasmlError, match="is not of the zoo: pass the problem as problem="):
        surrogates.load(path)
    for other, words in (
        (own(scale=1.1), "was trained for another problem"),
        (own(diffusion=0.6), "was trained for another problem"),
        (own(dim=3), "was trained for dim 2, got a problem of dim 3"),
        (own(horizon=2.0), "was trained for horizon 1.0"),
    ):
        with pytest.raises(ScasmlError, match=words):
            surrogates.load(path, other)
    with pytest.raises(ScasmlError, match=r"problem must be a scasml.Problem"):
        surrogates.load(path, "mine")


def header(change):
    """The file with another header."""

    def damage(path):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        words = change(json.loads(data[8 : 8 + length]))
        text = json.dumps(words).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])

    return damage


def meta(**change):
    def edit(words):
        words["__metadata__"] = {
            k: v for k, v in (words["__metadata__"] | change).items() if v is not None
        }
        return words

    return header(edit)


def rewrite(change):
    """The file with other arrays, and the metadata of before."""

    def damage(path):
        data = path.read_bytes()
        words = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]
        save_file(change(load_file(path)), path, words)

    return damage


def without(name):
    return rewrite(lambda arrays: {k: v for k, v in arrays.items() if k != name})


BROKEN = {
    "empty": (lambda path: path.write_bytes(b""), "is not a whole safetensors file"),
    "text": (lambda path: path.write_text("hello"), "is not a whole safetensors file"),
    "pickle": (
        lambda path: path.write_bytes(b"\x80\x04\x95\x10\x00\x00\x00."),
        "is not a whole safetensors file",
    ),
    "cut": (
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        "is not a whole safetensors file",
    ),
    "cut-in-the-header": (
        lambda path: path.write_bytes(path.read_bytes()[:50]),
        "is not a whole safetensors file",
    ),
    "longer": (
        lambda path: path.write_bytes(path.read_bytes() + b"more"),
        "is not a whole safetensors file",
    ),
    "header-too-long": (
        lambda path: path.write_bytes(struct.pack("<Q", 2**62) + path.read_bytes()[8:]),
        "is not a whole safetensors file",
    ),
    "header-no-json": (
        lambda path: path.write_bytes(struct.pack("<Q", 4) + b"{{{{"),
        "is not a whole safetensors file",
    ),
    "foreign": (lambda path: save_file({"weight": np.ones(3)}, path), "was not written by scasml"),
    "foreign-with-words": (
        lambda path: save_file({"weight": np.ones(3)}, path, {"format": "pt"}),
        "was not written by scasml",
    ),
    "no-kind": (meta(kind=None), "of kind None, which this version does not know"),
    "unknown-kind": (meta(kind="wavelet"), "of kind 'wavelet', which this version does not know"),
    "no-architecture": (meta(architecture=None), "has damaged metadata"),
    "architecture-no-json": (meta(architecture="{"), "has damaged metadata"),
    "architecture-a-list": (meta(architecture="[1]"), "has damaged metadata"),
    "record-no-list": (meta(record="3"), "has damaged metadata"),
    "no-problem": (meta(problem=None), "has damaged metadata"),
    "problem-without-a-name": (meta(problem='{"dim": 4}'), "has damaged metadata"),
    "unknown-problem": (
        meta(problem='{"name": "wave", "parameters": {}, "dim": 4}'),
        "of the problem 'wave', which is not of the zoo",
    ),
    "parameters-not-taken": (
        meta(problem='{"name": "burgers", "parameters": {"viscosity": 1}, "dim": 4}'),
        "names parameters that burgers does not take",
    ),
    "another-dimension": (
        meta(
            problem='{"name": "burgers", "parameters": {"dim": 5}, "dim": 4, "horizon": 0.5, "values": []}'
        ),
        "was trained for dim 4, got a problem of dim 5",
    ),
    "another-problem": (
        meta(
            problem='{"name": "burgers", "parameters": {"dim": 4}, "dim": 4, "horizon": 0.5, "values": [1, 2]}'
        ),
        "was trained for another problem",
    ),
    "no-width": (meta(architecture='{"depth": 5}'), "does not hold the arrays of a pinn"),
    "another-width": (
        meta(architecture='{"width": 40, "depth": 5}'),
        "does not hold the arrays of a pinn",
    ),
    "another-depth": (
        meta(architecture='{"width": 50, "depth": 6}'),
        "does not hold the arrays of a pinn",
    ),
    "width-a-word": (
        meta(architecture='{"width": "wide", "depth": 5}'),
        "does not hold the arrays of a pinn",
    ),
    "a-missing-array": (without("weight2"), "does not hold the arrays of a pinn"),
    "no-scale": (without("spread"), "does not hold the arrays of a pinn"),
    "another-shape": (
        rewrite(lambda arrays: arrays | {"bias0": np.zeros(49, np.float32)}),
        "does not hold the arrays of a pinn",
    ),
    "nan": (
        rewrite(lambda arrays: arrays | {"bias0": np.full(50, np.nan, np.float32)}),
        "holds NaN or infinity in 'bias0'",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_refused(saved, kind):
    damage, words = BROKEN[kind]
    before = saved.read_bytes()
    damage(saved)
    assert saved.read_bytes() != before
    with pytest.raises(ScasmlError) as caught:
        surrogates.load(saved)
    message = str(caught.value)
    assert words in message
    assert message.startswith("path: ")
    assert message.count("\n") == 0
    assert message.endswith(".")


def test_no_such_place(model, tmp_path):
    for path, words in (
        (tmp_path / "none.safetensors", "there is no file"),
        (tmp_path, "there is no file"),
    ):
        with pytest.raises(ScasmlError, match=words):
            surrogates.load(path)
    for path, words in (
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "a.safetensors", "there is no folder"),
    ):
        with pytest.raises(ScasmlError, match=words):
            model.save(path)


def test_a_new_record_does_not_compile_again(model):
    """Weights and records are data: a model trained again goes through the program of the first."""
    traced = []

    @jax.jit
    def value(m, x):
        traced.append(1)
        return m(jnp.asarray(0.1), x)

    other = type(model)(**{**vars(model), "record": Record((("steps", 4),))})
    value(model, jnp.ones(DIM))
    value(other, jnp.ones(DIM))
    assert len(traced) == 1
