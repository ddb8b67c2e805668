"""The shell, typed into."""

import stat
from contextlib import contextmanager

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import promising
from promising.cli.context import State
from promising.cli.shell import Names, Shell, complete, quoted
from promising.errors import Unavailable


@pytest.fixture(autouse=True)
def state_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "promising"


@contextmanager
def typing(target, keys):
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(keys)
        with promising.connect(target) as session:
            yield Shell(State(target=target), session, input=pipe, output=DummyOutput())


def typed(target, keys, capsys):
    """What the shell writes while these keys are pressed; they must make it end."""
    with typing(target, keys) as shell:
        shell.run()
    return capsys.readouterr()


END = "\x04"


def test_a_statement_ends_with_a_semicolon_over_any_number_of_lines(stores, capsys):
    told = typed(stores, "SELECT count(*)\rAS n\rFROM store1;\r\\q\r", capsys)
    assert told.out.split() == ["n", "----", "4000"]
    assert "\\h is help" in told.err


def test_an_error_is_shown_and_the_shell_goes_on(stores, capsys):
    told = typed(stores, "SELECT nix FROM store1;\rSELEC;\rSHOW QUERIES;\r" + END, capsys)
    assert told.err.count("error:") == 2
    assert "  SELECT nix FROM store1;\n         ^" in told.err
    assert told.out.startswith("name")


def test_commands_of_the_shell(stores, capsys):
    told = typed(stores, "\\h\r\\x\r\rexit\r", capsys)
    assert "CREATE SUMMARY name ON stream" in told.out
    assert "there is no \\x" in told.err


def test_ctrl_c_forgets_what_was_typed_and_ctrl_d_leaves(stores, capsys):
    assert typed(stores, "SELECT nonsense\x03" + END, capsys).out == ""


def test_a_faulty_service_is_no_reason_to_leave(stores, capsys, monkeypatch):
    with typing(stores, "SHOW STREAMS;\rSHOW STREAMS;\r\\q\r") as shell:
        answers = [Unavailable("gone for now"), None]
        execute = shell._session.execute

        def failing(sql):
            if (problem := answers.pop(0)) is not None:
                raise problem
            return execute(sql)

        monkeypatch.setattr(shell._session, "execute", failing)
        shell.run()
    told = capsys.readouterr()
    assert "gone for now" in told.err
    assert "store1" in told.out


def test_statements_are_remembered_for_their_user_alone(stores, capsys, state_folder):
    typed(stores, "SHOW QUERIES;\r" + END, capsys)
    file = state_folder / "history"
    assert "+SHOW QUERIES;" in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    told = typed(stores, "\x1b[A\r" + END, capsys)  # the arrow up brings it back
    assert told.out.startswith("name")


def test_a_history_that_cannot_be_kept_is_no_reason_to_fail(stores, capsys, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert typed(stores, "SHOW QUERIES;\r" + END, capsys).out.startswith("name")


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        ("SHOW STREAMS", False),
        ("SHOW STREAMS;", True),
        ("SHOW STREAMS; -- done", True),
        ("SELECT 'a;", False),
        ("SELECT 'a;';", True),
        ("SELECT /* ;", False),
        ('SELECT "a;', False),
        ("SELECT § ", True),
        ("  \\h", True),
        ("quit", True),
    ],
)
def test_when_a_text_is_whole(text, whole):
    assert complete(text) is whole


def completions(session, text):
    return [c.text for c in Names(session).get_completions(Document(text), CompleteEvent())]


def test_keywords_and_names_are_completed(stores):
    with promising.connect(stores) as session:
        assert completions(session, "SELECT * FROM STORE") == ["store1", "store2"]
        assert {"item_id", "items1", "items2"} <= set(completions(session, "DESCRIBE it"))
        assert "price" in completions(session, "SELECT count(pri")
        assert completions(session, "SELECT a.item_i") == ["item_id"]
        assert "GRANULARITY" in completions(session, "WITH gran")
        assert completions(session, "SELECT ") == []


def test_new_names_are_completed_once_they_are_there(stores):
    with typing(stores, "CREATE STREAM brandnew (ts TIMESTAMP) TIMESTAMP BY ts;\r" + END) as shell:
        assert "brandnew" not in shell._names.names()
        shell.run()
        assert "brandnew" in shell._names.names()


def test_without_a_service_keywords_are_completed():
    with promising.connect("127.0.0.1:1", retries=0) as session:
        assert "SELECT" in completions(session, "sel")


def test_names_that_are_no_words_come_in_quotes():
    assert [quoted(n) for n in ("a", "A_1", "a b", "1a", 'a"b', "order")] == [
        "a",
        "A_1",
        '"a b"',
        '"1a"',
        '"a""b"',
        '"order"',
    ]
