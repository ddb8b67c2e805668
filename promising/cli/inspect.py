"""`estimate`, `regions`, `describe`, `story`: what summaries know, and why they are as they are."""

from pathlib import Path
from typing import Annotated

import typer

from promising.cli.common_options import when
from promising.cli.context import state

Summary = Annotated[str, typer.Argument(metavar="SUMMARY", help="The summary to ask.", show_default=False)]
Keys = Annotated[
    list[str], typer.Argument(metavar="KEY", help="Keys; after -- also negative numbers.", show_default=False)
]
From = Annotated[int | None, when("Only tuples from this time on, such as 2024-05-01T12:00.", "--from")]
To = Annotated[int | None, when("Only tuples before this time.", "--to")]


def estimate(ctx: typer.Context, summary: Summary, keys: Keys, from_: From = None, to: To = None) -> None:
    """Estimate how many tuples each key has, with bounds."""
    from promising.cli.inspect_view import show_estimates  # noqa: PLC0415  # Arrow: not for `--help`

    with state(ctx).connect() as session:
        show_estimates(state(ctx), session, summary, keys, (from_, to))


def regions(ctx: typer.Context, summary: Summary, keys: Keys, from_: From = None, to: To = None) -> None:
    """List the cells that may hold tuples of each key."""
    from promising.cli.inspect_view import show_regions  # noqa: PLC0415  # Arrow: not for `--help`

    with state(ctx).connect() as session:
        show_regions(state(ctx), session, summary, keys, (from_, to))


def describe(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A stream, a summary or a continuous query.", show_default=False)
    ],
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Of a summary: write the grid as a picture, too.")
    ] = None,
    buckets: Annotated[int, typer.Option(min=1, max=256, metavar="N", help="Rows of the grid, at most.")] = 16,
) -> None:
    """Describe a stream; of a summary, draw the value x time grid."""
    from promising.cli.inspect_view import show_described  # noqa: PLC0415  # Arrow: not for `--help`

    with state(ctx).connect() as session:
        show_described(state(ctx), session, name, png, buckets)


def story(
    ctx: typer.Context,
    region: Annotated[
        str,
        typer.Argument(metavar="REGION", help="SUMMARY/GRANULARITY/ZONE, such as items1/G1/17.", show_default=False),
    ],
) -> None:
    """Tell why a zone exists, and what it has absorbed."""
    summary, granularity, zone = _region(region)
    from promising.cli.inspect_view import show_story  # noqa: PLC0415  # Arrow: not for `--help`

    with state(ctx).connect() as session:
        show_story(state(ctx), session, summary, granularity, zone)


def _region(text: str) -> tuple[str, int, int]:
    """
    >>> _region("items1/G2/17"), _region("items1/1/-3")
    (('items1', 2, 17), ('items1', 1, -3))
    """
    try:
        summary, granularity, zone = text.rsplit("/", 2)
        found = summary, int(granularity.upper().removeprefix("G").removeprefix("_")), int(zone)
    except ValueError:
        found = "", 0, 0
    if not found[0] or found[1] < 1:
        raise typer.BadParameter(
            f"{text!r} is no region: write SUMMARY/GRANULARITY/ZONE, such as items1/G1/17; `promising regions` tells"
        )
    return found
