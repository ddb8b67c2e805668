"""A bit that flips, a file that is cut, zeroed or gone: it is told, or it does not matter."""

import pytest

from tests.index.storage.flips import KINDS, Silent, run

FLIPS = 240


@pytest.mark.deep("damages files hundreds of times")
def test_no_damage_to_any_file_gives_a_wrong_answer_in_silence():
    verdicts = run(FLIPS, seed=1)  # `make crash` does more, each time others
    print(verdicts)
    assert sum(verdicts.seen.values()) == FLIPS
    for kind in KINDS:
        told = sum(n for (k, _, verdict), n in verdicts.seen.items() if k == kind and verdict != "harmless")
        assert told > 3, f"next to no damage to {kind} files was noticed:\n{verdicts}"


@pytest.mark.deep("damages files many times")
def test_without_checksums_the_harness_finds_wrong_answers(monkeypatch):
    """It can fail: a store whose checksums always agree does."""
    for module in ("segments", "wal", "image", "cold_file", "cold_layout"):
        monkeypatch.setattr(f"promising.index.storage.{module}.crc32c", lambda *parts, since=0: 0)
    with pytest.raises(Silent):
        run(100, 1)
