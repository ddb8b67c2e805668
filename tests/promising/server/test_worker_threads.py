"""Turns of queries: small ones before large ones, the least CPU time first."""

import asyncio
import threading
from functools import partial

import pytest

from promising.server.sliced_work import Turns
from promising.server.worker_threads import SMALL, LeastFirst, Work
from tests.promising.server.serving import idle, run

WAIT = 30


@pytest.fixture
def work():
    made = Work(1)
    yield made
    made.close()


def test_the_least_is_first_and_of_equal_ones_the_first():
    pool, started, held = LeastFirst(1, "test"), threading.Event(), threading.Event()
    done: list[int] = []

    def hold():
        started.set()
        held.wait(WAIT)

    jobs = [pool.submit(0.0, hold)]
    assert started.wait(WAIT)
    for number, weight in enumerate((3.0, 1.0, 2.0, 1.0, 0.0)):
        jobs.append(pool.submit(weight, partial(done.append, number)))
    jobs[1].cancel()
    held.set()
    for job in jobs[2:]:
        job.result(WAIT)
    pool.shutdown()
    assert done == [4, 1, 3, 2]


def test_jobs_that_never_began_are_cancelled_at_the_end():
    pool, started, held = LeastFirst(1, "test"), threading.Event(), threading.Event()

    def hold():
        started.set()
        held.wait(WAIT)

    pool.submit(0.0, hold)
    assert started.wait(WAIT)
    waiting = pool.submit(0.0, lambda: None)
    ending = threading.Timer(0.05, held.set)
    ending.start()
    pool.shutdown(cancel_futures=True)
    ending.join()
    assert waiting.cancelled()


def test_an_error_reaches_the_caller():
    pool = LeastFirst(1, "test")
    with pytest.raises(ZeroDivisionError):
        pool.submit(0.0, lambda: 1 / 0).result(WAIT)
    pool.shutdown()


def test_a_small_query_does_not_wait_for_large_ones(work):
    held = threading.Event()

    async def body():
        large = [asyncio.create_task(work.query(SMALL, held.wait, WAIT)) for _ in range(20)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(work.query(0.0, lambda: 7), WAIT) == 7
        assert not any(task.done() for task in large)
        held.set()
        await asyncio.gather(*large)

    asyncio.run(body())


def test_a_query_is_large_once_it_has_taken_so_much_cpu_time(work, monkeypatch):
    monkeypatch.setattr("promising.server.sliced_work.work_ns", iter(range(0, 10**9, 10**7)).__next__)

    async def body():
        turns = Turns(work)
        names = [await turns.take(lambda: threading.current_thread().name) for _ in range(8)]
        assert [name.rsplit("_", 1)[0] for name in names] == 5 * ["promising-small"] + 3 * ["promising-large"]
        assert turns.spent == pytest.approx(0.08)

    asyncio.run(body())


def test_a_job_for_everywhere_runs_in_each_thread():
    work, names = Work(2), []

    async def body():
        await work.everywhere(lambda: names.append(threading.current_thread().name))

    asyncio.run(body())
    work.close()
    assert len(names) == len(set(names)) == 10


def test_a_small_query_takes_two_turns_and_none_of_the_large_ones(monkeypatch):
    """Its plan and its frame; a turn after the last frame would be one more wait."""
    weights, asked = [], Work.query

    def turn(self, spent, *given):
        weights.append(spent)
        return asked(self, spent, *given)

    monkeypatch.setattr(Work, "query", turn)

    async def body(remote):
        *_, frame = await remote.query("SELECT price FROM s WHERE item = 1 ORDER BY price LIMIT 3")
        assert frame.rows.num_rows == 2 and frame.progress.complete
        await idle(remote)

    run(body)
    assert len(weights) == 2 and max(weights) < SMALL
