"""All that a stream can be asked, answered: two streams that were fed alike must tell the same."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from promising.index import Stream, SummaryIndex
from promising.index.summary import SummaryState
from tests.index.counted import counted
from tests.index.world import cells

ABSENT = [-77, 1 << 40]  # keys that nobody sends

LEFT_OUT = ("too_old", "too_far_ahead")
"""Why tuples of a batch that is taken are refused. Of a batch refused as a whole nothing outlives the process."""

Told = dict[str, Any]


def told(stream: Stream, keys: list[int], brief: bool = False) -> Told:
    """Every answer by its question, as plain values: tuples, counters, and each summary to the bit.

    keys: of the integer column "k" to ask for; words of the string column "s" are taken from the tuples. Row numbers
    are left out, and so are bytes: where a tuple lies is the store's business. brief: few windows.
    """
    with stream._lock:
        tuples = live(stream)
        out: Told = {
            "watermark": stream.watermark,
            "latest": stream.latest,
            "accepted": stream.accepted,
            "kept": stream.kept,
            "refused": sorted(item for item in stream.refused.items() if item[0] in LEFT_OUT),
            "summaries": sorted(stream.summaries),
            "tuples": tuples,
            "remembered": tuple(stream._ledger.image().values()),
        }
        words = sorted(set(tuples["s"]))[:8]
        for name, summary in sorted(stream.summaries.items()):
            asked: list[Any] = [*keys, *ABSENT] if summary.key == "k" else [*words, "nobody sends this"]
            out |= {
                f"{name}: {question}": answer for question, answer in _answers(stream, summary, asked, brief).items()
            }
        return out


def live(stream: Stream) -> dict[str, list[Any]]:
    """The tuples that have not aged out, in order of arrival, by column."""
    time = stream.schema.time
    table = stream.take(stream._log.rows())
    at = table.schema.get_field_index(time)
    table = table.set_column(at, time, table.column(time).cast("int64"))
    if stream.oldest is not None:
        table = table.filter(table.column(time).to_numpy() >= stream.oldest)
    out: dict[str, list[Any]] = table.to_pydict()
    return out


def windows(stream: Stream, granularity: int, brief: bool) -> list[tuple[int, int] | None]:
    """All of time, the last granularity, and stretches of the coarser ones that begin and end inside zones."""
    if stream.watermark is None:
        return [None]
    now, step = stream.watermark, granularity
    across = (now - 5 * step - step // 3, now - step // 2)
    return [None, across] if brief else [None, across, (now - step, now + 1), (now - 40 * step, now - 3 * step - 1)]


def _answers(stream: Stream, summary: SummaryIndex, asked: list[Any], brief: bool) -> Told:
    description = summary.describe(cells=True)
    out: Told = {
        "zones": [(z.granularity, z.zone, z.start, z.end, z.tuples, z.reason) for z in description.zones],
        "cells": description.cells,
        "counts": repr((description.tuples, description.expired, sorted(description.cuts.items()))),
        "keys": description.keys,
        "time": repr((description.watermark, description.horizons)),
        "contents": _contents(stream, summary),
    }
    for number, window in enumerate(windows(stream, summary.state.identity.geometry.granularity, brief)):
        estimates, regions = summary.estimate(asked, window), summary.regions(asked, window)
        out[f"estimates {number}"] = (estimates.value, estimates.lower, estimates.upper)
        out[f"regions {number}"] = tuple(vars(regions).values())
        found = summary.probe(asked, window)
        names = _ids(stream, found.rows).tolist()
        out[f"probe {number}"] = np.array(sorted(zip(found.probe.tolist(), names, strict=True)), np.int64)
    state = summary.state
    if isinstance(state, SummaryState):
        out["coarse"] = [
            (level, z.number, z.start, z.first, z.last, counted(z), z.bits.tobytes(), z.cells.tobytes())
            for level, zones in state.coarse.levels.items()
            for z in zones.values()
        ]
    return out


def _contents(stream: Stream, summary: SummaryIndex) -> list[tuple[tuple[int, int, int], list[int]]]:
    """The tuples of every cell, by their ids."""
    places = cells(summary)
    rows = [summary.visit(place) for place in places]
    names = _ids(stream, np.concatenate(rows) if rows else np.empty(0, np.int32))
    ends = np.cumsum([len(r) for r in rows])
    parts = np.split(names, ends[:-1]) if rows else []
    return [(place, sorted(part.tolist())) for place, part in zip(places, parts, strict=True)]


def _ids(stream: Stream, rows: NDArray[np.int32]) -> NDArray[np.int64]:
    found: NDArray[np.int64] = stream.take(rows, ["id"]).column("id").to_numpy()
    return found


def digest(answers: Told) -> dict[str, str]:
    """Each answer as a short text, to be sent and compared."""
    return {question: _short(answer) for question, answer in answers.items()}


def _short(answer: Any) -> str:
    if isinstance(answer, int | str | None):
        return repr(answer)
    hashed = hashlib.blake2b(digest_size=12)
    _hash_into(hashed, answer)
    return hashed.hexdigest()


def _hash_into(hashed: Any, answer: Any) -> None:
    if isinstance(answer, np.ndarray):
        hashed.update(f"array {answer.dtype} {answer.shape}".encode())
        hashed.update(answer.tobytes())
    elif isinstance(answer, bytes):
        hashed.update(b"bytes %d" % len(answer))
        hashed.update(answer)
    elif isinstance(answer, tuple):
        hashed.update(b"(%d" % len(answer))
        for part in answer:
            _hash_into(hashed, part)
    elif isinstance(answer, list) and answer and isinstance(answer[0], tuple):
        hashed.update(b"[%d" % len(answer))
        for part in answer:
            _hash_into(hashed, part)
    else:
        hashed.update(repr(answer).encode())


def _listed(answer: Any) -> Any:
    """Arrays as lists, however deep."""
    if isinstance(answer, np.ndarray):
        return answer.tolist()
    if isinstance(answer, list | tuple):
        return [_listed(a) for a in answer]
    if isinstance(answer, dict):
        return {name: _listed(a) for name, a in answer.items()}
    return answer


def differences(ours: Told, theirs: Told) -> list[str]:
    """The questions that two streams answer differently, each with both answers."""
    ours, theirs = ({q: _listed(a) for q, a in answers.items()} for answers in (ours, theirs))
    return [
        f"{question}: {_clipped(ours.get(question))} where {_clipped(theirs.get(question))} is right"
        for question in sorted(ours.keys() | theirs.keys())
        if ours.get(question) != theirs.get(question)
    ]


def _clipped(answer: Any) -> str:
    shown = repr(answer)
    return shown if len(shown) <= 300 else f"{shown[:297]}..."
