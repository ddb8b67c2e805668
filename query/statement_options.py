"""OPTIONS of a statement."""

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from promising.errors import BadClause
from promising.query.scalar.positions import offset_of
from promising.query.scalar.scope import suggest


def read_options(node: exp.Expression, known: Mapping[str, type], sql: str) -> dict[str, Any]:
    """The options of a statement, each once and a number of the known type."""
    out: dict[str, Any] = {}
    for option in node.args.get("options") or []:
        name = option.this.name.lower()
        if name not in known:
            hint = suggest(name, known) or f"; there are {', '.join(known)}"
            raise BadClause(f"no option {option.this.name!r}{hint}", sql, offset_of(option.this))
        if name in out:
            raise BadClause(f"option {name} is given twice", sql, offset_of(option.this))
        value = option.args["value"]
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
