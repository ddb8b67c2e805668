"""The program against a service of its own: for tests that run commands."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from promising.cli.app import app
from tests.readable import readable

PROGRAM = Path(sys.executable).parent / "promising"
PATIENCE = 180  # seconds, so that a test that fails ends
START = 1_700_000_040_000_000
ROWS = 4_000
# A terminal sends Ctrl-C to those whose own terminal it is.
OWN_TERMINAL = """
import fcntl, os, sys, termios
import socket
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Cli:
    """Runs commands in this process, with a service as their target."""

    target: str

    def __call__(self, *words: str, input: str | bytes | None = None, **env: str) -> Ended:
        given = {"PROMISING_TARGET": self.target, "PROMISING_DEBUG": "", **env}
        ended = CliRunner().invoke(app, list(words), input=input, env=given)
        return Ended(ended.exit_code, ended.stdout, ended.stderr)

    def raw(self, *words: str) -> bytes:
        """What a command that must go well writes to stdout, as it is."""
        ended = CliRunner().invoke(app, list(words), env={"PROMISING_TARGET": self.target})
        assert ended.exit_code == 0, ended
        return ended.stdout_bytes

    def ok(self, *words: str, input: str | bytes | None = None, **env: str) -> str:
        """What a command that must go well writes to stdout."""
        ended = self(*words, input=input, **env)
        assert ended.code == 0, ended
        return ended.out


def program(*words: str, **env: str) -> "subprocess.Popen[str]":
    """The program as a process of its own."""
    return subprocess.Popen(
        [str(PROGRAM), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env},
    )


def finished(*words: str, input: str | None = None, **env: str) -> Ended:
    """The program as a process, run to its end."""
    with program(*words, **env) as process:
        out, err = process.communicate(input, timeout=PATIENCE)
    return Ended(process.returncode, out, err)


class Serving:
    """`promising serve` as a process, on a port of its own choice; logs go to a file."""

    def __init__(self, log: Path, *flags: str) -> None:
        self.log = log
        with log.open("w") as stream:
            self.process = subprocess.Popen(
                [str(PROGRAM), "serve", "--listen", "127.0.0.1:0", "--drain", "2s", *flags],
                stderr=stream,
                cwd=log.parent,
            )

    def target(self) -> str:
        """Where it takes calls, as its log tells."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self.process.poll() is None:
            for text in self.log.read_text().splitlines(keepends=True):
                if text.endswith("\n") and (line := json.loads(text))["event"] == "started":
                    return str(line["listen"])
            time.sleep(0.05)
        raise AssertionError(f"it did not start: {self.log.read_text()}")

    def stop(self) -> int:
        """End it as an operator would; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, *words: str, **env: str) -> None:
        self.master, slave = pty.openpty()
        self.seen = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL, str(PROGRAM), *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "COLUMNS": "100", "LINES": "40", **env},
        )
        os.close(slave)

    def until(self, pattern: str) -> str:
        """Read until a pattern is seen; returns what was seen since the last one."""
        end = time.monotonic() + PATIENCE
        while not (found := re.search(pattern, self.seen)):
            assert time.monotonic() < end, self.seen
            if readable(self.master, 1):
                try:
                    self.seen += os.read(self.master, 1 << 16).decode(errors="replace")
                except OSError:  # the other end is closed
                    assert re.search(pattern, self.seen), self.seen
        before, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return before

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def end(self) -> int:
        """Its exit code."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < end:  # who does not read would keep it waiting
            if readable(self.master, 0.1):
                try:
                    self.seen += os.read(self.master, 1 << 16).decode(errors="replace")
                except OSError:
                    break
        return self.process.wait(PATIENCE)
