"""A service under queries that want more memory than it has: each ends with its answer or a typed error, and the
service goes on.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import promising
from promising.client.admin import Stats
from promising.errors import BadSettings, LimitReached
from promising.index.memory import half_of_machine
from promising.query.query_memory import QueryLimits, QueryMemory
from promising.server.query_limits import query_limits
from promising.server.service import Service
from promising.settings import Limits, Settings
from promising.testing.service import running

MB = 1 << 20
ROWS, KEYS, AT_ONCE = 10_000, 250, 8
LIMITS = {"max_query_bytes": 16 * MB, "max_query_bytes_per_client": 64 * MB, "max_query_bytes_total": 64 * MB}
SORT = "SELECT a.v, b.id FROM s a, s b WHERE a.k = b.k ORDER BY a.v"
"""400,000 pairs, which are 29 MB when they are sorted in memory."""


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The most bytes that all queries had at any moment."""
    found = [0]
    add = QueryMemory.add

    def added(self: QueryMemory, client: str, size: int) -> tuple[int, int]:
        of_client, of_all = add(self, client, size)
        found[0] = max(found[0], of_all)
        return of_client, of_all

    monkeypatch.setattr(QueryMemory, "add", added)
    return found


def fill(session: Any) -> int:
    """Returns the number of pairs."""
    rng = np.random.default_rng(0)
    keys = rng.integers(0, KEYS, ROWS)
    session.execute("CREATE STREAM s (ts TIMESTAMP, id BIGINT, k BIGINT, v DOUBLE) TIMESTAMP BY ts")
    columns = {"ts": np.arange(ROWS), "id": np.arange(ROWS), "k": keys, "v": rng.random(ROWS)}
    assert session.ingest("s", columns).accepted == ROWS
    return int((np.bincount(keys) ** 2).sum())


def stats(address: str) -> Stats:
    with promising.connect(address) as session:
        return session.admin.stats()


def sort_at_once(target: str) -> list[Any]:
    """The answers to as many sorts: (rows, what cut it, the error)."""

    def ask(number: int) -> Any:
        with promising.connect(target) as session:
            answer = session.query(SORT)
            parts: list[Any] = []
            error = None
            try:
                for frame in answer.stream():
                    parts = [frame.rows] if frame.mode == "replace" else [*parts, frame.rows]
            except LimitReached as problem:
                error = problem
            values = np.concatenate([part["v"].to_numpy() for part in parts])
            assert (np.diff(values) >= 0).all()
            return len(values), answer.progress.cut, error

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(ask, range(AT_ONCE)))


@pytest.fixture(params=["durable", "in memory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path | None]]:
    data = tmp_path if request.param == "durable" else None
    with running(Settings(listen="127.0.0.1:0", data=data, limits=Limits(**LIMITS, workers=2))) as found:
        yield found, data


@pytest.mark.deep("eight sorts of 400,000 pairs at once")
def test_eight_sorts_of_self_joins(target: tuple[str, Path | None], most: list[int]):
    address, data = target
    with promising.connect(address) as session:
        pairs = fill(session)
        answers = sort_at_once(address)
        assert most[0] <= 1.1 * LIMITS["max_query_bytes_total"]
        ended = [(rows, cut, error) for rows, cut, error in answers if error is not None]
        assert [answer for answer in answers if answer[2] is None] == [(pairs, None, None)] * (AT_ONCE - len(ended))
        for rows, cut, error in ended:
            assert 0 <= rows < pairs
            assert cut == "memory"
            assert "limits.max_query_bytes" in str(error)
        if data is None:
            assert len(ended) == AT_ONCE
        else:
            assert len(ended) < AT_ONCE // 2  # others had most of the memory at that moment
            assert list((data / "spill").iterdir()) == []
        assert session.query("SELECT count(*) FROM s").to_arrow()[0].to_pylist() == [ROWS]
    found = stats(address)
    assert found.query_bytes == 0
    assert found.answered.get("memory", 0) == len(ended)


def test_bytes_of_queries_are_shown():
    with (
        running(Settings(listen="127.0.0.1:0", limits=Limits(**LIMITS))) as address,
        promising.connect(address) as session,
    ):
        fill(session)
        answer, held = session.query(SORT, budget=0.002).run(), 0
        while answer.progress.token is not None and not held:
            held = stats(address).query_bytes
            answer = session.resume(answer.progress.token, budget=0.002).run()
        assert held > 0


# --- bad input -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits, said",
    [
        ({"max_query_bytes": 1000}, "max_query_bytes is 1,000 bytes; 1,048,576 is the least"),
        ({"max_query_bytes_total": 1}, "is the least with which queries run"),
        ({"max_query_bytes": 2 * MB, "max_query_bytes_per_client": MB}, "lower it, or raise the other"),
        (
            {"max_query_bytes_per_client": 20 * MB, "max_query_bytes_total": 16 * MB},
            "max_query_bytes_total, 16,777,216",
        ),
        ({"max_query_bytes_total": 4 * half_of_machine()}, "this machine has"),
    ],
)
@pytest.mark.parametrize("durable", [False, True])
def test_limits_that_make_no_sense_are_refused_at_the_start(
    limits: dict[str, int], said: str, durable: bool, tmp_path: Path
):
    settings = Settings(data=tmp_path / "data" if durable else None, limits=Limits(**limits))
    with pytest.raises(BadSettings, match=said):
        Service(settings)
    assert not (tmp_path / "data").exists()


def test_defaults_are_of_the_machine():
    machine = 2 * half_of_machine()
    assert query_limits(Settings()) == QueryLimits(machine // 4 // 8, machine // 4 // 2, machine // 4)
    small = query_limits(Settings(limits=Limits(max_query_bytes_per_client=3 * MB)))
    assert small == QueryLimits(3 * MB, 3 * MB, machine // 4)
