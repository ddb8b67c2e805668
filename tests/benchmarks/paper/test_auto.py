"""The load that changes: every contender does the same work, and only `auto` changes its structure."""

import pytest

from benchmarks.paper.auto import CONTENDERS, FIXED, SECOND, phases, play


@pytest.mark.deep("runs a figure of the paper, small")
def test_every_phase_is_played_by_all_with_the_same_answers():
    load = phases(1)
    played = list(play(load, 8 * SECOND, seed=1))  # raises if answers differ
    assert [phase for phase, _, _ in played] == load
    for _, took, chosen in played:
        assert set(took) == set(chosen) == set(CONTENDERS)
        assert all(spent > 0 for spent in took.values())
        assert {name: chosen[name] for name in FIXED} == {name: name for name in FIXED}
