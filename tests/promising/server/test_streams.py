"""Batches sent to the service: refused, repeated, cut short; each tuple is in once."""

import asyncio
import subprocess
import sys
from typing import Any

import grpc
import pytest

from promising import wire
from promising.errors import Unavailable
from promising.index import ledger
from promising.server.read_ahead import EACH, ENOUGH, Ahead
from promising.v1 import streams_pb2
from tests.promising.server.serving import EOF, WAIT, batch, details, failed, idle, reasons, run, table


def test_numbers_that_cannot_be_are_refused_and_the_call_goes_on():
    async def body(remote):
        told = await remote.ingest(
            batch(1, sequence=1),
            batch(1, producer_id="a"),
            batch(1, producer_id="a", sequence=1 << 63),
            batch(1, producer_id="x" * 257, sequence=1),
            batch(1, producer_id="x" * 60_000, sequence=1),
            batch(1, stream="nope"),
            batch(1, stream=""),
            batch(1, producer_id="a", sequence=(1 << 63) - 1),
        )
        assert reasons(told) == ["BAD_SEQUENCE"] * 5 + ["NO_SUCH_NAME"] * 2 + [1]
        assert [one.sequence for one in told] == [1, 0, 1 << 63, 1, 1, 0, 0, (1 << 63) - 1]
        assert all(len(one.refusal.message) < 300 for one in told)
        assert remote.stream.count == 11
        await remote.well()

    run(body)


def test_an_acknowledged_number_is_answered_as_it_was_whatever_comes_under_it():
    async def body(remote):
        broken = streams_pb2.IngestRequest(stream="s", producer_id="a", sequence=1, arrow=b"no Arrow")
        told = await remote.ingest(broken, batch(2, producer_id="a", sequence=1), broken)
        assert reasons(told) == ["BAD_ARROW", 2, "DUPLICATE"]
        assert told[-1].appended.accepted == 2

    run(body)


def test_a_number_is_taken_once_whatever_the_order(monkeypatch):
    monkeypatch.setattr(ledger, "BATCHES", 3)

    async def body(remote):
        numbers = [5, 4, 5, 6, 4, 7, 4, 3, 8]
        told = await remote.ingest(*(batch(n, producer_id="a", sequence=n) for n in numbers))
        assert reasons(told) == [5, 4, "DUPLICATE", 6, "DUPLICATE", 7, "SEQUENCE_TOO_OLD", "SEQUENCE_TOO_OLD", 8]
        assert told[2].appended.accepted == 5
        assert remote.stream.count == 10 + 5 + 4 + 6 + 7 + 8
        # A number that was refused may come again.
        bad, good = batch(b"", producer_id="b", sequence=1), batch(2, producer_id="b", sequence=1)
        assert reasons(await remote.ingest(bad, good, good)) == ["BAD_ARROW", 2, "DUPLICATE"]
        await remote.well()

    run(body)


def test_a_higher_epoch_ends_the_lower_ones():
    async def body(remote):
        told = await remote.ingest(
            batch(1, producer_id="a", sequence=1),
            batch(1, producer_id="a", sequence=2, epoch=2),
            batch(1, producer_id="a", sequence=3),
            batch(1, producer_id="a", sequence=2, epoch=1),
            batch(1, producer_id="a", sequence=2, epoch=2),
            batch(1, producer_id="a", sequence=3, epoch=1 << 62),
            batch(1, epoch=1),
        )
        assert reasons(told) == [1, 1, *["PRODUCER_FENCED"] * 2, "DUPLICATE", *["BAD_SEQUENCE"] * 2]
        await remote.well()

    run(body)


def test_a_flood_of_anonymous_producers(monkeypatch):
    """It forgets none that is named; of its own, what was sent before and is no longer known is refused."""
    for name, most in (("PASSING", 20), ("MARKS", 8)):
        monkeypatch.setattr(ledger, name, most)

    async def body(remote):
        flood = [batch(1, producer_id=f"{number:024x}", sequence=1) for number in range(40)]
        told = await remote.ingest(batch(1, producer_id="till", sequence=1), *flood)
        assert reasons(told) == [1] * 41
        again = [batch(1, producer_id=p, sequence=1, resent=True) for p in ("till", "0" * 24, f"{39:024x}")]
        assert reasons(await remote.ingest(*again)) == ["DUPLICATE", "SEQUENCE_TOO_OLD", "DUPLICATE"]
        assert remote.stream.count == 10 + 41

    run(body)


def test_half_closed_calls_end_well():
    async def body(remote):
        assert await remote.ingest() == []
        call = remote.streams.Ingest(timeout=WAIT)
        for number in (1, 2, 3):
            await call.write(batch(number))
        await call.done_writing()  # before anything was read
        assert [(await call.read()).appended.accepted for _ in range(3)] == [1, 2, 3]
        assert await call.read() is EOF
        assert await call.code() == grpc.StatusCode.OK
        await remote.well()

    run(body)


def test_a_client_that_cancels_can_send_all_again_and_nothing_is_in_twice():
    async def body(remote):
        sent = [batch(5, producer_id="a", sequence=n) for n in range(1, 101)]
        call = remote.streams.Ingest(timeout=WAIT)
        for one in sent:
            await call.write(one)
        assert (await call.read()).sequence == 1
        call.cancel()
        await idle(remote)
        before = remote.stream.count
        assert (before - 10) % 5 == 0
        told = await remote.ingest(*sent)
        # What was being added when the call ended has come in since.
        assert sum(one.appended.duplicate for one in told) >= (before - 10) // 5 >= 1
        assert remote.stream.count == 10 + 500
        await remote.well()

    run(body)


ENDLESS = """
import itertools, sys, grpc
from promising.v1 import streams_pb2, streams_pb2_grpc
channel = grpc.insecure_channel(sys.argv[1])
data = sys.stdin.buffer.read()
requests = (streams_pb2.IngestRequest(stream="s", producer_id="a", sequence=n, arrow=data) for n in itertools.count(1))
for response in streams_pb2_grpc.StreamServiceStub(channel).Ingest(requests):
    print(response.sequence, response.appended.accepted, flush=True)
"""


def test_a_client_that_is_killed_leaves_nothing_open():
    async def body(remote):
        made: Any = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            ENDLESS,
            f"127.0.0.1:{remote.service.port}",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        made.stdin.write(wire.ipc(table(7)))
        made.stdin.close()
        for number in range(1, 4):
            assert await made.stdout.readline() == b"%d 7\n" % number
        made.kill()
        rest, _ = await made.communicate()
        acknowledged = 3 + len([line for line in rest.split(b"\n")[:-1] if line])
        await idle(remote)
        assert remote.stream.count >= 10 + 7 * acknowledged
        assert (remote.stream.count - 10) % 7 == 0
        await remote.well()

    run(body)


def test_two_calls_of_one_producer_add_each_number_once():
    async def body(remote):
        sent = [batch(n, producer_id="a", sequence=n) for n in range(1, 41)]
        first, second = await asyncio.gather(remote.ingest(*sent), remote.ingest(*sent))
        pairs = list(zip(first, second, strict=True))
        assert all(a.appended.duplicate != b.appended.duplicate for a, b in pairs)
        assert all(a.appended.accepted == b.appended.accepted == a.sequence for a, b in pairs)
        assert remote.stream.count == 10 + sum(range(1, 41))

    run(body)


def test_a_message_that_is_none_ends_the_call_after_those_before_it():
    async def body(remote):
        raw = remote.channel.stream_stream("/promising.v1.StreamService/Ingest")
        call = raw(timeout=WAIT)
        await call.write(batch(4).SerializeToString())
        await call.write(b"\xff\xff\xff")
        told = streams_pb2.IngestResponse.FromString(await call.read())
        assert told.appended.accepted == 4
        problem = await failed(call.read())
        assert problem.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert details(problem).info.reason == "BAD_REQUEST"
        assert remote.stream.count == 14
        await remote.well()

    run(body)


class _Sender:
    """The context of a call whose client sends and sends."""

    def __init__(self, request):
        self.request, self.read_so_far = request, 0

    async def read(self):
        await asyncio.sleep(0)
        self.read_so_far += 1
        return streams_pb2.IngestRequest.FromString(self.request)


@pytest.mark.parametrize(
    "request_",
    [
        streams_pb2.IngestRequest(),
        streams_pb2.IngestRequest(arrow=bytes(100_000)),
        streams_pb2.IngestRequest(producer_id="x" * 100_000),
        streams_pb2.IngestRequest(stream="x" * 100_000),
        streams_pb2.AdvanceRequest(stream="s"),
    ],
    ids=["empty", "arrow", "producer", "stream", "other"],
)
def test_so_much_is_read_ahead_and_no_more(request_):
    async def body():
        data = request_.SerializeToString()
        sender = _Sender(data)
        ahead = Ahead(sender)
        for _ in range(3 * ENOUGH // EACH):
            await asyncio.sleep(0)
        waiting = await ahead.take()
        assert len(waiting) == sender.read_so_far == -(-ENOUGH // (EACH + len(data))) or len(data) < 10
        assert len(waiting) <= ENOUGH // EACH
        assert await ahead.take()  # there is room again
        ahead.stop()
        while True:
            try:
                await ahead.take()
            except Unavailable:
                break

    asyncio.run(body())


def test_unknown_fields_are_not_kept():
    """A newer client may send them. They must not wait in memory, uncounted."""

    async def body():
        request = streams_pb2.IngestRequest(stream="s").SerializeToString()
        odd = b"\xfa\x3f" + b"\xa0\x8d\x06" + bytes(100_000)  # field 1023
        ahead = Ahead(_Sender(request + odd))
        (first, *_) = await ahead.take()
        assert first.request.SerializeToString() == request
        ahead.stop()

    asyncio.run(body())
