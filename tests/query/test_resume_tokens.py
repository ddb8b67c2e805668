"""Resume tokens: of one client, for one use, and evicted by nobody else."""

from dataclasses import dataclass

import pytest

from promising.errors import BadToken, TokenExpired
from promising.query import resume_tokens
from promising.query.resume_tokens import KEPT, MOST, Shelf
from promising.query.session import Session
from promising.testing import ManualClock


@dataclass(eq=False)
class Suspended:
    """As much of a cursor as a shelf looks at."""

    nbytes: int = 1


@pytest.fixture
def clock():
    return ManualClock(0)


@pytest.fixture
def shelf(clock):
    return Shelf(clock, b"secret")


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(resume_tokens, "MOST_BYTES", 100)


def left(shelf, tokens, client):
    """Which of these tokens can still be used, by number."""
    found = []
    for number, token in enumerate(tokens):
        try:
            shelf.take(token, client)
        except TokenExpired:
            continue
        found.append(number)
    return found


def test_a_token_is_of_the_client_that_asked(shelf):
    mine = Suspended()
    token = shelf.put(mine, "ann")
    said = set()
    for other in ("bob", "", "ann ", "Ann"):
        with pytest.raises(BadToken) as caught:
            shelf.take(token, other)
        said.add(str(caught.value))
    with pytest.raises(BadToken) as caught:
        shelf.take("0" * 24 + "." + "0" * 32, "bob")
    assert said == {str(caught.value)}, "as one that never was"
    shelf.drop(token, "bob")
    assert shelf.take(token, "ann") is mine
    with pytest.raises(TokenExpired):
        shelf.take(token, "ann")
    assert len(shelf) == 0


def test_names_of_tokens_and_clients_are_not_confused(shelf):
    token = shelf.put(Suspended(), "b c")
    name, _, signature = token.partition(".")
    with pytest.raises(BadToken):
        shelf.take(f"{name} b.{signature}", "c")


def test_a_client_with_many_tokens_evicts_its_own(shelf):
    mine = [shelf.put(Suspended(), "ann") for _ in range(3)]
    many = [shelf.put(Suspended(), "bob") for _ in range(2 * MOST)]
    assert len(shelf) == 3 + MOST
    assert left(shelf, many, "bob") == list(range(MOST, 2 * MOST))
    assert left(shelf, mine, "ann") == [0, 1, 2]


def test_a_client_with_large_answers_evicts_its_own(shelf, small):
    mine = [shelf.put(Suspended(16), "ann") for _ in range(3)]
    large = [shelf.put(Suspended(10), "bob") for _ in range(20)]
    assert left(shelf, mine, "ann") == [0, 1, 2]
    assert left(shelf, large, "bob") == list(range(15, 20))


def test_all_together_stay_within_the_limit(shelf, small):
    for number in range(50):
        last = shelf.put(Suspended(60), f"client {number}")
        assert len(shelf) == 1
    large = shelf.put(Suspended(90), "large")
    assert left(shelf, [large], "large") == []
    assert left(shelf, [last], "client 49") == [0]


def test_an_answer_alone_stays_however_large(shelf, small):
    first, second = shelf.put(Suspended(1000), "ann"), shelf.put(Suspended(1000), "ann")
    assert left(shelf, [first, second], "ann") == [1]


def test_cursors_that_grow_are_measured_again(shelf, small):
    growing = Suspended(1)
    token, other = shelf.put(growing, "ann"), shelf.put(Suspended(60), "bob")
    growing.nbytes = 90
    new = shelf.put(Suspended(41), "cid")
    assert left(shelf, [token], "ann") == left(shelf, [other], "bob") == []
    assert left(shelf, [new], "cid") == [0]


def test_expired_ones_of_all_are_released(shelf, clock):
    old = shelf.put(Suspended(), "ann")
    clock.tick(KEPT + 1)
    shelf.put(Suspended(), "bob")
    assert len(shelf) == 1
    assert left(shelf, [old], "ann") == []


def test_a_session_binds_its_tokens_to_who_asked():
    session = Session(clock=lambda: 1 << 50, seed=7)
    session.execute("CREATE STREAM s (ts TIMESTAMP, k BIGINT) TIMESTAMP BY ts")
    session.ingest("s", {"ts": [1, 2, 3], "k": [1, 2, 3]})
    token = session.query("SELECT k FROM s", budget=0, client="ann").run().progress.token
    assert token is not None
    for other in ("", "bob"):
        with pytest.raises(BadToken, match="no resume token of this session"):
            session.resume(token, client=other)
    token = session.resume(token, budget=0, client="ann").run().progress.token
    assert token is not None
    with pytest.raises(BadToken):
        session.resume(token)
    assert session.resume(token, client="ann").to_arrow().num_rows == 3
