"""docs/reference/cli.md says what the program has, no more and no less."""

import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from promising.cli.app import app
from promising.cli.exit_codes import MEANING

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
EVERY = "Options of all commands"


def commands(group, before=()):
    """Every command that can be run, by its words."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*before, name))
        else:
            yield " ".join((*before, name)), command


ROOT_COMMAND = typer.main.get_command(app)
COMMANDS = dict(commands(ROOT_COMMAND))
SECTIONS = {
    head.strip("`"): body for head, body in re.findall(r"^## (.+?)\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
NAMED = {re.sub(r" [\[A-Z].*", "", head).removeprefix("promising "): body for head, body in SECTIONS.items()}


def options(command):
    return {name for p in command.params for name in p.opts if name.startswith("-") and name not in ("--help", "-h")}


def told(body):
    """The options in the first cells of a section's tables."""
    cells = re.findall(r"^(`-.+?) \|", body, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(--?[a-z][a-z-]*)", cell)}


def test_the_page_has_every_command_and_no_other():
    assert set(NAMED) - {EVERY, "Exit codes"} == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_has_every_option_of_a_command(name):
    assert told(NAMED[name]) == options(COMMANDS[name])


def test_the_page_has_the_options_of_all_commands():
    assert told(NAMED[EVERY]) == options(ROOT_COMMAND)


def test_the_page_has_every_exit_code_with_its_meaning():
    rows = re.findall(r"^(\d+) \| (.+?)$", NAMED["Exit codes"], re.MULTILINE)
    assert rows == [(str(int(code)), meaning) for code, meaning in MEANING.items()]
    epilog = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300"}).stdout.rpartition("Exit codes:")[2]
    assert re.findall(r"\b(\d+) ", epilog) == [code for code, _ in rows]


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_a_terminal_and_begins_with_one_sentence(name):
    ended = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"})
    assert ended.exit_code == 0
    assert max(map(len, ended.stdout.splitlines())) <= 80
    lines = [line.strip() for line in ended.stdout.splitlines() if line.strip()]
    assert lines[0].startswith(f"Usage: promising {name}".strip())
    assert lines[1].endswith((".", ";")) or lines[2].endswith(".")


@pytest.mark.parametrize("panel", ["Service", "Data", "Questions", "Look inside", "Storage", EVERY])
def test_help_is_grouped(panel):
    assert f"─ {panel} ─" in CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
