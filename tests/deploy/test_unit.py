"""The systemd unit: systemd accepts it, it waits for the drain, and it grants no more than the service needs."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from promising.cli.exit_codes import Code
from promising.server.supervisor import CHECKPOINT
from promising.settings import Settings, fields, variable
from tests.docs.pages import ROOT

UNIT = ROOT / "deploy" / "promising.service"
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(
    ANALYZE is None, reason="systemd-analyze is missing: Debian's package systemd has it"
)
EXPOSURE = 2.0  # of 10, by systemd's own measure; 9 and more is a service without any restriction


@pytest.fixture
def unit():
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    parser.read(UNIT, encoding="utf-8")
    return parser["Service"]


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit with a command of this environment."""
    text = UNIT.read_text(encoding="utf-8").replace("/opt/promising/bin", str(Path(sys.prefix) / "bin"))
    (tmp_path / UNIT.name).write_text(text, encoding="utf-8")
    return tmp_path / UNIT.name


def analyze(*arguments: str) -> str:
    assert ANALYZE is not None
    done = subprocess.run([ANALYZE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    return done.stdout


def test_it_is_ready_when_the_service_says_so(unit):
    assert (unit["Type"], unit["NotifyAccess"]) == ("notify", "main")


def test_a_drain_of_the_usual_length_and_a_checkpoint_fit_into_the_stop(unit):
    assert int(unit["TimeoutStopSec"]) >= Settings().drain_seconds + CHECKPOINT


def test_invalid_settings_do_not_start_it_again(unit):
    assert unit["Restart"] == "on-failure"
    assert int(unit["RestartPreventExitStatus"]) == Code.USAGE


def test_every_connection_can_have_a_file(unit):
    assert int(unit["LimitNOFILE"]) >= Settings().limits.max_connections + 1024


def test_its_environment_has_settings_of_the_service_in_folders_that_it_may_write(unit):
    known = {variable(name) for name, _ in fields()} | {"PROMISING_CACHE_DIR"}
    given = dict(re.findall(r"(\w+)=(\S+)", unit["Environment"]))
    assert set(given) <= known
    assert given["PROMISING_DATA"] == f"/var/lib/{unit['StateDirectory']}"
    assert given["PROMISING_CACHE_DIR"] == f"/var/cache/{unit['CacheDirectory']}"
    assert unit["WorkingDirectory"] == f"/etc/{unit['ConfigurationDirectory']}"


def test_compiled_kernels_are_not_forbidden(unit):
    assert "MemoryDenyWriteExecute" not in unit


@needs_systemd
@pytest.mark.deep("needs systemd-analyze")
def test_systemd_accepts_it(installed):
    analyze("verify", "--man=no", str(installed))


@needs_systemd
@pytest.mark.deep("needs systemd-analyze")
def test_systemd_finds_it_well_restricted(installed):
    said = analyze("security", "--no-pager", "--offline=true", f"--threshold={EXPOSURE * 10:.0f}", str(installed))
    assert "Overall exposure level" in said
