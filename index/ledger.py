"""The ledger of producers' batches: a batch that is sent twice is added exactly once."""

import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sortedcontainers import SortedDict

from promising.errors import BadSequence, ProducerFenced, SequenceTooOld
from promising.index.producer_marks import Mark, Marks
from promising.index.regions import Appended

DAY = 24 * 3600 * 1_000_000
WEEK = 7 * DAY  # how long the results of a silent producer are remembered
BATCHES = 256  # results remembered per producer
RESULTS = 1 << 18  # in all, of named producers; about 70 MB
PASSING = 1 << 16  # the same, of anonymous ones
EACH = 4  # results that a producer takes the memory of
MARKS = 1 << 20  # producers of each kind whose results are forgotten
LONGEST_NAME = 256
RANDOM_BYTES = 12  # of an anonymous name, in hexadecimal digits

_NEVER = -(1 << 63)  # in an image: no time
_ANONYMOUS = re.compile(rf"[0-9a-f]{{{2 * RANDOM_BYTES}}}")


def is_anonymous(producer: str) -> bool:
    """Whether a client has made up the name, for the time of a session.

    >>> is_anonymous("0123456789abcdef01234567"), is_anonymous("till 7")
    (True, False)
    """
    return _ANONYMOUS.fullmatch(producer) is not None


@dataclass(slots=True)
class _Producer:
    batches: SortedDict[int, Appended] = field(default_factory=SortedDict)
    forgotten: int = 0  # the greatest number whose result is forgotten
    epoch: int = 0
    at: int | None = None  # when it added its last batch; None in old files

    @property
    def mark(self) -> Mark:
        return Mark(self.epoch, max(self.forgotten, self.batches.peekitem()[0] if self.batches else 0))


class Book:
    """Producers of one kind, the least recently active first. Their results take the memory of `most` in all."""

    def __init__(self, most: int) -> None:
        self.producers: OrderedDict[str, _Producer] = OrderedDict()
        self.marks = Marks(MARKS)
        self.most = most
        self.held = 0

    def find(self, name: str) -> _Producer | None:
        """The producer; one that is only marked has no results."""
        known = self.producers.get(name)
        if known is None and (mark := self.marks.find(name)) is not None:
            return _Producer(forgotten=mark.number, epoch=mark.epoch)
        return known

    def add(self, name: str, producer: _Producer) -> None:
        self.producers[name] = producer
        self.held += EACH + len(producer.batches)

    def note(self, name: str, number: int, added: Appended) -> None:
        known = self.producers[name]
        self.held += number not in known.batches
        known.batches[number] = added
        if len(known.batches) > BATCHES:
            least, _ = known.batches.popitem(0)
            known.forgotten = max(known.forgotten, least)
            self.held -= 1

    def shrink(self, before: int | None) -> None:
        """Forget the results of producers that were silent since `before`, and of as many more as memory requires."""
        while len(self.producers) > 1:
            name, oldest = next(iter(self.producers.items()))
            silent = before is not None and oldest.at is not None and oldest.at < before
            if not silent and self.held <= self.most:
                return
            del self.producers[name]
            self.held -= EACH + len(oldest.batches)
            self.marks.put(name, oldest.mark)


class Ledger:
    """The last `BATCHES` batches of each producer, for as long as `retained` after its last one.

    A remembered number gets its previous answer. Of a producer whose results are forgotten, for its silence or for
    lack of memory, the ledger remembers the greatest number: a greater one was never added. Any other may have been
    added, and is refused. Anonymous producers have their own memory, and take none of that of named ones.

    A producer has an epoch. A batch of a higher one opens it; from then on batches of lower ones are refused.

    Times are those of the batches: the ledger reads no clock.

    >>> ledger = Ledger()
    >>> ledger.find("till 7", 1) is None
    True
    >>> ledger.note("till 7", 1, Appended(500))
    >>> ledger.find("till 7", 1)
    Appended(accepted=500, refused={}, duplicate=True)
    """

    def __init__(self, retained: int = WEEK) -> None:
        self.retained = retained
        self.named, self.anonymous = Book(RESULTS), Book(PASSING)
        self._timeless = False  # whether a producer may have no time

    @property
    def books(self) -> tuple[Book, Book]:
        return self.named, self.anonymous

    def _book(self, producer: str) -> Book:
        return self.anonymous if is_anonymous(producer) else self.named

    def find(
        self, producer: str | None, sequence: int | None, epoch: int = 0, *, resent: bool = False
    ) -> Appended | None:
        """The result of a batch that was added before; None if it was not. resent: whether it was sent before."""
        if (checked := check_sender(producer, sequence, epoch)) is None:
            return None
        name, number = checked
        book = self._book(name)
        known = book.find(name)
        if known is None:
            if epoch < book.marks.dropped and (book is self.named or resent):
                raise SequenceTooOld(
                    f"batch {number} of producer {name!r}: this producer is unknown, and so many are forgotten that"
                    " it is unknown whether the batch was added; if it was not, send it with"
                    f" epoch {book.marks.dropped}"
                )
            return None
        if epoch < known.epoch:
            raise ProducerFenced(
                f"batch {number} of producer {name!r} has epoch {epoch}, but another writer opened this producer with"
                f" epoch {known.epoch}; stop one of the two, or end the other with epoch {known.epoch + 1} here"
            )
        if number in known.batches:
            return replace(known.batches[number], duplicate=True)
        if number <= known.forgotten:
            raise SequenceTooOld(
                f"batch {number} of producer {name!r}: the last {BATCHES} are remembered, up to"
                f" {self.retained / DAY:g} days after the last one, and {known.forgotten} is forgotten, so it is"
                f" unknown whether this one was added; if it was not, send it under a number above {known.mark.number}"
            )
        return None

    def opens(self, producer: str | None, epoch: int) -> bool:
        """Whether this epoch is above that of a producer with batches."""
        known = None if producer is None else self._book(producer).find(producer)
        return known is not None and epoch > known.epoch

    def open(self, producer: str, epoch: int, at: int | None) -> None:
        """From now on batches of lower epochs are refused."""
        self._active(producer, epoch, at)
        self._shrink(at)

    def knows(self, producer: str) -> bool:
        return self._book(producer).find(producer) is not None

    def any(self, prefix: str) -> bool:
        """Whether a producer with that prefix is remembered."""
        return any(name.startswith(prefix) for name in self.named.producers)

    def note(
        self, producer: str | None, sequence: int | None, added: Appended, epoch: int = 0, at: int | None = None
    ) -> None:
        """A batch was added, at this time of the clock; None in old logs."""
        if producer is None or sequence is None:
            return
        self._active(producer, epoch, at, sequence).note(producer, sequence, added)
        self._shrink(at)

    def _active(self, producer: str, epoch: int, at: int | None, first: int = 1) -> Book:
        """The book of a producer that has just sent a batch; `first` is its number, if nothing is known before."""
        book = self._book(producer)
        if producer not in book.producers:  # where marks are dropped, it may be one of those
            book.add(producer, book.find(producer) or _Producer(forgotten=first - 1 if book.marks.dropped else 0))
        known = book.producers[producer]
        known.epoch, known.at = max(known.epoch, epoch), at
        book.producers.move_to_end(producer)
        if at is None:
            self._timeless = True
        elif self._timeless:
            self._timeless = False
            for _, other in self.all():
                other.at = at if other.at is None else other.at
        return book

    def _shrink(self, at: int | None) -> None:
        self.named.shrink(None if at is None else at - self.retained)
        self.anonymous.shrink(None)

    def all(self) -> Iterator[tuple[str, _Producer]]:
        for book in self.books:
            yield from book.producers.items()

    def image(self) -> dict[str, Any]:
        known = [producer for _, producer in self.all()]
        batches = [added for producer in known for added in producer.batches.values()]
        times = [_NEVER if producer.at is None else producer.at for producer in known]
        return {
            "names": [name for name, _ in self.all()],
            "sizes": np.array([len(producer.batches) for producer in known], np.int64),
            "forgotten": np.array([producer.forgotten for producer in known], np.int64),
            "epochs": np.array([producer.epoch for producer in known], np.int64),
            "times": np.array(times, np.int64),
            "numbers": np.array([number for producer in known for number in producer.batches], np.int64),
            "accepted": np.array([added.accepted for added in batches], np.int64),
            "refused": {str(at): added.refused for at, added in enumerate(batches) if added.refused},
            "marks": [book.marks.image() for book in self.books],
        }

    def restore(self, image: dict[str, Any]) -> None:
        names, at = image["names"], 0
        timed = "times" in image  # not in images of format 1
        times = image["times"].tolist() if timed else [_NEVER] * len(names)
        epochs = image["epochs"].tolist() if timed else [0] * len(names)
        columns = (names, image["sizes"].tolist(), image["forgotten"].tolist(), epochs, times)
        for name, size, forgotten, epoch, time in zip(*columns, strict=True):
            batches: SortedDict[int, Appended] = SortedDict()
            for i in range(at, at + size):
                refused = image["refused"].get(str(i), {})
                batches[int(image["numbers"][i])] = Appended(int(image["accepted"][i]), refused)
            self._book(name).add(name, _Producer(batches, forgotten, epoch, None if time == _NEVER else time))
            at += size
        self._timeless = _NEVER in times
        for book, marks in zip(self.books, image.get("marks", ()), strict=False):
            book.marks.restore(marks)


def check_number(producer: str | None, sequence: int | None) -> tuple[str, int]:
    """A valid producer name and batch number, or `BadSequence`."""
    if not isinstance(producer, str) or not producer or len(producer) > LONGEST_NAME:
        raise BadSequence(
            f"a sequence needs a producer: a name of 1 to {LONGEST_NAME} characters, not {_short(producer)}"
        )
    try:
        producer.encode()
    except UnicodeEncodeError:
        raise BadSequence(f"a producer's name has whole characters alone, not {_short(producer)}") from None
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 1 <= sequence < 1 << 63:
        raise BadSequence(f"a sequence is a whole number from 1 on, not {sequence!r}")
    return producer, sequence


def check_sender(producer: str | None, sequence: int | None, epoch: int) -> tuple[str, int] | None:
    """As `check_number`, with an epoch; None if the batch is not numbered."""
    if producer is None and sequence is None and epoch == 0:
        return None
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch < 1 << 62:
        raise BadSequence(f"an epoch is a whole number from 0 on, below 2^62, not {epoch!r}")
    return check_number(producer, sequence)


def _short(producer: object) -> str:
    shown = repr(producer)
    return shown if len(shown) < 80 else shown[:77] + "..."
