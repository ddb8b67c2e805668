"""A store to spoil."""

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
