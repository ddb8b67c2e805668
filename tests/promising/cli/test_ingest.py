"""`ingest`: files into streams of a service."""

import json
from collections import Counter

import pytest

import promising
from promising.cli.ingest import _tell

HEAD = "Time,Item,Price,Note\n"
ROWS = "2024-05-01 12:00:00,7,1.5,a\n2024-05-01 12:00:01,8,2.5,b\n"


@pytest.fixture
def file(tmp_path):
    def made(text, name="sales.csv"):
        (tmp_path / name).write_text(text)
        return name

    return made


@pytest.fixture
def stream(cli, request):
    """A stream for one test alone: time, item, price."""
    name = request.node.name
    columns = ("time TIMESTAMP", "item BIGINT", "price DOUBLE")
    cli.ok("create-stream", name, *(w for c in columns for w in ("--column", c)), "--time", "time")
    return name


def kept(cli, stream):
    with promising.connect(cli.target) as session:
        return session.query(f'SELECT * FROM "{stream}"').to_arrow().to_pylist()


def test_columns_are_found_and_the_account_is_told(cli, file, stream):
    ended = cli("ingest", file(HEAD + ROWS), "--stream", stream)
    assert ended.code == 0
    assert ended.out.startswith(f"2 tuples into {stream} in ")
    assert ended.err == "Not used: Note.\n"
    assert [(row["item"], row["price"]) for row in kept(cli, stream)] == [(7, 1.5), (8, 2.5)]


def test_a_field_of_another_name_is_mapped(cli, file, stream):
    name = file("at,thing,price\n2024-05-01,7,1.5\n")
    refused = cli("ingest", name, "--stream", stream)
    assert refused.code == 1
    assert "It has at, thing, price. Say which one it is: --map time=" in refused.err
    told = cli.ok("ingest", name, "--stream", stream, "--map", "time=at", "--map", "item=thing", "-o", "json")
    facts = json.loads(told)
    assert (facts["accepted"], facts["refused"]) == (1, {})


def test_from_a_pipe(cli, stream):
    lines = "".join(json.dumps({"time": f"2024-05-01T12:00:0{n}", "item": n, "price": 0.5}) + "\n" for n in range(5))
    cli.ok("ingest", "-", "--format", "jsonl", "--stream", stream, input=lines)
    cli.ok("ingest", "-", "--format", "csv", "--stream", stream, input=HEAD + ROWS)
    assert len(kept(cli, stream)) == 7


def test_create_makes_the_stream_once(cli, file):
    name = file(HEAD + ROWS)
    first = cli("ingest", name, "--stream", "made here", "--create", "--time", "time", "--map", "thing=Item")
    assert first.code == 0
    assert (
        "Created stream made here (Time TIMESTAMP, thing BIGINT, Price DOUBLE, Note VARCHAR), event time Time."
        in first.err
    )
    again = cli("ingest", name, "--stream", "made here", "--create", "--map", "thing=Item")
    assert again.code == 0
    assert "Created" not in again.err
    assert len(kept(cli, "made here")) == 4


def test_a_file_that_cannot_be_read_makes_no_stream(cli, file):
    ended = cli("ingest", file("ts,a\n1700000000,1\n"), "--stream", "never made", "--create", "--time", "ts")
    assert ended.code == 1
    assert "--time-unit" in ended.err
    assert "never made" not in cli.ok("sql", "SHOW STREAMS")
    assert cli("ingest", file("ts,a\n"), "--stream", "never made", "--create", "--time", "ts").code == 1
    assert (
        cli("ingest", "nowhere.csv", "--stream", "never made").err == "error: nowhere.csv: No such file or directory\n"
    )


def test_a_stream_that_is_not_there_is_not_made_unasked(cli, file):
    ended = cli("ingest", file(HEAD + ROWS), "--stream", "stroe1")
    assert ended.code == 1
    assert "did you mean store" in ended.err
    assert "--create" in ended.err
    far = cli("ingest", file(HEAD + ROWS), "--stream", "nostream").err
    assert far.startswith("error: no stream 'nostream'; there are ")
    assert "store1, store2" in far
    assert "items1" not in far


def test_reasons_are_told_by_count_then_by_name(capsys):
    _tell("s", 1, Counter({"too_old": 2, "too_far_ahead": 2, "null_key": 3}), 1.0)
    reasons = [line.rpartition(" ")[2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert reasons == ["null_key", "too_far_ahead", "too_old"]


def test_tuples_that_are_left_out_are_counted_or_refused(cli, file, stream):
    cli.ok(
        "create-summary", f"{stream} items", "--on", stream, "--key", "item", "--granularity", "1s", "--collapse", "2,1"
    )
    with promising.connect(cli.target) as session:
        session.execute(f'ALTER STREAM "{stream}" KEEP 8 SECONDS')
    late = HEAD + ROWS + "2001-01-01,9,1,c\n"
    facts = json.loads(cli.ok("ingest", file(late), "--stream", stream, "--output", "json"))
    assert facts["accepted"] == 2
    assert facts["refused"] == {"too_old": 1}
    assert "1 tuple left out: too_old" in cli.ok("ingest", file(late), "--stream", stream)
    strict = cli("ingest", file(late), "--stream", stream, "--strict")
    assert strict.code == 1
    assert "error:" in strict.err
    assert strict.out == ""


def test_what_went_in_before_an_error_is_told(cli, file, stream, monkeypatch):
    monkeypatch.setattr("promising.cli.files.BLOCK", 1 << 12)
    good = "".join(f"2024-05-01 12:00:00,{n},1.5,a\n" for n in range(50_000))
    ended = cli("ingest", file(HEAD + good + "2024-05-01 12:00:00,x,1.5,a\n"), "--stream", stream)
    assert ended.code == 1
    assert "sales.csv, line 50,002, Item: 'x' is no whole number" in ended.err
    before = int(ended.err.split(" tuples had been added before the error")[0].split()[-1].replace(",", ""))
    assert before == len(kept(cli, stream)) > 0
