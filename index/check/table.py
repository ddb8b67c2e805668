"""Invariant checks of a table in memory."""

from collections import Counter

import numpy as np

from promising.index.row_versions import HOLDS
from promising.index.table import Table


def check_table(table: Table) -> list[str]:
    """All violations, one sentence each."""
    image = table.image()
    numbers, born, ended, died = image.numbers, image.born, image.ended, image.died
    out = []
    if (np.diff(numbers) <= 0).any() or (len(numbers) and numbers[-1] >= image.following):
        out.append("its versions are not in the order of their numbers")
    if (np.diff(born) < 0).any() or (np.diff(died) < 0).any():
        out.append("its versions did not begin, or end, in the order of changes")
    if max([*born[-1:], *died[-1:]], default=0) > image.last:
        out.append(f"versions began or ended after the last change, {image.last}")
    if len(np.unique(ended)) < len(ended) or not np.isin(ended, numbers).all():
        out.append("versions ended twice, or are not there")
    ends = dict(zip(ended.tolist(), died.tolist(), strict=True))
    until: dict[object, int] = {}
    keys = table.take(table.key, numbers).to_pylist()
    for key, number, since in zip(keys, numbers.tolist(), born.tolist(), strict=True):
        if key is None:
            out.append(f"version {number} has no key")
        if since < until.get(key, 0):
            out.append(f"two versions of key {key!r} hold at change {since}")
        until[key] = ends.get(number, HOLDS)
        if until[key] <= since:
            out.append(f"version {number} ended before it began")
    holding = Counter(until.values())[HOLDS]
    if len(table) != holding:
        out.append(f"it says that it has {len(table)} rows, and {holding} hold")
    if any(position < 0 for positions in image.positions for position in positions.values()):
        out.append("a change is placed before the first arrival of a stream")
    known = [key for key in until if until[key] == HOLDS]
    if known and (table.find(known) < 0).any():
        out.append("a row is not found by its key")
    return out
