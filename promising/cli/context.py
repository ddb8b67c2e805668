"""The options of all commands: service, credentials, output."""

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
SHOWN = 40  # default rows of a table on a terminal


class Output(StrEnum):
    """Output format of data on stdout."""

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
    wait: float = 0.0
    repeated: str = ""
    """Given options, for a command that continues this one."""

    def connect(self, *, patient: bool = False) -> "RemoteSession":
        """A session on the selected service.

        patient: wait some seconds for a service that becomes unavailable. At a prompt it fails at once.
        """
        from promising.client.session import connect  # noqa: PLC0415  # gRPC and Arrow: not for `--help`

        return connect(self.target, retries=RETRIES if patient else 0, **self._who())

    def dial(self) -> "Connection":
        """A connection to that service, for commands that do not need Arrow and should not wait for its import."""
        from promising.client.connection import dial  # noqa: PLC0415  # gRPC: not for `--help`

        return dial(self.target, retries=0, **self._who())

    def _who(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("token", "ca", "certificate", "key", "timeout", "wait")}

    def say(self, text: str) -> None:
        """Print a remark to stderr, unless --quiet."""
        if not self.quiet:
            complain(text)

    def say_token(self, token: str | None) -> None:
        """Print how to resume a cut answer, if it can be resumed."""
        if token is not None:
            self.say(f"Go on with: promising query {self.repeated}--resume {token}")


def state(ctx: typer.Context) -> State:
    """The state of this run."""
    return cast(State, ctx.obj)


def read_token(token: str | None, file: Path | None) -> str | None:
    """The token, from the option or from a file that contains only the token."""
    if file is None:
        return token or None
    if token is not None:
        raise typer.BadParameter("--token and --token-file are two tokens; give one")
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise typer.BadParameter(f"--token-file {file}: {problem}") from None
