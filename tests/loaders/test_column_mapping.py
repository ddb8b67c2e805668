"""What a field of a file becomes, and what it is called when it cannot: in Spark SQL, for every type and format."""

import datetime
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from promising.errors import BadSettings, MissingColumn, UnknownColumn, WrongType
from promising.index.load_plan import LoadPlan
from promising.loaders import input_files
from promising.loaders.bulk import _session
from promising.loaders.column_mapping import Times, checked, match

pytestmark = pytest.mark.spark

TYPES = {"ts": "timestamp", "item": "int", "price": "float", "name": "string", "paid": "bool", "seen": "timestamp"}
NOON = 1_705_320_000_000_000  # 2024-01-15 12:00 UTC
LATEST = NOON + 365 * 86_400_000_000
PLAN = LoadPlan("sales", TYPES, "ts", ("item",), 7, None, 0, LATEST, None, 1 << 20, 1 << 20, [])


@pytest.fixture(scope="module")
def session(spark: Any) -> Any:
    return _session(spark)


def looked(session: Any, path: Path, times: Times, plan: LoadPlan = PLAN, **options: str) -> list[Any]:
    """Each row as (values, or (reason, column))."""
    files = input_files.find(session, str(path))
    rows, faults = checked(
        plan, input_files.read(session, files, input_files.format_of(files, None), options), {}, times
    )
    out: list[Any] = []
    for row in rows.collect():
        if row["fault"] is None:
            assert (row["source"], row["original"]) == (None, None)
            out.append([row[f"c{place}"] for place in range(len(plan.types))])
        else:
            out.append((*faults.known[row["fault"]], row["original"]))
            assert row["source"].endswith(path.name)
    return out


GOOD = {"ts": "2024-01-15 12:00:00", "item": "5", "price": "1.5", "name": "milk", "paid": "true", "seen": ""}

CASES: list[tuple[dict[str, str], Any]] = [
    ({}, [NOON, 5, 1.5, "milk", True, None]),
    ({"price": "-3.25"}, [NOON, 5, -3.25, "milk", True, None]),
    ({"item": " 12 ", "price": "1e3"}, [NOON, 12, 1000.0, "milk", True, None]),
    ({"item": "12.0"}, [NOON, 12, 1.5, "milk", True, None]),
    ({"item": "9223372036854775807.0"}, [NOON, 9223372036854775807, 1.5, "milk", True, None]),
    ({"price": "", "name": "", "paid": ""}, [NOON, 5, None, None, None, None]),
    ({"name": '""'}, [NOON, 5, 1.5, "", True, None]),
    ({"name": '"milk, 3 l ""fresh"""'}, [NOON, 5, 1.5, 'milk, 3 l "fresh"', True, None]),
    ({"price": "inf", "paid": "0"}, [NOON, 5, float("inf"), "milk", False, None]),
    ({"ts": "2024-01-15T12:00:00.25"}, [NOON + 250_000, 5, 1.5, "milk", True, None]),
    ({"seen": "2024-01-15"}, [NOON, 5, 1.5, "milk", True, NOON - 43_200_000_000]),
    ({"item": "12.5"}, ("wrong_type", "item")),
    ({"item": "9223372036854775808"}, ("wrong_type", "item")),
    ({"item": "milk"}, ("wrong_type", "item")),
    ({"item": "NaN"}, ("nan_key", "item")),
    ({"item": ""}, ("null_key", "item")),
    ({"price": "cheap"}, ("wrong_type", "price")),
    ({"price": "1d"}, ("wrong_type", "price")),
    ({"price": "1,5"}, ("bad_line", "")),
    ({"paid": "perhaps"}, ("wrong_type", "paid")),
    ({"ts": ""}, ("null_time", "ts")),
    ({"ts": "yesterday"}, ("bad_time", "ts")),
    ({"ts": "12:00:00"}, ("bad_time", "ts")),
    ({"ts": "1705320000"}, ("bad_time", "ts")),
    ({"ts": "2024-02-30 12:00:00"}, ("bad_time", "ts")),
    ({"ts": "2099-01-01"}, ("too_far_ahead", "ts")),
    ({"seen": "2099-13-01"}, ("bad_time", "seen")),
    ({"name": "x" * 32_769}, ("value_too_long", "name")),
]


def test_text(session: Any, tmp_path: Path):
    lines = [",".join(GOOD)] + [",".join({**GOOD, **given}.values()) for given, _ in CASES] + ["2024-01-15,5"]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines))
    found = looked(session, path, Times())
    for (given, wanted), row in zip(CASES, found, strict=False):
        assert (row[:2] if isinstance(row, tuple) else row) == wanted, given
    assert found[-1] == ("bad_line", "", "2024-01-15,5")
    wrong = next(row for row in found if row[:2] == ("wrong_type", "price"))
    assert json.loads(wrong[2]) == {name: text for name, text in {**GOOD, "price": "cheap"}.items() if text}


def test_json(session: Any, tmp_path: Path):
    good: dict[str, Any] = {**GOOD, "item": 5, "price": 1.5, "paid": True, "seen": None}
    rows = [good, {**good, "item": None}, {**good, "price": -2}, {**good, "corrupt": "c0", "source": "till"}]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join([*map(json.dumps, rows), '{"ts": "2024-', json.dumps({"ts": GOOD["ts"], "item": 3})]))
    found = looked(session, path, Times())
    assert found[0] == found[3] == [NOON, 5, 1.5, "milk", True, None]
    assert found[1][:2] == ("null_key", "item")
    assert found[2] == [NOON, 5, -2.0, "milk", True, None]
    assert found[4] == ("bad_line", "", '{"ts": "2024-')
    assert found[5] == [NOON, 3, None, None, None, None]


def test_parquet(session: Any, tmp_path: Path):
    path = tmp_path / "rows.parquet"
    noon = datetime.datetime(2024, 1, 15, 12, tzinfo=datetime.UTC)
    pq.write_table(
        pa.table(
            {
                "TS": pa.array([noon] * 4, pa.timestamp("us", "UTC")),
                "item": pa.array([5.0, float("nan"), 5.5, None]),
                "price": pa.array(range(4), pa.int32()),
                "name": pa.array(["milk", None, "x", "y"]),
                "paid": pa.array([True] * 4),
                "seen": pa.array([noon.date()] * 4),
                "c0": pa.array(["in the way"] * 4),
            }
        ),
        path,
    )
    found = looked(session, path, Times(zone="Europe/Paris"))
    assert found[0] == [NOON, 5, 0.0, "milk", True, NOON - 46_800_000_000]  # midnight in Paris
    assert [row[:2] for row in found[1:]] == [("nan_key", "item"), ("wrong_type", "item"), ("null_key", "item")]
    assert json.loads(found[1][2])["c0"] == "in the way"


@pytest.mark.parametrize(
    ("given", "times", "micros"),
    [
        ("1705320000", Times("s"), NOON),
        ("1705320000.5", Times("s"), NOON + 500_000),
        ("1705320000000", Times("ms"), NOON),
        ("1705320000000000", Times("us"), NOON),
        ("1705320000000000999", Times("ns"), NOON),
        ("-1", Times("ns"), -1),
        ("2024-01-15 12:00:00Z", Times("s"), NOON),
        ("2024-01-15 14:00:00+02:00", Times(), NOON),
        ("2024-01-15T12:00:00Z", Times(zone="Asia/Tokyo"), NOON),
        ("2024-01-15 21:00:00", Times(zone="Asia/Tokyo"), NOON),
        ("2024-01-15 17:30:00", Times(zone="+05:30"), NOON),
        ("2024-03-31 02:30:00", Times(zone="Europe/Paris"), "ambiguous_time"),  # clocks went from 2 to 3
        ("2024-10-27 02:30:00", Times(zone="Europe/Paris"), "ambiguous_time"),  # and from 3 to 2
        ("2024-10-27 02:30:00+02:00", Times(zone="Europe/Paris"), 1_729_989_000_000_000),
        ("2024-10-27 03:30:00", Times(zone="Europe/Paris"), 1_729_996_200_000_000),
    ],
)
def test_times(session: Any, given: str, times: Times, micros: Any):
    """By the expressions alone: a file for each would take a job each."""
    rows = session.sql(f"SELECT '{given}' AS t, '1' AS i, named_struct('file_path', 'x') AS _metadata")
    plan = replace(PLAN, types={"ts": "timestamp", "item": "int"})
    group = input_files.Fields(rows, {"ts": "string", "item": "string"}, {"ts": "t", "item": "i"}, "x", corrupt=False)
    found, faults = checked(plan, [group], {}, times)
    [row] = found.collect()
    assert (row["c0"] if row["fault"] is None else faults.known[row["fault"]][0]) == micros


def test_what_does_not_match_is_said_before_anything_runs(session: Any):
    rows = session.range(1)
    fields = input_files.Fields(rows, {"When": "string", "ITEM": "string"}, {}, "in.csv", corrupt=True)
    plan = replace(PLAN, types={"ts": "timestamp", "item": "int"})
    assert match(plan, fields, {"ts": "When"}) == {"ts": "When", "item": "ITEM"}
    with pytest.raises(MissingColumn, match=r"in\.csv has no field for ts of stream sales\. It has When, ITEM.*ts="):
        match(plan, fields, {})
    with pytest.raises(UnknownColumn, match=r"sales has no column 'itm'; did you mean item\?"):
        match(plan, fields, {"itm": "ITEM"})
    with pytest.raises(MissingColumn, match=r"no field 'Wen'; did you mean When\?"):
        match(plan, fields, {"ts": "Wen"})


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("array<int>", "column 'item' is of type int, but the field 'item' of the source has array<int>"),
        ("boolean", "column 'item' is of type int, but the field 'item' of the source has boolean"),
    ],
)
def test_types_that_do_not_fit(session: Any, kind: str, message: str):
    rows = session.sql(f"SELECT 1 AS ts, CAST(NULL AS {kind}) AS item, named_struct('file_path', 'x') AS _metadata")
    fields = input_files.Fields(
        rows, {"ts": "timestamp", "item": kind}, {"ts": "ts", "item": "item"}, "x", corrupt=False
    )
    with pytest.raises(WrongType, match=message):
        checked(replace(PLAN, types={"ts": "timestamp", "item": "int"}), [fields], {}, Times())


def test_numbers_as_times_need_a_unit(session: Any):
    rows = session.sql("SELECT 1L AS ts, named_struct('file_path', 'x') AS _metadata")
    fields = input_files.Fields(rows, {"ts": "bigint"}, {"ts": "ts"}, "x", corrupt=False)
    plan = replace(PLAN, types={"ts": "timestamp"}, keys=())
    with pytest.raises(WrongType, match="whole numbers: say what they count since 1970"):
        checked(plan, [fields], {}, Times())
    assert checked(plan, [fields], {}, Times("ms"))[0].collect()[0]["c0"] == 1_000


def test_settings_of_times():
    with pytest.raises(BadSettings, match="unknown time unit 'h'"):
        Times("h")
    with pytest.raises(BadSettings, match="unknown time zone 'Mars/Olympus'"):
        Times(zone="Mars/Olympus")
