"""The demo, as `make demo` runs it, on a short piece of the log."""

import base64
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pytest

from promising.demo import __main__ as demo
from promising.demo import journey

ROOT = Path(__file__).resolve().parents[3]
PNG = b"\x89PNG\r\n\x1a\n"
HIDE = "import sys; sys.modules[{0!r}] = None; from promising.demo.__main__ import main; sys.exit(main([]))"
VOID = {"meta", "img", "br", "link"}
PATIENCE = 300.0  # seconds: kernels may have to be compiled


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100", "PYTHONUNBUFFERED": "1", **more}


def run(*arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], cwd=cwd, env=environment(**more), capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A run over enough days that `G_1` and `G_2` have zones: (what it printed, its page).

    What a user has configured for a service of their own must not disturb it.
    """
    folder = tmp_path_factory.mktemp("demo")
    (folder / "promising.toml").write_text("no setting = of ours")
    done = run("-m", "promising.demo", "--rows", "60000", cwd=folder, PROMISING_LISTEN="nowhere")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout, (folder / "promising-demo.html").read_text("utf-8")


class Outline(HTMLParser):
    """Checks that every element is closed in order, and keeps what is to be looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.images: list[dict[str, str | None]] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "img":
            self.images.append(dict(attrs))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_demo_says_what_it_loaded_and_that_it_is_simulated(shown):
    text, page = shown
    assert "Loaded 55,000 rows, 2017-01-01 to 2017-01-14" in text
    assert "the other 5,000 rows are replayed" in text
    assert "simulated" in text
    assert journey.REMARK in page


def test_the_demo_asks_every_kind_of_question(shown):
    text, _ = shown
    assert re.search(r"^ +DESC +WEIGHTED +ASC *$", text, re.MULTILINE)
    assert re.search(r"coverage( +(under |over )?[\d.]+ %){3}", text)
    assert re.search(r"\d rows, 100 % of the answer; [\d,]+ tuples read", text)
    for direction in ("DESC", "ASC", "WEIGHTED"):
        assert re.search(rf"^ +{direction} +10 % after .*100 % after [\d,]+ ms$", text, re.MULTILINE)


def test_the_sum_narrows_down_on_the_exact_one(shown):
    text, _ = shown
    steps = re.findall(r"^ +[\d.]+ ms +([\d,]+) +\(([\d,]+) to ([\d,]+)\)$", text, re.MULTILINE)
    numbers = [[int(n.replace(",", "")) for n in step] for step in steps]
    assert numbers
    assert all(lower <= value <= upper for value, lower, upper in numbers)
    assert re.search(r"^ +[\d.]+ ms +[\d,]+ +exact, asked without WITH ERROR$", text, re.MULTILINE)


def test_the_demo_draws_the_grid_and_tells_a_story(shown):
    text, _ = shown
    assert "a zone ends by" in text
    assert re.search(r"^Story: promising story \w+_items/G\d/\d+$", text, re.MULTILINE)
    assert "It took in" in text


def test_the_page_is_whole_and_needs_nothing_else(shown):
    _, page = shown
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    assert len(outline.images) == 2
    for image in outline.images:
        assert image["alt"]
        kind, data = str(image["src"]).split(",", 1)
        assert kind == "data:image/png;base64"
        assert base64.b64decode(data).startswith(PNG)
    assert {"main", "header", "section", "figure", "figcaption", "table"} <= set(outline.tags)
    assert "http" not in re.sub(r"base64,[^\"]+", "", page)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


def test_the_page_has_every_zone_with_its_reason(shown):
    text, page = shown
    rows = re.findall(r'<tr><td>G_(\d)&nbsp;\d+</td>.*?class="number">([\d,]+)</td>.*?</span>(\w+)</td>', page)
    held = re.search(r"_items on ItemID: ([\d,]+) tuples of [\d,]+ keys in (\d+) zones", text)
    assert held is not None
    assert len(rows) == int(held[2])
    assert sum(int(tuples.replace(",", "")) for _, tuples, _ in rows) == int(held[1].replace(",", ""))
    assert {reason for granularity, _, reason in rows if granularity != "1"} == {"calendar"}
    assert "open" in {reason for *_, reason in rows}


@pytest.mark.deep("runs the demo once more")
def test_a_log_of_one_tuple_is_shown_too(tmp_path):
    done = run("-m", "promising.demo", "--rows", "1", "--out", "one.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Loaded 1 rows" in done.stdout
    assert (tmp_path / "one.html").read_text("utf-8").startswith("<!doctype html>")


@contextmanager
def under_way(*arguments: str, cwd: Path, until: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A demo that has come as far as a word, and all that it said up to there."""
    command = [sys.executable, "-m", "promising.demo", *arguments]
    process = subprocess.Popen(
        command, cwd=cwd, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        said, read = "", b""
        end = time.monotonic() + PATIENCE
        while until not in said:
            assert time.monotonic() < end, said
            if select.select([process.stdout], [], [], 1.0)[0]:
                part = os.read(process.stdout.fileno(), 1 << 16)  # readline would keep lines that select cannot see
                assert part, said
                read += part
                said = read.decode(errors="ignore")  # the last letter may be half there
        yield process, said
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=PATIENCE)


def address(said: str) -> str:
    found = re.search(r"It takes calls at (\S+),", said)
    assert found is not None
    return found[1]


def taken(where: str) -> bool:
    """Whether anybody listens there."""
    host, port = where.rsplit(":", 1)
    with socket.socket() as probe:
        probe.settimeout(5)
        return probe.connect_ex((host, int(port))) == 0


@pytest.mark.deep("runs the demo once more")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, demo.INTERRUPTED), (signal.SIGTERM, demo.TERMINATED)])
def test_a_demo_that_is_stopped_takes_its_service_with_it(tmp_path, number, status):
    with under_way("--rows", "60000", cwd=tmp_path, until="It takes calls at") as (process, said):
        assert taken(address(said))
        process.send_signal(number)
        _, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == status
        assert "Traceback" not in errors
    assert not taken(address(said))


@pytest.mark.deep("runs the demo once more")
def test_a_demo_that_stays_can_be_asked_with_the_commands_it_shows(tmp_path):
    with under_way("--rows", "3000", "--stay", cwd=tmp_path, until="The service stays") as (process, said):
        commands = re.findall(r"promising (--target \S+ (?:describe|query) .*)$", said, re.MULTILINE)
        assert len(commands) == 2
        story = re.search(r"^Story: promising (story \S+)$", said, re.MULTILINE)
        assert story is not None
        for command in (*commands, f"--target {address(said)} {story[1]}"):
            arguments = [part.strip('"') for part in re.findall(r'"[^"]*"|\S+', command)]
            done = run("-m", "promising.cli", *arguments, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert done.stdout
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == demo.INTERRUPTED


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
        (["--out", "nowhere/page.html"], "there is no folder"),
    ],
)
def test_wrong_arguments_are_refused(arguments, complaint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        demo.main(arguments)
    assert stopped.value.code == 2
    assert complaint in capsys.readouterr().err


def test_the_demo_compiles_nothing_itself():
    """Kernels are the service's. Whoever waits for them must be told, and here nobody would."""
    code = "import promising.demo.tour, sys; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment(), check=False).returncode == 0


def test_help_names_every_option(capsys):
    with pytest.raises(SystemExit) as stopped:
        demo.main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for option in ("--rows", "--out", "--stay"):
        assert option in text
