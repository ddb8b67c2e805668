"""A store to spoil, and how stores behave in a test."""

import shutil
from pathlib import Path

import pytest

from tests.index.storage.damage import filled
from tests.index.storage.lives import abandon, small_and_quiet


@pytest.fixture(scope="session")
def killed(tmp_path_factory):
    """A store that was killed: two checkpoints, cold runs, and a log with more. It is not to be touched."""
    with small_and_quiet():
        folder = tmp_path_factory.mktemp("killed")
        abandon(filled(folder))
        return folder


@pytest.fixture
def folder(killed, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(killed, tmp_path / "store"))


@pytest.fixture
def small_chunks(monkeypatch):
    """Few tuples fill a chunk, and no upkeep but what a test asks for."""
    monkeypatch.setattr("promising.index.log.CHUNK", 64)
    monkeypatch.setattr("promising.index.storage.store.TICK", 3600.0)


@pytest.fixture
def ticking(small_chunks, monkeypatch):
    """Upkeep at once whenever it is due."""
    monkeypatch.setattr("promising.index.storage.store.TICK", 0.01)
