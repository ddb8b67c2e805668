"""Rows of queries outside of memory: the interface that a store implements, and that the operators are given."""

from typing import Protocol

import pyarrow as pa

BATCH_BYTES = 1 << 14  # approximate size of a spilled batch
BATCH_ROWS = 1 << 13


class SpillFile(Protocol):
    """Batches of one schema, written first and then read, by number."""

    def __len__(self) -> int: ...

    def write(self, batch: pa.RecordBatch) -> None: ...

    def read(self, number: int) -> pa.RecordBatch: ...

    def close(self) -> None:
        """Delete the file. Idempotent; never fails."""


class Spill(Protocol):
    """Creates files for spilled rows."""

    def create(self, schema: pa.Schema) -> SpillFile: ...


def write(file: SpillFile, rows: pa.RecordBatch) -> None:
    """Write rows in batches of about `BATCH_BYTES` each."""
    each = max(min(rows.num_rows * BATCH_BYTES // max(rows.nbytes, 1), BATCH_ROWS), 1)
    for first in range(0, rows.num_rows, each):
        file.write(rows.slice(first, each))
