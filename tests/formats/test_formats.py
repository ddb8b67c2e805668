"""Files that releases before this one have left on disks: each stays readable, with the content that is stated here.

The pages of `docs/formats/` show bytes of these files; what they show is what is there.
"""

import json
import re
import shutil
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from promising.errors import ProducerFenced, SequenceTooOld
from promising.index.check import check_stream, check_table
from promising.index.ledger import Ledger
from promising.index.regions import Appended
from promising.index.storage import records
from promising.index.storage.checksums import crc32c
from promising.index.storage.cold import Cold
from promising.index.storage.disk import Disk
from promising.index.storage.image import read_image
from promising.index.storage.manifest import Manifest
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.index.storage.table_file import unpack
from promising.index.storage.verify import verify
from promising.index.storage.wal import Wal
from promising.index.table import Table
from promising.summaries.hashing import hash_keys
from tests.formats.make import BATCHES, KEPT, NOW, OLD, RATES, TESTDATA

PAGES = Path(__file__).parents[2] / "docs" / "formats"
SHOWN = {
    "wal": "wal-2.wal",
    "image": "image-4.image",
    "manifest": "manifest-1.sqlite",
    "cold": "cold-2.parquet",
    "table": "table-1.arrow",
}
LINE = re.compile(r"^\| (\d+) \| (\d+) \| (.+?) \| (`.+`|0x[0-9a-f]+|\d+) \|$", re.MULTILINE)
SPAN = re.compile(r"(\d+) to (\d+)")


def test_there_is_a_file_of_every_format():
    assert {path.name for path in TESTDATA.iterdir()} == {*KEPT, *OLD, "cold-1.json", "cold-2.json"}


# --- the pages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", SHOWN)
def test_a_page_shows_what_is_there(page):
    content = (TESTDATA / SHOWN[page]).read_bytes()
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    assert f"`{SHOWN[page]}`" in text
    lines = LINE.findall(text)
    assert len(lines) >= 3
    for at, size, field, value in lines:
        there = content[int(at) : int(at) + int(size)]
        assert len(there) == int(size), field
        if value.startswith("`"):
            assert there == value.strip("`").encode().decode("unicode_escape").encode("latin-1"), field
        else:
            assert int.from_bytes(there, "little") == int(value, 0), field
        if field.startswith("CRC of"):
            covered = [content[int(first) : int(last)] for first, last in SPAN.findall(field)]
            assert crc32c(*covered) == int(value, 0), field


def test_the_page_of_the_manifest_has_its_tables():
    text = (PAGES / "manifest.md").read_text(encoding="utf-8")
    content = (TESTDATA / "manifest-1.sqlite").read_bytes()
    shown = re.findall(r"^CREATE TABLE .*$", text, re.MULTILINE)
    assert len(shown) == 2
    assert all(table.encode() in content for table in shown)


# --- the files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_log(tmp_path, version):
    (tmp_path / "wal").mkdir()
    shutil.copyfile(TESTDATA / f"wal-{version}.wal", tmp_path / "wal" / "0000000000000001.wal")
    wal = Wal(Disk(), tmp_path / "wal", aside=tmp_path / "aside")
    found = list(wal.recover(1))
    wal.close()
    assert (wal.damages, wal.cut, wal.last) == ([], None, 5 if version == 1 else 6)
    kinds = [records.APPEND, records.ADVANCE, records.CREATE_SUMMARY, records.DROP_SUMMARY, records.BEGIN, records.OPEN]
    assert [(record.lsn, record.kind) for record in found] == [*enumerate(kinds, 1)][: wal.last]
    batch = records.unpack_append(found[0].payload)
    assert (batch.tuples, batch.producer, batch.sequence) == (3, "till 7", 41)
    assert batch.added == Appended(3, {"too_old": 2})
    assert (batch.epoch, batch.at) == ((0, None) if version == 1 else (2, NOW))
    ts, word, price = batch.columns["ts"], batch.columns["word"], batch.columns["price"]
    assert list(batch.columns) == ["ts", "word", "price"]
    assert ts.values is not None and ts.values.tolist() == [1_000_000, 2_000_000, 3_000_000]
    assert (word.text.to_pylist(), word.nulls) == (["a", "", "été"], None)
    assert price.values is not None and price.values.tolist() == [0.5, 0.0, -1.25]
    assert price.nulls is not None and price.nulls.tolist() == [False, True, False]
    others = [records.unpack_json(record.payload) for record in found[1:]]
    made, dropped = {"name": "words", "key": "word"}, {"name": "words"}
    opened = [] if version == 1 else [{"producer": "till 7", "epoch": 3, "at": NOW + 1}]
    assert others == [{"watermark": 4_000_000}, made, dropped, {"name": "sales"}, *opened]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_image(version):
    tree = read_image(Disk(), TESTDATA / f"image-{version}.image")
    if version > 1:
        _check_ledger(tree.pop("ledger"))
    arrays = {name: value for name, value in tree.items() if isinstance(value, np.ndarray)}
    assert {name: value for name, value in tree.items() if name not in arrays} == {
        "none": None,
        "flag": True,
        "whole": -(1 << 62),
        "real": 0.1,
        "infinite": float("inf"),
        "text": "été",
        "bytes": b"\x00\x01\x02",
        "list": [1, "two", {"three": b"3"}],
        "$dollar": "a key that starts with a dollar",
    }
    assert {name: (str(a.dtype), a.tolist()) for name, a in arrays.items()} == {
        "int64": ("int64", [[0, 1, 2], [3, 4, 5]]),
        "uint8": ("uint8", [7, 8, 9]),
        "float64": ("float64", [0.5, -0.0]),
        "empty": ("int32", []),
    }
    assert arrays["empty"].shape == (0, 4)
    assert np.signbit(arrays["float64"][1])


def _check_ledger(image: Any):
    ledger = Ledger()
    ledger.restore(image)
    assert ledger.find("till 7", 41, 2) == Appended(3, {"too_old": 2}, duplicate=True)
    assert ledger.find("0123456789abcdef01234567", 1) == Appended(4, duplicate=True)
    with pytest.raises(ProducerFenced):
        ledger.find("till 7", 42, 1)
    with pytest.raises(SequenceTooOld):
        ledger.find("till 1", 9)
    assert ledger.find("till 1", 10) is None
    assert ledger.named.producers["till 7"].at == NOW


def test_manifest(tmp_path):
    shutil.copyfile(TESTDATA / "manifest-1.sqlite", tmp_path / "manifest.sqlite")
    manifest = Manifest.open(tmp_path / "manifest.sqlite", create=False)
    assert manifest.all("store") == {"store": {"id": "feedbeef", "seed": 77, "cold": None}}
    assert manifest.all("stream") == {"abc": {"name": "café"}}
    assert manifest.all("query") == {}
    manifest.close()


@pytest.mark.parametrize("name", ["cold-1", "cold-2"])
def test_cold_tuples(name, tmp_path):
    """The older one does not count keys, nor say where a NaN is."""
    shutil.copyfile(TESTDATA / f"{name}.parquet", tmp_path / "0000000000000001.parquet")
    cold = Cold(Disk(), tmp_path)
    cold.open(1, json.loads((TESTDATA / f"{name}.json").read_text(encoding="utf-8")))
    whole = cold.read_whole(1)
    found = {
        name: (column.text if column.values is None else column.values).tolist()
        for name, column in whole.columns.items()
    }
    ts = whole.columns["ts"].values
    assert ts is not None and (ts // 1_000_000).tolist() == [5, 1, 2, 3, 4, 6]
    assert found["item"] == [9, 7, 7, 8, 9, 7]
    assert [w for i, w in enumerate(found["word"]) if i != 2] == ["e", "a", "c", "été", ""]
    assert [p for i, p in enumerate(found["price"]) if i != 3] == [0.5, 1.5, 2.5, 4.5, 5.5]
    assert found["paid"] == [1, 0, 1, 0, 1, 0]
    nulls = {name: np.flatnonzero(c.nulls).tolist() for name, c in whole.columns.items() if c.nulls is not None}
    assert nulls == {"word": [2], "price": [3]}
    assert (whole.zone // 1_000_000).tolist() == [4, 0, 0, 0, 4, 4]
    assert whole.bucket.tolist() == [1, 0, 0, 1, 1, 0]
    some = cold.column(1, "item", np.array([5, 0, 3], np.int32))
    assert some.values is not None and some.values.tolist() == [7, 9, 8]
    footer = cold.file(1)[1]
    counts = footer.counts()
    if name == "cold-1":
        assert footer.key is None and counts is None
        return
    assert footer.key == "item" and counts is not None
    hashes = hash_keys(np.array(found["item"]), 77)
    for group in range(len(footer.rows)):
        first, last = counts.starts[group : group + 2]
        parts, tuples = np.unique(hashes[footer.group_of == group] >> np.uint64(52), return_counts=True)
        assert counts.lg[group] == 12
        assert counts.parts[first:last].tolist() == parts.tolist()
        assert counts.tuples[first:last].tolist() == tuples.tolist()


def test_table():
    table = Table("rates", RATES, "code")
    table.replay(unpack((TESTDATA / "table-1.arrow").read_bytes(), table.schema))
    assert check_table(table) == []
    assert table.rows().to_pydict() == {
        "code": ["EUR", "USD"],
        "rate": [1.25, 0.5],
        "day": [None, datetime(2026, 1, 1)],
        "old": [None, True],
    }
    assert (table.base, table.changes, table.versions) == (1, 3, 4)
    was = table.find(["EUR", "été", "USD"], np.array([1, 1, 1]))
    assert (was.tolist(), table.find(["EUR", "été", "USD"]).tolist()) == ([0, 1, -1], [2, -1, 3])
    assert table.take("rate", was[:2]).to_pylist() == [1.0, None]
    assert table.change_at("sales", np.array([0, 4, 5])).tolist() == [1, 1, 3]
    assert table.change_at("visits", np.array([0, 1, 2])).tolist() == [1, 2, 3]


def test_store(tmp_path):
    with zipfile.ZipFile(TESTDATA / "store-1.zip") as packed:
        packed.extractall(tmp_path)
    assert len(list(tmp_path.glob("streams/*/checkpoint/*.image"))) == 2
    assert len(list(tmp_path.glob("streams/*/cold/*.parquet"))) == 1
    assert verify(tmp_path) == []
    with Store.open(tmp_path, clock=lambda: 1 << 60, options=StoreOptions(hot_tuples=0)) as store:
        assert (store.seed, store.report, store.damages) == (77, [], {})
        assert store.queries == {"watch": {"name": "watch", "statement": "SELECT * FROM sales", "reads": ["sales"]}}
        sales = store.streams["sales"]
        total = sum(BATCHES)
        assert total == 19_884
        assert (sales.accepted, sales.kept) == (total, total)
        assert (sales.latest, sales.watermark) == ((total - 1) * 100_000, (total - 1) * 100_000 - 1_000_000)
        assert [sales.added("till", n) for n in (1, 2, 3, 4)] == [*(Appended(n, {}, True) for n in BATCHES), None]
        assert check_stream(sales) == []
        assert {n: (s.key, s.structure, s.count) for n, s in sales.summaries.items()} == {
            "items": ("item", "adaptive", total),
            "words": ("word", "grid", total),
            "plain": ("item", "none", total),
        }
        for summary, key in (("items", 7), ("words", "item 7"), ("plain", 7)):
            _, table = sales.summaries[summary].fetch([key])
            ids = np.sort(table.column("ts").cast("int64").to_numpy() // 100_000)
            assert ids.tolist() == list(range(7, total, 10))
            assert set(table.column("word").to_pylist()) == {"item 7"}
            assert table.column("price").null_count == 0
            assert table.column("paid").to_pylist() == [False] * len(ids)
        _, table = sales.summaries["items"].fetch([8])
        assert table.column("price").null_count == sum(i % 4 == 0 for i in range(8, total, 10))
        assert sales.append({"ts": [0], "item": [7], "word": ["x"], "price": [1.0], "paid": [True]}).accepted == 1
    assert verify(tmp_path) == []
