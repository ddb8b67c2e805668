"""The pyramid over the sealed zones of a block of `G_1`: from coarse to fine in both dimensions.

A node of level l covers `FANOUT^l` zones and `FANOUT^l` buckets: the OR of their filters. It is built on first use
after its last child is sealed, and dropped when its block collapses; sealed zones never change, so it stays valid. A
search visits a node's children only if the node's filter passes the key, so it finds exactly the zones of the flat
scan.

The flat scan is faster at every measured number of zones (`benchmarks/search.py`, up to 16,384), because one word of
the sliced filter answers for 64 zones; so it is the default of `regions`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from promising.index.fine import Block, Fine
from promising.index.kernels.probe import filter_slots
from promising.index.options import GROUP, Sizes

FANOUT = 4


@dataclass(frozen=True)
class Node:
    """Zones `first..first + zones` of a block, by `buckets` buckets; `children` are nodes, or zones at level 1."""

    level: int
    first: int
    zones: int
    bits: NDArray[np.uint8]  # [bucket group][slot], eight to a byte
    children: tuple["Node", ...]

    @property
    def nbytes(self) -> int:
        """Its own bytes, without its children's."""
        return self.bits.nbytes


def build(fine: Fine, block: Block, first: int, level: int) -> Node:
    """The node of that level over the sealed zones from `first` on."""
    sizes, pool = fine.sizes, fine.pool
    step = FANOUT ** (level - 1)
    if level == 1:
        slots = np.array([z.slot for z in block.zones[first : first + FANOUT]], np.int64)
        mine = np.bitwise_or.reduce(np.uint64(1) << (slots % GROUP).astype(np.uint64))
        held = ((pool.sliced[slots[0] // GROUP] & mine) != 0).reshape(sizes.buckets, sizes.slots)
        bits = np.packbits(held, axis=1, bitorder="little")
        children: tuple[Node, ...] = ()
    else:
        children = tuple(node(fine, block, first + i * step, level - 1) for i in range(FANOUT))
        bits = np.bitwise_or.reduce([c.bits for c in children])
    if len(bits) >= FANOUT:  # a quarter of the buckets
        bits = np.bitwise_or.reduce(bits.reshape(len(bits) // FANOUT, FANOUT, -1), axis=1)
    return Node(level, first, FANOUT * step, bits, children)


def node(fine: Fine, block: Block, first: int, level: int) -> Node:
    """The node, built on first use."""
    known: Node | None = block.pyramid.get((level, first))
    if known is None:
        known = block.pyramid[level, first] = build(fine, block, first, level)
    return known


def roots(fine: Fine, block: Block) -> tuple[list[Node], int]:
    """The largest complete nodes, oldest first, and the first zone not covered."""
    out: list[Node] = []
    at = 0
    while len(block.zones) - at >= FANOUT:
        level = 1
        while len(block.zones) - at >= FANOUT ** (level + 1) and at % FANOUT ** (level + 1) == 0:
            level += 1
        out.append(node(fine, block, at, level))
        at += FANOUT**level
    return out, at


def descend(
    fine: Fine, hashes: NDArray[np.int64], wanted: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The result of `survivors`, by the pyramid: (index of the key, slot)."""
    sizes = fine.sizes
    slots = np.empty((sizes.probes, len(hashes)), np.int64)
    filter_slots(hashes, Sizes.lg(sizes.slots), slots)
    buckets = np.zeros(len(hashes), np.int64)
    if sizes.buckets > 1:
        buckets = (hashes.view(np.uint64) >> np.uint64(sizes.shift)).astype(np.int64)
    keys_out, slots_out = [np.empty(0, np.int64)], [np.empty(0, np.int64)]

    def leaves(block: Block, first: int, zones: int, keys: NDArray[np.int64]) -> None:
        for zone in block.zones[first : first + zones]:
            if wanted[zone.slot]:
                words_of = [fine.pool.sliced[zone.slot // GROUP, buckets[keys] * sizes.slots + s[keys]] for s in slots]
                hit = (np.bitwise_and.reduce(words_of) >> np.uint64(zone.slot % GROUP)) & np.uint64(1)
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
    for block in fine.blocks.values():
        tops, rest = roots(fine, block)
        for top in tops:
            visit(block, top, everyone)
        leaves(block, rest, len(block.zones) - rest, everyone)
    key, slot = np.concatenate(keys_out), np.concatenate(slots_out)
    order = np.lexsort((slot, key))
    return key[order], slot[order]
