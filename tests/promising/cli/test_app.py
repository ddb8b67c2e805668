"""What a command loads: nothing slow that it does not need."""

import os
import subprocess
import sys

import pytest

SLOW = {
    "numba",
    "numpy",
    "pandas",
    "pyarrow",
    "pyspark",
    "sqlglot",
    "matplotlib",
    "prompt_toolkit",
    "prometheus_client",
}
RUN = """
import sys
from promising.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print("loaded:", *sorted({name.partition(".")[0] for name in sys.modules}))
"""


def loaded(target: str, *words: str) -> tuple[str, set[str]]:
    """What a command writes to stdout, and the packages that its process has loaded at its end."""
    env = {**os.environ, "PROMISING_TARGET": target}
    ended = subprocess.run([sys.executable, "-c", RUN, *words], capture_output=True, text=True, check=True, env=env)
    said, _, names = ended.stdout.rpartition("loaded: ")
    return said, set(names.split())


@pytest.mark.parametrize(
    ("words", "shown", "unneeded"),
    [
        (("--help",), "create-summary", SLOW | {"grpc", "pydantic"}),
        (("--version",), "promising ", SLOW | {"grpc"}),
        (("status",), "store1", SLOW),
        (("top", "--once", "--every", "50ms"), "tuples/s", SLOW - {"numpy", "pyarrow"}),
    ],
)
def test_a_command_loads_nothing_slow_that_it_does_not_need(stores, words, shown, unneeded):
    said, found = loaded(stores, *words)
    assert shown in said
    assert found & unneeded == set()
    assert "typer" in found
