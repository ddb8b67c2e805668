"""A package: a load prepared elsewhere, with tuples in their final order, and what they add to each zone.

It is a folder, or a prefix under any URL that fsspec knows. Each part is two files: `<name>.parquet`, laid out like
cold tuples; and `<name>.sums`, an image compressed by zstd. `package.json` is written last and has all checksums:
without it there is no package. See `docs/formats/package.md`.
"""

import io
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from promising.errors import BadPackage, DataDamaged, NewerFormat
from promising.index.geometry import zone_starts
from promising.index.load_plan import LoadPlan, Shape, Summed
from promising.index.measures import Chosen, Source
from promising.index.prepared_load import Attached, Load, LoadPart, Sum
from promising.index.schema import Column, Schema
from promising.index.storage.checksums import crc32c
from promising.index.storage.cold_file import escaped, plain
from promising.index.storage.cold_layout import arranged, in_order, pack_arranged
from promising.index.storage.cold_place import place
from promising.index.storage.disk import Disk, StagingDisk
from promising.index.storage.image import pack_image, unpack_image
from promising.index.stream import Stream
from promising.index.zone import CoarseZone, distinct
from promising.summaries.hashing import hash_keys

FORMAT = 2  # in packages of format 1 zones have no measures
MANIFEST = "package.json"
MOST_ROWS = 1 << 22
NAME = r"[A-Za-z0-9_-]{1,100}"
Entry = dict[str, Any]
PART = {"name", "rows", "first", "last", "content", "nulls", "crc", "file", "sums"}
MIX = np.uint64(0x9E3779B97F4A7C15)


# --- written where the tuples are prepared ---------------------------------------------------------------------------


def write_part(url: str, name: str, plan: LoadPlan, shape: Shape, table: pa.Table) -> Entry:
    """Write tuples as one part; returns its entry for `write_manifest`. name: of the files, unique per attempt."""
    schema = Schema(plan.types, plan.time)
    columns, times, least, greatest = schema.read(table, frozenset(plan.keys))
    if len(times) > MOST_ROWS:
        raise BadPackage(f"{len(times):,} tuples in one part; {MOST_ROWS:,} is the most")
    hashes = {key: _hashes(columns[key], plan.seed) for key in plan.keys}
    zone, bucket = zone_starts(times, shape.zones), np.zeros(len(times), np.int64)
    if shape.key is not None and shape.buckets > 1:
        bucket = (hashes[shape.key].view(np.uint64) >> np.uint64(shape.shift)).astype(np.int64)
    order, heat = arranged(columns[shape.key or plan.time], zone, bucket)
    arrays = {column: in_order(columns[column], kind, order) for column, kind in plan.types.items()}
    data, entry = pack_arranged(plan.types, arrays, zone[order], bucket[order], heat, np.arange(len(order)))
    sums = pa.compress(b"".join(pack_image({"sums": _sums(plan, shape, hashes, times, columns)})), "zstd", asbytes=True)
    to = place(StagingDisk(), url)
    to.write(f"{name}.parquet", data)
    to.write(f"{name}.sums", sums)
    return {
        "name": name,
        "rows": len(times),
        "first": least,
        "last": greatest,
        "cells": len(np.unique(zone[order] * shape.buckets + bucket[order])),
        "content": content(columns),
        "nulls": [column for column, values in columns.items() if values.nulls is not None],
        "crc": crc32c(data),
        "file": entry,
        "sums": {"bytes": len(sums), "crc": crc32c(sums)},
    }


def _hashes(column: Column, seed: int) -> NDArray[np.int64]:
    return hash_keys(column.values if column.values is not None else column.text, seed).view(np.int64)


def _sums(
    plan: LoadPlan,
    shape: Shape,
    hashes: dict[str, NDArray[np.int64]],
    times: NDArray[np.int64],
    columns: dict[str, Column],
) -> dict[str, Any]:
    """By summary, what the tuples add to each zone of `G_2..G_m`."""
    out: dict[str, Any] = {}
    if shape.watermark is None:
        return out
    for definition in plan.summaries:
        summed = Summed.of(definition, plan)
        if summed.structured:
            out[summed.name] = [
                {
                    "start": zone.start,
                    "length": length,
                    "counters": zone.counters,
                    "bits": zone.bits,
                    "cells": zone.cells,
                    "first": zone.first,
                    "last": zone.last,
                    "measures": zone.measured.image(),
                }
                for zone, length in _zones(summed, shape.watermark, hashes[summed.key], times, columns)
            ]
    return out


def _zones(
    summed: Summed,
    watermark: int,
    hashes: NDArray[np.int64],
    times: NDArray[np.int64],
    columns: dict[str, Column],
) -> Iterator[tuple[CoarseZone, int]]:
    zones = summed.zones(watermark)
    above = zones[0][0]
    for horizon, length in zones[1:]:
        inside = np.flatnonzero((times >= horizon) & (times < above))
        numbers = times[inside] // length
        for number in np.unique(numbers).tolist():
            these = inside[numbers == number]
            zone = CoarseZone.empty(number, length, summed.geometry, summed.sizes, summed.measures)
            zone.summarize(*distinct(hashes[these]), summed.sizes)
            zone.measured.add(Source(hashes[these], Chosen(columns, these)))
            zone.spread(int(times[these].min()), int(times[these].max()))
            yield zone, length
        above = horizon


def content(columns: dict[str, Column]) -> int:
    """An order-independent digest of tuples; those of parts add up."""
    total: Any = np.uint64(0)
    for number, column in enumerate(columns.values(), 1):
        if column.values is None:
            words = hash_keys(column.text.fill_null(""), number)
        else:
            bits = column.values.astype(np.int64) if column.values.dtype.itemsize < 8 else column.values.view(np.int64)
            words = hash_keys(bits, number)
        if column.nulls is not None:
            words = np.where(column.nulls, MIX, words)
        total = total * MIX + words
    return int(hash_keys(total.view(np.int64), 0).sum(dtype=np.uint64))


def _sign(seed: int) -> int:
    """A digest of the seed that does not reveal it."""
    return crc32c(f"promising seed {seed}".encode())


def write_manifest(
    url: str, plan: LoadPlan, shape: Shape, token: str, parts: list[Entry], refused: dict[str, int]
) -> None:
    """Complete a package of the parts: written last."""
    folder = place(StagingDisk(), url)
    there = set(folder.names())
    missing = [f for part in parts for f in (f"{part['name']}.parquet", f"{part['name']}.sums") if f not in there]
    if missing:
        raise BadPackage(f"{folder.path(missing[0])} is not there, and {len(missing) - 1} more; run the load again")
    known = {**asdict(plan), "seed": None}  # a secret of the installation
    body = {
        "token": token,
        "stream": plan.stream,
        "plan": known,
        "seed": _sign(plan.seed),
        "shape": asdict(shape),
        "parts": sorted(parts, key=lambda part: (part["file"]["zones"], part["name"])),
        "refused": dict(refused),
    }
    text = json.dumps(body)
    whole = {"format": FORMAT, "crc": crc32c(text.encode()), "package": body}
    folder.write(MANIFEST, json.dumps(whole).encode())


# --- read where they are attached ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Package:
    """A complete package, by its manifest."""

    path: str
    stream: str
    seed: int
    types: dict[str, str]
    time: str
    watermark: int
    summaries: dict[str, dict[str, Any]]
    parts: list[Entry]
    refused: dict[str, int]

    @property
    def rows(self) -> int:
        return sum(int(part["rows"]) for part in self.parts)

    @property
    def digest(self) -> int:
        """A digest of its tuples: 62 bits, at least 1."""
        total: int = sum(part["content"] for part in self.parts) & ((1 << 64) - 1)
        said = json.dumps([total, self.rows, list(self.types.items())]).encode()
        return (total ^ (crc32c(said) << 29)) % ((1 << 62) - 1) + 1

    def check(self, stream: Stream) -> None:
        """Reject a package that was made for another stream."""
        if not self.parts:
            raise BadPackage(f"{self.path} has no tuples")
        if self.stream != stream.name:
            raise BadPackage(f"{self.path} was made for stream {self.stream!r}, not for {stream.name!r}")
        if self.seed != _sign(stream.seed):
            raise BadPackage(f"{self.path} was made for another installation: its keys are hashed by another seed")
        if (list(self.types.items()), self.time) != (list(stream.schema.types.items()), stream.schema.time):
            raise BadPackage(f"{self.path} has other columns than stream {stream.name!r} has now; run the load again")

    def read(self, entry: Entry) -> tuple[bytes, bytes]:
        """The two files of a part, checked."""
        folder = place(Disk(), self.path)
        found = []
        for name, bytes_, crc in (
            (f"{entry['name']}.parquet", entry["file"]["bytes"], entry["crc"]),
            (f"{entry['name']}.sums", entry["sums"]["bytes"], entry["sums"]["crc"]),
        ):
            data = folder.read_all(name)
            if len(data) != bytes_ or crc32c(data) != crc:
                raise DataDamaged(f"{folder.path(name)} is cut off or fails its checksum; run the load again")
            found.append(data)
        return found[0], found[1]

    def part(self, entry: Entry, files: tuple[bytes, bytes], stream: Stream, run: int | None) -> LoadPart:
        """A part for a stream: as `run`, or with its columns if that is None."""
        schema, seed = stream.schema, stream.seed
        keys = sorted({s.key for s in stream.summaries.values()} - set(entry["nulls"]))
        wanted = list(self.types) if run is None else list(dict.fromkeys((self.time, *keys)))
        file = pq.ParquetFile(io.BytesIO(files[0]))
        table = file.read([escaped(name) for name in wanted], use_threads=False)
        kinds = {name: self.types[name] for name in wanted}
        columns = {name: plain(table.column(escaped(name)), kind) for name, kind in kinds.items()}
        times = columns[schema.time].values
        assert times is not None
        tree: Any = unpack_image(f"{self.path}/{entry['name']}.sums", _unpacked(files[1]))
        return LoadPart(
            times,
            {key: _hashes(columns[key], seed) for key in keys},
            entry["nulls"],
            {name: [Sum(**one) for one in sums] for name, sums in tree["sums"].items()},
            run,
            columns if run is None else None,
        )

    def load(self, token: str, parts: list[LoadPart]) -> Load:
        """The load, with its parts read."""
        latest = max(entry["last"] for entry in self.parts)
        return Load(token, self.digest, self.watermark, latest, self.summaries, self.refused, parts)


def _unpacked(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        found: bytes = stream.read()
    return found


def read_manifest(url: str) -> Package:
    """The package there; `BadPackage` with the reason if there is none."""
    folder = place(Disk(), url)
    try:
        data = folder.read_all(MANIFEST)
    except DataDamaged:
        some = "there are files, but no" if folder.names() else "there is no"
        raise BadPackage(f"{url} is no finished package: {some} {MANIFEST}; run the load again") from None
    try:
        whole = json.loads(data)
        version, crc, body = whole["format"], whole["crc"], whole["package"]
    except (ValueError, KeyError, TypeError):
        raise DataDamaged(f"{folder.path(MANIFEST)} is cut off or damaged; run the load again") from None
    if isinstance(version, int) and version > FORMAT:
        raise NewerFormat(
            f"{folder.path(MANIFEST)} is a package of format {version}; this release reads up to {FORMAT}"
        )
    if crc32c(json.dumps(body).encode()) != crc:
        raise DataDamaged(f"{folder.path(MANIFEST)} fails its checksum; run the load again")
    try:
        return _package(url, body)
    except (KeyError, TypeError, ValueError) as problem:
        raise BadPackage(
            f"{folder.path(MANIFEST)} is no manifest of a package: {problem!r}; run the load again"
        ) from None


def _package(url: str, body: Any) -> Package:
    plan = body["plan"]
    found = Package(
        url,
        body["stream"],
        body["seed"],
        plan["types"],
        plan["time"],
        body["shape"]["watermark"],
        {made["name"]: made for made in plan["summaries"]},
        body["parts"],
        body["refused"],
    )
    for part in found.parts:
        if not re.fullmatch(NAME, part["name"]):  # it must stay in its folder
            raise ValueError(f"a part called {part['name']!r}")
        if not part.keys() >= PART or not {"bytes", "crc"} <= part["sums"].keys():
            raise ValueError(f"part {part['name']!r} is not all there")
    return found


def remove(url: str) -> None:
    """Remove a package, its manifest first, so that a rest is no package."""
    folder = place(Disk(), url)
    for name in sorted(folder.names(), key=lambda name: name != MANIFEST):
        folder.delete(name)
    if "://" not in url or url.startswith("file://"):
        with suppress(OSError):
            Path(url.removeprefix("file://")).rmdir()


def attach(stream: Stream, package: Package, token: str) -> Attached:
    """Attach a package to an in-memory stream."""
    package.check(stream)
    found = stream.loaded(token, package.digest)
    if found is not None:
        return found
    parts = [package.part(entry, package.read(entry), stream, None) for entry in package.parts]
    found = stream.attach(package.load(token, parts))
    stream.catch_up_all()
    return found
