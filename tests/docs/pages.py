"""Runs a page of the documentation: its Python, its commands and the output it shows, from top to bottom.

A page runs in a folder of its own in which there is a `.venv`, and nothing else. Its blocks share one Python namespace
and one shell. Ports that a page names stand for free ones, and a service that it starts with `promising serve ... &` is
waited for, and ended with the page, unless the page itself ends it with `kill -9`.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.readable import readable

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = ("python", "sh", "console")
PORTS = re.compile(r"\b(5015[0-9]|946[0-9])\b")  # of the service, of its metrics
SECONDS = 300  # for one command: to end, or for a service to start or to stop
# What installs or takes minutes is not run. Targets of make are looked up in the Makefile instead.
NOT_RUN = ("make",)


class PageError(AssertionError):
    """A page that does not hold: which, on which line, and why."""


class Block(NamedTuple):
    """A fenced block: its language, the line its content begins on, and the content."""

    language: str
    line: int
    text: str


class Command(NamedTuple):
    """A command, the line it stands on, and the output that the page shows of it, if it shows any."""

    line: int
    text: str
    shown: list[str] | None

    @property
    def serves(self) -> bool:
        return self.text.startswith("promising serve") and self.text.rstrip().endswith("&")


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page."""
    return [
        Block(found.group(1).strip(), text.count("\n", 0, found.start(2)) + 1, found.group(2))
        for found in FENCE.finditer(text)
    ]


def commands(block: Block) -> list[Command]:
    """The commands of an `sh` block, or those after a `$` of a `console` block, with the output shown below them."""
    out: list[Command] = []
    lines = block.text.splitlines()
    at = 0
    while at < len(lines):
        line, first = lines[at], block.line + at
        at += 1
        if block.language == "console":
            if not line.startswith("$ "):
                if not out:
                    raise PageError(f"line {first}: output before the first `$ command`")
                assert out[-1].shown is not None
                out[-1].shown.append(line)
                continue
            line = line.removeprefix("$ ")
        elif not line.strip() or line.startswith("#"):
            continue
        while not _whole(line) and at < len(lines):
            line += "\n" + lines[at]
            at += 1
        out.append(Command(first, line, [] if block.language == "console" else None))
    return out


def _whole(text: str) -> bool:
    """Whether a command is complete: no open quote, no open here-document, no trailing backslash."""
    if text.endswith("\\"):
        return False
    told = subprocess.run(["bash", "-n"], input=text + "\n", capture_output=True, text=True, check=False)
    return told.returncode == 0 and not told.stderr


def matches(shown: list[str], said: list[str]) -> bool:
    """Whether output is as shown. `...` stands for anything: within a line, or alone for any number of lines."""
    if not shown:
        return not said
    first, rest = shown[0], shown[1:]
    if first.strip() == "...":
        return any(matches(rest, said[skipped:]) for skipped in range(len(said) + 1))
    wanted = ".*".join(re.escape(part) for part in first.rstrip().split("..."))
    return bool(said) and re.fullmatch(wanted, said[0].rstrip()) is not None and matches(rest, said[1:])


class Shell:
    """A bash that takes one command at a time, in a session of its own, so that all of it can be ended."""

    def __init__(self, folder: Path, environment: dict[str, str], scratch: Path) -> None:
        self._scratch = scratch
        self._told, inner = os.pipe()
        self._bash = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            pass_fds=[inner],
            start_new_session=True,
        )
        os.close(inner)
        # A runner that is killed ends nothing; the shell then reads the end of its input.
        self._tell(f"set -o pipefail; told={inner}; trap 'kill $(jobs -p) 2>/dev/null' EXIT")
        self._count = 0
        self.servers: list[tuple[int, Path]] = []

    def _tell(self, text: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(text + "\n")
        self._bash.stdin.flush()

    def run(self, text: str, merged: bool) -> tuple[int | None, int, Path, Path]:
        """Exit code (None if it does not end), number of the last process in the background, stdout and stderr."""
        self._count += 1
        script, out, err = (self._scratch / f"{self._count}.{kind}" for kind in ("sh", "out", "err"))
        script.write_text(text + "\n", encoding="utf-8")
        out.touch()
        err.touch()
        self._tell(f'source {script} </dev/null >{out} 2>{"&1" if merged else err}; echo "$? ${{!:-0}}" >&"$told"')
        ready = readable(self._told, SECONDS)
        answer = os.read(self._told, 100).decode().split() if ready else []
        if not answer:
            return (None if self._bash.poll() is None else self._bash.returncode), 0, out, err
        return int(answer[0]), int(answer[1]), out, err

    def killed(self) -> None:
        """The page has killed the service that it started last: it cannot say that it has stopped."""
        process, _ = self.servers.pop()
        _until(partial(_gone, process))
        os.close(process)

    def close(self) -> None:
        """End what the page has started, the services first and by SIGTERM."""
        try:
            for process, log in self.servers:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGTERM)
                _until(partial(_gone, process))
                os.close(process)
                if "stopped" not in _events(log):
                    raise PageError(f"a service that the page started did not stop as it should:\n{log.read_text()}")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._bash.pid, signal.SIGKILL)  # our own session: the shell and what it left behind
            self._bash.wait()
            assert self._bash.stdin is not None
            self._bash.stdin.close()
            os.close(self._told)


def _gone(process: int) -> bool:
    """Whether a process has ended. It is held by a descriptor, as its number may be another's by now."""
    ready = readable(process, 0)
    return bool(ready)


def _until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not true() and time.monotonic() < end:
        time.sleep(0.05)


def _events(log: Path) -> set[str]:
    """The events that a service has logged."""
    lines = log.read_text(encoding="utf-8").splitlines()
    return {json.loads(line).get("event", "") for line in lines if line.startswith("{") and line.endswith("}")}


def free_port() -> int:
    """A port of loopback that nobody has at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Run:
    """One page on its way: its folder, its ports, its Python namespace and its shell."""

    def __init__(self, page: Path, scratch: Path) -> None:
        self.page = page
        self.names: dict[str, object] = {"__name__": page.stem}
        self.ports: dict[str, int] = {}
        self.folder = scratch / page.stem
        self.folder.mkdir()
        (self.folder / ".venv").symlink_to(sys.prefix)
        logs = scratch / f"{page.stem}.logs"
        logs.mkdir()
        self.shell = Shell(self.folder, self._environment(), logs)

    def _environment(self) -> dict[str, str]:
        kept = {n: v for n, v in os.environ.items() if not n.startswith("PROMISING_") or n == "PROMISING_CACHE_DIR"}
        service = self.mapped("127.0.0.1:50151")
        return kept | {
            "PATH": f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}",
            "PROMISING_LISTEN": service,
            "PROMISING_TARGET": service,
            "COLUMNS": "100",
            "NO_COLOR": "1",
        }

    def mapped(self, text: str) -> str:
        """A text of the page with the ports that it has in this run."""
        return PORTS.sub(lambda found: str(self.ports.setdefault(found.group(), free_port())), text)

    def python(self, block: Block) -> None:
        # Blank lines in front make a traceback name the line of the page.
        code = compile("\n" * (block.line - 1) + self.mapped(block.text), str(self.page), "exec")
        with contextlib.chdir(self.folder):
            exec(code, self.names)

    def command(self, command: Command) -> None:
        """Run a command. Of one that the page shows the output of, it is an error if and only if `error:` is shown."""
        if command.text.split()[0] in NOT_RUN:
            _check_targets(command.text, self._place(command))
            return
        if command.serves:
            self._serve(command)
            return
        code, _, out, err = self.shell.run(self.mapped(command.text), merged=command.shown is not None)
        if code is None:
            raise PageError(f"{self._place(command)} does not end")
        if command.text.startswith("kill -9 "):
            self.shell.killed()
        said = self._unmapped(out.read_text(encoding="utf-8"))
        fails = command.shown is not None and any(line.startswith("error:") for line in command.shown)
        if (code != 0) != fails:
            raise PageError(f"{self._place(command)} ended with {code}\n{said}{err.read_text(encoding='utf-8')}")
        if command.shown is not None and not matches(command.shown, said.splitlines()):
            shown = "\n".join(command.shown)
            raise PageError(f"{self._place(command)} said\n{said}\nand the page shows\n{shown}")

    def _serve(self, command: Command) -> None:
        _, number, _, log = self.shell.run(self.mapped(command.text), merged=False)
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            process = os.pidfd_open(number)
            _until(lambda: "started" in _events(log) or _gone(process))
            if "started" in _events(log):
                self.shell.servers.append((process, log))
                return
            os.close(process)
        raise PageError(f"{self._place(command)} did not start:\n{log.read_text(encoding='utf-8')}")

    def _unmapped(self, text: str) -> str:
        for named, got in self.ports.items():
            text = re.sub(rf":{got}\b", f":{named}", text)
        return text

    def _place(self, command: Command) -> str:
        return f"{self.page.name}:{command.line}: `{command.text}`"


def run(page: Path, scratch: Path) -> int:
    """Run the blocks of a page in order; returns how many there were."""
    found = [block for block in blocks(page.read_text(encoding="utf-8")) if block.language in RUN]
    with _started(page, scratch) as running:
        for block in found:
            if block.language == "python":
                running.python(block)
            else:
                for command in commands(block):
                    running.command(command)
    return len(found)


@contextlib.contextmanager
def _started(page: Path, scratch: Path) -> Iterator[Run]:
    running = Run(page, scratch)
    try:
        yield running
    finally:
        running.names.clear()
        running.shell.close()


def targets() -> set[str]:
    """The targets of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))


def _check_targets(text: str, place: str) -> None:
    words = text.partition("#")[0].split()[1:]
    wrong = [word for word in words if word.islower() and "=" not in word and word not in targets()]
    if wrong:
        raise PageError(f"{place}: no such target of the Makefile: {', '.join(wrong)}")
