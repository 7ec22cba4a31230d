"""Files of surrogates: the same bits come back, and any other file is refused in one sentence."""

import copy
import dataclasses
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
from scasml.surrogates._pinn import untrained_pinn
from scasml.surrogates._pinn_settings import DEFAULT_SETTINGS
from scasml.surrogates.files import exact_identity
from scasml.surrogates.terminal import directions
from scasml.surrogates.trained import Record

DIM = 4


def untrained(problem):
    """Return a network that was not trained, with weights that are not zero."""
    model = untrained_pinn(problem, DEFAULT_SETTINGS, scasml.Ball(1.0), 0)
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


def gaussian_process(problem, draws=4):
    """Return a Gaussian process of three points with random weights."""
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


def tensor_train(problem):
    """Return a tensor train with random cores."""
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
        gaussian_process,
        lambda problem: gaussian_process(problem, 0),
        lambda problem: gaussian_process(problem, None),
        tensor_train,
    ],
    ids=["pinn", "gp", "gp with offset g", "gp without offset", "tensor_train"],
)
def test_a_file_restores_the_same_bits(make, tmp_path):
    model, saved = make(problems.burgers(DIM, sigma0=0.5)), tmp_path / "surrogate.safetensors"
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


def test_a_problem_that_is_not_in_the_zoo(tmp_path):
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
    """Return a function that changes the header of a file."""

    def damage(path):
        data = path.read_bytes()
        (length,) = struct.unpack("<Q", data[:8])
        words = change(json.loads(data[8 : 8 + length]))
        text = json.dumps(words).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])

    return damage


def meta(**change):
    """Return a function that changes entries of the metadata, and removes those set to None."""

    def edit(words):
        words["__metadata__"] = {
            k: v for k, v in (words["__metadata__"] | change).items() if v is not None
        }
        return words

    return header(edit)


def rewrite(change):
    """Return a function that changes the arrays of a file, and keeps its metadata."""

    def damage(path):
        data = path.read_bytes()
        words = json.loads(data[8 : 8 + struct.unpack("<Q", data[:8])[0]])["__metadata__"]
        save_file(change(load_file(path)), path, words)

    return damage


def without(name):
    """Return a function that removes one array from a file."""
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
            problem='{"name": "burgers", "parameters": {"dim": 5}, '
            '"dim": 4, "horizon": 0.5, "values": []}'
        ),
        "was trained for dim 4, got a problem of dim 5",
    ),
    "another-problem": (
        meta(
            problem='{"name": "burgers", "parameters": {"dim": 4}, '
            '"dim": 4, "horizon": 0.5, "values": [1, 2]}'
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


def test_paths_that_cannot_be_read_or_written(model, tmp_path):
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


def test_another_record_does_not_compile_again(model):
    """A model that is trained again runs through the program compiled for the first."""
    traced = []

    @jax.jit
    def value(m, x):
        traced.append(1)
        return m(jnp.asarray(0.1), x)

    other = type(model)(**{**vars(model), "record": Record((("steps", 4),))})
    value(model, jnp.ones(DIM))
    value(other, jnp.ones(DIM))
    assert len(traced) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(3), np.zeros(3, np.float32)),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.zeros(3), np.array([0.0, 1e-300, 0.0])),
        (scasml.Box(0.0, 1.0), scasml.Box(0.0, 1.0 + 1e-15)),
        (scasml.Ball(1.0), scasml.Box(0.0, 1.0)),
        (DEFAULT_SETTINGS, dataclasses.replace(DEFAULT_SETTINGS, betas=(0.9, 0.999))),
    ],
)
def test_different_values_have_different_identities(one, other):
    assert json.dumps(exact_identity(one)) == json.dumps(exact_identity(copy.deepcopy(one)))
    assert json.dumps(exact_identity(one)) != json.dumps(exact_identity(other))
