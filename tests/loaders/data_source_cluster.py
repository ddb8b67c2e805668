"""A write as a program of its own, on executors that are processes of their own, with speculation: the task of one
partition waits for its double, and then both have the same rows to send.

python -m tests.loaders.data_source_cluster MASTER FOLDER
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from promising.spark import register
from promising.testing.service import running
from tests.loaders.cluster_load import SETTINGS
from tests.loaders.data_source_sales import numbers, sales, stocked


def meeting(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def met(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pathlib  # noqa: PLC0415  # pickled by value, for a process that has none of the tests
        import time  # noqa: PLC0415

        from pyspark import TaskContext  # noqa: PLC0415

        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.partitionId() == 0:
            pathlib.Path(folder, str(context.attemptNumber())).touch()
            while len(list(pathlib.Path(folder).iterdir())) < 2:
                time.sleep(0.05)

    return met


def main(master: str, folder: Path) -> None:
    spark = SparkSession.builder.master(master).config(map=SETTINGS).getOrCreate()
    register(spark)
    with stocked() as session, running(session=session) as address:
        frame = sales(spark, partitions=4)
        frame = frame.mapInArrow(meeting(str(folder)), frame.schema)
        frame.write.format("promising").options(address=address, stream="s").mode("append").save()
        back = spark.read.format("promising").options(address=address, stream="s", columns="name").load()
        found = {
            "in": numbers(session),
            "read": back.distinct().count(),
            "attempts": len(list(folder.iterdir())),
        }
    print(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
