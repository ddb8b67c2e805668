"""The container image: what its file says, and, where buildah is, an image that is built and run.

PROMISING_IMAGE_ARGS has further arguments of the build, such as another base or where pip finds its packages.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from promising.settings import Settings, fields, variable
from tests.docs.pages import ROOT, free_port
from tests.promising.server.serving import WAIT

FILE = ROOT / "deploy" / "Containerfile"
BUILDAH = shutil.which("buildah")
USER = "10001"


def instructions() -> list[tuple[str, str]]:
    """Each instruction of the file with its argument, in one line."""
    text = re.sub(r"^#.*\n", "", FILE.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", "")
    found = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        found.append((name, " ".join(rest.split())))
    return found


def last_stage() -> list[tuple[str, str]]:
    found = instructions()
    starts = [at for at, (name, _) in enumerate(found) if name == "FROM"]
    assert len(starts) == 2
    return found[starts[1] :]


def environment() -> dict[str, str]:
    """Variables of the image that the service reads."""
    (given,) = [rest for name, rest in last_stage() if name == "ENV"]
    return {name: value for name, value in re.findall(r"(\w+)=(\S+)", given) if name.startswith("PROMISING_")}


def test_both_stages_have_the_base_that_is_asked_for_and_it_names_no_host():
    (base,) = [rest for name, rest in instructions() if name == "ARG"]
    assert re.fullmatch(r"BASE=[a-z]+:[\w.-]+", base)
    assert [rest.split()[0] for name, rest in instructions() if name == "FROM"] == ["${BASE}", "${BASE}"]


def test_everything_copied_is_in_the_tree_and_every_floor_is_copied():
    copied = [rest for name, rest in instructions() if name == "COPY" and not rest.startswith("--from")]
    sources = {source for rest in copied for source in rest.split()[:-1]}
    assert all((ROOT / source).exists() for source in sources)
    linked = {path.name for path in (ROOT / "promising").iterdir() if path.is_symlink()}
    assert linked | {"promising"} <= sources


def test_a_user_without_rights_compiles_the_kernels_and_serves():
    stage = last_stage()
    users = [(at, rest) for at, (name, rest) in enumerate(stage) if name == "USER"]
    assert [user for _, user in users] == ["promising"]
    assert stage.index(("RUN", "promising warmup")) > users[0][0]
    assert stage[-2:] == [("ENTRYPOINT", '["promising"]'), ("CMD", '["serve"]')]
    assert ("STOPSIGNAL", "SIGTERM") in stage


def test_its_settings_are_settings_of_the_service_and_its_data_is_a_volume():
    given = environment()
    assert set(given) <= {variable(name) for name, _ in fields()} | {"PROMISING_CACHE_DIR"}
    assert ("VOLUME", given["PROMISING_DATA"]) in last_stage()
    assert ("EXPOSE", Settings().listen.rpartition(":")[2]) in last_stage()
    (health,) = [rest for name, rest in last_stage() if name == "HEALTHCHECK"]
    assert f"http://{given['PROMISING_METRICS_LISTEN']}/-/ready" in health


# --- an image -----------------------------------------------------------------------------------------------------


def buildah(*arguments: str) -> str:
    assert BUILDAH is not None
    done = subprocess.run([BUILDAH, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


class Image:
    """The files of a built image. Commands run in them as the image's user, each as the first process of its own."""

    def __init__(self, files: Path, settings: dict[str, Any]) -> None:
        self.files = files
        self.settings = settings
        self.environment = dict(pair.split("=", 1) for pair in settings["Env"])

    def start(self, *command: str, **variables: str) -> "subprocess.Popen[str]":
        namespace = ["unshare", "--fork", "--pid", f"--mount-proc={self.files / 'proc'}"]
        inside = ["chroot", f"--userspec={USER}:{USER}", str(self.files), *command]
        return subprocess.Popen(
            [*namespace, *inside],
            env=self.environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, **variables: str) -> tuple[int, str]:
        with self.start(*command, **variables) as process:
            out, err = process.communicate(timeout=WAIT)
        return process.returncode, out + err


def signal_first(process: "subprocess.Popen[str]", number: int) -> None:
    """To the first process in the namespace, if it runs. A change of user undoes unshare's --kill-child."""
    if process.poll() is None:
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), number)


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    if BUILDAH is None:
        pytest.skip("buildah is missing: Debian's package buildah has it")
    if os.geteuid() != 0:
        pytest.skip("only root enters an image without a container engine")
    arguments = os.environ.get("PROMISING_IMAGE_ARGS", "")
    (base,) = [rest.partition("=")[2] for name, rest in instructions() if name == "ARG"]
    there = subprocess.run([BUILDAH, "images", "--quiet", base], capture_output=True, text=True, check=False).stdout
    if not arguments and not there.strip():
        pytest.skip(f"no image {base} here, and tests pull none: name a base in PROMISING_IMAGE_ARGS")
    name = f"promising-test-{os.getpid()}"
    done = subprocess.run(
        ["make", "image", f"IMAGE={name}", f"IMAGE_ARGS={arguments}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    container = buildah("from", name)
    try:
        settings = json.loads(buildah("inspect", container))["Docker"]["config"]
        yield Image(Path(buildah("mount", container)), settings)
    finally:
        buildah("rm", container)
        buildah("rmi", name)


@pytest.mark.deep("builds and runs an image, some minutes")
def test_a_built_image_serves_is_healthy_and_drains(image):
    assert image.settings["User"] == "promising"
    assert image.settings["Entrypoint"] + image.settings["Cmd"] == ["promising", "serve"]
    assert image.run("promising", "warmup") == (0, "All kernels are compiled already.\n")
    assert image.run("which", "java", "pip")[1] == ""

    code, said = image.run("promising", "serve")
    assert code == 2
    assert "auth.tokens" in said, "a service that others reach asks for tokens"

    address, metrics = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    command = [*image.settings["Entrypoint"], *image.settings["Cmd"]]
    usual = image.environment["PROMISING_METRICS_LISTEN"]
    check = [part.replace(usual, metrics) for part in image.settings["Healthcheck"]["Test"][1:]]
    assert image.run(*check)[0] == 1
    with image.start(*command, PROMISING_LISTEN=address, PROMISING_METRICS_LISTEN=metrics) as process:
        try:
            events = []
            for line in process.stderr:
                events.append(json.loads(line)["event"])
                if events[-1] == "started":
                    break
            assert events == ["opening", "opened", "started"], events
            assert image.run(*check)[0] == 0
            code, said = image.run("promising", "--target", address, "status")
            assert code == 0, said
            signal_first(process, signal.SIGTERM)
            events = [json.loads(line)["event"] for line in process.stderr]
            assert process.wait(WAIT) == 0
        finally:
            signal_first(process, signal.SIGKILL)
    assert [event for event in events if event != "rpc"] == ["draining", "closed", "stopped"]
