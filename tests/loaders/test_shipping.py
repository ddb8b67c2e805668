"""Executors run the code that the job brought along, not what happens to lie there."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from promising.errors import BadSettings
from promising.loaders import shipping


def test_the_archive_is_the_house_and_equal_for_equal_sources():
    archive = shipping.house()
    assert shipping.house() == archive
    with zipfile.ZipFile(archive) as packed:
        names = set(packed.namelist())
        assert {
            "promising/loaders/load_parts.py",
            "promising/index/storage/package.py",
            "promising/summaries/kernels/jit.py",
        } <= names
        assert {name.partition("/")[0] for name in names} == {shipping.PACKAGE}
        assert (
            packed.read("promising/loaders/load_parts.py")
            == (Path(shipping.__file__).parent / "load_parts.py").read_bytes()
        )


def test_a_session_over_the_network_cannot_take_it_along():
    class Remote:
        __module__ = "pyspark.sql.connect.session"

    with pytest.raises(BadSettings, match="Spark Connect"):
        shipping.ship(Remote())


@pytest.mark.deep("loads the whole house in a process of its own")
def test_it_runs_from_the_archive(tmp_path: Path):
    archive = shipping.house()
    modules = "promising.index.storage.package as p, promising.loaders.load_parts, promising.query.session"
    program = f"import {modules}; print(p.__file__)"
    environment = {**os.environ, "PYTHONPATH": archive}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert found.stdout.startswith(f"{archive}/promising/index/storage/package.py")


@pytest.mark.spark
def test_workers_have_it_first(spark: Any):
    archive = Path(shipping.ship(spark)).name
    task = shipping.remote("builtins", "iter")

    def look(batches: Any) -> Any:
        import sys  # noqa: PLC0415

        import pyarrow as pa  # noqa: PLC0415

        for batch in task(batches):
            yield pa.RecordBatch.from_pydict({"first": [sys.path[0]] * batch.num_rows})

    rows = spark.range(10).mapInArrow(look, "first STRING").collect()
    assert len(rows) == 10
    assert all(row["first"].endswith(f"/{archive}") for row in rows)
