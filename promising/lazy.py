"""Names of a package that are imported when they are first used.

Most modules of the house compile kernels, or load compiled ones, when they are imported. A client that only speaks to a
service needs none of them, and should not wait for them.
"""

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy(package: str, where: Mapping[str, str]) -> Callable[[str], object]:
    """A module's `__getattr__` that finds each name in the module given for it."""

    def find(name: str) -> object:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(importlib.import_module(where[name]), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
