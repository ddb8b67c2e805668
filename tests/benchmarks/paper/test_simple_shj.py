"""SIMPLE-SHJ finds what brute force finds, whole or cut."""

import numpy as np
import pytest

from benchmarks.paper.logs import Log, arrivals, generated
from benchmarks.paper.simple_shj import FOREVER, Side, SimpleShj

SECOND = 1_000_000


def made(log: Log, window: int = FOREVER, room: int = 1 << 16) -> SimpleShj:
    a, b = (Side(side["item_id"], side["ts"]) for side in (log.a, log.b))
    return SimpleShj(a, b, *arrivals(log), window, room)


def pairs(parts) -> list[tuple[int, int]]:
    return [pair for a, b in parts for pair in zip(a.tolist(), b.tolist(), strict=True)]


def brute(log: Log, window: int) -> set[tuple[int, int]]:
    same = log.a["item_id"][:, None] == log.b["item_id"][None, :]
    near = np.abs(log.a["ts"][:, None] - log.b["ts"][None, :]) < window
    return set(zip(*(where.tolist() for where in np.nonzero(same & near)), strict=True))


@pytest.mark.parametrize("window", [1, 5 * SECOND, 60 * SECOND, FOREVER])
@pytest.mark.parametrize("room", [1, 7, 1 << 16])
@pytest.mark.parametrize("seed", [1, 2])
def test_every_pair_comes_once(window, room, seed):
    log = generated(500, seed, drift=True, items=60, spell=100)
    found = pairs(made(log, window, room).run())
    assert len(found) == len(set(found))
    assert set(found) == brute(log, window)


def test_keys_of_any_sign_and_size():
    log = generated(400, 3, drift=False, items=40)
    for side in (log.a, log.b):
        side["item_id"][:] = np.where(side["item_id"] % 3 == 0, -side["item_id"] << 40, side["item_id"] * 0)
    assert set(pairs(made(log).run())) == brute(log, FOREVER)


def test_a_cut_answer_is_a_prefix_and_goes_on():
    log = generated(2_000, 1, drift=False)
    whole = pairs(made(log, room=64).run())
    ticks = iter(range(1_000_000))
    cut = made(log, room=64)
    first = pairs(cut.run(budget_ns=20, clock=lambda: next(ticks)))
    assert 0 < len(first) < len(whole) and whole[: len(first)] == first
    assert first + pairs(cut.run()) == whole
    assert cut.done


def test_pairs_come_in_the_order_of_the_later_arrival():
    log = generated(500, 1, drift=False)
    order = [max(int(log.a["ts"][i]), int(log.b["ts"][j])) for i, j in pairs(made(log).run())]
    assert order == sorted(order)


def test_tuples_that_were_skipped_are_found_by_later_ones_and_find_nobody():
    log = generated(600, 1, drift=False, items=50)
    side, row = arrivals(log)
    join = made(log)
    found = pairs(join.run(until=300))
    join.skip(600)
    found += pairs(join.run())
    number = {(int(s), int(r)): i for i, (s, r) in enumerate(zip(side, row, strict=True))}
    wanted = {(i, j) for i, j in brute(log, FOREVER) if not 300 <= max(number[0, i], number[1, j]) < 600}
    assert set(found) == wanted and len(found) == len(wanted)


def test_an_arrival_cut_in_its_walk_is_not_put_in_twice():
    log = generated(400, 1, drift=False, items=5)
    join = made(log, room=3)
    found = pairs(next(join.run()) for _ in range(60))
    join.skip(join.worked + 1)
    found += pairs(join.run())
    assert len(found) == len(set(found))
    assert set(found) < brute(log, FOREVER)
