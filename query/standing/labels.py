"""Update-pattern labels: the order in which the results of each part of a plan expire.

An operator's label depends on its inputs. Labels choose the store of a view and the variant of `distinct`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from promising.query.standing import plan
from promising.query.standing.deltas import Mode


class Label(StrEnum):
    """Update patterns; each permits everything that the previous ones do."""

    MON = "monotonic"  # nothing expires
    WKS = "weakest"  # results expire in the order of insertion
    WK = "weak"  # results expire in another order, each at its known time or when its group's next value arrives
    STR = "strict"  # some results are retracted before their expiry


@dataclass(frozen=True)
class Edge:
    """The output of one operator, to its parent or to the view."""

    depth: int
    text: str
    label: Label
    store: str  # the view at the root, else the parent's state; empty if nothing is stored
    note: str = ""  # the reason for the label, where the operator decides it


def label(query: plan.Query | plan.Body) -> Label:
    """The update pattern of a query or of a part of one."""
    if isinstance(query, plan.Window):
        return Label.MON if query.length is None else Label.WKS
    if isinstance(query, plan.TableJoin):
        return Label.STR if query.table.retroactive else label(query.window)
    if isinstance(query, plan.Join):
        return _stateful(label(query.left), label(query.right))
    if isinstance(query, plan.Exists):
        # Without a partner, a tuple is retracted when one arrives. With partners, it expires with the last of them;
        # that time is unknown at first, but it only grows.
        return Label.STR if query.negated else _stateful(label(query.left), label(query.right))
    if isinstance(query, plan.StandingSelect):
        return _select(query)[0]
    left, right = label(query.left), label(query.right)
    if query.operator == "except":
        return Label.STR
    if query.operator == "union" and query.all:
        return _merged(query, left, right)
    if _replaced(query.left) or _replaced(query.right):
        return Label.STR
    return _stateful(left, right)


def labelled(standing: plan.Standing, mode: Mode = Mode.PIGGYBACK) -> list[Edge]:
    """Every edge of the plan in preorder."""
    return list(_edges(standing.root, 0, view_store(standing.root, mode), standing.names))


def retracts(query: plan.Query) -> bool:
    """Whether results may be retracted before their expiry, or replaced."""
    return label(query) is Label.STR or _replaced(query)


def store_name(found: Label, mode: Mode, retractions: bool) -> str:
    """The store of a view with this label. retractions: see `retracts`."""
    if mode is Mode.NTA:
        return "hash"  # every expiry is reported
    if found is Label.STR:
        return "indexed calendar"
    if retractions:
        return "hash"  # of groups: each expiry is a retraction
    return "calendar" if found is Label.WK else "ring"


def view_store(query: plan.Query, mode: Mode) -> str:
    return store_name(label(query), mode, retracts(query))


# --- the rules ---------------------------------------------------------------------------------------------------


def _stateful(*inputs: Label) -> Label:
    return Label.STR if Label.STR in inputs else Label.WK


def _select(query: plan.StandingSelect) -> tuple[Label, Label, Label]:
    """Labels of a SELECT, of the SELECT before DISTINCT, and of its input."""
    body = label(query.body)
    rows = Label.WK if query.grouped else body
    if not query.distinct:
        return rows, rows, body
    return (Label.STR if query.grouped else _stateful(rows)), rows, body


def _replaced(query: plan.Query) -> bool:
    """Whether results are values of groups, which new ones replace: the operators above see retractions."""
    if isinstance(query, plan.SetOperation):
        return query.operator == "union" and query.all and (_replaced(query.left) or _replaced(query.right))
    return query.grouped and not query.distinct


def _merged(query: plan.SetOperation, left: Label, right: Label) -> Label:
    inputs = {left, right}
    if Label.STR in inputs or _replaced(query):
        return Label.STR
    if Label.WK in inputs or len(lengths(query)) > 1:
        return Label.WK
    return inputs.pop()


def lengths(query: plan.Query) -> set[int | None]:
    return {window.length for window in plan.windows(query)}


# --- as text -----------------------------------------------------------------------------------------------------


def _edges(query: plan.Query, depth: int, store: str, names: tuple[str, ...]) -> Iterator[Edge]:
    if isinstance(query, plan.SetOperation):
        found = label(query)
        yield Edge(depth, query.operator.upper() + (" ALL" if query.all else ""), found, store, _set_note(query, found))
        # UNION ALL stores nothing.
        kept = "" if query.operator == "union" and query.all else "keyed calendar"
        for side in (query.left, query.right):
            yield from _edges(side, depth + 1, kept, names)
        return
    top, rows, body = _select(query)
    if query.distinct:
        star = not query.grouped and rows is not Label.STR
        note = "a value stays for its latest end" if star else "a value may go with a row that is retracted"
        yield Edge(depth, "DISTINCT" if not star else "DISTINCT, two rows a value at most", top, store, note)
        depth, store = depth + 1, "" if star else "keyed calendar"
    if query.grouped:
        keys = f"GROUP BY of {_many(len(query.keys), 'key')}" if query.keys else "one group"
        functions = ", ".join(aggregate.function for aggregate in query.aggregates)
        yield Edge(depth, f"{keys}{': ' if functions else ''}{functions}", rows, store, "a new value replaces the old")
        depth, store = depth + 1, "keyed calendar"
    else:
        shown = ", ".join(names) if len(names) <= 8 else f"{', '.join(names[:8])}, ..."
        yield Edge(depth, f"project {shown}", body, store)
        depth, store = depth + 1, ""
    yield from _body_edges(query.body, depth, store)


def _body_edges(body: plan.Body, depth: int, store: str) -> Iterator[Edge]:
    found = label(body)
    kept = "keyed calendar"
    if isinstance(body, plan.Window):
        yield Edge(depth, _window_text(body), found, store, "all there ever were" if body.length is None else "")
    elif isinstance(body, plan.Join):
        text = f"join on {_many(len(body.keys), 'equality', 'equalities')}"
        if body.residual:
            text += f" and {_many(len(body.residual), 'condition')}"
        yield Edge(depth, text, found, store, "a pair ends with the first of its two")
        for side in (body.left, body.right):
            yield from _body_edges(side, depth + 1, kept)
    elif isinstance(body, plan.TableJoin):
        retroactive = body.table.retroactive
        text = f"join with the {'' if retroactive else 'NON '}RETROACTIVE table {body.table.name} by {body.table.key}"
        note = (
            "a change of the table changes what was joined" if retroactive else "as the stream: what was joined stays"
        )
        yield Edge(depth, text, found, store, note)
        yield from _body_edges(body.window, depth + 1, kept if retroactive else "")
    else:
        text = f"{'NOT ' if body.negated else ''}EXISTS on {_many(len(body.keys), 'equality', 'equalities')}"
        note = "a tuple leaves when a partner arrives" if body.negated else "a tuple ends with the last of its partners"
        yield Edge(depth, text, found, store, note)
        yield from _body_edges(body.left, depth + 1, kept)
        yield from _body_edges(body.right, depth + 1, kept)


def _set_note(query: plan.SetOperation, found: Label) -> str:
    if query.operator == "except":
        return "a row on the right takes one on the left back"
    if found is Label.STR:
        return "what is retracted or replaced below is retracted here"
    if query.operator == "union" and query.all:
        return "windows of unequal length" if found is Label.WK and len(lengths(query)) > 1 else ""
    return (
        "a pair ends with the first of its two" if query.operator == "intersect" else "a row stays for its latest end"
    )


def _window_text(window: plan.Window) -> str:
    name = window.stream.name
    text = name if window.alias.lower() in ("", name.lower()) else f"{name} {window.alias}"
    if window.length is not None:
        text += f", the last {window.length / 1e6:g} s"
    return text + (f", {_many(len(window.predicates), 'condition')}" if window.predicates else "")


def _many(count: int, one: str, more: str | None = None) -> str:
    return f"{count} {one if count == 1 else more or one + 's'}"
