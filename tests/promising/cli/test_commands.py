"""Every command against a service: what it writes, and how it ends."""

import csv
import io
import json

import pyarrow as pa
import pytest

import promising
from tests.promising.cli.running import ROWS

JOIN = "SELECT a.item_id, b.price FROM store1 a, store2 b WHERE a.item_id = b.item_id"
COUNT = "SELECT count(*) AS n FROM store1"


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


# --- defining ----------------------------------------------------------------------------------------------------


def test_a_stream_and_a_summary_are_created_as_the_options_say(cli):
    made = cli.ok(
        "create-stream", "sales made", "--column", "at TIMESTAMP", "--column", "item VARCHAR", "--column", '"n o" INT',
        "--time", "at", "--lateness", "5m",
    )  # fmt: skip
    assert made == "stream sales made created\n"
    summed = cli.ok(
        "create-summary", "by item", "--on", "sales made", "--key", "item", "--granularity", "90s",
        "--collapse", "3, 2", "--structure", "grid", "--option", "buckets=8", "--option", "postings=off",
        "--measure", 'moments("n o")', "--measure", "SAMPLE(4)",
        "--using", "exact",
    )  # fmt: skip
    assert summed.startswith("summary by item created on sales made (item): at most ")
    told = lines(cli.ok("describe", "sales made", "--output", "json"))[0]
    assert [(c["column"], c["type"], c["time"], c["summary"]) for c in told["columns"]] == [
        ("at", "timestamp", True, None),
        ("item", "string", False, "by item"),
        ("n o", "int", False, None),
    ]
    (row,) = [r for r in lines(cli.ok("sql", "SHOW SUMMARIES", "--output", "json")) if r["name"] == "by item"]
    assert (row["granularity"], row["granularities"], row["structure"]) == (90.0, 2, "grid")
    assert (row["using"], row["postings"]) == ("EXACT", "off")
    assert row["measures"] == 'MOMENTS("n o"), SAMPLE(4)'
    assert row["statement"].startswith(
        'CREATE SUMMARY "by item" ON "sales made" (item) USING EXACT MEASURES (MOMENTS("n o"), '
    )


def test_rows_are_removed_only_with_yes_and_are_counted(cli):
    made = ("--column", "ts TIMESTAMP", "--column", "k INT", "--time", "ts", "--keep", "30d")
    cli.ok("create-stream", "short", *made)
    rows = "\n".join(["ts,k", *(f"2024-05-{day:02}T00:00:00,{day}" for day in range(1, 31))])
    cli.ok("ingest", "-", "--stream", "short", "--format", "csv", input=rows)
    count = "SELECT count(*) AS n FROM short"
    refused = cli("sql", "ALTER STREAM short KEEP 8 DAYS")
    assert refused.code == 2
    assert "this removes 21 rows for good; add --yes" in " ".join(refused.err.split())
    for statement in ("DROP STREAM short", "-- all of it\n; drop /* now */ stream short"):
        told = cli("sql", statement)
        assert (told.code, "this removes 30 rows" in " ".join(told.err.split())) == (2, True)
    assert "30" in cli.ok("sql", count)
    wrong = cli("sql", "ALTER STREAM short KEEP 0 DAYS")  # the text that was typed, not that which counts the rows
    assert wrong.code == 1 and "line 1, column 25:\n  ALTER STREAM short KEEP 0 DAYS\n" in wrong.err
    assert cli.ok("sql", "ALTER STREAM short KEEP ALL") == "stream short keeps all tuples; 0 rows removed\n"
    said = cli.ok("sql", "--yes", "ALTER STREAM short KEEP 8 DAYS")
    assert said == "stream short keeps tuples for 8 days; 21 rows removed\n"
    assert cli.ok("sql", "DROP STREAM short", "--yes") == "stream short dropped, 9 rows\n"


def test_what_is_there_already_is_an_error_unless_that_is_fine(cli):
    columns = ("--column", "ts TIMESTAMP", "--time", "ts")
    again = cli("create-stream", "store1", *columns)
    assert again.code == 1
    assert again.err.startswith("error: 'store1' is a stream already; drop it first")
    assert cli.ok("create-stream", "store1", *columns, "--if-not-exists") == "stream store1 was there already\n"
    told = cli.ok("create-stream", "store1", *columns, "--if-not-exists", "-o", "json")
    assert json.loads(told) == {"message": "stream store1 was there already", "changed": False}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("create-summary", "x", "--on", "store9", "--key", "k", "--granularity", "1m"),
            "error: no stream 'store9'; did you mean store2?",
        ),
        (
            ("create-stream", "store1", "--column", "ts TIMESTAMP", "--time", "ts"),
            "error: 'store1' is a stream already",
        ),
        (("create-stream", "x", "--column", "ts TIME!", "--time", "ts"), "error: "),
        (("create-stream", "x", "--column", "ts INT", "--time", "ts"), "error: "),
    ],
)
def test_an_error_does_not_show_a_statement_that_nobody_wrote(cli, words, said):
    ended = cli(*words)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(said)
    assert ended.err.count("\n") == 1
    assert "CREATE" not in ended.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create-stream", "x", "--column", "ts", "--time", "ts"), "write a name and a type"),
        (("create-summary", "x", "--on", "s", "--key", "k", "--granularity", "soon"), "no span of time"),
        (
            ("create-summary", "x", "--on", "s", "--key", "k", "--granularity", "1m", "--collapse", "4"),
            "rate and a depth",
        ),
        (("create-summary", "x", "--on", "s", "--key", "k", "--granularity", "1m", "--option", "a"), "NAME=VALUE"),
        (
            ("create-summary", "x", "--on", "s", "--key", "k", "--granularity", "1m", "--using", "tea"),
            "there are COUNT_SKETCH",
        ),
        (
            ("create-summary", "x", "--on", "s", "--key", "k", "--granularity", "1m", "--measure", "price"),
            "is not a measure",
        ),
        (("story", "items1"), "SUMMARY/GRANULARITY/ZONE"),
        (("query",), "give a SELECT"),
        (("query", "SELECT 1", "--resume", "x"), "give a SELECT"),
        (("query", "--resume", "x", "--seed", "3"), "--seed is of a new question"),
        (("sql", "SHOW STREAMS", "-f", "x.sql"), "not both"),
        (("estimate", "items1", "1", "--from", "noon"), "no time"),
        (("ingest", "x.csv", "--stream", "s", "--time", "ts"), "goes with --create"),
        (("ingest", "x.txt", "--stream", "s"), "add --format"),
        (("ingest", "-", "--stream", "s", "--format", "parquet"), "give a file"),
        (("status", "--token", "a", "--token-file", "b"), "give one"),
        (("status", "--token-file", "nowhere"), "nowhere"),
        (("no-such-command",), "No such command"),
    ],
)
def test_wrong_usage_is_told_and_ends_with_2(cli, words, said):
    ended = cli(*words, COLUMNS="400")
    assert ended.code == 2, ended
    assert said in " ".join(ended.err.split())
    assert ended.out == ""


# --- asking ------------------------------------------------------------------------------------------------------


def test_a_query_comes_in_every_output(cli):
    ask = ("query", "SELECT item_id, price, till FROM store1 WHERE item_id = 7 ORDER BY ts LIMIT 4")
    rows = lines(cli.ok(*ask, "--output", "json"))
    assert len(rows) == 4
    assert set(rows[0]) == {"item_id", "price", "till"}
    table = pa.ipc.open_stream(cli.raw(*ask, "--output", "arrow")).read_all()
    assert table.to_pylist() == rows
    told = list(csv.DictReader(io.StringIO(cli.ok(*ask, "--output", "csv"))))
    assert [float(row["price"]) for row in told] == [row["price"] for row in rows]
    shown = cli.ok(*ask).splitlines()
    assert shown[0].split() == ["item_id", "price", "till"]
    assert [line.split()[1] for line in shown[2:]] == [f"{row['price']:.10g}" for row in rows]


def test_what_an_answer_is_worth_stands_on_stderr(cli):
    ended = cli("query", COUNT)
    assert ended.out.split() == ["n", "----", str(ROWS)]
    assert ended.err.startswith("1 row, complete; ")
    assert cli("query", COUNT, "--quiet").err == ""


def test_an_answer_that_was_cut_says_so_and_goes_on(cli):
    cut = cli("query", JOIN, "--budget", "0s", "--output", "json")
    assert cut.code == 0
    assert cut.out == ""
    assert "0 rows, cut by its budget" in cut.err
    said, _, token = cut.err.strip().rpartition(" --resume ")
    assert said.endswith("Go on with: promising query --output json")
    rest = cli("query", "--resume", token, "--output", "csv")
    assert rest.code == 0
    with promising.connect(cli.target) as session:
        assert len(rest.out.splitlines()) - 1 == session.query(JOIN).to_arrow().num_rows
    assert cli("query", "--resume", token).code == 1


def test_the_command_that_goes_on_has_the_options_that_it_needs(cli, tmp_path):
    (tmp_path / "my token").write_text("prm_1_x")
    flags = ("--target", cli.target, "--token-file", "my token", "-o", "csv", "--timeout", "30s")
    for command in ("query", "sql"):
        err = cli(command, JOIN + " BUDGET 0 SECONDS", *flags).err
        given = f"--target {cli.target} --token-file 'my token' --output csv"
        assert f"Go on with: promising query {given} --resume " in err
        assert "Go on with: promising query --resume " in cli(command, JOIN + " BUDGET 0 SECONDS").err


def test_a_cut_answer_ends_with_5_where_all_of_it_is_required(cli):
    assert cli("query", JOIN, "--budget", "0s", "--require-complete").code == 5
    assert cli("query", COUNT, "--require-complete").code == 0


def test_the_same_seed_gives_the_same_rows(cli):
    weighted = JOIN + " WITH PREFERENCE WEIGHTED SUMMARY.Estimate.Count(a.item_id), SUMMARY.Estimate.Count(b.item_id)"
    first, again, other = (
        cli.ok("query", weighted + " LIMIT 50", "--seed", seed, "--output", "csv") for seed in ("1", "1", "2")
    )
    assert first == again != other


def test_aggregates_show_their_bounds(cli):
    told = cli.ok("query", "SELECT avg(price) AS m FROM store1 WITH ERROR 0.2")
    assert " to " in told.splitlines()[2]
    assert " to " not in cli.ok("query", "SELECT avg(price) AS m FROM store1")


def test_an_error_in_a_statement_is_shown_under_a_caret(cli):
    ended = cli("query", "SELECT pricee FROM store1")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        "error: no column 'pricee' in store1; did you mean price?\nline 1, column 8:\n"
        "  SELECT pricee FROM store1\n         ^\n"
    )


def test_explain_in_words_and_as_an_object(cli):
    ask = "SELECT item_id FROM store1 WITH PREFERENCE DESC SUMMARY.Estimate.Count(item_id) LIMIT 5"
    assert "most promising first" in cli.ok("explain", ask)
    told = json.loads(cli.ok("explain", ask, "--analyze", "--output", "json"))
    assert told["progress"]["rows"] == 5
    assert told["regions"][0]["rank"] == 1
    assert cli.ok("explain", ask, "--output", "csv").startswith('"plan"\n')


# --- sql ---------------------------------------------------------------------------------------------------------


def test_statements_come_from_the_command_line_a_file_or_a_pipe(cli, tmp_path):
    text = f"-- one\nSHOW STREAMS; {COUNT};\n"
    (tmp_path / "some.sql").write_text(text)
    given = cli.ok("sql", text)
    assert given.startswith("name")
    assert given.endswith(f"{ROWS}\n")
    assert cli.ok("sql", "-f", "some.sql") == given
    assert cli.ok("sql", input=text) == given
    assert cli.ok("sql", "-f", "-", input=text) == given


def test_nothing_runs_of_a_text_with_an_error_in_it(cli):
    ended = cli("sql", "CREATE STREAM never (ts TIMESTAMP) TIMESTAMP BY ts;\nSELEC 1")
    assert (ended.code, ended.out) == (1, "")
    assert "line 2, column 1" in ended.err
    assert "never" not in cli.ok("sql", "SHOW STREAMS")


def test_an_error_while_running_names_its_place_in_the_file(cli):
    ended = cli("sql", f"{COUNT};\n\n  SELECT nix FROM store1; SHOW STREAMS")
    assert ended.code == 1
    assert ended.out.split()[-1] == str(ROWS)
    assert "line 3, column 10" in ended.err
    assert cli("sql", "  -- nothing\n").code == 2


# --- looking inside ----------------------------------------------------------------------------------------------


def test_estimates_and_regions_of_keys(cli):
    with promising.connect(cli.target) as session:
        told = session.estimate("items1", [1, 999_999])
        found = session.regions("items1", [1])
    rows = lines(cli.ok("estimate", "items1", "1", "999999", "--output", "json"))
    assert [row["key"] for row in rows] == [1, 999_999]
    assert [row["estimate"] for row in rows] == told.value.tolist()
    rows = lines(cli.ok("regions", "items1", "1", "--output", "json"))
    assert [row["region"] for row in rows] == [f"items1/G{r.granularity}/{r.zone}" for r in found]
    shown = cli("regions", "items1", "1")
    assert shown.out.split()[:3] == ["key", "region", "bucket"]
    assert f"{len(found)} regions, of " in shown.err
    late = lines(cli.ok("regions", "items1", "1", "--from", "2023-11-14T23:10", "--output", "json"))
    assert 0 < len(late) < len(rows)


def test_a_key_must_be_of_the_type_of_its_column(cli):
    ended = cli("estimate", "items1", "milk")
    assert ended.code == 1
    assert "'milk' is no key of items1: item_id is a column of integers" in ended.err
    assert "no summary 'items7'; did you mean items" in cli("estimate", "items7", "1").err


def test_describe_draws_the_grid_of_a_summary(cli, tmp_path):
    told = cli("describe", "items1", "--png", "grid.png")
    assert told.code == 0
    assert told.out.startswith(f"items1 on item_id: {ROWS:,} tuples")
    assert "G_1" in told.out
    assert (tmp_path / "grid.png").read_bytes().startswith(b"\x89PNG")
    facts = json.loads(cli.ok("describe", "items1", "--output", "json"))
    assert sum(sum(zone["cells"]) for zone in facts["zones"]) == ROWS
    zones = list(csv.DictReader(io.StringIO(cli.ok("describe", "items1", "--output", "csv"))))
    assert len(zones) == len(facts["zones"])


def test_describe_of_streams_queries_and_nothing(cli):
    assert f"stream store1: {ROWS:,} tuples" in cli.ok("describe", "STORE1")
    cli.ok("sql", "CREATE CONTINUOUS QUERY hot AS SELECT item_id FROM store1")
    assert "SELECT item_id FROM store1" in cli.ok("describe", "hot")
    missing = cli("describe", "store9")
    assert missing.code == 1
    assert missing.err.splitlines() == ["error: no stream, summary, table or query 'store9'; did you mean store2?"]
    assert cli("describe", "store1", "--png", "x.png").code == 1
    assert cli("describe", "items1", "--png", "no/such/folder.png").code == 1


def test_a_summary_without_tuples_is_described_in_words(cli):
    cli.ok("create-stream", "empty", "--column", "ts TIMESTAMP", "--column", "k INT", "--time", "ts")
    cli.ok("create-summary", "nothing", "--on", "empty", "--key", "k", "--granularity", "1m")
    assert cli.ok("describe", "nothing") == "nothing on k: no tuples yet\n"


def test_the_story_of_a_zone(cli):
    (row, *_) = lines(cli.ok("regions", "items1", "1", "--output", "json"))
    told = cli.ok("story", row["region"])
    assert told.strip()
    facts = json.loads(cli.ok("story", row["region"], "--output", "json"))
    assert facts["lines"] == told.splitlines()
    missing = cli("story", "items1/G1/123456")
    assert missing.code == 1
    assert 'promising sql "DESCRIBE items1"' in missing.err


def test_figures_of_measures_are_shown(cli, tmp_path):
    cli.ok("sql", "CREATE SUMMARY measured ON store1 (item_id) MEASURES (MOMENTS(price)) WITH GRANULARITY 60 SECONDS"
                  " AND COLLAPSE (4, 5)")  # fmt: skip
    picture = tmp_path / "prices.png"
    text = cli.ok("describe", "measured", "--show", "avg(price)", "--png", str(picture))
    assert "avg(price) in " in text and "measures: MOMENTS(price)" in text
    assert picture.stat().st_size > 10_000
    facts = json.loads(cli.ok("describe", "measured", "--show", "count(price)", "--output", "json"))
    assert facts["measures"] == ["MOMENTS(price)"]
    assert all(sum(filter(None, zone["shown"])) == zone["tuples"] for zone in facts["zones"])
    (row, *_) = rows = lines(cli.ok("regions", "measured", "1", "--show", "count(price)", "--output", "json"))
    assert all(row["count(price)"] == row["tuples"] for row in rows)
    assert "count(price)" in cli.ok("regions", "measured", "1", "--show", "count(price)")
    assert "It measures MOMENTS(price): count " in cli.ok("story", row["region"])
    wrong = cli("describe", "measured", "--show", "avg(prize)")
    assert wrong.code == 1 and "there are count(price), sum(price), avg(price)" in " ".join(wrong.err.split())
    assert cli("describe", "store1", "--show", "avg(price)").code == 1
    cli.ok("sql", "DROP SUMMARY measured")


# --- the service -------------------------------------------------------------------------------------------------


def test_status_and_top(cli):
    told = cli.ok("status")
    assert told.startswith(f"promising {cli.ok('version').split()[1]} at {cli.target}, up ")
    assert "store1" in told
    facts = json.loads(cli.ok("status", "--output", "json"))
    assert facts["accepted"] >= 2 * ROWS
    assert {s["name"] for s in facts["summaries"]} >= {"items1", "items2"}
    assert "tuples/s" in cli.ok("top", "--once", "--every", "50ms")
    sample = json.loads(cli.ok("top", "--every", "50ms", "--output", "json"))
    assert sample["tuples_per_second"] == 0
    assert sample["queries"] == []


def test_status_says_that_an_error_target_was_reached(cli):
    cli.ok("query", "SELECT avg(price) AS m FROM store1 WITH ERROR 0.5")
    assert " error target" in cli.ok("status")


def test_names_and_values_that_look_like_markup_are_shown_as_they_are(cli, monkeypatch, tmp_path):
    monkeypatch.setattr("rich.console.Console.is_terminal", True)  # where rich draws
    odd, file = "[/red]a[bold]", "[b]x[red].csv"
    (tmp_path / file).write_text(f"ts,{odd}\n2024-05-01,[/blue]\n")
    told = cli("ingest", file, "--stream", odd, "--create", "--time", "ts")
    assert told.code == 0, told
    assert odd in told.err
    cli.ok("create-summary", f"s {odd}", "--on", odd, "--key", odd, "--granularity", "1m")
    for words in (("status",), ("describe", odd), ("describe", f"s {odd}"), ("sql", "SHOW STREAMS")):
        assert odd in cli.ok(*words, COLUMNS="300"), words
    assert "[/blue]" in cli.ok("query", f'SELECT * FROM "{odd}"', COLUMNS="300")
    assert "tuples/s" in cli.ok("top", "--once", "--every", "50ms")
    assert odd in cli("describe", f"no {odd}").err
    assert cli("create-stream", odd, "--column", "[/bold]", "--time", "t").code == 2


def test_config_shows_each_setting_and_where_it_comes_from(cli, tmp_path):
    (tmp_path / "some.toml").write_text('listen = "127.0.0.1:7"\n[limits]\nmax_rows = 70\nmax_keys = 7\n')
    flags = ("--config", "some.toml", "--set", "limits.max_keys=8")
    told = cli.ok("config", "show", *flags, "--output", "json", PROMISING_LISTEN="127.0.0.1:9", PROMISING_SEED="123")
    found = {row["setting"]: (row["value"], row["source"]) for row in lines(told)}
    assert found["listen"] == ("127.0.0.1:9", "environment")
    assert found["limits.max_rows"] == ("70", "file some.toml")
    assert found["limits.max_keys"] == ("8", "flag")
    assert found["reflection"] == ("true", "default")
    assert found["seed"] == ("********", "environment")
    assert "123" not in told
    running = {row["setting"]: row["value"] for row in lines(cli.ok("config", "show", "--running", "-o", "json"))}
    assert running["drain_seconds"] == "2.0"


def test_tokens_are_made_listed_and_revoked(cli, tmp_path):
    file = ("--tokens", str(tmp_path / "tokens.db"))
    made = cli("token", "create", "till-7", "--role", "ingest", "--role", "query", "--expires", "30d", *file)
    assert made.code == 0
    assert made.out.startswith("prm_")
    assert made.out.strip() not in made.err
    (row,) = lines(cli.ok("token", "list", *file, "--output", "json"))
    assert (row["name"], row["roles"], row["in_force"]) == ("till-7", "ingest query", True)
    assert cli("token", "create", "till-7", "--role", "query", *file).code == 1
    assert cli("token", "revoke", "till-7", *file).code == 0
    assert cli.ok("token", "list", *file, "--output", "json") == ""
    assert cli("token", "revoke", "till-7", *file).code == 1
    assert cli("token", "list").code == 2
    assert json.loads(cli.ok("token", "create", "a", "--role", "admin", "-o", "json", *file))["token"].startswith(
        "prm_"
    )
    assert cli("token", "list", "--tokens", "nowhere.db").code == 2
