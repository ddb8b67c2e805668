"""Runs a query on Spark: the service plans what to read, executors read it at its source.

The answer is the service's as of planning; with a share below one, exactly its rows with the most promising keys.
"""

import json
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from promising.index.scan_plan import Piece, Scan, ScanPlan
from promising.loaders.scan_reader import Connect
from promising.loaders.shipping import classic, remote, ship, undisturbed

SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
}
"""The statement is written for these settings; the caller's session retains its own."""
TASKS = 4  # per core: short tasks balance long ones
LEAST = 1 << 20  # bytes that justify a task
ARRIVALS = 1 << 16  # fetched from memory at once


@dataclass
class Figures:
    """What a query reads of its columns, and the total.

    bytes_planned, bytes_total, groups_read, groups_total: of cold files. tuples_warm: tuples fetched from the service.
    expected_rows: before further conditions; expected_share: their share of the whole answer. bytes_read: read by
    executors so far, including footers, tuples in memory and repeated tasks; final when the answer is complete.
    """

    bytes_planned: int
    bytes_total: int
    groups_read: int
    groups_total: int
    tuples_warm: int
    expected_rows: float
    expected_share: float
    counter: Any

    @property
    def bytes_read(self) -> int:
        return int(self.counter.value)


def scale_out(spark: Any, connect: Connect, sql: str, *, share: float = 1.0) -> tuple[Any, Figures]:
    """The answer to a SELECT as a lazy DataFrame, and figures.

    connect: opens a session on the service, here and, pickled, in the executors.
    share: below 1, only the most promising keys, as many as make up that share of the expected output.
    """
    with undisturbed(classic(spark)):
        with connect() as service:
            plan = service.plan_scan(sql, share=share)
        ship(spark)
        inner = spark.newSession()
        for name, value in SETTINGS.items():
            inner.conf.set(name, value)
        counter = spark.sparkContext.accumulator(0)
        cores = spark.sparkContext.defaultParallelism
        views = [scan.alias for scan in plan.scans]
        try:
            for scan, key in zip(plan.scans, plan.keys, strict=True):
                frame = _frame(inner, scan, connect, counter, cores)
                _only(inner, frame, plan, key).createOrReplaceTempView(f"`{scan.alias.replace('`', '``')}`")
            answer = inner.sql(plan.sql)
        finally:
            for view in views:
                inner.catalog.dropTempView(view)
        return answer, _figures(plan, counter)


def _figures(plan: ScanPlan, counter: Any) -> Figures:
    scans = plan.scans
    return Figures(
        sum(scan.bytes for scan in scans),
        sum(scan.total_bytes for scan in scans),
        sum(scan.groups for scan in scans),
        sum(scan.total_groups for scan in scans),
        sum(last - first for scan in scans for first, last in scan.warm),
        plan.expected_rows,
        plan.share,
        counter,
    )


def _frame(spark: Any, scan: Scan, connect: Connect, counter: Any, cores: int) -> Any:
    from pyspark.sql import types  # noqa: PLC0415

    kinds = {
        "int": types.LongType(),
        "float": types.DoubleType(),
        "string": types.StringType(),
        "bool": types.BooleanType(),
        "timestamp": types.TimestampNTZType(),
    }
    schema = types.StructType([types.StructField(name, kinds[scan.types[name]]) for name in scan.columns])
    tasks = _tasks(scan, cores)
    if not tasks:
        return spark.createDataFrame([], schema)
    asked = json.dumps(asdict(replace(scan, pieces=[], warm=[])))
    task = remote("promising.loaders.scan_reader", "read_tasks", asked, tasks, connect, counter)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(task, schema)


def _tasks(scan: Scan, cores: int) -> list[list[dict[str, Any]]]:
    """Pieces and ranges of arrivals, distributed evenly over tasks."""
    width = sum(8 if scan.types[name] != "string" else 32 for name in scan.columns)
    total = scan.bytes + width * sum(last - first for first, last in scan.warm)
    size = max(total // (TASKS * cores), LEAST)
    parts: list[tuple[int, dict[str, Any]]] = []
    for piece in _whole(scan.pieces):
        parts += [(part.bytes, {"piece": asdict(part)}) for part in _cut(piece, size)]
    for first, last in scan.warm:
        for at in range(first, last, ARRIVALS):
            stop = min(at + ARRIVALS, last)
            parts.append(((stop - at) * width, {"warm": (at, stop)}))
    parts.sort(key=lambda part: -part[0])
    tasks: list[list[dict[str, Any]]] = [[] for _ in range(min(len(parts), -(-total // size)))]
    loads = [0] * len(tasks)
    for cost, part in parts:
        least = loads.index(min(loads))
        tasks[least].append(part)
        loads[least] += cost
    return tasks


def _whole(pieces: list[Piece]) -> Iterator[Piece]:
    """One piece per file, so that its footer is read once; order does not matter if everything is read."""
    files: dict[str, list[Piece]] = {}
    for piece in pieces:
        files.setdefault(piece.path, []).append(piece)
    for parts in files.values():
        groups = sorted(group for part in parts for group in part.groups)
        yield replace(parts[0], groups=groups, bytes=sum(part.bytes for part in parts))


def _cut(piece: Piece, size: int) -> Iterator[Piece]:
    each = max(1, len(piece.groups) * size // max(piece.bytes, 1))
    for at in range(0, len(piece.groups), each):
        groups = piece.groups[at : at + each]
        yield replace(piece, groups=groups, bytes=piece.bytes * len(groups) // len(piece.groups))


def _only(spark: Any, frame: Any, plan: ScanPlan, key: str | None) -> Any:
    if plan.hashes is None:
        return frame
    from pyspark.sql import functions as f  # noqa: PLC0415

    assert key is not None
    name = f"hash_{uuid.uuid4().hex}"
    wanted = spark.createDataFrame(pa.table({name: pa.array(plan.hashes, pa.int64())}))
    column = frame[f"`{key.replace('`', '``')}`"]
    hashed = f.xxhash64(f.lit(plan.seed).cast("bigint"), column)
    return frame.join(f.broadcast(wanted), hashed == wanted[name], "left_semi")
