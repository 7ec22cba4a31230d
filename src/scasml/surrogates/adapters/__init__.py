"""Adapters turn models of other libraries into surrogates.

`ADAPTERS` maps the top-level module of a model's class to the path of the module that adapts it.
`adapters_for` takes a model and returns the modules that may adapt it.
"""

import importlib
from types import ModuleType
from typing import Any

# An adapter is a module with `adapt(model, problem, inputs)`, where `inputs` is the option of
# `surrogates.wrap` or None. It returns an `AbstractSurrogate`, or None if the model is not one that
# it handles. `wrap` checks the result, so `adapt` need not. To add one from outside of scasml:
#
#     scasml.surrogates.ADAPTERS["keras"] = "my_package.keras_adapter"
ADAPTERS: dict[str, str] = {"equinox": f"{__name__}.equinox"}


def adapters_for(model: Any) -> list[ModuleType]:
    """Import and return the adapters for the class of `model` and its bases, in this order.

    An adapter is imported only when such a model is wrapped.
    """
    libraries = dict.fromkeys(each.__module__.partition(".")[0] for each in type(model).__mro__)
    return [importlib.import_module(ADAPTERS[name]) for name in libraries if name in ADAPTERS]
