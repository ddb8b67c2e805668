"""Assigns tuples to the parts of a load, and writes the part of a task.

Cells of the main summary, ordered by zone and bucket, are packed into parts of similar size. Most cells are in one
part; one that is too large is split by a hash of its tuples. So no part exceeds the mean by more than half, whatever
the skew: `packed` keeps all within 0.8 to 1.2 of the goal, except the last, which has the remainder.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from promising.index.load_plan import LoadPlan, Shape
from promising.index.schema import TYPES
from promising.loaders.column_mapping import value

SMALLEST, LARGEST = 1 << 19, 1 << 20  # approximate tuples per part
MOST_CELLS = 1 << 17  # beyond this, neighbouring cells are merged
FULL = 1 << 21  # tuples after which a task starts another part, if its own is far larger than planned
SLACK = 0.2
ENTRIES = "rows BIGINT, entry STRING"


@dataclass(frozen=True)
class Cells:
    """The cells of a load: `sql` computes a tuple's cell, from 0 to `count` - 1, neighbours in order."""

    sql: str
    count: int


def cells(plan: LoadPlan, shape: Shape, latest: int) -> Cells:
    """The cells that tuples up to `latest` can be in."""
    if shape.key is None:
        return Cells("0", 1)
    time = value(list(plan.types).index(plan.time))
    cases: list[str] = []
    zones = 0
    above = [latest + 1, *(first for first, _ in shape.zones)]
    for (first, length), end in reversed(list(zip(shape.zones, above, strict=False))):
        cases.insert(0, f"WHEN {time} >= {first} THEN {zones} + ({time} - {first}) DIV {length}")
        zones += max(0, -(-(end - first) // length))
    zones = max(zones, 1)
    together = max(0, (zones - 1).bit_length() - (MOST_CELLS.bit_length() - 1))
    zones = ((zones - 1) >> together) + 1
    bits = min(shape.buckets.bit_length() - 1, (MOST_CELLS // zones).bit_length() - 1)
    sql = f"shiftright(CASE {' '.join(cases)} ELSE 0 END, {together})"
    if bits:
        key = value(list(plan.types).index(shape.key))
        # Spark SQL cannot express the least BIGINT as a literal: it parses the digits before the sign.
        hashed = f"xxhash64(CAST('{plan.seed}' AS BIGINT), {key})"
        sql = f"{sql} * {1 << bits} + shiftrightunsigned({hashed}, {64 - bits})"
    return Cells(sql, zones << bits)


@dataclass(frozen=True)
class Packed:
    """Where each cell begins on a line of `parts` units, and its length: 0 for a cell within one part."""

    begins: NDArray[np.float64]
    lengths: NDArray[np.float64]
    parts: int

    def sql(self, cells: Cells, columns: int) -> str:
        """The part of a tuple. Deterministic, so that a retried task gets the same tuples."""
        begins = ",".join(f"{begin:.9g}" for begin in self.begins)
        part = f"get(CAST(split('{begins}', ',') AS ARRAY<DOUBLE>), CAST({cells.sql} AS INT))"
        if self.lengths.any():
            lengths = ",".join(f"{length:.9g}" for length in self.lengths)
            length = f"get(CAST(split('{lengths}', ',') AS ARRAY<DOUBLE>), CAST({cells.sql} AS INT))"
            spread = f"xxhash64({', '.join(value(place) for place in range(columns))})"
            share = f"shiftrightunsigned({spread}, 11) * {2.0**-53!r}D"
            part = f"{part} + CASE WHEN {length} > 0 THEN {share} * {length} ELSE 0 END"
        return f"least({self.parts - 1}, CAST({part} AS INT))"


def packed(counts: NDArray[np.int64], cores: int) -> Packed:
    total = int(counts.sum())
    goal = min(max(total // (4 * cores), SMALLEST), LARGEST)
    goal = max(1, -(-total // max(1, round(total / goal))))
    begins, lengths = np.zeros(len(counts)), np.zeros(len(counts))
    part, held = 0, 0
    for cell, count in enumerate(counts.tolist()):
        closes = held >= (1 - SLACK) * goal and abs(held + count - goal) > abs(goal - held)
        if count and (closes or (held >= (1 - SLACK) * goal and held + count > (1 + SLACK) * goal)):
            part, held = part + 1, 0
        if held + count <= (1 + SLACK) * goal:
            begins[cell], held = part + 0.5, held + count
        else:
            begins[cell], lengths[cell] = part + held / goal, count / goal
            part, held = part + (held + count) // goal, (held + count) % goal
    return Packed(begins, lengths, part + (held > 0))


def write(place: str, plan: str, shape: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the tuples of a task as a part of the package in `place`; yields its entry.

    Every attempt at a task writes to other file names; only the entry of the successful one is used.
    """
    from pyspark import TaskContext  # noqa: PLC0415

    context = TaskContext.get()
    assert context is not None
    planned, shaped = LoadPlan.from_json(plan), Shape.from_json(shape)
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(part.num_rows for part in held) >= FULL:
            yield _written(place, planned, shaped, context.partitionId(), held)
            held = []
    if any(batch.num_rows for batch in held):
        yield _written(place, planned, shaped, context.partitionId(), held)


def _written(place: str, plan: LoadPlan, shape: Shape, number: int, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    from promising.index.storage.package import write_part  # noqa: PLC0415  # compiles: for those who write alone

    table = pa.Table.from_batches(batches)
    columns = {
        name: table.column(place).cast(TYPES[kind]).combine_chunks()
        for place, (name, kind) in enumerate(plan.types.items())
    }
    entry = write_part(place, f"{number:05d}-{uuid4().hex}", plan, shape, pa.table(columns))
    return pa.RecordBatch.from_pydict({"rows": [table.num_rows], "entry": [json.dumps(entry)]})
