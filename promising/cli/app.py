"""The commands, in the order and the groups in which `promising --help` lists them."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from promising.cli import (
    bench,
    config,
    ingest,
    inspect,
    load,
    load_table,
    query,
    serve,
    sql,
    status,
    storage,
    streams,
    subscribe,
    token,
    warmup,
)
from promising.cli.common_options import reads
from promising.cli.context import TARGET, Output, State, read_token
from promising.cli.durations import seconds
from promising.cli.root_command import Root

SERVICE, DATA, QUESTIONS, INSIDE, STORAGE = "Service", "Data", "Questions", "Look inside", "Storage"
EXAMPLE = """[bold]Getting started[/bold], with the service in a second terminal:

    promising serve --data shop

    promising ingest sales.csv --stream sales --create --time sold_at

    promising query "SELECT item, count(*) AS n FROM sales GROUP BY item"

Options of all commands may also follow the command. \
Exit codes: 0 success, 1 refused, 2 usage, 3 unavailable, 4 access denied, 5 cut, 70 internal error, 130 Ctrl-C."""

app = typer.Typer(
    name="promising",
    cls=Root,
    help="Streams with a summary index that locates the promising tuples.",
    epilog=EXAMPLE,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"promising {config.version_text()}")
        raise typer.Exit


ALL = "Options of all commands"
REPEATED = ("target", "token_file", "ca", "certificate", "key", "output")  # no token: it would stay on the screen


def common(said: str, *names: str, **more: Any) -> Any:
    """An option of all commands."""
    return typer.Option(*names, help=said, rich_help_panel=ALL, show_default=False, show_envvar=False, **more)


def _repeated(ctx: typer.Context) -> str:
    """Command-line options to repeat in a follow-up command; it reads the environment itself."""
    said = ""
    for name in REPEATED:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            said += f"--{name.replace('_', '-')} {shlex.quote(str(ctx.params[name]))} "
    return said


@app.callback()
def root(
    ctx: typer.Context,
    target: Annotated[
        str,
        common(f"The service. PROMISING_TARGET; default {TARGET}.", envvar="PROMISING_TARGET", metavar="HOST:PORT"),
    ] = TARGET,
    token: Annotated[
        str | None,
        common("Access token. PROMISING_TOKEN; other users can see arguments.", metavar="TOKEN"),
    ] = None,
    token_file: Annotated[Path | None, common("File that contains the token.", metavar="FILE")] = None,
    ca: Annotated[
        Path | None, common("TLS: trusted CA (PEM). PROMISING_CA.", envvar="PROMISING_CA", metavar="FILE")
    ] = None,
    certificate: Annotated[Path | None, common("TLS: client certificate (PEM).", metavar="FILE")] = None,
    key: Annotated[Path | None, common("TLS: key of the client certificate (PEM).", metavar="FILE")] = None,
    timeout: Annotated[
        float | None, common("Time limit of a call, such as 30s.", metavar="SPAN", parser=reads(seconds))
    ] = None,
    wait: Annotated[
        float | None,
        common("Wait so long for a starting service, such as 30s.", metavar="SPAN", parser=reads(seconds)),
    ] = None,
    output: Annotated[
        Output, common("table, json (one object per line), csv or arrow.", "--output", "-o", metavar="FORMAT")
    ] = Output.TABLE,
    quiet: Annotated[bool, common("No progress and no remarks on stderr.", "--quiet", "-q", metavar="")] = False,
    version: Annotated[
        bool, common("Show the version and exit.", "--version", is_eager=True, callback=_version, metavar="")
    ] = False,
) -> None:
    if output is Output.ARROW and sys.stdout.isatty():
        raise typer.BadParameter(
            "--output arrow writes bytes: send them to a file or a program, as in ... > answer.arrow"
        )
    ctx.obj = State(
        target, read_token(token, token_file), ca, certificate, key, timeout, output, quiet, wait or 0.0, _repeated(ctx)
    )


app.command("serve", rich_help_panel=SERVICE)(serve.serve)
app.command("warmup", rich_help_panel=SERVICE)(warmup.warmup)
app.command("status", rich_help_panel=SERVICE)(status.status)
app.command("top", rich_help_panel=SERVICE)(status.top)
app.add_typer(token.app, rich_help_panel=SERVICE)
app.add_typer(config.app, rich_help_panel=SERVICE)
app.command("version", rich_help_panel=SERVICE)(config.version)
app.command("create-stream", rich_help_panel=DATA)(streams.create_stream)
app.command("create-summary", rich_help_panel=DATA)(streams.create_summary)
app.command("ingest", rich_help_panel=DATA)(ingest.ingest)
app.command("load", rich_help_panel=DATA)(load.load)
app.command("load-table", rich_help_panel=DATA)(load_table.load_table)
app.command("sql", rich_help_panel=QUESTIONS)(sql.sql)
app.command("query", rich_help_panel=QUESTIONS)(query.query)
app.command("subscribe", rich_help_panel=QUESTIONS)(subscribe.subscribe)
app.command("explain", rich_help_panel=QUESTIONS)(query.explain)
app.command("estimate", rich_help_panel=QUESTIONS)(inspect.estimate)
app.command("regions", rich_help_panel=QUESTIONS)(inspect.regions)
app.command("describe", rich_help_panel=INSIDE)(inspect.describe)
app.command("story", rich_help_panel=INSIDE)(inspect.story)
app.command("bench", rich_help_panel=INSIDE)(bench.bench)
app.command("backup", rich_help_panel=STORAGE)(storage.backup)
app.command("restore", rich_help_panel=STORAGE)(storage.restore)
app.command("verify", rich_help_panel=STORAGE)(storage.verify)
app.command("repair", rich_help_panel=STORAGE)(storage.repair)
