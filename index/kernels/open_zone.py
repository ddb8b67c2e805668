"""The open zone: the tuples since the last cut, and when to cut.

A tuple costs two sequential writes and one counter. The sketch and the filter are linear, so they are built when the
zone is cut (`seal.py`), for a third of the work.

Behaviour is tested every `WINDOW` tuples: do the last ones follow the distribution of the *reference*, the
`LATELY` to 2 * `LATELY` windows before them, as far back as the last cut for behaviour? Window, zone and reference each
have one signed row of `ROW` counters. With S the window's row (n tuples) and R the reference's (m tuples),
`|S/n - R/m|^2` estimates the squared distance of the two distributions within `sqrt(2 / ROW)` = 4 %; without a change
its mean is `1/n + 1/m`. The sum of squares of the zone's row also estimates its F2, and so the error of its sketch.

A cut pays where the distribution jumps. Where it drifts, zones of one length err least: so the reference is short, and
zones that are cut for error have one length while behaviour lasts (`error_due`).
"""

import math

import numpy as np

from promising.summaries.kernels.jit import kernel

WINDOW = 256
ROW = 1024
LATELY = 8  # windows of a block; the reference has up to two blocks
TAIL = 4.0  # normal quantile of a false alarm: one window in 30,000

# state[...]
COUNT, SUB, ZONE_F2, REF_COUNT, REF_F2 = range(5)
BLOCK_COUNT, BLOCK_WINDOWS = range(5, 7)
LENGTH = 7  # of zones cut for error; 0: unknown
STATE_SIZE = 8
# rows of `signed`; the block is the newer part of the reference
S_WINDOW, S_ZONE, S_REFERENCE, S_BLOCK = range(4)
SIGNED = 4
# limits[...]: tolerated F2; least fraction of F2 that counts as a change; maximum tuples; whether to test at all
L_F2, L_EFFECT, L_MAXLENGTH, L_WATCHED = range(4)

# why `absorb` stopped
NOT_CUT, CUT_ERROR, CUT_BEHAVIOUR, CUT_MAXLENGTH = range(4)


@kernel("boolean(int32[:,::1], int64[::1], int64, int64, float64)")
def behaviour_changed(signed, state, window_f2, inner, effect):
    """Whether the window (n tuples) and the reference (m tuples) differ by more than chance and by `effect`.

    Without a change the distance is a weighted sum of chi-squares, one per key; `freedom` is their effective number,
    and the threshold the quantile of such a sum (Wilson and Hilferty). So one dominant key raises no false alarms, and
    many equal ones keep a tight threshold.
    """
    n = float(state[SUB])
    m = float(state[REF_COUNT])
    reference_f2 = float(state[REF_F2])
    distance = float(window_f2) / (n * n) + reference_f2 / (m * m) - 2.0 * float(inner) / (n * m)
    both = float(window_f2) + reference_f2 + 2.0 * float(inner)
    pooled = max((both - (n + m)) / ((n + m) * (n + m)), 0.0)  # sum of squared shares
    noise = 1.0 / n + 1.0 / m
    change = distance - noise * (1.0 - pooled)
    skewed = 2.0 * pooled * noise * noise  # variance by the keys' shares, and by their collisions in the row
    normal = 1.0 / (n * n * n) + 1.0 / (m * m * m)
    if change <= effect * pooled or change <= TAIL * math.sqrt(skewed + normal):
        return False
    fourth = 0.0
    for j in range(ROW):
        share = float(signed[S_WINDOW, j] + signed[S_REFERENCE, j]) / (n + m)
        fourth += share * share * share * share
    freedom = max(pooled * pooled / fourth, 1.0) if fourth > 0.0 else 1.0  # they may cancel out
    quantile = freedom * (1.0 - 2.0 / (9.0 * freedom) + TAIL * math.sqrt(2.0 / (9.0 * freedom))) ** 3
    tail = (quantile - freedom) / math.sqrt(2.0 * freedom)
    return change > math.sqrt(skewed * tail * tail + normal * TAIL * TAIL)


@kernel("void(int32[:,::1], int64[::1])")
def forget(signed, state):
    """Leave the newer block as the reference."""
    f2 = np.int64(0)
    for j in range(ROW):
        r = np.int64(signed[S_BLOCK, j])
        f2 += r * r
        signed[S_REFERENCE, j] = signed[S_BLOCK, j]
        signed[S_BLOCK, j] = 0
    state[REF_COUNT] = state[BLOCK_COUNT]
    state[REF_F2] = f2
    state[BLOCK_COUNT] = 0
    state[BLOCK_WINDOWS] = 0


@kernel("boolean(int64[::1], float64)")
def error_due(state, tolerated):
    """Whether the zone must be cut for error: its F2 is above the tolerated one, or it is as long as the last such.

    Then zones are equally long, until behaviour changes. They grow by half where even that would not be too much.
    """
    if float(state[ZONE_F2]) > tolerated:
        state[LENGTH] = state[COUNT]
        return True
    if state[LENGTH] == 0 or state[COUNT] < state[LENGTH]:
        return False
    if 2.25 * float(state[ZONE_F2]) > tolerated:
        return True
    state[LENGTH] += state[LENGTH] // 2
    return False


@kernel("int64(int32[:,::1], int64[::1], float64[::1])")
def close_window(signed, state, limits):
    """Test the window, then add it to zone and reference; returns why the zone must be cut, or `NOT_CUT`.

    On `CUT_BEHAVIOUR` the window is unchanged: its tuples belong to the next zone. Sums of squares are updated by inner
    products with the window, in integers, so they are exact and take one pass over three short rows.
    """
    window, zone, reference, block = signed[S_WINDOW], signed[S_ZONE], signed[S_REFERENCE], signed[S_BLOCK]
    window_f2 = np.int64(0)
    with_zone = np.int64(0)
    with_reference = np.int64(0)
    for j in range(ROW):
        s = np.int64(window[j])
        window_f2 += s * s
        with_zone += s * np.int64(zone[j])
        with_reference += s * np.int64(reference[j])
    judged = state[SUB] == WINDOW and state[REF_COUNT] >= WINDOW
    if judged and behaviour_changed(signed, state, window_f2, with_reference, limits[L_EFFECT]):
        return CUT_BEHAVIOUR
    for j in range(ROW):
        s32 = window[j]
        zone[j] += s32
        reference[j] += s32
        block[j] += s32
        window[j] = 0
    state[ZONE_F2] += 2 * with_zone + window_f2
    state[REF_F2] += 2 * with_reference + window_f2
    state[REF_COUNT] += state[SUB]
    state[BLOCK_COUNT] += state[SUB]
    state[BLOCK_WINDOWS] += 1
    state[SUB] = 0
    if state[BLOCK_WINDOWS] == LATELY:
        forget(signed, state)
    return CUT_ERROR if error_due(state, limits[L_F2]) else NOT_CUT


@kernel(
    "UniTuple(int64, 2)(int64[::1], int32[::1], int32[:,::1], int64[::1], float64[::1], int64[::1], int32[::1],"
    " int64, int64)"
)
def absorb(recent, zone_rows, signed, state, limits, hashes, rows, start, stop):
    """Add tuples `start..stop` until the zone must be cut; returns (end of the tuples added, why)."""
    maxlength = np.int64(limits[L_MAXLENGTH])
    watched = limits[L_WATCHED] > 0.0
    window = signed[S_WINDOW]
    i = start
    while i < stop:
        count = state[COUNT]
        sub = state[SUB]
        take = min(stop - i, WINDOW - sub, maxlength - count)
        for k in range(take):
            zone_rows[count + k] = rows[i + k]
        if watched:
            for k in range(take):
                h = hashes[i + k]
                recent[sub + k] = h
                window[(h >> 1) & (ROW - 1)] += np.int32(1 - 2 * (h & 1))
        i += take
        state[COUNT] = count + take
        state[SUB] = sub + take
        if state[SUB] == WINDOW:
            if watched:
                cut = close_window(signed, state, limits)
                if cut != NOT_CUT:
                    return i, cut
            else:
                state[SUB] = 0
        if state[COUNT] == maxlength:
            if watched:
                close_window(signed, state, limits)
            return i, CUT_MAXLENGTH
    return i, NOT_CUT


@kernel("void(int32[::1], int32[:,::1], int64[::1], boolean)")
def restart(zone_rows, signed, state, changed):
    """Begin the next zone; after a change of behaviour, with the window that showed it, which is also its reference."""
    if changed:
        kept = state[SUB]
        at = state[COUNT] - kept
        for k in range(kept):
            zone_rows[k] = zone_rows[at + k]
        f2 = np.int64(0)
        for j in range(ROW):
            s = signed[S_WINDOW, j]
            f2 += np.int64(s) * np.int64(s)
            signed[S_ZONE, j] = s
            signed[S_REFERENCE, j] = s
            signed[S_BLOCK, j] = s
            signed[S_WINDOW, j] = 0
        state[BLOCK_COUNT] = kept
        state[BLOCK_WINDOWS] = 1
        state[LENGTH] = 0
        state[COUNT] = kept
        state[REF_COUNT] = kept
        state[ZONE_F2] = f2
        state[REF_F2] = f2
    else:
        for j in range(ROW):
            signed[S_REFERENCE, j] += signed[S_WINDOW, j]
            signed[S_BLOCK, j] += signed[S_WINDOW, j]
            signed[S_ZONE, j] = 0
            signed[S_WINDOW, j] = 0
        f2 = np.int64(0)
        for j in range(ROW):
            r = np.int64(signed[S_REFERENCE, j])
            f2 += r * r
        state[REF_COUNT] += state[SUB]
        state[BLOCK_COUNT] += state[SUB]
        state[REF_F2] = f2
        state[COUNT] = 0
        state[ZONE_F2] = 0
    state[SUB] = 0
