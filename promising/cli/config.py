"""`config show` and `version`."""

from typing import Annotated

import typer

from promising.cli.common_options import flag, pairs
from promising.cli.context import Output, state
from promising.cli.serve import Config, Set
from promising.cli.text_output import write_facts

app = typer.Typer(name="config", help="Show the settings.", no_args_is_help=True)


@app.callback()
def config() -> None:
    """Show the settings."""


@app.command("show")
def show(
    ctx: typer.Context,
    config: Config = None,
    set_: Set = None,
    running: Annotated[
        bool, flag("--running", "Settings of the running service, instead of one started here.")
    ] = False,
) -> None:
    """Show each setting that `promising serve` would have here, and its source. Secrets are hidden."""
    import pyarrow as pa  # noqa: PLC0415  # Arrow: not for `--help`

    from promising.cli.formats import write_table  # noqa: PLC0415  # as above
    from promising.settings import Settings, shown, sources  # noqa: PLC0415  # as above, pydantic

    asked = state(ctx)
    if running:
        with asked.connect() as session:
            told = session.admin.config()
        columns = {"setting": list(told), "value": list(told.values())}
    else:
        overrides = pairs(set_, "--set")
        told = shown(Settings.load(config, overrides))
        origin = sources(config, overrides)
        columns = {"setting": list(told), "value": list(told.values()), "source": [origin[name] for name in told]}
    write_table(asked.output, pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}))


def version_text() -> str:
    """The version of this program."""
    from importlib.metadata import version  # noqa: PLC0415  # slow to load

    return version("promising-tuples")


def version(ctx: typer.Context) -> None:
    """Show the version of this program."""
    import platform  # noqa: PLC0415  # as above

    if state(ctx).output is Output.TABLE:
        typer.echo(f"promising {version_text()}")
        return
    facts = {"version": version_text(), "python": platform.python_version()}
    write_facts(state(ctx).output, facts, lambda: None)
