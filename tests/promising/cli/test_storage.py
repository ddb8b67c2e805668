"""`backup`, `restore`, `verify`, `repair`, and what `status` and `describe` say of data that is damaged."""

import json
import shutil

import pyarrow as pa
import pytest

import promising
from promising.settings import Settings
from promising.testing.service import running
from tests.promising.cli.running import START, Cli, finished

NOBODY = Cli("127.0.0.1:1")  # commands that need no service


def table(first, rows=1000):
    return pa.table(
        {
            "ts": pa.array([START + 1_000_000 * n for n in range(first, first + rows)]).cast(pa.timestamp("us")),
            "item": pa.array([n % 7 for n in range(rows)], pa.int64()),
        }
    )


def fill(session):
    session.execute("CREATE STREAM sales (ts TIMESTAMP, item BIGINT) TIMESTAMP BY ts")
    session.execute("CREATE SUMMARY items ON sales (item) WITH GRANULARITY 60 SECONDS AND COLLAPSE (4, 5)")
    for first in range(0, 5000, 1000):
        session.ingest("sales", table(first))


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A directory with a stream of 5,000 tuples, part of it in a checkpoint, part in the log."""
    monkeypatch.chdir(tmp_path)
    with promising.open("shop", seed=7) as session:
        fill(session)
        assert session.store is not None
        session.store.checkpoint()
        for first in range(5000, 7000, 1000):
            session.ingest("sales", table(first))
        shutil.copytree("shop", "killed")  # as it would be found after a crash
    shutil.rmtree("shop")
    (tmp_path / "killed").rename("shop")
    return tmp_path / "shop"


def counted(path):
    with promising.open(path) as session:
        return session.query("SELECT count(*) AS n FROM sales").to_arrow()["n"].to_pylist()


def damage(path):
    """Change one byte of the log, in the batch before the last: behind the checkpoint, and before the end."""
    content = bytearray(path.read_bytes())
    content[len(content) * 4 // 5] ^= 0x10
    path.write_bytes(content)


def wal(data):
    """The largest file of the log."""
    return max(data.glob("streams/*/wal/*.wal"), key=lambda path: path.stat().st_size)


def test_a_backup_is_restored_and_serves(data):
    made = NOBODY("backup", "shop", "monday")
    assert (made.code, made.err) == (0, "")
    assert made.out.startswith("backup of shop in monday: 1 stream, ")
    restored = NOBODY("restore", "monday", "again")
    assert (restored.code, restored.err) == (0, "")
    assert restored.out.startswith("monday restored to again: 1 stream, ")
    assert NOBODY("verify", "again").code == 0
    assert counted("again") == counted("shop") == [7000]


@pytest.mark.deep("starts many processes")
def test_a_backup_is_taken_while_the_service_runs(data):
    with running(Settings(listen="127.0.0.1:0", data=data)) as target, promising.connect(target) as session:
        made = finished("backup", "shop", "monday", "-o", "json")
        assert made.code == 0, made
        told = json.loads(made.out)
        assert (told["streams"], told["damages"]) == (1, [])
        assert told["files"] > 2 and told["bytes"] > 10_000
        session.ingest("sales", table(7000))
        busy = finished("verify", "shop")
        assert busy.code == 2
        assert "in use" in busy.err
        assert finished("repair", "shop", "--yes").code == 2
    assert counted("monday") == [7000]
    assert counted("shop") == [8000]


def test_nothing_is_overwritten(data):
    assert NOBODY("backup", "shop", "monday").code == 0
    for words in (("backup", "shop", "monday"), ("restore", "monday", "shop")):
        ended = NOBODY(*words)
        assert ended.code == 2
        assert ended.err.startswith("error: ")
        assert "not empty" in ended.err
    for command in ("backup", "restore"):
        ended = NOBODY(command, "nowhere", "new")
        assert ended.code == 2
        assert "nowhere is no directory of a store" in ended.err
    for command in ("verify", "repair"):
        assert NOBODY(command, "nowhere", *(["--yes"] if command == "repair" else [])).code == 2


def test_data_that_is_whole_is_said_to_be(data):
    with promising.open("shop"):
        pass  # what was torn is cut, what is left over goes
    verified = NOBODY("verify", "shop")
    assert (verified.code, verified.out) == (0, "")
    assert verified.err == "shop is whole\n"
    assert NOBODY("verify", "shop", "-o", "json").out == ""
    repaired = NOBODY("repair", "shop", "--yes")
    assert (repaired.code, repaired.err) == (0, "shop is whole; nothing was done\n")


def test_damage_is_found_told_and_repaired(data):
    damage(wal(data))
    verified = NOBODY("verify", "shop")
    assert verified.code == 1
    assert "error" in verified.out
    assert wal(data).name in verified.out
    assert verified.err.startswith("shop is damaged: ")
    rows = [json.loads(line) for line in NOBODY("verify", "shop", "-o", "json").out.splitlines()]
    assert {row["severity"] for row in rows} >= {"error"}
    assert {"severity", "path", "what"} == set(rows[0])
    copied = NOBODY("backup", "shop", "monday")
    assert copied.code == 1, "it is made, and as damaged as the other"
    assert "damaged" in copied.out
    refused = NOBODY("restore", "monday", "again")
    assert refused.code == 1
    assert "Nothing was restored" in refused.err.replace("\n", " ")
    asked = NOBODY("repair", "shop")
    assert asked.code == 2
    assert "--yes" in asked.err
    repaired = NOBODY("repair", "shop", "--yes")
    assert repaired.code == 0, repaired
    assert "given up" in repaired.out
    assert NOBODY("verify", "shop").code == 0
    assert counted("shop") == [6000], "all but what the damaged record had"


def test_a_service_tells_what_it_lacks(data):
    damage(wal(data))
    with running(Settings(listen="127.0.0.1:0", data=data)) as target:
        cli = Cli(target)
        shown = cli.ok("status")
        assert "damaged    sales: " in shown
        assert "promising repair" in shown
        told = json.loads(cli.ok("status", "-o", "json"))
        assert list(told["damages"]) == ["sales"]
        assert "damaged    " in cli.ok("describe", "sales")
        assert json.loads(cli.ok("describe", "sales", "-o", "json"))["damages"] == told["damages"]["sales"]
        with promising.connect(target) as session:
            answer = session.query("SELECT count(*) AS n FROM sales").run()
            assert any("not whole" in warning for warning in answer.progress.warnings)


def test_status_tells_where_data_is(data, cli):
    with running(Settings(listen="127.0.0.1:0", data=data)) as target:
        assert f"storage    {data}; last checkpoint " in Cli(target).ok("status")
    assert "storage    none: everything is in memory, and lost when the service ends" in cli.ok("status")
