"""Checks that a summary's postings contain exactly the log's rows, by key, newest first, by rebuilding them."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from promising.index.kernels.postings import MOST
from promising.index.postings import Postings
from promising.index.summary import SummaryState

LINES = 1 << 18  # directory lines checked at once


def check_postings(state: SummaryState, found: Postings, rows: Iterable[NDArray[np.int32]]) -> Iterator[str]:
    """Violations, without the summary's name. `rows` are those of the log, in order of arrival."""
    wrong = _lines(found)
    if wrong:
        yield f", postings: {wrong}"
        return
    made = Postings(state.log.capacity, found.keys)
    broken = 0
    for part in rows:
        made.enter_all(state.log.hashes(state.identity.key, part, state.seed), part)
        older = made._older[part]
        broken += int(((older != -1) & (older != found._older[part])).sum())
    if broken:
        yield f", postings: {broken:,} rows are not followed by the next older one of their key"
    yield from (f", postings: {what}" for what in _keys(found, made, state))


def _lines(postings: Postings) -> str | None:
    """Damage to the directory, checked before any lookup: in a full one a search would not end."""
    lines, used = postings.lines, 0
    for start in range(0, lines, LINES):
        part = slice(start, start + LINES)
        taken = postings._small[part, 2] != 0
        used += int(taken.sum())
        tags = np.where(taken, ((postings._entries[part, 0] >> 48) & 255) | 1, 0)
        if (tags != postings._tags[part]).any() or (postings._small[part, 2] < 0).any():
            return "a line of the directory has another tag than its key, or less than no rows"
    if lines & (lines - 1) or 2 * used > lines or used != postings.keys:
        return f"the directory of {lines:,} lines has {used:,} keys and counts {postings.keys:,}"
    return None


def _keys(found: Postings, made: Postings, state: SummaryState) -> Iterator[str]:
    """Every key has the same rows in both."""
    if found.keys != made.keys:
        yield f"they have {found.keys:,} keys, the log has {made.keys:,}"
    counted = moved = most = opened = 0
    for start in range(0, made.lines, LINES):
        keys = made.listed(start, min(start + LINES, made.lines))
        newest, counts, _ = made.counts(keys)
        newest_found, counts_found, _ = found.counts(keys)
        counted += int((counts != counts_found).sum())
        moved += int(((counts_found > 0) & (newest != newest_found)).sum())
        most = max(most, int(counts.max(initial=0)))
        opened += int(state.fine.open_counts(keys).sum())
    if counted:
        yield f"{counted:,} keys have more or fewer rows than in the log"
    if moved:
        yield f"the newest row of {moved:,} keys is another one in the log"
    if int(found._heads[MOST]) < most:
        yield f"no key is said to have more than {int(found._heads[MOST]):,} rows, and one has {most:,}"
    if opened != len(state.fine.open_rows):
        yield f"{opened:,} tuples are counted for the open zone, which has {len(state.fine.open_rows):,}"
