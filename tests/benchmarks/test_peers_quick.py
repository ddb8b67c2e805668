"""A quick run of the peers: all that are asked answer rightly, ours has rows before it has all, nothing is missing."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import data, report
from benchmarks.peers.protocol import reason

pytestmark = pytest.mark.deep("runs a benchmark, small")

ROOT = Path(__file__).resolve().parents[2]
TASKS = {"join", "selections-5", "selections-50", "top", "rare", "sampled", "sum", "sum-join"}
PEERS = {"promising", "duckdb", "polars"}
SPREAD = {"median", "least", "most"}
TINY = {
    "history": 300,
    "join": 200,
    "selections": 200,
    "batch": 64,
    "window_us": 2_000,
    "top": 200,
    "sample": 40,
    "queries": 10,
}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    out = tmp_path_factory.mktemp("peers") / "peers.json"
    command = [sys.executable, "-m", "benchmarks.peers", "--quick", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(out.read_text(encoding="utf-8"))


def test_every_entry_is_right(quick):
    _, told = quick
    assert told["absent"] == []
    assert {(e["task"], e["peer"]) for e in told["entries"]} == {(task, peer) for task in TASKS for peer in PEERS}
    for entry in told["entries"]:
        assert entry["right"] and not entry["problem"], entry
        rows = {e["rows"] for e in told["entries"] if e["task"] == entry["task"]}
        assert rows == {entry["rows"]}
        assert entry["rows"] > 0


def test_our_first_rows_come_before_the_whole_answer(quick):
    _, told = quick
    for entry in told["entries"]:
        if entry["peer"] == "promising" and entry["rows"] > 1:
            shares = [share for share, _ in entry["curve"]]
            assert shares == sorted(shares)
            assert 0 < shares[0] < shares[-1] == 1, entry["task"]


def test_the_file_has_all_that_is_needed_to_judge_it(quick):
    text, told = quick
    assert told["machine"].keys() == {"cores", "memory_bytes", "java"}
    assert set(told["peers"]) == PEERS
    for peer in told["peers"].values():
        assert peer["version"] and peer["settings"] and peer["packages"]["python"]
    for entry in told["entries"]:
        for name in ("wall_s", "cpu_s", "first_row_s", "share50_s", "share90_s", "share100_s", "start_s", "load_s"):
            assert set(entry[name]) == SPREAD
        assert entry["peak_bytes"] > 0 and entry["tuples_per_s"] > 0
        assert (entry["error"] is not None) == entry["task"].startswith("sum")
    assert str(ROOT) not in json.dumps(told)
    figures = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert {figure["bench"] for figure in figures} == {f"peers.{task}" for task in TASKS}
    assert all(figure["theirs"] is not None and figure["opponent"] for figure in figures)


def test_results_become_markdown(quick):
    told = copy.deepcopy(quick[1])
    told["absent"].append({"task": "top", "peer": "other", "way": "", "status": "not offered", "reason": "no order"})
    next(e for e in told["entries"] if e["task"] == "join" and e["peer"] == "polars")["right"] = False
    text = report.markdown(told)
    assert {line for line in text.splitlines() if line.startswith("![")} == {
        f"![{task}](../images/peers/{task}.png)" for task in TASKS
    }
    compared = _table(text, "Ours and the fastest of the others")
    assert {row[0] for row in compared[1:]} == TASKS
    assert all(cell for row in compared[1:] for cell in row[1:5])
    assert "\n- other, not offered: no order (top)\n" in text
    head, *rows = _table(text, "Wall-clock time, milliseconds")
    assert set(head[1:]) == TASKS
    times = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert times["Polars"]["join"] == "wrong"
    assert all(times["ours"].values())


def _table(text, title):
    section = text.split(f"## {title}\n")[1].split("\n## ")[0]
    head, _, *rows = [[cell.strip() for cell in line.split("|")] for line in section.splitlines() if "|" in line]
    return [head, *rows]


# --- the truth that answers are held to ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny():
    return data.world(TINY)


def _items(of, group):
    return [of.streams[group][name]["item"].tolist() for name in ("a", "b")]


def test_the_truth_of_a_window_join_is_that_of_two_loops(tiny):
    a, b = _items(tiny, "join")
    reach = TINY["window_us"] // data.STEP
    pairs = [(i, j) for i, x in enumerate(a) for j, y in enumerate(b) if x == y and abs(i - j) <= reach]
    check = sum((i * 7919 + j * 104_729) % 1_000_003 for i, j in pairs)
    truth = data.Truth(tiny)
    assert truth.expected("join") == len(pairs) > 0
    assert truth.judge("join", {"rows": len(pairs), "checksum": check}).right
    assert not truth.judge("join", {"rows": len(pairs), "checksum": check + 1}).right


def test_pairs_are_held_to_truth_order_and_number(tiny):
    a, b = _items(tiny, "history")
    pairs = [(i, j) for i, x in enumerate(a) for j, y in enumerate(b) if x == y]
    truth = data.Truth(tiny)

    def judged(task, rows):
        return truth.judge(task, {"rows": len(rows), "a": [i for i, _ in rows], "b": [j for _, j in rows]})

    def pairs_of(pair):
        return a.count(a[pair[0]]) * b.count(a[pair[0]])

    for task, sign in (("top", -1), ("rare", 1)):
        best = sorted(pairs, key=lambda pair: (sign * pairs_of(pair), a[pair[0]]))[: TINY["top"]]
        assert judged(task, best).right
        assert not judged(task, best[::-1]).right
        assert not judged(task, best[:-1]).right
        assert judged(task, [*best[:-1], best[0]]).why == "a pair came twice"
        lie = next((i, j) for i, x in enumerate(a) for j, y in enumerate(b) if x != y)
        assert judged(task, [*best[:-1], lie]).why == "1 rows are no pairs"


def test_a_sample_has_to_be_fair():
    of = data.world({**TINY, "history": 20_000, "sample": 2_000})
    truth = data.Truth(of)
    a, b = of.streams["history"]["a"]["item"], of.streams["history"]["b"]["item"]
    order = np.argsort(b, kind="stable")
    low, high = np.searchsorted(b[order], a, side="left"), np.searchsorted(b[order], a, side="right")
    many = high - low
    left = np.repeat(np.arange(len(a)), many)
    right = order[np.arange(len(left)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(low, many)]
    drawn = np.random.default_rng(1).permutation(len(left))[:2_000]
    assert truth.judge("sampled", {"a": left[drawn], "b": right[drawn]}).right
    frequent = np.argsort(-np.bincount(a)[a[left]], kind="stable")[:2_000]
    assert "chi-square" in truth.judge("sampled", {"a": left[frequent], "b": right[frequent]}).why


def test_sums_may_be_off_by_little(tiny):
    truth = data.Truth(tiny)
    total = float(tiny.streams["history"]["a"]["amount"].sum())
    assert truth.judge("sum", {"value": total * 1.005}).error == pytest.approx(0.005)
    assert not truth.judge("sum", {"value": total * 1.05}).right


def test_a_reason_names_no_path():
    assert reason(RuntimeError("no file /some/where/else here")) == "RuntimeError: no file ... here"
