"""All that is fuzzed, by name."""

from tests.fuzz.arrow import Batches
from tests.fuzz.cases import Subject
from tests.fuzz.requests import Requests
from tests.fuzz.sql import Statements
from tests.fuzz.stored import ColdFile, Image, Log
from tests.fuzz.tokens import TokenFile, Tokens

SUBJECTS: dict[str, type[Subject]] = {
    kind.name: kind for kind in (Statements, Batches, Requests, Log, Image, ColdFile, Tokens, TokenFile)
}
