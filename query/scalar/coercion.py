"""Type coercion: integers widen to floats, NULL takes any type, string literals are parsed."""

from collections.abc import Sequence

from promising.errors import TypeMismatch
from promising.query.scalar.casts import read_literal, widen
from promising.query.scalar.compiled import Compiled, apply, literal, value_of
from promising.query.scalar.positions import Place
from promising.query.scalar.types import NAMES, Kind


def to_kind(part: Compiled, kind: Kind) -> Compiled:
    """`part` as that type, which it has or widens to."""
    if part.kind == kind:
        return part
    if part.kind == "null":
        return literal(None, kind)
    assert part.kind == "int" and kind == "float"
    if (value := value_of(part)) is not None:
        return literal(None if not value.is_valid else float(value.as_py()), kind)
    return apply("float", [part], widen)


def unify(parts: Sequence[Compiled], verb: str, place: Place) -> tuple[Kind, list[Compiled]]:
    """The parts coerced to one type. `verb` describes the operation in the error message."""
    kinds: list[Kind] = []
    for part in parts:
        if part.kind != "null" and part.text is None and part.kind not in kinds:
            kinds.append(part.kind)
    if not kinds:
        kind: Kind = "null" if all(part.kind == "null" for part in parts) else "string"
    elif len(kinds) == 1:
        kind = kinds[0]
    elif set(kinds) == {"int", "float"}:
        kind = "float"
    else:
        raise place.error(TypeMismatch, f"cannot {verb} {NAMES[kinds[0]]} and {NAMES[kinds[1]]}")
    return kind, [read(part, kind, place) if part.text is not None else to_kind(part, kind) for part in parts]


def read(part: Compiled, kind: Kind, place: Place) -> Compiled:
    if kind == "string" or part.text is None:
        return part
    value = read_literal(part.text, kind)
    if value is None:
        raise place.error(TypeMismatch, f"{part.text!r} is not {NAMES[kind]}")
    return literal(value, kind)
