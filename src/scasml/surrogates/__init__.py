"""Surrogates: those of others, wrapped, and our own, trained and kept on disk."""

from ..surrogate import AbstractSurrogate, wrap
from ._pinn import Pinn, pinn
from ._tensor_train import TensorTrain, tensor_train
from .files import load
from .own import AbstractTrained

KINDS: dict[str, type[AbstractTrained]] = {each.kind: each for each in (Pinn, TensorTrain)}

__all__ = [
    "KINDS",
    "AbstractSurrogate",
    "AbstractTrained",
    "Pinn",
    "TensorTrain",
    "load",
    "pinn",
    "tensor_train",
    "wrap",
]
