"""One Spark session for all tests of this floor: starting one takes longer than most tests."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

sql = pytest.importorskip("pyspark.sql")


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Two cores, and three more attempts for a task that fails."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        sql.SparkSession.builder.master("local[2,4]")
        .appName("loaders")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # much that runs once
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "Asia/Kolkata")  # nothing may depend on where the cluster stands
        .getOrCreate()
    )
    yield session
    session.stop()
