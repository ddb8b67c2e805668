"""Logs: JSON, one object a line, with nothing in it that a user brought."""

import io
import json
import logging

import pytest

from promising.server import logs


@pytest.fixture
def lines():
    """Set logging up, give back what was written; and put logging back as it was."""
    root = logging.getLogger()
    before, level, own = root.handlers[:], root.level, logs.LOGGER.level
    stream = io.StringIO()
    logs.setup("info", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:] = before
    root.setLevel(level)
    logs.LOGGER.setLevel(own)


def test_an_event_is_one_line(lines):
    logs.event("rpc", method="/a/B", code="OK", seconds=0.0123456789, client="me", peer=None, rows=3, slow=False)
    (line,) = lines()
    assert list(line)[:3] == ["time", "level", "event"]
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "event": "rpc",
        "method": "/a/B",
        "code": "OK",
        "seconds": 0.012346,
        "client": "me",
        "peer": None,
        "rows": 3,
        "slow": False,
    }


def test_no_field_can_forge_a_line(lines):
    logs.event("rpc", client='x"}\n{"event": "forged\u2028', time="never", reason="r" * 10_000)
    (line,) = lines()
    assert line["event"] == "rpc"
    assert line["client"] == 'x"}\n{"event": "forged\u2028'
    assert line["time"] != "never"
    assert len(line["reason"]) == logs.LONGEST


def test_every_line_is_json_even_with_odd_numbers(lines):
    logs.event("rpc", seconds=float("nan"), cpu_seconds=float("inf"))
    (line,) = lines()
    assert line["seconds"] is None
    assert line["cpu_seconds"] is None


def test_the_level_holds(lines):
    logs.event("quiet", level=logging.DEBUG)
    logs.event("loud", level=logging.ERROR)
    assert [(line["event"], line["level"]) for line in lines()] == [("loud", "error")]


def test_a_second_setup_replaces_the_first(lines):
    again = io.StringIO()
    logs.setup("debug", again)
    logs.event("once", level=logging.DEBUG)
    assert lines() == []
    assert len(again.getvalue().splitlines()) == 1


def test_what_libraries_say_is_told_without_their_words(lines):
    library = logging.getLogger("some.library")
    library.info("nothing")
    library.warning("price %s of item %s", "13.37", "item-4711")
    try:
        raise ValueError("item-4711")
    except ValueError:
        library.exception("failed at item-4711")
    said, failed = lines()
    assert (said["event"], said["logger"], said["level"]) == ("library", "some.library", "warning")
    assert said["at"].startswith("test_logs.py:")
    assert failed["error"] == "ValueError"
    assert failed["frames"][0].startswith("server/test_logs.py:")
    assert "4711" not in json.dumps([said, failed])
    assert "13.37" not in json.dumps([said, failed])


def test_frames_are_places_and_nothing_else():
    def deep(n: int) -> None:
        if n == 0:
            raise KeyError("item-4711")
        deep(n - 1)

    with pytest.raises(KeyError) as caught:
        deep(100)
    found = logs.frames(caught.value)
    assert len(found) == logs.FRAMES
    assert all(frame.startswith("server/test_logs.py:") for frame in found)
