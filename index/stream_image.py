"""A stream to disk and back: the tree of arrays that it is saved as, and the definitions of its summaries."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from promising.index.ledger import Ledger
from promising.index.log import TupleLog
from promising.index.options import AUTO, Options
from promising.index.stream_summaries import StreamSummaries
from promising.index.summary import Identity
from promising.index.summary_index import SummaryIndex

Image = dict[str, Any]


def definition(identity: Identity, options: Options, now: bool = False) -> dict[str, Any]:
    """How a summary was made: all that it takes to make it again.

    now: one that chooses its structure is defined as if it had been made with the one it has.
    """
    geometry = identity.geometry
    return {
        "name": identity.name,
        "key": identity.key,
        "granularity": geometry.granularity,
        "collapse": [geometry.rate, geometry.depth],
        "structure": AUTO if identity.auto and not now else identity.sizes.structure,
        "options": asdict(options),
    }


def definitions(summaries: Iterable[SummaryIndex], now: bool = False) -> list[dict[str, Any]]:
    """`definition` of each."""
    return [definition(summary.state.identity, summary.options, now) for summary in summaries]


def creation(made: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `Stream.create_summary` for a summary of that definition."""
    given = {name: made[name] for name in ("name", "key", "granularity", "structure")}
    return {**given, "collapse": tuple(made["collapse"]), "options": Options(**made["options"])}


def stream_image(figures: Image, ledger: Ledger, log: TupleLog, summaries: Iterable[SummaryIndex]) -> Image:
    """All there is to know of a stream, as a tree of arrays; of cold tuples only where they are."""
    return {**figures, "ledger": ledger.image(), "log": log.image(), "summaries": [_image(s) for s in summaries]}


def _image(summary: SummaryIndex) -> Image:
    state, auto = summary.state, summary.auto
    chosen = {} if auto is None else {"now": summary.structure, "why": auto.why}
    return {**definition(state.identity, summary.options), **chosen, **state.image()}


def restore(image: Image, ledger: Ledger, log: TupleLog, summaries: StreamSummaries) -> None:
    """Ledger, log and summaries, which are new, become what the image has of them."""
    ledger.restore(image["ledger"])
    log.restore(image["log"])
    for saved in image["summaries"]:
        identity, options = summaries.builder.defined(saved)
        state = summaries.builder.empty(identity, options)
        state.restore(saved)
        summaries.add(state, options).reason(saved.get("why"))
