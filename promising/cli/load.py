"""`load`: add many files to a stream through Spark, with a bar for its stages on stderr and a report at the end."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn

from promising.cli.choices import Format, Unit
from promising.cli.common_options import pairs
from promising.cli.console import clean, err
from promising.cli.context import State, state
from promising.cli.progress_bars import Rate, progress
from promising.cli.spark_session import Cluster, DriverMemory, Master, SparkConf
from promising.cli.text_output import count, print_text, size, write_facts
from promising.errors import LoadError

if TYPE_CHECKING:
    from promising.loaders.bulk import Report
    from promising.loaders.spark_jobs import Progress as Stage

KINDS = {Format.CSV: "csv", Format.JSONL: "json", Format.PARQUET: "parquet"}


def load(
    ctx: typer.Context,
    stream: Annotated[str, typer.Option(metavar="NAME", help="Target stream.", show_default=False)],
    source: Annotated[
        list[str],
        typer.Option(metavar="PATH", help="A file, folder or glob pattern; a path or a URL.", show_default=False),
    ],
    staging: Annotated[
        str,
        typer.Option(
            metavar="PATH",
            help="Staging folder: Spark writes to it, the service reads it.",
            show_default=False,
        ),
    ],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="PATH", help="Further sources, for example from a shell pattern.")
    ] = None,
    map: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=FIELD", help="Read a column from a field of another name; repeatable."),
    ] = None,
    format: Annotated[Format | None, typer.Option(help="File format. Default: by the file names.")] = None,
    token: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of this load, which makes it idempotent. Default: from the sources."),
    ] = None,
    quarantine: Annotated[
        str | None, typer.Option(metavar="PATH", help="Folder for refused rows, each with its reason.")
    ] = None,
    time_unit: Annotated[Unit | None, typer.Option(help="Unit of integers in the time column, since 1970.")] = None,
    time_zone: Annotated[
        str | None, typer.Option(metavar="NAME", help="Zone of times without one, such as Europe/Berlin. Default: UTC.")
    ] = None,
    master: Master = None,
    spark_conf: SparkConf = None,
    driver_memory: DriverMemory = None,
) -> None:
    """Bulk load many files into a stream with Spark, atomically.

    The command is idempotent: run again, it finishes an interrupted load. \
The access token goes before the command: promising --token TOKEN load ...
    """
    if token is not None and token.startswith("prm_"):
        raise typer.BadParameter(
            "--token is the name of this load here; who you are is said before the command, by --token-file or by"
            " PROMISING_TOKEN"
        )
    asked, mapping = state(ctx), pairs(map, "--map")
    cluster = Cluster.of(master, spark_conf, driver_memory)
    with asked.connect(patient=True) as session:
        session.load_plan(stream)  # a missing service or stream is reported before Spark starts
        if err().is_terminal:
            asked.say("Starting Spark ...")
        with cluster.session("promising load", LoadError) as spark, _bar(asked) as told:
            from promising.loaders.bulk import bulk_load  # noqa: PLC0415  # needs pyspark

            try:
                report = bulk_load(
                    spark,
                    session,
                    stream,
                    [_absolute(path) for path in (*source, *(more or []))],
                    mapping=mapping,
                    format=None if format is None else KINDS[format],
                    staging=_absolute(staging),
                    token=token,
                    quarantine=None if quarantine is None else _absolute(quarantine),
                    time_unit=None if time_unit is None else time_unit.value,
                    time_zone=time_zone,
                    on_progress=told,
                )
            except KeyboardInterrupt:
                asked.say("Broken off. The same command again finishes the load, and adds nothing twice.")
                raise
    facts = asdict(report) | {
        "seconds": round(report.seconds, 3),
        "stages": {stage: round(seconds, 3) for stage, seconds in report.stages.items()},
    }
    write_facts(asked.output, facts, lambda: _tell(report))


def _absolute(path: str) -> str:
    """A path that means the same in every process; URLs are unchanged."""
    return path if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path) else os.path.abspath(path)


@contextmanager
def _bar(asked: State) -> Iterator[Callable[["Stage"], None]]:
    """A bar for the stage of a load, on a terminal."""
    named = TextColumn("{task.description:<10}", markup=False)
    with progress(asked, named, BarColumn(20), TaskProgressColumn(), Rate(), TimeElapsedColumn()) as bar:
        task = bar.add_task("", total=None, rows=0, rate=0.0)

        def told(stage: "Stage") -> None:
            bar.update(
                task,
                description=stage.stage,
                completed=stage.done,
                total=1.0 if stage.done else None,  # not known yet
                rows=stage.rows,
                rate=stage.rate,
            )

        yield told


def _tell(report: "Report") -> None:
    def say(text: str) -> None:
        print_text(clean(text, ""))

    if report.duplicate:
        say(f"Nothing was added: {report.stream} has had this load before, {count(report.accepted, 'tuple')} of it.")
    else:
        rate = f", {report.rows / report.seconds:,.0f} a second" if report.seconds > 0 else ""
        say(
            f"{count(report.accepted, 'tuple')} into {report.stream} of {count(report.rows, 'row')}"
            f" in {report.seconds:.1f} s{rate}"
        )
        say(f"{count(report.cells, 'cell')} in {count(report.parts, 'part')}, {size(report.bytes)}")
    for reason, number in sorted(report.refused.items(), key=lambda part: (-part[1], part[0])):
        say(f"{count(number, 'row')} left out: {reason}")
    if report.quarantine is not None:
        say(f"What was refused is in {report.quarantine}")
    say(f"token {report.token}")
