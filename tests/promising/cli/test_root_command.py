"""Options of all commands may stand anywhere; errors end in one place."""

from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from promising import errors
from promising.cli import exit_codes
from promising.cli.app import app
from promising.cli.context import State
from promising.cli.exit_codes import Code, code_of
from promising.cli.root_command import Root, _ordered

ROOT: Any = typer.main.get_command(app)


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        ("query x --output json", "--output json query x"),
        ("query x -o json -q", "-o json -q query x"),
        ("query --budget 1s --target=a:1 x", "--target=a:1 query --budget 1s x"),
        ("--quiet query x", "--quiet query x"),
        ("create-summary s --on t --key k --ca f", "--ca f create-summary s --on t --key k"),
        ("--key f create-summary s --key k", "--key f create-summary s --key k"),
        ("query --key f x", "--key f query x"),
        ("token create x --role query --output json", "--output json token create x --role query"),
        ("query -- --output json", "query -- --output json"),
        ("query x --output", "--output query x"),
        ("query --help", "query --help"),
    ],
)
def test_options_of_all_commands_come_first(given, ordered):
    assert _ordered(ROOT, given.split()) == ordered.split()


def test_a_statement_may_begin_with_a_comment():
    assert _ordered(ROOT, ["sql", "-- a = b\nSHOW STREAMS"]) == ["sql", " -- a = b\nSHOW STREAMS"]


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (errors.BadSyntax("x"), Code.REQUEST),
        (errors.MissingColumn("x"), Code.REQUEST),
        (errors.BadSettings("x"), Code.USAGE),
        (errors.StoreInUse("x"), Code.USAGE),
        (errors.NewerFormat("x"), Code.USAGE),
        (errors.NotAStore("x"), Code.USAGE),
        (errors.StorageFull("x"), Code.UNAVAILABLE),
        (errors.StorageUnavailable("x"), Code.UNAVAILABLE),
        (errors.DataDamaged("x"), Code.REQUEST),
        (errors.Unavailable("x"), Code.UNAVAILABLE),
        (errors.DeadlineExceeded("x"), Code.UNAVAILABLE),
        (errors.LimitReached("x", 1.0), Code.UNAVAILABLE),
        (errors.LimitReached("x"), Code.REQUEST),
        (errors.Unauthenticated("x"), Code.DENIED),
        (errors.Forbidden("x"), Code.DENIED),
        (errors.InternalError("x"), Code.FAULT),
        (FileNotFoundError(2, "not there", "x"), Code.REQUEST),
        (KeyError("x"), Code.FAULT),
    ],
)
def test_every_error_has_its_exit_code(problem, code):
    assert code_of(problem) is code


def run(raised, **env):
    """A program whose only command raises."""
    made = typer.Typer(cls=Root, pretty_exceptions_enable=False)

    @made.callback()
    def root(ctx: typer.Context) -> None:
        ctx.obj = State(target="there:7")

    @made.command()
    def go() -> None:
        raise raised

    return CliRunner().invoke(made, ["go"], env={"PROMISING_DEBUG": "", **env})


def test_an_error_is_one_clean_message():
    ended = run(errors.NoSuchName("no stream 'x'"))
    assert (ended.exit_code, ended.stdout, ended.stderr) == (1, "", "error: no stream 'x'\n")


def test_who_finds_no_service_is_told_how_to_get_one():
    told = "cannot reach the service at there:7: failed to connect to all addresses; last error: UNKNOWN: " + (
        "ipv4:1.2.3.4:7: Failed to connect to remote host: Connection refused"
    )
    ended = run(errors.Unavailable(told))
    assert ended.exit_code == 3
    assert ended.stderr.splitlines() == [
        "error: no service at there:7 (Connection refused)",
        "Start one with `promising serve`, or name the one you mean with --target HOST:PORT.",
    ]
    assert "shutting down" in run(errors.Unavailable("the service is shutting down")).stderr


def test_a_fault_shows_where_only_when_asked():
    ended = run(ZeroDivisionError("boom"))
    assert ended.exit_code == 70
    assert "Traceback" not in ended.stderr
    assert "ZeroDivisionError: boom" in ended.stderr
    assert "Traceback" in run(ZeroDivisionError("boom"), PROMISING_DEBUG="1").stderr
    assert "Traceback" not in run(errors.BadSyntax("x")).stderr
    assert "Traceback" in run(errors.BadSyntax("x"), PROMISING_DEBUG="1").stderr


def test_what_would_steer_the_terminal_is_written_out():
    assert run(errors.BadSyntax("a\x1b]0;b\x07\nc")).stderr == "error: a\\x1b]0;b\\x07\nc\n"


def test_ctrl_c_ends_with_130():
    assert run(KeyboardInterrupt()).exit_code == 130


def test_every_exit_code_has_a_meaning():
    assert set(exit_codes.MEANING) == set(Code)
