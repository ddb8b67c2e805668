"""`backup`, `restore`, `verify`, `repair`: on a data directory, without a service."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

from promising.cli.common_options import flag
from promising.cli.console import clean, interactive
from promising.cli.context import Output, State, state
from promising.cli.exit_codes import Code
from promising.cli.progress_bars import progress
from promising.cli.text_output import count, print_damages, print_text, size, write_facts

if TYPE_CHECKING:
    from promising.index.storage.backup import BackupReport

Data = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="Data directory, as in `promising serve --data`.", show_default=False),
]


def backup(
    ctx: typer.Context,
    data: Data,
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="Target directory; new or empty.", show_default=False)
    ],
) -> None:
    """Copy all data as of one moment; a service may keep running on it.

    The copy is a directory like DATA, checked as it is written: `promising serve --data TARGET` can serve it.
    """
    from promising.index.storage import backup as storage  # noqa: PLC0415  # Arrow and numba: not for `--help`

    with _bar(state(ctx), "backup") as told:
        made = storage.backup(data, target, told)
    _tell(state(ctx), made, f"backup of {data} in {target}")
    if made.damages:
        raise typer.Exit(Code.REQUEST)


def restore(
    ctx: typer.Context,
    source: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="Backup made by `promising backup`.", show_default=False)
    ],
    data: Annotated[Path, typer.Argument(metavar="DATA", help="Target directory; new or empty.", show_default=False)],
) -> None:
    """Create a data directory from a backup; every file is checked."""
    from promising.index.storage import backup as storage  # noqa: PLC0415  # as above

    with _bar(state(ctx), "restore") as told:
        made = storage.restore(source, data, told)
    _tell(state(ctx), made, f"{source} restored to {data}")


def verify(ctx: typer.Context, data: Data) -> None:
    """Check every file, every invariant, and the summaries against the tuples.

    Nothing is changed. Stop the service first, or verify a backup. Exit code 1 means that data is damaged.
    """
    import pyarrow as pa  # noqa: PLC0415  # as above

    from promising.cli.formats import write_table  # noqa: PLC0415  # as above
    from promising.index.storage import verify as storage  # noqa: PLC0415  # as above

    asked = state(ctx)
    with _bar(asked, "verify") as told:
        found = storage.verify(data, told)
    errors = sum(one.severity == "error" for one in found)
    if found or asked.output is not Output.TABLE:
        fields = storage.Finding._fields
        table = {name: pa.array([getattr(one, name) for one in found], pa.string()) for name in fields}
        write_table(asked.output, pa.table(table))
    remarks = f", {count(len(found) - errors, 'remark')}" if len(found) > errors else ""
    asked.say(f"{data} is damaged: {count(errors, 'error')}{remarks}" if errors else f"{data} is whole{remarks}")
    if errors:
        raise typer.Exit(Code.REQUEST)


def repair(
    ctx: typer.Context,
    data: Data,
    yes: Annotated[bool, flag("--yes", "Do not ask for confirmation.")] = False,
) -> None:
    """Keep what is readable, and set the rest aside.

    Stop the service first, and make a copy. What is lost is reported, and moved to the folder `aside`.
    """
    import pyarrow as pa  # noqa: PLC0415  # as above

    from promising.cli.formats import write_table  # noqa: PLC0415  # as above
    from promising.index.storage import repair as storage  # noqa: PLC0415  # as above

    asked = state(ctx)
    if not yes:
        question = f"Set aside what cannot be read in {data}? What it covered is lost."
        if not interactive():
            raise typer.BadParameter(f"{question} Say --yes to do it")
        typer.confirm(question, abort=True)
    with _bar(asked, "repair") as told:
        done = storage.repair(data, told)
    if done or asked.output is not Output.TABLE:
        write_table(asked.output, pa.table({"done": pa.array(done, pa.string())}))
    asked.say(f"{count(len(done), 'thing')} mended in {data}" if done else f"{data} is whole; nothing was done")


@contextmanager
def _bar(asked: State, doing: str) -> Iterator[Callable[[int, int, str], None]]:
    """A progress bar, on a terminal."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(24),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}", markup=False, style="dim"),
    )
    with progress(asked, *columns) as bar:
        task = bar.add_task(doing, total=None, what="")

        def told(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total or None, what=clean(what, "")[-40:])

        yield told


def _tell(asked: State, made: "BackupReport", what: str) -> None:
    def show() -> None:
        said = f"{what}: {count(made.streams, 'stream')}, {count(made.files, 'file')}, {size(made.bytes)}"
        print_text(clean(said))
        print_damages(made.damages)

    write_facts(asked.output, asdict(made), show)
