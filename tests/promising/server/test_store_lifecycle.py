"""The store of a service, opened at its start and released at its end."""

import asyncio
import shutil
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
    with opened(tmp_path / "whole") as store:
        filled(store).append(batch(99))
        shutil.copytree(tmp_path / "whole", tmp_path / "crashed")  # there is log to read
    ending = threading.Event()
    ending.set()
    with pytest.raises(Ended):
        asyncio.run(served.opened(Settings(data=tmp_path / "crashed"), ending))
    with opened(tmp_path / "crashed") as store:
        assert store.streams["a"].arrived == 3100 and not store.report
