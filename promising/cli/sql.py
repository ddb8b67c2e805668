"""`sql`: statements from the command line, a file or a pipe; or a shell."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from promising.cli.console import interactive
from promising.cli.context import SHOWN, State, state
from promising.errors import PromisingError

if TYPE_CHECKING:
    from promising.client.scripts import Statement
    from promising.client.session import RemoteSession


def run(asked: State, session: "RemoteSession", statement: "Statement") -> None:
    """Run a statement and write its result to stdout. Errors give their position in the whole text."""
    from promising.cli.answer_output import show_answer  # noqa: PLC0415  # Arrow: not for `--help`
    from promising.cli.statement_result import show_result  # noqa: PLC0415  # as above

    try:
        if statement.kind != "select":
            show_result(asked, session.execute(statement.sql))
            return
        progress = show_answer(asked, session.query(statement.sql), SHOWN)
    except PromisingError as problem:
        raise statement.placed(problem) from None
    asked.say_token(progress.token)


def sql(
    ctx: typer.Context,
    statement: Annotated[
        str | None, typer.Argument(metavar="STATEMENT", help="One or more statements, in quotes.", show_default=False)
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="A file of statements; - is stdin.")
    ] = None,
) -> None:
    """Run statements, or open a shell.

    Statements are given here, in a file or through a pipe; without any of these a shell opens.
    All are parsed before the first runs; the first that fails ends the run.
    """
    if statement is not None and file is not None:
        raise typer.BadParameter("give a statement or a file, not both")
    if statement is None and file is None and interactive():
        from promising.cli.shell import Shell  # noqa: PLC0415  # prompt_toolkit: for the shell only

        with state(ctx).connect() as session:
            Shell(state(ctx), session).run()
        return
    from promising.client.scripts import many  # noqa: PLC0415  # sqlglot: not for `--help`

    statements = many(statement if statement is not None else _read(file))
    if not statements:
        raise typer.BadParameter("no statement was given")
    with state(ctx).connect() as session:
        for one in statements:
            run(state(ctx), session, one)


def _read(file: Path | None) -> str:
    if file is None or str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise typer.BadParameter(f"{file} is no text in UTF-8: {problem}") from None
