"""What an external engine must read to answer a query: row groups of cold files, and tuples in memory."""

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Piece:
    """Row groups of one cold file with about the same promise.

    path: local, or a url that fsspec knows. entry: the file's manifest entry, for verification.
    bytes: of the requested column chunks in these groups.
    promise: the fraction of the expected output that involves these groups; 0 if unknown.
    """

    path: str
    entry: dict[str, Any]
    groups: list[int]
    bytes: int
    promise: float


@dataclass(frozen=True)
class Scan:
    """One stream of a query, when the scan was planned.

    columns: all that the query uses. Only event times in [start, end) belong, None for no limit; if `time` is not among
        the columns, nothing has to be filtered.
    pieces: all cold tuples of the answer; under a preference, the most promising first.
    warm: ranges of arrivals [first, last) in memory, to be read with `fetch`.
    total_bytes, total_groups: of these columns in all files of the stream; pruned files count as average.
    """

    stream: str
    alias: str
    types: dict[str, str]
    columns: list[str]
    time: str
    start: int | None
    end: int | None
    pieces: list[Piece]
    warm: list[tuple[int, int]]
    total_bytes: int
    total_groups: int

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.pieces)

    @property
    def groups(self) -> int:
        return sum(len(piece.groups) for piece in self.pieces)


@dataclass(frozen=True)
class ScanPlan:
    """The scans of a statement, in the order of its FROM.

    sql: the statement; from a service, as Spark SQL over views named like the aliases.
    hashes: of the only keys wanted, None for all; `keys` has the hashed column of each scan, under `seed`.
    expected_rows: of the answer before further conditions. share: the fraction of it for the keys wanted.
    """

    scans: list[Scan]
    sql: str
    hashes: list[int] | None
    keys: tuple[str | None, ...]
    seed: int
    expected_rows: float
    share: float

    def to_json(self) -> str:
        """JSON; a file's entry occurs once."""
        found = asdict(self)
        entries: dict[str, Any] = {}
        for scan in found["scans"]:
            for piece in scan["pieces"]:
                entries[piece["path"]] = piece.pop("entry")
        return json.dumps(found | {"entries": entries})

    @classmethod
    def from_json(cls, text: str) -> "ScanPlan":
        found = json.loads(text)
        entries = found.pop("entries")
        for scan in found["scans"]:
            scan["pieces"] = [Piece(entry=entries[piece["path"]], **piece) for piece in scan["pieces"]]
            scan["warm"] = [(first, last) for first, last in scan["warm"]]
        found["scans"] = [Scan(**scan) for scan in found["scans"]]
        return cls(**found | {"keys": tuple(found["keys"])})
