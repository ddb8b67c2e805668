"""A load for a summary that chooses its structure: prepared for one, it is right with whichever it meets."""

import pytest

import promising.index.log
from promising.index.auto_structure import Auto
from promising.index.options import STRUCTURES
from promising.query.session import Session
from tests.index.storage.test_attach import answers, coarse, prepare, table, whole

CREATE = (
    "CREATE STREAM s (ts TIMESTAMP, item BIGINT, till VARCHAR, price DOUBLE, paid BOOLEAN) TIMESTAMP BY ts LATENESS 90"
    " SECONDS",
    "CREATE SUMMARY items ON s (item) WITH GRANULARITY 1 MINUTE AND COLLAPSE (3, 4) STRUCTURE {}"
    " OPTIONS (buckets = 8, width = 64)",
)


@pytest.fixture(autouse=True)
def by_hand(monkeypatch):
    monkeypatch.setattr(promising.index.log, "CHUNK", 256)
    monkeypatch.setattr(Auto, "choice", lambda self, tuples, cold=0: None)


def opened(structure):
    session = Session(clock=lambda: 10**15, seed=7)
    for sql in CREATE:
        session.execute(sql.format(structure))
    return session


@pytest.mark.parametrize("planned", STRUCTURES)
@pytest.mark.parametrize("met", STRUCTURES)
def test_a_load_is_right_whatever_structure_it_was_prepared_for_and_meets(tmp_path, planned, met):
    data = table(1_500)
    fixed, auto = opened(met), opened("auto")
    summary = auto.stream("s").summaries["items"]
    summary.change(planned)
    prepare(auto, tmp_path / "package", data)
    summary.change(met)
    assert auto.attach("s", str(tmp_path / "package"), "t").accepted > 0
    fixed.ingest("s", data)
    whole(auto)
    assert coarse(auto) == coarse(fixed)
    assert answers(auto) == answers(fixed)
    told, other = summary.describe(), fixed.stream("s").summaries["items"].describe()
    assert told.tuples == other.tuples and told.keys == other.keys
