"""A SELECT that Spark answers, over the tuples that the service keeps on disk."""

from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from promising.cli.console import err, out
from promising.cli.context import State
from promising.cli.coverage_meter import percent
from promising.cli.formats import Writer, count, size
from promising.cli.spark_session import Cluster
from promising.errors import QueryError

if TYPE_CHECKING:
    from promising.loaders.scale_out import Figures


def scale(asked: State, cluster: Cluster, sql: str, share: float, shown: int | None) -> bool:
    """Write an answer to stdout, and what was read for it to stderr; whether it is less than the whole answer."""
    with asked.connect() as session:
        session.explain(sql)  # what is wrong with the statement is told before Spark starts
    if err().is_terminal:
        asked.say("Starting Spark ...")
    with cluster.session("promising query", QueryError) as spark:
        from promising.loaders.scale_out import scale_out  # noqa: PLC0415  # needs pyspark
        from promising.spark import connection  # noqa: PLC0415  # as above

        connect = connection(asked.target, token=asked.token, ca=asked.ca, certificate=asked.certificate, key=asked.key)
        bars = (TextColumn("reading"), BarColumn(20), TimeElapsedColumn())
        hidden = asked.quiet or not err().is_terminal
        with Progress(*bars, console=err(), transient=True, disable=hidden) as progress:
            progress.add_task("", total=None)
            answer, figures = scale_out(spark, connect, sql, share=share)
            table = answer.toArrow()
    writer = Writer(asked.output, table.schema, shown if out().is_terminal else None)
    writer.write(table)
    writer.finish()
    asked.say(_verdict(figures, table.num_rows))
    return figures.expected_share < 1


def _verdict(figures: "Figures", rows: int) -> str:
    """What an answer is worth, and what it took."""
    worth = "complete" if figures.expected_share == 1 else f"{percent(figures.expected_share)} of the output expected"
    read = f"{figures.groups_read:,} of {count(figures.groups_total, 'row group')}"
    warm = f", {count(figures.tuples_warm, 'tuple')} from memory" if figures.tuples_warm else ""
    sizes = f"{size(figures.bytes_planned)} of {size(figures.bytes_total)}"
    return f"{count(rows, 'row')}, {worth}; read {read}, {sizes}{warm}"
