"""The ledger of producers' batches: a batch that is sent twice is added exactly once."""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sortedcontainers import SortedDict

from promising.errors import BadSequence, SequenceTooOld
from promising.index.regions import Appended

PRODUCERS = 1024  # remembered per stream; the least recently active is evicted first
BATCHES = 256  # per producer; about 70 MB at most in all
LONGEST_NAME = 256


@dataclass
class _Producer:
    batches: SortedDict[int, Appended] = field(default_factory=SortedDict)
    forgotten: int = 0  # the greatest evicted number


class Ledger:
    """The last `BATCHES` batches of the last `PRODUCERS` producers.

    A remembered number gets its previous answer. An unknown number greater than every evicted one was never added. Any
    other may have been added, and is refused.

    >>> ledger = Ledger()
    >>> ledger.find("till 7", 1) is None
    True
    >>> ledger.note("till 7", 1, Appended(500))
    >>> ledger.find("till 7", 1)
    Appended(accepted=500, refused={}, duplicate=True)
    """

    def __init__(self) -> None:
        self._producers: OrderedDict[str, _Producer] = OrderedDict()

    def find(self, producer: str | None, sequence: int | None) -> Appended | None:
        """The result of a batch that was added before; None if it was not."""
        if producer is None and sequence is None:
            return None
        name, number = check_number(producer, sequence)
        known = self._producers.get(name)
        if known is None:
            return None
        if number in known.batches:
            return replace(known.batches[number], duplicate=True)
        if number <= known.forgotten:
            raise SequenceTooOld(
                f"batch {number} of producer {name!r}: only the last {BATCHES} are remembered, and {known.forgotten} is"
                " not among them any more, so nobody can tell whether this one was added; go on with higher numbers"
            )
        return None

    def knows(self, producer: str) -> bool:
        return producer in self._producers

    def any(self, prefix: str) -> bool:
        """Whether a producer with that prefix is remembered."""
        return any(name.startswith(prefix) for name in self._producers)

    def note(self, producer: str | None, sequence: int | None, added: Appended) -> None:
        if producer is None or sequence is None:
            return
        known = self._producers.get(producer)
        if known is None:
            known = self._producers[producer] = _Producer()
        self._producers.move_to_end(producer)
        known.batches[sequence] = added
        if len(known.batches) > BATCHES:
            least, _ = known.batches.popitem(0)
            known.forgotten = max(known.forgotten, least)
        if len(self._producers) > PRODUCERS:
            self._producers.popitem(last=False)

    def image(self) -> dict[str, Any]:
        known = list(self._producers.values())
        batches = [added for producer in known for added in producer.batches.values()]
        return {
            "names": list(self._producers),
            "sizes": np.array([len(producer.batches) for producer in known], np.int64),
            "forgotten": np.array([producer.forgotten for producer in known], np.int64),
            "numbers": np.array([number for producer in known for number in producer.batches], np.int64),
            "accepted": np.array([added.accepted for added in batches], np.int64),
            "refused": {str(at): added.refused for at, added in enumerate(batches) if added.refused},
        }

    def restore(self, image: dict[str, Any]) -> None:
        at = 0
        for name, size, forgotten in zip(
            image["names"], image["sizes"].tolist(), image["forgotten"].tolist(), strict=True
        ):
            batches: SortedDict[int, Appended] = SortedDict()
            for i in range(at, at + size):
                refused = image["refused"].get(str(i), {})
                batches[int(image["numbers"][i])] = Appended(int(image["accepted"][i]), refused)
            self._producers[name] = _Producer(batches, forgotten)
            at += size


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


def _short(producer: object) -> str:
    shown = repr(producer)
    return shown if len(shown) < 80 else shown[:77] + "..."
