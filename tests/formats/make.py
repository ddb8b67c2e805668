"""Entry: `python -m tests.formats.make`: write the kept files of today's formats, those that are not there yet.

What is there is never written again: it stands for what releases before this one have left on disks. For a new version
of a format, give its file the new number here, and keep the test of the old one.
"""

import json
import shutil
import tempfile
import zipfile
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from promising.index import Options
from promising.index.ledger import WEEK, Ledger
from promising.index.regions import Appended
from promising.index.schema import Column
from promising.index.storage import records
from promising.index.storage.cold import Cold
from promising.index.storage.disk import Disk
from promising.index.storage.image import write_image
from promising.index.storage.manifest import Manifest
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.index.storage.table_file import pack
from promising.index.storage.wal import Wal
from promising.index.table import Table
from promising.summaries.hashing import hash_keys

TESTDATA = Path(__file__).parent / "testdata"

SMALL = Options(buckets=4, depth=3, width=8, maxlength=256, filter_bits=256, coarse_bits=512)
RATES = {"code": "string", "rate": "float", "day": "timestamp", "old": "bool"}
NOW = 1_700_000_000_000_000
BATCHES = (16_384, 3_000, 500)  # tuples; the first are as many as go cold together


def segment(path: Path) -> None:
    """A log of six records: a batch, the watermark, a summary made, one dropped, a stream begun, a producer opened."""
    with tempfile.TemporaryDirectory() as scratch:
        wal = Wal(Disk(), Path(scratch) / "wal", aside=Path(scratch))
        assert not list(wal.recover(1))
        columns = {
            "ts": Column(np.array([1_000_000, 2_000_000, 3_000_000]), None, None),
            "word": Column(None, pa.array(["a", "", "été"], pa.large_string()), None),
            "price": Column(np.array([0.5, 0.0, -1.25]), None, np.array([False, True, False])),
        }
        added = Appended(3, {"too_old": 2})
        wal.append(records.APPEND, records.pack_append(columns, 3, added, "till 7", 41, None, 2, NOW))
        wal.append(records.ADVANCE, records.pack_json({"watermark": 4_000_000}))
        wal.append(records.CREATE_SUMMARY, records.pack_json({"name": "words", "key": "word"}))
        wal.append(records.DROP_SUMMARY, records.pack_json({"name": "words"}))
        wal.append(records.BEGIN, records.pack_json({"name": "sales"}))
        wal.append(records.OPEN, records.pack_json({"producer": "till 7", "epoch": 3, "at": NOW + 1}))
        wal.close()
        shutil.copyfile(Path(scratch) / "wal" / "0000000000000001.wal", path)


def image(path: Path) -> None:
    """A tree with a value of every kind, and a ledger: a producer that opened an epoch, one that is only marked."""
    ledger = Ledger()
    ledger.note("till 1", 9, Appended(5), at=NOW - 2 * WEEK)
    ledger.note("0123456789abcdef01234567", 1, Appended(4), at=NOW)
    ledger.note("till 7", 41, Appended(3, {"too_old": 2}), epoch=2, at=NOW)
    write_image(
        Disk(),
        path,
        {
            "none": None,
            "flag": True,
            "whole": -(1 << 62),
            "real": 0.1,
            "infinite": float("inf"),
            "text": "été",
            "bytes": b"\x00\x01\x02",
            "list": [1, "two", {"three": b"3"}],
            "$dollar": "a key that starts with a dollar",
            "int64": np.arange(6, dtype=np.int64).reshape(2, 3),
            "uint8": np.array([7, 8, 9], np.uint8),
            "float64": np.array([0.5, -0.0]),
            "empty": np.empty((0, 4), np.int32),
            "ledger": ledger.image(),
        },
    )


def manifest(path: Path) -> None:
    made = Manifest.open(path, create=True)
    with made.change() as change:
        change.put("store", "store", {"id": "feedbeef", "seed": 77, "cold": None})
        change.put("stream", "abc", {"name": "café"})
        change.put("query", "gone", {"name": "gone"})
    with made.change() as change:
        change.delete("query", "gone")
    made.close()


def cold(path: Path) -> None:
    """Six tuples in two zones, of every type; its entry goes beside it."""
    types = {"ts": "timestamp", "item": "int", "word": "string", "price": "float", "paid": "bool"}
    columns = {
        "ts": Column(np.array([5, 1, 2, 3, 4, 6]) * 1_000_000, None, None),
        "item": Column(np.array([9, 7, 7, 8, 9, 7]), None, None),
        "word": Column(None, pa.array(["e", "a", None, "c", "été", ""], pa.large_string()), np.arange(6) == 2),
        "price": Column(np.array([0.5, 1.5, 2.5, 3.5, 4.5, 5.5]), None, np.arange(6) == 3),
        "paid": Column(np.array([1, 0, 1, 0, 1, 0], np.uint8), None, None),
    }
    zone = np.array([4, 0, 0, 0, 4, 4]) * 1_000_000
    bucket = np.array([1, 0, 0, 1, 1, 0])
    hashes = hash_keys(np.array([9, 7, 7, 8, 9, 7]), 77).view(np.int64)
    with tempfile.TemporaryDirectory() as scratch:
        entry = Cold(Disk(), Path(scratch)).write(1, types, columns, zone, bucket, "item", hashes)
        shutil.copyfile(Path(scratch) / "0000000000000001.parquet", path)
    path.with_suffix(".json").write_text(json.dumps(entry, indent=1) + "\n")


def table(path: Path) -> None:
    """All that a table remembers after three changes, of which it has forgotten what was before the first."""
    rates = Table("rates", RATES, "code")
    days = [datetime(2026, 1, day) for day in (1, 2)]
    rates.change({"code": ["EUR", "été"], "rate": [1.0, None], "day": days, "old": [False, True]}, None, {"sales": 3})
    rates.change({"code": ["EUR"], "rate": [1.25], "day": [None], "old": [None]}, None, {"sales": 5, "visits": 1})
    rates.trim({"sales": 4})
    rates.change({"code": ["USD"], "rate": [0.5], "day": days[:1], "old": [True]}, ["été"], {"sales": 5, "visits": 2})
    path.write_bytes(pack(rates.image(), rates.schema))


def batch(number: int) -> dict[str, object]:
    """Tuples of one of the store's batches: ten a second."""
    first = sum(BATCHES[:number])
    ids = np.arange(first, first + BATCHES[number])
    return {
        "ts": ids * 100_000,
        "item": ids % 10,
        "word": [f"item {i}" for i in (ids % 10).tolist()],
        "price": [None if i % 4 == 0 else i % 8 / 4 for i in ids.tolist()],
        "paid": ids % 2 == 0,
    }


def store(path: Path) -> None:
    """A store that was killed: two checkpoints, a run of cold tuples, and a batch in the log that no checkpoint has."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "store"
        types = {"ts": "timestamp", "item": "int", "word": "string", "price": "float", "paid": "bool"}
        options = StoreOptions(hot_tuples=0, run_tuples=BATCHES[0])
        with Store.open(folder, seed=77, clock=lambda: 1 << 60, options=options) as made:
            sales = made.create_stream("sales", types, "ts", max_tuples=1 << 17, lateness=1_000_000)
            geometry = {"granularity": 60_000_000, "collapse": (4, 5), "options": SMALL}
            sales.create_summary("items", "item", **geometry)  # type: ignore[arg-type]  # of several types
            sales.create_summary("words", "word", structure="grid", **geometry)  # type: ignore[arg-type]  # the same
            sales.create_summary("plain", "item", structure="none", **geometry)  # type: ignore[arg-type]  # the same
            made.put_query("watch", "SELECT * FROM sales", ["sales"])
            for number in range(len(BATCHES)):
                if number:
                    made.checkpoint()
                sales.append(batch(number), producer="till", sequence=number + 1)
            shutil.copytree(folder, Path(scratch) / "killed")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as packed:
            for file in sorted((Path(scratch) / "killed").rglob("*")):
                if file.is_file() and file.name != "LOCK" and not file.name.endswith(("-shm", "-wal")):
                    info = zipfile.ZipInfo(str(file.relative_to(Path(scratch) / "killed")))
                    packed.writestr(info, file.read_bytes(), zipfile.ZIP_LZMA)


KEPT = {
    "wal-2.wal": segment,
    "image-4.image": image,
    "manifest-1.sqlite": manifest,
    "cold-2.parquet": cold,
    "table-1.arrow": table,
    "store-1.zip": store,
}
OLD = {"wal-1.wal", "image-1.image", "image-2.image", "image-3.image", "cold-1.parquet"}  # of previous versions


def main() -> None:
    TESTDATA.mkdir(exist_ok=True)
    for name, write in KEPT.items():
        if not (TESTDATA / name).exists():
            write(TESTDATA / name)
            print(f"{name}: {(TESTDATA / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
