"""The root command: global options may stand anywhere, and errors are handled in one place."""

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from promising.cli.context import TARGET, State
from promising.cli.exit_codes import Code, tell


class Root(TyperGroup):
    """Accepts `promising query ... --output json` for `promising --output json query ...`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Move global options to the front, except those that the command defines itself."""
        return super().parse_args(ctx, _ordered(self, args))

    def invoke(self, ctx: Any) -> Any:
        """Run the command; an exception is reported in one message and becomes the exit code."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.TyperException, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            raise typer.Exit(Code.INTERRUPTED) from None
        except Exception as problem:
            target = ctx.obj.target if isinstance(ctx.obj, State) else TARGET
            raise typer.Exit(tell(problem, target)) from None


def _ordered(root: TyperGroup, args: list[str]) -> list[str]:
    """The arguments with the root's options first. Nothing after `--` is touched."""
    takes = {name: not getattr(p, "is_flag", False) for p in root.params for name in p.opts}
    first: list[str] = []
    rest: list[str] = []
    command: Any = None
    words = iter(args)
    for word in words:
        name, equals, _ = word.partition("=")
        if name.startswith("--") and any(c.isspace() for c in name):
            rest.append(" " + word)  # not an option: a statement that begins with a comment
        elif word == "--":
            rest += [word, *words]
        elif name in takes and name not in ("--help", "-h") and name not in _names(command):
            first.append(word)
            if takes[name] and not equals:
                first += [value for value in [next(words, None)] if value is not None]
        else:
            if command is None and not word.startswith("-"):
                command = root.commands.get(word)
            rest.append(word)
    return first + rest


def _names(command: Any) -> Iterator[str]:
    """The options of a command and of its subcommands."""
    if command is not None:
        for parameter in command.params:
            yield from parameter.opts
        for below in getattr(command, "commands", {}).values():
            yield from _names(below)
