"""What summaries know, on stdout."""

from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.text import Text

from promising.cli.console import clean, out
from promising.cli.context import Output, State
from promising.cli.durations import short
from promising.cli.formats import (
    count,
    print_columns,
    print_damages,
    print_table,
    right,
    size,
    write_facts,
    write_table,
)
from promising.cli.streams import name_sql
from promising.errors import BadQuestion, NoSuchName, PromisingError, UnknownName, Unsupported
from promising.grid.text import grid_text
from promising.index.regions import EVER, Description
from promising.index.time_text import instant, readable

if TYPE_CHECKING:
    from promising.client.session import RemoteSession

Edges = tuple[int | None, int | None]
GRID = 160  # columns of the grid where there is no terminal


def rows_of(session: "RemoteSession", sql: str) -> list[dict[str, Any]]:
    """The rows of a SHOW or a DESCRIBE."""
    table = session.execute(sql)
    assert isinstance(table, pa.Table)
    return list(table.to_pylist())


def _named(session: "RemoteSession", kind: str, name: str) -> dict[str, Any] | None:
    return next((row for row in rows_of(session, f"SHOW {kind}") if row["name"].lower() == name.lower()), None)


def _keys(session: "RemoteSession", summary: str, given: list[str]) -> list[int] | list[str]:
    """Keys of the type that the summary has."""
    row = _named(session, "SUMMARIES", summary)
    if row is None:
        return given  # the question itself gives the error
    types = {c["column"]: c["type"] for c in rows_of(session, f"DESCRIBE {name_sql(row['stream'])}")}
    if types[row["key"]] != "int":
        return given
    try:
        return [int(key) for key in given]
    except ValueError:
        bad = next(key for key in given if not key.strip().lstrip("+-").isdecimal())
        raise BadQuestion(f"{clean(bad, '')!r} is no key of {summary}: {row['key']} is a column of integers") from None


def _window(edges: Edges) -> tuple[int, int] | None:
    if edges == (None, None):
        return None
    start, end = edges
    return EVER[0] if start is None else start, EVER[1] if end is None else end


def show_estimates(asked: State, session: "RemoteSession", summary: str, given: list[str], edges: Edges) -> None:
    """How many tuples each key has."""
    keys = _keys(session, summary, given)
    told = session.estimate(summary, keys, _window(edges))
    columns = {"key": keys, "estimate": told.value, "lower": told.lower, "upper": told.upper}
    write_table(asked.output, pa.table(columns))


def show_regions(asked: State, session: "RemoteSession", summary: str, given: list[str], edges: Edges) -> None:
    """The cells of each key, each with the name that `story` takes."""
    keys = _keys(session, summary, given)
    told = session.regions(summary, keys, _window(edges))
    places = zip(told.granularity.tolist(), told.zone.tolist(), strict=True)
    kind = pa.int64() if keys and isinstance(keys[0], int) else pa.string()
    time = pa.timestamp("us")
    table = pa.table(
        {
            "key": pa.array([keys[at] for at in told.key.tolist()], kind),
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
    if asked.output is Output.TABLE:
        _print_regions(table)
    else:
        write_table(asked.output, table)
    asked.say(
        f"{count(len(told), 'region')}, of {count(told.considered, 'pair')} of key and zone;"
        f" the window ruled out {told.by_window:,}, the filters {told.by_filter:,}"
    )


def _print_regions(table: pa.Table) -> None:
    """Regions, narrow enough for a terminal of 90 columns."""
    rows = table.to_pylist()
    columns = [
        ["key", *(clean(str(row["key"]), "") for row in rows)],
        ["region", *(clean(row["region"], "") for row in rows)],
        ["bucket", *(str(row["bucket"]) for row in rows)],
        ["estimate", *(f"{row['estimate']:.10g}" for row in rows)],
        ["bounds", *(f"{row['lower']:.10g} to {row['upper']:.10g}" for row in rows)],
        ["tuples", *(str(row["tuples"]) for row in rows)],
        ["from", *(str(row["start"])[:19] for row in rows)],
        ["for", *(short((row["end"] - row["start"]) // timedelta(microseconds=1)) for row in rows)],
    ]
    print_columns(columns, [right(table.schema.field("key").type), False, True, True, True, True, False, True])


# --- describe ----------------------------------------------------------------------------------------------------


def show_described(asked: State, session: "RemoteSession", name: str, png: Path | None, buckets: int) -> None:
    """A stream, a summary or a continuous query, whichever has the name."""
    if _named(session, "SUMMARIES", name) is not None:
        _show_summary(asked, session, name, png, buckets)
        return
    if png is not None:
        raise BadQuestion(f"only a summary has a grid to draw; {name} is none")
    stream = _named(session, "STREAMS", name)
    if stream is not None:
        _show_stream(asked, session, stream)
        return
    try:
        table = session.execute(f"DESCRIBE {name_sql(name)}")
    except NoSuchName as problem:
        raise NoSuchName(problem.problem) from None  # the statement is not the user's
    assert isinstance(table, pa.Table)
    write_table(asked.output, table)


def _show_stream(asked: State, session: "RemoteSession", stream: dict[str, Any]) -> None:
    table = session.execute(f"DESCRIBE {name_sql(stream['name'])}")
    assert isinstance(table, pa.Table)
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
        out().print(Text("\n".join(lines)), soft_wrap=True)
        print_damages(damages)
        print_table(table)

    write_facts(asked.output, {**stream, "columns": table.to_pylist(), "damages": damages}, show)


def _show_summary(asked: State, session: "RemoteSession", name: str, png: Path | None, buckets: int) -> None:
    told = session.describe(name, cells=True)
    if png is not None:
        _draw(told, png)
        asked.say(f"The grid is in {png}.")
    if asked.output in (Output.CSV, Output.ARROW):
        table = session.execute(f"DESCRIBE {name_sql(name)}")
        assert isinstance(table, pa.Table)
        write_table(asked.output, table)
    elif asked.output is Output.JSON:
        write_facts(asked.output, _summary_facts(told), lambda: None)
    else:
        _print_summary(told, buckets)


def _print_summary(told: Description, buckets: int) -> None:
    console = out()
    told = replace(told, name=clean(told.name, ""), key=clean(told.key, ""))
    if not told.tuples:
        console.print(Text(f"{told.name} on {told.key}: no tuples yet"), soft_wrap=True)
        return
    try:
        grid = grid_text(told, console.width if console.is_terminal else GRID, buckets, colour=console.is_terminal)
    except BadQuestion as problem:
        console.print(Text(str(problem)), soft_wrap=True)
        return
    console.print(grid)
    spans = ", ".join(f"G{g} {readable(span)}" for g, span in enumerate(told.spans, 1))
    cuts = ", ".join(f"{number:,} {reason}" for reason, number in sorted(told.cuts.items(), key=lambda c: -c[1]))
    lines = [
        "",
        f"structure {clean(told.told, '')}, {size(told.bytes)} of at most {size(told.ceiling)}; spans {spans}",
        f"cuts so far: {cuts or 'none'}",
    ]
    newest = max((z for z in told.zones if z.granularity == told.zones[0].granularity), key=lambda z: z.end)
    region = f"{told.name}/G{newest.granularity}/{newest.zone}"
    lines.append(f'all zones: promising sql "DESCRIBE {told.name}"    why one exists: promising story {region}')
    console.print(Text("\n".join(lines)), soft_wrap=True)


def _summary_facts(told: Description) -> dict[str, Any]:
    facts = {name: value for name, value in vars(told).items() if name not in ("zones", "cells")}
    for name in ("watermark",):
        facts[name] = None if facts[name] is None else instant(facts[name])
    facts["horizons"] = [instant(time) for time in told.horizons]
    facts["spans"] = [span / 1_000_000 for span in told.spans]
    facts["zones"] = [{**asdict(z), "start": instant(z.start), "end": instant(z.end)} for z in told.zones]
    assert told.cells is not None
    for zone, cells in zip(facts["zones"], told.cells.tolist(), strict=True):
        zone["cells"] = cells
    return facts


def _draw(told: Description, png: Path) -> None:
    try:
        from promising.grid import picture  # noqa: PLC0415  # matplotlib: slow to load, and may not be there
    except ImportError:
        raise Unsupported("pictures need matplotlib: pip install 'promising-tuples[demo]'") from None
    title = f"Summary {told.name} on {told.key}"
    try:
        picture.save(picture.draw(told, title), png)
    except OSError as problem:
        raise PromisingError(f"{png}: {problem.strerror}") from None


# --- story -------------------------------------------------------------------------------------------------------


def show_story(asked: State, session: "RemoteSession", summary: str, granularity: int, zone: int) -> None:
    """The life of one zone."""
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
    }

    def show() -> None:
        out().print(Text("\n".join(clean(line) for line in told.lines)), soft_wrap=True)

    write_facts(asked.output, facts, show)
