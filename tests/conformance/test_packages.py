"""Packages: what a loader is told, what comes in, once, and what is refused and in which words."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import promising.errors as e
from promising.index.prepared_load import Attached
from promising.index.storage.package import MANIFEST, write_manifest, write_part
from promising.query import Session
from promising.testing import ManualClock
from tests.conformance.sessions import Opened

MINUTE = 60_000_000
NOW = 10**15
Both = Callable[..., tuple[Session, Session]]


def prepared(session: Session) -> Session:
    for name in ("s", "other"):
        session.execute(f"CREATE STREAM {name} (ts TIMESTAMP, item INT, name VARCHAR) TIMESTAMP BY ts")
    session.execute("CREATE SUMMARY items ON s (item) WITH GRANULARITY 1 MINUTE AND COLLAPSE (3, 4)")
    return session


@pytest.fixture
def session(opened: Opened) -> Session:
    return prepared(opened(clock=ManualClock(NOW), seed=7))


def table(rows: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": pa.array(np.sort(rng.integers(0, 40 * MINUTE, rows))).cast(pa.timestamp("us")),
            "item": pa.array(rng.zipf(1.3, rows) % 50),
            "name": pa.array([f"n{i % 9}" for i in range(rows)], mask=rng.random(rows) < 0.1),
        }
    )


def package(session: Session, path: Path, tuples: pa.Table, stream: str = "s", finished: bool = True) -> str:
    """A package in two parts, as a loader makes it; two rows were no good."""
    plan = session.load_plan(stream)
    shape = plan.shaped(int(np.max(tuples["ts"].cast(pa.int64()).to_numpy())))
    half = tuples.num_rows // 2
    entries = [
        write_part(str(path), f"{number:05d}-x", plan, shape, part)
        for number, part in enumerate((tuples.slice(0, half), tuples.slice(half)))
    ]
    if finished:
        write_manifest(str(path), plan, shape, "t", entries, {"bad_time": 2})
    return str(path)


def counts(session: Session) -> Any:
    sql = "SELECT item, count(*) AS n, min(ts) AS first FROM s GROUP BY item ORDER BY item"
    return session.query(sql).to_arrow().to_pydict()


def test_a_plan_is_the_same(both: Both):
    here, there = both(clock=ManualClock(NOW), seed=7)
    for session in (here, there):
        prepared(session)
        session.ingest("s", table(100))
    plan = here.load_plan("s")
    assert there.load_plan("S") == plan
    assert (plan.keys, plan.seed, plan.summaries[0]["name"]) == (("item",), 7, "items")


def test_a_package_comes_in_whole_and_once(session: Session, opened: Opened, tmp_path: Path):
    tuples = table(2_000)
    alike = prepared(opened(clock=ManualClock(NOW), seed=7))
    alike.ingest("s", tuples)
    path = package(session, tmp_path / "p", tuples)
    assert session.attach("s", path, "t") == Attached(2_000, {"bad_time": 2}, False)
    assert session.attach("S", path, "t") == Attached(2_000, {"bad_time": 2}, True)
    assert counts(session) == counts(alike)
    assert session.estimate("items", [1, 2]).value.tolist() == alike.estimate("items", [1, 2]).value.tolist()
    more = package(session, tmp_path / "q", table(500, seed=1))
    assert session.attach("s", more, "u").accepted == 500
    assert sum(counts(session)["n"]) == 2_500


def test_a_token_is_of_one_content(session: Session, tmp_path: Path):
    session.attach("s", package(session, tmp_path / "p", table(100)), "t")
    again = package(session, tmp_path / "same", table(100))
    assert session.attach("s", again, "t").duplicate
    with pytest.raises(e.TokenReused):
        session.attach("s", package(session, tmp_path / "q", table(100, seed=1)), "t")
    assert sum(counts(session)["n"]) == 100


WRONG: dict[str, Callable[[Session, Path], Any]] = {
    "no stream": lambda session, path: session.attach("nope", str(path), "t"),
    "no stream to plan for": lambda session, path: session.load_plan("nope"),
    "no package": lambda session, path: session.attach("s", str(path / "nowhere"), "t"),
    "no token": lambda session, path: session.attach("s", package(session, path, table(10)), ""),
    "a long token": lambda session, path: session.attach("s", package(session, path, table(10)), "x" * 5000),
    "not finished": lambda session, path: session.attach("s", package(session, path, table(10), finished=False), "t"),
    "another stream": lambda session, path: session.attach("s", package(session, path, table(10), "other"), "t"),
    "cut off": lambda session, path: session.attach("s", shortened(package(session, path, table(10)), MANIFEST), "t"),
    "damaged": lambda session, path: session.attach(
        "s", shortened(package(session, path, table(10)), "00001-x.sums"), "t"
    ),
}


def shortened(path: str, name: str) -> str:
    file = Path(path, name)
    file.write_bytes(file.read_bytes()[:-1])
    return path


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told_in_the_same_words(what: str, both: Both, tmp_path: Path):
    said = []
    for session in both(clock=ManualClock(NOW), seed=7):
        prepared(session)
        with pytest.raises(e.PromisingError) as refused:
            WRONG[what](session, tmp_path / "p")
        said.append((type(refused.value), str(refused.value)))
        assert counts(session)["n"] == []
    assert said[0] == said[1]
    assert said[0][0] in (e.NoSuchName, e.BadPackage, e.DataDamaged)
