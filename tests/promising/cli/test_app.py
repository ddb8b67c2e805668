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
import os, sys
from promising.cli import main
def ended(code):
    print("loaded:", *sorted({name.partition(".")[0] for name in sys.modules}), flush=True)
    end(code)
end, os._exit = os._exit, ended
main()
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


def test_a_command_ends_although_something_would_wait_for_ever_at_shutdown():
    """As gRPC does now and then: a thread that Python has stopped may hold a lock."""
    program = (
        "import atexit, sys, threading\n"
        "from promising.cli import main\n"
        "atexit.register(threading.Event().wait)\n"
        "sys.argv = ['promising', 'version']\n"
        "main()"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.startswith("promising ")
