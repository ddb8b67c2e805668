"""An iterator that runs ahead in a thread: in order, with its error at the end, and never longer than its reader."""

import threading
from collections.abc import Generator

import pytest

from promising.index.storage.run_ahead import WAITING, run_ahead


class Counting:
    """Groups of one number, and what became of them."""

    def __init__(self, count: int, problem: BaseException | None = None) -> None:
        self.count, self.problem = count, problem
        self.made = 0
        self.closed = False
        self.threads: set[int] = set()

    def groups(self) -> Generator[list[int]]:
        try:
            for number in range(self.count):
                self.made += 1
                self.threads.add(threading.get_ident())
                yield [number]
            if self.problem is not None:
                raise self.problem
        finally:
            self.closed = True


def test_all_groups_arrive_in_order_from_another_thread():
    source = Counting(50)
    with run_ahead(source.groups()) as groups:
        assert [number for group in groups for number in group] == list(range(50))
    assert source.closed
    assert source.threads and threading.get_ident() not in source.threads


def test_an_error_arrives_after_all_before_it():
    problem = KeyboardInterrupt()
    source = Counting(5, problem)
    found = []
    with pytest.raises(KeyboardInterrupt) as raised, run_ahead(source.groups()) as groups:
        for group in groups:
            found.append(group)  # until it raises
    assert raised.value is problem
    assert found == [[number] for number in range(5)]
    assert source.closed


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_it_ends_with_its_reader_and_is_not_far_ahead(taken):
    source = Counting(1000)
    with pytest.raises(ZeroDivisionError), run_ahead(source.groups()) as groups:
        for _ in range(taken):
            next(groups)
        raise ZeroDivisionError
    assert source.closed
    assert source.made <= taken + WAITING + 3
