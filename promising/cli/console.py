"""Where words go: data to stdout, everything else to stderr; colours only on a terminal."""

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 1 << 16  # columns, where nobody looks: nothing is folded or cut


def clean(text: str, keep: str = "\n\t") -> str:
    """Text from outside, safe to show: what would steer the terminal is written out, except what is in `keep`.

    >>> clean("a\\x1b[31mb")
    'a\\\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def out() -> "Console":
    """Standard output."""
    return _console(False, sys.stdout.isatty())


def err() -> "Console":
    """Standard error."""
    return _console(True, sys.stderr.isatty())


@cache
def _console(stderr: bool, terminal: bool) -> "Console":
    from rich.console import Console  # noqa: PLC0415  # `--help` of a newcomer should not wait for it

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=None if terminal else WIDE)


def complain(text: str) -> None:
    """A message on stderr. What an error says is broken at words; the statement it shows, and commands, are not."""
    from rich.text import Text  # noqa: PLC0415  # as above

    if not text.startswith("error:"):
        err().print(Text(text), soft_wrap=True)
        return
    said, place, shown = text.removeprefix("error:").partition("\nline ")
    err().print(Text.assemble(("error:", "bold red"), said))
    if place:
        err().print(Text("line " + shown), soft_wrap=True)


def interactive() -> bool:
    """Whether somebody sits there: only then is anything asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()
