"""Work on a directory of data, with a bar on stderr and an account on stdout."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from promising.cli.console import clean, err, interactive, out
from promising.cli.context import Output, State
from promising.cli.formats import count, print_damages, size, write_facts, write_table
from promising.index.storage.backup import BackupReport, backup, restore
from promising.index.storage.repair import repair
from promising.index.storage.verify import Finding, verify

Told = Callable[[int, int, str], None]


@contextmanager
def _progress(asked: State, doing: str) -> Iterator[Told]:
    """Shows how far something has come, where somebody looks."""
    bars = (
        TextColumn("{task.description}", markup=False),
        BarColumn(24),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[what]}", markup=False, style="dim"),
    )
    with Progress(*bars, console=err(), transient=True, disable=asked.quiet or not err().is_terminal) as progress:
        task = progress.add_task(doing, total=None, what="")

        def told(done: int, total: int, what: str) -> None:
            progress.update(task, completed=done, total=total or None, what=clean(what, "")[-40:])

        yield told


def make_backup(asked: State, data: Path, target: Path) -> bool:
    """A copy as of one moment; whether all of it is as it was written."""
    with _progress(asked, "backup") as progress:
        made = backup(data, target, progress)
    _tell(asked, made, f"backup of {data} in {target}")
    return not made.damages


def make_restored(asked: State, source: Path, data: Path) -> None:
    """A directory of data, from a backup."""
    with _progress(asked, "restore") as progress:
        made = restore(source, data, progress)
    _tell(asked, made, f"{source} restored to {data}")


def _tell(asked: State, made: BackupReport, what: str) -> None:
    def show() -> None:
        said = f"{what}: {count(made.streams, 'stream')}, {count(made.files, 'file')}, {size(made.bytes)}"
        out().print(Text(clean(said)), soft_wrap=True)
        print_damages(made.damages)

    write_facts(asked.output, asdict(made), show)


def show_verified(asked: State, data: Path) -> bool:
    """All that is not as it should be, a row each; whether the data is whole nevertheless."""
    with _progress(asked, "verify") as progress:
        found = verify(data, progress)
    errors = sum(one.severity == "error" for one in found)
    if found or asked.output is not Output.TABLE:
        table = {name: pa.array([getattr(one, name) for one in found], pa.string()) for name in Finding._fields}
        write_table(asked.output, pa.table(table))
    remarks = f", {count(len(found) - errors, 'remark')}" if len(found) > errors else ""
    asked.say(f"{data} is damaged: {count(errors, 'error')}{remarks}" if errors else f"{data} is whole{remarks}")
    return not errors


def make_repaired(asked: State, data: Path, yes: bool) -> None:
    """Keep what can be read, if that is wanted."""
    if not yes:
        question = f"Set aside what cannot be read in {data}? What it covered is lost."
        if not interactive():
            raise typer.BadParameter(f"{question} Say --yes to do it")
        typer.confirm(question, abort=True)
    with _progress(asked, "repair") as progress:
        done = repair(data, progress)
    if done or asked.output is not Output.TABLE:
        write_table(asked.output, pa.table({"done": pa.array(done, pa.string())}))
    asked.say(f"{count(len(done), 'thing')} mended in {data}" if done else f"{data} is whole; nothing was done")
