"""The open zone: what it keeps of its tuples, and what it stops for."""

import numpy as np
import pytest

from promising.index.kernels import open_zone as kernels
from promising.index.kernels.open_zone import (
    COUNT,
    REF_COUNT,
    REF_F2,
    ROW,
    S_REFERENCE,
    S_WINDOW,
    S_ZONE,
    SUB,
    WINDOW,
    ZONE_F2,
)
from tests.index.kernels.plain import some_hashes

pytestmark = pytest.mark.kernel


class Zone:
    """The arrays that the kernels work on."""

    def __init__(self, maxlength=4096, most_f2=1e18, effect=0.2, watched=True) -> None:
        self.recent = np.zeros(WINDOW, np.int64)
        self.rows = np.zeros(maxlength, np.int32)
        self.signed = np.zeros((kernels.SIGNED, ROW), np.int32)
        self.state = np.zeros(kernels.STATE_SIZE, np.int64)
        self.limits = np.array([most_f2, effect, maxlength, float(watched)])

    def absorb(self, hashes, first: int = 0) -> tuple[int, int]:
        rows = np.arange(first, first + len(hashes), dtype=np.int32)
        args = (self.recent, self.rows, self.signed, self.state, self.limits, hashes, rows, 0, len(hashes))
        until, cut = kernels.absorb(*args)
        return int(until), int(cut)

    def restart(self, changed: bool) -> None:
        kernels.restart(self.rows, self.signed, self.state, changed)


def row_of(hashes):
    """The signed row of some tuples: lowest bit the sign, next ten the place."""
    row = np.zeros(ROW, np.int64)
    for h in hashes.tolist():
        row[(h >> 1) & (ROW - 1)] += 1 - 2 * (h & 1)
    return row


def square(row) -> int:
    return int((row * row).sum())


@pytest.mark.parametrize("parts", [[700], [1, 255, 300, 144], [300, 212, 188]])
def test_window_zone_and_reference_are_the_rows_of_their_tuples(parts):
    zone = Zone()
    hashes = some_hashes(700, 30, 1)
    start = 0
    for size in parts:
        assert zone.absorb(hashes[start : start + size], start) == (size, kernels.NOT_CUT)
        start += size
    whole = 700 // WINDOW * WINDOW
    assert zone.rows[:700].tolist() == list(range(700))
    assert (zone.signed[S_WINDOW] == row_of(hashes[whole:])).all()
    assert (zone.signed[S_ZONE] == row_of(hashes[:whole])).all()
    assert (zone.signed[S_REFERENCE] == zone.signed[S_ZONE]).all()
    assert zone.recent[: 700 - whole].tolist() == hashes[whole:].tolist()
    assert (zone.state[COUNT], zone.state[SUB], zone.state[REF_COUNT]) == (700, 700 - whole, whole)
    assert zone.state[ZONE_F2] == zone.state[REF_F2] == square(row_of(hashes[:whole]))


def test_a_zone_refers_to_the_zone_before_it():
    zone = Zone()
    hashes = some_hashes(1400, 30, 2)
    zone.absorb(hashes[:700])
    zone.restart(False)
    assert (zone.signed[S_REFERENCE] == row_of(hashes[:700])).all(), "the half window before the cut included"
    assert zone.state[REF_COUNT] == 700 and zone.state[REF_F2] == square(row_of(hashes[:700]))
    assert zone.state[COUNT] == zone.state[SUB] == zone.state[ZONE_F2] == 0
    assert not zone.signed[[S_WINDOW, S_ZONE]].any()
    zone.absorb(hashes[700:])
    seen = hashes[: 700 + 2 * WINDOW]
    assert (zone.signed[S_REFERENCE] == row_of(seen)).all()
    assert zone.state[REF_F2] == square(row_of(seen))
    assert zone.state[ZONE_F2] == square(row_of(hashes[700 : 700 + 2 * WINDOW]))


def test_a_change_is_cut_before_the_window_that_shows_it_and_that_window_begins_the_next_zone():
    zone = Zone()
    before, after = some_hashes(3 * WINDOW, 20, 3), some_hashes(2 * WINDOW, 20, 4)
    until, cut = zone.absorb(np.concatenate((before, after)))
    assert (until, cut) == (4 * WINDOW, kernels.CUT_BEHAVIOUR)
    assert zone.state[SUB] == WINDOW and zone.state[COUNT] == 4 * WINDOW
    assert zone.recent.tolist() == after[:WINDOW].tolist()
    zone.restart(True)
    assert zone.state[COUNT] == zone.state[REF_COUNT] == WINDOW and zone.state[SUB] == 0
    assert zone.rows[:WINDOW].tolist() == list(range(3 * WINDOW, 4 * WINDOW))
    shown = row_of(after[:WINDOW])
    assert (zone.signed[S_ZONE] == shown).all() and (zone.signed[S_REFERENCE] == shown).all()
    assert zone.state[ZONE_F2] == zone.state[REF_F2] == square(shown)
    assert zone.absorb(after[WINDOW:], 4 * WINDOW) == (WINDOW, kernels.NOT_CUT)


@pytest.mark.parametrize("windows", [7, 8, 15, 16, 23, 30])
def test_the_reference_is_the_last_blocks(windows):
    zone = Zone(maxlength=1 << 14)
    hashes = some_hashes(30 * WINDOW, 25, 3)
    assert zone.absorb(hashes[: windows * WINDOW])[1] == kernels.NOT_CUT
    blocks, rest = divmod(windows, kernels.LATELY)
    held = (rest + (kernels.LATELY if blocks else 0)) * WINDOW
    expected = row_of(hashes[windows * WINDOW - held : windows * WINDOW])
    assert zone.state[REF_COUNT] == held
    assert (zone.signed[S_REFERENCE] == expected).all()
    assert zone.state[REF_F2] == square(expected)
    assert zone.state[ZONE_F2] == square(row_of(hashes[: windows * WINDOW]))


def test_a_zone_is_as_long_as_the_last_that_was_cut_for_error():
    one, four = np.full(9000, 6, np.int64), np.tile(np.array([6, 8, 10, 12], np.int64), 2250)
    zone = Zone(most_f2=float((4 * WINDOW) ** 2), effect=1e9)
    assert zone.absorb(one) == (5 * WINDOW, kernels.CUT_ERROR)
    zone.restart(False)
    mixed = np.concatenate((one[: 4 * WINDOW], np.arange(9000) * 64))
    assert zone.absorb(mixed) == (5 * WINDOW, kernels.CUT_ERROR), "although its own error is tolerable"
    zone.restart(False)
    assert zone.absorb(four) == (8 * WINDOW, kernels.CUT_ERROR), "a quarter of F2: it grows by half, in whole windows"
    assert zone.state[kernels.LENGTH] == 15 * WINDOW // 2
    zone.restart(True)
    assert zone.state[kernels.LENGTH] == 0, "another behaviour has another length"


def test_no_change_no_cut():
    for seed in range(8):
        assert Zone().absorb(some_hashes(8 * WINDOW, 25, seed)) == (8 * WINDOW, kernels.NOT_CUT)


def test_a_change_too_small_to_matter_is_not_cut():
    """A larger `effect` asks for a larger distance between the two distributions."""
    rng = np.random.default_rng(5)
    keys = some_hashes(40, 40, 5)
    before = keys[rng.integers(0, 20, 8 * WINDOW)]
    after = keys[rng.integers(0, 20, WINDOW) + np.where(rng.random(WINDOW) < 0.75, 20, 0)]
    both = np.concatenate((before, after))
    assert Zone(effect=0.2).absorb(both)[1] == kernels.CUT_BEHAVIOUR
    assert Zone(effect=4.0).absorb(both)[1] == kernels.NOT_CUT


def test_two_keys_that_cancel_out_are_a_change():
    zone = Zone()
    hashes = np.repeat(np.array([2, 3], np.int64), WINDOW)  # same place, opposite signs
    assert zone.absorb(hashes) == (2 * WINDOW, kernels.CUT_BEHAVIOUR)


def test_behaviour_changed_by_its_own():
    """Window and reference as two rows: equal ones do not differ, disjoint ones do."""
    signed, state = np.zeros((kernels.SIGNED, ROW), np.int32), np.zeros(kernels.STATE_SIZE, np.int64)
    state[SUB], state[REF_COUNT] = WINDOW, 4 * WINDOW
    signed[S_WINDOW, :16], signed[S_REFERENCE, :16] = WINDOW // 16, WINDOW // 4
    window_f2 = square(signed[S_WINDOW].astype(np.int64))
    state[REF_F2] = square(signed[S_REFERENCE].astype(np.int64))
    inner = int((signed[S_WINDOW].astype(np.int64) * signed[S_REFERENCE]).sum())
    assert not kernels.behaviour_changed(signed, state, window_f2, inner, 0.2)
    signed[S_REFERENCE] = np.roll(signed[S_REFERENCE], 500)
    assert kernels.behaviour_changed(signed, state, window_f2, 0, 0.2)


def test_error_cuts_at_the_end_of_the_window_in_which_it_grew_too_large():
    hashes = np.full(2000, 6, np.int64)
    zone = Zone(most_f2=float((2 * WINDOW) ** 2))  # one key: F2 is the square of the count
    assert zone.absorb(hashes) == (3 * WINDOW, kernels.CUT_ERROR)
    assert zone.state[SUB] == 0


@pytest.mark.parametrize("watched", [True, False])
def test_maxlength_cuts_where_it_says(watched):
    zone = Zone(maxlength=600, watched=watched)
    hashes = some_hashes(2000, 30, 6)
    assert zone.absorb(hashes[:500]) == (500, kernels.NOT_CUT)
    assert zone.absorb(hashes[500:], 500) == (100, kernels.CUT_MAXLENGTH)
    assert zone.rows.tolist() == list(range(600))
    zone.restart(False)
    assert zone.absorb(hashes[600:], 600) == (600, kernels.CUT_MAXLENGTH)


def test_without_watching_only_the_rows_are_kept():
    zone = Zone(watched=False, most_f2=1.0)
    both = np.concatenate((some_hashes(4 * WINDOW, 5, 7), some_hashes(2 * WINDOW + 9, 5, 8)))
    assert zone.absorb(both) == (len(both), kernels.NOT_CUT)
    assert not zone.signed.any()
    assert zone.state[COUNT] == len(both)


def test_closing_half_a_window_pours_it_and_judges_nothing():
    zone = Zone()
    zone.absorb(some_hashes(4 * WINDOW, 5, 9))
    late = some_hashes(WINDOW // 2, 5, 10)
    zone.absorb(late)
    before = zone.signed[S_ZONE].copy()
    assert kernels.close_window(zone.signed, zone.state, zone.limits) == kernels.NOT_CUT
    assert (zone.signed[S_ZONE] - before == row_of(late)).all()
    assert zone.state[SUB] == 0 and zone.state[ZONE_F2] == square(zone.signed[S_ZONE].astype(np.int64))
