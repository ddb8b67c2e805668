"""`sql`: statements from the command line, a file or a pipe; or a shell."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from promising.cli.common_options import flag
from promising.cli.console import interactive
from promising.cli.context import SHOWN, State, state
from promising.errors import DefinitionError, PromisingError, StatementError

if TYPE_CHECKING:
    from promising.client.scripts import Statement
    from promising.client.session import RemoteSession


def confirm(session: "RemoteSession", statement: "Statement") -> None:
    """Ask before rows are removed for good; without a terminal `--yes` must say so."""
    from promising.cli.streams import rows_of  # noqa: PLC0415  # Arrow: not for `--help`

    if statement.explained is None:
        return
    try:
        rows = int(rows_of(session, statement.explained)[0]["rows_removed"])
    except (StatementError, DefinitionError):
        return  # removes nothing, or fails itself and says why
    if rows == 0:
        return
    said = f"this removes {rows:,} row{'' if rows == 1 else 's'} for good"
    if not interactive():
        raise typer.BadParameter(f"{said}; add --yes if that is what you want. Nothing was changed")
    typer.confirm(f"{said[0].upper()}{said[1:]}. Go on?", abort=True, err=True)


def run(asked: State, session: "RemoteSession", statement: "Statement", yes: bool = False) -> None:
    """Run a statement and write its result to stdout. Errors give their position in the whole text.

    yes: rows may be removed without asking.
    """
    from promising.cli.answer_output import show_answer  # noqa: PLC0415  # Arrow: not for `--help`
    from promising.cli.statement_result import show_result  # noqa: PLC0415  # as above

    try:
        if statement.kind != "select":
            if not yes:
                confirm(session, statement)
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
    yes: Annotated[bool, flag("--yes", "Remove rows (DROP, ALTER STREAM) without asking.")] = False,
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
            run(state(ctx), session, one, yes)


def _read(file: Path | None) -> str:
    if file is None or str(file) == "-":
        return sys.stdin.read()
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as problem:
        raise typer.BadParameter(f"{file} is no text in UTF-8: {problem}") from None
