"""The store of a service, opened at its start and released at its end."""

import asyncio
import threading

import pytest

import promising.server.store_lifecycle as served
from promising.errors import StorageUnavailable
from promising.server.starting import Ended
from promising.settings import Settings
from tests.index.storage.stores import batch, filled, opened


def test_a_service_that_cannot_tell_what_it_found_lets_go_of_the_directory(tmp_path, monkeypatch):
    def away(*_):
        raise StorageUnavailable("the object store is away")

    monkeypatch.setattr(served, "_tell", away)
    with pytest.raises(StorageUnavailable):
        asyncio.run(served.opened(Settings(data=tmp_path), threading.Event()))
    opened(tmp_path).close()


def test_a_start_that_is_ended_lets_go_of_the_directory_and_leaves_it_as_it_was(tmp_path):
    filled(opened(tmp_path)).append(batch(99))  # a crash: there is log to read
    ending = threading.Event()
    ending.set()
    with pytest.raises(Ended):
        asyncio.run(served.opened(Settings(data=tmp_path), ending))
    with opened(tmp_path) as store:
        assert store.streams["a"].arrived == 3100 and not store.report
