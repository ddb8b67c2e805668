"""Tokens: told once, kept as hashes, gone at once when revoked."""

import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from promising.errors import BadRequest, BadSettings, DuplicateName, UnknownName
from promising.server import access_tokens
from promising.server.access_tokens import Caller, TokenStore
from promising.testing import ManualClock


@pytest.fixture
def store(tmp_path):
    made = TokenStore(tmp_path / "tokens.db")
    yield made
    made.close()


def test_a_secret_gives_its_caller(store):
    loader = store.create("loader", "ingest")
    both = store.create("both", ["query", "ingest"])
    assert store.check(loader) == Caller("loader", frozenset({"ingest"}))
    assert store.check(both) == Caller("both", frozenset({"query", "ingest"}))


@pytest.mark.parametrize(
    ("roles", "may"),
    [
        ({"query"}, {"query"}),
        ({"ingest", "query"}, {"ingest", "query"}),
        ({"admin"}, {"admin", "ingest", "query"}),
        (set(), set()),
    ],
)
def test_an_admin_has_every_role(roles, may):
    caller = Caller("x", frozenset(roles))
    assert {role for role in ("admin", "ingest", "query") if caller.may(role)} == may


def test_nothing_but_the_exact_secret_is_taken(store):
    secret = store.create("one", "query")
    other = store.create("two", "query")
    prefix, number, random = secret.split("_")
    flipped = random[:-1] + ("0" if random[-1] != "0" else "1")
    for wrong in (
        "",
        "prm",
        random,
        f"{prefix}_{number}",
        f"{prefix}_{number}_{flipped}",
        f"{prefix}_{number}_{other.split('_')[2]}",
        f"{prefix}_{'0' * 12}_{random}",
        secret.upper(),
        secret + "\n",
        secret + "0",
        f"' OR 1=1 --_{random}",
        "prm_" + "é" * 12 + "_" + random,
    ):
        assert store.check(wrong) is None, wrong
    assert store.check(secret) is not None


def test_the_secret_is_in_no_file(store, tmp_path):
    secret = store.create("one", "query")
    assert store.check(secret) is not None
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert files
    for path in files:
        assert secret.split("_")[2].encode() not in path.read_bytes()


def test_the_file_is_its_owners_alone(store):
    store.create("one", "query")
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_secrets_differ(store):
    assert len({store.create(f"t{n}", "query") for n in range(20)}) == 20


def test_list_tells_all_but_the_secret(store):
    secret = store.create("b", "query", expires_seconds=60)
    store.create("a", ["admin"])
    first, second = store.list()
    assert (first.name, first.roles, first.expires) == ("a", frozenset({"admin"}), None)
    assert second.name == "b"
    assert second.expires is not None
    assert (second.expires - second.created).total_seconds() == 60
    assert secret.split("_")[2] not in repr(second)


def test_a_token_expires(tmp_path):
    clock = ManualClock(1_000_000)
    store = TokenStore(tmp_path / "tokens.db", clock=clock)
    brief, lasting = store.create("brief", "query", expires_seconds=30), store.create("lasting", "query")
    clock.tick(29)
    assert store.check(brief) is not None
    clock.tick(1)
    assert store.check(brief) is None
    assert store.check(lasting) is not None
    assert [token.name for token in store.list()] == ["brief", "lasting"]
    store.close()


def test_revoked_is_gone_and_the_name_is_free(store):
    old = store.create("one", "query")
    store.revoke("one")
    assert store.check(old) is None
    with pytest.raises(UnknownName, match="'one'"):
        store.revoke("one")
    new = store.create("one", "query")
    assert store.check(old) is None
    assert store.check(new) is not None


def test_what_another_process_does_is_seen_at_once(store):
    first = store.create("first", "query")
    assert store.check(first) is not None
    code = (
        "import sys; from pathlib import Path; from promising.server.access_tokens import TokenStore\n"
        "store = TokenStore(Path(sys.argv[1])); store.revoke('first'); print(store.create('second', 'ingest'))"
    )
    ran = subprocess.run([sys.executable, "-c", code, store.path], capture_output=True, text=True, check=True)
    assert store.check(first) is None
    assert store.check(ran.stdout.strip()) == Caller("second", frozenset({"ingest"}))


def test_a_name_is_taken_once(store):
    secret = store.create("one", "query")
    with pytest.raises(DuplicateName, match="'one'"):
        store.create("one", "admin")
    assert store.check(secret) == Caller("one", frozenset({"query"}))


@pytest.mark.parametrize("name", ["", "a b", "-a", "a\n", "é", "x" * 65, "a/b"])
def test_bad_names_are_refused(store, name):
    with pytest.raises(BadRequest, match="name"):
        store.create(name, "query")
    assert not store.path.exists()


@pytest.mark.parametrize("roles", ["", "boss", [], ["query", "boss"]])
def test_bad_roles_are_refused(store, roles):
    with pytest.raises(BadRequest, match="admin, ingest, query"):
        store.create("one", roles)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e12])
def test_bad_lives_are_refused(store, seconds):
    with pytest.raises(BadRequest, match="expires"):
        store.create("one", "query", expires_seconds=seconds)


def test_only_create_makes_the_file(store):
    for use in (store.list, lambda: store.revoke("x"), lambda: store.check("prm_" + "0" * 12 + "_" + "0" * 64)):
        with pytest.raises(BadSettings, match=r"auth\.tokens: .*tokens\.db.*promising token create"):
            use()
    assert not store.path.exists()


@pytest.mark.parametrize("what", ["text", "folder", "no folder"])
def test_a_file_that_is_no_store_is_named(tmp_path, what):
    path = tmp_path / "tokens.db"
    if what == "text":
        path.write_text("this is no database, and long enough to be seen as none" * 20, encoding="utf-8")
    elif what == "folder":
        path.mkdir()
    else:
        path = tmp_path / "none" / "tokens.db"
    with pytest.raises(BadSettings, match=r"^auth\.tokens: .*tokens\.db"):
        TokenStore(path).create("one", "query")


def test_a_database_of_something_else_is_refused(tmp_path):
    path = tmp_path / "tokens.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE tokens (colour TEXT)")
    other.close()
    store = TokenStore(path)
    with pytest.raises(BadSettings, match=r"^auth\.tokens: "):
        store.list()
    store.close()


def test_threads_may_share_a_store(store):
    secrets = [store.create(f"t{n}", "query") for n in range(8)]
    wrong: list[str] = []

    def work(number: int) -> None:
        for _ in range(100):
            found = store.check(secrets[number])
            if found is None or found.name != f"t{number}":
                wrong.append(f"t{number}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[("name", "\x01"), ("name", b"x"), ("roles", "nobody,admin"), ("roles", b"query"), ("hash", "x")],
        *[("expires", "soon"), ("expires", 1 << 62), ("expires", -1)],
    ],
)
def test_a_damaged_entry_is_no_other_caller(tmp_path, column, value):
    store = TokenStore(tmp_path / "tokens")
    secret = store.create("reader", "query", 1000)
    store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "tokens")) as file, file:
        file.execute(f"UPDATE tokens SET {column} = ?", (value,))
    try:
        for use in (lambda: store.check(secret), store.list):
            with pytest.raises(BadSettings, match="restore the file, or create its tokens again"):
                use()
    finally:
        store.close()


def test_a_damaged_schema_is_named_although_its_bytes_are_no_text(tmp_path):
    path = tmp_path / "tokens"
    store = TokenStore(path)
    store.create("reader", "query")
    store.close()
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE tokens", b"CREATE TAB\xff\xfe tokens"))
    try:
        with pytest.raises(BadSettings, match=str(path)):
            store.list()
    finally:
        store.close()


# --- a file that others change -----------------------------------------------------------------------------------


def secret_of(path: Path, name: str, role: str = "query") -> str:
    """Another file with one token."""
    other = TokenStore(path)
    secret = other.create(name, role)
    other.close()
    return secret


def test_another_file_renamed_to_the_path_is_seen_at_once(store, tmp_path):
    old = store.create("old", "query")
    assert store.check(old) is not None
    new = secret_of(tmp_path / "new.db", "new")
    assert store.check(new) is None
    (tmp_path / "new.db").rename(store.path)
    assert store.check(old) is None
    assert store.check(new) == Caller("new", frozenset({"query"}))
    assert [token.name for token in store.list()] == ["new"]
    store.revoke("new")
    assert store.check(new) is None


def test_another_file_copied_over_it_is_seen_at_once(store, tmp_path):
    """Both have as many changes and pages, so that SQLite takes one for the other."""
    old = store.create("old", "query")
    assert store.check(old) is not None
    new = secret_of(tmp_path / "new.db", "new")
    assert len(store.path.read_bytes()) == len((tmp_path / "new.db").read_bytes())
    store.path.write_bytes((tmp_path / "new.db").read_bytes())
    assert store.check(old) is None
    assert store.check(new) is not None


def test_a_change_that_leaves_the_times_of_the_file_is_seen_at_once(tmp_path, monkeypatch):
    """The clock of a file system ticks some hundred times a second."""
    store = TokenStore(tmp_path / "tokens.db", clock=lambda: 0.0)  # never long after
    secret = store.create("one", "query")
    assert store.check(secret) is not None
    found = os.stat(store.path)
    store.revoke("one")
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda path, **how: found)
        assert store.check(secret) is None
    store.close()


def test_some_time_after_a_change_the_times_of_the_file_are_enough(tmp_path, monkeypatch):
    store = TokenStore(tmp_path / "tokens.db", clock=lambda: 1e12)  # long after
    secret = store.create("one", "query")
    assert store.check(secret) is not None
    assert store.check(secret) is not None
    with locking(store.path):  # whoever writes has not committed
        assert store.check(secret, wait=False) is not None
    changed, clock = store.path.stat().st_mtime_ns, tmp_path / "clock"
    while not clock.exists() or clock.stat().st_mtime_ns == changed:
        clock.write_bytes(b"")
    store.revoke("one")
    assert store.check(secret) is None
    store.close()


def test_nothing_lies_beside_the_file_that_another_one_would_inherit(store, tmp_path):
    assert store.check(store.create("one", "query")) is not None
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.db"]


def test_a_file_of_an_earlier_release_loses_its_log(store, tmp_path):
    secret = store.create("one", "query")
    with contextlib.closing(sqlite3.connect(store.path)) as earlier:
        earlier.execute("PRAGMA journal_mode=WAL")
    assert store.check(secret) is not None
    assert store.path.read_bytes()[18:20] == bytes([1, 1])
    assert [path.name for path in tmp_path.iterdir()] == ["tokens.db"]


def test_a_file_that_is_gone_lets_nobody_in(store):
    secret = store.create("one", "query")
    assert store.check(secret) is not None
    store.path.unlink()
    with pytest.raises(BadSettings, match="it is not there"):
        store.check(secret)


@contextlib.contextmanager
def locking(path: Path):
    """Another process that writes to the file, so far."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


def test_a_locked_file_holds_up_only_those_who_wait(store, monkeypatch):
    secret = store.create("one", "query")
    monkeypatch.setattr(access_tokens, "WAIT_SECONDS", 0.05)
    for known in (False, True):  # before its tokens are read, and after
        with locking(store.path):
            os.utime(store.path)
            with pytest.raises(BlockingIOError):
                store.check(secret, wait=False)
            for use in (store.list, lambda: store.check(secret), lambda: store.revoke("one")):
                with pytest.raises(BadSettings, match=r"locked by another process for 0\.05 seconds"):
                    use()
        assert known or store.check(secret) is not None
    assert store.check(secret, wait=False) is not None


def test_an_empty_file_is_not_taken_for_one_without_tokens(store):
    store.path.touch()
    for use in (store.list, lambda: store.revoke("x"), lambda: store.check("prm_" + "0" * 12 + "_" + "0" * 64)):
        with pytest.raises(BadSettings, match=r"^auth\.tokens: .*tokens\.db is empty; `promising token create`"):
            use()
    assert store.path.read_bytes() == b""
    assert store.check(store.create("one", "query")) is not None
    store.path.write_bytes(b"")  # cut off
    with pytest.raises(BadSettings, match="is empty"):
        store.list()


def test_a_file_that_others_may_read_is_tightened(store):
    secret = store.create("one", "query")
    store.path.chmod(0o666)
    assert store.check(secret) is not None
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("owner", "mode", "good"), [(4242, 0o600, False), (0, 0o640, True), (0, 0o660, False), (0, 0o602, False)]
)
def test_a_file_of_another_user_than_root_is_refused(store, monkeypatch, owner, mode, good):
    secret = store.create("one", "query")
    store.path.chmod(mode)
    real = os.stat

    def owned(path, **how):
        found = real(path, **how)
        fields = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return SimpleNamespace(**fields | {"st_uid": owner})

    monkeypatch.setattr(os, "stat", owned)
    monkeypatch.setattr(os, "geteuid", lambda: 4343)
    if good:
        assert store.check(secret) is not None
    else:
        with pytest.raises(BadSettings, match=r"tokens\.db belongs to .* as root, run `chown 4343 .*tokens\.db`"):
            store.list()
    monkeypatch.undo()
    assert stat.S_IMODE(store.path.stat().st_mode) == mode


def test_a_file_that_may_not_be_read_is_reported(store, monkeypatch):
    store.create("one", "query")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(BadSettings, match=r"tokens\.db: .* may not read it"):
        store.list()


def test_its_journal_is_its_owners_alone(store):
    store.create("one", "query")
    seen = []
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM tokens")
        seen = [stat.S_IMODE(path.stat().st_mode) for path in store.path.parent.iterdir()]
        other.execute("ROLLBACK")
    assert seen == [0o600, 0o600]
