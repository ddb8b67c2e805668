"""A service with damaged files: it starts, says what is missing and where, and all else works."""

from pathlib import Path

import pyarrow as pa
import pytest

import promising
from promising.client import RemoteSession
from promising.errors import DataDamaged, ProducerFenced
from promising.settings import Settings
from promising.testing.service import running

STREAM = "CREATE STREAM sales (ts TIMESTAMP, item BIGINT) TIMESTAMP BY ts"
RATES = "CREATE TABLE {} (item BIGINT PRIMARY KEY, rate DOUBLE)"
JOIN = (
    "CREATE CONTINUOUS QUERY {0}_now AS SELECT s.item, r.rate FROM sales s JOIN {0} r ON s.item = r.item WINDOW 1 HOURS"
)


def settings(folder: Path) -> Settings:
    return Settings(listen="127.0.0.1:0", data=folder)


def add(session: RemoteSession, number: int, epoch: int = 0) -> bool:
    """Whether it is a duplicate."""
    batch = {"ts": [1_700_000_000_000_000 + number], "item": [number]}
    return session.ingest("sales", batch, producer="till 7", sequence=number, epoch=epoch).duplicate


def copied(folder: Path, to: Path) -> Path:
    """The store as a process that is killed now leaves it."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != "LOCK" and not path.name.endswith(("-shm", "-wal")):
            (to / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
            (to / path.relative_to(folder)).write_bytes(path.read_bytes())
    return to


@pytest.mark.parametrize("cut", [1, 400])
def test_a_log_that_was_cut_after_a_kill_is_in_status_and_with_answers(tmp_path: Path, cut: int):
    with running(settings(tmp_path / "data")) as target, promising.connect(target) as session:
        session.execute(STREAM)
        for number in range(1, 5):
            add(session, number)
        killed = copied(tmp_path / "data", tmp_path / "killed")
    [log] = killed.glob("streams/*/wal/*.wal")
    log.write_bytes(log.read_bytes()[:-cut])
    for _ in range(2):  # also after a restart
        with running(settings(killed)) as target, promising.connect(target) as session:
            [damage] = session.admin.stats().damages["sales"]
            first = 5 if cut == 1 else 4
            assert log.name in damage and f"record{'' if first == 5 else 's'} {first} " in damage
            answer = session.query("SELECT count(*) AS n FROM sales").run()
            assert answer.progress.warnings == (f"stream 'sales' is not whole: {damage}",)
            assert answer.to_arrow()["n"].to_pylist() == [first - 2]


def test_a_log_without_its_unsynced_end_is_whole(tmp_path: Path):
    with running(settings(tmp_path / "data")) as target, promising.connect(target) as session:
        session.execute(STREAM)
        add(session, 1)
        killed = copied(tmp_path / "data", tmp_path / "killed")
    [log] = killed.glob("streams/*/wal/*.wal")
    log.write_bytes(log.read_bytes() + b"half a record of a batch that nobody has acknowledged"[:50])
    with running(settings(killed)) as target, promising.connect(target) as session:
        assert session.admin.stats().damages == {}
        assert add(session, 1) and not add(session, 2)


def test_a_damaged_table_is_set_aside_and_all_else_works(tmp_path: Path):
    with running(settings(tmp_path)) as target, promising.connect(target) as session:
        session.execute(STREAM)
        for name in ("rates", "rests"):
            session.execute(RATES.format(name))
            session.execute(f"INSERT INTO {name} VALUES (1, 0.5)")
            session.execute(JOIN.format(name))
    for path in tmp_path.glob("tables/*/*.arrow"):
        if len(list(tmp_path.glob("tables/*/*.arrow"))) == 2:
            path.unlink()
    with running(settings(tmp_path)) as target, promising.connect(target) as session:
        damages = session.admin.stats().damages
        assert len(damages) == 1
        [(bad, [what])] = damages.items()
        good = "rests" if bad == "rates" else "rates"
        assert what.startswith(f"table '{bad}' is set aside: ")
        for use in (
            lambda: session.execute(f"INSERT INTO {bad} VALUES (2, 1.5)"),
            lambda: session.execute(f"DELETE FROM {bad} WHERE item = 1"),
            lambda: session.execute(JOIN.format(bad).replace("_now", "_again")),
            lambda: session.query(f"SELECT item FROM {bad}_now").run(),
        ):
            with pytest.raises(DataDamaged, match=f"table '{bad}' is set aside: .*repair the store"):
                use()
        shown = session.execute("SHOW TABLES")
        assert isinstance(shown, pa.Table) and set(shown["name"].to_pylist()) == {bad, good}
        session.execute(f"INSERT INTO {good} VALUES (2, 1.5)")
        add(session, 1)
        session.execute(f"DROP TABLE {bad} CASCADE")
        assert session.admin.stats().damages == {}
        session.execute(RATES.format(bad))
        session.execute(f"INSERT INTO {bad} VALUES (2, 1.5)")
    with running(settings(tmp_path)) as target, promising.connect(target) as session:
        assert session.admin.stats().damages == {}


def test_an_epoch_and_what_is_forgotten_survive_a_kill_in_the_log_and_in_a_checkpoint(tmp_path: Path):
    with running(settings(tmp_path / "data")) as target, promising.connect(target) as session:
        session.execute(STREAM)
        assert not add(session, 1)
        assert not add(session, 2, epoch=3)
        assert add(session, 2, epoch=4)  # opens it, and adds nothing
        killed = copied(tmp_path / "data", tmp_path / "killed")
    for folder in (killed, tmp_path / "data", killed):  # the second has a checkpoint, the third has both
        with running(settings(folder)) as target, promising.connect(target) as session:
            with pytest.raises(ProducerFenced, match=r"epoch 3.*epoch 4"):
                add(session, 3, epoch=3)
            assert add(session, 1, epoch=4)
            assert session.query("SELECT count(*) AS n FROM sales").to_arrow()["n"].to_pylist() == [2]
