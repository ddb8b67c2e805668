"""The choice of a structure, with made-up costs: what it comes to, when it waits, and that it does not waver."""

from collections.abc import Callable
from functools import partial

import pytest

from promising.index.auto_structure import CALL, ENTER, LEAST, REBUILD, TUPLE, WILD, Auto

KEPT = 200_000
BATCH = 4_096

Step = Callable[..., None]


def ingest(auto: Auto, slow: float = 1.0) -> None:
    auto.inserted(BATCH, slow * (CALL[auto.now] + TUPLE[auto.now] * BATCH))


def few_keys_of_little(auto: Auto, slow: float = 1.0) -> None:
    """One key, in a hundredth of the window: 1 ms of a scan, 30 us by postings."""
    auto.probed(1, 3, KEPT // 100, KEPT, slow * (1_000_000 if auto.now == "none" else 30_000))


def many_keys(auto: Auto, slow: float = 1.0) -> None:
    auto.probed(100, 2_000, KEPT, KEPT, slow * (9_000_000 if auto.now == "none" else 80_000))


def regions(auto: Auto, slow: float = 1.0) -> None:
    auto.looked(1, KEPT, slow * (800_000 if auto.now == "none" else 200_000))


def estimate(auto: Auto, slow: float = 1.0) -> None:
    auto.estimated(100, KEPT, KEPT, slow * (800_000 if auto.now == "none" else 140_000))


def visit(auto: Auto, slow: float = 1.0) -> None:
    rows = {"none": KEPT, "time": 16_000, "grid": 250, "adaptive": 200}[auto.now]
    auto.visited(rows, KEPT, KEPT)


def run(auto: Auto, *steps: Step, times: int = 1) -> list[str]:
    """The structures that it changed to."""
    changes = []
    for _ in range(times):
        for step in steps:
            step(auto)
            chosen = auto.choice(KEPT)
            if chosen is not None:
                auto.changed(chosen, KEPT, spent=0 if chosen == "none" else REBUILD * KEPT)
                changes.append(chosen)
    return changes


# --- what it comes to --------------------------------------------------------------------------------------------


def test_nothing_is_built_while_nothing_is_asked():
    assert run(Auto(64), ingest, times=10_000) == []


def test_many_probes_over_a_large_window_get_postings_and_the_cheapest_zones():
    auto = Auto(64)
    assert run(auto, ingest, many_keys, times=2_000) == ["time"]
    assert auto.now == "time"


def test_few_probes_of_small_windows_between_much_ingest_get_nothing():
    assert run(Auto(64), *[ingest] * 100, few_keys_of_little, times=200) == []


def test_ingest_alone_lets_go_of_any_structure():
    for structure in ("time", "grid", "adaptive"):
        assert run(Auto(64, structure), ingest, times=1_000) == ["none"]


def test_regions_and_visits_get_value_buckets():
    auto = Auto(64)
    run(auto, ingest, regions, visit, times=3_000)
    assert auto.now in ("grid", "adaptive")
    run(auto, regions, *[visit] * 10, times=3_000)
    assert auto.now == "adaptive"


def test_estimates_are_worth_what_they_say():
    """Those of no structure are for nothing, and say nothing."""
    auto = Auto(64)
    run(auto, ingest, *[estimate] * 10, times=1_000)
    assert auto.now == "adaptive"


def test_zones_that_the_stream_never_cuts_need_no_watching():
    auto = Auto(64, "adaptive")
    for _ in range(60_000):
        auto.inserted(BATCH, CALL[auto.now] + TUPLE[auto.now] * BATCH, {"maxlength": 50, "boundary": 9})
        estimate(auto)
        if (chosen := auto.choice(KEPT)) is not None:
            auto.changed(chosen, KEPT, spent=REBUILD * KEPT)
    assert auto.drift == 0 and auto.now == "grid"


def test_queries_that_read_by_key_get_postings():
    auto = Auto(64)
    assert run(auto, lambda a: a.queried(KEPT), times=1) == []  # one reads less than it takes to build them
    assert run(auto, lambda a: a.queried(KEPT), times=1) == ["time"]
    assert auto.lost("none") == 0


# --- when it waits -----------------------------------------------------------------------------------------------


def test_a_change_is_made_when_what_it_costs_has_been_lost_and_not_before():
    auto, asked = Auto(64), 0
    while auto.choice(KEPT) is None:
        auto.queried(KEPT // 10)
        asked += 1
    assert asked * ENTER * KEPT / 10 >= REBUILD * KEPT > (asked - 1) * ENTER * KEPT / 10


def test_a_small_stream_is_not_changed_for_nothing():
    auto = Auto(64)
    asked = 0
    while auto.choice(0) is None:
        auto.queried(100)
        asked += 1
    assert asked * ENTER * 100 >= LEAST


def test_tuples_on_disk_make_a_change_dear():
    auto = Auto(64)
    for _ in range(3):
        auto.queried(KEPT)
    assert auto.choice(KEPT, cold=KEPT) is None
    auto.queried(KEPT)
    assert auto.choice(KEPT) == "time"


def test_what_is_gained_is_taken_off_what_was_lost():
    auto = Auto(64)
    auto.queried(KEPT)
    lost = auto.lost("time")
    for _ in range(10):
        ingest(auto)
    auto.queried(0)  # a question makes the batches before it count
    assert 0 < auto.lost("time") < lost
    for _ in range(1_000):
        ingest(auto)
    assert auto.lost("time") == 0


def test_what_comes_mixed_is_weighed_together():
    """Questions that are skipped count before anything is chosen, not only when the next one is looked at."""
    auto = Auto(64)
    run(auto, many_keys, times=20)
    assert auto.now == "time"
    for _ in range(2_000):
        ingest(auto)
        if not auto.skips("probe"):
            few_keys_of_little(auto)
        assert auto.choice(KEPT) is None


@pytest.mark.parametrize("length", [1, 10, 100, 1_000])
def test_a_load_that_goes_to_and_fro_does_not_make_it_waver(length):
    """Each round trip has cost, before it, one rebuild and a half at least: so changes are few whatever the rhythm."""
    auto = Auto(64)
    spent = 0.0

    def busy(a: Auto) -> None:
        nonlocal spent
        spent += CALL[a.now] + TUPLE[a.now] * BATCH
        ingest(a)

    def asking(a: Auto) -> None:
        nonlocal spent
        spent += 1_000_000 if a.now == "none" else 30_000
        few_keys_of_little(a)

    changes = run(auto, *[busy] * (4 * length), *[asking] * length, times=4_000 // length)
    assert len(changes) * REBUILD * KEPT / 2 <= spent
    assert len(changes) <= 2 * (4_000 // length) + 1
    if length == 1:
        assert len(changes) <= 1


def test_it_comes_to_rest():
    auto = Auto(64)
    run(auto, ingest, many_keys, times=500)
    assert run(auto, ingest, many_keys, times=5_000) == []


def test_it_follows_a_load_that_changes():
    auto = Auto(64)
    for _ in range(3):
        assert run(auto, many_keys, times=100) == ["time"]
        assert run(auto, ingest, times=1_000) == ["none"]


# --- what it is told -----------------------------------------------------------------------------------------------


def test_the_same_costs_give_the_same_choices():
    def once() -> tuple[list[str], str]:
        auto = Auto(64)
        return run(auto, ingest, many_keys, regions, few_keys_of_little, visit, times=500), auto.why

    assert once() == once()


@pytest.mark.parametrize("slow", [0.25, 4.0])
def test_a_slower_machine_chooses_alike(slow):
    """What was measured corrects all prices: the ones of structures that are not in use too."""
    loads: list[list[Step]] = [[ingest], [ingest, many_keys], [ingest] * 100 + [few_keys_of_little]]
    for load in loads:
        plain, other = Auto(64), Auto(64)
        run(plain, *load, times=300)
        run(other, *[partial(step, slow=slow) for step in load], times=300)
        assert plain.now == other.now


def test_what_answers_once_took_with_its_kin_is_no_reason_to_change():
    """Zones of another shape answer probes alike: if these take longer now, they would have with the others, too."""
    auto = Auto(64, "grid")
    run(auto, many_keys, times=50)
    auto.changed("time", KEPT, why="for this test")
    assert run(auto, partial(many_keys, slow=3.0), times=1_000) == []


def test_an_interruption_is_no_cost_of_a_structure():
    auto = Auto(64, "time")
    for _ in range(100):
        many_keys(auto)
    auto.probed(100, 2_000, KEPT, KEPT, 1e12)  # a quarter of an hour
    assert auto.choice(KEPT) is None
    model = 20_000 + 50 * 100 + 18 * 2_000
    assert auto.lost("none") <= WILD * model


def test_a_change_that_failed_is_not_tried_at_once():
    auto = Auto(64)
    for _ in range(10):
        many_keys(auto)
    assert auto.choice(KEPT) is not None
    auto.stays("there was no memory")
    assert auto.now == "none" and auto.why == "there was no memory"
    assert auto.choice(KEPT) is None


def test_small_batches_are_weighed_together_and_none_is_lost():
    one, many = Auto(64, "time"), Auto(64, "time")
    for _ in range(200):
        one.inserted(1, 10_000)
    assert one.lost("none") > 0
    many.inserted(1, 10_000)
    assert many.lost("none") == 0
    many.queried(0)
    assert many.lost("none") > 0


def test_the_reason_tells_what_was_lost_and_over_what():
    auto = Auto(64)
    run(auto, ingest, many_keys, times=5)
    assert auto.now != "none"
    assert auto.why.startswith("none has cost ") and "questions" in auto.why


def test_of_cheap_questions_some_stand_for_all():
    """To look at each would cost more than it takes: what is lost comes to the same."""
    every, some = Auto(64, "time"), Auto(64, "time")
    skipped = 0
    for _ in range(1_000):
        every.probed(1, 0, 0, 0, 30_000)
        if some.skips("probe"):
            skipped += 1
        else:
            some.probed(1, 0, 0, 0, 30_000)
    assert skipped > 900
    assert every.questions == some.questions == 1_000
    assert some.lost("none") == pytest.approx(every.lost("none"), rel=0.05)


def test_without_structure_nearly_every_question_is_looked_at():
    """The next one may cost any number of times as much."""
    auto = Auto(64)
    for spent, most in ((30_000, 2), (300_000, 1), (3_000_000, 0)):
        auto.probed(1, 0, 0, 0, spent)
        assert sum(auto.skips("probe") for _ in range(50)) == most
