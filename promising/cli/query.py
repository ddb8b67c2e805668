"""`query` and `explain`: answers and plans of a SELECT."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn

from promising.cli.choices import Engine
from promising.cli.common_options import flag, span
from promising.cli.console import err, out
from promising.cli.context import SHOWN, State, state
from promising.cli.coverage_meter import percent
from promising.cli.durations import seconds
from promising.cli.exit_codes import Code
from promising.cli.progress_bars import progress
from promising.cli.spark_session import Cluster, DriverMemory, Master, SparkConf
from promising.cli.text_output import count, size
from promising.errors import QueryError

if TYPE_CHECKING:
    from promising.loaders.scale_out import Figures

Sql = Annotated[str, typer.Argument(metavar="SQL", help="A SELECT, in quotes.", show_default=False)]
Budget = Annotated[float | None, span(seconds, "CPU time to spend, such as 100ms; the best rows come first.")]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Random seed: the same seed gives the same rows.")]


def query(
    ctx: typer.Context,
    sql: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="A SELECT, in quotes; omitted with --resume.", show_default=False),
    ] = None,
    budget: Budget = None,
    seed: Seed = None,
    resume: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Resume a cut answer; the token was printed with it.")
    ] = None,
    shown: Annotated[
        int, typer.Option("--limit-shown", min=0, metavar="N", help="Rows shown in a table on a terminal; 0 for all.")
    ] = SHOWN,
    require_complete: Annotated[bool, flag("--require-complete", "Exit with code 5 if the answer was cut.")] = False,
    engine: Annotated[
        Engine, typer.Option(help="Query engine: the service, or Spark over its data on disk.")
    ] = Engine.SERVICE,
    share: Annotated[
        float | None,
        typer.Option(metavar="S", help="With Spark: only the keys that give this share of the output, such as 0.8."),
    ] = None,
    master: Master = None,
    spark_conf: SparkConf = None,
    driver_memory: DriverMemory = None,
) -> None:
    """Run a SELECT; watch its rows and coverage grow.

    Ctrl-C ends it with the rows so far, and a token to resume from.
    """
    if (sql is None) == (resume is None):
        raise typer.BadParameter("give a SELECT, or --resume TOKEN")
    if resume is not None and seed is not None:
        raise typer.BadParameter("--seed is of a new question; an answer that goes on has its own")
    if engine is Engine.SPARK:
        its = {"--resume": resume, "--budget": budget, "--seed": seed}
        _only("the service", its, "Spark answers all of a SELECT, or a --share of it")
        assert sql is not None
        cluster = Cluster.of(master, spark_conf, driver_memory)
        cut = _scale_out(state(ctx), cluster, sql, 1.0 if share is None else share, shown or None)
        _end(state(ctx), require_complete and cut)
        return
    of_spark = {"--share": share, "--master": master, "--spark-conf": spark_conf, "--driver-memory": driver_memory}
    _only("Spark", of_spark, "add --engine spark")
    from promising.cli.answer_output import show_answer  # noqa: PLC0415  # Arrow: not for `--help`

    asked = state(ctx)
    with asked.connect() as session:
        if resume is not None:
            answer = session.resume(resume, budget=budget)
        else:
            assert sql is not None
            answer = session.query(sql, budget=budget, seed=seed)
        ended = show_answer(asked, answer, shown or None)
    asked.say_token(ended.token)
    if ended.cut == "cancelled":
        raise typer.Exit(Code.INTERRUPTED)
    _end(asked, require_complete and not ended.complete)


def _only(whose: str, given: Mapping[str, object], instead: str) -> None:
    """Refuse options of the other engine."""
    for name, value in given.items():
        if value is not None:
            raise typer.BadParameter(f"{name} is an option of {whose}; {instead}")


def _end(asked: State, cut: bool) -> None:
    if cut:
        asked.say("error: the answer was cut, and --require-complete was asked for")
        raise typer.Exit(Code.CUT)


def explain(
    ctx: typer.Context,
    sql: Sql,
    analyze: Annotated[bool, flag("--analyze", "Run it, too, and show the result.")] = False,
    budget: Budget = None,
    seed: Seed = None,
) -> None:
    """Show the plan of a SELECT, and its most promising regions."""
    from promising.cli.statement_result import show_result  # noqa: PLC0415  # Arrow: not for `--help`

    asked = state(ctx)
    with asked.connect() as session:
        show_result(asked, session.explain(sql, analyze=analyze, budget=budget, seed=seed))


def _scale_out(asked: State, cluster: Cluster, sql: str, share: float, shown: int | None) -> bool:
    """Answer with Spark over the service's tuples on disk: rows to stdout, figures to stderr; whether it is partial."""
    from promising.cli.formats import Writer  # noqa: PLC0415  # Arrow: not for `--help`

    with asked.connect() as session:
        session.explain(sql)  # errors in the statement are reported before Spark starts
    if err().is_terminal:
        asked.say("Starting Spark ...")
    with cluster.session("promising query", QueryError) as spark:
        from promising.loaders.scale_out import scale_out  # noqa: PLC0415  # needs pyspark
        from promising.spark import connection  # noqa: PLC0415  # as above

        connect = connection(asked.target, token=asked.token, ca=asked.ca, certificate=asked.certificate, key=asked.key)
        with progress(asked, TextColumn("reading"), BarColumn(20), TimeElapsedColumn()) as bar:
            bar.add_task("", total=None)
            answer, figures = scale_out(spark, connect, sql, share=share)
            table = answer.toArrow()
    writer = Writer(asked.output, table.schema, shown if out().is_terminal else None)
    writer.write(table)
    writer.finish()
    asked.say(_verdict(figures, table.num_rows))
    return figures.expected_share < 1


def _verdict(figures: "Figures", rows: int) -> str:
    """What the answer covers, and what it cost."""
    worth = "complete" if figures.expected_share == 1 else f"{percent(figures.expected_share)} of the output expected"
    read = f"{figures.groups_read:,} of {count(figures.groups_total, 'row group')}"
    warm = f", {count(figures.tuples_warm, 'tuple')} from memory" if figures.tuples_warm else ""
    sizes = f"{size(figures.bytes_planned)} of {size(figures.bytes_total)}"
    return f"{count(rows, 'row')}, {worth}; read {read}, {sizes}{warm}"
