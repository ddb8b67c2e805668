"""Mutated inputs of every subject; and each harness notices a check that is broken."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from promising import wire
from promising.errors import BadClause
from promising.index.schema import AS_IT_IS
from promising.query import Session
from promising.query.definitions import Definitions
from promising.query.standing import feed_tokens
from promising.server import access_tokens, batch_reader
from tests.fuzz.cases import Broken, run, too_few
from tests.fuzz.requests import METHODS, VALID
from tests.fuzz.subjects import SUBJECTS

CASES = 2_000
SEED = 19


@pytest.mark.deep("thousands of inputs")
@pytest.mark.parametrize("name", SUBJECTS)
def test_every_input_is_refused_in_words_or_answered_right(name):
    subject = SUBJECTS[name]()
    found = run(subject, SEED, range(CASES))
    print(found.most_common())
    assert found.total() == CASES
    assert too_few(subject, found) == []


@pytest.mark.parametrize("name", ["sql", "arrow", "tokens"])
def test_some_inputs(name):
    assert run(SUBJECTS[name](), SEED, range(60)).total() == 60


def test_every_call_is_tried_with_something_valid():
    assert {method.name for method in METHODS if method.request.DESCRIPTOR.fields} == set(VALID)


# --- it can fail -------------------------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def first_row_lost(patch: Patch) -> None:
    query_many = Session.query_many
    patch.setattr(Session, "query_many", lambda self, many: [table.slice(1) for table in query_many(self, many)])


def refused_too_late(patch: Patch) -> None:
    alter = Definitions._alter_stream

    def altered(self: Definitions, node: Any, sql: str) -> None:
        alter(self, node, sql)
        raise BadClause("too late")

    patch.setattr(Definitions, "_alter_stream", altered)


def every_type_lies_alike(patch: Patch) -> None:
    patch.setattr(batch_reader, "lies_alike", lambda source, kind: kind in AS_IT_IS)


def keys_of_two_kinds(patch: Patch) -> None:
    patch.setattr(wire, "keys_from", lambda told: np.array([*told.ints, *told.strings], np.int64))


def no_checksums(patch: Patch) -> None:
    for module in ("segments", "wal", "image", "cold_file", "cold_layout"):
        patch.setattr(f"promising.index.storage.{module}.crc32c", lambda *parts, since=0: 0)


def any_signature(patch: Patch) -> None:
    patch.setattr("promising.query.resume_tokens.hmac.compare_digest", lambda one, other: True)


def no_checksums_in_tokens(patch: Patch) -> None:
    patch.setattr(feed_tokens, "crc32", lambda data: 0)


def any_role(patch: Patch) -> None:
    patch.setattr(access_tokens, "_roles", lambda name, roles, stored: frozenset(roles.split(",")))


FAULTS: list[tuple[str, Callable[[Patch], None]]] = [
    ("sql", first_row_lost),
    ("sql", refused_too_late),
    ("arrow", every_type_lies_alike),
    ("protobuf", keys_of_two_kinds),
    ("log", no_checksums),
    ("image", no_checksums),
    ("cold", no_checksums),
    ("tokens", any_signature),
    ("tokens", no_checksums_in_tokens),
    ("tokenfile", any_role),
]


@pytest.mark.deep("looks for a rare input")
@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_check_is_noticed(name: str, fault: Callable[[Patch], None], monkeypatch: Patch):
    fault(monkeypatch)
    with pytest.raises((Broken, AttributeError)) as caught:
        run(SUBJECTS[name](), SEED, range(CASES))
    (again,) = caught.value.__notes__
    assert f"--only {name} --seed {SEED} --case " in again
