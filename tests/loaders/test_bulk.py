"""A load from files to answers: the same as if every tuple had come live, once, or not at all."""

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from promising.errors import BadSettings, DataDamaged, LoadError, TokenReused, Unavailable
from promising.loaders import bulk, load_parts
from promising.loaders.bulk import Report, bulk_load
from promising.loaders.spark_jobs import Progress, Stages
from promising.query.session import Session
from promising.testing.streams import colliding_keys
from tests.loaders.loading import START, answers, log, picked, store, table, write, zones

pytestmark = pytest.mark.spark

ROWS = 24_000
STAGES = ["listing", "checking", "planning", "writing", "sealing", "committing", "cleaning"]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch):
    """So that small loads have several parts."""
    monkeypatch.setattr(load_parts, "SMALLEST", 2_000)
    monkeypatch.setattr(load_parts, "LARGEST", 4_000)


def live(session: Session, columns: dict[str, Any], *, batch: int = 1_000) -> None:
    for first in range(0, len(columns["ts"]), batch):
        session.ingest("sales", picked(columns, slice(first, first + batch)))


def joined(session: Session) -> Session:
    """With a second stream to join."""
    session.ingest("other", log(200, seed=5, items=300))
    return session


@pytest.fixture(scope="module")
def sales() -> dict[str, Any]:
    return log(ROWS)


@pytest.fixture(scope="module")
def wanted(sales: dict[str, Any]) -> tuple[Any, Any]:
    """What the log comes to, tuple by tuple."""
    with joined(store(None)) as session:
        live(session, sales)
        return zones(session), answers(session)


def kept(columns: dict[str, Any], session: Session) -> int:
    oldest = session.stream("sales").oldest
    return int((columns["ts"] >= oldest).sum()) if oldest is not None else len(columns["ts"])


@pytest.mark.parametrize("where", ["store", "memory"])
def test_a_load_is_what_the_same_tuples_would_be(
    spark: Any, tmp_path: Path, sales: dict[str, Any], wanted: Any, where: str
):
    source = write(sales, tmp_path / "in")
    seen: list[Progress] = []
    with joined(store(tmp_path / "store" if where == "store" else None)) as session:
        report = bulk_load(spark, session, "sales", source, staging=str(tmp_path / "staging"), on_progress=seen.append)
        assert zones(session) == wanted[0]
        assert answers(session) == wanted[1]
        assert report.accepted == kept(sales, session) == report.rows - report.refused["too_old"]
    assert report.rows == ROWS
    assert report.parts > 3
    assert list(dict.fromkeys(progress.stage for progress in seen)) == STAGES == list(report.stages)
    assert max(progress.rows for progress in seen if progress.stage == "writing") == report.accepted
    if where == "store":
        with joined(store_again(tmp_path / "store")) as session:
            assert zones(session) == wanted[0]


def store_again(path: Path) -> Session:
    import promising  # noqa: PLC0415

    return promising.open(path)


@pytest.mark.parametrize("first", ["live", "load"])
def test_half_live_and_half_loaded_add_up(spark: Any, tmp_path: Path, sales: dict[str, Any], wanted: Any, first: str):
    chosen = np.random.default_rng(3).random(ROWS) < 0.5
    source = write(picked(sales, chosen), tmp_path / "in", kind="csv")
    with joined(store(tmp_path / "store")) as session:
        if first == "live":
            live(session, picked(sales, ~chosen))
        bulk_load(spark, session, "sales", source, staging=str(tmp_path / "staging"))
        if first == "load":
            live(session, picked(sales, ~chosen))
        assert zones(session) == wanted[0]
        assert answers(session) == wanted[1]


class Stop(Exception):
    """Somebody has had enough."""


def stop_at(stage: str, progress: Progress) -> None:
    if progress.stage == stage:
        raise Stop(stage)


def count(session: Session) -> int:
    found = session.query("SELECT count(*) AS n FROM sales").to_arrow()["n"][0].as_py()
    return int(found)


def test_a_load_that_stops_anywhere_leaves_nothing_and_the_next_one_ends_it(spark: Any, tmp_path: Path):
    source = write(log(6_000, hours=10), tmp_path / "in")
    with store(tmp_path / "store") as session:
        load = functools.partial(bulk_load, spark, session, "sales", source, staging=str(tmp_path / "staging"))
        for stage in STAGES[:-1]:
            with pytest.raises(Stop):
                load(on_progress=functools.partial(stop_at, stage))
            assert count(session) == 0, stage
            assert zones(session) == {}
        assert (report := load()).resumed  # sealed before it stopped
        assert (report.accepted, report.duplicate, count(session)) == (6_000, False, 6_000)
        again = load()
        assert (again.accepted, again.duplicate, again.resumed, count(session)) == (6_000, True, True, 6_000)


def test_a_load_that_stops_after_the_commit_is_known_when_it_comes_again(spark: Any, tmp_path: Path):
    source = write(log(3_000, hours=10), tmp_path / "in", files=1)
    with store(tmp_path / "store") as session:
        load = functools.partial(bulk_load, spark, session, "sales", source, staging=str(tmp_path / "staging"))
        with pytest.raises(Stop):
            load(on_progress=functools.partial(stop_at, "cleaning"))
        assert count(session) == 3_000
        assert load().duplicate
        assert count(session) == 3_000


class Down:
    """A service that is gone when the load is to be committed."""

    def __init__(self, session: Session, error: Exception) -> None:
        self.load_plan = session.load_plan
        self.error = error

    def attach(self, stream: str, path: str, token: str) -> Any:
        raise self.error


def test_a_service_that_is_down_at_the_commit(spark: Any, tmp_path: Path):
    source = write(log(3_000, hours=10), tmp_path / "in", files=1)
    with store(tmp_path / "store") as session:
        down: Any = Down(session, Unavailable("no service at 127.0.0.1:1"))
        staging = str(tmp_path / "staging")
        with pytest.raises(Unavailable, match=r"no service at .* is prepared, in .* the same load again finds out"):
            bulk_load(spark, down, "sales", source, staging=staging)
        report = bulk_load(spark, session, "sales", source, staging=staging)
        assert (report.resumed, report.accepted, count(session)) == (True, 3_000, 3_000)


def test_what_is_left_of_a_half_written_package_is_thrown_away(spark: Any, tmp_path: Path):
    source = write(log(3_000, hours=10), tmp_path / "in", files=1)
    with store(tmp_path / "store") as session:
        load = functools.partial(bulk_load, spark, session, "sales", source, staging=str(tmp_path / "staging"))
        with pytest.raises(Stop):
            load(on_progress=functools.partial(stop_at, "sealing"))
        [folder] = (tmp_path / "staging").iterdir()
        left = [path.name for path in folder.glob("*.parquet")]
        assert left
        (folder / left[0]).write_bytes(b"half")
        (folder / "package.json").write_bytes(b'{"format": 1, "package"')
        report = load()
        assert (report.accepted, report.resumed, count(session)) == (3_000, False, 3_000)
        assert sorted(path.name for path in folder.iterdir()) == ["load.json", "package.json"]


def test_a_finished_package_that_lost_a_part_is_made_anew(spark: Any, tmp_path: Path):
    source = write(log(3_000, hours=10), tmp_path / "in", files=1)
    with store(tmp_path / "store") as session:
        down: Any = Down(session, DataDamaged("a disk died"))
        load = functools.partial(bulk_load, spark, stream="sales", source=source, staging=str(tmp_path / "staging"))
        with pytest.raises(DataDamaged):
            load(service=down)
        [folder] = (tmp_path / "staging").iterdir()
        next(folder.glob("*.sums")).unlink()
        report = load(service=session)
        assert (report.accepted, report.resumed, count(session)) == (3_000, False, 3_000)


@pytest.mark.smoke
def test_a_token_stands_for_one_load(spark: Any, tmp_path: Path):
    first = write(log(3_000, hours=10), tmp_path / "first", files=1)
    second = write(log(3_000, seed=2, hours=10), tmp_path / "second", files=1)
    with store(tmp_path / "store") as session:
        load = functools.partial(bulk_load, spark, session, "sales", token="january")
        load(source=first, staging=str(tmp_path / "staging"))
        with pytest.raises(TokenReused, match="was prepared for another load under the token 'january'"):
            load(source=second, staging=str(tmp_path / "staging"))
        with pytest.raises(TokenReused, match="'january'"):
            load(source=second, staging=str(tmp_path / "elsewhere"))
        assert count(session) == 3_000
        assert load(source=first, staging=str(tmp_path / "elsewhere, too")).duplicate


def flaky(real: Any) -> Any:
    """Tasks of which two of three fail at first: before their work, or after all of it."""

    def make(*given: Any) -> Any:
        task = real(*given)

        def fails(batches: Any) -> Any:
            from pyspark import TaskContext  # noqa: PLC0415

            context = TaskContext.get()
            assert context is not None
            fate = (context.partitionId() + context.attemptNumber()) % 3
            if fate == 0 and context.attemptNumber() < 1:
                raise RuntimeError("struck before its work")
            yield from task(batches)
            if fate == 1 and context.attemptNumber() < 1:
                raise RuntimeError("struck after its work")

        return fails

    return make


def test_tasks_that_fail_count_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sales: dict[str, Any], wanted: Any
):
    monkeypatch.setattr(bulk, "part_task", flaky(bulk.part_task))
    source = write(sales, tmp_path / "in")
    left: list[int] = []

    def look(progress: Progress) -> None:
        if progress.stage == "sealing" and not left:
            left.append(len(list((tmp_path / "staging").glob("*/*.parquet"))))

    with joined(store(tmp_path / "store")) as session:
        report = bulk_load(spark, session, "sales", source, staging=str(tmp_path / "staging"), on_progress=look)
        assert left[0] > report.parts, "no attempt that failed had written its part"
        assert zones(session) == wanted[0]
        assert answers(session) == wanted[1]


def test_tasks_that_always_fail_say_why_and_leave_nothing(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from promising.loaders import shipping  # noqa: PLC0415

    monkeypatch.setattr(shipping, "NEEDED", ("numpy", "no_such_package"))
    source = write(log(1_000, hours=10), tmp_path / "in", files=1)
    with store(tmp_path / "store") as session:
        with pytest.raises(LoadError, match=r"writing failed.* lacks no_such_package: install"):
            bulk_load(spark, session, "sales", source, staging=str(tmp_path / "staging"))
        assert count(session) == 0


@pytest.mark.parametrize("skew", ["one item in half of the rows", "items of one bucket", "one moment"])
def test_parts_are_of_one_size_whatever_the_skew(spark: Any, tmp_path: Path, skew: str):
    columns = log(ROWS, hours=10)
    if skew.startswith("one item"):
        columns["item_id"][::2] = 77
        columns["store_id"][::2] = 1
    elif skew.startswith("items"):
        columns["item_id"] = np.random.default_rng(1).choice(colliding_keys(50, bits=4, hash_seed=7), ROWS)
    else:
        columns["ts"][:] = START
    source = write(columns, tmp_path / "in")
    with store(tmp_path / "store") as session:
        report = bulk_load(spark, session, "sales", source, staging=str(tmp_path / "staging"))
        assert count(session) == ROWS
    manifest = json.loads((tmp_path / "staging" / report.token / "package.json").read_text())
    sizes = [part["rows"] for part in manifest["package"]["parts"]]
    assert len(sizes) >= 5
    assert max(sizes) <= 1.5 * np.mean(sizes)


def test_the_session_of_the_caller_is_as_it_was(spark: Any, tmp_path: Path):
    before = dict(spark.conf.getAll)
    source = write(log(500, hours=1), tmp_path / "in", files=1, kind="json")
    with store(None) as session:
        report: Report = bulk_load(spark, session, "sales", source, staging=str(tmp_path / "staging"))
        assert report.accepted == count(session) == 500
        found = session.query("SELECT item_id, price FROM sales").to_arrow()
        wanted = table(log(500, hours=1))
        assert sorted(found["price"].to_pylist()) == sorted(wanted["price"].to_pylist())
    assert dict(spark.conf.getAll) == before
    assert type(spark).getActiveSession() is spark


def test_a_data_frame_is_loaded_and_a_token_names_it(spark: Any, tmp_path: Path):
    frame = spark.read.parquet(write(log(3_000, hours=10), tmp_path / "in", files=2)).repartition(3)
    staging = tmp_path / "staging"
    with store(tmp_path / "store") as session:
        load = functools.partial(bulk_load, spark, session, "sales", frame, staging=str(staging), token="monday")
        report = load()
        assert (report.accepted, report.duplicate, count(session)) == (3_000, False, 3_000)
        assert (load().duplicate, count(session)) == (True, 3_000)
        assert not list(staging.glob("*.frame"))
        bulk_load(spark, session, "sales", frame.limit(10), staging=str(staging))
        assert count(session) == 3_010
        with pytest.raises(BadSettings, match="DataFrame"):
            load(format="csv")


def test_a_failure_of_spark_is_its_sentence_alone(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: Any) -> None:
        raise DataDamaged("a.parquet fails its checksum")

    frame = spark.range(1).mapInArrow(lambda parts: map(failing, parts), "id long")

    def failed() -> BaseException:
        with pytest.raises(LoadError, match="checksum") as caught:
            Stages(spark, None).run(frame.collect)
        return caught.value

    found = failed()
    assert found.__cause__ is None and found.__suppress_context__
    monkeypatch.setenv("PROMISING_DEBUG", "1")
    assert failed().__cause__ is not None
