"""Exactly once: whatever the order of batches, repeats and producers, none is added twice."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import BadSequence, SequenceTooOld
from promising.index import Stream, ledger
from promising.index.ledger import Ledger
from promising.index.regions import Appended
from tests.tiers import examples

SENDS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 12)), min_size=20, max_size=80)


@pytest.fixture(scope="module", autouse=True)
def few():
    """So few batches are remembered that they are forgotten often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "BATCHES", 4)
        yield


@given(SENDS)
def test_no_batch_is_added_twice_whatever_the_order(sends):
    book = Ledger()
    added: dict[tuple[str, int], Appended] = {}  # brute force: everything is remembered
    for name, number in sends:
        mine = sorted(n for who, n in added if who == name)
        try:
            found = book.find(name, number)
        except SequenceTooOld:
            # Only what is below the last few can be forgotten.
            assert len(mine) > ledger.BATCHES
            assert number < mine[-ledger.BATCHES]
            continue
        if found is None:
            assert (name, number) not in added
            added[name, number] = Appended(number, {"too_old": len(added)} if number % 2 else {})
            book.note(name, number, added[name, number])
        else:
            before = added[name, number]
            assert (found.accepted, found.refused, found.duplicate) == (before.accepted, before.refused, True)


@given(SENDS)
def test_what_is_among_the_last_is_always_remembered(sends):
    book = Ledger()
    mine: dict[str, set[int]] = {}
    for name, step in sends:
        numbers = mine.setdefault(name, set())
        number = step + max(numbers, default=0)  # in order, with gaps
        assert book.find(name, number) is None
        book.note(name, number, Appended(1))
        numbers.add(number)
        for last in sorted(numbers)[-ledger.BATCHES :]:
            assert book.find(name, last) is not None


@settings(max_examples=examples(30))
@given(st.permutations(range(1, 9)), st.lists(st.integers(1, 8), max_size=20))
def test_a_stream_counts_each_number_once(order, repeats):
    """Repeats hold other tuples: what counts is the number."""
    stream = Stream("s", {"ts": "timestamp"}, time="ts")
    taken = set()
    for number in [*order, *repeats]:
        before = stream.count
        try:
            told = stream.append({"ts": [number] * number}, producer="till", sequence=number)
        except SequenceTooOld:
            assert stream.count == before
            continue
        assert told.accepted == number or number in taken
        assert stream.count == before + (0 if told.duplicate else told.accepted)
        assert told.duplicate == (number in taken)
        taken.add(number)
    assert stream.count == sum(taken)


def test_the_producer_that_was_silent_longest_is_forgotten(monkeypatch):
    monkeypatch.setattr(ledger, "PRODUCERS", 2)
    book = Ledger()
    book.note("a", 1, Appended(1))
    book.note("b", 1, Appended(1))
    assert book.find("a", 1) is not None  # a repeat changes nothing: no journal is told of it
    book.note("c", 1, Appended(1))
    assert book.find("a", 1) is None
    assert book.find("b", 1) is not None
    assert book.find("c", 1) is not None


@pytest.mark.parametrize("sequence", [0, -1, 1 << 63, True, 1.0, "1", None])
def test_a_number_that_is_none_is_refused(sequence):
    with pytest.raises(BadSequence, match="whole number from 1 on"):
        Ledger().find("a", sequence)


@pytest.mark.parametrize("producer", ["", "x" * 257, None, 7, b"a"])
def test_a_number_needs_a_producer(producer):
    with pytest.raises(BadSequence, match="needs a producer") as caught:
        Ledger().find(producer, 1)
    assert len(str(caught.value)) < 300


def test_the_largest_number_and_the_longest_name_are_taken():
    book = Ledger()
    book.note("x" * 256, (1 << 63) - 1, Appended(1))
    assert book.find("x" * 256, (1 << 63) - 1) == Appended(1, duplicate=True)


def test_half_a_character_is_no_name():
    with pytest.raises(BadSequence, match="whole characters"):
        Ledger().find("till \ud800", 1)
