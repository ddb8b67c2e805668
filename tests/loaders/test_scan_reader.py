"""What an executor reads of a cold file is what other readers of Parquet find there, in the stream's types."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import promising.index.log
from promising.errors import DataDamaged
from promising.index.cold_scan import ColdScan
from promising.index.instants import EVER
from promising.index.schema import TYPES
from promising.index.snapshot import Snapshot
from promising.index.storage.store import Store
from promising.index.storage.store_options import StoreOptions
from promising.loaders.scan_reader import read_piece

SCHEMA = {"ts": "timestamp", "k": "int", "#w": "string", "x": "float", "ok": "bool", "at": "timestamp"}


@pytest.fixture
def scan(tmp_path, monkeypatch):
    monkeypatch.setattr(promising.index.log, "CHUNK", 64)
    monkeypatch.setattr("promising.index.storage.cold_layout.SMALL", 16)
    options = StoreOptions(hot_tuples=0, run_tuples=256, sync="relaxed")
    with Store.open(tmp_path / "store", clock=lambda: 1 << 60, options=options) as store:
        stream = store.create_stream("a", SCHEMA, "ts")
        stream.create_summary("s", "k", granularity=200, collapse=(2, 5))
        n = np.arange(2000)
        stream.append(
            {
                "ts": n,
                "k": n % 37,
                "#w": [None if i % 5 == 0 else f"ü{i % 11}" for i in n.tolist()],
                "x": [None if i % 7 == 0 else i / 4 for i in n.tolist()],
                "ok": [None if i % 3 == 0 else i % 2 == 0 for i in n.tolist()],
                "at": [None if i % 9 == 0 else int(i) for i in n.tolist()],
            }
        )
        store.checkpoint()
        yield ColdScan(Snapshot(stream, *EVER), {}, list(SCHEMA)).scan("x", rarest=False)


def test_every_type_comes_as_other_readers_find_it(scan):
    assert sum(len(piece.groups) for piece in scan.pieces) > 10
    for piece in scan.pieces:
        read: list[int] = []
        found = pa.concat_tables(list(read_piece(piece, scan, read.append)))
        other = pq.ParquetFile(piece.path).read_row_groups(piece.groups)
        assert found.schema == pa.schema([(name, TYPES[kind]) for name, kind in SCHEMA.items()])
        for name in SCHEMA:
            expected = other["##w" if name == "#w" else name]
            assert found[name].to_pylist() == expected.to_pylist()
        assert sum(read[1:]) == piece.bytes  # the first is the footer


def test_damage_is_found(scan):
    piece = scan.pieces[0]
    with open(piece.path, "r+b") as file:
        file.seek(100)
        (byte,) = file.read(1)
        file.seek(100)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(DataDamaged, match="fails its checksum"):
        list(read_piece(piece, scan))
