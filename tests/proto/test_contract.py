"""The wire contract keeps its rules, and the code generated from it is that of the contract."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests/proto/testdata/promising_v1.binpb"
MODULES = sorted(path.stem.removesuffix("_pb2") for path in (ROOT / "promising/v1").glob("*_pb2.py"))
SERVICES = 6  # FileDescriptorProto.service, in the paths of SourceCodeInfo
METHODS = 2  # ServiceDescriptorProto.method


@pytest.fixture(scope="module")
def files() -> list[FileDescriptorProto]:
    """The contract as it is now, comments included."""
    built = subprocess.run(
        [f"{sys.prefix}/bin/buf", "build", "proto", "--as-file-descriptor-set", "--output=-"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    return [file for file in FileDescriptorSet.FromString(built.stdout).file if file.package == "promising.v1"]


def all_messages(file: FileDescriptorProto) -> list[DescriptorProto]:
    """Every message of a file, nested ones included."""
    found, ahead = [], list(file.message_type)
    while ahead:
        found.append(ahead.pop())
        ahead.extend(found[-1].nested_type)
    return found


# --- what `make proto-check` holds -------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of all that the check looks at."""
    for folder in ("proto", "scripts", "promising/v1", "tests/proto/testdata"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


def check(tree: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["scripts/check-proto.sh"], cwd=tree, capture_output=True, text=True, check=False)


def generate(tree: Path) -> None:
    subprocess.run(["scripts/generate-proto.sh"], cwd=tree, check=True)


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_contract_passes_its_check(tree):
    done = check(tree)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def edited_by_hand(tree: Path) -> None:
    rewrite(tree / "promising/v1/admin_pb2.pyi", "cpu_seconds", "cpu_minutes")


def not_generated_again(tree: Path) -> None:
    rewrite(
        tree / "proto/promising/v1/admin.proto",
        "bool draining = 17;",
        "bool draining = 17;\n  // New.\n  bool more = 99;",
    )


def left_over(tree: Path) -> None:
    (tree / "promising/v1/gone_pb2.py").write_text("", encoding="utf-8")


@pytest.mark.parametrize("spoil", [edited_by_hand, not_generated_again, left_over])
def test_stale_code_is_found(tree, spoil: Callable[[Path], None]):
    spoil(tree)
    done = check(tree)
    assert done.returncode != 0
    assert "run make proto" in done.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("common", "  // The estimate.\n", "", "should have a non-empty comment"),
        ("common", "CUT_UNSPECIFIED = 0", "CUT_NOTHING = 0", "_UNSPECIFIED"),
        ("common", "double value = 1;", "double bestGuess = 1;", "lower_snake_case"),
        ("common", "double value = 1;", "double   value = 1;", "-  double   value = 1;"),
        ("streams", "uint64 accepted = 1;", "uint64 accepted = 4;", 'field "1" with name "accepted"'),
        ("streams", "uint64 accepted = 1;", "string accepted = 1;", "changed type"),
        ("queries", "returns (stream ProbeResponse)", "returns (ProbeResponse)", 'RPC "Probe"'),
    ],
)
def test_a_contract_that_is_wrong_or_breaks_clients_is_found(tree, file, old, new, said):
    rewrite(tree / f"proto/promising/v1/{file}.proto", old, new)
    generate(tree)  # so that nothing else is wrong
    done = check(tree)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr


# --- the same rules in our own words -----------------------------------------------------------------------------


def test_every_enum_starts_with_unspecified_and_prefixes_its_values(files):
    enums = [enum for file in files for enum in file.enum_type]
    enums += [enum for file in files for message in all_messages(file) for enum in message.enum_type]
    assert enums
    for enum in enums:
        prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper()
        assert (enum.value[0].name, enum.value[0].number) == (f"{prefix}_UNSPECIFIED", 0)
        assert [value.name for value in enum.value if not value.name.startswith(f"{prefix}_")] == []


def test_every_call_has_a_request_and_a_response_of_its_own(files):
    calls = [call for file in files for service in file.service for call in service.method]
    assert calls
    for call in calls:
        assert call.input_type == f".promising.v1.{call.name}Request"
        assert call.output_type == f".promising.v1.{call.name}Response"
    assert len({call.name for call in calls}) == len(calls)


def test_every_service_and_call_is_documented_and_says_who_may_call_it(files):
    seen = 0
    for file in files:
        comments = {tuple(place.path): place.leading_comments.strip() for place in file.source_code_info.location}
        for i, service in enumerate(file.service):
            assert comments[SERVICES, i], service.name
            for j, call in enumerate(service.method):
                assert re.search(r"[Rr]ole: (any|admin|ingest|query)\b", comments[SERVICES, i, METHODS, j]), call.name
                seen += 1
    assert seen > 20


def test_times_and_spans_are_well_known_types(files):
    """Whoever reads a field called after an instant need not ask in which unit it is; columns of numbers say it."""
    named = re.compile(r"^(start|end|started|checkpoint|watermark|horizons|lateness|budget|uptime|spans|granularity)$")
    message_type = FieldDescriptorProto.TYPE_MESSAGE
    bare = {
        f"{message.name}.{field.name}"
        for file in files
        for message in all_messages(file)
        for field in message.field
        if named.match(field.name) and field.type != message_type
    }
    # Where a granularity is a number of its own, and the columns of a table of regions.
    assert bare == {
        "Zone.granularity",
        "StoryRequest.granularity",
        "RegionsResponse.granularity",
        "RegionsResponse.start",
        "RegionsResponse.end",
    }


def test_no_field_or_number_of_the_kept_image_is_gone_or_means_something_else(files):
    def fields(found: list[FileDescriptorProto]) -> dict[tuple[str, int], tuple[str, int, int]]:
        return {
            (f"{file.name}:{message.name}", field.number): (field.name, field.type, field.label)
            for file in found
            for message in all_messages(file)
            for field in message.field
        }

    kept = FileDescriptorSet.FromString(KEPT.read_bytes())
    then, now = fields([file for file in kept.file if file.package == "promising.v1"]), fields(files)
    assert len(then) > 200
    assert {place: field for place, field in then.items() if now.get(place) != field} == {}


def test_the_kept_image_names_no_place_of_the_machine_that_made_it():
    assert not re.search(rb"://|/(home|root|tmp|work|Users)/", KEPT.read_bytes())


# --- the generated code ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", MODULES)
def test_generated_code_imports_and_is_complete(module, files):
    (file,) = (file for file in files if file.name == f"promising/v1/{module}.proto")
    messages, calls = import_module(f"promising.v1.{module}_pb2"), import_module(f"promising.v1.{module}_pb2_grpc")
    assert {message.name for message in file.message_type} == set(messages.DESCRIPTOR.message_types_by_name)
    for service in file.service:
        assert {call.name for call in service.method} <= set(dir(getattr(calls, f"{service.name}Servicer")))


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def test_generated_code_runs_with_the_oldest_versions_that_we_allow():
    """Generated code refuses a runtime that is older than its generator."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    least = dict(found for line in project["dependencies"] for found in re.findall(r"^([\w-]+)>=([\d.]+)", line))
    assert MODULES
    for module in MODULES:
        messages = (ROOT / f"promising/v1/{module}_pb2.py").read_text(encoding="utf-8")
        calls = (ROOT / f"promising/v1/{module}_pb2_grpc.py").read_text(encoding="utf-8")
        (protobuf,) = re.findall(r"^# Protobuf Python Version: ([\d.]+)$", messages, re.MULTILINE)
        (grpc,) = re.findall(r"^GRPC_GENERATED_VERSION = '([\d.]+)'$", calls, re.MULTILINE)
        assert numbers(protobuf) <= numbers(least["protobuf"])
        assert numbers(grpc) <= numbers(least["grpcio"])
