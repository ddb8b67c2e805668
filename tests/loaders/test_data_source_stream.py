"""`df.writeStream` into a running service: every row once, over restarts, replays and failures."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark.sql")

from pyspark import TaskContext
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from promising.errors import BadSettings
from promising.spark import PromisingSource, register
from promising.testing.service import running
from tests.loaders.data_source_sales import SALES, numbers, stocked


def arrive(folder: Path, name: str, first: int, last: int) -> None:
    """A file of numbers, there at once."""
    pq.write_table(pa.table({"id": pa.array(range(first, last), pa.int64())}), folder.parent / name)
    (folder.parent / name).rename(folder / f"{name}.parquet")


def test_a_job_is_no_name_for_a_query():
    with pytest.raises(BadSettings, match="known by its checkpoint"):
        PromisingSource(CaseInsensitiveDict({"job": "monday"})).streamWriter(StructType(), False)


@pytest.mark.spark
def test_every_row_once_over_restarts(spark: Any, tmp_path: Path):
    """The first run has a task that fails after it sent; after the second, the record that its batch was done is taken
    away, as if Spark had died between the two; the third does that batch again, and what is new."""

    def stumbling(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.attemptNumber() == 0:
            raise RuntimeError("this attempt fails when all its rows went through")

    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    register(spark)
    with stocked() as session, running(session=session) as address:

        def run() -> Any:
            read = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1).parquet(str(folder))
            frame = read.mapInArrow(stumbling, read.schema).selectExpr(*SALES)
            query = (
                frame.writeStream.format("promising")
                .options(address=address, stream="s", checkpointLocation=str(checkpoint))
                .trigger(availableNow=True)
                .start()
            )
            try:
                query.awaitTermination()
            finally:
                query.stop()
            return query

        arrive(folder, "a", 0, 500)
        first = run()
        assert numbers(session) == list(range(500))
        arrive(folder, "b", 500, 900)
        second = run()
        assert numbers(session) == list(range(900))
        assert second.id == first.id
        (checkpoint / "commits" / "1").unlink()
        (checkpoint / "commits" / ".1.crc").unlink(missing_ok=True)
        arrive(folder, "c", 900, 1_000)
        third = run()
        assert [progress["batchId"] for progress in third.recentProgress if progress["numInputRows"]] == [1, 2]
        assert numbers(session) == list(range(1_000))
