"""Surrogates: models of other libraries, wrapped, and surrogates that scasml trains and saves.

`wrap` makes a surrogate of any model; `pinn`, `gp` and `tensor_train` train one for a problem, and
`load` reads a trained one from a file. To extend the package, add a foreign library to `ADAPTERS`,
or register a kind of trained surrogate with `@kind`.
"""

from ._gp import GaussianProcess, gp
from ._pinn import Pinn, pinn
from ._tensor_train import TensorTrain, tensor_train
from .adapters import ADAPTERS
from .loading import load
from .trained import KINDS, AbstractTrained, Record, kind
from .wrapping import AbstractSurrogate, ClosedForm, Derivatives, Layered, wrap

__all__ = [
    "ADAPTERS",
    "KINDS",
    "AbstractSurrogate",
    "AbstractTrained",
    "ClosedForm",
    "Derivatives",
    "GaussianProcess",
    "Layered",
    "Pinn",
    "Record",
    "TensorTrain",
    "gp",
    "kind",
    "load",
    "pinn",
    "tensor_train",
    "wrap",
]
