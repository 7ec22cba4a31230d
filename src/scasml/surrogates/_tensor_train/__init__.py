"""The tensor-train surrogate: `tensor_train` fits one to a problem and returns a `TensorTrain`."""

from .train import TensorTrain, tensor_train

__all__ = ["TensorTrain", "tensor_train"]
