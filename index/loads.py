"""Attaching a load that was prepared elsewhere; its token is in the stream's ledger, beside producers' batches."""

from collections.abc import Mapping, Set

from promising.errors import BadPackage, CeilingReached, NullKey, SequenceTooOld, TokenReused
from promising.index.admission import Retention
from promising.index.ledger import Ledger
from promising.index.log import TupleLog
from promising.index.prepared_load import Attached, Load
from promising.index.schema import text_bytes
from promising.index.stream_image import definitions
from promising.index.summary_index import SummaryIndex
from promising.index.time_text import instant

LOADS = "load:"  # prefix of loads in the ledger


def load_name(token: str) -> str:
    return LOADS + token


def find_load(ledger: Ledger, stream: str, token: str, digest: int) -> Attached | None:
    """The result of a load attached under this token; None if there was none."""
    try:
        found = ledger.find(load_name(token), digest)
    except SequenceTooOld:
        raise TokenReused(
            f"stream {stream!r} has a load under the token {token!r}, attached so long ago that it is forgotten whether"
            " it was this one; give this one a token of its own if it is to be added"
        ) from None
    if found is not None:
        return Attached(found.accepted, found.refused, duplicate=True)
    if ledger.knows(load_name(token)):
        raise TokenReused(
            f"stream {stream!r} has a load under the token {token!r} already, with other tuples; give this"
            " one a token of its own if it is to be added too"
        )
    return None


def rows_for(load: Load, log: TupleLog) -> int:
    """Maximum rows of a load, in whole chunks: for its tuples in memory together, then for each run."""
    warm = sum(len(part) for part in load.parts if part.run is None)
    sizes = [warm, *(len(part) for part in load.parts if part.run is not None)]
    return sum(-(-size // log.chunk) for size in sizes) * log.chunk


def check_load(load: Load, stream: str, keys: Set[str], retention: Retention, watermark: int, log: TupleLog) -> None:
    """Raises unless the whole load can be attached. keys: the columns that must not be null. watermark: after it."""
    if watermark < load.watermark:
        raise BadPackage(
            f"the load was planned when stream {stream!r} had reached {instant(load.watermark)}, and it is at"
            f" {instant(watermark)}: it is not the stream of then; run the load again"
        )
    for part in load.parts:
        for key in keys & set(part.nulls):
            raise NullKey(f"column {key!r} is a key now, and the load has tuples without one")
    leaving = log.leaving(retention.oldest(watermark))
    room = log.room_after(leaving)
    if rows_for(load, log) > room:
        raise CeilingReached(f"{load.tuples:,} tuples do not fit: {log.told(room)}")
    texts = sum(text_bytes(part.columns or {}) for part in load.parts)
    if log.max_string_bytes is not None and log.string_bytes + texts > log.max_string_bytes:
        raise CeilingReached(
            f"the strings of the load, {texts:,} bytes, do not fit: the stream keeps up to"
            f" {log.max_string_bytes:,} and has {log.string_bytes:,}; raise max_string_bytes"
        )
    log.reserve(rows_for(load, log), leaving)


def take_in(load: Load, log: TupleLog, summaries: Mapping[str, SummaryIndex], seed: int) -> None:
    """Add a load to the log and the summaries, which have reached its watermark. There is room."""
    summed = {
        made["name"]
        for made in definitions(summaries.values(), now=True)
        if {"keep": None, "measures": [], **load.summaries.get(made["name"], {})} == made
    }
    for part in sorted(load.parts, key=lambda part: part.run is not None):
        if part.run is not None:
            rows = log.adopt(part.run, part.times, part.nulls)
        else:
            assert part.columns is not None
            rows = log.write(part.columns, len(part))
        for name, summary in summaries.items():
            hashes = part.hashes.get(summary.key)
            if hashes is None:
                hashes = log.hashes(summary.key, rows, seed)
            summary.state.attach(hashes, rows, part.times, part.sums.get(name) if name in summed else None)
