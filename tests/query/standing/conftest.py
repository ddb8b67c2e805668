"""What tests of standing queries share."""

import pytest

from tests.query.standing.sessions import opened


@pytest.fixture
def session():
    with opened() as made:
        yield made
