"""A pyramid over the sealed zones of blocks of `G_1`, the baseline of `search`: from coarse to fine in both dimensions.

A node of level l covers `FANOUT^l` zones and `FANOUT^l` buckets: the OR of its children's filters. It is built on first
use. A search visits a node's children only if the node's filter passes the key, so it finds exactly the zones of the
flat scan, which is faster at every measured size: one word of the sliced filter answers for 64 zones.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from promising.index.fine import Block, Fine
from promising.index.options import GROUP, Sizes
from promising.index.zone import buckets_of
from promising.summaries.kernels.hashing import FILTER_SALT, MIX1, MIX2

FANOUT = 4


@dataclass(frozen=True)
class Node:
    """Zones `first..first + zones` of a block, by `buckets` buckets; `children` are nodes, or zones at level 1."""

    level: int
    first: int
    zones: int
    bits: NDArray[np.uint8]  # [bucket group][slot], eight to a byte
    children: tuple["Node", ...]


class Pyramid:
    """The nodes of one summary, whose blocks get no more zones."""

    def __init__(self, fine: Fine) -> None:
        self.fine = fine
        self.nodes: dict[tuple[int, int, int], Node] = {}

    def _build(self, block: Block, first: int, level: int) -> Node:
        """The node of that level over the sealed zones from `first` on."""
        sizes, pool = self.fine.sizes, self.fine.pool
        step = FANOUT ** (level - 1)
        children: tuple[Node, ...] = ()
        if level == 1:
            slots = np.array([z.slot for z in block.zones[first : first + FANOUT]], np.int64)
            mine = np.bitwise_or.reduce(np.uint64(1) << (slots % GROUP).astype(np.uint64))
            held = ((pool.sliced[slots[0] // GROUP] & mine) != 0).reshape(sizes.buckets, sizes.slots)
            bits = np.packbits(held, axis=1, bitorder="little")
        else:
            children = tuple(self._node(block, first + i * step, level - 1) for i in range(FANOUT))
            bits = np.bitwise_or.reduce([c.bits for c in children])
        if len(bits) >= FANOUT:  # a quarter of the buckets
            bits = np.bitwise_or.reduce(bits.reshape(len(bits) // FANOUT, FANOUT, -1), axis=1)
        return Node(level, first, FANOUT * step, bits, children)

    def _node(self, block: Block, first: int, level: int) -> Node:
        place = (block.whole.number, level, first)
        if place not in self.nodes:
            self.nodes[place] = self._build(block, first, level)
        return self.nodes[place]

    def _roots(self, block: Block) -> tuple[list[Node], int]:
        """The largest complete nodes, oldest first, and the first zone not covered."""
        out: list[Node] = []
        at = 0
        while len(block.zones) - at >= FANOUT:
            level = 1
            while len(block.zones) - at >= FANOUT ** (level + 1) and at % FANOUT ** (level + 1) == 0:
                level += 1
            out.append(self._node(block, at, level))
            at += FANOUT**level
        return out, at

    def find(self, hashes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The sealed zones that may hold each key: (index of the key, slot)."""
        sizes = self.fine.sizes
        slots = filter_slots(hashes, sizes.probes, Sizes.lg(sizes.slots))
        buckets = buckets_of(hashes, sizes)
        keys_out, slots_out = [np.empty(0, np.int64)], [np.empty(0, np.int64)]

        def leaves(block: Block, first: int, zones: int, keys: NDArray[np.int64]) -> None:
            for zone in block.zones[first : first + zones]:
                words = self.fine.pool.sliced[zone.slot // GROUP]
                found = [words[buckets[keys] * sizes.slots + s[keys]] for s in slots]
                hit = (np.bitwise_and.reduce(found) >> np.uint64(zone.slot % GROUP)) & np.uint64(1)
                through = keys[hit == 1]
                keys_out.append(through)
                slots_out.append(np.full(len(through), zone.slot, np.int64))

        def visit(block: Block, at: Node, keys: NDArray[np.int64]) -> None:
            group = buckets[keys] // (sizes.buckets // len(at.bits))
            held = [at.bits[group, s[keys] >> 3] >> (s[keys] & 7).astype(np.uint8) for s in slots]
            keys = keys[np.bitwise_and.reduce(held) & 1 == 1]
            if not len(keys):
                return
            if at.level == 1:
                leaves(block, at.first, at.zones, keys)
            for child in at.children:
                visit(block, child, keys)

        everyone = np.arange(len(hashes), dtype=np.int64)
        for block in self.fine.blocks.values():
            tops, rest = self._roots(block)
            for top in tops:
                visit(block, top, everyone)
            leaves(block, rest, len(block.zones) - rest, everyone)
        key, slot = np.concatenate(keys_out), np.concatenate(slots_out)
        order = np.lexsort((slot, key))
        return key[order], slot[order]


def filter_slots(hashes: NDArray[np.int64], probes: int, lg_slots: int) -> list[NDArray[np.int64]]:
    """The slots of each key in its bucket's filter, as `filter_word` has them."""
    word = hashes.view(np.uint64) ^ FILTER_SALT
    word = (word ^ (word >> np.uint64(30))) * MIX1
    word = (word ^ (word >> np.uint64(27))) * MIX2
    word ^= word >> np.uint64(31)
    mask = np.uint64((1 << lg_slots) - 1)
    return [((word >> np.uint64(j * lg_slots)) & mask).astype(np.int64) for j in range(probes)]
