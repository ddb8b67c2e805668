"""Copies: the bytes of the parts, in memory that is used again only when it was given back."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from index.storage import copies
from index.storage.checksums import Bytes, total
from index.storage.copies import MOST, SMALL, Blocks, Copies

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
    monkeypatch.setattr(copies, "MOST", 4 * SMALL)
    assert MOST > 4 * SMALL
    made = Copies()
    held = [made.of([bytes(2 * SMALL)], 2 * SMALL) for _ in range(9)]
    for copy in held:
        made.done(copy)
    assert sum(len(block) for blocks in made._spare.values() for block in blocks) == 4 * SMALL


def test_a_block_is_used_again_when_nobody_looks_at_it():
    blocks = Blocks()
    first = blocks.of(100)
    place = first.obj
    array = np.frombuffer(first[40:60], np.uint8)
    del first
    second = blocks.of(50)
    assert second.obj is not place and len(second) == 50
    del array
    again = blocks.of(80)
    del place
    third = blocks.of(80)
    assert third.obj is not again.obj and len(third) == 80


def test_a_smaller_file_is_read_into_the_same_block():
    blocks = Blocks()
    at = np.frombuffer(blocks.of(100), np.uint8).ctypes.data
    assert np.frombuffer(blocks.of(60), np.uint8).ctypes.data == at
    assert len(blocks.of(60)) == 60
    assert len(blocks.of(0)) == 0
