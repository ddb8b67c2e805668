"""The demo, as `make demo` runs it, on a short piece of the log."""

import base64
import os
import re
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
from promising.demo.replay import of_stores
from tests.readable import readable

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


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_the_page_begins_with_the_question_and_the_gain(shown):
    _, page = shown
    first = page[page.index("<header") : page.index("</header>")]
    assert "How far apart are the prices" in first
    assert re.search(r'class="big">A fair sample in <b>[\d.]+ m?s</b>, instead of all pairs in', first)
    assert "What is behind it" in first
    assert re.search(r"DuckDB is made for: .* in this run: DuckDB [\d.]+ m?s", first)
    assert journey.REMARK in first


def test_the_figures_are_those_of_the_log(shown):
    text, page = shown
    log = journey.sales(60_000)
    found = re.search(r"([\d,]+) sales, ([\d,]+) pairs", text)
    assert found is not None
    counts = [
        {
            row["KindID"]: row["KindID_count"]
            for row in part.group_by("KindID").aggregate([("KindID", "count")]).to_pylist()
        }
        for part in (of_stores(log, 0), of_stores(log, 1))
    ]
    pairs = sum(n * counts[1].get(kind, 0) for kind, n in counts[0].items())
    assert (number(found[1]), number(found[2])) == (log.num_rows, pairs)
    assert f"{log.num_rows:,} sales make {pairs:,} pairs" in page


def test_terminal_and_page_show_the_same_measurements(shown):
    text, page = shown
    for label in (
        "a fair sample / all pairs",
        "average, within 1 % / exact",
        "the most frequent first",
        "the rarest first",
    ):
        row = re.search(rf"^ {label} +([\d.]+ m?s) +(not done after )?([\d.]+ m?s)", text, re.MULTILINE)
        assert row is not None, label
        assert f"{label}: Promising {row[1]}, DuckDB {row[2] or ''}{row[3]}" in page
    delivered = re.search(r"([\d,]+) of ([\d,]+) rows of the selections were delivered", " ".join(text.split()))
    assert delivered is not None
    assert delivered[1] == delivered[2] != "0"
    assert f"{delivered[1]} of {delivered[2]} matching rows were delivered" in page


def test_the_exact_average_of_the_month_is_beside_its_estimate(shown):
    _, page = shown
    assert re.search(r"The exact value, computed beside it, is (within|outside) the last", page)
    assert re.search(r"line: exact [\d.]+", page)


def test_the_page_is_whole_and_needs_nothing_else(shown):
    _, page = shown
    outline = Outline()
    outline.feed(page)
    assert outline.open == []
    (image,) = outline.images
    assert image["alt"]
    kind, data = str(image["src"]).split(",", 1)
    assert kind == "data:image/png;base64"
    assert base64.b64decode(data).startswith(PNG)
    assert page.count("<svg") == page.count('role="img" aria-label="') == 4
    assert {"main", "header", "section", "figure", "figcaption", "table"} <= set(outline.tags)
    assert "http" not in re.sub(r"base64,[^\"]+", "", page)
    assert not re.search(r"<(script|link|iframe)|url\(", page)
    assert "prefers-color-scheme: dark" in page
    assert 'name="viewport"' in page


@pytest.mark.deep("runs the demo once more")
def test_without_duckdb_the_demo_says_so_and_shows_its_own_figures(tmp_path):
    code = HIDE.format("duckdb").replace("main([])", "main(['--rows', '3000'])")
    done = run("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "DuckDB is not installed" in done.stdout
    page = (tmp_path / "promising-demo.html").read_text("utf-8")
    assert "DuckDB is not installed, so nothing is compared" in page


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
            if readable(process.stdout, 1.0):
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
        for command in commands:
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
