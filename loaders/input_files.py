"""The files of a load: paths, format and fields. Their content is not trusted here.

Files are found as by Spark: local, on HDFS or in an object store, with `*` and `{a,b}`. A folder includes all files
below it, except names that start with `_` or `.`, which Spark uses for metadata.
"""

import csv
import hashlib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from promising.errors import BadSource, WrongType

SUFFIXES = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
}
FORMATS = ("csv", "json", "parquet")
PACKED = (".gz", ".bz2", ".zst", ".lz4", ".snappy", ".xz")
HEAD = 1 << 16  # bytes of a text file from which its fields are inferred
COMPARED = 1 << 16  # bytes compared at both ends of files of equal size, before their whole content
LINES = 500  # of a JSON file from which its fields are inferred
CORRUPT = "#corrupt"  # the column of unparsable lines


@dataclass(frozen=True)
class File:
    """A file as of when the load was planned."""

    path: str
    size: int
    changed: int


@dataclass(frozen=True)
class Fields:
    """Rows of files with equal fields: by name, the Spark type in `kinds` and the column in `names`."""

    rows: Any
    kinds: dict[str, str]
    names: dict[str, str]
    where: str
    corrupt: bool


def find(spark: Any, sources: str | Sequence[str]) -> list[File]:
    """All files of the sources, in order. A source that is missing, empty or repeated raises an error that names it."""
    sources = [sources] if isinstance(sources, str) else [str(source) for source in sources]
    if not sources:
        raise BadSource("no source is given: name at least one file or folder to load")
    found: dict[str, str] = {}
    files: list[File] = []
    for source in sources:
        mine = _files(spark, source)
        for file in mine:
            if file.path in found:
                raise BadSource(
                    f"{file.path} would be loaded twice: it is in {found[file.path]} and in {source}; name it once"
                )
            found[file.path] = source
        files += mine
        if not any(file.size for file in mine):
            what = "has only empty files" if mine else "has no files"
            raise BadSource(f"{source} {what}; name a file with rows, or a folder with such files in it")
    files = sorted((file for file in files if file.size), key=lambda file: file.path)
    _refuse_copies(spark, files)
    return files


def changed(spark: Any, files: Sequence[File]) -> str | None:
    """The first file that has changed or disappeared, if any."""
    for file in files:
        try:
            path = spark._jvm.org.apache.hadoop.fs.Path(file.path)
            now = _file(path.getFileSystem(spark._jsc.hadoopConfiguration()).getFileStatus(path))
        except Py4JJavaError:
            return file.path
        if now != file:
            return file.path
    return None


def format_of(files: Sequence[File], given: str | None) -> str:
    """The common format of all files, by name unless given."""
    if given is not None:
        if given not in FORMATS:
            raise BadSource(f"unknown format {given!r}; it is one of {', '.join(FORMATS)}")
        return given
    kinds: dict[str | None, str] = {}
    for file in files:
        name = file.path.lower()
        for packed in PACKED:
            name = name.removesuffix(packed)
        kinds.setdefault(SUFFIXES.get("." + name.rpartition(".")[2]), file.path)
    if None in kinds:
        raise BadSource(
            f"the extension of {kinds[None]} is not one of a known format; name the format: {', '.join(FORMATS)}"
        )
    if len(kinds) > 1:
        said = ", ".join(f"{path} is {kind}" for kind, path in kinds.items())
        raise BadSource(f"files of more than one format: {said}; load them one format at a time")
    return str(next(iter(kinds)))


def read(spark: Any, files: Sequence[File], kind: str, options: Mapping[str, str]) -> list[Fields]:
    """The rows of the files, grouped by equal fields."""
    try:
        reader = {"csv": _read_csv, "json": _read_json, "parquet": _read_parquet}[kind]
        return reader(spark, files, options)
    except (PySparkException, Py4JJavaError) as problem:
        raise BadSource(f"{_some(files)} cannot be read as {kind}: {_said(problem)}") from None


def token_of(stream: str, files: Sequence[File], more: Any) -> str:
    """Equal for the same unchanged files, loaded into the same stream in the same way."""
    told = [stream, [[file.path, file.size, file.changed] for file in files], more]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]


# --- finding files -----------------------------------------------------------------------------------------------


def _files(spark: Any, source: str) -> list[File]:
    jvm, hadoop = spark._jvm, spark._jsc.hadoopConfiguration()
    try:
        path = jvm.org.apache.hadoop.fs.Path(source)
        system = path.getFileSystem(hadoop)
        roots = [system.getFileStatus(path)] if system.exists(path) else list(system.globStatus(path) or [])
        if not roots:
            raise BadSource(f"there is no file or folder {source}")
        out = []
        for root in roots:
            if not root.isDirectory():
                out.append(_file(root))
                continue
            inside = root.getPath().toString().rstrip("/") + "/"
            below = system.listFiles(root.getPath(), True)
            while below.hasNext():
                file = _file(below.next())
                if not any(part[:1] in "_." for part in file.path.removeprefix(inside).split("/")):
                    out.append(file)
        return out
    except Py4JJavaError as problem:
        raise BadSource(f"{source} cannot be looked into: {_java(problem)}") from None


def _file(status: Any) -> File:
    return File(status.getPath().toString(), status.getLen(), status.getModificationTime())


def _refuse_copies(spark: Any, files: Sequence[File]) -> None:
    """Files of equal content are probably copies, whose rows would count twice."""
    sizes = Counter(file.size for file in files)
    ends: dict[Any, list[File]] = defaultdict(list)
    for file in files:
        if sizes[file.size] > 1:
            head = _bytes(spark, file, 0, COMPARED)
            ends[file.size, head, _bytes(spark, file, max(0, file.size - COMPARED), COMPARED)].append(file)
    for alike in ends.values():
        seen: dict[str, File] = {}
        for file in alike if len(alike) > 1 else ():
            digest = _digest(spark, file)
            if digest in seen:
                raise BadSource(
                    f"{seen[digest].path} and {file.path} have the same content: its rows would be loaded twice. Name "
                    "one of the two, or load the second by itself if it is meant"
                )
            seen[digest] = file


def _open(spark: Any, file: File) -> Any:
    path = spark._jvm.org.apache.hadoop.fs.Path(file.path)
    return path.getFileSystem(spark._jsc.hadoopConfiguration()).open(path)


def _bytes(spark: Any, file: File, start: int, most: int) -> bytes:
    stream = _open(spark, file)
    try:
        stream.seek(start)
        return bytes(stream.readNBytes(most))
    finally:
        stream.close()


def _digest(spark: Any, file: File) -> str:
    stream = _open(spark, file)
    try:
        return str(spark._jvm.org.apache.commons.codec.digest.DigestUtils.sha256Hex(stream))
    finally:
        stream.close()


def _head(spark: Any, file: File, encoding: str) -> str:
    jvm = spark._jvm
    stream = _open(spark, file)
    try:
        codecs = jvm.org.apache.hadoop.io.compress.CompressionCodecFactory(spark._jsc.hadoopConfiguration())
        codec = codecs.getCodec(jvm.org.apache.hadoop.fs.Path(file.path))
        unpacked = stream if codec is None else codec.createInputStream(stream)
        return bytes(unpacked.readNBytes(HEAD)).decode(encoding, "replace").removeprefix("\ufeff")
    except Py4JJavaError as problem:
        raise BadSource(f"{file.path} cannot be read: {_java(problem)}") from None
    except LookupError:
        raise BadSource(f"unknown encoding {encoding!r}; name one such as UTF-8 or ISO-8859-1") from None
    finally:
        stream.close()


# --- reading them ------------------------------------------------------------------------------------------------


def _read_csv(spark: Any, files: Sequence[File], options: Mapping[str, str]) -> list[Fields]:
    """An empty field is null, a quoted empty one an empty string; quotes within quotes are doubled."""
    separator, quote = options.get("sep", ","), options.get("quote", '"')
    groups: dict[tuple[str, ...], list[File]] = defaultdict(list)
    for file in files:
        head = _head(spark, file, options.get("encoding", "UTF-8"))
        line, ended, _ = head.partition("\n")
        if not ended and len(head) >= HEAD // 4:
            raise BadSource(f"{file.path} has a first line of more than {HEAD // 4:,} characters: is it CSV?")
        names = next(csv.reader([line.rstrip("\r")], delimiter=separator, quotechar=quote or None), [])
        names = [name.strip() for name in names]
        for name, times in Counter(names).items():
            if times > 1:
                raise BadSource(f"{file.path} has {times} fields {name!r}; a field is meant by its name, so rename one")
        groups[tuple(names)].append(file)
    out = []
    for header, mine in groups.items():
        columns = [name or f"_c{place}" for place, name in enumerate(header)]
        schema = ", ".join(f"{quoted(column)} STRING" for column in [*columns, CORRUPT])
        rows = (
            spark.read.schema(schema)
            .options(**{"header": "true", "nullValue": "\0", "emptyValue": "", "escape": quote, **options})
            .option("mode", "PERMISSIVE")
            .option("columnNameOfCorruptRecord", CORRUPT)
            .csv(_paths(mine))
        )
        kinds = dict.fromkeys(header, "string")
        out.append(Fields(rows, kinds, dict(zip(header, columns, strict=True)), _some(mine), corrupt=True))
    return out


def _read_json(spark: Any, files: Sequence[File], options: Mapping[str, str]) -> list[Fields]:
    names: dict[str, None] = {}
    for file in files[:: max(1, len(files) // 8)]:
        for line in _head(spark, file, options.get("encoding", "UTF-8")).splitlines()[:LINES]:
            try:
                row = json.loads(line)
            except ValueError:
                continue  # quarantined when it is read
            if isinstance(row, dict):
                names.update(dict.fromkeys(row))
    if not names:
        raise BadSource(f"{_some(files)}: no line at the beginning is a JSON object; write one object a line")
    schema = ", ".join(f"{quoted(name)} STRING" for name in [*names, CORRUPT])
    rows = (
        spark.read.schema(schema)
        .options(**options)
        .option("mode", "PERMISSIVE")
        .option("columnNameOfCorruptRecord", CORRUPT)
        .json(_paths(files))
    )
    kinds = dict.fromkeys(names, "string")
    return [Fields(rows, kinds, {name: name for name in names}, _some(files), corrupt=True)]


def _read_parquet(spark: Any, files: Sequence[File], options: Mapping[str, str]) -> list[Fields]:
    try:
        rows = spark.read.options(**{"mergeSchema": "true", **options}).parquet(*_paths(files))
    except (PySparkException, Py4JJavaError) as problem:
        if "CANNOT_MERGE" in str(problem):
            raise WrongType(
                f"a field has different types in different files: {_said(problem)}. Load the files of each kind by "
                "themselves"
            ) from None
        raise
    kinds = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    return [Fields(rows, kinds, {name: name for name in kinds}, _some(files), corrupt=False)]


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _paths(files: Sequence[File]) -> list[str]:
    """Paths escaped, so that Spark does not take them for patterns."""
    return [re.sub(r"([\[\]{}*?\\])", r"\\\1", file.path) for file in files]


def _some(files: Sequence[File]) -> str:
    return files[0].path if len(files) == 1 else f"{files[0].path} and {len(files) - 1:,} more"


def _said(problem: PySparkException | Py4JJavaError) -> str:
    text = problem.getMessage() if isinstance(problem, PySparkException) else problem.java_exception.getMessage()
    return str(text or problem).strip().splitlines()[0]


def _java(problem: Py4JJavaError) -> str:
    return str(problem.java_exception.toString()).splitlines()[0]
