"""Copies: the bytes of the parts, in memory that is used again only when it was given back."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from promising.index.storage import buffer_pool
from promising.index.storage.buffer_pool import MOST, SMALL, Blocks, Copies
from promising.index.storage.checksums import Bytes, total

SIZES = st.integers(0, 3) | st.integers(SMALL - 1, SMALL + 1) | st.integers(0, 3 * SMALL)


@given(st.lists(st.tuples(SIZES, st.booleans()), max_size=12))
def test_a_copy_is_what_it_was_until_it_is_given_back(steps: list[tuple[int, bool]]):
    made = Copies()
    held = []
    for number, (size, back) in enumerate(steps):
        parts: list[Bytes] = [np.full(size // 8, number).data, bytes([number]) * (size % 8), b""]
        held.append((made.of(parts, total(parts)), b"".join(parts)))
        if back:
            made.done(held.pop(0)[0])
        assert all(bytes(copy) == wanted for copy, wanted in held)


def test_large_blocks_are_used_again():
    made = Copies()
    first = made.of([bytes(SMALL), b"a"], SMALL + 1)
    second = made.of([bytes(SMALL), b"b"], SMALL + 1)
    assert isinstance(first, memoryview) and isinstance(second, memoryview)
    made.done(first)
    third = made.of([bytes(SMALL + 9)], SMALL + 9)
    assert isinstance(third, memoryview) and third.obj is first.obj is not second.obj
    assert third[-1] == 0 and second[-1] == ord("b")


def test_no_more_is_held_than_allowed(monkeypatch):
    monkeypatch.setattr(buffer_pool, "MOST", 4 * SMALL)
    assert MOST > 4 * SMALL
    made = Copies()
    held = [made.of([bytes(2 * SMALL)], 2 * SMALL) for _ in range(9)]
    for copy in held:
        made.done(copy)
    assert sum(len(block) for blocks in made._spare.values() for block in blocks) == 4 * SMALL


def test_a_block_is_used_again_when_nobody_looks_at_it():
    blocks = Blocks()
    array = np.frombuffer(blocks.of(100)[40:60], np.uint8)
    array[:] = 1
    other = blocks.of(100)
    other[:] = bytes(100)
    assert array.all() and len(blocks._blocks) == 2
    del array
    third = blocks.of(110)
    third[:] = b"3" * 110
    assert len(third) == 110 and bytes(other) == bytes(100) and len(blocks._blocks) == 2


def test_a_block_that_is_too_small_is_let_go():
    blocks = Blocks()
    for size in (0, 1, 100, 60, 1000, 999, 5000):
        assert len(blocks.of(size)) == size
        assert len(blocks._blocks) == 1
    assert len(blocks._blocks[0][0]) == 8192
