"""Changes of a table as bytes, one or many: three Arrow IPC streams, one after the other.

The manifest has the size and the checksum of all of it.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa

from promising.errors import BatchError, DataDamaged
from promising.index.growing import to_arrow
from promising.index.row_versions import TableRecord
from promising.index.schema import TYPES, Fields
from promising.index.storage.checksums import Bytes

META = b"promising"
VERSIONS = pa.schema([("number", pa.int64()), ("born", pa.int64())])
ENDED = pa.schema([("number", pa.int64()), ("died", pa.int64())])


def pack(record: TableRecord, fields: Fields) -> Bytes:
    """The bytes of a file."""
    said = {"first": record.first, "following": record.following, "positions": record.positions}
    meta = json.dumps(said, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
    rows = [to_arrow(kind, record.rows[name]) for name, kind in fields.types.items()]
    parts = [
        pa.Table.from_arrays(rows, schema=_schema(fields).with_metadata({META: meta})),
        pa.Table.from_arrays([record.numbers, record.born], schema=VERSIONS),
        pa.Table.from_arrays([record.ended, record.died], schema=ENDED),
    ]
    sink = pa.BufferOutputStream()
    for part in parts:
        with pa.ipc.new_stream(sink, part.schema) as writer:
            writer.write_table(part)
    return memoryview(sink.getvalue())


def unpack(content: Bytes, fields: Fields) -> TableRecord:
    """What was packed; raises `DataDamaged`."""
    try:
        source = pa.BufferReader(content)
        rows, versions, ended = (pa.ipc.open_stream(source).read_all() for _ in range(3))
        said = json.loads(rows.schema.metadata[META])
        if source.tell() != len(content):
            raise ValueError("there is more than three streams")
        for part, schema in ((rows, _schema(fields)), (versions, VERSIONS), (ended, ENDED)):
            if part.schema.remove_metadata() != schema:
                raise ValueError(f"its columns are {', '.join(part.schema.names)}")
        if len(rows) != len(versions):
            raise ValueError("its rows are not its versions")
        columns = {name: fields.column(name, rows.column(at), False) for at, name in enumerate(fields.types)}
        positions = [{str(name): int(at) for name, at in one.items()} for one in said["positions"]]
        numbers = [*_ints(versions), *_ints(ended)]
        return TableRecord(int(said["first"]), positions, int(said["following"]), columns, *numbers)
    except (pa.ArrowException, BatchError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise DataDamaged(f"it is no record of changes: {problem}") from problem


def _schema(fields: Fields) -> pa.Schema:
    return pa.schema([(name, TYPES[kind]) for name, kind in fields.types.items()])


def _ints(part: pa.Table) -> list[Any]:
    return [column.to_numpy().astype(np.int64) for column in part.columns]
