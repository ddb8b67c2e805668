"""`backup`, `restore`, `verify`, `repair`: on a directory of data, without a service."""

from pathlib import Path
from typing import Annotated

import typer

from promising.cli.common_options import flag
from promising.cli.context import state
from promising.cli.exit_codes import Code

Data = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="The directory, as `promising serve --data` has it.", show_default=False),
]


def backup(
    ctx: typer.Context,
    data: Data,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="Where to; new, or empty.", show_default=False)],
) -> None:
    """Copy all data as it is at one moment; a service may go on with it meanwhile.

    The copy is a directory like DATA, checked as it is written: `promising serve --data TARGET` would serve it.
    """
    from promising.cli.storage_view import make_backup  # noqa: PLC0415  # Arrow: not for `--help`

    if not make_backup(state(ctx), data, target):
        raise typer.Exit(Code.REQUEST)


def restore(
    ctx: typer.Context,
    source: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="What `promising backup` has made.", show_default=False)
    ],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Where to; new, or empty.", show_default=False)],
) -> None:
    """Make a directory of data from a backup, every file of it checked."""
    from promising.cli.storage_view import make_restored  # noqa: PLC0415  # Arrow: not for `--help`

    make_restored(state(ctx), source, data)


def verify(ctx: typer.Context, data: Data) -> None:
    """Check every file, every rule, and the summaries against the tuples.

    Nothing is changed. Stop the service first, or verify a backup. Exit code 1 says that data is damaged.
    """
    from promising.cli.storage_view import show_verified  # noqa: PLC0415  # Arrow: not for `--help`

    if not show_verified(state(ctx), data):
        raise typer.Exit(Code.REQUEST)


def repair(
    ctx: typer.Context,
    data: Data,
    yes: Annotated[bool, flag("--yes", "Do it, and do not ask.")] = False,
) -> None:
    """Keep what can be read, and set the rest aside.

    Stop the service first, and make a copy. What is lost is told, and stays in the folder `aside`.
    """
    from promising.cli.storage_view import make_repaired  # noqa: PLC0415  # Arrow: not for `--help`

    make_repaired(state(ctx), data, yes)
