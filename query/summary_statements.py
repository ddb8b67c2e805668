"""Statements about summaries: CREATE SUMMARY, ALTER SUMMARY, SHOW SUMMARIES, DESCRIBE."""

import time
from dataclasses import fields

import pyarrow as pa
from sqlglot import exp

from promising.errors import (
    BadClause,
    BadCounts,
    BadGranularity,
    BadMeasure,
    BadOptions,
    BadStructure,
    CeilingTooLow,
    NoSuchName,
)
from promising.index import Options
from promising.index.options import AUTO
from promising.query.answers import Done
from promising.query.catalog import Catalog, SummaryEntry
from promising.query.error_places import placed
from promising.query.scalar.positions import offset_of
from promising.query.scalar.scope import suggest
from promising.query.sql import nodes
from promising.query.statement_options import read_options
from promising.query.summary_measures import check_change, measure_nodes, read_measures
from promising.summaries.counts import USUAL

SUMMARY_OPTIONS: dict[str, type] = {
    f.name: bool if f.type in (bool, "bool") else float if f.type in (float, "float") else int for f in fields(Options)
}


PAUSE = 0.0005  # seconds between slices of a long statement, in which those who wait for the stream get it


class Summaries:
    """Executes statements on the summaries of a catalog; one that fails changes nothing.

    The lock of the catalog is held, but not by `alter`, which may take minutes.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def create(self, node: nodes.CreateSummary, sql: str) -> Done:
        name = node.this.name
        with placed(sql, node.this):
            key = self.catalog.claim(name, "summary")
        stream = self.catalog.stream(node.args["stream"], sql)
        wanted = node.args["key"]
        found = [c for c in stream.schema.types if c.lower() == wanted.name.lower()]
        if not found:
            hint = suggest(wanted.name, stream.schema.types)
            raise NoSuchName(f"no column {wanted.name!r} in {stream.name}{hint}", sql, offset_of(wanted))
        asked = node.args.get("measures")
        measures = read_measures(asked, stream, sql) if isinstance(asked, list) else []
        options = read_options(node, SUMMARY_OPTIONS, sql)
        rate, depth = (_whole(node.args[part], part, sql) for part in ("rate", "depth"))
        with placed(sql, node.args["granularity"]):
            granularity = node.args["granularity"].micros
        with placed(sql, wanted):
            stream.schema.check_key(found[0])
        options_at = (node.args.get("options") or [node.args["granularity"]])[0]
        places = {
            BadGranularity: node.args["granularity"],
            BadStructure: node.args.get("structure") or node.this,
            BadOptions: options_at,
            BadCounts: node.args.get("using") or node.this,
            CeilingTooLow: (node.args.get("options") or (measures and asked) or [node.this])[0],
        }
        try:
            with placed(sql, node.args["rate"] if rate < 2 else node.args["depth"], places):
                stream.create_summary(
                    name,
                    found[0],
                    granularity=granularity,
                    collapse=(rate, depth),
                    structure=node.text("structure").lower() or "adaptive",
                    options=Options(**options),
                    measures=map(str, measures),
                    using=node.text("using").lower() or USUAL,
                )
        finally:
            made = stream.summaries.get(name)
            if made is not None:  # even if not yet known to be durable
                self.catalog.summaries[key] = SummaryEntry(stream.name, made)
        assert made is not None
        sizes = made.state.identity.sizes
        most = f"{sizes.sketches / 1e6:,.1f} MB of sketches, {sizes.tuple_bytes} bytes a tuple, {sizes.key_bytes} a key"
        return Done(f"summary {name} created on {stream.name} ({found[0]}): at most {most}", True)

    def alter(self, node: nodes.AlterSummary, sql: str) -> Done:
        """Add or drop measures. Those that are added are built in slices; between them batches and queries go on."""
        with self.catalog.lock:
            entry = self.catalog.summary(node.this, sql)
            stream, summary = self.catalog.streams[entry.stream.lower()], entry.index
        given = read_measures(node.args["measures"], stream, sql)
        adding, first = node.args["kind"] == "ADD", node.args["measures"][0]
        place = placed(sql, node.this, {BadMeasure: first, CeilingTooLow: first})
        with stream.reading():  # no other change comes between
            for one, measure in zip(node.args["measures"], given, strict=True):
                with placed(sql, one):
                    check_change(summary, measure, adding)
            before = [kind.measure for kind in summary.kinds]
            after = [*before, *given] if adding else [measure for measure in before if measure not in given]
            change = stream.set_measures(summary.name, map(str, after))
            with place:
                next(change)
        with place:
            for _ in change:
                time.sleep(PAUSE)
        has = ", ".join(measure.sql for measure in after) or "nothing"
        return Done(f"summary {summary.name} measures {has}", True)

    def show(self) -> pa.Table:
        found = [entry for _, entry in sorted(self.catalog.summaries.items())]
        entries = [(entry, entry.index.describe()) for entry in found]
        return pa.table(
            {
                "name": pa.array([d.name for _, d in entries], pa.string()),
                "stream": pa.array([e.stream for e, _ in entries], pa.string()),
                "key": pa.array([d.key for _, d in entries], pa.string()),
                "structure": pa.array([d.structure_text for _, d in entries], pa.string()),
                "using": pa.array([d.using for _, d in entries], pa.string()),
                "granularity": pa.array([d.spans[0] for _, d in entries], pa.duration("us")),
                "granularities": pa.array([len(d.spans) for _, d in entries], pa.int64()),
                "zones": pa.array([len(d.zones) for _, d in entries], pa.int64()),
                "tuples": pa.array([d.tuples for _, d in entries], pa.int64()),
                "bytes": pa.array([d.bytes for _, d in entries], pa.int64()),
                "ceiling": pa.array([d.ceiling for _, d in entries], pa.int64()),
                "measures": pa.array([", ".join(d.measures) for _, d in entries], pa.string()),
                "postings": pa.array(["on" if d.postings else "off" for _, d in entries], pa.string()),
                "building": pa.array([d.building for _, d in entries], pa.string()),
                "statement": pa.array([statement_of(e) for e, _ in entries], pa.string()),
            }
        )

    def describe(self, name: str) -> pa.Table:
        zones = self.catalog.summaries[name.lower()].index.describe().zones
        return pa.table(
            {
                "granularity": pa.array([z.granularity for z in zones], pa.int64()),
                "zone": pa.array([z.zone for z in zones], pa.int64()),
                "start": pa.array([z.start for z in zones], pa.timestamp("us")),
                "end": pa.array([z.end for z in zones], pa.timestamp("us")),
                "tuples": pa.array([z.tuples for z in zones], pa.int64()),
                "reason": pa.array([z.reason for z in zones], pa.string()),
            }
        )


def statement_of(entry: SummaryEntry) -> str:
    """The CREATE SUMMARY that creates a summary like this one."""
    summary, usual = entry.index, Options()
    identity = summary.state.identity
    geometry = identity.geometry
    options = {name: getattr(summary.options, name) for name in SUMMARY_OPTIONS}
    unit = next(unit for unit, micros in reversed(nodes.MICROS.items()) if geometry.granularity % micros == 0)
    made = nodes.CreateSummary(
        this=exp.to_identifier(summary.name),
        stream=exp.to_identifier(entry.stream),
        key=exp.to_identifier(summary.key),
        using=None if identity.using == USUAL else exp.Var(this=identity.using.upper()),
        measures=measure_nodes(kind.measure for kind in identity.kinds) or exp.Var(this="NONE"),
        granularity=nodes.Span(amount=exp.Literal.number(geometry.granularity // nodes.MICROS[unit]), unit=unit),
        rate=exp.Literal.number(geometry.rate),
        depth=exp.Literal.number(geometry.depth),
        structure=exp.Var(this=AUTO if identity.auto else identity.sizes.structure),
        options=[
            nodes.Option(this=exp.to_identifier(name), value=_option(value))
            for name, value in options.items()
            if value != getattr(usual, name)
        ],
    )
    return made.sql()


def _option(value: float | bool) -> exp.Expression:
    if isinstance(value, bool):
        return exp.Var(this="on" if value else "off")
    return exp.Literal.number(repr(value))


def _whole(node: exp.Expression, what: str, sql: str) -> int:
    negative = isinstance(node, exp.Neg)
    literal = node.this if negative else node
    if not isinstance(literal, exp.Literal) or literal.is_string or not literal.this.isdigit():
        raise BadClause(f"COLLAPSE(rate, depth): the {what} is a whole number", sql, offset_of(node))
    return -int(literal.this) if negative else int(literal.this)
