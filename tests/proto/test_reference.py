"""docs/reference/grpc.md says what the code does, name by name."""

import re
from pathlib import Path

from promising import wire_errors
from promising.server.access import METHODS
from promising.settings import Limits

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/grpc.md").read_text(encoding="utf-8")
NAME = re.compile(r"`([A-Z_]+)`")


def rows(columns: str) -> list[list[str]]:
    """The rows of the table that has this head."""
    _, _, rest = PAGE.partition(f"\n{columns}\n")
    lines = rest.partition("\n\n")[0].splitlines()[1:]
    assert lines, f"no table {columns}"
    return [[cell.strip() for cell in line.split("|")] for line in lines]


def test_every_reason_is_listed_under_its_code():
    told = [(reason, code.strip("`")) for code, listed in rows("code | reasons") for reason in NAME.findall(listed)]
    true = {
        reason: next(wire_errors.CODES[base] for base in kind.__mro__ if base in wire_errors.CODES).name
        for reason, kind in wire_errors.CLASSES.items()
    }
    assert sorted(told) == sorted(true.items())


def test_every_call_is_listed_with_who_may_make_it():
    told = {f"/promising.v1.{call.split('`')[1].replace('.', '/')}": role for call, role in rows("call | role")}
    true = {method: allowed for method, allowed in METHODS.items() if method.startswith("/promising.v1.")}
    assert told.keys() == true.keys()
    for method, allowed in true.items():
        said = re.findall(r"\w+", told[method])[0]
        if method.endswith("/Execute"):  # "any" may call; what is asked for depends on the statement
            assert (said, allowed) == ("admin", "any")
        else:
            assert {said} == ({allowed} if isinstance(allowed, str) else allowed), method


def test_every_limit_that_is_named_exists():
    """All limits, with their defaults, are on the page of the settings."""
    named = {name.strip("`") for name, _ in rows("limit | effect")} | set(re.findall(r"`limits\.(\w+)`", PAGE))
    assert named <= Limits.model_fields.keys()
