"""The benchmarks of standing queries' stores and plans run, and their counters are in the order they must be in."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.deep("runs a benchmark, small")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def figures():
    """All figures of a part of a quick run."""
    found = {}

    def of(part):
        if part not in found:
            command = [sys.executable, "-m", "benchmarks.standing", "--quick", part]
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            found[part] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return found[part]

    return of


def ratios(figures, metric, opponent, unit):
    """By size, smallest first."""
    chosen = [
        f["ratio"] for f in figures if (f["metric"], f["unit"]) == (metric, unit) and f["opponent"].startswith(opponent)
    ]
    assert chosen, (metric, opponent)
    return chosen


TOUCHES = "touches/1,000 tuples"


def test_a_calendar_looks_at_less_the_more_slots_it_has(figures):
    found = figures("weak")
    every = [ratios(found, name, "NT, by key in 2,000", TOUCHES)[-1] for name in ("UPA(10)", "UPA(50)", "UPA(1000)")]
    assert every == sorted(every, reverse=True)
    assert every[0] > 1  # ten slots lose to a hash
    assert ratios(found, "calendar, slot = unit", "NT, by key in 2,000", TOUCHES)[-1] < min(1, every[-1])
    assert ratios(found, "UPA(1000)", "DIRECT", TOUCHES)[-1] < 0.02
    assert ratios(found, "calendar, slot = unit", "NT, by ids", TOUCHES)[-1] < 1


def test_an_indexed_calendar_is_never_far_from_the_better_of_the_two(figures):
    found = figures("negation")
    assert all(ratio <= 1.2 for ratio in ratios(found, "indexed calendar", "the better", TOUCHES))
    against = ratios(found, "calendar", "hash", TOUCHES)
    assert against[0] < 1 < against[-1]  # without an index: good if nothing is retracted, bad if much is
    shares = [f["sizes"]["premature %"] for f in found if f["metric"] == "calendar" and f["unit"] == TOUCHES]
    assert shares == sorted(shares) and shares[0] == 0 and shares[-1] > 40


def test_distinct_holds_at_most_two_entries_a_result(figures):
    found = figures("distinct")
    assert all(ratio <= 2 for ratio in ratios(found, "distinct*, entries", "results", "entries"))
    assert all(ratio > 10 for ratio in ratios(found, "distinct, entries", "results", "entries"))
    assert all(ratio < 0.5 for ratio in ratios(found, "distinct*, memory", "distinct", "bytes"))


def test_a_table_that_is_not_retroactive_retracts_and_holds_nothing(figures):
    found = {f["metric"]: f["ours"] for f in figures("tables")}
    assert found["NON RETROACTIVE, retractions"] == found["NON RETROACTIVE, tuples held"] == 0
    assert found["RETROACTIVE, retractions"] > 0
    assert found["RETROACTIVE, tuples held"] > 0


def test_our_plan_of_a_negation_hands_on_less_than_one_that_tells_every_end(figures):
    found = figures("orders")
    for opponent in ("NT, negation up", "NT, join up"):
        for what, unit in (
            ("handed on", "results/1,000 tuples"),
            ("probes", "probes/1,000 tuples"),
            ("held", "entries"),
        ):
            assert all(ratio < 1 for ratio in ratios(found, f"ours, negation up, {what}", opponent, unit)), what
