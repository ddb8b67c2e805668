"""Checks every invariant of a stream, and recomputes every summary from the log."""

from collections.abc import Iterator

from promising.errors import BadSequence, DataDamaged
from promising.index.check.extremes import check_extremes
from promising.index.check.ladder import check_ladder
from promising.index.check.log import check_chunks, check_tuples, readable, slices
from promising.index.check.postings import check_postings
from promising.index.check.zones import ZoneCheck
from promising.index.ledger import BATCHES, EACH, Ledger, check_number, is_anonymous
from promising.index.log import TupleLog
from promising.index.postings import Postings
from promising.index.progress import AGREEING
from promising.index.stream import Stream
from promising.index.summary import SummaryState
from promising.index.summary_index import SummaryIndex
from promising.index.time_text import instant


def check_stream(stream: Stream) -> list[str]:
    """All violations, one sentence each; empty if the stream is consistent.

    Reads every tuple twice per summary, in slices, without modification. Uses as much memory as the postings of one
    summary, and a byte per tuple; locks the stream.

    >>> stream = Stream("store1", {"ts": "timestamp", "item_id": "int"}, time="ts")
    >>> _ = stream.create_summary("s1", key="item_id", granularity=60_000_000)
    >>> _ = stream.append({"ts": [0, 1_000_000], "item_id": [7, 9]})
    >>> check_stream(stream)
    []
    >>> stream.accepted += 1
    >>> check_stream(stream)
    ['the stream has accepted 3 tuples, but 2 have arrived in its log']
    """
    with stream.reading() as log:
        found = [*_clock(stream, log), *check_chunks(log)]
        if not readable(log):
            return found  # rows are ambiguous: nothing more can be checked
        found += [*check_tuples(log), *_ledger(stream._ledger)]
        for summary in stream.summaries.values():
            found += [f"summary {summary.name!r}{what}" for what in _summary(stream, log, summary)]
        return [*found, *_measured(stream, log)]


# --- the stream --------------------------------------------------------------------------------------------------


def _clock(stream: Stream, log: TupleLog) -> Iterator[str]:
    if stream.accepted != log.arrived:
        yield f"the stream has accepted {stream.accepted:,} tuples, but {log.arrived:,} have arrived in its log"
    for reason, count in stream.refused.items():
        if count < 0:
            yield f"the stream has refused {count:,} tuples as {reason}"
    (watermark, counted, time, doubted), latest, floor = stream.progress, stream.latest, stream._floor
    if (latest is None) != (stream.accepted == 0):
        yield f"the latest time is {latest}, with {stream.accepted:,} tuples accepted"
    if latest is not None and (watermark is None or counted is None or time is None):
        yield f"the watermark is {_at(watermark)}, with {stream.accepted:,} tuples accepted"
    if time is not None and (watermark is None or watermark < time - stream.lateness):
        yield f"the watermark is {_at(watermark)}, behind the stream's time {_at(time)} by more than the lateness"
    if time is not None and (counted is None or counted < time):
        yield f"the stream's time {_at(time)} is ahead of the latest time that counts {_at(counted)}"
    if len(doubted) >= AGREEING or list(doubted) != sorted(set(doubted)):
        yield f"the times {', '.join(map(_at, doubted))} cannot all be doubted"
    if floor is not None and (watermark is None or floor > watermark):
        yield f"the floor {_at(floor)} is ahead of the watermark {_at(watermark)}"
    summaries = stream.summaries.values()
    keys, geometries = stream._summaries.keys, stream._summaries.geometries
    if keys != {s.key for s in summaries}:
        yield f"the stream takes {', '.join(sorted(keys)) or 'nothing'} for its keys; its summaries have others"
    if geometries != {s.state.identity.geometry for s in summaries}:
        yield "the stream ages by other granularities than its summaries have"


def _at(time: int | None) -> str:
    return "not set" if time is None else instant(time)


def _ledger(ledger: Ledger) -> Iterator[str]:
    for book in ledger.books:
        held = sum(EACH + len(known.batches) for known in book.producers.values())
        if held != book.held or held > book.most:
            yield f"the ledger has {held:,} results, and counts {book.held:,}; {book.most:,} is the most"
    for name, known in ledger.all():
        who = f"the ledger, producer {str(name)[:80]!r}"
        if (ledger.anonymous if is_anonymous(name) else ledger.named).producers.get(name) is not known:
            yield f"{who}: it is among producers of another kind"
        if known.epoch < 0:
            yield f"{who}: it has the epoch {known.epoch}"
        if len(known.batches) > BATCHES:
            yield f"{who}: {len(known.batches):,} batches are remembered; {BATCHES:,} is the most"
        if known.forgotten < 0 or any(number <= known.forgotten for number in known.batches):
            yield f"{who}: a batch is remembered that {known.forgotten} says is forgotten"
        for number, added in known.batches.items():
            try:
                check_number(name, number)
            except BadSequence as problem:
                yield f"{who}: {problem}"
            if added.accepted < 0 or added.duplicate or any(n < 0 for n in added.refused.values()):
                yield f"{who}: batch {number} cannot have been answered with {added}"


# --- a summary ---------------------------------------------------------------------------------------------------


def _measured(stream: Stream, log: TupleLog) -> Iterator[str]:
    """The moments by spans of time, and the extreme tuples."""
    try:
        if stream.ladder is not None:
            yield from check_ladder(stream.ladder, log, stream.oldest, slices(log))
        if stream.extremes is not None:
            yield from check_extremes(stream.extremes, log)
    except DataDamaged as problem:
        yield f"the ladder and the extreme tuples are not checked: {problem}"


def _summary(stream: Stream, log: TupleLog, summary: SummaryIndex) -> Iterator[str]:
    """Violations, to follow its name in a sentence."""
    state = summary.state
    if state.watermark != stream.watermark or state.seed != stream.seed or state.log is not log:
        yield ": its watermark, seed or log is not the stream's"
    if stream.watermark is not None and state.horizons != state.identity.geometry.horizons(stream.watermark):
        yield f": its horizons are not those of the watermark {_at(stream.watermark)}"
        return
    try:
        if state.expired < 0:
            yield f": {state.expired:,} tuples have aged out of it"
        if log.has_nulls(summary.key):
            yield f": the stream holds tuples that have no {summary.key!r}, its key"
        if isinstance(state, SummaryState):
            yield from ZoneCheck(state, slices(log)).findings()
            if isinstance(state.postings, Postings):
                yield from check_postings(state, state.postings, slices(log))
    except DataDamaged as problem:
        yield f": its tuples cannot be read: {problem}"
