"""Mutated inputs, one after the other: each is refused with a typed error, or answered right.

A case is a function of its subject, seed and number alone, so that any can be run again by itself.
"""

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from promising import errors
from promising.errors import PromisingError

SHOWN = 2000  # characters of an input in a failure
LONGEST = 4000  # characters of an error's message
FAULTS = (errors.InternalError, errors.BadSettings)  # errors that no input of a client may cause
TYPED = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PromisingError)}


class Broken(AssertionError):
    """Something that must hold for every input does not."""


class Subject(ABC):
    """What is fed with mutated inputs. To be used as a context."""

    name: ClassVar[str]
    verdicts: ClassVar[dict[str, float]]
    """The least share of the cases by verdict: else the mutations do too little, or too much, to try anything."""

    @abstractmethod
    def input(self, rng: random.Random) -> Any:
        """A mutated input."""

    @abstractmethod
    def judge(self, given: Any) -> str:
        """What became of an input; raises if that must not be."""

    def __enter__(self) -> "Subject":
        return self

    def __exit__(self, *_: object) -> None:
        return None


def judged(subject: Subject, seed: int, number: int) -> str:
    """The verdict on one case; an error names the case."""
    given: Any = "(no input was made)"
    try:
        given = subject.input(random.Random(f"{subject.name} {seed} {number}"))
        return subject.judge(given)
    except BaseException as problem:
        shown = repr(given)
        shown = shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}... ({len(shown):,} characters)"
        again = f"python -m tests.fuzz --only {subject.name} --seed {seed} --case {number}"
        problem.add_note(f"case {number} of seed {seed}, again by `{again}`:\n{shown}")
        raise


def run(
    subject: Subject, seed: int, cases: Iterable[int], begun: Callable[[int], None] = lambda number: None
) -> Counter[str]:
    """How often which verdict was given. begun: called with the number of each case before it."""
    found: Counter[str] = Counter()
    with subject:
        for number in cases:
            begun(number)
            found[judged(subject, seed, number)] += 1
    return found


def too_few(subject: Subject, found: Counter[str]) -> list[str]:
    """The verdicts that were given so seldom that the mutations are of no use."""
    return [
        f"{found[verdict]:,} of {found.total():,} cases were {verdict}"
        for verdict, least in subject.verdicts.items()
        if found[verdict] < least * found.total()
    ]


def typed(problem: PromisingError, *, apart: tuple[type[PromisingError], ...] = FAULTS) -> str:
    """The name of an error that a client may be given; raises for any other."""
    if type(problem) not in TYPED or isinstance(problem, apart):
        raise Broken(f"{type(problem).__name__} is no error for a client: {problem}") from problem
    if not 0 < len(str(problem)) <= LONGEST:
        raise Broken(f"{type(problem).__name__} has a message of {len(str(problem)):,} characters") from problem
    return type(problem).__name__


def differs(before: Any, after: Any, what: str) -> None:
    """Raise if a state is another than before."""
    if before != after:
        raise Broken(f"{what} has changed the state:\n  {before}\n  {after}")
