"""Allowed locations of packages."""

import os
from collections.abc import Sequence

from fsspec.implementations.local import LocalFileSystem

from promising.errors import BadRequest


def check_place(path: str, allowed: Sequence[str]) -> None:
    """Refuse a path or URL outside all of the folders; without folders every place is allowed."""
    if allowed and not any(_inside(path, folder) for folder in allowed):
        listed = ", ".join(allowed)
        raise BadRequest(f"{path[:200]!r} is not where packages are taken from; load_paths has {listed}", "path")


def _inside(path: str, folder: str) -> bool:
    if "\0" in path or "::" in path:  # invalid paths, and chained URLs
        return False
    found, wanted = _parts(path), _parts(folder)
    return ".." not in found and found[: len(wanted)] == wanted


def _parts(place: str) -> list[str]:
    """The scheme, and the folders from the outermost. Symbolic links of local paths are resolved."""
    scheme, mark, rest = place.partition("://")
    if mark and scheme not in LocalFileSystem.protocol:
        return [scheme, *rest.rstrip("/").split("/")]
    local = LocalFileSystem._strip_protocol(place)
    return ["file", *os.path.realpath(local).rstrip("/").split("/")]
