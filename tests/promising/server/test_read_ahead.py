"""Batches that are read ahead: in order, so many and no more, and errors after what came before them."""

import asyncio

import pytest

from promising.server import read_ahead
from promising.server.read_ahead import EOF, Ahead
from promising.v1 import streams_pb2


class Sender:
    """A call whose client sends these, as fast as they are read."""

    def __init__(self, *sizes: int, problem: Exception | None = None) -> None:
        self._requests = iter([streams_pb2.IngestRequest(sequence=i, arrow=b"x" * n) for i, n in enumerate(sizes)])
        self._problem = problem
        self.read_so_far = 0

    async def read(self) -> object:
        await asyncio.sleep(0)
        request = next(self._requests, None)
        if request is None:
            if self._problem is not None:
                raise self._problem
            return EOF
        self.read_so_far += 1
        return request


async def taken(reading: Ahead) -> list[int]:
    numbers: list[int] = []
    while batches := await reading.take():
        numbers += [batch.request.sequence for batch in batches]
        assert all(batch.arrow == batch.request.arrow for batch in batches)
    return numbers


def test_all_come_once_and_in_order():
    async def main() -> list[int]:
        return await taken(Ahead(Sender(*range(100))))

    assert asyncio.run(main()) == list(range(100))


def test_no_more_waits_than_is_enough_and_one_message(monkeypatch):
    monkeypatch.setattr(read_ahead, "ENOUGH", 100)
    monkeypatch.setattr(read_ahead, "EACH", 0)

    async def main() -> None:
        sender = Sender(*[30] * 50)
        reading = Ahead(sender)
        for _ in range(100):
            await asyncio.sleep(0)
        assert sender.read_so_far == 4
        assert len(await reading.take()) == 4
        for _ in range(100):
            await asyncio.sleep(0)
        assert sender.read_so_far == 8
        reading.stop()

    asyncio.run(main())


def test_what_came_before_an_error_is_taken_before_it_is_raised():
    async def main() -> None:
        reading = Ahead(Sender(1, 2, problem=ValueError("torn")))
        for _ in range(20):
            await asyncio.sleep(0)
        assert [batch.request.sequence for batch in await reading.take()] == [0, 1]
        with pytest.raises(ValueError, match="torn"):
            await reading.take()

    asyncio.run(main())
