"""OPTIONS of a statement."""

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from promising.errors import BadClause
from promising.query.scalar.positions import offset_of
from promising.query.scalar.scope import suggest

SWITCH = {"on": True, "off": False}


def read_options(node: exp.Expression, known: Mapping[str, type], sql: str) -> dict[str, Any]:
    """The options of a statement, each once and of the known type: a number, or on or off."""
    out: dict[str, Any] = {}
    for option in node.args.get("options") or []:
        name = option.this.name.lower()
        if name not in known:
            hint = suggest(name, known) or f"; there are {', '.join(known)}"
            raise BadClause(f"no option {option.this.name!r}{hint}", sql, offset_of(option.this))
        if name in out:
            raise BadClause(f"option {name} is given twice", sql, offset_of(option.this))
        value = option.args["value"]
        if known[name] is bool:
            out[name] = _switch(option, sql)
            continue
        negative = isinstance(value, exp.Neg)
        literal = value.this if negative else value
        try:
            if not isinstance(literal, exp.Literal) or literal.is_string:
                raise ValueError
            out[name] = known[name](literal.this) * (-1 if negative else 1)
        except ValueError:
            kind = "whole number" if known[name] is int else "number"
            raise BadClause(f"option {name} takes a {kind}", sql, offset_of(option.this)) from None
    return out


def _switch(option: exp.Expression, sql: str) -> bool:
    value = option.args["value"]
    word = value.name.lower() if isinstance(value, exp.Var) else ""
    if word not in SWITCH:
        raise BadClause(f"option {option.this.name} is on or off", sql, offset_of(option.this))
    return SWITCH[word]
