"""What every test of the house stands on."""

import os
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

NO_JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
JOIN_SECONDS = 2.0

# Deadlines measure the machine, not the code. A failure prints the blob that repeats it.
settings.register_profile("house", deadline=None, print_blob=True)
# Kernels as plain Python are a hundred times slower: fewer examples, and slow ones are no fault.
settings.register_profile(
    "no-jit", settings.get_profile("house"), max_examples=20, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("no-jit" if NO_JIT else "house")


def pytest_configure() -> None:
    if NO_JIT:
        np.seterr(over="ignore")  # compiled uint64 arithmetic wraps silently; numpy scalars would warn


def left_running(before: set[threading.Thread]) -> list[str]:
    """Names of the threads started since `before` that do not end within `JOIN_SECONDS`."""
    until = time.monotonic() + JOIN_SECONDS
    for thread in set(threading.enumerate()) - before:
        thread.join(max(0.0, until - time.monotonic()))
    return sorted(thread.name for thread in set(threading.enumerate()) - before)


@pytest.fixture(autouse=True)
def no_leaked_threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a thread behind. Spark keeps threads of its own for as long as its session lives."""
    before = set(threading.enumerate())
    yield
    if request.node.get_closest_marker("spark") is None and (leaked := left_running(before)):
        pytest.fail(f"threads left running: {', '.join(leaked)}")
