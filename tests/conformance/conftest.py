"""Every test of this folder runs over a session in process, and again over one on a service; those of tuples in, of
summaries and of what loaders ask a third time, over a session that keeps its data."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from promising.query import Session
from tests.conformance.sessions import Opened, kept, local, remote

WAYS = {"embedded": local, "remote": remote, "kept": kept}
# In these sessions that keep their data are asked, too.
KEPT = ("test_ingest", "test_summaries", "test_packages", "test_scans")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "opened" in metafunc.fixturenames:
        ways: list[Any] = ["embedded", "remote"]
        if metafunc.module.__name__.rpartition(".")[2] in KEPT:
            ways.append(pytest.param("kept", marks=pytest.mark.deep("once more, over a store")))
        metafunc.parametrize("opened", ways, indirect=True)


@pytest.fixture
def opened(request: pytest.FixtureRequest) -> Iterator[Opened]:
    """Makes sessions of one kind."""
    with ExitStack() as stack:
        yield WAYS[request.param](stack)


@pytest.fixture
def both() -> Iterator[Callable[..., tuple[Session, Session]]]:
    """Makes a session of each kind, alike."""
    with ExitStack() as stack:
        here, there = local(stack), remote(stack)
        yield lambda **how: (here(**how), there(**how))
