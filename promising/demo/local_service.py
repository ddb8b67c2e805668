"""A service as a child process on a free loopback port, stopped with its parent."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from types import TracebackType

from promising.errors import Unavailable

LINES = 20  # of its log, shown if it fails
PATIENCE = 15.0  # seconds for its shutdown


class LocalService:
    """`promising serve` as a child process for a `with` block, isolated from the caller's settings and environment."""

    def __init__(self) -> None:
        ours = ("PROMISING_CACHE_DIR",)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PROMISING_") or k in ours}
        command = [sys.executable, "-m", "promising.cli", "serve", "--listen", "127.0.0.1:0", "--config", os.devnull]
        # In its own session: Ctrl-C reaches only the parent, which then stops the service in order.
        self._process = subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self._log: deque[str] = deque(maxlen=LINES)
        self._known = threading.Event()
        self._address: str | None = None
        self._reader = threading.Thread(target=self._read, name="log of the service", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Drain its log and retain the last lines, so that it never blocks on the pipe."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.append(line.rstrip())
            with contextlib.suppress(ValueError, TypeError, KeyError):
                said = json.loads(line)
                if said["event"] == "started":
                    self._address = str(said["listen"])
                    self._known.set()
        self._known.set()

    def address(self, seconds: float) -> str | None:
        """Its address; None if it is not ready after that many seconds. Raises `Unavailable` if it has ended."""
        self._known.wait(seconds)
        if self._address is None and self._known.is_set():
            last = "\n".join(self._log) or "it said nothing"
            raise Unavailable(f"the service ended before it took calls:\n{last}")
        return self._address

    def cpu_seconds(self) -> float:
        """CPU time that it has used, by all its threads."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Stop it gracefully, and kill it if that fails."""
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def __enter__(self) -> "LocalService":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
