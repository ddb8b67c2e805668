"""`query` and `explain`: a SELECT, its answer as it comes, and its plan."""

from collections.abc import Mapping
from typing import Annotated

import typer

from promising.cli.choices import Engine
from promising.cli.common_options import flag, span
from promising.cli.context import SHOWN, State, state
from promising.cli.durations import seconds
from promising.cli.exit_codes import Code
from promising.cli.spark_session import Cluster, DriverMemory, Master, SparkConf

Sql = Annotated[str, typer.Argument(metavar="SQL", help="A SELECT, in quotes.", show_default=False)]
Budget = Annotated[float | None, span(seconds, "CPU time to spend, such as 100ms; the best rows come first.")]
Seed = Annotated[
    int | None, typer.Option(metavar="N", help="Of what is drawn at random: the same seed, the same rows.")
]


def query(
    ctx: typer.Context,
    sql: Annotated[
        str | None,
        typer.Argument(metavar="SQL", help="A SELECT, in quotes; left out with --resume.", show_default=False),
    ] = None,
    budget: Budget = None,
    seed: Seed = None,
    resume: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Go on with an answer that was cut; it told its token.")
    ] = None,
    shown: Annotated[
        int, typer.Option("--limit-shown", min=0, metavar="N", help="Rows that a table on a terminal shows; 0 for all.")
    ] = SHOWN,
    require_complete: Annotated[
        bool, flag("--require-complete", "End with exit code 5 if the answer was cut.")
    ] = False,
    engine: Annotated[
        Engine, typer.Option(help="What does the work: the service, or Spark over what it keeps on disk.")
    ] = Engine.SERVICE,
    share: Annotated[
        float | None,
        typer.Option(metavar="S", help="With Spark: the keys that make this share of the output, such as 0.8."),
    ] = None,
    master: Master = None,
    spark_conf: SparkConf = None,
    driver_memory: DriverMemory = None,
) -> None:
    """Ask a SELECT; watch its rows and its coverage grow.

    Ctrl-C ends it with the rows there are, and a token to go on from.
    """
    if (sql is None) == (resume is None):
        raise typer.BadParameter("give a SELECT, or --resume TOKEN")
    if resume is not None and seed is not None:
        raise typer.BadParameter("--seed is of a new question; an answer that goes on has its own")
    if engine is Engine.SPARK:
        its = {"--resume": resume, "--budget": budget, "--seed": seed}
        _only("the service", its, "Spark answers all of a SELECT, or a --share of it")
        assert sql is not None
        from promising.cli.scale_out import scale  # noqa: PLC0415  # Arrow: not for `--help`

        cluster = Cluster.of(master, spark_conf, driver_memory)
        cut = scale(state(ctx), cluster, sql, 1.0 if share is None else share, shown or None)
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
        progress = show_answer(asked, answer, shown or None)
    asked.say_token(progress.token)
    if progress.cut == "cancelled":
        raise typer.Exit(Code.INTERRUPTED)
    _end(asked, require_complete and not progress.complete)


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
    analyze: Annotated[bool, flag("--analyze", "Run it, too, and tell what came of it.")] = False,
    budget: Budget = None,
    seed: Seed = None,
) -> None:
    """Show the plan of a SELECT, and where the promise lies."""
    from promising.cli.statement_result import show_result  # noqa: PLC0415  # Arrow: not for `--help`

    asked = state(ctx)
    with asked.connect() as session:
        show_result(asked, session.explain(sql, analyze=analyze, budget=budget, seed=seed))
