"""What somebody else must read to answer a query: row groups of cold files, and tuples that are still in memory."""

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Piece:
    """Row groups of one cold file, all about as promising.

    path: local, or a url that fsspec knows. entry: what the manifest says of the file, to check what is read.
    bytes: of the column chunks asked for, in these groups.
    promise: the share of the expected output that tuples in these groups take part in; 0 if nothing tells.
    """

    path: str
    entry: dict[str, Any]
    groups: list[int]
    bytes: int
    promise: float


@dataclass(frozen=True)
class Scan:
    """One stream of a query, as it stood when the scan was planned.

    columns: all that the query uses. Of what is read only event times in [start, end) belong, None for no limit; where
    `time` is not among the columns nothing has to be left out.
    pieces: no cold tuple of the answer is anywhere else; under a preference the most promising come first.
    warm: stretches of arrivals [first, last) that are in memory, to be asked for with `fetch`.
    total_bytes, total_groups: of the same columns in all files of the stream, those of files that are out of the
    question at the average.
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
        """Of all pieces."""
        return sum(piece.bytes for piece in self.pieces)

    @property
    def groups(self) -> int:
        """Row groups of all pieces."""
        return sum(len(piece.groups) for piece in self.pieces)


@dataclass(frozen=True)
class ScanPlan:
    """The scans of a statement, in the order of its FROM.

    sql: the statement; from a service, as Spark SQL over views that are named as the aliases are.
    hashes: of the only keys wanted, None for all; `keys` has the column of each scan that they are hashes of, under
    `seed`.
    expected_rows: of the answer before further conditions. share: the part of it that the keys wanted make.
    """

    scans: list[Scan]
    sql: str
    hashes: list[int] | None
    keys: tuple[str | None, ...]
    seed: int
    expected_rows: float
    share: float

    def to_json(self) -> str:
        """One text; a file's entry is in it once."""
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
