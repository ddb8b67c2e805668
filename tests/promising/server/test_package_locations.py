"""Packages come from the folders that are named, however the path is written."""

import os

import pytest

from promising.errors import BadRequest
from promising.server.package_locations import check_place


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with `in`, which is allowed, and `out`, which is not; the working directory is `in`."""
    for name in ("in/deep", "inner", "out"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "in/link").symlink_to(tmp_path / "out")
    (tmp_path / "back").symlink_to(tmp_path / "in")
    monkeypatch.chdir(tmp_path / "in")
    return tmp_path


def test_without_folders_every_place_is_taken():
    for path in ("/etc", "s3://any/where", "file:/x", ""):
        check_place(path, ())


@pytest.mark.parametrize(
    "path", ["{home}/in", "{home}/in/", "{home}/in/deep/x", "file://{home}/in/x", "deep/x", "{home}/back/x", "../in/x"]
)
def test_what_lies_inside_is_taken(home, path):
    check_place(path.format(home=home), ["s3://lake/in", f"{home}/in"])


@pytest.mark.parametrize(
    "path",
    [
        "/etc",
        "{home}",
        "{home}/inner",
        "{home}/in/../out",
        "{home}/in/link/x",
        "file:{home}/out",
        "file://{home}/out",
        "LOCAL://{home}/out",
        "~",
        "link",
        "in\0/x",
        "simplecache::file://{home}/out",
        "{home}/in::file://{home}/out",
        "s3:/{home}/in",
        "http://{home}/in",
    ],
)
def test_what_lies_outside_is_refused(home, path):
    with pytest.raises(BadRequest, match="is not where packages are taken from; load_paths has ") as refused:
        check_place(path.format(home=home), [f"{home}/in"])
    assert refused.value.field == "path"


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("s3://lake/in/x", True),
        ("S3://lake/in", False),
        ("s3://lake/inner", False),
        ("s3://lake/in/../out", False),
        ("s3://lake", False),
        ("gs://lake/in", False),
        ("/lake/in", False),
    ],
)
def test_urls_are_compared_folder_by_folder(path, inside):
    if inside:
        check_place(path, ["s3://lake/in/"])
    else:
        with pytest.raises(BadRequest):
            check_place(path, ["s3://lake/in/"])


def test_the_home_of_a_user_is_no_folder_of_that_name(home, monkeypatch):
    monkeypatch.setenv("HOME", str(home / "out"))
    os.mkdir("~")
    with pytest.raises(BadRequest):
        check_place("~", [f"{home}/in"])
