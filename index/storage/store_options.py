"""The options of a store."""

from dataclasses import dataclass
from typing import Literal

from promising.errors import BadOptions

MOST_DAYS = 36_500


@dataclass(frozen=True)
class StoreOptions:
    """Options with defaults that suit most.

    sync: "always" acknowledges a durable batch; "relaxed" one that the system has, and syncs every second: a process
        crash loses nothing, a machine crash up to a second.
    sync_ahead: sync a batch in the log while it is added in memory, in separate threads.
    segment_bytes: of a log file.
    checkpoint_bytes: of a stream's log before the next checkpoint, which bounds the log to read at a start.
    hot_tuples: per stream, in memory; older ones that have left `G_1` become cold.
    run_tuples: per cold file.
    cache_bytes: of decoded cold tuples.
    memory_bytes: of tuples and postings in memory, all streams together; None for no limit. From three quarters on
        tuples that have left `G_1` become cold, however few a stream has.
    producer_days: how long the batches of a silent producer are remembered.
    cold: location of cold files, any URL that fsspec knows; None for the store's own directory.
    """

    sync: Literal["always", "relaxed"] = "always"
    sync_ahead: bool = True
    segment_bytes: int = 64 << 20
    checkpoint_bytes: int = 256 << 20
    hot_tuples: int = 1 << 22
    run_tuples: int = 1 << 18
    cache_bytes: int = 256 << 20
    memory_bytes: int | None = None
    producer_days: float = 7.0
    cold: str | None = None

    def __post_init__(self) -> None:
        if self.sync not in ("always", "relaxed"):
            raise BadOptions(f"sync is always or relaxed, not {self.sync!r}")
        for name in ("segment_bytes", "checkpoint_bytes", "hot_tuples", "run_tuples", "cache_bytes", "memory_bytes"):
            value = getattr(self, name)
            if name == "memory_bytes" and value is None:
                continue
            if not isinstance(value, int) or value < 0:
                raise BadOptions(f"{name} must be a whole number, not negative, got {value!r}")
        if not 0 < self.producer_days <= MOST_DAYS:
            raise BadOptions(f"producer_days must be above 0, up to {MOST_DAYS:,}, got {self.producer_days!r}")
        if self.cold is not None and "://" not in self.cold:
            raise BadOptions(f"cold is a URL such as s3://bucket/folder, not {self.cold!r}")
