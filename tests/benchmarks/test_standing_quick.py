"""The benchmarks of standing queries' modes and of overload run, and their counters say what they must."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep("runs a benchmark, small")

ROOT = Path(__file__).resolve().parents[2]


def figures(part):
    command = [sys.executable, "-m", "benchmarks.standing", "--quick", part]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_results_leave_within_a_tick():
    for figure in figures("freshness"):
        if figure["metric"] == "longest delay":
            assert figure["met"], figure
        elif figure["opponent"] == "piggyback" and figure["sizes"]["share"] < 1:
            assert figure["ratio"] > 1, figure


def test_few_messages_say_what_time_it_is():
    judged = [figure for figure in figures("messages") if figure["goal"]]
    assert judged
    assert all(figure["met"] for figure in judged), judged


def test_ends_are_not_sent():
    assert all(figure["met"] for figure in figures("wire"))


def test_speed_and_overload_are_told():
    assert {figure["unit"] for figure in figures("speed")} == {"tuples/s"}
    found = {figure["metric"]: figure for figure in figures("crowded")}
    assert found["output"]["ours"] > 0
    assert found["CPU"]["ratio"] < 1
