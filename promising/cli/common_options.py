"""Options and arguments shared by several commands."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import typer

T = TypeVar("T")


def reads(read: Callable[[str], T]) -> Callable[[str], T]:
    """A parser of an option's text whose ValueError becomes a usage error."""

    def checked(text: str) -> T:
        try:
            return read(text)
        except ValueError as problem:
            raise typer.BadParameter(str(problem)) from None

    checked.__name__ = "value"
    return checked


def flag(name: str, said: str) -> Any:
    """A boolean option."""
    return typer.Option(name, help=said, metavar="")


def span(read: Callable[[str], T], said: str, *names: str) -> Any:
    """An option that is a duration."""
    return typer.Option(*names, parser=reads(read), metavar="SPAN", help=said)


def when(said: str, *names: str) -> Any:
    """An option that is an instant of event time."""
    return typer.Option(*names, parser=reads(instant), metavar="TIME", help=said)


def instant(text: str) -> int:
    """An instant in microseconds since the epoch: ISO 8601, UTC unless a zone is given.

    >>> instant("1970-01-02"), instant("1970-01-01T01:00:00.5+01:00")
    (86400000000, 500000)
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is no time; write it like 2024-05-01 or 2024-05-01T12:30:00") from None
    found = found.replace(tzinfo=UTC) if found.tzinfo is None else found
    since = found - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def pair(text: str) -> tuple[str, str]:
    """Split `NAME=VALUE`."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise ValueError(f"{text!r} is not of the form NAME=VALUE")
    return name.strip(), value.strip()


def pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """A repeatable NAME=VALUE option."""
    out: dict[str, str] = {}
    for text in given or []:
        try:
            name, value = pair(text)
        except ValueError as problem:
            raise typer.BadParameter(f"{option}: {problem}") from None
        if name in out:
            raise typer.BadParameter(f"{option}: {name} is given twice")
        out[name] = value
    return out
