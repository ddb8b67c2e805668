"""The log in two streams: nothing is lost, nothing comes twice, and what goes wrong is told."""

from typing import Any

import pyarrow as pa
import pytest

from promising.demo import journey, replay
from promising.demo.local_service import LocalService
from promising.demo.replay import LogParts
from promising.errors import Unavailable
from promising.index.regions import Appended


class Recorder:
    """A session that keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: dict[str, list[pa.Table]] = {name: [] for name in replay.STORES}

    def ingest(self, stream: str, table: pa.Table) -> Appended:
        self.sent[stream].append(table)
        return Appended(table.num_rows)

    def ingest_many(self, stream: str, tables: Any, on_ack: Any) -> None:
        for table in tables:
            on_ack(self.ingest(stream, table))


def halves(recorder: Recorder, log: pa.Table) -> None:
    """Every row of the log was sent once, to the stream of its store, in order."""
    for name, rest in replay.STORES.items():
        assert pa.concat_tables(recorder.sent[name]).equals(replay.of_stores(log, rest))


@pytest.fixture(scope="module")
def log():
    return journey.transactions()


def test_december_is_live_and_what_is_before_is_not(log):
    parts = LogParts.of(log)
    assert parts.time(parts.past - 1) < replay.LIVE_FROM <= parts.time(parts.past)
    assert parts.past + parts.live == log.num_rows


@pytest.mark.parametrize(("rows", "past"), [(1, 1), (2, 1), (12, 11), (12_000, 11_000)])
def test_of_a_shorter_log_the_last_twelfth_is_live(log, rows, past):
    assert LogParts.of(log.slice(0, rows)).past == past


def test_load_and_replay_send_every_row_once(log):
    parts = LogParts.of(log.slice(0, 30_000))
    session: Any = Recorder()
    loaded: list[int] = []
    replay.load(session, parts, loaded.append)
    assert sum(loaded) == parts.past
    days = list(parts.days())
    for day in days:
        assert len(day[journey.TIME].cast(pa.date32()).unique()) == 1
        replay.send(session, day)
    assert sum(day.num_rows for day in days) == parts.live
    halves(session, parts.log)


def test_a_service_that_does_not_start_is_told_with_its_last_words(monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    with LocalService() as service, pytest.raises(Unavailable, match="ended before it took calls:\nit said nothing"):
        service.address(30)
