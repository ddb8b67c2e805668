"""Subscriptions: tokens that go on where they were given or begin anew, and one that is closed while it waits."""

import base64
import threading
from dataclasses import replace

import pytest

import promising
from promising.errors import BadToken, NoSuchName
from promising.query.standing.feed_tokens import read_token, token_head, token_progress
from tests.query.standing.sessions import SECOND, create, fill, items, put, rows


def test_a_token_goes_on_where_it_was_given(session):
    for query in (
        "SELECT item FROM a WINDOW 10 SECONDS",
        "SELECT item FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.item = a.item) WINDOW 10 SECONDS",
        "SELECT item, count(*) AS n FROM a GROUP BY item WINDOW 10 SECONDS",
    ):
        view = create(session, "q", query)
        put(session, "a", (0, 1, 0), (0, 2, 0))
        assert 1 in items(view)
        token = view.token
        view.close()
        put(session, "a", (1, 3, 0))
        put(session, "b", (1, 2, 0))
        again = session.subscribe("q", token)
        delta = again.poll()
        assert not delta.reset
        assert 1 not in delta.inserts["item"].to_pylist()
        session.execute("DROP QUERY q")


def test_tokens_that_do_not_help_begin_anew_and_others_are_refused(session):
    put(session, "a", (0, 1, 0))
    token = ""
    for _ in range(2):
        view = create(session, "q", "SELECT item FROM a WINDOW 10 SECONDS")
        if token:
            assert session.subscribe("q", token).poll().reset, "of a query of that name that was dropped"
        view.poll()
        token = view.token or ""
        session.execute("DROP QUERY q")
    create(session, "q", "SELECT item FROM a WINDOW 10 SECONDS")
    for bad in ("", "x", "bm90IGpzb24=", "W10=", token[:-8]):
        with pytest.raises(BadToken):
            session.subscribe("q", bad)
    with pytest.raises(NoSuchName, match="'z'"):
        session.subscribe("z")


def test_retractions_that_nobody_remembers_begin_anew(session, monkeypatch):
    monkeypatch.setattr("promising.query.standing.views.REMEMBERED", 4)
    view = create(
        session, "q", "SELECT item FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.item = a.item) WINDOW 9 SECONDS"
    )
    put(session, "a", *((0, item, 0) for item in range(20)))
    assert len(items(view)) == 20
    token = view.token
    for item in range(18):
        put(session, "b", (1, item, 0))
        session.standing.tick()
    again = session.subscribe("q", token)
    assert again.poll().reset
    assert items(again) == items(view) == [18, 19]


def test_a_service_that_aged_by_the_clock_and_starts_again(tmp_path):
    with promising.open(tmp_path, seed=1) as session:
        session.execute("CREATE STREAM a (ts TIMESTAMP, item BIGINT, price DOUBLE) TIMESTAMP BY ts")
        view = create(session, "q", "SELECT item FROM a WINDOW 10 SECONDS")
        fill(session, "a", [0, 5], [1, 2])
        session.standing.tick(idle=0, silence=SECOND)
        session.standing.tick(idle=7 * SECOND, silence=SECOND)
        assert rows(view) == [(2,)]
        token = view.token
    with promising.open(tmp_path, seed=1) as session:
        again = session.subscribe("q", token)
        delta = again.poll()
        assert delta is not None
        assert delta.reset, "time has gone back"
        assert rows(again) == [(1,), (2,)]


def test_a_token_made_to_hurt(session):
    create(session, "q", "SELECT item FROM a WINDOW 10 SECONDS")
    for text in (
        "[" * 100_000,
        '["e", "n", 1e999, 0, {}]',
        '["e", "n", Infinity, 0, {}]',
        '["e", "n", 1, 0, {"a": 1e999}]',
    ):
        with pytest.raises(BadToken):
            session.subscribe("q", base64.urlsafe_b64encode(text.encode()).decode())


def test_whoever_waits_for_a_change_is_let_go_when_it_is_closed(session, monkeypatch):
    view = create(session, "q", "SELECT item FROM a WINDOW 10 SECONDS")
    view.poll()
    looked, tick = threading.Event(), session.standing.tick

    def ticked(**how):
        looked.set()
        return tick(**how)

    def close():
        assert looked.wait(120)
        view.close()

    monkeypatch.setattr(session.standing, "tick", ticked)
    closing = threading.Thread(target=close)
    closing.start()
    assert list(view) == []
    closing.join()
    assert looked.is_set()


def test_a_token_in_which_a_digit_has_changed_is_no_other_position(session):
    """It would silently skip changes."""
    view = create(session, "q", "SELECT item FROM a WINDOW 10 SECONDS")
    for at in range(12):
        put(session, "a", (at / 10, at, 0))
        view.poll()
    raw = base64.urlsafe_b64decode(view.token)
    for at in range(raw.rindex(b'",') + 2, len(raw)):
        if raw[at : at + 1].isdigit():
            changed = raw[:at] + (b"1" if raw[at : at + 1] != b"1" else b"2") + raw[at + 1 :]
            with pytest.raises(BadToken):
                session.subscribe("q", base64.urlsafe_b64encode(changed).decode())
    assert session.subscribe("q", view.token).poll() is None


@pytest.mark.parametrize("now", [1 << 63, -(1 << 70), 1.5, True, None, "1"])
def test_a_token_with_a_number_out_of_range_is_refused(session, now):
    view = create(session, "q", "SELECT item FROM a WINDOW 10 SECONDS")
    put(session, "a", (0, 1, 0))
    assert items(view) == [1]
    epoch, number, seen = read_token(view.token)
    with pytest.raises(BadToken, match="no token of a subscription"):
        session.subscribe("q", token_head(epoch, number) + token_progress(replace(seen, now=now)))
