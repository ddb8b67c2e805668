"""Names that are imported when they are first used."""

import importlib
import subprocess
import sys

import pytest

import promising
from promising import errors

PACKAGES = ("promising", "promising.client", "promising.index", "promising.query", "promising.summaries")


def test_dir_shows_what_is_public():
    assert dir(promising) == sorted(promising.__all__)
    assert dir(promising) == [
        "Answer",
        "Done",
        "Explanation",
        "Frame",
        "Progress",
        "PromisingError",
        "Session",
        "StoreOptions",
        "connect",
        "errors",
        "open",
    ]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_public_name_is_there_and_no_other(name):
    package = importlib.import_module(name)
    assert dir(package) == sorted(package.__all__)
    for public in dir(package):
        assert getattr(package, public) is not None
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'Nothing'"):
        package.Nothing  # noqa: B018  # the access is what is tested


def test_what_is_public_is_what_the_module_has():
    assert promising.Session is importlib.import_module("promising.query.session").Session
    assert promising.errors is errors


def test_the_package_alone_loads_nothing_slow():
    code = (
        "import promising, sys\n"
        "promising.errors.BadSyntax, promising.PromisingError, dir(promising)\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = set(ended.stdout.split())
    assert "promising" in found
    slow = {"numba", "numpy", "pandas", "pyarrow", "sqlglot", "grpc", "google", "typer", "rich", "pydantic"}
    assert found & slow == set()
