"""Surrogates: those of others, wrapped, and our own."""

from ..surrogate import AbstractSurrogate, wrap
from .tensor_train import TensorTrain, tensor_train

__all__ = ["AbstractSurrogate", "TensorTrain", "tensor_train", "wrap"]
