"""How a store keeps what it is given."""

from dataclasses import dataclass
from typing import Literal

from promising.errors import BadOptions


@dataclass(frozen=True)
class StoreOptions:
    """What can be set, each with a value that suits most.

    sync: "always" acknowledges a batch when it is on the disk; "relaxed" when the system has it, and syncs every
        second: a crash of the process loses nothing, one of the machine up to the last second.
    sync_ahead: sync a batch in the log while it is added in memory, in threads of their own.
    segment_bytes: of the log, after which a new file begins.
    checkpoint_bytes: of the log of a stream, after which a checkpoint is written, so that a start need not read more.
    hot_tuples: of each stream, that stay in memory; older ones that have left `G_1` go cold.
    run_tuples: that go cold together, into one file.
    cache_bytes: of cold tuples, that were read and stay in memory for the next question.
    cold: where files of cold tuples lie, any URL that fsspec knows; None for the store's own directory.
    """

    sync: Literal["always", "relaxed"] = "always"
    sync_ahead: bool = True
    segment_bytes: int = 64 << 20
    checkpoint_bytes: int = 256 << 20
    hot_tuples: int = 1 << 22
    run_tuples: int = 1 << 18
    cache_bytes: int = 256 << 20
    cold: str | None = None

    def __post_init__(self) -> None:
        if self.sync not in ("always", "relaxed"):
            raise BadOptions(f"sync is always or relaxed, not {self.sync!r}")
        for name in ("segment_bytes", "checkpoint_bytes", "hot_tuples", "run_tuples", "cache_bytes"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise BadOptions(f"{name} must be a whole number, not negative, got {value!r}")
        if self.cold is not None and "://" not in self.cold:
            raise BadOptions(f"cold is a URL such as s3://bucket/folder, not {self.cold!r}")
