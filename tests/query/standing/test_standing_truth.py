"""At every watermark that a client is given, its view is what the oracle says: in every mode, with late tuples, tables
that change, clients that come late, sleep or lose their connection, and processes that end.

`python -m tests.query.standing.truth` does the same for as long as one likes; a life that fails here is
`--seed N --mode M --lives 1` there.
"""

import pytest

from promising.query.standing.deltas import Mode
from tests.query.standing.life import Life
from tests.query.standing.truth import Sum, life_of, live

MODES = list(Mode)
LIVES = 8
TICKS = 25


@pytest.mark.deep("many random lives of standing queries")
@pytest.mark.parametrize("mode", MODES)
def test_every_view_is_true_at_every_watermark(mode: Mode):
    seen = Sum()
    for seed in range(LIVES):
        seen.add(_told(seed, mode, ticks=TICKS))
    assert seen.watermarks > 120
    assert seen.full > seen.watermarks / (5 if mode is Mode.ITA else 2)
    assert seen.resumed > 1


@pytest.mark.deep("many random lives of standing queries")
@pytest.mark.parametrize("mode", [Mode.PIGGYBACK, Mode.NTA])
def test_views_outlive_the_process(mode: Mode):
    seen = Sum()
    for seed in range(4):
        seen.add(_told(f"again {seed}", mode, ticks=TICKS, durable=True))
    assert seen.restarts > 4
    assert seen.survived > 1


@pytest.mark.deep("many random lives of standing queries")
def test_with_a_budget_a_view_is_a_part_of_the_truth():
    seen = Sum()
    for seed in range(8):
        seen.add(_told(seed, Mode.PIGGYBACK, ticks=TICKS, budget=True))
    assert seen.watermarks > 100
    assert seen.partial


def _told(seed: int | str, mode: Mode, **how: object) -> Life:
    setting, events = life_of(seed, mode, **how)  # type: ignore[arg-type]  # by name
    try:
        return live(setting, events)
    except Exception as problem:
        problem.add_note(f"python -m tests.query.standing.truth --seed {seed} --mode {mode} --lives 1 --small")
        raise
