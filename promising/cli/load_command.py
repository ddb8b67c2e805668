"""Many files into a stream through Spark: a bar on stderr for its stages, and a report at the end."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from promising.cli.choices import Format, Unit
from promising.cli.console import clean, err, out
from promising.cli.context import State
from promising.cli.formats import count, size, write_facts
from promising.cli.spark_session import Cluster
from promising.errors import LoadError

if TYPE_CHECKING:
    from promising.loaders.bulk import Report
    from promising.loaders.spark_jobs import Progress as Stage

KINDS = {Format.CSV: "csv", Format.JSONL: "json", Format.PARQUET: "parquet"}


def bulk(
    asked: State,
    cluster: Cluster,
    stream: str,
    sources: list[str],
    *,
    mapping: dict[str, str],
    format: Format | None,
    staging: str,
    token: str | None,
    quarantine: str | None,
    unit: Unit | None,
    zone: str | None,
) -> None:
    """Load all rows of the sources, or none."""
    with asked.connect(patient=True) as session:
        session.load_plan(stream)  # that there is no service, or no such stream, is told before Spark starts
        if err().is_terminal:
            asked.say("Starting Spark ...")
        with cluster.session("promising load", LoadError) as spark, _bar(asked) as told:
            from promising.loaders.bulk import bulk_load  # noqa: PLC0415  # needs pyspark

            try:
                report = bulk_load(
                    spark,
                    session,
                    stream,
                    [_absolute(source) for source in sources],
                    mapping=mapping,
                    format=None if format is None else KINDS[format],
                    staging=_absolute(staging),
                    token=token,
                    quarantine=None if quarantine is None else _absolute(quarantine),
                    time_unit=None if unit is None else unit.value,
                    time_zone=zone,
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
    """A path that means the same wherever it is read; URLs do."""
    return path if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", path) else os.path.abspath(path)


class Rate(ProgressColumn):
    """Rows of a stage, and how many a second."""

    def render(self, task: Task) -> Text:
        rows, rate = task.fields["rows"], task.fields["rate"]
        return Text(f"{rows:,} rows, {rate:,.0f} rows/s" if rows else "", no_wrap=True)


@contextmanager
def _bar(asked: State) -> Iterator[Callable[["Stage"], None]]:
    """Shows the stage that a load is in, where somebody looks."""
    named = TextColumn("{task.description:<10}", markup=False)
    bars = (named, BarColumn(20), TaskProgressColumn(), Rate(), TimeElapsedColumn())
    hidden = asked.quiet or not err().is_terminal
    with Progress(*bars, console=err(), transient=True, disable=hidden) as progress:
        task = progress.add_task("", total=None, rows=0, rate=0.0)

        def told(stage: "Stage") -> None:
            progress.update(
                task,
                description=stage.stage,
                completed=stage.done,
                total=1.0 if stage.done else None,  # nobody knows yet
                rows=stage.rows,
                rate=stage.rate,
            )

        yield told


def _tell(report: "Report") -> None:
    def say(text: str) -> None:
        out().print(Text(clean(text, "")), soft_wrap=True)

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
