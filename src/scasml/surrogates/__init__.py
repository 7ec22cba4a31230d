"""Surrogates: those of others, wrapped, and our own, trained and kept on disk."""

from ._gp._gp import GaussianProcess, gp
from ._pinn import Pinn, pinn
from ._tensor_train._tensor_train import TensorTrain, tensor_train
from .files import load
from .trained import AbstractTrained
from .wrapping import AbstractSurrogate, ClosedForm, Derivatives, Layered, wrap

KINDS: dict[str, type[AbstractTrained]] = {
    each.kind: each for each in (Pinn, GaussianProcess, TensorTrain)
}

__all__ = [
    "KINDS",
    "AbstractSurrogate",
    "AbstractTrained",
    "ClosedForm",
    "Derivatives",
    "GaussianProcess",
    "Layered",
    "Pinn",
    "TensorTrain",
    "gp",
    "load",
    "pinn",
    "tensor_train",
    "wrap",
]
