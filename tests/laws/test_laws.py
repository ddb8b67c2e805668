"""The laws every summary keeps, run over every kind."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import promising.summaries
from promising.errors import (
    BadCount,
    CannotSubtract,
    CorruptSummary,
    Incompatible,
    MixedKeys,
    NotContained,
    PromisingError,
)
from promising.summaries.adt import BOUNDS, Estimate, FrequencySummary, Summary
from promising.summaries.frame import CHECKSUM, checksum, pack, unpack
from tests.laws.cases import CASES, Case, Values, stream
from tests.tiers import examples

STREAMS = 1000


def kinds(which: Callable[[Case], bool]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [case for case in CASES if which(case)], ids=lambda case: case.name)


every_kind = kinds(lambda case: True)
linear_kinds = kinds(lambda case: case.linear)
subtracting_kinds = kinds(lambda case: type(case.build(0)).subtracts)
keyed_kinds = kinds(lambda case: not case.numeric)
columns = st.lists(st.integers(-5, 40), max_size=60)


def of(case: Case, values: Values | list[int], seed: int = 7, other: bool = False) -> Summary:
    summary = case.build(seed, other=other)
    summary.summarize(values)
    return summary


def answers(case: Case, summary: Summary, values: Values) -> list[Estimate]:
    return [summary.estimate(*question) for question in case.ask(values)]


def covered(case: Case, summary: Summary, values: Values) -> list[bool]:
    """Whether the bounds contain the truth, for each question; the order of the three numbers always holds."""
    result = []
    for question in case.ask(values):
        bounds = summary.estimate(*question)
        assert bounds.lower <= bounds.value <= bounds.upper
        result.append(bounds.lower <= case.truth(values, question) <= bounds.upper)
    return result


def test_every_kind_has_a_case():
    assert {type(case.build(0)) for case in CASES} == set(promising.summaries.KINDS.values())


# --- merge equals union ------------------------------------------------------------------------------------------


@every_kind
def test_add_is_union(case: Case):
    """To the bit for linear kinds; for the others the answers on the union lie in their bounds, in 95 % and more."""
    hits: list[bool] = []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        values = np.concatenate((stream(rng), stream(rng)))
        cut = int(rng.integers(values.size))
        merged = of(case, values[:cut], seed)
        merged.add(of(case, values[cut:], seed, other=True))
        assert merged.total == values.size
        if case.linear:
            assert merged.to_bytes() == of(case, values, seed).to_bytes()
        hits += covered(case, merged, values)
    assert np.mean(hits) >= BOUNDS


@every_kind
@given(left=columns, right=columns)
def test_add_commutes_on_anything(case: Case, left: list[int], right: list[int]):
    here, there = of(case, left), of(case, right, other=True)
    before = here.to_bytes()  # of itself: what a quantile sketch lets go of when it is full is up to chance
    one, two = here.copy(), there.copy()
    one.add(there)
    two.add(here)
    assert one.total == two.total == len(left) + len(right)
    if case.linear:
        assert one.to_bytes() == two.to_bytes() == of(case, left + right).to_bytes()
    if one.total and case.name not in ("quantile", "frequent"):  # these two answer within bounds, not the same
        assert answers(case, one, np.array(left + right)) == answers(case, two, np.array(left + right))
    assert here.to_bytes() == before or not case.same_bytes


@every_kind
@given(values=columns, cuts=st.lists(st.integers(0, 60), max_size=4))
def test_batches_do_not_matter(case: Case, values: list[int], cuts: list[int]):
    """Neither does an empty batch, nor whether equal values come one by one or with a count."""
    whole, split, counted = of(case, values), case.build(7), case.build(7)
    for batch in np.split(np.array(values, np.int64), sorted(min(cut, len(values)) for cut in cuts)):
        split.summarize(batch)
    unique, counts = np.unique(np.array(values, np.int64), return_counts=True)
    counted.summarize(unique, counts)
    assert whole.total == split.total == counted.total == len(values)
    if case.linear:
        assert whole.to_bytes() == split.to_bytes() == counted.to_bytes()
    if case.name == "sample":
        assert whole.to_bytes() == split.to_bytes()


@every_kind
def test_add_refuses_what_does_not_fit(case: Case):
    summary = of(case, list(range(50)))
    before = summary.to_bytes()
    others: list[Summary] = [CASES[0].build(7) if case is not CASES[0] else CASES[1].build(7)]
    if case.name != "exact":
        others.append(case.size_change())
    if case.seeded:
        others.append(case.build(8))
    for other in others:
        with pytest.raises(Incompatible) as caught:
            summary.add(other)
        assert repr(summary) in str(caught.value)
        assert repr(other) in str(caught.value)
    assert summary.to_bytes() == before


# --- subtract undoes add -----------------------------------------------------------------------------------------


@every_kind
@given(left=columns, right=columns)
def test_subtract_undoes_add_or_says_it_cannot(case: Case, left: list[int], right: list[int]):
    summary, other = of(case, left), of(case, right, other=True)
    before = summary.to_bytes()
    summary.add(other)
    if type(summary).subtracts:
        summary.subtract(other)
        assert summary.to_bytes() == before
    else:
        both = summary.to_bytes()
        with pytest.raises(CannotSubtract, match="rebuild from children"):
            summary.subtract(other)
        assert summary.to_bytes() == both


@subtracting_kinds
def test_bounds_hold_after_subtract(case: Case):
    """A small difference of two large summaries keeps honest bounds, and they are its own, not those of the large."""
    hits, widths = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        gone, left = stream(rng, 5000), stream(rng, 200)
        summary = of(case, np.concatenate((gone, left)), seed)
        summary.subtract(of(case, gone, seed))
        assert summary.total == 200
        hits += covered(case, summary, left)
        widths += [case.width(left, bounds) for bounds in answers(case, summary, left)]
    assert np.mean(hits) >= BOUNDS
    assert np.mean(widths) <= case.widest


@subtracting_kinds
def test_more_than_there_is_cannot_be_taken(case: Case):
    summary, more = of(case, [1, 2, 3]), of(case, [1, 2, 3, 4])
    before = summary.to_bytes()
    with pytest.raises(NotContained, match="cannot take"):
        summary.subtract(more)
    assert summary.to_bytes() == before


# --- bounds ------------------------------------------------------------------------------------------------------


@every_kind
def test_bounds_hold_and_are_not_absurdly_wide(case: Case):
    """Over 1,000 seeded streams; each shape of stream and each question counts for itself."""
    widths: list[float] = []
    table: list[list[bool]] = []
    for seed in range(STREAMS):
        values = stream(np.random.default_rng(seed))
        summary = of(case, values, seed)
        table.append(covered(case, summary, values))
        widths += [case.width(values, bounds) for bounds in answers(case, summary, values)]
    hits = np.array(table, float)
    assert hits.mean() >= BOUNDS
    assert hits.mean(axis=0).min() >= BOUNDS, "one of the questions is answered worse than the others"
    assert np.mean(widths) <= case.widest


@every_kind
@given(values=columns)
def test_answers_are_possible(case: Case, values: list[int]):
    """Whatever came in: the confidence is a chance, the bounds are in order, and no count is below 0 or above total."""
    summary = of(case, values)
    assert 0.0 <= summary.confidence() <= 1.0
    if not values:
        assert summary.confidence() == 1.0
    if values or case.name not in ("quantile",):
        for bounds in answers(case, summary, np.array(values or [1, 2, 3, 4, 5])):
            assert bounds.lower <= bounds.value <= bounds.upper
            if case.name != "quantile":
                assert bounds.lower >= 0 and bounds.upper <= len(values)


@every_kind
def test_confidence_is_kept(case: Case):
    """Answers are within 5 % of the whole at least as often as the summaries say."""
    promised, kept = [], []
    for seed in range(200):
        values = stream(np.random.default_rng(seed))
        summary = of(case, values, seed)
        promised.append(summary.confidence())
        for question in case.ask(values):
            value, truth = summary.estimate(*question).value, case.truth(values, question)
            if case.name == "quantile":
                rank = question[0]
                off = max((values < value).mean() - rank, rank - (values <= value).mean(), 0.0)
            else:
                off = abs(value - truth) / (truth if case.name == "distinct" else values.size)
            kept.append(off <= promising.summaries.TOLERANCE)
    assert np.mean(kept) >= np.mean(promised) - 0.02


@kinds(lambda case: isinstance(case.build(0), FrequencySummary))
@given(values=columns)
def test_one_and_many_questions_agree(case: Case, values: list[int]):
    summary = of(case, values)
    assert isinstance(summary, FrequencySummary)
    keys = list(range(-6, 42))
    rows = zip(*summary.estimates(keys), strict=True)
    assert [summary.estimate(key) for key in keys] == [Estimate(*map(float, row)) for row in rows]
    assert [column.size for column in summary.estimates([])] == [0, 0, 0]


@keyed_kinds
@given(left=st.lists(st.text(max_size=40), max_size=30), right=st.lists(st.text(max_size=40), max_size=30))
def test_strings_are_keys_too(case: Case, left: list[str], right: list[str]):
    summary, other = case.build(7), case.build(7, other=True)
    summary.summarize(left)
    other.summarize(right)
    summary.add(other)
    assert summary.total == len(left) + len(right)
    again = promising.summaries.from_bytes(summary.to_bytes())
    for question in [()] if case.name == "distinct" else [(key,) for key in (*left, *right, "absent \0")]:
        assert again.estimate(*question) == summary.estimate(*question)
    if case.linear:
        whole = case.build(7)
        whole.summarize(np.array(left + right, object))
        assert whole.to_bytes() == summary.to_bytes()


@kinds(lambda case: case.name in ("exact", "sample", "frequent"))
def test_strings_and_integers_do_not_meet(case: Case):
    numbers, words = of(case, [1, 2]), case.build(7, other=True)
    words.summarize(["1", "2"])
    for refused in (lambda: numbers.summarize(["1"]), lambda: numbers.add(words), lambda: words.add(numbers)):
        with pytest.raises(MixedKeys):
            refused()
    assert numbers.total == words.total == 2
    assert numbers.estimate("1").upper == 0


# --- what cannot be taken in -------------------------------------------------------------------------------------


@every_kind
@pytest.mark.parametrize(
    ("values", "counts"),
    [
        ([1, None], None),
        ([1.0, float("nan")], None),
        ([True, False], None),
        (["a", 1], None),
        ([[1, 2], [3, 4]], None),
        (np.zeros((2, 2), np.int64), None),
        (7, None),
        ([1, 2], [1]),
        ([1, 2], [1, -1]),
        ([1, 2], [0.5, 0.5]),
        ([1, 2], [True, False]),
        ([1, 2], [1 << 61, (1 << 61) + (1 << 12)]),
    ],
)
def test_bad_input_changes_nothing(case: Case, values: object, counts: object):
    summary = of(case, [1, 2, 3])
    before = summary.to_bytes()
    with pytest.raises(PromisingError):
        summary.summarize(values, counts)
    assert summary.to_bytes() == before
    assert summary.total == 3


@every_kind
def test_nothing_in_changes_nothing(case: Case):
    summary = of(case, [1, 2, 3])
    before = summary.to_bytes()
    summary.summarize([])
    summary.summarize(np.empty(0, np.int64))
    summary.summarize(np.empty(0))
    summary.summarize([8, 9], [0, 0])
    assert summary.to_bytes() == before


@linear_kinds
def test_more_than_fits_is_refused(case: Case):
    """Counters never wrap: neither by a batch nor by adding."""
    summary = case.build(7)
    summary.summarize([1], [1 << 61])
    other = summary.copy()
    summary.add(other)
    assert summary.total == 1 << 62
    with pytest.raises(BadCount):
        summary.add(other)
    assert summary.total == 1 << 62
    assert summary.copy().to_bytes() == summary.to_bytes()


@every_kind
def test_adding_itself_doubles(case: Case):
    summary = of(case, list(range(40)) * 3)
    if case.name == "sample":
        with pytest.raises(Incompatible, match="seed of its own"):
            summary.add(summary)
        return
    summary.add(summary)
    assert summary.total == 240


# --- bytes -------------------------------------------------------------------------------------------------------


@every_kind
@given(values=columns)
def test_bytes_round_trip(case: Case, values: list[int]):
    summary = of(case, values)
    data = summary.to_bytes()
    again = promising.summaries.from_bytes(data)
    assert type(again) is type(summary)
    assert repr(again) == repr(summary)
    if case.same_bytes:
        assert again.to_bytes() == data
    assert again.confidence() == summary.confidence()
    if values:
        assert answers(case, again, np.array(values)) == answers(case, summary, np.array(values))


@every_kind
def test_a_large_one_round_trips_and_lives_on(case: Case):
    values = stream(np.random.default_rng(1), 5000)
    summary = of(case, values)
    again = type(summary).from_bytes(summary.to_bytes())
    assert answers(case, again, values) == answers(case, summary, values)
    for each in (summary, again):
        each.summarize([1, 1, 2])
    if case.linear or case.name == "sample":
        assert again.to_bytes() == summary.to_bytes()
    assert again.total == 5003


@every_kind
def test_damaged_bytes_are_refused(case: Case):
    """Every byte changed, every tail cut off, anything appended, the empty string."""
    data = of(case, stream(np.random.default_rng(1), 200)).to_bytes()
    for at in range(len(data)):
        for change in (0x01, 0x80, 0xFF):
            with pytest.raises(CorruptSummary):
                promising.summaries.from_bytes(data[:at] + bytes([data[at] ^ change]) + data[at + 1 :])
        with pytest.raises(CorruptSummary):
            promising.summaries.from_bytes(data[:at])
    for tail in (b"\0", data):
        with pytest.raises(CorruptSummary):
            promising.summaries.from_bytes(data + tail)


@every_kind
def test_well_framed_nonsense_is_refused(case: Case):
    """Another version, an unknown kind, another kind's bytes, a payload cut or grown, each under a fitting checksum."""
    data = of(case, [1, 2, 3]).to_bytes()
    kind, payload = unpack(data)
    newer = data[:4] + b"\x02\x00" + data[6:-CHECKSUM]
    with pytest.raises(CorruptSummary, match="version 2"):
        promising.summaries.from_bytes(newer + checksum(newer))
    longer = data[:-CHECKSUM] + b"\0"
    with pytest.raises(CorruptSummary, match="bytes, there are"):
        promising.summaries.from_bytes(longer + checksum(longer))
    with pytest.raises(CorruptSummary, match="unknown kind"):
        promising.summaries.from_bytes(pack("tea-leaves", payload))
    for cls in promising.summaries.KINDS.values():
        if cls.kind != kind:
            with pytest.raises(CorruptSummary, match=f"bytes of a '{kind}' summary"):
                cls.from_bytes(data)
    for nonsense in (b"", payload[:-1], payload + b"\0", payload[8:], b"\xff" * len(payload)):
        with pytest.raises(CorruptSummary):
            promising.summaries.from_bytes(pack(kind, nonsense))


@kinds(lambda case: case.linear or case.name == "sample")
@settings(max_examples=examples(300))
@given(at=st.integers(0, 10_000), word=st.integers(-(1 << 63), (1 << 63) - 1))
def test_forged_payloads_are_refused_or_consistent(case: Case, at: int, word: int):
    """Any 8 bytes of the payload replaced, under a fitting checksum: what is accepted still answers possibly."""
    values = list(range(30)) * 3
    kind, payload = unpack(of(case, values).to_bytes())
    start = at % (len(payload) // 8) * 8
    forged = payload[:start] + word.to_bytes(8, "little", signed=True) + payload[start + 8 :]
    try:
        summary = promising.summaries.from_bytes(pack(kind, forged))
    except CorruptSummary:
        return
    assert 0.0 <= summary.confidence() <= 1.0
    for bounds in answers(case, summary, np.array(values)):
        assert 0 <= bounds.lower <= bounds.value <= bounds.upper <= summary.total
