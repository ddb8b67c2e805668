"""`verify` is silent about a store that is well, finds what is not, and leaves every byte as it was."""

from dataclasses import replace

import fsspec
import pytest

from promising.errors import NotAStore, StoreInUse
from promising.index.storage.repair import repair
from promising.index.storage.verify import verify
from tests.index.storage.damage import contents, files, filled, flip, spoil
from tests.index.storage.lives import LIMITS, abandon, opened, small_and_quiet


@pytest.fixture(autouse=True)
def small():
    with small_and_quiet():
        yield


def test_a_store_that_is_well(folder):
    before = contents(folder)
    seen: list[tuple[int, int, str]] = []
    assert verify(folder, lambda *told: seen.append(told)) == []
    assert contents(folder) == before
    assert [done for done, _, _ in seen] == sorted(done for done, _, _ in seen)
    assert seen[-1][0] == seen[-1][1] > 0
    assert verify(folder) == []  # it has let go of it
    opened(folder).close()
    assert verify(folder) == []


def test_a_store_in_use(tmp_path):
    store = filled(tmp_path / "store")
    with pytest.raises(StoreInUse, match="make a backup of it as it runs, and verify that"):
        verify(tmp_path / "store")
    store.close()


@pytest.mark.parametrize("what", ["nothing", "file", "folder"])
def test_no_store_at_all(tmp_path, what):
    if what == "file":
        (tmp_path / "store").touch()
    if what == "folder":
        (tmp_path / "store").mkdir()
    for act in (verify, repair):
        with pytest.raises(NotAStore):
            act(tmp_path / "store")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ([] if what == "nothing" else ["store"])


@pytest.mark.parametrize("at", [0.0, 0.3, 0.6, 0.999])
@pytest.mark.parametrize("kind", ["image", "wal", "parquet"])
def test_a_flipped_bit(folder, kind, at):
    for victim in (files(folder, kind)[0], files(folder, kind)[-2]):
        content = victim.read_bytes()
        flip(victim, at)
        before = contents(folder)
        found = verify(folder)
        assert contents(folder) == before
        assert any(finding.path == str(victim) for finding in found), found
        seal = kind == "wal" and at > 0.9  # of no use any more: it says that another segment follows, and one does
        assert {finding.severity for finding in found} == ({"warning"} if seal else {"error"})
        victim.write_bytes(content)


@pytest.mark.parametrize("kind", ["image", "wal", "parquet"])
def test_a_file_that_is_gone(folder, kind):
    victim = files(folder, kind)[1 if kind == "wal" else 0]
    victim.unlink()
    found = verify(folder)
    assert any(finding.severity == "error" and victim.name in finding.what + finding.path for finding in found), found


@pytest.mark.parametrize("how", ["flipped", "gone"])
def test_the_manifest(folder, how):
    manifest = folder / "manifest.sqlite"
    if how == "flipped":
        flip(manifest, 0.9)
    else:
        manifest.unlink()
    before = contents(folder)
    found = verify(folder)
    assert [(finding.severity, finding.path) for finding in found] == [("error", str(manifest))]
    assert str(manifest) in found[0].what
    assert contents(folder) == before


def test_files_that_nobody_named(folder):
    stream = next((folder / "streams").iterdir())
    (folder / "notes.txt").touch()
    (stream / "checkpoint" / "00000000000000ff.image").touch()
    (stream / "cold" / "00000000000000ff.parquet").touch()
    (folder / "streams" / "feed" / "wal").mkdir(parents=True)
    (folder / "streams" / "feed" / "wal" / "0000000000000001.wal").touch()
    (folder / "aside").mkdir()
    (folder / "aside" / "old.image").touch()
    found = verify(folder)
    assert {finding.severity for finding in found} == {"warning"}
    named = {finding.path.removeprefix(str(folder)).rsplit("/", 1)[-1] for finding in found}
    assert named == {"notes.txt", "00000000000000ff.image", "00000000000000ff.parquet", "feed", "old.image"}


def test_a_torn_tail_is_no_damage(folder):
    last = files(folder, "wal")[-1]
    last.write_bytes(last.read_bytes() + bytes(20))
    before = contents(folder)
    found = verify(folder)
    assert [(finding.severity, finding.path) for finding in found] == [("warning", str(last))]
    assert contents(folder) == before


def test_an_end_that_was_synced_and_is_cut_is_damage(folder):
    last = files(folder, "wal")[-1]
    last.write_bytes(last.read_bytes()[:-3])
    before = contents(folder)
    [finding] = verify(folder)
    assert (finding.severity, finding.path) == ("error", str(last))
    assert contents(folder) == before


def test_a_summary_that_lies(tmp_path):
    """Every checksum holds, and yet what was written down is wrong."""
    store = filled(tmp_path / "store")
    spoil(store, "adaptive")
    store.checkpoint()
    abandon(store)
    found = verify(tmp_path / "store")
    assert len(found) == 1
    assert found[0].severity == "error"
    assert "stream 'left': summary 'adaptive', G_3, zone" in found[0].what


def test_cold_tuples_in_an_object_store(tmp_path):
    memory = fsspec.filesystem("memory")
    abandon(filled(tmp_path / "store", options=replace(LIMITS, cold="memory://verified")))
    runs = sorted(memory.find("/verified"))
    memory.pipe_file(runs[0].rsplit("/", 1)[0] + "/00000000000000ff.parquet", b"left by a crash")
    assert verify(tmp_path / "store") == []
    assert len(memory.find("/verified")) == len(runs) + 1  # nor is anything removed there
    content = bytearray(memory.cat_file(runs[0]))
    content[len(content) // 2] ^= 1
    memory.pipe_file(runs[0], bytes(content))
    assert any(runs[0].rsplit("/", 1)[-1] in finding.path for finding in verify(tmp_path / "store"))
    memory.rm("/verified", recursive=True)


def test_verify_makes_no_copy_and_claims_none(folder):
    """Recovery sets a damaged log aside; a check changes nothing, so it must not point to a copy."""
    log = max(folder.glob("streams/*/wal/*.wal"), key=lambda path: path.stat().st_size)
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 1
    log.write_bytes(content)
    found = verify(folder)
    assert found
    assert not any("a copy" in finding.what for finding in found)
    assert not (folder / "aside").exists()
