"""`status` and `top`: how a service fares."""

from typing import Annotated

import typer

from promising.cli.common_options import flag, span
from promising.cli.context import state
from promising.cli.durations import seconds


def status(ctx: typer.Context) -> None:
    """Tell how the service is: uptime, memory, streams, summaries."""
    from promising.cli.status_view import show_status  # noqa: PLC0415  # Arrow: not for `--help`

    with state(ctx).connect() as session:
        show_status(state(ctx), session)


def top(
    ctx: typer.Context,
    once: Annotated[bool, flag("--once", "Print one sample, and end.")] = False,
    every: Annotated[float | None, span(seconds, "Time between two samples. Default: 1s.")] = None,
) -> None:
    """Watch rates and queries live; q or Ctrl-C ends it.

    Without a terminal it prints one sample, as with --once. Which queries run is told to those with the role admin.
    """
    from promising.cli.status_view import show_top  # noqa: PLC0415  # Arrow: not for `--help`

    with state(ctx).connect() as session:
        show_top(state(ctx), session, once, 1.0 if every is None else max(every, 0.05))
