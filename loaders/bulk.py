"""Bulk load: Spark turns files of tuples into a package, which a service attaches atomically.

    listing     find the files and their fields
    checking    read, map and check every row; bad rows are quarantined
    planning    count tuples by cell, and pack the cells into parts
    writing     each task writes a part: tuples in order of zone, bucket and key, and the sums of every summary
    sealing     remove leftovers of other attempts, and write the manifest
    committing  the service attaches the package, all or nothing
    cleaning    remove the parts; the manifest stays, so that a repeated load is recognized

Until the service has answered, nothing of the load is in the stream. Repeating the load completes it: a finished
package is attached, an unfinished one is deleted and rebuilt.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException

from promising.errors import (
    BadPackage,
    BadSettings,
    CeilingReached,
    DataDamaged,
    DeadlineExceeded,
    MixedZones,
    NothingToLoad,
    PromisingError,
    SourceChanged,
    TokenReused,
    Unavailable,
)
from promising.index.load_plan import LoadPlan, Shape
from promising.index.prepared_load import Attached
from promising.index.storage.cold_place import Place, place
from promising.index.storage.disk import StagingDisk
from promising.index.storage.package import MANIFEST, Entry, Package, read_manifest, remove, write_manifest
from promising.loaders import input_files, shipping
from promising.loaders import load_parts as parts
from promising.loaders.column_mapping import BARE, FAULT, ORIGINAL, SOURCE, ZONED, Faults, Times, checked, value
from promising.loaders.service_protocol import Service
from promising.loaders.spark_jobs import Progress, Stages

ARROW_ROWS = 100_000  # per batch for a Python task
NOTE = "load.json"  # beside a package: its sources
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS),
}
SHOWN = 3  # refused rows shown by an error


@dataclass(frozen=True)
class Report:
    """The outcome of a load.

    rows: rows read. accepted: rows now in the stream. refused: rows by reason; invalid ones are quarantined, with file
    and text, those too old are not. duplicate: loaded before, nothing added. resumed: the package existed.
    """

    stream: str
    token: str
    rows: int
    accepted: int
    refused: dict[str, int]
    duplicate: bool
    resumed: bool
    parts: int
    cells: int
    bytes: int
    quarantine: str | None
    seconds: float
    stages: dict[str, float] = field(default_factory=dict)


def bulk_load(
    spark: Any,
    service: Service,
    stream: str,
    source: Any,
    *,
    staging: str,
    mapping: Mapping[str, str] | None = None,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    time_unit: str | None = None,
    time_zone: str | None = None,
    token: str | None = None,
    quarantine: str | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Report:
    """Load files, or a DataFrame, into a stream; idempotent: repeating it adds every valid row exactly once.

    source: files, folders or patterns, as in Spark: CSV with a header, JSON with one object per line, or Parquet. A
        DataFrame is first written to `staging`, as Parquet, so that retries see the same rows.
    staging: a folder or fsspec URL that the executors can write to and the service can read from.
    mapping: columns of the stream to fields of the files; unnecessary for equal names.
    format: csv, json or parquet, if the file names do not show it. options: of Spark's reader, for example `sep`.
    time_unit: of integers since 1970: s, ms, us or ns. time_zone: of times without one.
    token: the name of this load; by default derived from the files (path, size, date), the stream and the mapping. A
        DataFrame without one is a new load with every call.
    quarantine: a Spark path for invalid rows, as JSON, in a folder named by the token; by default beside the package.
    on_progress: receives progress. If it raises, the load stops.
    """
    job = Job(spark, service, stream, staging, quarantine, Times(time_unit, time_zone), on_progress)
    if hasattr(source, "write") and hasattr(source, "schema"):
        if format is not None or options:
            raise BadSettings("format and options are for files; a DataFrame has neither")
        token = secrets.token_hex(12) if token is None else _safe(token)
        with job.written(source, token) as folder, shipping.undisturbed(shipping.classic(spark)):
            return job.load(folder, dict(mapping or {}), "parquet", {}, token, asked=f"a DataFrame, {token}")
    with shipping.undisturbed(shipping.classic(spark)):
        return job.load(source, dict(mapping or {}), format, dict(options or {}), token)


class Job:
    def __init__(
        self,
        spark: Any,
        service: Service,
        stream: str,
        staging: str,
        quarantine: str | None,
        times: Times,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._spark = _session(shipping.classic(spark))
        self._service = service
        self._stream = stream
        self._staging = staging.rstrip("/") if "://" in staging else str(Path(staging).absolute())
        self._quarantine = quarantine
        self._times = times
        self._stages = Stages(spark, on_progress)

    @contextmanager
    def written(self, frame: Any, token: str) -> Iterator[str]:
        """The rows of a DataFrame as Parquet files, for the block."""
        folder = f"{self._staging}/{token}.frame"
        try:
            frame.write.mode("overwrite").parquet(folder)
            yield folder
        finally:
            remove(folder)

    def load(
        self,
        source: str | Sequence[str],
        mapping: dict[str, str],
        kind: str | None,
        options: dict[str, str],
        token: str | None,
        asked: str | None = None,
    ) -> Report:
        """Load files. asked: identifies the load; by default by its files."""
        stages = self._stages
        stages.begin("listing")
        files = input_files.find(self._spark, source)
        kind = input_files.format_of(files, kind)
        how = [kind, mapping, options, self._times.unit, self._times.zone]
        asked = asked or input_files.token_of(self._stream, files, how)
        token = asked if token is None else _safe(token)
        url = f"{self._staging}/{token}"
        self._check_note(url, asked, token)
        package = _finished(url)
        resumed = package is not None
        attached = self._attach(url, token, resumed) if package else None
        if attached is None:
            resumed = False
            attached = self._make(url, token, asked, files, kind, mapping, options)
            package = read_manifest(url)
        assert package is not None
        stages.begin("cleaning")
        _clean(url)
        stages.end()
        refused = {reason: rows for reason, rows in package.refused.items() if rows}
        bad = sum(rows for reason, rows in refused.items() if reason != "too_old")
        return Report(
            self._stream,
            token,
            package.rows + sum(refused.values()),
            attached.accepted,
            refused,
            attached.duplicate,
            resumed,
            len(package.parts),
            sum(entry["cells"] for entry in package.parts),
            sum(entry["file"]["bytes"] + entry["sums"]["bytes"] for entry in package.parts),
            self._refused_to(token) if bad else None,
            sum(stages.seconds.values()),
            dict(stages.seconds),
        )

    # --- what is there already ---------------------------------------------------------------------------------------

    def _check_note(self, url: str, asked: str, token: str) -> None:
        """A token names one load: an existing package under it must be of this load."""
        folder = _folder(url)
        if NOTE in folder.names():
            note = json.loads(folder.read_all(NOTE))
            if note["load"] != asked:
                raise TokenReused(
                    f"{url} was prepared for another load under the token {token!r}, of {note['files']:,} files from "
                    f"{note['first']} on, or these files have changed since. Give this load a token of its own; or "
                    "remove that folder, if the other load is not wanted any more"
                )

    def _attach(self, url: str, token: str, resumed: bool) -> Attached | None:
        """Attach the existing package; None if it was deleted because it cannot be attached."""
        self._stages.begin("committing")
        try:
            return self._service.attach(self._stream, url, token)
        except (BadPackage, DataDamaged):
            if not resumed:
                raise
            remove(url)  # built for a stream that has changed, or attached to a service that has since lost it
            return None
        except (Unavailable, DeadlineExceeded) as problem:
            raise type(problem)(
                f"{problem}. The load is prepared, in {url}, and may be in the stream or not: the same load again finds"
                " out and attaches it once"
            ) from problem

    # --- making a package --------------------------------------------------------------------------------------------

    def _make(
        self,
        url: str,
        token: str,
        asked: str,
        files: list[input_files.File],
        kind: str,
        mapping: dict[str, str],
        options: dict[str, str],
    ) -> Attached:
        plan = self._service.load_plan(self._stream)
        rows, faults = checked(plan, input_files.read(self._spark, files, kind, options), mapping, self._times)
        remove(url)
        note = {"load": asked, "files": len(files), "first": files[0].path}
        _folder(url).write(NOTE, json.dumps(note).encode())
        if kind != "parquet":
            rows = rows.persist(StorageLevel.DISK_ONLY)  # so that text is parsed once
        try:
            self._build(url, token, plan, rows, faults, files)
        finally:
            if kind != "parquet":
                rows.unpersist()
        attached = self._attach(url, token, resumed=False)
        assert attached is not None
        return attached

    def _build(
        self, url: str, token: str, plan: LoadPlan, rows: Any, faults: Faults, files: list[input_files.File]
    ) -> None:
        stages = self._stages
        stages.begin("checking")
        seen = self._check(plan, rows, token, faults)
        stages.begin("planning", seen.good)
        shape = plan.shaped(seen.latest)
        cells = parts.cells(plan, shape, seen.latest)
        time = value(list(plan.types).index(plan.time))
        kept = rows.where(f"{FAULT} IS NULL" + ("" if shape.oldest is None else f" AND {time} >= {shape.oldest}"))
        counts = self._count(kept, cells)
        total = int(counts.sum())
        if not total:
            raise NothingToLoad(
                f"all {seen.good:,} good rows are older than what stream {plan.stream!r} keeps, as its summaries say"
                " (GRANULARITY, COLLAPSE)"
            )
        if total > plan.capacity:
            raise CeilingReached(
                f"{total:,} tuples do not fit into stream {plan.stream!r}, which keeps up to {plan.capacity:,}: raise "
                "its max_tuples, or load fewer files"
            )
        stages.begin("writing", total)
        entries = self._write(url, plan, shape, kept, cells, counts)
        stages.begin("sealing", total)
        written = sum(entry["rows"] for entry in entries)
        changed = input_files.changed(self._spark, files)
        if changed or written != total:
            what = f"{changed} has changed" if changed else f"{total:,} rows became {written:,}"
            raise SourceChanged(f"{what} while it was loaded; load again when nobody writes to the sources any more")
        known = {f"{entry['name']}.{end}" for entry in entries for end in ("parquet", "sums")}
        _keep_only(_folder(url), {*known, NOTE})
        old = seen.good - total
        refused = {**seen.refused, **({"too_old": old} if old else {})}
        write_manifest(url, plan, shape, token, entries, refused)

    def _check(self, plan: LoadPlan, rows: Any, token: str, faults: Faults) -> "Seen":
        time = value(list(plan.types).index(plan.time))
        found = self._stages.run(
            lambda: rows.selectExpr(
                "count(1) AS rows",
                f"count({FAULT}) AS bad",
                f"max(CASE WHEN {FAULT} IS NULL THEN {time} END) AS latest",
                f"count_if({ZONED}) AS zoned",
                f"count_if({BARE}) AS bare",
            ).collect()[0]
        )
        self._stages.rows = found["rows"]
        if self._times.zone is None and found["zoned"] and found["bare"]:
            raise MixedZones(
                f"{found['zoned']:,} rows have times with a time zone and {found['bare']:,} rows have times without: "
                "say by the time zone (such as UTC or Europe/Paris) what the others are in"
            )
        refused = self._set_aside(rows, token, faults) if found["bad"] else {}
        good = found["rows"] - found["bad"]
        if not good:
            raise NothingToLoad(self._nothing(token, found["rows"], refused))
        return Seen(good, found["latest"], refused)

    def _set_aside(self, rows: Any, token: str, faults: Faults) -> dict[str, int]:
        """Write invalid rows with their reasons to the quarantine, and count them."""
        reason = _named([reason for reason, _ in faults.known])
        column = _named([column for _, column in faults.known])
        bad = rows.where(f"{FAULT} IS NOT NULL").selectExpr(
            f"{reason} AS reason", f"{column} AS column", SOURCE, ORIGINAL
        )

        def work() -> list[Any]:
            bad.write.mode("overwrite").json(self._refused_to(token))
            counts: list[Any] = rows.where(f"{FAULT} IS NOT NULL").groupBy(FAULT).count().collect()
            return counts

        out: dict[str, int] = {}
        for number, count in self._stages.run(work):
            why = faults.known[number][0]
            out[why] = out.get(why, 0) + count
        return out

    def _nothing(self, token: str, rows: int, refused: dict[str, int]) -> str:
        if not rows:
            return "the sources have no rows"
        where = self._refused_to(token)
        some = self._spark.read.json(where).limit(SHOWN).collect()
        shown = "; ".join(f"{row['reason']} {row['column']!r} in {row['original']}" for row in some)
        said = ", ".join(f"{count:,} {reason}" for reason, count in refused.items())
        hint = ""
        if "bad_time" in refused:
            hint = ". Times are read as 2024-01-31 23:59:59, with or without a zone; numbers need a time unit"
        return f"all {rows:,} rows were refused: {said}. They are in {where}: {shown}{hint}"

    def _count(self, kept: Any, cells: parts.Cells) -> Any:
        found = self._stages.run(
            lambda: kept.selectExpr(f"CAST({cells.sql} AS INT) AS cell").groupBy("cell").count().toArrow()
        )
        counts = np.zeros(cells.count, np.int64)
        counts[found["cell"].to_numpy()] = found["count"].to_numpy()
        return counts

    def _write(self, url: str, plan: LoadPlan, shape: Shape, kept: Any, cells: parts.Cells, counts: Any) -> list[Entry]:
        """Write all parts; returns the entry of each part's successful attempt."""
        from pyspark.sql import functions  # noqa: PLC0415

        shipping.ship(self._spark)
        packed = parts.packed(counts, self._spark.sparkContext.defaultParallelism)
        columns = len(plan.types)
        task = part_task(url, plan, shape)
        shuffled = kept.select(*(value(place) for place in range(columns))).repartitionById(
            packed.parts, functions.expr(packed.sql(cells, columns))
        )
        found = self._stages.run(lambda: shuffled.mapInArrow(task, parts.ENTRIES).collect())
        return [json.loads(row["entry"]) for row in found]

    def _refused_to(self, token: str) -> str:
        if self._quarantine is not None:
            return f"{self._quarantine.rstrip('/')}/{token}"
        base = self._staging if "://" in self._staging else f"file://{self._staging}"  # Hadoop does not decode %20
        return f"{base}/{token}.quarantine"


@dataclass(frozen=True)
class Seen:
    good: int
    latest: int
    refused: dict[str, int]


def part_task(url: str, plan: LoadPlan, shape: Shape) -> Callable[[Any], Any]:
    return shipping.remote("promising.loaders.load_parts", "write", url, plan.to_json(), shape.to_json())


def _session(spark: Any) -> Any:
    """A copy of the session, except for settings that a load depends on."""
    session = spark.newSession()
    for name, setting in {**spark.conf.getAll, **SETTINGS}.items():
        with suppress(PySparkException, Py4JError):  # settings fixed at Spark's start
            session.conf.set(name, setting)
    return session


def _named(texts: Sequence[str]) -> str:
    quoted = (text.replace("\\", "\\\\").replace("'", "\\'") for text in texts)
    cases = " ".join(f"WHEN {number} THEN '{text}'" for number, text in enumerate(quoted))
    return f"CASE {FAULT} {cases} END"


def _folder(url: str) -> Place:
    return place(StagingDisk(), url)


def _finished(url: str) -> Package | None:
    try:
        return read_manifest(url)
    except (BadPackage, DataDamaged):
        return None


def _keep_only(folder: Place, names: set[str]) -> None:
    for name in folder.names():
        if name not in names:
            folder.delete(name)


def _clean(url: str) -> None:
    """Remove the parts. The service has what it needs, so a file that cannot be removed is harmless."""
    with suppress(PromisingError, OSError):
        _keep_only(_folder(url), {MANIFEST, NOTE})


def _safe(token: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}", token):
        raise BadSettings(
            f"the token {token!r} cannot name a folder: use up to 120 letters, digits, dots, dashes and underscores"
        )
    return token
