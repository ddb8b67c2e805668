"""Servers for the measurements: each a process of its own on loopback, whose CPU time, memory, threads and files can be
read off from outside.

`python -m benchmarks.service_host KIND SETTINGS` is what such a process runs; it prints its port.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import psutil

import promising
from promising.client import RemoteSession

ROOT = Path(__file__).resolve().parents[1]
SETTLED = 30.0
"""Seconds after which what is still there is taken to stay."""
START = 1_600_000_000_000_000
"""The time of the first tuple: long enough ago for any number of them."""
QUIET = 4.0
"""Seconds after which a server that has nothing to do has tidied up."""
REST = 0.05
"""Share of a core that such a server takes, at most."""
RETAIL = "store_id BIGINT, transaction_id BIGINT, ts TIMESTAMP, item_id BIGINT, price DOUBLE"


class Held(NamedTuple):
    """Bytes of memory in use, threads, and open files with sockets among them."""

    resident: int
    threads: int
    files: int


class Host:
    """A server that runs."""

    def __init__(self, pid: int, port: int) -> None:
        self.target = f"127.0.0.1:{port}"
        self.pid = pid
        self._process = psutil.Process(pid)
        self.channel = connected(self.target)
        self._clock = (~pid << 3) | 2  # the clock of that process's CPU time, as Linux numbers it

    def cpu(self) -> float:
        """Seconds of CPU time since its start."""
        return time.clock_gettime(self._clock)

    def resident(self) -> int:
        """Bytes of memory in use."""
        return int(self._process.memory_info().rss)

    def threads(self) -> int:
        return int(self._process.num_threads())

    def files(self) -> int:
        """Open files, sockets included."""
        return int(self._process.num_fds())

    def holds(self, before: "Held | None" = None) -> "Held":
        """What it holds on to when it has come to rest: little was done for `QUIET` seconds, and threads and files are
        no more than before, or stay.
        """
        until = time.monotonic() + SETTLED
        while True:
            spent = self.cpu()
            time.sleep(QUIET)
            now = Held(self.resident(), self.threads(), self.files())
            more = before is not None and (now.threads > before.threads or now.files > before.files)
            if (self.cpu() - spent < REST * QUIET and not more) or time.monotonic() > until:
                return now

    def session(self) -> RemoteSession:
        return promising.connect(self.target)


@contextmanager
def hosting(kind: str, **settings: Any) -> Iterator[Host]:
    """A server of that kind: "service" is ours, with these settings; the others are in `service_rivals`."""
    command = [sys.executable, "-m", "benchmarks.service_host", kind, json.dumps(settings)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        try:
            port = process.stdout.readline()
            if not port:
                log.seek(0)
                raise RuntimeError(f"the server did not start:\n{log.read()[-2000:]}")
            host = Host(process.pid, int(port))
            with host.channel:
                yield host
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(SETTLED)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def connected(target: str) -> grpc.Channel:
    """A connection of its own."""
    channel = grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)])
    grpc.channel_ready_future(channel).result(SETTLED)
    return channel


def retail(session: Any, name: str, tuples: int, granularity: str = "60 SECONDS", keep: str = "ALL") -> None:
    """A new stream of retail tuples with one summary on its items, in place of the one that had the name."""
    session.execute(f"DROP STREAM IF EXISTS {name} CASCADE")
    session.execute(
        f"CREATE STREAM {name} ({RETAIL}) TIMESTAMP BY ts KEEP {keep} OPTIONS (max_tuples = {max(tuples, 1 << 18)})"
    )
    session.execute(
        f"CREATE SUMMARY {name}_items ON {name} (item_id) WITH GRANULARITY {granularity} AND COLLAPSE (4, 5)"
    )


def main(kind: str, settings: dict[str, Any]) -> None:
    if kind == "service":
        from promising.server.service import serve  # noqa: PLC0415  # each process loads what it runs
        from promising.settings import Settings  # noqa: PLC0415

        serve(Settings(listen="127.0.0.1:0", drain_seconds=0, **settings), _tell)
    else:
        from benchmarks import service_rivals  # noqa: PLC0415

        service_rivals.serve(kind, _tell)


def _tell(port: int) -> None:
    print(port, flush=True)
    os.close(1)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
