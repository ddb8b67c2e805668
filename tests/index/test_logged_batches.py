"""Logged batches that are merged when they are replayed leave what they leave one by one, to the bit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promising.index.log
import promising.index.logged_batches
from promising.index import Stream
from promising.index.check import check_stream
from promising.index.progress import Progress
from promising.index.storage.image import pack_image
from promising.index.storage.records import Batch
from promising.testing import ManualClock
from tests.index.world import SCHEMA, SMALL, STRUCTURES, columns
from tests.tiers import examples

Step = Batch | Progress


class Noted:
    """A journal in memory."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def appended(self, *batch: Any, **named: Any) -> None:
        self.steps.append(Batch(*batch, **named))

    def opened(self, producer: str, epoch: int, at: int) -> None:
        raise AssertionError("no producer is opened by itself")

    def advanced(self, progress: Progress) -> None:
        self.steps.append(progress)

    def created(self, *_: Any, **__: Any) -> None:
        raise AssertionError("summaries are created before")

    dropped = altered = created

    def wait(self) -> None:
        """All of it is there."""


def bits(stream: Stream) -> bytes:
    return b"".join(bytes(part) for part in pack_image(stream.image()))


def replayed(stream: Stream, steps: list[Step], *, merging: bool) -> int:
    """Replay all steps; returns the number of inserts."""
    inserts = at = 0
    while at < len(steps):
        step = steps[at]
        if isinstance(step, Progress):
            assert step.watermark is not None
            stream.advance_again(step.watermark, step)
            at += 1
            continue
        last = next((i for i in range(at, len(steps)) if isinstance(steps[i], Progress)), len(steps))
        at += stream.again(step, [s for s in steps[at + 1 : last] if isinstance(s, Batch)] if merging else ())
        inserts += 1
    return inserts


def made(lateness: int, keep: int | None, structure: str, plain: bool) -> Stream:
    schema = {name: kind for name, kind in SCHEMA.items() if kind != "string"} if plain else SCHEMA
    stream = Stream("s", schema, "ts", lateness=lateness, keep=keep, clock=ManualClock(1 << 50), seed=3)
    stream.create_summary("k", "k", granularity=500, collapse=(3, 3), options=SMALL, structure=structure)
    if not plain:
        stream.create_summary("s", "s", granularity=200, collapse=(2, 3), options=SMALL)
    return stream


def lived(stream: Stream, plain: bool, seed: int, batches: int) -> list[Step]:
    """The log of a stream: small batches, some late, some ahead, some refused in part, some long."""
    draw = np.random.default_rng(seed)
    journal = stream.journal = Noted()
    now = first = 0
    for number in range(batches):
        size = int(draw.integers(1, 12)) if draw.random() < 0.95 else 400
        times = now + np.sort(draw.integers(0, 8, size))
        if draw.random() < 0.1:
            times[draw.integers(0, size)] -= draw.integers(0, 3000)
        if draw.random() < 0.05:
            times[draw.integers(0, size)] += draw.integers(0, 1500)
        batch = columns(times, draw.zipf(1.4, size) % 40, first)
        if draw.random() < 0.5:
            batch["x"] = [1.5] * size  # without nulls
        if plain:
            del batch["s"]
        stream.append(batch, producer=f"p{number % 3}", sequence=number + 1)
        if draw.random() < 0.02:
            stream.advance((stream.watermark or 0) + 300)
        now, first = now + int(draw.integers(0, 12)), first + size
    stream.journal = None
    return journal.steps


@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    lateness=st.sampled_from([0, 20, 700]),
    keep=st.sampled_from([None, None, 4000]),
    structure=st.sampled_from(STRUCTURES),
    plain=st.booleans(),
    most=st.sampled_from([40, 1 << 16]),
)
def test_merged_batches_leave_the_same_bits(seed, lateness, keep, structure, plain, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(promising.index.log, "CHUNK", 64)
        patch.setattr(promising.index.logged_batches, "MOST", most)
        stream = made(lateness, keep, structure, plain)
        steps = lived(stream, plain, seed, 120)
        one_by_one, merged = (made(lateness, keep, structure, plain) for _ in range(2))
        assert replayed(one_by_one, steps, merging=False) >= replayed(merged, steps, merging=True)
        assert bits(merged) == bits(one_by_one) == bits(stream)
        assert merged.nbytes == one_by_one.nbytes
        assert check_stream(merged) == []


@pytest.mark.parametrize("plain", [True, False])
def test_small_batches_of_a_block_are_inserted_at_once(plain):
    stream = made(0, None, "adaptive", plain)
    journal = stream.journal = Noted()
    for number in range(300):
        batch = columns([number, number], [number % 7, number % 5], 2 * number)
        if plain:
            del batch["s"]
        stream.append(batch, producer="p", sequence=number + 1)
    again = made(0, None, "adaptive", plain)
    assert replayed(again, journal.steps, merging=True) <= 4  # as many as begin a block of a summary
    stream.journal = None
    assert bits(again) == bits(stream)
    assert again.added("p", 300) == stream.added("p", 300)


def test_the_directory_grows_however_tuples_are_split():
    """Keys that are new, one by one and all at once: their directory has the same bytes."""
    sizes: list[Callable[[int], int]] = [lambda left: 1, lambda left: min(left, 37), lambda left: left]
    images = []
    for size in sizes:
        stream = Stream("s", {"ts": "timestamp", "k": "int"}, "ts", clock=ManualClock(1 << 50))
        stream.create_summary("k", "k", granularity=1 << 30, collapse=(2, 2), options=SMALL)
        at = 0
        while at < 450:  # up to where it has grown, and not much more
            stop = at + size(450 - at)
            stream.append({"ts": np.arange(at, stop), "k": np.arange(at, stop)})
            at = stop
        images.append(bits(stream))
    assert images[0] == images[1] == images[2]
