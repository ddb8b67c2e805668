"""`estimate`, `regions`, `describe`, `story`: the contents of summaries."""

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from promising.cli.common_options import when
from promising.cli.console import clean, out
from promising.cli.context import Output, State, state
from promising.cli.durations import short
from promising.cli.streams import name_sql, rows_of, table_of
from promising.cli.text_output import count, print_columns, print_damages, print_text, size, write_facts
from promising.errors import BadQuestion, NoSuchName, PromisingError, UnknownName, Unsupported

if TYPE_CHECKING:
    import pyarrow as pa

    from promising.client.session import RemoteSession
    from promising.index.regions import Description, Regions

Summary = Annotated[str, typer.Argument(metavar="SUMMARY", help="Name of the summary.", show_default=False)]
Keys = Annotated[
    list[str], typer.Argument(metavar="KEY", help="Keys; after -- also negative numbers.", show_default=False)
]
From = Annotated[int | None, when("Only tuples from this time on, such as 2024-05-01T12:00.", "--from")]
To = Annotated[int | None, when("Only tuples before this time.", "--to")]
Show = Annotated[
    str | None,
    typer.Option(metavar="FIGURE", help="A figure of what is measured, such as 'avg(price)', instead of tuples."),
]
GRID = 160  # columns of the grid without a terminal


def estimate(ctx: typer.Context, summary: Summary, keys: Keys, from_: From = None, to: To = None) -> None:
    """Estimate how many tuples each key has, with bounds."""
    import pyarrow as pa  # noqa: PLC0415  # slow to load: not for `--help`

    from promising.cli.formats import write_table  # noqa: PLC0415  # as above

    with state(ctx).connect() as session:
        typed = _keys(session, summary, keys)
        told = session.estimate(summary, typed, _window(from_, to))
    columns = {"key": typed, "estimate": told.value, "lower": told.lower, "upper": told.upper}
    write_table(state(ctx).output, pa.table(columns))


def regions(
    ctx: typer.Context, summary: Summary, keys: Keys, from_: From = None, to: To = None, show: Show = None
) -> None:
    """List the cells that may hold tuples of each key."""
    import pyarrow as pa  # noqa: PLC0415  # as above

    from promising.cli.formats import write_table  # noqa: PLC0415  # as above

    asked = state(ctx)
    with asked.connect() as session:
        typed = _keys(session, summary, keys)
        told = session.regions(summary, typed, _window(from_, to))
        described = session.describe(summary, show=show) if show else None
    places = zip(told.granularity.tolist(), told.zone.tolist(), strict=True)
    kind = pa.int64() if typed and isinstance(typed[0], int) else pa.string()
    time = pa.timestamp("us")
    table = pa.table(
        {
            "key": pa.array([typed[at] for at in told.key.tolist()], kind),
            "region": pa.array([f"{summary}/G{g}/{zone}" for g, zone in places], pa.string()),
            "bucket": pa.array(told.bucket),
            "estimate": pa.array(told.estimate),
            "lower": pa.array(told.lower),
            "upper": pa.array(told.upper),
            "tuples": pa.array(told.tuples),
            "start": pa.array(told.start).cast(time),
            "end": pa.array(told.end).cast(time),
        }
    )
    if described is not None:
        table = table.append_column(described.show, pa.array(_shown(described, told), pa.float64()))
    if asked.output is Output.TABLE:
        _print_regions(table, described.show if described else None)
    else:
        write_table(asked.output, table)
    asked.say(
        f"{count(len(told), 'region')}, of {count(told.considered, 'pair')} of key and zone;"
        f" the window ruled out {told.by_window:,}, the filters {told.by_filter:,}"
    )


def describe(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A stream, a summary or a continuous query.", show_default=False)
    ],
    png: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For a summary: also write the grid as a picture.")
    ] = None,
    buckets: Annotated[int, typer.Option(min=1, max=256, metavar="N", help="Maximum rows of the grid.")] = 16,
    show: Show = None,
) -> None:
    """Describe a stream or continuous query; draw the value x time grid of a summary."""
    with state(ctx).connect() as session:
        _describe(state(ctx), session, name, png, buckets, show)


def story(
    ctx: typer.Context,
    region: Annotated[
        str,
        typer.Argument(metavar="REGION", help="SUMMARY/GRANULARITY/ZONE, such as items1/G1/17.", show_default=False),
    ],
) -> None:
    """Show why a zone exists, and what it has absorbed."""
    summary, granularity, zone = _region(region)
    from promising.index.time_text import instant  # noqa: PLC0415  # as above, numpy

    with state(ctx).connect() as session:
        try:
            told = session.story(summary, granularity, zone)
        except UnknownName as problem:
            raise UnknownName(f'{problem}. Those that are there: promising sql "DESCRIBE {summary}"') from None
    facts = {
        "summary": summary,
        **asdict(told.zone),
        "start": instant(told.zone.start),
        "end": instant(told.zone.end),
        "lines": list(told.lines),
        "absorbed": [asdict(part) for part in told.absorbed],
        "measures": list(told.measures),
    }
    lines = [*told.lines, *(f"It measures {line}." for line in told.measures)]
    write_facts(state(ctx).output, facts, lambda: print_text("\n".join(map(clean, lines))))


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
            f"{text!r} is not a region: write SUMMARY/GRANULARITY/ZONE, such as items1/G1/17;"
            " `promising regions` lists them"
        )
    return found


def _named(session: "RemoteSession", kind: str, name: str) -> dict[str, Any] | None:
    return next((row for row in rows_of(session, f"SHOW {kind}") if row["name"].lower() == name.lower()), None)


def _keys(session: "RemoteSession", summary: str, given: list[str]) -> list[int] | list[str]:
    """Keys converted to the type of the summary's key."""
    row = _named(session, "SUMMARIES", summary)
    if row is None:
        return given  # the request itself raises the error
    types = {c["column"]: c["type"] for c in rows_of(session, f"DESCRIBE {name_sql(row['stream'])}")}
    if types[row["key"]] != "int":
        return given
    try:
        return [int(key) for key in given]
    except ValueError:
        bad = next(key for key in given if not key.strip().lstrip("+-").isdecimal())
        raise BadQuestion(f"{clean(bad, '')!r} is no key of {summary}: {row['key']} is a column of integers") from None


def _window(start: int | None, end: int | None) -> tuple[int, int] | None:
    from promising.index.regions import EVER  # noqa: PLC0415  # as above

    if start is None and end is None:
        return None
    return EVER[0] if start is None else start, EVER[1] if end is None else end


def _shown(described: "Description", found: "Regions") -> list[float | None]:
    """The figure of each region; none where it has none, or has become another since."""
    assert described.shown is not None
    at = {(zone.granularity, zone.zone): i for i, zone in enumerate(described.zones)}
    out: list[float | None] = []
    for granularity, zone, bucket in zip(
        found.granularity.tolist(), found.zone.tolist(), found.bucket.tolist(), strict=True
    ):
        place = at.get((granularity, zone))
        cells = [] if place is None else described.shown[place].tolist()
        value = cells[bucket if bucket < len(cells) else 0] if cells else None
        out.append(None if value is None or math.isnan(value) else value)
    return out


def _print_regions(table: "pa.Table", show: str | None) -> None:
    """Print regions in at most 90 columns, and the figure that is shown."""
    import pyarrow as pa  # noqa: PLC0415  # as above

    from promising.cli.formats import right, time_text  # noqa: PLC0415  # as above

    starts, ends = (table[name].cast(pa.int64()).to_pylist() for name in ("start", "end"))
    rows = table.drop_columns(["start", "end"]).to_pylist()
    columns = [
        ["key", *(clean(str(row["key"]), "") for row in rows)],
        ["region", *(clean(row["region"], "") for row in rows)],
        ["bucket", *(str(row["bucket"]) for row in rows)],
        ["estimate", *(f"{row['estimate']:.10g}" for row in rows)],
        ["bounds", *(f"{row['lower']:.10g} to {row['upper']:.10g}" for row in rows)],
        ["tuples", *(str(row["tuples"]) for row in rows)],
        ["from", *(time_text(start // 1_000_000 * 1_000_000) for start in starts)],
        ["for", *(short(end - start) for start, end in zip(starts, ends, strict=True))],
    ]
    rights = [right(table.schema.field("key").type), False, True, True, True, True, False, True]
    if show is not None:
        columns.append([clean(show, ""), *("" if row[show] is None else f"{row[show]:.10g}" for row in rows)])
        rights.append(True)
    print_columns(columns, rights)


# --- describe ----------------------------------------------------------------------------------------------------


def _describe(
    asked: State, session: "RemoteSession", name: str, png: Path | None, buckets: int, show: str | None
) -> None:
    """Describe the stream, summary or continuous query of that name."""
    if _named(session, "SUMMARIES", name) is not None:
        _show_summary(asked, session, name, png, buckets, show)
        return
    if png is not None or show is not None:
        raise BadQuestion(f"only a summary has a grid to draw; {name} is not one")
    stream = _named(session, "STREAMS", name)
    if stream is not None:
        _show_stream(asked, session, stream)
        return
    from promising.cli.formats import write_table  # noqa: PLC0415  # as above

    try:
        write_table(asked.output, table_of(session, f"DESCRIBE {name_sql(name)}"))
    except NoSuchName as problem:
        raise NoSuchName(problem.problem) from None  # the user did not write the statement


def _show_stream(asked: State, session: "RemoteSession", stream: dict[str, Any]) -> None:
    from promising.cli.formats import print_table, write_table  # noqa: PLC0415  # as above

    table = table_of(session, f"DESCRIBE {name_sql(stream['name'])}")
    if asked.output in (Output.CSV, Output.ARROW):
        write_table(asked.output, table)
        return
    damages = session.admin.stats().damages.get(stream["name"], [])

    def show() -> None:
        seen = stream["watermark"]
        said = f"watermark {seen} UTC" if seen is not None else "no tuple has come yet"
        lines = [
            f"stream {clean(stream['name'], '')}: {count(stream['tuples'], 'tuple')}, {size(stream['bytes'])}; {said}",
            f"{count(stream['refused'], 'tuple')} refused so far; {count(stream['summaries'], 'summary', 'summaries')}",
        ]
        print_text("\n".join(lines))
        print_damages(damages)
        print_table(table)

    write_facts(asked.output, {**stream, "columns": table.to_pylist(), "damages": damages}, show)


def _show_summary(
    asked: State, session: "RemoteSession", name: str, png: Path | None, buckets: int, show: str | None
) -> None:
    from promising.cli.formats import write_table  # noqa: PLC0415  # as above

    told = session.describe(name, cells=True, show=show)
    if png is not None:
        _draw(told, png)
        asked.say(f"The grid is in {png}.")
    if asked.output in (Output.CSV, Output.ARROW):
        write_table(asked.output, table_of(session, f"DESCRIBE {name_sql(name)}"))
    elif asked.output is Output.JSON:
        write_facts(asked.output, _summary_facts(told), lambda: None)
    else:
        _print_summary(told, buckets)


def _print_summary(told: "Description", buckets: int) -> None:
    from promising.grid.text import grid_text  # noqa: PLC0415  # as above, numpy
    from promising.index.time_text import readable  # noqa: PLC0415  # as above

    console = out()
    told = replace(told, name=clean(told.name, ""), key=clean(told.key, ""))
    if not told.tuples:
        print_text(f"{told.name} on {told.key}: no tuples yet")
        return
    try:
        grid = grid_text(told, console.width if console.is_terminal else GRID, buckets, colour=console.is_terminal)
    except BadQuestion as problem:
        print_text(str(problem))
        return
    console.print(grid)
    spans = ", ".join(f"G{g} {readable(span)}" for g, span in enumerate(told.spans, 1))
    using = f" using {clean(told.using, '')}" if told.using else ""
    cuts = ", ".join(f"{number:,} {reason}" for reason, number in sorted(told.cuts.items(), key=lambda c: -c[1]))
    lines = [
        "",
        f"structure {clean(told.structure_text, '')}{using}, {size(told.bytes)}; at most {size(told.sketch_bytes)} of"
        f" sketches, {told.tuple_bytes} bytes a tuple and {told.key_bytes} a key; spans {spans}",
        *([] if told.postings else ["postings off: tuples of a key are found by cells and filters"]),
        f"cuts so far: {cuts or 'none'}" + (f"; {told.cutting}" if told.cutting else ""),
        f"measures: {clean(', '.join(told.measures), '') or 'none'}" + (f"; {told.building}" if told.building else ""),
    ]
    newest = max((z for z in told.zones if z.granularity == told.zones[0].granularity), key=lambda z: z.end)
    region = f"{told.name}/G{newest.granularity}/{newest.zone}"
    lines.append(f'all zones: promising sql "DESCRIBE {told.name}"    why one exists: promising story {region}')
    print_text("\n".join(lines))


def _summary_facts(told: "Description") -> dict[str, Any]:
    import numpy as np  # noqa: PLC0415  # as above

    from promising.index.time_text import instant  # noqa: PLC0415  # as above

    facts = {name: value for name, value in vars(told).items() if name not in ("zones", "cells", "shown")}
    facts["watermark"] = None if told.watermark is None else instant(told.watermark)
    facts["horizons"] = [instant(time) for time in told.horizons]
    facts["spans"] = [span / 1_000_000 for span in told.spans]
    facts["zones"] = [{**asdict(z), "start": instant(z.start), "end": instant(z.end)} for z in told.zones]
    assert told.cells is not None
    for zone, cells in zip(facts["zones"], told.cells.tolist(), strict=True):
        zone["cells"] = cells
    if told.shown is not None:
        for zone, shown in zip(facts["zones"], told.shown, strict=True):
            zone["shown"] = [value if np.isfinite(value) else None for value in shown.tolist()]
    return facts


def _draw(told: "Description", png: Path) -> None:
    try:
        from promising.grid import picture  # noqa: PLC0415  # matplotlib: slow to load, and optional
    except ImportError:
        raise Unsupported("pictures need matplotlib: pip install 'promising-tuples[demo]'") from None
    title = f"Summary {told.name} on {told.key}"
    try:
        picture.save(picture.draw(told, title), png)
    except OSError as problem:
        raise PromisingError(f"{png}: {problem.strerror}") from None
