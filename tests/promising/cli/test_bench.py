"""`bench`: what it measures is right, what it shows fits, and what cannot be is refused."""

import json
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from promising.bench import measurement
from promising.bench.estimates import window_errors
from promising.bench.measurement import DESC, DUCK, PLAIN, Joined, Plan
from promising.errors import BadQuestion, EmptyBatch
from promising.index import Stream
from promising.summaries.adt import Estimates
from promising.testing.streams import zipf
from tests.promising.cli.running import Cli

NOBODY = Cli("127.0.0.1:1")  # no service is needed
ROWS = 600
START = 1_700_000_000_000_000


def log(rows=ROWS, keys=20):
    rng = np.random.default_rng(5)
    times = START + rng.permutation(rows) * 1_000_000
    return pa.table(
        {
            "when": pa.array(times, pa.timestamp("us")),
            "item": pa.array((rng.random(rows) ** 2 * keys).astype(int)),
            "shop": pa.array([f"s{n % 3}" for n in range(rows)]),
            "price": pa.array(rng.random(rows) * 10 + 1),
        }
    )


KINDS = {"when": "timestamp", "item": "int", "shop": "string", "price": "float"}
PLAN = Plan(KINDS, "when", "item", "price")


@pytest.fixture
def csv(tmp_path):
    path = tmp_path / "log.csv"
    pyarrow.csv.write_csv(log(), path)
    return str(path)


def brute(data):
    """The pairs of a join, and the average of the price over them."""
    one, two = (half.to_pydict() for half in data.halves)
    prices = [p for k, p in zip(one["item"], one["price"], strict=True) for other in two["item"] if k == other]
    return len(prices), sum(prices) / len(prices)


# --- the work ----------------------------------------------------------------------------------------------------


def test_rows_are_cut_in_order_of_time():
    data = measurement.cut(log(), PLAN)
    assert [half.num_rows for half in data.halves] == [300, 300]
    for number, half in enumerate(data.halves):
        seconds = [(t - START) // 1_000_000 for t in half.column("when").cast(pa.int64()).to_pylist()]
        assert seconds == list(range(number, ROWS, 2))


def test_rows_are_cut_by_a_column():
    data = measurement.cut(log(), Plan(KINDS, "when", "item", "price", "shop"))
    first, second = (set(half.column("shop").to_pylist()) for half in data.halves)
    assert first.isdisjoint(second)
    assert first | second == {"s0", "s1", "s2"}
    assert data.rows == ROWS


def test_rows_without_a_key_or_a_time_are_left_out_and_counted():
    table = log(10)
    table = table.set_column(1, "item", pa.array([None, None, *range(8)], pa.int64()))
    assert measurement.cut(table, PLAN).left_out == 2
    with pytest.raises(EmptyBatch):
        measurement.cut(table.slice(0, 3), PLAN)
    with pytest.raises(BadQuestion, match="one value only"):
        same = log().set_column(2, "shop", pa.array(["s"] * ROWS))
        measurement.cut(same, Plan(KINDS, "when", "item", split="shop"))


def test_the_key_repeats_and_has_many_values():
    table = log()
    assert measurement.choose_key(table, KINDS, "when") == "item"
    assert (
        measurement.choose_key(table.drop(["item"]), {k: v for k, v in KINDS.items() if k != "item"}, "when") == "shop"
    )
    with pytest.raises(BadQuestion, match="--key"):
        measurement.choose_key(table.select(["when", "price"]), {"when": "timestamp", "price": "float"}, "when")
    assert measurement.choose_value(KINDS) == "price"
    assert measurement.choose_value({"item": "int"}) is None


@pytest.mark.parametrize("split", [None, "shop"])
def test_every_way_finds_the_whole_join_and_the_average(split):
    data = measurement.cut(log(), Plan(KINDS, "when", "item", "price", split))
    pairs, average = brute(data)
    said: list[str] = []
    result = measurement.measure(data, 10.0, said.append, runs=2)
    assert result.pairs == data.pairs == pairs
    assert [joined.name for joined in result.joins] == [DESC, PLAIN, DUCK]
    for joined in result.joins:
        assert len(joined.curves) == 2
        for curve in joined.curves:
            assert curve[0] == (0.0, 0)
            assert curve[-1][1] == pairs
            assert curve == sorted(curve)
        assert joined.reached == 1
        times = [joined.seconds(share) for share in (0.0, *measurement.SHARES)]
        assert times == sorted(t for t in times if t is not None)
    assert [a.name for a in result.averages] == ["to 1%", "exact", "DuckDB, exact"]
    for found in result.averages[1:]:
        assert found.value == pytest.approx(average)
        assert found.off < 1e-9
    assert result.averages[0].off == pytest.approx(abs(result.averages[0].value - average) / average)
    assert result.bytes > result.raw > 0
    assert len(said) == 4


def test_estimates_are_compared_with_the_rows():
    """Tuples of the open zone are counted; what a summary makes up is as far off as it is."""
    columns = zipf(3000, 50, seed=1)
    stream = Stream("s", {"ts": "timestamp", "item_id": "int"}, time="ts", clock=lambda: 1 << 60, max_tuples=1 << 14)
    summary = stream.create_summary("s", key="item_id", granularity=1 << 45, collapse=(2, 1), structure="grid")
    stream.append({name: columns[name] for name in ("ts", "item_id")})
    asked = (columns["ts"], columns["item_id"], 300, 20, 1)
    exact = window_errors(summary, *asked)
    assert (exact.absolute, exact.squared, exact.held) == (0.0, 0.0, 1.0)
    assert exact.asked > 200 and exact.by_time > 0
    guess = Estimates(*np.array([[-2.0], [-3.0], [-1.0]]).repeat(99, axis=1))
    made_up: Any = SimpleNamespace(
        estimate=lambda keys, window: Estimates(*(part[: len(keys)] for part in guess)), regions=summary.regions
    )
    off = window_errors(made_up, *asked)
    assert off.held == 0.0 and off.absolute >= 2.0 and off.squared >= 2 * off.absolute
    assert off.by_time == exact.by_time


def test_a_run_that_is_broken_off_says_how_far_it_got():
    curves = [[(0.0, 0), (0.1, 40), (0.2, 60)], [(0.0, 0), (0.2, 45)], [(0.0, 0), (0.3, 70)]]
    joined = Joined(DESC, curves, 100)
    assert joined.reached == 0.6
    assert joined.seconds(0.0) == 0.2
    assert joined.seconds(0.5) == 0.3
    assert joined.seconds(0.9) is None
    times, shares = measurement.points(Joined(DESC, curves[:1], 100))
    assert (times.tolist(), shares.tolist()) == ([0.0, 0.1, 0.2], [0.0, 0.4, 0.6])


def test_a_join_of_nothing():
    table = pa.table({"when": pa.array([1, 2], pa.timestamp("us")), "item": [1, 2], "price": [1.0, 2.0]})
    kinds = {"when": "timestamp", "item": "int", "price": "float"}
    result = measurement.measure(
        measurement.cut(table, Plan(kinds, "when", "item", "price")), 1.0, lambda _: None, runs=1
    )
    assert result.pairs == 0
    assert [joined.seconds(0.0) for joined in result.joins] == [None] * 3
    assert result.averages == []


def test_without_duckdb(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    result = measurement.measure(measurement.cut(log(), PLAN), 10.0, lambda _: None, runs=1)
    assert [joined.name for joined in result.joins] == [DESC, PLAIN]
    assert [a.name for a in result.averages] == ["to 1%", "exact"]


def test_the_log_that_is_made_up_is_the_same_each_time():
    one, two = (measurement.generated(500)[0] for _ in range(2))
    assert one == two
    assert one.num_rows == 500


# --- the command -------------------------------------------------------------------------------------------------


def test_a_table_for_people(csv, tmp_path):
    picture = tmp_path / "grown.png"
    told = NOBODY("bench", csv, "--png", str(picture))
    assert told.code == 0, told
    assert "600 rows" in told.out
    assert "join: 300 x 300 rows on item" in told.out
    for line in ("first row", "DESC ", "no preference ", "DuckDB ", "average of price over the join", "to 1%"):
        assert line in told.out
    assert "event time when, key item, average of price." in told.err
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_json_for_programs(csv):
    told = NOBODY("bench", csv, "--split", "SHOP", "--rows", "500", "-o", "json", "--quiet")
    assert (told.code, told.err) == (0, "")
    facts = json.loads(told.out)
    assert (facts["rows"], facts["key"], facts["time"], facts["budget"]) == (500, "item", "when", 2.0)
    data = measurement.cut(log().slice(0, 500), Plan(KINDS, "when", "item", "price", "shop"))
    assert facts["pairs"] == data.pairs
    assert [(j["name"], j["reached"]) for j in facts["joins"]] == [(DESC, 1), (PLAIN, 1), (DUCK, 1)]
    assert set(facts["joins"][0]) == {
        "name",
        "first_row",
        "seconds_to_50",
        "seconds_to_90",
        "seconds_to_100",
        "reached",
    }
    assert [a["name"] for a in facts["averages"]] == ["to 1%", "exact", "DuckDB, exact"]
    assert [(e["window"], e["within_bounds"]) for e in facts["estimates"]] == [(0.01, 1.0), (0.05, 1.0), (0.2, 1.0)]


def test_other_files_and_columns(tmp_path):
    path = tmp_path / "log.parquet"
    pyarrow.parquet.write_table(log(), path)
    facts = json.loads(
        NOBODY.ok("bench", str(path), "--map", "thing=item", "--key", "thing", "--value", "thing", "-o", "json")
    )
    assert (facts["key"], facts["rows"]) == ("thing", ROWS)
    lines = "\n".join(json.dumps({"at": 1_700_000_000 + n, "who": f"w{n % 9}"}) for n in range(90))
    told = NOBODY("bench", "-", "--format", "jsonl", "--time", "at", "--time-unit", "s", input=lines)
    assert told.code == 0, told
    assert "key who, nothing to average." in told.err
    assert "average" not in told.out


def test_a_log_is_made_up_where_there_is_no_file():
    told = NOBODY("bench", "--rows", "2000")
    assert told.code == 0, told
    assert "made up" in told.err
    assert "2,000 rows" in told.out


def test_a_budget_that_is_too_small_is_told(tmp_path):
    path = tmp_path / "wide.csv"
    pyarrow.csv.write_csv(log(20_000, 2), path)
    told = NOBODY("bench", str(path), "--budget", "10ms", "--key", "item")
    assert told.code == 0, told
    assert "got to" in told.out
    assert "A run was broken off after 10 ms of CPU time; --budget gives it more." in told.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("nowhere.csv",), 1, "nowhere.csv"),
        (("{csv}", "--key", "itm"), 1, "did you mean item?"),
        (("{csv}", "--key", "price"), 1, "a key is a whole number or a string"),
        (("{csv}", "--key", "when"), 1, "a key is a whole number or a string"),
        (("{csv}", "--value", "shop"), 1, "only numbers have an average"),
        (("{csv}", "--split", "shops"), 1, "did you mean shop?"),
        (("{csv}", "--time", "noon"), 1, "--time noon"),
        (("{csv}", "--map", "x=y"), 1, "no field 'y'"),
        (("{csv}", "--png", "no/such/folder.png"), 1, "there is no folder"),
        (("{csv}", "--rows", "1"), 2, "--rows"),
        (("{csv}", "--budget", "soon"), 2, "no span of time"),
        (("{csv}", "--budget", "0"), 2, "more than nothing"),
        (("--key", "item"), 2, "go with a FILE"),
        (("log.txt",), 2, "add --format"),
    ],
)
def test_what_cannot_be_is_refused(words, code, said, csv, monkeypatch):
    monkeypatch.setattr(measurement, "measure", lambda *_, **__: pytest.fail("nothing is measured"))
    told = NOBODY("bench", *(word.format(csv=csv) for word in words))
    assert told.code == code
    assert said in " ".join(told.err.replace("│", " ").split())
    assert told.out == ""


def test_a_file_that_is_empty_or_broken_is_refused(tmp_path):
    for text, said in (("", "is empty"), ("when,item\n", "no rows"), ("when,item\n2024-05-01,1\nx,2\n", "line 3")):
        path = tmp_path / "bad.csv"
        path.write_text(text)
        told = NOBODY("bench", str(path), "--time", "when", "--key", "item")
        assert (told.code, told.out) == (1, "")
        assert said in told.err


def test_a_picture_needs_matplotlib(csv, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    told = NOBODY("bench", csv, "--png", "x.png")
    assert told.code == 1
    assert "pictures need matplotlib: pip install 'promising-tuples[demo]'" in told.err
