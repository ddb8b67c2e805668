"""What is tried again, how often, and that nothing is added twice."""

import gc
import random
from collections.abc import Iterator
from contextlib import ExitStack

import pyarrow as pa
import pytest

import promising
from promising.client.retries import Retries
from promising.client.session import RemoteSession
from promising.errors import (
    BadQuestion,
    BadSettings,
    LimitReached,
    NoSuchName,
    NullKey,
    PromisingError,
    StorageFull,
    StorageUnavailable,
    Unavailable,
)
from promising.index import Appended
from promising.query import Session
from promising.settings import Settings
from promising.testing.service import running
from tests.promising.client.flaky import Flaky, flaky_service, lossy, serving

STREAM = "CREATE STREAM s (ts TIMESTAMP, n INT) TIMESTAMP BY ts"
GONE = Unavailable("not now")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("promising.client.retries.SHORTEST_WAIT", 0.001)


@pytest.fixture
def flaky() -> Flaky:
    made = flaky_service()
    made.session.execute(STREAM)
    return made


@pytest.fixture
def session(flaky: Flaky) -> Iterator[RemoteSession]:
    with serving(flaky) as target, promising.connect(target, retries=3) as made:
        yield made


def table(*numbers: int) -> pa.Table:
    return pa.table({"ts": pa.array(numbers, pa.timestamp("us")), "n": pa.array(numbers, pa.int64())})


def held(session: Session) -> list[int]:
    found: list[int] = session.query("SELECT n FROM s").to_arrow()["n"].to_pylist()
    return found


# --- batches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_lost_every_tuple_is_in_once(seed: int, flaky: Flaky):
    flaky.losing = lossy(seed)
    told: list[Appended] = []
    with serving(flaky) as target, promising.connect(target, retries=50) as session:
        total = session.ingest_many("s", (table(3 * i, 3 * i + 1, 3 * i + 2) for i in range(40)), on_ack=told.append)
    assert held(flaky.session) == list(range(120)), "once each, in order"
    assert total == Appended(120)
    assert told == [Appended(3)] * 40
    assert len(flaky.batches) > 40, "some were sent again"
    assert len({producer for producer, _ in flaky.batches}) == 1
    assert {number for _, number in flaky.batches} == set(range(1, 41))


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_table_whose_acknowledgement_is_lost_is_added_once(lost: str, flaky: Flaky, session: RemoteSession):
    losses = iter([lost, lost, ""])
    flaky.losing = lambda: next(losses)
    assert session.ingest("s", table(1, 2)) == Appended(2), "no duplicate: this very call added it"
    assert held(flaky.session) == [1, 2]
    assert flaky.calls == ["Ingest"] * 3


def test_a_number_of_ones_own_is_kept_when_it_is_sent_again(flaky: Flaky, session: RemoteSession):
    losses = iter(["after", "", ""])
    flaky.losing = lambda: next(losses)
    assert session.ingest("s", table(1), producer="till 7", sequence=5) == Appended(1)
    assert session.ingest("s", table(1), producer="till 7", sequence=5) == Appended(1, duplicate=True)
    assert flaky.batches == [("till 7", 5)] * 3
    assert held(flaky.session) == [1]


def test_tries_end(flaky: Flaky, session: RemoteSession):
    flaky.losing = lambda: "before"
    with pytest.raises(Unavailable, match="lost before it was added"):
        session.ingest("s", table(1))
    assert flaky.calls == ["Ingest"] * 4
    assert held(flaky.session) == []


def test_tries_are_counted_from_the_last_batch_that_got_through(flaky: Flaky, session: RemoteSession):
    turns = iter(["", "after"] * 20)
    flaky.losing = lambda: next(turns, "")
    assert session.ingest_many("s", [table(i) for i in range(20)]).accepted == 20
    assert held(flaky.session) == list(range(20))


def test_what_is_acknowledged_is_in_however_the_call_ends(flaky: Flaky, session: RemoteSession):
    flaky.closing = GONE
    assert session.ingest("s", table(1, 2)) == Appended(2)
    assert session.ingest_many("s", [table(3), table(4)]) == Appended(2)
    assert flaky.calls == ["Ingest"] * 2
    assert held(flaky.session) == [1, 2, 3, 4]


def test_a_refusal_ends_it_after_what_is_under_way(flaky: Flaky, session: RemoteSession):
    flaky.session.execute("CREATE SUMMARY m ON s (n) WITH GRANULARITY 1 SECOND AND COLLAPSE (2, 3)")
    bad = pa.table({"ts": pa.array([50], pa.timestamp("us")), "n": pa.array([None], pa.int64())})
    asked = 0

    def tables() -> Iterator[pa.Table]:
        nonlocal asked
        for asked in range(100):
            yield bad if asked == 5 else table(asked)

    told: list[Appended] = []
    with pytest.raises(NullKey, match="column 'n', row 0"):
        session.ingest_many("s", tables(), on_ack=told.append)
    assert asked < 20, "the rest was not even made"
    assert held(flaky.session) == [n for n in range(asked + 1) if n != 5], "those under way are in, and were waited for"
    assert len(told) == asked


def test_tables_that_cannot_be_made_end_it_after_what_is_under_way(flaky: Flaky, session: RemoteSession):
    def tables() -> Iterator[pa.Table]:
        yield table(1)
        yield table(2)
        raise OSError("the file ends here")

    with pytest.raises(OSError, match="the file ends here"):
        session.ingest_many("s", tables())
    assert held(flaky.session) == [1, 2]


def test_an_unknown_stream_is_not_tried_again(flaky: Flaky, session: RemoteSession):
    with pytest.raises(NoSuchName, match="did you mean s"):
        session.ingest("ss", table(1))
    assert flaky.calls == ["Ingest"]


def test_two_sessions_do_not_share_numbers(flaky: Flaky):
    with serving(flaky) as target:
        for number in range(3):
            with promising.connect(target) as session:
                assert session.ingest("s", table(number)) == Appended(1)
    assert held(flaky.session) == [0, 1, 2]


@pytest.mark.deep("starts and ends services")
def test_a_service_that_is_stopped_and_started_again_meanwhile():
    """A real one, whose connections break where they are. What it serves outlives it."""
    kept = Session()
    kept.execute(STREAM)
    rng = random.Random(4)
    stops = 0
    with ExitStack() as services:
        target = services.enter_context(running(session=kept))

        def tables() -> Iterator[pa.Table]:
            nonlocal stops
            for number in range(300):
                if rng.random() < 0.02:
                    stops += 1
                    services.pop_all().close()
                    services.enter_context(running(Settings(listen=target), kept))
                yield table(number)

        with promising.connect(target, retries=10) as session:
            total = session.ingest_many("s", tables())
    assert stops > 2
    assert total.accepted == 300
    assert held(kept) == list(range(300))


@pytest.mark.parametrize("problem", [StorageFull("no space"), StorageUnavailable("no disk")])
def test_a_disk_that_does_not_take_a_batch_is_tried_again_and_given_up(
    problem: PromisingError, flaky: Flaky, session: RemoteSession
):
    flaky.problems = [problem, problem]
    assert session.ingest_many("s", [table(1), table(2)]) == Appended(2)
    assert flaky.calls == ["Ingest"] * 3
    flaky.problems = [problem] * 4
    with pytest.raises(type(problem), match="no "):
        session.ingest("s", table(3))
    assert flaky.problems == []
    assert held(flaky.session) == [1, 2]


# --- other calls -------------------------------------------------------------------------------------------------


def test_questions_are_asked_again(flaky: Flaky, session: RemoteSession):
    flaky.problems = [GONE, LimitReached("busy", retry_seconds=0.001), GONE]
    assert session.estimate("m", [1]).value.tolist() == [1.0]
    assert flaky.calls == ["Estimate"] * 4


@pytest.mark.parametrize(
    "problem", [LimitReached("too many keys"), BadQuestion("no"), NoSuchName("no summary"), PromisingError("odd")]
)
def test_what_would_only_go_wrong_again_is_not_asked_again(
    problem: PromisingError, flaky: Flaky, session: RemoteSession
):
    flaky.problems = [problem]
    with pytest.raises(type(problem), match=str(problem)):
        session.estimate("m", [1])
    assert flaky.calls == ["Estimate"]


def test_questions_are_given_up(flaky: Flaky, session: RemoteSession):
    flaky.problems = [GONE] * 9
    with pytest.raises(Unavailable, match="not now"):
        session.estimate("m", [1])
    assert flaky.calls == ["Estimate"] * 4


@pytest.mark.parametrize("sql", [STREAM, "DROP STREAM s", "CREATE CONTINUOUS QUERY q AS SELECT n FROM s"])
def test_definitions_are_sent_once(sql: str, flaky: Flaky, session: RemoteSession):
    flaky.problems = [GONE]
    with pytest.raises(Unavailable):
        session.execute(sql)
    assert flaky.calls == ["Execute"]


@pytest.mark.parametrize("sql", ["SHOW STREAMS", "DESCRIBE s", "EXPLAIN SELECT n FROM s"])
def test_statements_that_change_nothing_are_sent_again(sql: str, flaky: Flaky, session: RemoteSession):
    flaky.problems = [GONE]
    session.execute(sql)
    assert flaky.calls == ["Execute"] * 2


def test_a_query_is_asked_again_before_its_first_frame(flaky: Flaky, session: RemoteSession):
    flaky.problems = [GONE, LimitReached("too many queries", retry_seconds=0.001)]
    assert session.query("SELECT n FROM s").to_arrow().to_pydict() == {"n": [0]}
    assert flaky.calls == ["Query"] * 3


def test_a_query_is_not_asked_again_after_that(flaky: Flaky, session: RemoteSession):
    flaky.after = GONE
    answer = session.query("SELECT n FROM s")
    assert next(iter(answer)).rows.to_pydict() == {"n": [0]}
    for _ in range(2):
        with pytest.raises(Unavailable, match="not now"):
            answer.to_arrow()
    assert flaky.calls == ["Query"]


def test_parts_of_a_response_that_broke_off_are_not_kept(flaky: Flaky, session: RemoteSession):
    flaky.after = GONE
    assert session.probe("m", [1]).num_rows == 1
    assert flaky.calls == ["Probe"] * 2


def test_an_answer_that_is_let_go_ends_its_call(flaky: Flaky, session: RemoteSession):
    flaky.stay = True
    answer = session.query("SELECT n FROM s")
    next(iter(answer))
    assert not flaky.ended.is_set()
    del answer
    gc.collect()
    assert flaky.ended.wait(60)


def test_a_closed_session_says_so(flaky: Flaky, session: RemoteSession):
    flaky.stay = True
    answer = session.query("SELECT n FROM s")
    next(iter(answer))
    session.close()
    session.close()
    with pytest.raises(Unavailable, match="the session is closed"):
        answer.run()
    for call in (
        lambda: session.estimate("m", [1]),
        lambda: session.query("SELECT n FROM s"),
        lambda: session.ingest("s", table(1)),
        lambda: session.execute("SHOW STREAMS"),
    ):
        with pytest.raises(Unavailable, match="the session is closed"):
            call()
    assert flaky.ended.wait(60)


def test_nobody_there():
    with promising.connect("127.0.0.1:1", retries=0) as session, pytest.raises(Unavailable) as found:
        session.execute("SHOW STREAMS")
    assert str(found.value).startswith("cannot reach the service at 127.0.0.1:1: ")


# --- the policy --------------------------------------------------------------------------------------------------


def test_pauses_grow_and_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("promising.client.retries.SHORTEST_WAIT", 0.1)
    retries = Retries(9, random.Random(1))
    pauses = [retries.pause(tries, GONE) for tries in range(1, 11)]
    assert pauses[9] is None
    for tries, pause in enumerate(pauses[:9]):
        bound = min(0.1 * 2**tries, 5.0)
        assert pause is not None and bound / 2 <= pause <= bound
    told = retries.pause(1, LimitReached("busy", retry_seconds=7.0))
    assert told is not None and 7.0 <= told <= 7.1
    assert retries.pause(1, LimitReached("too large")) is None
    assert Retries(0).pause(1, GONE) is None


@pytest.mark.parametrize("most", [-1, 1.5, True, None])
def test_retries_that_cannot_be(most):
    with pytest.raises(BadSettings, match="retries"):
        Retries(most)
