"""The benchmarks run, say what they found to people and to programs, and compare like with like."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.harness import Figure, alternate

pytestmark = pytest.mark.deep("runs a benchmark, small")

ROOT = Path(__file__).resolve().parents[2]


def run(entry: str, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", entry, *args]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ("benchmarks.index", "join"),
        ("benchmarks.index", "search"),
        ("benchmarks.index", "counts"),
        ("benchmarks.query", "exact"),
        ("benchmarks.query", "fresh"),
    ],
)
def test_a_quick_run_prints_a_line_of_json_for_every_row_of_its_tables(entry, part):
    done = run(entry, "--quick", part)
    assert done.returncode == 0, done.stderr
    figures = lines(done.stdout)
    assert len(figures) > 3
    for figure in figures:
        assert {"bench", "metric", "ours", "theirs", "ratio", "sizes"} <= figure.keys()
        assert figure["bench"] == part
        assert isinstance(figure["ours"], float) and figure["ours"] > 0
        assert figure["sizes"]
    metrics = tuple({str(figure["metric"]) for figure in figures})
    assert sum(line.startswith(metrics) for line in done.stdout.splitlines()) == len(figures)


@pytest.mark.parametrize(("entry", "known"), [("benchmarks.index", "join"), ("benchmarks.query", "overshoot")])
def test_an_unknown_part_is_refused_by_name(entry, known):
    done = run(entry, "indigestion")
    assert done.returncode == 2
    assert "indigestion" in done.stderr and known in done.stderr


def test_contenders_take_turns_and_the_first_round_does_not_count():
    calls: list[str] = []
    now = iter(range(0, 10_000))

    def contender(name: str):
        return lambda: lambda: calls.append(name)

    took = alternate({"a": contender("a"), "b": contender("b")}, 4, clock=lambda: next(now))
    assert calls == ["b", "a", "a", "b", "b", "a", "a", "b", "b", "a"]
    assert took == {"a": 1, "b": 1}


@pytest.mark.parametrize(
    ("ours", "theirs", "goal", "met"),
    [
        (6.0, 1.0, "<= 6", True),
        (6.1, 1.0, "<= 6", False),
        (3.0, 2.0, ">= 1.5", True),
        (0.2, None, "<= 0.1", False),
        (1.0, 2.0, "", None),
    ],
)
def test_a_goal_is_judged_by_the_ratio_or_without_opponent_by_the_figure(ours, theirs, goal, met):
    assert Figure("m", ours, theirs, goal=goal).met is met
