"""First step of recovery: restores a stream from its last readable checkpoint."""

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
    """The result of restoring a checkpoint.

    entry: the manifest's entry of the one restored; None if none was. unreadable: those set aside.
    report: why. damages: permanent losses.
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
    """Restore a new stream from the last readable checkpoint; if there is none, create its summaries."""
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
    """Record what is lost if no checkpoint is readable; `entry` is the last one."""
    none = f"no checkpoint of stream {found.stream.name!r} can be read"
    if not log_is_whole:
        found.damages.append(
            f"{none}: what it had up to record {entry['lsn']} of its log is lost, but for what is still in the log"
        )
        if "keep" in entry:
            found.stream.set_keep(entry["keep"])
        for made in entry["summaries"]:
            found.stream.remake(made)
    elif entry.get("loads"):  # the log has everything but loads
        found.damages.append(f"{none}: what was loaded into it is lost; load it again")


def _as_new(stream: Stream) -> Stream:
    """An empty stream with the same definition."""
    return Stream(
        stream.name,
        stream.schema.types,
        stream.schema.time,
        lateness=stream.lateness,
        keep=stream.keep,
        max_future=stream.max_future,
        max_jump=stream.max_jump,
        clock=stream.clock,
        max_tuples=stream.max_tuples,
        max_string_bytes=stream.max_string_bytes,
        seed=stream.seed,
        producers=stream.remembers,
    )
