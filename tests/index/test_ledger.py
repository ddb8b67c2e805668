"""Exactly once: whatever the order of batches, repeats and producers, none is added twice."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promising.errors import BadSequence, ProducerFenced, SequenceTooOld, WrongType
from promising.index import Stream, ledger
from promising.index.ledger import WEEK, Ledger
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


# --- what is forgotten -----------------------------------------------------------------------------------------------

NAMED = ("till", "spark")
PASSING = ("0" * 24, "a" * 24, "f" * 24)
RESTART = st.sampled_from((False,) * 9 + (True,))
EVENTS = st.lists(
    st.tuples(st.sampled_from(NAMED + PASSING), st.integers(1, 9), st.integers(0, 3), st.integers(0, 3), RESTART),
    min_size=20,
    max_size=80,
)


def stored(book: Ledger, retained: int) -> Ledger:
    """The ledger after a restart from a checkpoint."""
    again = Ledger(retained)
    again.restore(book.image())
    assert repr(again.image()) == repr(book.image())
    return again


@settings(max_examples=examples(40))
@given(EVENTS)
def test_nothing_is_added_twice_and_no_lower_epoch_is_added_whatever_is_forgotten(events):
    """Results are forgotten for want of time and of memory, marks for want of memory, and there are restarts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, most in (("RESULTS", 12), ("PASSING", 12), ("MARKS", 2), ("EACH", 4)):
            patch.setattr(ledger, name, most)
        book, now = Ledger(retained=5), 0
        added: dict[tuple[str, int], int] = {}
        epochs: dict[str, int] = {}
        for name, drawn, given_epoch, step, restart in events:
            number, epoch = drawn, given_epoch
            now += step
            if restart:
                book = stored(book, 5)
            before = (name, number) in added
            if name in PASSING:  # a client opens none with an epoch, and its numbers rise
                epoch, last = 0, max((n for who, n in added if who == name), default=0)
                number = number if before else max(number, last + 1)
            try:
                found = book.find(name, number, epoch, resent=before)
            except (SequenceTooOld, ProducerFenced) as problem:
                if isinstance(problem, ProducerFenced):
                    assert epoch < epochs[name]
                continue
            if found is None:
                # Only a writer that was asked to vouch for it by a higher epoch can add a number again.
                assert not before or epoch > added[name, number]
                added[name, number] = epoch
                book.note(name, number, Appended(number), epoch, now)
            else:
                assert before and found == Appended(number, duplicate=True)
            known = book._book(name).find(name)
            if known is not None and found is not None and book.opens(name, epoch):
                book.open(name, epoch, now)
            if known is not None:
                assert epoch >= known.epoch or found is None
                epochs[name] = known.epoch
            for kind in book.books:
                assert len(kind.producers) == 1 or kind.held <= kind.most


def test_a_flood_of_anonymous_producers_takes_no_memory_of_a_named_one(monkeypatch):
    monkeypatch.setattr(ledger, "PASSING", 50)
    book = Ledger()
    book.note("till", 7, Appended(3), at=0)
    for number in range(1000):
        book.note(f"{number:024x}", 1, Appended(1), at=number)
    assert book.find("till", 7) == Appended(3, duplicate=True)
    assert len(book.anonymous.producers) == 10
    with pytest.raises(SequenceTooOld, match="send it under a number above 1"):
        book.find(f"{0:024x}", 1)
    assert book.find(f"{0:024x}", 2) is None


def test_a_silent_producer_is_forgotten_after_a_week_by_the_clock_of_batches():
    book = Ledger()
    book.note("till", 4, Appended(3), at=0)
    book.note("other", 1, Appended(1), at=WEEK)
    assert book.find("till", 4) == Appended(3, duplicate=True)
    book.note("other", 2, Appended(1), at=WEEK + 1)
    with pytest.raises(SequenceTooOld, match=r"up to 7 days .* a number above 4"):
        book.find("till", 4)
    assert book.find("till", 5) is None  # a greater one was never added
    book.note("till", 5, Appended(2), at=WEEK + 2)
    assert book.find("till", 5) == Appended(2, duplicate=True)
    with pytest.raises(SequenceTooOld):
        book.find("till", 4)


def test_a_producer_of_an_old_file_counts_from_the_next_batch_on():
    book = Ledger()
    book.note("till", 4, Appended(3))
    book.note("other", 1, Appended(1), at=100 * WEEK)
    book.note("other", 2, Appended(1), at=101 * WEEK)
    assert book.find("till", 4) == Appended(3, duplicate=True)
    book.note("other", 3, Appended(1), at=101 * WEEK + 1)
    with pytest.raises(SequenceTooOld):
        book.find("till", 4)


def test_where_marks_are_dropped_an_unknown_producer_needs_an_epoch(monkeypatch):
    monkeypatch.setattr(ledger, "MARKS", 8)
    monkeypatch.setattr(ledger, "RESULTS", 5)
    book = Ledger()
    for number in range(40):
        book.note(f"p{number}", 1, Appended(1), epoch=2, at=number)
    with pytest.raises(SequenceTooOld, match=r"unknown.*send it with epoch 3"):
        book.find("p0", 1, epoch=2)
    assert book.find("p0", 1, epoch=3) is None


@pytest.mark.parametrize("resent", [True, False])
def test_of_an_unknown_anonymous_producer_only_a_batch_that_was_sent_before_is_refused(monkeypatch, resent):
    monkeypatch.setattr(ledger, "MARKS", 8)
    monkeypatch.setattr(ledger, "PASSING", 5)
    book = Ledger()
    for number in range(40):
        book.note(f"{number:024x}", 1, Appended(1), at=number)
    if resent:
        with pytest.raises(SequenceTooOld, match="unknown"):
            book.find("a" * 24, 1, resent=True)
    else:
        assert book.find("a" * 24, 1) is None


# --- epochs ----------------------------------------------------------------------------------------------------------


def test_a_higher_epoch_ends_the_lower_ones_and_goes_on_with_their_numbers():
    book = Ledger()
    book.note("till", 1, Appended(1))
    assert book.find("till", 1, 2) == Appended(1, duplicate=True)
    book.note("till", 2, Appended(1), epoch=2)
    for number in (1, 2, 3):
        with pytest.raises(ProducerFenced, match=r"epoch 0.*opened this producer with epoch 2.*epoch 3"):
            book.find("till", number)
    assert book.find("till", 2, 2) == Appended(1, duplicate=True)
    assert book.find("till", 3, 2) is None


def test_a_stream_opens_a_producer_by_a_batch_that_was_added_before():
    stream = Stream("s", {"ts": "timestamp"}, time="ts")
    stream.append({"ts": [1]}, producer="till", sequence=1)
    assert stream.append({"ts": [1]}, producer="till", sequence=1, epoch=1).duplicate
    with pytest.raises(ProducerFenced):
        stream.append({"ts": [2]}, producer="till", sequence=2)
    assert stream.count == 1


def test_a_batch_that_is_refused_opens_nothing():
    stream = Stream("s", {"ts": "timestamp"}, time="ts")
    stream.append({"ts": [1]}, producer="till", sequence=1)
    with pytest.raises(WrongType):
        stream.append({"ts": ["no time"]}, producer="till", sequence=2, epoch=1)
    assert stream.append({"ts": [2]}, producer="till", sequence=2).accepted == 1


@pytest.mark.parametrize("epoch", [-1, 1 << 62, True, 1.0, "1", None])
def test_an_epoch_that_is_none_is_refused(epoch):
    with pytest.raises(BadSequence, match="an epoch is a whole number"):
        Ledger().find("a", 1, epoch)


def test_an_epoch_needs_a_producer():
    with pytest.raises(BadSequence, match="needs a producer"):
        Ledger().find(None, None, 1)


# --- names and numbers -----------------------------------------------------------------------------------------------


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
