"""What every test of the house stands on."""

import gc
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests import tiers

NO_JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
COUNTED = pytest.StashKey[Counter[str]]()
JOIN_SECONDS = 20.0  # nothing waits that long unless it waits for ever


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier", choices=(tiers.QUICK, tiers.DEEP, tiers.ALL), default=tiers.ALL, help="which tests to run"
    )


def pytest_configure(config: pytest.Config) -> None:
    tiers.begin(config.getoption("--tier"), NO_JIT)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell does that to what it runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # processes that tests start have to hear Ctrl-C
    if NO_JIT:
        np.seterr(over="ignore")  # compiled uint64 arithmetic wraps silently; numpy scalars would warn


@pytest.hookimpl(trylast=True)  # after hypothesis has marked its tests
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[COUNTED] = tiers.counted(items)
    items[:], others = tiers.choose(config.getoption("--tier"), items)
    if others:
        config.hook.pytest_deselected(items=others)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What has been collected stays to the end: no collection of garbage, of which many tests want one, looks at it."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    gc.unfreeze()
    if hasattr(session.config, "workeroutput"):  # one of several processes: the first one reports
        counted = session.config.stash.get(COUNTED, Counter())
        session.config.workeroutput["tiers"] = dict(counted)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[COUNTED] = Counter(getattr(node, "workeroutput", {}).get("tiers", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    counted = config.stash.get(COUNTED, Counter())
    running = config.getoption("--tier")
    terminalreporter.write_line(f"tiers: {counted[tiers.QUICK]:,} quick, {counted[tiers.DEEP]:,} deep; ran {running}")


def left_running(before: set[threading.Thread]) -> list[str]:
    """Names of the threads started since `before` that do not end within `JOIN_SECONDS`."""
    until = time.monotonic() + JOIN_SECONDS
    while (left := set(threading.enumerate()) - before) and time.monotonic() < until:
        gc.collect()  # gRPC's poller ends with the last of its objects, which an error can leave in a cycle
        for thread in left:
            thread.join(0.5)
        if any(thread.is_alive() for thread in left):
            gc.unfreeze()  # the cycle may lead through what has been collected to run
            gc.collect()
            gc.freeze()
    return sorted(thread.name for thread in left)


@pytest.fixture(autouse=True)
def no_leaked_threads(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail a test that leaves a thread behind. Spark keeps threads of its own for as long as its session lives."""
    before = set(threading.enumerate())
    yield
    if set(threading.enumerate()) - before:
        for phase in ("setup", "call"):
            caplog.get_records(phase).clear()  # a record of an error holds on to all that was at work
    if request.node.get_closest_marker("spark") is None and (leaked := left_running(before)):
        pytest.fail(f"threads left running: {', '.join(leaked)}")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The one session that a process can have: two cores, and three more attempts for a task that fails."""
    sql = pytest.importorskip("pyspark.sql")
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        sql.SparkSession.builder.master("local[2,4]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # much that runs once
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "Asia/Kolkata")  # nothing may depend on where the cluster stands
        .getOrCreate()
    )
    yield session
    session.stop()
