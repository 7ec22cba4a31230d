"""The tensor-train surrogate: `tensor_train` fits one to a problem and returns a `TensorTrain`.

`train` contains both, and `TensorTrain` defines the function. `products` evaluates a trained
surrogate. For the fit, `features` evaluates the basis functions at states of paths, and `sweeps`
solves for the cores.
"""

from .train import TensorTrain, tensor_train

__all__ = ["TensorTrain", "tensor_train"]
