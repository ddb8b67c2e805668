"""Checks the open zone's statistics against its tuples."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from promising.index.kernels import open_zone as kernels
from promising.index.postings import Postings
from promising.index.summary import SummaryState
from promising.index.zone import distinct


def check_open(state: SummaryState) -> Iterator[str]:
    """Violations in the open zone, without the summary's name."""
    fine = state.fine
    where = f", G_1, zone {fine.number} (open)"
    count, sub, zone_f2, reference_count, reference_f2, block_count, block_windows, length = fine._state.tolist()
    if not 0 <= count <= fine.sizes.maxlength or sub != count % kernels.WINDOW:
        yield f"{where}: {count:,} tuples, {sub:,} of them since the last look, cannot be"
        return
    if (fine.open_block is None) != (not fine.blocks) or (count and fine.open_block is None):
        yield f"{where}: it has no block, or one that is not there"
    rows = fine.open_rows
    if ((rows < 0) | (rows >= state.log.capacity)).any():
        yield f"{where}: it has rows that are outside the log"
        return
    if (fine._times[:count] != state.log.when(rows)).any():
        yield f"{where}: the times that it stores are not those of its tuples"
    hashes = state.log.hashes(state.identity.key, rows, state.seed)
    yield from (f"{where}: {what}" for what in _keys(state, hashes))
    window, zone, reference, _ = fine._signed
    seen = hashes if fine.watched else hashes[:0]
    recent = min(sub, len(seen))
    if (fine._recent[:recent] != seen[len(seen) - recent :]).any():
        yield f"{where}: its last tuples are not those that it watches"
    for what, row, part in (("window", window, seen[len(seen) - recent :]), ("zone", zone, seen[: len(seen) - recent])):
        if (row != _signed(part)).any():
            yield f"{where}: the signed counters of its {what} are not those of its tuples"
    if (zone_f2, reference_f2) != (_squares(zone), _squares(reference)):
        yield f"{where}: its sums of squares are not those of its signed counters"
    if fine.watched and reference_count < min(count - sub, kernels.LATELY * kernels.WINDOW):
        yield f"{where}: it refers to {reference_count:,} tuples, fewer than it has"
    if not (0 <= block_windows < kernels.LATELY and 0 <= block_count <= max(reference_count, 0) and length >= 0):
        yield f"{where}: the newer part of its reference has {block_count:,} tuples, which cannot be"


def _keys(state: SummaryState, hashes: NDArray[np.int64]) -> Iterator[str]:
    """The keys of the zone and their counts, from which its summary will be built."""
    fine, postings = state.fine, state.postings
    if not isinstance(postings, Postings):  # they are counted when it is sealed
        known = fine._hashes[fine._unhashed : len(hashes)]
        if (known != hashes[fine._unhashed :]).any():
            yield "the hashes that it stores are not those of its keys"
        return
    keys, sizes = distinct(hashes)
    n = postings.zone_keys
    order = np.argsort(fine._keys[:n])
    if n != len(keys) or (fine._keys[:n][order] != keys).any() or (fine._counts[:n][order] != sizes).any():
        yield "its keys, or how often it has them, are not those of its tuples"


def _signed(hashes: NDArray[np.int64]) -> NDArray[np.int64]:
    row = np.zeros(kernels.ROW, np.int64)
    np.add.at(row, (hashes >> 1) & (kernels.ROW - 1), 1 - 2 * (hashes & 1))
    return row


def _squares(row: NDArray[np.int32]) -> int:
    return int((row.astype(np.int64) ** 2).sum())
