"""The demo, as `make demo` runs it, on a short piece of the log."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from promising import demo, journey

ROOT = Path(__file__).resolve().parents[2]
PNG = b"\x89PNG\r\n\x1a\n"
HIDE = "import sys; sys.modules[{0!r}] = None; from promising.demo import main; sys.exit(main([]))"


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A run over enough days that all of `G_1` and `G_2` have zones: (what it printed, its folder)."""
    folder = tmp_path_factory.mktemp("demo")
    done = run("-m", "promising.demo", "--rows", "60000", cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout, folder


def test_the_demo_says_what_it_loaded_and_that_it_is_simulated(shown):
    text, _ = shown
    assert "60,000 tuples" in text
    assert "2017-01-01 to 2017-01-15" in text
    assert "simulated" in text


def test_the_demo_shows_zones_with_their_reasons(shown):
    text, _ = shown
    rows = re.findall(r"^ (?:(G_\d)| {3}) +(\d+) +\w{3} \d\d .*?([\d,]+) +(\w+) *$", text, re.MULTILINE)
    assert [granularity for granularity, *_ in rows if granularity] == ["G_1", "G_2"]
    assert sum(int(tuples.replace(",", "")) for _, _, tuples, _ in rows) == 60_000
    assert {reason for *_, reason in rows} == {"error", "behaviour", "boundary", "open", "calendar"}


def test_the_demo_shows_estimates_beside_exact_counts(shown):
    text, _ = shown
    found = re.findall(r"^ \d+ .*? ([\d,]+) +([\d,]+) - ([\d,]+) +([\d,]+) +G_\d", text, re.MULTILINE)
    numbers = [[int(n.replace(",", "")) for n in row] for row in found]
    assert len(numbers) == 8
    assert all(lower <= estimate <= upper for estimate, lower, upper, _ in numbers)
    sold = journey.transactions(60_000)[journey.KEY].value_counts()
    most = max(count["counts"].as_py() for count in sold)
    assert numbers[0][3] == most


def test_the_demo_writes_its_picture_where_it_runs(shown):
    text, folder = shown
    assert "promising-grid.png" in text
    assert (folder / "promising-grid.png").read_bytes().startswith(PNG)


def test_a_log_of_one_tuple_is_shown_too(tmp_path):
    done = run("-m", "promising.demo", "--rows", "1", "--out", "one.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "1 tuples" in done.stdout
    assert (tmp_path / "one.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("package", demo.NEEDED)
def test_a_missing_package_is_named_with_what_to_do(tmp_path, package):
    done = run("-c", HIDE.format(package), cwd=tmp_path)
    assert done.returncode == 1
    assert package in done.stderr
    assert "make setup" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--rows", "0"], "--rows must be at least 1, got 0"),
        (["--rows", "many"], "invalid int value: 'many'"),
        (["--out", "nowhere/grid.png"], "there is no folder"),
    ],
)
def test_wrong_arguments_are_refused(arguments, complaint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        demo.main(arguments)
    assert stopped.value.code == 2
    assert complaint in capsys.readouterr().err


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit) as stopped:
        demo.main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    assert "--rows" in text
    assert "--out" in text
