"""Surrogates: those of others, wrapped, and our own, trained and kept on disk."""

from ..surrogate import AbstractSurrogate, wrap
from ._pinn import Pinn, pinn
from .files import load
from .own import AbstractTrained

KINDS: dict[str, type[AbstractTrained]] = {each.kind: each for each in (Pinn,)}

__all__ = ["KINDS", "AbstractSurrogate", "AbstractTrained", "Pinn", "load", "pinn", "wrap"]
