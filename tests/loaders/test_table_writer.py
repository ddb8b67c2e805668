"""A DataFrame into a reference table of a running service."""

from typing import Any

import pytest

pytest.importorskip("pyspark.sql")

from promising.errors import DuplicateKey, MissingColumn, NoSuchName, TableFull
from promising.loaders.table_writer import load_table as load
from promising.query.session import Session
from promising.spark import load_table
from promising.testing.service import running

ROWS = "SELECT id AS k, concat('n', id) AS name, CAST(id AS INT) / 2 AS x, timestamp_micros(id) AS t FROM range({})"


@pytest.mark.spark
def test_a_frame_becomes_rows_of_a_table(spark: Any) -> None:
    with Session() as session:
        session.execute("CREATE TABLE r (k INT PRIMARY KEY, name STRING, x FLOAT, t TIMESTAMP)")
        with running(session=session) as address:
            frame = spark.sql(ROWS.format(1000)).repartition(3)
            assert load_table(frame, address, "r") == (1, 1000, 0, 0, 0)
            found = session.table("r").sort_by("k")
            assert found["k"].to_pylist() == list(range(1000))
            assert found["name"].to_pylist()[:2] == ["n0", "n1"]
            assert found["x"].to_pylist()[:2] == [0.0, 0.5]
            assert found["t"].cast("int64").to_pylist() == list(range(1000))  # wherever the cluster stands
            assert load_table(spark.sql(ROWS.format(1001)), address, "r") == (2, 1, 0, 0, 1000)
            with pytest.raises(DuplicateKey, match="is in the table already"):
                load_table(frame, address, "r", mode="insert")
            with pytest.raises(MissingColumn, match="'t'"):
                load_table(frame.drop("t"), address, "r")
            assert load_table(frame.selectExpr("k", "'new' AS name"), address, "r", mode="update").updated == 1000
            with pytest.raises(NoSuchName, match="no table 'rr'"):
                load_table(frame, address, "rr")
            assert session.catalog.tables["r"].changes == 3
        with pytest.raises(TableFull, match="more than 999 rows; nothing was sent"):
            load(frame, session, "r", most=999)
