"""Operators that depend on the multiplicity of values on both sides: DISTINCT, INTERSECT, EXCEPT, EXISTS.

A value has `n` results on the left and `m` on the right. After each tick, every value that changed is brought to its
target number of results. A result is a result of the left. Where it also needs one of the right (INTERSECT, EXISTS), it
expires with the earlier of the two, so that no retraction is needed, and is inserted again if another pair exists.
"""

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from promising.query.kernels.entries import CODE
from promising.query.kernels.standing_join import choose
from promising.query.scalar.types import Kind
from promising.query.standing.deltas import NEG_EXP, NEG_INV, POS, Deltas, Ids, Mode, Times
from promising.query.standing.operators.entry_store import Coder, Codes, Entries, Places, slot_width
from promising.query.standing.operators.step import Step, rows_of, split

Rule = Literal["distinct", "intersect", "intersect all", "except", "except all", "exists", "not exists"]

PAIRED: Final[frozenset[Rule]] = frozenset({"intersect", "intersect all"})  # a result uses up one entry of the right

FIRST, LAST = 1, -1  # which expiry is chosen
NO_ENDS: Times = np.empty(0, np.int64)


def target(rule: Rule, n: NDArray[np.int64], m: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of results that should be shown."""
    if rule == "distinct":
        return np.asarray(n > 0, np.int64)
    if rule == "intersect":
        return np.asarray((n > 0) & (m > 0), np.int64)
    if rule == "intersect all":
        return np.asarray(np.minimum(n, m))
    if rule == "except":
        return np.asarray((n > 0) & (m == 0), np.int64)
    if rule == "except all":
        return np.asarray(np.maximum(n - m, 0))
    return np.where(m > 0, n, 0) if rule == "exists" else np.where(m == 0, n, 0)


class Counted:
    """The state: the left, the right, and the shown results.

    NOTE of an entry of the left, or of a used entry of the right: the place of the result plus one. NOTE of a result:
    the place of its left; its extra: the place of its right, or -1.
    """

    def __init__(self, rule: Rule, kinds: Sequence[Kind], left: Step, right: Step | None) -> None:
        self.rule = rule
        self.coder = Coder(kinds)
        self.mode = left.mode
        right = left if right is None else right
        slot = slot_width(left.span)
        self.left = Entries(left.width, slot, True)
        self.right = Entries(right.width, slot_width(right.span), True)
        self.shown = Entries(left.width, slot, False)
        self._mate = self.shown.extra(np.int32)

    @property
    def _mates(self) -> NDArray[np.int32]:
        return self.shown.extras[self._mate]  # type: ignore[return-value]  # made as int32

    def apply(self, time: int, left: Deltas, right: Deltas, codes: tuple[Codes, Codes]) -> tuple[list[Deltas], Times]:
        """Apply changes; `codes` are those of the insertions. Returns output changes, and when results expired."""
        parts: list[Deltas] = []
        touched: list[Codes] = []
        ended = self.shown.expire(time)
        ends = self.shown.times[ended, 1]
        if len(ended):
            touched.append(self.shown.codes_at(ended))
            if self.mode is Mode.NTA:
                parts.append(self._told(ended, NEG_EXP))
            self._release(ended)
        for entries, deltas in ((self.left, left), (self.right, right)):
            gone: list[Places] = []
            if self.mode is not Mode.NTA:
                gone.append(entries.expire(time))
            if len(deltas):
                went, _ = split(deltas)
                if len(went):
                    gone.append(self._removed(entries, went.ids))
            for places in gone:
                if not len(places):
                    continue
                touched.append(entries.codes_at(places))
                results = entries.notes[places] - 1
                results = results[results >= 0].astype(np.int32)
                if len(results):
                    self._drop(results, parts)
        for entries, deltas, new in ((self.left, left, codes[0]), (self.right, right, codes[1])):
            if len(new):
                _, came = split(deltas)
                entries.codes(self.coder.size)
                entries.insert(came.ids, came.ts, came.exp, new)
                touched.append(new)
        if touched:
            for entries in (self.left, self.right, self.shown):
                entries.codes(self.coder.size)
            self._settle(self.coder.different(touched), parts)
        self._tidy()
        return parts, ends

    def _removed(self, entries: Entries, ids: Ids) -> Places:
        if self.rule not in ("exists", "not exists") or entries is self.left:
            return entries.remove(ids)
        places = entries.find(ids)
        places = places[places >= 0]  # tuples without a key were never inserted
        entries.remove_at(places)
        return places

    def _told(self, results: Places, kind: int) -> Deltas:
        times = self.shown.times[results]
        return rows_of(self.shown.ids[results], times[:, 0].copy(), times[:, 1].copy(), kind)

    def _release(self, results: Places) -> None:
        """The tuples of removed results can be shown again."""
        self.left.notes[self.shown.notes[results]] = 0
        if self.rule in PAIRED:
            self.right.notes[self._mates[results]] = 0

    def _drop(self, results: Places, parts: list[Deltas]) -> None:
        parts.append(self._told(results, NEG_INV))
        self._release(results)
        self.shown.remove_at(results)

    def _settle(self, codes: Codes, parts: list[Deltas]) -> None:
        """Bring these values to their target number of results."""
        n, m, now = (entries.counts[codes].astype(np.int64) for entries in (self.left, self.right, self.shown))
        need = target(self.rule, n, m) - now
        fewer = need < 0
        if fewer.any():
            self._drop(_chosen(codes[fewer], -need[fewer], self.shown, LAST, False), parts)
        more = need > 0
        if not more.any():
            return
        codes, need = codes[more], need[more]
        left = _chosen(codes, need, self.left, FIRST if self.rule == "except all" else LAST, True)
        ids, ts, exp = self.left.ids[left], self.left.times[left, 0], self.left.times[left, 1]
        mates = np.full(len(left), -1, np.int32)
        if self.rule in PAIRED:
            mates = _chosen(codes, need, self.right, LAST, True)
        elif self.rule == "exists":
            mates = np.repeat(_chosen(codes, np.ones_like(need), self.right, LAST, False), need)
        if self.rule in PAIRED or self.rule == "exists":
            exp = np.minimum(exp, self.right.times[mates, 1])
        places = self.shown.insert(ids, ts, exp, np.repeat(codes, need))
        self.shown.notes[places] = left
        self._mates[places] = mates
        self.left.notes[left] = places + 1
        if self.rule in PAIRED:
            self.right.notes[mates] = places + 1
        parts.append(rows_of(ids, ts, exp, POS))

    def _tidy(self) -> None:
        moved = self.shown.shrink()
        if moved is not None:
            for entries in (self.left, self.right) if self.rule in PAIRED else (self.left,):
                notes = entries.notes
                held = np.flatnonzero(notes > 0)
                held = held[entries.links[held, CODE] >= 0]
                notes[held] = moved[notes[held] - 1] + 1
        moved = self.left.shrink()
        if moved is not None:
            live = self.shown.all()
            self.shown.notes[live] = moved[self.shown.notes[live]]
        moved = self.right.shrink()
        if moved is not None and self.rule in PAIRED:
            live = self.shown.all()
            self._mates[live] = moved[self._mates[live]]
        if self.coder.crowded:
            size = self.coder.size
            for entries in (self.left, self.right, self.shown):
                entries.codes(size)
            changed = self.coder.renumber((self.left.counts[:size] > 0) | (self.right.counts[:size] > 0))
            if changed is not None:
                for entries in (self.left, self.right, self.shown):
                    entries.recode(*changed)

    @property
    def nbytes(self) -> int:
        return self.left.nbytes + self.right.nbytes + self.shown.nbytes + self.coder.nbytes

    def __len__(self) -> int:
        return len(self.left) + len(self.right) + len(self.shown)


def _chosen(codes: Codes, wanted: NDArray[np.int64], entries: Entries, which: int, unnoted: bool) -> Places:
    """The wanted number of entries of each code, chosen by expiry; with `unnoted`, of those not shown."""
    out = np.empty(int(wanted.sum()), np.int32)
    most = int(entries.counts[codes].max()) if len(codes) else 0
    made = choose(codes, wanted, entries.heads, entries.links, entries.times, int(unnoted), which, most, out)
    assert made == len(out), "fewer entries than were counted"
    return out
