"""A load as a program of its own, on a cluster: some tasks fail, one hangs, and the program may be killed.

python -m tests.loaders.cluster_load MASTER FOLDER [STAGE TO DIE AT]
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import promising
from promising.loaders import bulk, load_parts
from promising.loaders.spark_jobs import Progress

SETTINGS: dict[str, bool | float | int | str | None] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "768m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both workers take part
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "600s",
    "spark.task.maxFailures": "8",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.python.task.killTimeout": "200ms",
}


def trouble(real: Any, folder: str) -> Any:
    """Tasks that note where they run; some fail after their work, and the first hangs after its own.

    Who does the first one's work instead does not fail: Spark would wait for the first then.
    """

    def make(*given: Any) -> Any:
        task = real(*given)

        def troubled(batches: Any) -> Any:
            import pathlib  # noqa: PLC0415
            import random  # noqa: PLC0415
            import time  # noqa: PLC0415
            import uuid  # noqa: PLC0415

            from pyspark import TaskContext  # noqa: PLC0415

            context = TaskContext.get()
            assert context is not None
            yield from task(batches)
            import promising.index.storage.package as used  # noqa: PLC0415

            note = {"file": used.__file__, "directory": os.getcwd(), "part": context.partitionId()}
            pathlib.Path(folder, f"{uuid.uuid4().hex}.json").write_text(json.dumps(note))
            if context.partitionId() == 0 and context.attemptNumber() == 0:
                time.sleep(200)
            elif context.partitionId() and context.attemptNumber() < 3 and random.random() < 0.3:
                raise RuntimeError("struck after its work")

        return troubled

    return make


def main(master: str, folder: Path, fatal: str | None) -> None:
    load_parts.SMALLEST, load_parts.LARGEST = 2_000, 4_000
    (folder / "notes").mkdir(exist_ok=True)
    bulk.part_task = trouble(bulk.part_task, str(folder / "notes"))
    spark = SparkSession.builder.master(master).config(map=SETTINGS).getOrCreate()

    def look(progress: Progress) -> None:
        if progress.stage == fatal and progress.done > 0:
            os.kill(os.getpid(), signal.SIGKILL)

    with promising.open(folder / "store") as session:
        report = bulk.bulk_load(
            spark, session, "sales", str(folder / "in"), staging=str(folder / "staging"), on_progress=look
        )
    print(json.dumps({"accepted": report.accepted, "parts": report.parts, "refused": report.refused}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
