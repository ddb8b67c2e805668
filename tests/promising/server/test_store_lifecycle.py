"""The store of a service, opened at its start and released at its end."""

import asyncio

import pytest

import promising.server.store_lifecycle as served
from promising.errors import StorageUnavailable
from promising.settings import Settings
from tests.index.storage.stores import opened


def test_a_service_that_cannot_tell_what_it_found_lets_go_of_the_directory(tmp_path, monkeypatch):
    def away(*_):
        raise StorageUnavailable("the object store is away")

    monkeypatch.setattr(served, "_tell", away)
    with pytest.raises(StorageUnavailable):
        asyncio.run(served.opened(Settings(data=tmp_path)))
    opened(tmp_path).close()
