"""Names of a package that are imported when they are first used.

Most modules of the house load numba, Arrow or gRPC. Whoever needs none of them should not wait for them.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence


def lazy(
    package: str, where: Mapping[str, Sequence[str]], here: Sequence[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose public names are in modules below it.

    where: the names, by module. here: public names that the package has itself.
    """
    modules = {name: module for module, names in where.items() for name in names}
    public = sorted([*modules, *here])

    def find(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, found)
        return found

    return find, lambda: public, public
