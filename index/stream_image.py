"""The image of a stream: a tree of arrays, and the definitions of its summaries."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from promising.index.ledger import Ledger
from promising.index.log import TupleLog
from promising.index.options import AUTO, Options
from promising.index.stream_summaries import StreamSummaries
from promising.index.summary import Identity
from promising.index.summary_index import SummaryIndex
from promising.summaries.counts import USUAL

Image = dict[str, Any]


def definition(identity: Identity, options: Options, now: bool = False) -> dict[str, Any]:
    """The definition of a summary, to recreate it. now: with the current structure, if it chooses it."""
    geometry = identity.geometry
    return {
        "name": identity.name,
        "key": identity.key,
        "granularity": geometry.granularity,
        "collapse": [geometry.rate, geometry.depth],
        "structure": AUTO if identity.auto and not now else identity.sizes.structure,
        "options": asdict(options),
        "keep": geometry.keep,
        "measures": [str(kind.measure) for kind in identity.kinds],
        **({} if identity.using == USUAL else {"using": identity.using}),
    }


def definitions(summaries: Iterable[SummaryIndex], now: bool = False) -> list[dict[str, Any]]:
    return [definition(summary.state.identity, summary.options, now) for summary in summaries]


def creation(made: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `Stream.create_summary` for a definition."""
    given = {name: made[name] for name in ("name", "key", "granularity", "structure")}
    measures = tuple(made.get("measures", ()))  # absent in old definitions
    more = {"measures": measures, "using": made.get("using", USUAL)}
    return {**given, "collapse": tuple(made["collapse"]), "options": Options(**made["options"]), **more}


def stream_image(figures: Image, ledger: Ledger, log: TupleLog, summaries: StreamSummaries) -> Image:
    """The state of a stream as a tree of arrays; of cold tuples only their location."""
    parts = {"ladder": summaries.ladder, "extremes": summaries.extremes}
    more = {name: part.image() for name, part in parts.items() if part is not None}
    of = [_image(summary) for summary in summaries.by_name.values()]
    return {**figures, "ledger": ledger.image(), "log": log.image(), "summaries": of, **more}


def _image(summary: SummaryIndex) -> Image:
    state, auto = summary.state, summary.auto
    chosen = {} if auto is None else {"now": summary.structure, "why": auto.why}
    return {**definition(state.identity, summary.options), **chosen, **state.image()}


def restore(image: Image, ledger: Ledger, log: TupleLog, summaries: StreamSummaries) -> None:
    """Restore a new ledger, log and summaries from the image."""
    ledger.restore(image["ledger"])
    log.restore(image["log"])
    for saved in image["summaries"]:
        identity, options = summaries.builder.defined(saved)
        state = summaries.builder.empty(identity, options)
        state.restore(saved)
        summaries.add(state, options).reason(saved.get("why"))
    if summaries.ladder is not None:
        summaries.ladder.restore(image.get("ladder"))  # absent in old images
    if summaries.extremes is not None:
        summaries.extremes.restore(image.get("extremes"))  # likewise
