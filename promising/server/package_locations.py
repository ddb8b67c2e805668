"""Where packages may be read from."""

import os
from collections.abc import Sequence

from fsspec.implementations.local import LocalFileSystem

from promising.errors import BadRequest


def check_place(path: str, allowed: Sequence[str]) -> None:
    """Refuse a path or URL that is in none of the folders; no folder at all allows every place."""
    if allowed and not any(_inside(path, folder) for folder in allowed):
        listed = ", ".join(allowed)
        raise BadRequest(f"{path[:200]!r} is not where packages are taken from; load_paths has {listed}", "path")


def _inside(path: str, folder: str) -> bool:
    if "\0" in path or "::" in path:  # what is no path, and places behind places
        return False
    found, wanted = _parts(path), _parts(folder)
    return ".." not in found and found[: len(wanted)] == wanted


def _parts(place: str) -> list[str]:
    """A kind of place, and the folders on the way, outermost first. Links of local paths are followed."""
    scheme, mark, rest = place.partition("://")
    if mark and scheme not in LocalFileSystem.protocol:
        return [scheme, *rest.rstrip("/").split("/")]
    local = LocalFileSystem._strip_protocol(place)
    return ["file", *os.path.realpath(local).rstrip("/").split("/")]
