"""Files of tuples: what is read from them, and what is said of those that will not do."""

import gzip
import json
from datetime import datetime

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from promising.cli import files
from promising.cli.choices import Format, Unit
from promising.cli.column_mapping import columns_of, match, shaped, types_of
from promising.cli.files import FileSource, format_of
from promising.errors import BadSchema, BatchError, MissingColumn, UnknownColumn

KINDS = {"ts": "timestamp", "item": "int", "price": "float", "name": "string", "ok": "bool"}
NOON = datetime(2024, 5, 1, 12)


def read(path, kinds=KINDS, given=None, unit=None):
    """All tuples of a file, as those of a stream with these columns."""
    source = FileSource(str(path), format_of(str(path)) or Format.CSV)
    try:
        mapped = match("s", kinds, source.fields, given or {})
        return pa.concat_tables(shaped(b, mapped, unit) for b in source.batches(types_of(mapped, source.fields)))
    finally:
        source.close()


def fields_of(path):
    source = FileSource(str(path), format_of(str(path)) or Format.CSV)
    source.close()
    return source.fields


@pytest.fixture
def write(tmp_path):
    def made(name, text):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return made


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.csv", Format.CSV),
        ("a.CSV", Format.CSV),
        ("a.b.csv.gz", Format.CSV),
        ("a.jsonl.zst", Format.JSONL),
        ("a.ndjson", Format.JSONL),
        ("a.parquet", Format.PARQUET),
        ("a.txt", None),
        ("csv", None),
        ("-", None),
    ],
)
def test_the_name_tells_the_format(name, format):
    assert format_of(name) is format


ROW = {"ts": "2024-05-01 12:00:00", "item": 7, "price": 1.5, "name": "milk", "ok": True}


def test_the_same_tuples_from_every_format(write, tmp_path):
    text = "ts,item,price,name,ok\n2024-05-01 12:00:00,7,1.5,milk,true\n2024-05-01T12:00:00,,2,,\n"
    csv = read(write("a.csv", text))
    assert csv.to_pylist() == [
        {"ts": NOON, "item": 7, "price": 1.5, "name": "milk", "ok": True},
        {"ts": NOON, "item": None, "price": 2.0, "name": None, "ok": None},
    ]
    assert read(write("a.csv.gz", gzip.compress(text.encode()))) == csv
    lines = [ROW, {"ts": "2024-05-01T12:00:00", "price": 2, "extra": [1, 2]}]
    assert read(write("a.jsonl", "".join(json.dumps(line) + "\n" for line in lines))).to_pylist() == csv.to_pylist()
    pyarrow.parquet.write_table(csv, tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet").to_pylist() == csv.to_pylist()


def test_types_are_those_of_the_stream_not_those_that_the_file_seems_to_have(write):
    found = read(
        write("a.csv", "ts,code,x\n2024-05-01,007,1\n2024-05-02,NA,2.5\n"),
        {"ts": "timestamp", "code": "string", "x": "float"},
    )
    assert found["code"].to_pylist() == ["007", "NA"]
    assert found["x"].to_pylist() == [1.0, 2.5]


def test_an_empty_field_is_null_and_an_empty_string_is_none(write):
    found = read(write("a.csv", 'ts,name\n2024-05-01,\n2024-05-01,""\n'), {"ts": "timestamp", "name": "string"})
    assert found["name"].to_pylist() == [None, ""]


@pytest.mark.parametrize(
    "text", ["2024-05-01T12:00:00Z", "2024-05-01T14:00:00+02:00", "2024-05-01 12:00:00.000000", "2024-05-01T12:00:00"]
)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_times_are_read_with_and_without_a_zone(text, form, tmp_path):
    path = tmp_path / f"a.{form}"
    if form == "csv":
        path.write_text(f"ts\n{text}\n")
    elif form == "jsonl":
        path.write_text(json.dumps({"ts": text}) + "\n")
    else:
        pyarrow.parquet.write_table(pa.table({"ts": [text]}), path)
    (found,) = read(path, {"ts": "timestamp"})["ts"].cast(pa.timestamp("us")).to_pylist()
    assert found == NOON


def test_dates_decimals_and_dictionaries_of_parquet_fit(tmp_path):
    table = pa.table(
        {
            "ts": pa.array([NOON.date()], pa.date32()),
            "price": pa.array(["1.25"]).cast(pa.decimal128(5, 2)),
            "name": pa.array(["milk"]).dictionary_encode(),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    (row,) = read(tmp_path / "a.parquet", {"ts": "timestamp", "price": "float", "name": "string"}).to_pylist()
    assert row == {"ts": datetime(2024, 5, 1), "price": 1.25, "name": "milk"}


def test_numbers_of_a_time_column_count_what_is_said(write):
    seconds = int(NOON.timestamp() - datetime(1970, 1, 1).timestamp())
    for unit, factor in ((Unit.S, 1), (Unit.MS, 10**3), (Unit.US, 10**6), (Unit.NS, 10**9)):
        path = write("a.csv", f"ts\n{seconds * factor}\n")
        assert read(path, {"ts": "timestamp"}, unit=unit)["ts"].to_pylist() == [NOON]
    assert read(write("a.csv", f"ts\n{seconds * 10**6}\n"), {"ts": "timestamp"})["ts"].to_pylist() == [NOON]
    with pytest.raises(BatchError, match="--time-unit"):
        read(write("a.csv", f"ts\n{seconds}\n"), {"ts": "timestamp"})


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "", "is empty"),
        ("a.jsonl", "\n\n", "is empty"),
        ("a.csv", "a,a\n1,2\n", "two fields 'a'"),
        ("a.csv", "a,b\n1\n", "no csv file"),
        ("a.jsonl", "not json\n", "no jsonl file"),
        ("a.jsonl", "[1, 2]\n", "no jsonl file"),
        ("a.parquet", "PAR1 nonsense", "no parquet file"),
        ("a.csv.gz", "no gzip", "no csv file"),
    ],
)
def test_a_file_that_will_not_do_is_named(name, text, said, write):
    with pytest.raises(BatchError) as failure:
        fields_of(write(name, text))
    assert said in str(failure.value)
    assert name in str(failure.value)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ts,item\n2024-05-01,1\nyesterday,2\n", "line 3, ts: 'yesterday' is no timestamp"),
        ("ts,item\n2024-05-01,1\n\n2024-05-01,x\n", "line 4, item: 'x' is no whole number of 64 bits"),
        ('ts,a,item\r\n2024-05-01,"5\r\n6",1\r\n2024-05-01,5" 6,x\r\n', "line 4, item: 'x' is no whole number"),
        ("ts,item\n2024-05-01T12:00Z,1\nyesterday,2\n", "line 3, ts: 'yesterday' is no timestamp"),
        ("ts,item\n2024-05-01T12:00Z,1\n2024-05-01,2\n", "line 3, ts: expected a zone offset in '2024-05-01'"),
        (f"ts,item\n2024-05-01,{'x' * 999}\n", f"line 2, item: '{'x' * 60}...' is no whole number"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_place(text, said, write):
    with pytest.raises(BatchError) as failure:
        read(write("a.csv", text), {"ts": "timestamp", "item": "int"})
    assert f"a.csv, {said}" in str(failure.value)


@pytest.mark.parametrize(
    ("last", "said"), [("yesterday", "ts: 'yesterday' is no timestamp"), ("2024-05-01,2", "Expected 1 columns, got 2")]
)
def test_lines_are_counted_through_all_blocks(last, said, write, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 100)
    monkeypatch.setattr(files, "HEAD", 100)
    with pytest.raises(BatchError, match=f"a.csv, line 2,002.*{said}"):
        read(write("a.csv", "ts\n" + "2024-05-01\n" * 1000 + "\n" * 1000 + last), {"ts": "timestamp"})


def test_a_file_is_never_read_as_a_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 1 << 16)
    path = tmp_path / "long.csv"
    with path.open("w") as file:
        file.write("n,text\n")
        for n in range(300_000):
            file.write(f"{n},{'x' * 60}\n")
    source = FileSource(str(path), Format.CSV)
    batches = source.batches({"n": pa.int64(), "text": pa.string()})
    rows = next(batches).num_rows
    assert source.size is not None
    assert 0 < source.done < source.size / 10
    rows += sum(batch.num_rows for batch in batches)
    assert rows == 300_000
    assert source.done == source.size
    source.close()


def test_a_line_that_a_block_cuts_is_read_whole(tmp_path, monkeypatch):
    for size in (7, 64, 1000):
        monkeypatch.setattr(files, "BLOCK", size)
        monkeypatch.setattr(files, "HEAD", 2 * size + 40)
        (tmp_path / "a.csv").write_text("ts,item\r\n" + "".join(f"2024-05-01,{n}\r\n" for n in range(500)))
        (tmp_path / "a.jsonl").write_text(
            "".join(f'{{"ts": "2024-05-01", "item": {n}}}\n' for n in range(500)) + "\n\n"
        )
        for name in ("a.csv", "a.jsonl"):
            assert read(tmp_path / name, {"ts": "timestamp", "item": "int"})["item"].to_pylist() == list(range(500))


def test_a_line_without_an_end_is_not_waited_for(write, monkeypatch):
    monkeypatch.setattr(files, "LONGEST", 1 << 12)
    monkeypatch.setattr(files, "BLOCK", 1 << 10)
    monkeypatch.setattr(files, "HEAD", 1 << 6)
    with pytest.raises(BatchError, match="a line of more than 4,096 bytes"):
        read(write("a.csv", "name,ts\n" + "a,2024-05-01\n" * 5 + "y" * 10_000), {"ts": "timestamp"})


# --- fields and columns ------------------------------------------------------------------------------------------

FIELDS = {"Time": pa.timestamp("s"), "ITEM": pa.int64(), "cost": pa.float64(), "note": pa.string()}
WANTED = {"time": "timestamp", "item": "int", "price": "float"}


def test_columns_are_found_by_name_in_any_case_or_as_said():
    mapped = match("s", WANTED, FIELDS, {"Price": "cost"})
    assert mapped.fields == {"time": "Time", "item": "ITEM", "price": "cost"}
    assert mapped.unused == ["note"]


def test_what_does_not_match_is_told_with_what_could_be_meant():
    with pytest.raises(MissingColumn) as failure:
        match("s", WANTED | {"notes": "string"}, FIELDS, {})
    assert str(failure.value) == (
        "the file has no field for price, notes of stream s.\nIt has Time, ITEM, cost, note."
        " Say which one it is: --map price=FIELD --map notes=note"
    )
    with pytest.raises(MissingColumn, match="no field 'kost'; did you mean cost"):
        match("s", WANTED, FIELDS, {"price": "kost"})
    with pytest.raises(UnknownColumn, match="s has no column 'prise'; did you mean price"):
        match("s", WANTED, FIELDS, {"prise": "cost"})


def test_two_fields_that_differ_in_case_alone_are_not_guessed():
    with pytest.raises(MissingColumn):
        match("s", {"item": "int"}, {"Item": pa.int64(), "ITEM": pa.int64()}, {})
    assert match("s", {"item": "int"}, {"item": pa.int64(), "ITEM": pa.int64()}, {}).fields == {"item": "item"}


def test_the_columns_of_a_new_stream_come_from_the_file():
    fields = FIELDS | {"tags": pa.list_(pa.string())}
    mapped, time = columns_of(fields, {"price": "cost"}, None)
    assert time == "Time"
    assert mapped.kinds == {"Time": "timestamp", "ITEM": "int", "price": "float", "note": "string"}
    assert mapped.unused == ["tags"]
    mapped, time = columns_of({"at": pa.int64(), "x": pa.float64()}, {}, "AT")
    assert (time, mapped.kinds["at"]) == ("at", "timestamp")
    with pytest.raises(BadSchema, match="--time COLUMN, one of a, b"):
        columns_of({"a": pa.int64(), "b": pa.int64()}, {}, None)
    with pytest.raises(BadSchema, match="did you mean Time"):
        columns_of(FIELDS, {}, "tme")
    with pytest.raises(MissingColumn):
        columns_of(FIELDS, {"x": "y"}, "Time")
