"""docs/reference/grpc.md says what the code does, name by name."""

import re
from pathlib import Path

from promising import wire_errors
from promising.server.access import METHODS
from promising.settings import Limits

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/grpc.md").read_text(encoding="utf-8")


def rows(columns: str) -> list[list[str]]:
    """The rows of the table that has this head."""
    _, _, rest = PAGE.partition(f"| {columns} |\n")
    lines = rest.partition("\n\n")[0].splitlines()[1:]
    assert lines, f"no table {columns}"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_reason_is_listed_under_its_code():
    told = {reason.strip("`"): code.strip("`") for code, reason, _ in rows("code | reason | when")}
    paragraph = re.search(r"Reasons that no call returns deliberately, all `INTERNAL`: (.*?)\.\n", PAGE, re.DOTALL)
    assert paragraph is not None
    unexpected = dict.fromkeys(re.findall(r"`(\w+)`", paragraph[1]), "INTERNAL")
    assert told.keys() & unexpected.keys() == set()
    true = {
        reason: next(wire_errors.CODES[base] for base in kind.__mro__ if base in wire_errors.CODES).name
        for reason, kind in wire_errors.CLASSES.items()
    }
    assert told | unexpected == true


def test_every_call_is_listed_with_who_may_make_it():
    told = {f"/promising.v1.{call.strip('`').replace('.', '/')}": role for call, _, role in rows("call | does | role")}
    true = {method: allowed for method, allowed in METHODS.items() if method.startswith("/promising.v1.")}
    assert told.keys() == true.keys()
    for method, allowed in true.items():
        said = re.findall(r"\w+", told[method])[0]
        if method.endswith("/Execute"):  # "any" may call; what is asked for depends on the statement
            assert (said, allowed) == ("admin", "any")
        else:
            assert {said} == ({allowed} if isinstance(allowed, str) else allowed), method


def test_every_limit_is_listed_with_its_default():
    told = {name.strip("`"): default for name, default, _ in rows("limit | default | applies to")}
    assert told == {name: str(field.default) for name, field in Limits.model_fields.items()}
