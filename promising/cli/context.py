"""What the options before every command say: which service, with which rights, and how to answer."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from promising.cli.console import complain

if TYPE_CHECKING:
    from promising.client.connection import Connection
    from promising.client.session import RemoteSession

TARGET = "127.0.0.1:50151"
RETRIES = 5
SHOWN = 40  # rows of a table on a terminal, if nothing else is said


class Output(StrEnum):
    """How data is written to stdout."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


@dataclass(frozen=True)
class State:
    """The options that all commands share."""

    target: str = TARGET
    token: str | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    timeout: float | None = None
    output: Output = Output.TABLE
    quiet: bool = False
    repeated: str = ""
    """Options that were given, to be given again to a command that goes on with this one."""

    def connect(self, *, patient: bool = False) -> "RemoteSession":
        """A session of the service that is meant.

        patient: wait some seconds for a service that goes away. People at a prompt learn at once that there is none.
        """
        from promising.client.session import connect  # noqa: PLC0415  # gRPC and Arrow: not for `--help`

        return connect(self.target, retries=RETRIES if patient else 0, **self._who())

    def dial(self) -> "Connection":
        """A connection to that service, for commands that need no Arrow, and should not wait for it."""
        from promising.client.connection import dial  # noqa: PLC0415  # gRPC: not for `--help`

        return dial(self.target, retries=0, **self._who())

    def _who(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("token", "ca", "certificate", "key", "timeout")}

    def say(self, text: str) -> None:
        """A remark on stderr, unless it should be quiet."""
        if not self.quiet:
            complain(text)

    def say_token(self, token: str | None) -> None:
        """How to go on with an answer that was cut, if it can."""
        if token is not None:
            self.say(f"Go on with: promising query {self.repeated}--resume {token}")


def state(ctx: typer.Context) -> State:
    """The state of this run."""
    return cast(State, ctx.obj)


def read_token(token: str | None, file: Path | None) -> str | None:
    """The token, from the option or from a file that holds nothing else."""
    if file is None:
        return token or None
    if token is not None:
        raise typer.BadParameter("--token and --token-file are two tokens; give one")
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise typer.BadParameter(f"--token-file {file}: {problem}") from None
