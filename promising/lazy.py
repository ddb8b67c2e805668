"""Names of a package that are imported on first use.

Most modules load numba, Arrow or gRPC; programs that need none of them should not wait for them.
"""

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence


def lazy(
    package: str, where: Mapping[str, Sequence[str]], here: Sequence[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose public names are in its submodules.

    where: the names, by module. here: public names of the package itself.
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
