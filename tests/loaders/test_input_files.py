"""Files that are missing, empty, doubled or of different kinds are told apart before anything is read."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from promising.errors import BadSource, WrongType
from promising.loaders import input_files

pytestmark = pytest.mark.spark


def names(files: list[input_files.File]) -> list[str]:
    return [Path(file.path).name for file in files]


def test_what_is_found(spark: Any, tmp_path: Path):
    for name in ("b/2.csv", "a/1.csv", "a/odd [1] {x}.csv", "_temporary/0.csv", "a/.hidden.csv", "a/_SUCCESS"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"ts\n{name}\n")
    (tmp_path / "b/empty.csv").touch()
    assert names(input_files.find(spark, str(tmp_path))) == ["1.csv", "odd [1] {x}.csv", "2.csv"]
    assert names(input_files.find(spark, [f"{tmp_path}/*/2.csv"])) == ["2.csv"]
    odd = input_files.find(spark, str(tmp_path / "a/odd [1] {x}.csv"))
    assert names(odd) == ["odd [1] {x}.csv"]
    [fields] = input_files.read(spark, odd, "csv", {})
    assert fields.rows.count() == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "no source is given"),
        (["gone"], "there is no file or folder .*gone"),
        (["gone/*.csv"], "there is no file or folder .*gone"),
        (["hollow"], "hollow has no files"),
        (["void"], "void has only empty files"),
        (["in", "in/1.csv"], r"1\.csv would be loaded twice: it is in .*in and in .*1\.csv"),
        (["copies"], r"1\.csv and .*2\.csv have the same content: its rows would be loaded twice"),
    ],
)
def test_what_cannot_be_loaded(spark: Any, tmp_path: Path, given: list[str], message: str):
    for folder in ("hollow", "void", "in", "copies"):
        (tmp_path / folder).mkdir()
    (tmp_path / "void/1.csv").touch()
    (tmp_path / "in/1.csv").write_text("ts\n1\n")
    for name in ("1", "2"):
        (tmp_path / f"copies/{name}.csv").write_text("ts\n1\n")
    (tmp_path / "copies/3.csv").write_text("ts\n2\n")
    with pytest.raises(BadSource, match=message):
        input_files.find(spark, [str(tmp_path / name) for name in given])


def test_formats():
    def file(path: str) -> input_files.File:
        return input_files.File(path, 1, 1)

    assert input_files.format_of([file("a.CSV.gz"), file("b.csv")], None) == "csv"
    assert input_files.format_of([file("a.ndjson")], None) == "json"
    assert input_files.format_of([file("a.dat")], "parquet") == "parquet"
    with pytest.raises(BadSource, match=r"the extension of .*a\.dat is not one of a known format"):
        input_files.format_of([file("a.dat")], None)
    with pytest.raises(BadSource, match=r"more than one format: a\.csv is csv, b\.json is json"):
        input_files.format_of([file("a.csv"), file("b.json")], None)
    with pytest.raises(BadSource, match="unknown format 'xml'"):
        input_files.format_of([file("a.csv")], "xml")


def test_files_with_other_headers_are_read_apart(spark: Any, tmp_path: Path):
    (tmp_path / "1.csv").write_text("\ufeffa;b\n1;2\n", encoding="utf-8")
    (tmp_path / "2.csv").write_text("b;a\n3;4\n5;6\n")
    groups = input_files.read(spark, input_files.find(spark, str(tmp_path)), "csv", {"sep": ";"})
    found = [(list(group.kinds), [row[group.names["a"]] for row in group.rows.collect()]) for group in groups]
    assert found == [(["a", "b"], ["1"]), (["b", "a"], ["4", "6"])]
    (tmp_path / "3.csv").write_text("a;b;a\n1;2;3\n")
    with pytest.raises(BadSource, match=r"3\.csv has 2 fields 'a'"):
        input_files.read(spark, input_files.find(spark, str(tmp_path)), "csv", {"sep": ";"})


def test_what_is_not_of_its_format(spark: Any, tmp_path: Path):
    (tmp_path / "1.jsonl").write_text("no object\n")
    with pytest.raises(BadSource, match="no line at the beginning is a JSON object"):
        input_files.read(spark, input_files.find(spark, str(tmp_path / "1.jsonl")), "json", {})
    (tmp_path / "1.parquet").write_text("no parquet\n")
    with pytest.raises(BadSource, match=r"1\.parquet cannot be read as parquet"):
        input_files.read(spark, input_files.find(spark, str(tmp_path / "1.parquet")), "parquet", {})


def test_parquet_files_that_disagree(spark: Any, tmp_path: Path):
    pq.write_table(pa.table({"a": [1]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"a": ["x"]}), tmp_path / "2.parquet")
    with pytest.raises(WrongType, match=r"different types in different files.*Load the files of each kind"):
        input_files.read(spark, input_files.find(spark, str(tmp_path)), "parquet", {})


def test_a_token_is_of_the_files_and_of_how_they_are_read():
    file = input_files.File("a.csv", 10, 1)
    one = input_files.token_of("sales", [file], ["csv", {}])
    assert one == input_files.token_of("sales", [file], ["csv", {}])
    others = [("other", [file], ["csv", {}]), ("sales", [file], ["csv", {"a": "b"}])]
    others += [("sales", [input_files.File("a.csv", 10, 2)], ["csv", {}])]
    assert len({one, *(input_files.token_of(*other) for other in others)}) == 4


def test_a_file_that_changes_is_noticed(spark: Any, tmp_path: Path):
    (tmp_path / "1.csv").write_text("ts\n1\n")
    files = input_files.find(spark, str(tmp_path))
    assert input_files.changed(spark, files) is None
    (tmp_path / "1.csv").write_text("ts\n1\n2\n")
    assert input_files.changed(spark, files) == files[0].path
    (tmp_path / "1.csv").unlink()
    assert input_files.changed(spark, files) == files[0].path
