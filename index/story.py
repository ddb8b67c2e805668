"""The history of a zone in words: where it is, why it begins and ends there, what it absorbed, what is next."""

from promising.index.fine import Block
from promising.index.geometry import Geometry
from promising.index.kernels.open_zone import WINDOW
from promising.index.regions import Absorbed, Story, ZoneInfo, cutting_in_words
from promising.index.summary import SummaryState
from promising.index.time_text import instant, readable
from promising.index.zone import TAKEN, CoarseZone, FineZone

CUT = {
    "error": "cut for error",
    "behaviour": "cut where behaviour changed",
    "maxlength": "full",
    "boundary": "ended with a block",
    "late": "of late tuples",
}


def leaves(geometry: Geometry, granularity: int, start: int) -> int:
    """The watermark at which a zone of `G_i` that begins at `start` leaves it; for `G_1`, `start` is of its block.

    >>> leaves(Geometry(granularity=60, rate=4, depth=3), 1, 1920)
    2040
    """
    if granularity == geometry.levels:
        assert geometry.keep is not None, "it never does"
        return start + geometry.zone_length(granularity) + geometry.keep
    span, reach = geometry.spans[granularity - 1], geometry.reaches[granularity - 1]
    return (start // span + 1) * span + reach


def many(count: int, what: str) -> str:
    """
    >>> many(1, "tuple"), many(1200, "zone")
    ('1 tuple', '1,200 zones')
    """
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def tell(state: SummaryState, zone: ZoneInfo) -> Story:
    if zone.granularity > 1:
        coarse = state.coarse.levels[zone.granularity][zone.zone]
        absorbed = tuple(
            Absorbed(reason, int(zones), int(tuples))
            for reason, (zones, tuples) in zip(TAKEN, coarse.taken, strict=True)
            if tuples
        )
        lines = (*_calendar(state, zone, coarse), *_took(absorbed), _next(state, zone, zone.start))
        return Story(zone, lines, absorbed)
    length = state.identity.geometry.granularity
    title = (
        f"Zone {zone.zone} of G_1, the finest granularity: {many(zone.tuples, 'tuple')} from {instant(zone.start)}"
        f" to {instant(zone.end - 1)}."
    )
    if zone.reason == "ahead":
        return Story(zone, (title, _ahead(state)))
    block = state.fine.blocks[zone.start // length]
    return Story(
        zone,
        (
            title,
            _block(state, block),
            _begins(state, block, zone),
            _ends(state, block, zone),
            _next(state, zone, block.whole.start),
        ),
    )


def _ahead(state: SummaryState) -> str:
    return (
        f"They are ahead of the watermark: tuples from {instant(state.fine.limit)} on belong to no block yet, and get"
        " their zones when the watermark is there."
    )


# --- zones of G_1 ------------------------------------------------------------------------------------------------


def _block(state: SummaryState, block: Block) -> str:
    length = state.identity.geometry.granularity
    zones = len(block.zones) + bool(block.aside) + (block is state.fine.open_block and len(state.fine.open_rows) > 0)
    start = block.whole.start
    only = "It is the only zone" if zones == 1 else f"It is one of {zones} zones"
    return f"{only} of its block, {instant(start)} to {instant(start + length)}: a block is T_1 = {readable(length)}."


def _begins(state: SummaryState, block: Block, zone: ZoneInfo) -> str:
    own = next((z for z in block.zones if z.number == zone.zone), None)
    if zone.reason == "late" or (own is not None and own.late):
        return "It consists of late tuples, which arrived after their block had been closed."
    before = [z for z in block.zones if not z.late and z.number < zone.zone]
    if before:
        return f"It begins where zone {before[-1].number} was cut: {_reason(state, before[-1])}."
    earlier = [
        z for b in state.fine.blocks.values() if b.whole.start < block.whole.start for z in b.zones if not z.late
    ]
    if earlier:
        return f"It begins with its block. Zone {earlier[-1].number} before it had ended with the block before."
    return "It begins with its block; nothing of the block before it is in G_1."


def _reason(state: SummaryState, zone: FineZone) -> str:
    """Why a sealed zone ends where it does, after "because"."""
    options, length = state.options, state.identity.geometry.granularity
    if zone.reason == "error":
        now = state.fine.pool.kind.error(state.fine.pool.counts, zone.slot)
        said = "" if now is None else f" (by its sketches it is {now:.3g})"
        return (
            "the standard error of its estimates, or of those of an earlier zone of its length, had passed the"
            f" tolerance of {many_tuples(options.tolerance)}{said}"
        )
    if zone.reason == "behaviour":
        return (
            f"behaviour changed: the {WINDOW} tuples after it differ from the last ones before by more than chance"
            f" explains, and by more than effect = {options.effect:g} of their own spread"
        )
    if zone.reason == "maxlength":
        return f"it was full, with maxlength = {many(options.maxlength, 'tuple')}"
    end = (zone.first // length + 1) * length
    return f"its block of T_1 = {readable(length)} ended at {instant(end)} and a tuple of a later block had arrived"


def many_tuples(count: float) -> str:
    """
    >>> many_tuples(1.0), many_tuples(2.5)
    ('1 tuple', '2.5 tuples')
    """
    return f"{count:g} tuple" + ("" if count == 1 else "s")


def _ends(state: SummaryState, block: Block, zone: ZoneInfo) -> str:
    full = f"maxlength = {many(state.options.maxlength, 'tuple')}"
    if zone.reason == "open":
        return _open(state, block, full)
    if zone.reason == "late":
        return f"They wait: {full} of them would make a sealed zone, fewer join the block when it collapses."
    own = next(z for z in block.zones if z.number == zone.zone)
    return f"It ends because {_reason(state, own)}."


def _open(state: SummaryState, block: Block, full: str) -> str:
    options, length = state.options, state.identity.geometry.granularity
    ends, remark = [f"it has {full}"], ""
    if state.fine.watched:
        ends.append(f"the standard error of its estimates passes the tolerance of {many_tuples(options.tolerance)}")
        ends.append("it is as long as the last one whose error did")
        ends.append(f"behaviour jumps by more than effect = {options.effect:g}")
        remark = f" So far {cutting}." if (cutting := cutting_in_words("adaptive", state.fine.cuts)) else ""
    elif state.identity.sizes.structure == "adaptive":
        remark = " Half of the zones that fit are in use, so it is not cut for error or behaviour until some collapse."
    ends.append(f"a tuple from {instant(block.whole.start + length)} on arrives, the end of its block")
    return f"It is open and accepts new tuples. It ends when {', '.join(ends[:-1])}, or {ends[-1]}.{remark}"


# --- zones of G_2..G_m -------------------------------------------------------------------------------------------


def _calendar(state: SummaryState, zone: ZoneInfo, coarse: CoarseZone) -> tuple[str, str]:
    g, length = zone.granularity, state.identity.geometry.zone_length(zone.granularity)
    stretch, seen = (
        f"{instant(zone.start)} to {instant(zone.end)}",
        f"{instant(coarse.first)} to {instant(coarse.last)}",
    )
    return (
        f"Zone {zone.zone} of G_{g}, {stretch}: {many(zone.tuples, 'tuple')}, seen from {seen}.",
        f"It begins and ends by the calendar: zones of G_{g} are T_{g - 1} = {readable(length)} long, end to end.",
    )


def _took(absorbed: tuple[Absorbed, ...]) -> tuple[str, ...]:
    """The finer zones it absorbed, and late tuples."""
    out = []
    cut = [a for a in absorbed if a.reason != "late"]
    if cut:
        zones, tuples = sum(a.zones for a in cut), sum(a.tuples for a in cut)
        each = ", ".join(f"{a.zones:,} {CUT[a.reason]} ({many(a.tuples, 'tuple')})" for a in cut)
        out.append(f"It took in {many(zones, 'zone')} of G_1 with {many(tuples, 'tuple')}: {each}.")
    for late in (a for a in absorbed if a.reason == "late"):
        out.append(
            f"{many(late.tuples, 'tuple')} arrived late: after their block of T_1 had been closed, or when their time"
            " had left G_1 already."
        )
    return tuple(out)


# --- outlook -----------------------------------------------------------------------------------------------------


def _next(state: SummaryState, zone: ZoneInfo, start: int) -> str:
    geometry, g = state.identity.geometry, zone.granularity
    now = "" if state.watermark is None else f" The watermark is at {instant(state.watermark)}."
    if g == geometry.levels:
        if geometry.keep is None:
            return f"It is retained.{now}"
        at = leaves(geometry, g, start)
        return (
            f"It is removed when the watermark reaches {instant(at)}: the stream keeps {readable(geometry.keep)}.{now}"
        )
    at = leaves(geometry, g, start)
    sums = " + ".join(f"T_{i}" for i in range(1, g + 1))
    rule = (
        f"when the watermark reaches {instant(at)}: then the horizon of G_{g} ({sums} ="
        f" {readable(geometry.reaches[g - 1])} back, in steps of T_{g}) has passed it"
    )
    into = start // geometry.zone_length(g + 1)
    return f"It collapses into zone {into} of G_{g + 1} {rule}.{now}"
