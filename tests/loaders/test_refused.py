"""Bad input, from files to the message or the quarantine: nothing of it, and nothing half, is in the stream."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from promising.errors import (
    BadSettings,
    BadSource,
    CeilingReached,
    MissingColumn,
    MixedZones,
    NoSuchName,
    NothingToLoad,
    SourceChanged,
)
from promising.loaders.bulk import bulk_load
from promising.loaders.spark_jobs import Progress
from promising.query.session import Session
from tests.loaders.loading import log, store, write

pytestmark = pytest.mark.spark

HEAD = "store_id,transaction_id,ts,item_id,price\n"
GOOD = "1,10,2023-11-15 12:00:00,7,-1.25\n"


def count(session: Session) -> int:
    found = session.query("SELECT count(*) AS n FROM sales").to_arrow()["n"][0].as_py()
    return int(found)


def quarantined(folder: str) -> list[dict[str, Any]]:
    paths = sorted(Path(folder.removeprefix("file://")).glob("*.json"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_bad_rows_go_to_the_quarantine_and_good_ones_on(spark: Any, tmp_path: Path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/till's 1.csv").write_text(HEAD + GOOD + "1,11,soon,7,2\n1,12,2023-11-15 12:00:00,,2\n" + GOOD)
    (tmp_path / "in/2.csv").write_text(
        "price,item_id,ts,transaction_id,store_id\n1.5,8,2023-11-15 12:00:01,13,2\n1.5,8\n"
    )
    with store(tmp_path / "store") as session:
        report = bulk_load(
            spark, session, "sales", str(tmp_path / "in"), staging=str(tmp_path / "s"), quarantine=str(tmp_path / "q")
        )
        assert (report.rows, report.accepted) == (6, 3)
        assert report.refused == {"bad_time": 1, "null_key": 1, "bad_line": 1}
        found = session.query("SELECT store_id, item_id, price FROM sales").to_arrow().to_pylist()
        assert sorted(tuple(row.values()) for row in found) == [(1, 7, -1.25), (1, 7, -1.25), (2, 8, 1.5)]
    assert report.quarantine == str(tmp_path / "q" / report.token)
    rows = {row["reason"]: row for row in quarantined(report.quarantine)}
    assert rows["bad_time"]["column"] == "ts"
    assert json.loads(rows["bad_time"]["original"])["ts"] == "soon"
    assert rows["bad_time"]["source"].endswith("1.csv")
    assert rows["bad_line"]["original"] == "1.5,8"
    assert rows["bad_line"]["source"].endswith("2.csv")


def test_times_with_and_without_a_zone(spark: Any, tmp_path: Path):
    (tmp_path / "1.csv").write_text(HEAD + GOOD + GOOD.replace("12:00:00", "12:00:00Z"))
    with store(None) as session:
        load = functools.partial(
            bulk_load, spark, session, "sales", str(tmp_path / "1.csv"), staging=str(tmp_path / "staging")
        )
        with pytest.raises(MixedZones, match="1 rows have times with a time zone and 1 rows have times without"):
            load()
        assert count(session) == 0
        assert load(time_zone="Asia/Tokyo").accepted == 2
        times = session.query("SELECT ts FROM sales").to_arrow()["ts"].cast("int64").to_pylist()
        assert max(times) - min(times) == 9 * 3_600_000_000


def test_not_one_good_row(spark: Any, tmp_path: Path):
    (tmp_path / "1.csv").write_text(HEAD + GOOD.replace("2023-11-15 12:00:00", "1700049600"))
    (tmp_path / "2.csv").write_text(HEAD)
    with store(None) as session:
        load = functools.partial(bulk_load, spark, session, "sales", staging=str(tmp_path / "staging"))
        with pytest.raises(NothingToLoad, match=r"all 1 rows were refused: 1 bad_time\..*1700049600.*need a time unit"):
            load(source=str(tmp_path / "1.csv"))
        assert load(source=str(tmp_path / "1.csv"), time_unit="s").accepted == 1
        with pytest.raises(NothingToLoad, match="the sources have no rows"):
            load(source=str(tmp_path / "2.csv"))


def test_a_source_that_changes_meanwhile(spark: Any, tmp_path: Path):
    source = Path(write(log(500, hours=5), tmp_path / "in", files=1))

    def spoil(progress: Progress) -> None:
        if progress.stage == "sealing":
            (source / "0.parquet").touch()

    with store(None) as session:
        with pytest.raises(SourceChanged, match=r"0\.parquet has changed while it was loaded"):
            bulk_load(spark, session, "sales", str(source), staging=str(tmp_path / "staging"), on_progress=spoil)
        assert count(session) == 0


def test_more_than_fits(spark: Any, tmp_path: Path):
    source = write(log(70_000, hours=5), tmp_path / "in", files=1)
    with store(None, max_tuples=1) as session:
        with pytest.raises(CeilingReached, match="do not fit into stream 'sales'"):
            bulk_load(spark, session, "sales", source, staging=str(tmp_path / "staging"))
        assert count(session) == 0


def test_what_is_wrong_before_any_work(spark: Any, tmp_path: Path):
    (tmp_path / "1.csv").write_text("shop,bon,when,item,price\n1,2,2023-11-15,4,5\n")
    (tmp_path / "nothing").mkdir()
    with store(None) as session:
        load = functools.partial(bulk_load, spark, session, staging=str(tmp_path / "staging"))
        with pytest.raises(
            MissingColumn, match=r"no field for store_id, transaction_id, ts, item_id of stream sales.*ts="
        ):
            load("sales", str(tmp_path / "1.csv"))
        with pytest.raises(NoSuchName, match="salez"):
            load("salez", str(tmp_path / "1.csv"))
        with pytest.raises(BadSource, match="nothing has no files"):
            load("sales", str(tmp_path / "nothing"))
        with pytest.raises(BadSettings, match="cannot name a folder"):
            load("sales", str(tmp_path / "1.csv"), token="../x")
        assert not (tmp_path / "staging").exists()
