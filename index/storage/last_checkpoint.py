"""The way back from disk, first part: a stream as of the last checkpoint that can be read."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from promising.errors import DataDamaged
from promising.index.image_arrays import PLACED
from promising.index.storage.disk import Disk
from promising.index.storage.image import restoring
from promising.index.stream import Stream

Entry = dict[str, Any]


@dataclass
class Restored:
    """What became of the checkpoints of a stream.

    entry: of the one that was read, as the manifest has it; None if none was. unreadable: those that were set aside.
    report: why. damages: what is lost for good.
    """

    stream: Stream
    entry: Entry | None = None
    unreadable: set[int] = field(default_factory=set)
    report: list[str] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)


def restore_last(
    disk: Disk,
    stream: Stream,
    checkpoints: dict[int, Entry],
    path_of: Callable[[int], Path],
    set_aside: Callable[[Path], None],
    log_is_whole: Callable[[], bool],
) -> Restored:
    """Bring a new stream to the last of these checkpoints that can be read; if none can, have its summaries at least.

    checkpoints: the manifest's entries, by number.
    """
    found = Restored(stream)
    ordered = sorted(checkpoints.items(), reverse=True)
    for number, entry in ordered:
        path = path_of(number)
        try:
            with restoring(disk, path, PLACED) as tree:
                image: Any = tree
                if image["lsn"] != entry["lsn"]:
                    raise DataDamaged(f"{path} covers record {image['lsn']}, and should cover {entry['lsn']}")
                found.stream.restore(image)
        except DataDamaged as problem:
            found.stream = _as_new(stream)
            found.report.append(f"{problem}; it is set aside")
            set_aside(path)
            found.unreadable.add(number)
            continue
        found.entry = entry
        return found
    if ordered:
        _without(found, ordered[0][1], log_is_whole())
    return found


def _without(found: Restored, entry: Entry, log_is_whole: bool) -> None:
    """What is lost when no checkpoint can be read, of which `entry` is the last."""
    none = f"no checkpoint of stream {found.stream.name!r} can be read"
    if not log_is_whole:
        found.damages.append(
            f"{none}: what it had up to record {entry['lsn']} of its log is lost, but for what is still in the log"
        )
        for made in entry["summaries"]:
            found.stream.remake(made)
    elif entry.get("loads"):  # the log has all but loads
        found.damages.append(f"{none}: what was loaded into it is lost; load it again")


def _as_new(stream: Stream) -> Stream:
    """One of the same definition, in which there is nothing."""
    return Stream(
        stream.name,
        stream.schema.types,
        stream.schema.time,
        lateness=stream.lateness,
        max_future=stream.max_future,
        clock=stream.clock,
        max_tuples=stream.max_tuples,
        max_string_bytes=stream.max_string_bytes,
        seed=stream.seed,
    )
