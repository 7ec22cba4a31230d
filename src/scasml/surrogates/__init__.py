"""Surrogates: those of others, wrapped, and our own, trained and kept on disk."""

from ..surrogate import AbstractSurrogate, wrap
from .files import load
from .own import AbstractTrained
from .pinn import Pinn, pinn

KINDS: dict[str, type[AbstractTrained]] = {each.kind: each for each in (Pinn,)}

__all__ = ["KINDS", "AbstractSurrogate", "AbstractTrained", "Pinn", "load", "pinn", "wrap"]
