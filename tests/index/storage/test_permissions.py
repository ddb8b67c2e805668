"""Stored data is its owner's alone, whatever the umask, and whoever made it so far."""

import os
import shutil
import stat
from pathlib import Path

import pytest

import promising
from promising.errors import StorageUnavailable, StoreInUse
from promising.index.storage import permissions
from promising.index.storage.backup import backup, restore
from promising.index.storage.disk import Disk, StagingDisk
from promising.index.storage.manifest import Manifest
from promising.index.storage.repair import repair
from promising.index.storage.verify import verify
from tests.index.storage.stores import crash, filled, opened


@pytest.fixture(autouse=True)
def generous():
    """A umask that forbids nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


def paths(root: Path) -> list[Path]:
    return [root, *sorted(root.rglob("*"))]


def open_to_others(root: Path) -> list[str]:
    """Paths whose mode is not 0700 for a folder, 0600 for a file."""
    found = []
    for path in paths(root):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode != (0o700 if path.is_dir() else 0o600):
            found.append(f"{path.relative_to(root)} {mode:04o}")
    return found


def loosened(root: Path) -> None:
    """As an earlier release left it."""
    for path in paths(root):
        path.chmod(0o755 if path.is_dir() else 0o644)


def test_what_a_store_creates_in_its_life(tmp_path, small_chunks):
    data = tmp_path / "new" / "data"
    with opened(data) as store:
        filled(store)
        store.create_table("t", {"k": "int", "n": "float"}, "k").change({"k": [1], "n": [2.0]}, None, {})
        store.checkpoint()
        assert any(data.glob("streams/*/cold/*.parquet")), "cold tuples are among them"
        assert any(data.glob("manifest.sqlite-*")), "and SQLite's log"
        assert open_to_others(data.parent) == []
        backup(data, tmp_path / "copy")
    assert open_to_others(data) == []
    restore(tmp_path / "copy", tmp_path / "back")
    assert open_to_others(tmp_path / "copy") == open_to_others(tmp_path / "back") == []


def test_what_is_set_aside(tmp_path):
    store = opened(tmp_path / "data")
    filled(store, 3)
    crash(store)
    (wal,) = tmp_path.glob("data/streams/*/wal/*.wal")
    content = bytearray(wal.read_bytes())
    content[len(content) // 2] ^= 1
    wal.write_bytes(content)
    opened(tmp_path / "data").close()
    assert repair(tmp_path / "data")
    assert verify(tmp_path / "data") is not None
    assert any((tmp_path / "data").rglob("aside/*")), "the damaged part of the log"
    assert open_to_others(tmp_path / "data") == []


def test_a_copy_of_a_manifest(tmp_path):
    manifest = Manifest.open(tmp_path / "manifest.sqlite", create=True)
    manifest.copy_to(tmp_path / "copy.sqlite")
    manifest.close()
    assert stat.S_IMODE((tmp_path / "copy.sqlite").stat().st_mode) == 0o600


def test_what_was_open_to_others_is_tightened(tmp_path):
    data = tmp_path / "data"
    with opened(data) as store:
        filled(store)
        store.checkpoint()
    loosened(data)
    (data / "streams").chmod(0o2777)
    assert open_to_others(data)
    opened(data).close()
    assert open_to_others(data) == []


def test_an_empty_directory_of_the_owner_is_tightened(tmp_path):
    data = tmp_path / "data"
    data.mkdir(0o777)
    promising.open(data).close()
    assert open_to_others(data) == []


def test_what_is_not_of_the_store_is_left_alone(tmp_path):
    data = tmp_path / "data"
    opened(data).close()
    (data / "notes.txt").write_text("mine")
    (data / "notes.txt").chmod(0o644)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o755)
    (data / "aside").symlink_to(elsewhere)
    opened(data).close()
    assert open_to_others(data) == ["aside 0755", "notes.txt 0644"]
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755


@pytest.mark.parametrize("where", ["", "streams"])
def test_what_belongs_to_another_is_refused_and_left_alone(tmp_path, monkeypatch, where):
    data = tmp_path / "it's data"
    opened(data).close()
    loosened(data)
    if where:
        real = permissions.tighten

        def someone_elses(root, path, found):
            monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + (path == data / where))
            real(root, path, found)

        monkeypatch.setattr(permissions, "tighten", someone_elses)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StorageUnavailable) as caught:
        opened(data)
    monkeypatch.undo()
    owner = permissions.user(os.getuid())
    assert str(caught.value).startswith(f"{data / where} belongs to {owner}, and this process runs as ")
    assert f"run it as {owner}" in str(caught.value)
    quoted = str(data).replace("'", "'\"'\"'")
    assert f"chown -R {permissions.user(os.getuid() + 1)} '{quoted}'" in str(caught.value)
    if not where:
        assert len(open_to_others(data)) == len(paths(data))
    opened(data).close()


@pytest.mark.parametrize("how", ["refused", "ignored"])
def test_where_tightening_fails_it_is_refused(tmp_path, monkeypatch, how):
    data = tmp_path / "data"
    opened(data).close()
    loosened(data)

    def chmod(path, mode):
        if how == "refused":
            raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", chmod)
    reason = {"refused": "Operation not permitted", "ignored": "stores no permissions"}[how]
    with pytest.raises(StorageUnavailable, match=rf"data is open to other users \(mode 0755\).*{reason}.*chmod -R go="):
        opened(data)
    monkeypatch.undo()
    shutil.copytree(data, tmp_path / "copy")
    opened(data).close()


def test_the_lock_of_a_store_in_use_is_found_first(tmp_path):
    with opened(tmp_path / "data"), pytest.raises(StoreInUse):
        opened(tmp_path / "data")


def test_packages_are_for_the_service_to_read_which_may_be_another_user(tmp_path):
    StagingDisk().mkdir(tmp_path / "package")
    StagingDisk().write_whole(tmp_path / "package" / "part", [b"x"])
    assert open_to_others(tmp_path / "package") == [". 0777", "part 0666"]
    Disk().mkdir(tmp_path / "data")
    Disk().write_whole(tmp_path / "data" / "part", [b"x"])
    assert open_to_others(tmp_path / "data") == []
