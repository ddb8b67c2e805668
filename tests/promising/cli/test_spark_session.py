"""`load`, and `query --engine spark`: what Spark is told, what is written, and how they end."""

import csv
import io
import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

import promising
from promising import errors
from promising.cli.spark_session import Cluster
from promising.testing.service import running
from tests.promising.cli.running import PROGRAM, ROWS, START, Cli, Ended

pytest.importorskip("pyspark")

from promising.loaders import bulk, scale_out
from promising.loaders.bulk import Report
from promising.loaders.scale_out import Figures
from promising.loaders.spark_jobs import Progress

LOAD = ("load", "--stream", "store1", "--source", "a.csv", "--staging", "staging")
REPORT = Report(
    stream="store1",
    token="abc",
    rows=1_012,
    accepted=1_000,
    refused={"null_key": 2, "bad_time": 10},
    duplicate=False,
    resumed=False,
    parts=2,
    cells=64,
    bytes=1_500_000,
    quarantine="file:/q/abc",
    seconds=2.0,
    stages={"listing": 0.5, "writing": 1.5},
)


@pytest.fixture
def session(monkeypatch):
    """No Spark is started; gives the clusters that were asked for."""
    asked: list[Cluster] = []

    @contextmanager
    def fake(self, name, failure):
        asked.append(self)
        yield f"the session of {name}"

    monkeypatch.setattr(Cluster, "session", fake)
    return asked


@pytest.fixture
def loads(session, monkeypatch):
    """What loads were asked for; each ends with the report, or the error, that the test has put there."""

    class Loads(list[tuple[tuple[Any, ...], dict[str, Any]]]):
        outcome: Any = REPORT

        def __call__(self, *given, on_progress, **named):
            self.append((given, named))
            for stage in ("listing", "writing"):
                on_progress(Progress(stage, 0.0, 0, 0.0))
                on_progress(Progress(stage, 1.0, 1_012, 0.5))
            if isinstance(self.outcome, BaseException):
                raise self.outcome
            return self.outcome(given[1]) if callable(self.outcome) else self.outcome

    made = Loads()
    monkeypatch.setattr(bulk, "bulk_load", made)
    return made


# --- load --------------------------------------------------------------------------------------------------------


def test_a_load_is_asked_for_as_the_options_say(cli, loads, session, tmp_path):
    cli.ok(
        *LOAD, "--source", "s3://lake/b", "c.csv", "/d/*.csv", "--map", "ts=when", "--map", "item_id=article",
        "--format", "jsonl", "--token", "May", "--quarantine", "bad", "--time-unit", "ms", "--time-zone", "+02:00",
        "--master", "spark://there:7077", "--spark-conf", "spark.executor.memory=3g", "--driver-memory", "2g",
    )  # fmt: skip
    ((given, named),) = loads
    assert given[0] == "the session of promising load"
    assert given[2:] == ("store1", [f"{tmp_path}/a.csv", "s3://lake/b", f"{tmp_path}/c.csv", "/d/*.csv"])
    assert named == {
        "mapping": {"ts": "when", "item_id": "article"},
        "format": "json",
        "staging": f"{tmp_path}/staging",
        "token": "May",
        "quarantine": f"{tmp_path}/bad",
        "time_unit": "ms",
        "time_zone": "+02:00",
    }
    assert session[0].master == "spark://there:7077"
    assert session[0].settings["spark.executor.memory"] == "3g"
    assert session[0].settings["spark.driver.memory"] == "2g"


def test_what_is_not_said_is_left_to_the_loader(cli, loads, session):
    cli.ok(*LOAD)
    assert {name: value for name, value in loads[0][1].items() if value is not None} == {
        "mapping": {},
        "staging": os.path.abspath("staging"),
    }
    assert session[0].master == "local[*]"


def test_the_service_of_a_load_is_the_one_that_all_options_say(cli, loads):
    loads.outcome = lambda service: Report(**{**vars(REPORT), "token": service.load_plan("STORE1").stream})
    assert cli.ok(*LOAD).splitlines()[-1] == "token store1"


def test_the_report_of_a_load(cli, loads):
    ended = cli(*LOAD)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "1,000 tuples into store1 of 1,012 rows in 2.0 s, 506 a second",
        "64 cells in 2 parts, 1.5 MB",
        "10 rows left out: bad_time",
        "2 rows left out: null_key",
        "What was refused is in file:/q/abc",
        "token abc",
    ]
    told = json.loads(cli.ok(*LOAD, "--output", "json"))
    assert (told["rows"], told["accepted"], told["refused"]) == (1_012, 1_000, {"null_key": 2, "bad_time": 10})
    assert (told["cells"], told["bytes"], told["seconds"], told["token"]) == (64, 1_500_000, 2.0, "abc")
    assert told["stages"] == {"listing": 0.5, "writing": 1.5}
    (row,) = csv.DictReader(io.StringIO(cli.ok(*LOAD, "--output", "csv")))
    assert (row["accepted"], json.loads(row["refused"])) == ("1000", REPORT.refused)


def test_a_load_that_was_done_before_says_so(cli, loads):
    loads.outcome = Report(**{**vars(REPORT), "duplicate": True, "refused": {}, "quarantine": None})
    assert cli.ok(*LOAD).splitlines() == [
        "Nothing was added: store1 has had this load before, 1,000 tuples of it.",
        "token abc",
    ]


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (errors.BadSource("there is no file a.csv"), 1),
        (errors.TokenReused("something else"), 1),
        (errors.BadPackage("not finished"), 1),
        (errors.LoadError("writing failed"), 1),
        (errors.Unavailable("gone. The load is prepared"), 3),
        (errors.StorageFull("no space"), 3),
        (errors.BadSettings("unknown time zone"), 2),
        (KeyboardInterrupt(), 130),
    ],
)
def test_how_a_load_ends_that_fails(cli, loads, problem, code):
    loads.outcome = problem
    ended = cli(*LOAD)
    assert (ended.code, ended.out) == (code, "")
    if code == 130:
        assert ended.err == "Broken off. The same command again finishes the load, and adds nothing twice.\n"
    else:
        assert ended.err.startswith(f"error: {problem}\n")


def test_a_bar_shows_the_stages_on_a_terminal(cli, loads, monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120)
    for module in ("load", "progress_bars"):
        monkeypatch.setattr(f"promising.cli.{module}.err", lambda: console)
    ended = cli(*LOAD)
    assert (ended.code, ended.err) == (0, "Starting Spark ...\n")
    assert "writing" in screen.getvalue()
    assert "1,012 rows, 2,024 rows/s" in screen.getvalue()
    screen.truncate(0)
    assert cli(*LOAD, "--quiet").err == screen.getvalue() == ""


def test_what_is_wrong_is_told_before_spark_starts(cli, session):
    missing = cli("load", "--stream", "store9", "--source", "a.csv", "--staging", "staging")
    assert (missing.code, missing.err) == (1, "error: no stream 'store9'; did you mean store2?\n")
    nobody = Cli("127.0.0.1:1")(*LOAD)
    assert nobody.code == 3
    typo = cli("query", "SELECT pric FROM store1", "--engine", "spark")
    assert typo.code == 1
    assert "did you mean price?" in typo.err
    assert session == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("load", "--stream", "s", "--staging", "x"), "--source"),
        (("load", "--stream", "s", "--source", "x"), "--staging"),
        ((*LOAD, "--format", "xml"), "--format"),
        ((*LOAD, "--map", "ts"), "NAME=VALUE"),
        ((*LOAD, "--spark-conf", "x"), "NAME=VALUE"),
        ((*LOAD, "--token", "prm_1_abc"), "who you are is said before the command"),
        (("query", "SELECT 1", "--share", "0.5"), "--share is an option of Spark; add --engine spark"),
        (("query", "SELECT 1", "--master", "local"), "--master is an option of Spark"),
        (("query", "SELECT 1", "--spark-conf", "a=b"), "--spark-conf is an option of Spark"),
        (("query", "SELECT 1", "--driver-memory", "1g"), "--driver-memory is an option of Spark"),
        (("query", "SELECT 1", "--engine", "spark", "--budget", "1s"), "--budget is an option of the service"),
        (("query", "SELECT 1", "--engine", "spark", "--seed", "1"), "--seed is an option of the service"),
        (("query", "--resume", "x", "--engine", "spark"), "--resume is an option of the service"),
        (("query", "SELECT 1", "--engine", "flink"), "--engine"),
    ],
)
def test_wrong_usage(cli, session, words, said):
    ended = cli(*words, COLUMNS="400")
    assert (ended.code, ended.out, session) == (2, "", [])
    assert said in " ".join(ended.err.split())


def test_a_token_before_the_command_says_who_you_are_and_one_after_it_names_the_load(cli, loads, monkeypatch):
    seen = []
    connect = promising.connect

    def noted(target, *, token, **how):
        seen.append(token)
        return connect(target, token=token, **how)

    monkeypatch.setattr("promising.client.session.connect", noted)
    cli.ok("--token", "prm_1_me", *LOAD, "--token", "May")
    assert seen == ["prm_1_me"]
    assert loads[0][1]["token"] == "May"


# --- query -------------------------------------------------------------------------------------------------------


class Frame:
    """An answer of Spark."""

    def __init__(self, table: pa.Table) -> None:
        self.toArrow = lambda: table


@pytest.fixture
def answers(session, monkeypatch):
    asked = []

    def fake(spark, connect, sql, *, share):
        asked.append((sql, share))
        with connect() as service:  # as the options of all commands say
            table = service.query(sql).to_arrow()
        return Frame(table), Figures(1_500, 6_000, 3, 12, 40, 80.0, share, None)

    monkeypatch.setattr(scale_out, "scale_out", fake)
    return asked


def test_spark_answers_in_every_output(cli, answers):
    ask = ("query", "SELECT item_id, price, till FROM store1 WHERE item_id = 7 ORDER BY ts LIMIT 4")
    for output in ("table", "json", "csv"):
        assert cli.ok(*ask, "--engine", "spark", "--output", output) == cli.ok(*ask, "--output", output)
    assert cli.raw(*ask, "--engine", "spark", "-o", "arrow") == cli.raw(*ask, "-o", "arrow")
    assert answers[0] == (ask[1], 1.0)


def test_what_an_answer_of_spark_is_worth(cli, answers):
    ask = ("query", "SELECT count(*) AS n FROM store1", "--engine", "spark")
    ended = cli(*ask, "--require-complete")
    assert (ended.code, ended.out.split()[-1]) == (0, str(ROWS))
    read = "read 3 of 12 row groups, 1.5 kB of 6 kB, 40 tuples from memory\n"
    assert ended.err == f"1 row, complete; {read}"
    part = cli(*ask, "--share", "0.8")
    assert (part.code, part.err) == (0, f"1 row, 80.0 % of the output expected; {read}")
    assert cli(*ask, "--share", "0.8", "--require-complete").code == 5
    assert cli(*ask, "--quiet").err == ""


# --- starting it -------------------------------------------------------------------------------------------------


def alone(*words: str, **env: str) -> Ended:
    """The program as a process of its own, since a process has one Spark at a time."""
    clean = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [str(PROGRAM), *words], capture_output=True, text=True, env={**clean, **env}, timeout=600, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def test_without_java_it_says_what_to_install(cli, tmp_path):
    nowhere = cli(*LOAD, JAVA_HOME=str(tmp_path))
    assert (nowhere.code, nowhere.out) == (2, "")
    assert nowhere.err.startswith(f"error: JAVA_HOME is {tmp_path}, where there is no bin/java. Spark needs Java 17")
    none = cli(*LOAD, JAVA_HOME="", PATH=str(tmp_path))
    assert none.code == 2
    assert none.err.startswith("error: no java is found. Spark needs Java 17 or newer")


def test_a_java_that_does_not_start_is_shown(stores, tmp_path):
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'Error: this Java is broken' >&2\nexit 1\n")
    java.chmod(0o755)
    ended = alone(*LOAD, PROMISING_TARGET=stores, JAVA_HOME=str(tmp_path))
    assert ended.code == 2
    assert ended.err.startswith("error: Spark does not start with --master local[*]: Error: this Java is broken")
    assert "Java 17 or newer" in ended.err


def test_without_pyspark_it_says_what_to_install(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    ended = cli(*LOAD)
    assert ended.code == 2
    assert ended.err == 'error: Spark is not installed here; install it with pip install "promising-tuples[spark]"\n'


def test_settings_of_a_local_master_keep_it_to_this_machine():
    local, there = Cluster.of(None, ["a=b"], None), Cluster.of("spark://there:7077", None, "2g")
    assert local.settings["spark.driver.host"] == local.settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert local.settings["a"] == "b"
    assert "spark.driver.host" not in there.settings
    assert there.settings["spark.driver.memory"] == "2g"


# --- in earnest --------------------------------------------------------------------------------------------------


@pytest.mark.spark
def test_from_files_to_answers_with_spark(tmp_path):
    """One load, with rows that are refused, and a question to Spark that the service answers alike."""
    for name in ("a", "b"):
        lines = [f"{(START + n * 1_000_000) // 1_000_000},{n % 7},{n}.5,{name}" for n in range(300)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["at,item,price,till", *lines, "soon,1,1.0,x", ""]))
    spark = ("--master", "local[2]", "--driver-memory", "1g")
    sql = "SELECT item, count(*) AS n, sum(price) AS total FROM sales GROUP BY item ORDER BY item"
    session = promising.open(tmp_path / "data")
    with running(session=session) as target:
        session.execute("CREATE STREAM sales (at TIMESTAMP, item BIGINT, price DOUBLE, till VARCHAR) TIMESTAMP BY at")
        session.execute("CREATE SUMMARY items ON sales (item) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 5)")
        ended = alone(
            "load", "--stream", "sales", "--source", f"{tmp_path}/*.csv", "--staging", f"{tmp_path}/staging",
            "--time-unit", "s", "--quarantine", f"{tmp_path}/bad", "--output", "json", *spark,
            PROMISING_TARGET=target,
        )  # fmt: skip
        assert (ended.code, ended.err) == (0, ""), ended
        told = json.loads(ended.out)
        assert (told["rows"], told["accepted"], told["refused"]) == (602, 600, {"bad_time": 2})
        assert len(list((tmp_path / "bad" / told["token"]).glob("*.json"))) > 0
        asked = alone("query", sql, "--engine", "spark", "--output", "json", *spark, PROMISING_TARGET=target)
        assert asked.code == 0, asked
        assert "complete; read " in asked.err
        assert [json.loads(line) for line in asked.out.splitlines()] == session.query(sql).to_arrow().to_pylist()
    session.close()
