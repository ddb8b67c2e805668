"""Conversion between wire messages and Python objects, for the server and the clients."""

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from promising.errors import BadRequest
from promising.index.instants import BEGINNING, END
from promising.index.regions import Absorbed, Appended, Description, Guess, Regions, Story, Window, ZoneInfo
from promising.query.answers import Cut, Done, Explanation, Frame, Progress
from promising.summaries.adt import Estimates
from promising.summaries.keys import Keys
from promising.v1 import common_pb2, queries_pb2, streams_pb2, summaries_pb2
from promising.wire_times import duration_of, micros, span_micros, timestamp

if TYPE_CHECKING:
    from promising.index.prepared_load import Attached
    from promising.index.table import Changed

PART = 1 << 18  # approximate bytes of rows per message: what a slow consumer can make the service buffer

CUTS: dict[Cut | None, common_pb2.Cut.ValueType] = {
    None: common_pb2.CUT_UNSPECIFIED,
    "budget": common_pb2.CUT_BUDGET,
    "limit": common_pb2.CUT_LIMIT,
    "cancelled": common_pb2.CUT_CANCELLED,
    "error": common_pb2.CUT_ERROR,
    "deadline": common_pb2.CUT_DEADLINE,
    "memory": common_pb2.CUT_MEMORY,
}
_CUTS = {value: cut for cut, value in CUTS.items()}
STRUCTURES: dict[str, summaries_pb2.Structure.ValueType] = {
    "none": summaries_pb2.STRUCTURE_NONE,
    "time": summaries_pb2.STRUCTURE_TIME,
    "grid": summaries_pb2.STRUCTURE_GRID,
    "adaptive": summaries_pb2.STRUCTURE_ADAPTIVE,
    "auto": summaries_pb2.STRUCTURE_AUTO,
}
_STRUCTURES = {value: name for name, value in STRUCTURES.items()}


# --- tables ------------------------------------------------------------------------------------------------------


def ipc(table: pa.Table | pa.RecordBatch) -> bytes:
    """An Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def table(data: bytes) -> pa.Table:
    """A table sent by the service."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


def slices(rows: pa.Table, most: int = PART) -> Iterator[tuple[int, int]]:
    """(first, count) of slices of a table of about `most` bytes each; one of no rows for an empty table.

    None is larger than twice that, unless it is a single row.
    """
    each = max(rows.num_rows * most // max(rows.nbytes, 1), 1) if rows.num_rows else 1
    for first in range(0, max(rows.num_rows, 1), each):
        yield from _halves(rows, first, min(each, rows.num_rows - first), 2 * most)


def _halves(rows: pa.Table, first: int, count: int, most: int) -> Iterator[tuple[int, int]]:
    """A slice, or its halves if its rows are larger than average."""
    if count < 2 or rows.slice(first, count).nbytes <= most:
        yield first, count
        return
    yield from _halves(rows, first, count // 2, most)
    yield from _halves(rows, first + count // 2, count - count // 2, most)


def text_parts(text: str, most: int = PART) -> Iterator[str]:
    """A text in parts of `most` characters; a character takes up to four bytes."""
    for first in range(0, len(text), most):
        yield text[first : first + most]


# --- numbers -----------------------------------------------------------------------------------------------------


def bounded(guess: Guess) -> common_pb2.Bounded:
    value = guess.value if guess.known else guess.lower
    return common_pb2.Bounded(value=value, lower=guess.lower, upper=guess.upper, unknown=not guess.known)


def guess(told: common_pb2.Bounded) -> Guess:
    return Guess(math.nan if told.unknown else told.value, told.lower, told.upper)


# --- requests ----------------------------------------------------------------------------------------------------


def keys_to(keys: Keys) -> common_pb2.Keys:
    if isinstance(keys, np.ndarray):
        return common_pb2.Keys(ints=keys.tolist())
    return common_pb2.Keys(strings=keys.to_pylist() if isinstance(keys, pa.Array) else list(keys))


def keys_from(told: common_pb2.Keys) -> Any:
    """An int64 array, or a list of strings."""
    if told.strings and told.ints:
        raise BadRequest("keys are of one kind: ints or strings", "keys")
    if told.strings:
        return list(told.strings)
    return np.array(told.ints, np.int64)


def window_to(window: Window) -> common_pb2.Window | None:
    if window is None:
        return None
    return common_pb2.Window(start=timestamp(window[0]), end=timestamp(window[1]))


def window_from(told: common_pb2.Window) -> tuple[int, int]:
    start = micros(told.start) if told.HasField("start") else BEGINNING
    return start, micros(told.end) if told.HasField("end") else END


# --- results -----------------------------------------------------------------------------------------------------


def done_to(done: Done) -> common_pb2.Done:
    return common_pb2.Done(message=done.message, changed=done.changed)


def done_from(told: common_pb2.Done) -> Done:
    return Done(told.message, told.changed)


def appended_to(added: Appended) -> streams_pb2.Appended:
    return streams_pb2.Appended(accepted=added.accepted, refused=added.refused, duplicate=added.duplicate)


def appended_from(told: streams_pb2.Appended) -> Appended:
    return Appended(told.accepted, dict(told.refused), told.duplicate)


def attached_to(added: "Attached") -> streams_pb2.AttachResponse:
    return streams_pb2.AttachResponse(accepted=added.accepted, refused=added.refused, duplicate=added.duplicate)


def attached_from(told: streams_pb2.AttachResponse) -> "Attached":
    from promising.index.prepared_load import Attached  # noqa: PLC0415  # compiles on import: only for loaders

    return Attached(told.accepted, dict(told.refused), told.duplicate)


def changed_to(changed: "Changed") -> queries_pb2.LoadTableResponse:
    return queries_pb2.LoadTableResponse(
        change=changed.change, inserted=changed.inserted, updated=changed.updated, unchanged=changed.unchanged
    )


def changed_from(told: queries_pb2.LoadTableResponse) -> "Changed":
    from promising.index.table import Changed  # noqa: PLC0415  # only for loads of tables

    return Changed(told.change, told.inserted, told.updated, 0, told.unchanged)


def estimates_to(found: Estimates) -> summaries_pb2.EstimateResponse:
    return summaries_pb2.EstimateResponse(
        value=found.value.tolist(), lower=found.lower.tolist(), upper=found.upper.tolist()
    )


def estimates_from(told: summaries_pb2.EstimateResponse) -> Estimates:
    return Estimates(*(np.array(column, np.float64) for column in (told.value, told.lower, told.upper)))


_PLACES = ("key", "granularity", "zone", "bucket", "tuples", "start", "end")
_AMOUNTS = ("estimate", "lower", "upper")
_COUNTS = ("considered", "by_window", "by_filter")


def regions_to(found: Regions) -> summaries_pb2.RegionsResponse:
    columns = {name: getattr(found, name).tolist() for name in (*_PLACES, *_AMOUNTS)}
    return summaries_pb2.RegionsResponse(**columns, **{name: getattr(found, name) for name in _COUNTS})


def regions_from(told: summaries_pb2.RegionsResponse) -> Regions:
    columns: dict[str, Any] = {name: np.array(getattr(told, name), np.int64) for name in _PLACES}
    columns |= {name: np.array(getattr(told, name), np.float64) for name in _AMOUNTS}
    return Regions(**columns, **{name: getattr(told, name) for name in _COUNTS})


def zone_to(zone: ZoneInfo, cells: Iterable[int] = ()) -> summaries_pb2.Zone:
    return summaries_pb2.Zone(
        granularity=zone.granularity,
        zone=zone.zone,
        start=timestamp(zone.start),
        end=timestamp(zone.end),
        tuples=zone.tuples,
        reason=zone.reason,
        cells=cells,
    )


def zone_from(told: summaries_pb2.Zone) -> ZoneInfo:
    return ZoneInfo(told.granularity, told.zone, micros(told.start), micros(told.end), told.tuples, told.reason)


def summary_to(
    described: Description, stream: str, buckets: int, statement: str, zones: bool = True
) -> summaries_pb2.Summary:
    """A summary; `zones`: with its zones, and their cells if the description has them."""
    if described.cells is not None:
        buckets = described.cells.shape[1]  # its structure may have changed
    made = summaries_pb2.Summary(
        name=described.name,
        stream=stream,
        key=described.key,
        structure=STRUCTURES[described.structure],
        spans=[duration_of(s) for s in described.spans],
        buckets=buckets,
        zone_count=len(described.zones),
        tuples=described.tuples,
        expired=described.expired,
        keys=described.keys,
        cuts=described.cuts,
        bytes=described.bytes,
        ceiling=described.ceiling,
        sketch_bytes=described.sketch_bytes,
        tuple_bytes=described.tuple_bytes,
        key_bytes=described.key_bytes,
        horizons=[timestamp(t) for t in described.horizons],
        current_structure=STRUCTURES[described.now],
        structure_reason=described.why,
        using=described.using,
        measures=described.measures,
        postings=described.postings,
        building=described.building,
        show=described.show,
        statement=statement,
    )
    if described.watermark is not None:
        made.watermark.CopyFrom(timestamp(described.watermark))
    if zones:
        cells = described.cells
        for at, zone in enumerate(described.zones):
            made.zones.append(zone_to(zone, () if cells is None else cells[at].tolist()))
            if described.shown is not None:
                made.zones[-1].shown.extend(described.shown[at].tolist())
    return made


def description_from(told: summaries_pb2.Summary, cells: bool = False) -> Description:
    found = None
    if cells:
        found = np.array([zone.cells for zone in told.zones], np.int64).reshape(len(told.zones), told.buckets)
    return Description(
        name=told.name,
        key=told.key,
        structure=_STRUCTURES[told.structure],
        spans=tuple(span_micros(s) for s in told.spans),
        zones=tuple(zone_from(z) for z in told.zones),
        tuples=told.tuples,
        expired=told.expired,
        keys=told.keys,
        cuts=dict(told.cuts),
        bytes=told.bytes,
        ceiling=told.ceiling,
        sketch_bytes=told.sketch_bytes,
        tuple_bytes=told.tuple_bytes,
        key_bytes=told.key_bytes,
        watermark=micros(told.watermark) if told.HasField("watermark") else None,
        horizons=tuple(micros(t) for t in told.horizons),
        cells=found,
        now=_STRUCTURES.get(told.current_structure, _STRUCTURES[told.structure]),
        why=told.structure_reason,
        using=told.using,
        measures=tuple(told.measures),
        postings=told.postings if told.HasField("postings") else True,
        building=told.building,
        show=told.show,
        shown=np.array([zone.shown for zone in told.zones], np.float64).reshape(
            len(told.zones), -1 if told.zones else 0
        )
        if told.show
        else None,
    )


def story_to(story: Story) -> summaries_pb2.StoryResponse:
    absorbed = [summaries_pb2.Absorbed(reason=a.reason, zones=a.zones, tuples=a.tuples) for a in story.absorbed]
    return summaries_pb2.StoryResponse(
        zone=zone_to(story.zone), lines=story.lines, absorbed=absorbed, measures=story.measures
    )


def story_from(told: summaries_pb2.StoryResponse) -> Story:
    absorbed = tuple(Absorbed(a.reason, a.zones, a.tuples) for a in told.absorbed)
    return Story(zone_from(told.zone), tuple(told.lines), absorbed, tuple(told.measures))


# --- answers -----------------------------------------------------------------------------------------------------


def progress_to(progress: Progress) -> common_pb2.Progress:
    return common_pb2.Progress(
        rows=progress.rows,
        total=bounded(progress.total),
        coverage=bounded(progress.coverage),
        complete=progress.complete,
        cut=CUTS[progress.cut],
        cpu_seconds=progress.cpu_seconds,
        granularities=progress.granularities,
        read=progress.read,
        entries=progress.entries,
        rank=progress.rank,
        resume_token=progress.token,
        warnings=progress.warnings,
        send_seconds=progress.send_seconds,
    )


def progress_from(told: common_pb2.Progress) -> Progress:
    return Progress(
        rows=told.rows,
        total=guess(told.total),
        coverage=guess(told.coverage),
        complete=told.complete,
        cut=_CUTS.get(told.cut),
        cpu_seconds=told.cpu_seconds,
        granularities=tuple(told.granularities),
        read=told.read,
        entries=told.entries,
        rank=told.rank,
        token=told.resume_token if told.HasField("resume_token") else None,
        warnings=tuple(told.warnings),
        send_seconds=told.send_seconds,
    )


def frame_parts(frame: Frame, most: int = PART) -> Iterator[queries_pb2.Frame]:
    """A frame as messages of about `most` bytes each."""
    mode = queries_pb2.FRAME_MODE_APPEND if frame.mode == "append" else queries_pb2.FRAME_MODE_REPLACE
    shape = frame.rows if frame.lower is None else max((frame.rows, frame.lower), key=lambda t: int(t.nbytes))
    for first, count in slices(shape, most):
        part = queries_pb2.Frame(mode=mode, continued=first + count < frame.rows.num_rows)
        if frame.rows.num_rows:
            part.rows = ipc(frame.rows.slice(first, count))
        if frame.lower is not None and frame.upper is not None:
            part.lower = ipc(frame.lower.slice(first, count))
            part.upper = ipc(frame.upper.slice(first, count))
        if not part.continued:
            part.progress.CopyFrom(progress_to(frame.progress))
        yield part


class Frames:
    """Reassembles frames from their parts."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._parts: dict[str, list[pa.Table]] = {"rows": [], "lower": [], "upper": []}

    def add(self, part: queries_pb2.Frame) -> Frame | None:
        """The frame that this part completes; None if more parts follow."""
        for name, kept in self._parts.items():
            if data := getattr(part, name):
                kept.append(table(data))
        if part.continued:
            return None
        rows, lower, upper = (pa.concat_tables(kept) if kept else None for kept in self._parts.values())
        self._parts = {name: [] for name in self._parts}
        return Frame(
            self._schema.empty_table() if rows is None else rows,
            "append" if part.mode == queries_pb2.FRAME_MODE_APPEND else "replace",
            progress_from(part.progress),
            lower,
            upper,
        )


def explanation_to(made: Explanation) -> queries_pb2.Explanation:
    told = queries_pb2.Explanation(
        lines=made.lines,
        steps=made.steps,
        total=bounded(made.total),
        warnings=made.warnings,
        regions=ipc(made.regions),
        considered=made.considered,
        pruned=made.pruned,
        listed=made.listed,
    )
    if made.progress is not None:
        told.progress.CopyFrom(progress_to(made.progress))
    return told


def explanation_from(told: queries_pb2.Explanation) -> Explanation:
    return Explanation(
        steps=list(told.steps),
        total=guess(told.total),
        warnings=tuple(told.warnings),
        regions=table(told.regions),
        considered=told.considered,
        pruned=told.pruned,
        progress=progress_from(told.progress) if told.HasField("progress") else None,
        listed=told.listed,
        lines=list(told.lines),
    )
