"""SIGTERM or Ctrl-C during a start ends it at once, well, and with the data released and as it was."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from promising.errors import PromisingError
from promising.query.session import Session
from promising.server.starting import SIGNALS
from tests.index.storage.stores import opened
from tests.promising.server.serving import CREATE, WAIT, table

LOADING = """
import time
from promising.server import service
from promising.settings import Settings
service.load_all = lambda: [print("loading", flush=True), time.sleep(1000)]
service.serve(Settings(listen="127.0.0.1:0"))
"""
COMPILING = """
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from promising.server import service
from promising.settings import Settings

def load_all():
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        job = pool.submit(time.sleep, 1000)
        while not job.running():
            pass
        print(*pool._processes, flush=True)
        job.result()

if __name__ == "__main__":
    service.load_all = load_all
    service.serve(Settings(listen="127.0.0.1:0"))
"""
OPENING = """
import sys
from pathlib import Path
from promising.index.storage.stream_store import StreamStore
from promising.server.service import serve
from promising.settings import Settings

def recover(self):
    print("opening", flush=True)
    while True:  # a recovery that does not end reads files for ever
        self._disk.exists(Path(sys.argv[1]))

StreamStore.recover = recover
serve(Settings(listen="127.0.0.1:0", data=sys.argv[1]))
"""
STANDING = """
import sys
from promising.query.definitions import Definitions
from promising.server.service import serve
from promising.settings import Settings

again = Definitions.stand_again

def stand_again(self):
    if self.store is not None:
        print("standing", flush=True)
        sys.stdin.read()
    again(self)

Definitions.stand_again = stand_again
serve(Settings(listen="127.0.0.1:0", data=sys.argv[1]))
"""


@contextmanager
def starting(script: str, *given: str) -> Any:
    process: Any
    with subprocess.Popen(
        [sys.executable, "-c", script, *given],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: Any) -> list[str]:
    """The events that it logged, when it has ended well."""
    assert process.wait(WAIT) == 0, process.stderr.read()
    return [json.loads(line)["event"] for line in process.stderr if line.startswith("{")]


@pytest.mark.deep("starts a process")
@pytest.mark.parametrize("number", SIGNALS)
def test_while_kernels_load(number):
    """By a handler: the first process of a container ignores signals that have none."""
    with starting(LOADING) as process:
        assert process.stdout.readline() == "loading\n"
        process.send_signal(number)
        assert ended(process)[-1] == "stopped"


@pytest.mark.deep("starts two processes")
def test_while_kernels_compile_nothing_is_left_behind(tmp_path):
    script = tmp_path / "compiling.py"
    script.write_text(COMPILING)
    with starting(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')") as process:
        child = psutil.Process(int(process.stdout.readline()))
        process.send_signal(signal.SIGTERM)
        assert ended(process)[-1] == "stopped"
        child.wait(WAIT)


def stocked(path: Path) -> None:
    with opened(path) as store:
        session = Session(store=store)
        session.execute(CREATE)
        session.ingest("s", table(10))
        session.execute("CREATE CONTINUOUS QUERY q AS SELECT item FROM s WINDOW 1 HOUR")


def held(path: Path) -> dict[str, int]:
    files = (file for file in path.rglob("*") if file.is_file() and file.name != "LOCK")  # which has a process id
    return {str(file.relative_to(path)): os.path.getsize(file) for file in files}


@pytest.mark.deep("starts a process")
@pytest.mark.parametrize("number", SIGNALS)
def test_while_the_data_is_opened(tmp_path, number):
    stocked(tmp_path)
    before = held(tmp_path)
    with starting(OPENING, str(tmp_path)) as process:
        assert process.stdout.readline() == "opening\n"
        with pytest.raises(PromisingError, match="in use"):
            opened(tmp_path)
        process.send_signal(number)
        assert ended(process) == ["opening", "stopped"]
    assert held(tmp_path) == before
    with opened(tmp_path) as store:
        assert store.streams["s"].count == 10 and list(store.queries) == ["q"]


@pytest.mark.deep("starts a process")
def test_while_queries_start(tmp_path):
    stocked(tmp_path)
    with starting(STANDING, str(tmp_path)) as process:
        assert process.stdout.readline() == "standing\n"
        process.send_signal(signal.SIGTERM)
        process.stdin.close()
        events = ended(process)
    assert events[-2:] == ["closed", "stopped"]  # if it was ready before it saw the signal, after a drain
    with opened(tmp_path) as store:
        assert store.streams["s"].count == 10
