"""Output: data to stdout, everything else to stderr; colours only on a terminal."""

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 1 << 16  # columns without a terminal: nothing is wrapped or truncated


def clean(text: str, keep: str = "\n\t") -> str:
    """Text from outside, safe to show: control characters are escaped, except those in `keep`.

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
    from rich.console import Console  # noqa: PLC0415  # slow to load: not for `--help`

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False, width=None if terminal else WIDE)


def complain(text: str) -> None:
    """Print a message to stderr. The text of an error is wrapped at words; statements and commands are not."""
    from rich.text import Text  # noqa: PLC0415  # as above

    if not text.startswith("error:"):
        err().print(Text(text), soft_wrap=True)
        return
    said, place, shown = text.removeprefix("error:").partition("\nline ")
    err().print(Text.assemble(("error:", "bold red"), said))
    if place:
        err().print(Text("line " + shown), soft_wrap=True)


def interactive() -> bool:
    """Whether a user is at a terminal; prompts appear only then."""
    return sys.stdin.isatty() and sys.stdout.isatty()
