"""Every example in the documentation runs as it stands: Python, commands, and the output that is shown of them."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, PageError, Shell, blocks, commands, matches, run, targets
from tests.readable import readable

# Read, not run: settings, messages, texts. An untagged block is a drawing or an output.
READ = ("", "toml", "json", "text", "proto")


def marks(page: Path) -> list[pytest.MarkDecorator]:
    if page.name == "README.md":
        return []
    return [pytest.mark.spark] if page.match("how-to/spark.md") else [pytest.mark.deep("runs a page of the docs")]


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=marks(page)) for page in PAGES], ids=lambda page: str(page.relative_to(ROOT))
)
def test_examples_run(page, tmp_path):
    run(page, tmp_path)


@pytest.mark.parametrize(
    ("name", "languages"),
    [
        ("README.md", {"python", "sh", "console"}),
        ("docs/onboarding.md", {"python"}),
        ("docs/tutorial.md", {"python", "sh", "console"}),
        ("docs/how-to/load-files.md", {"sh", "console"}),
        ("docs/how-to/operate.md", {"python", "sh", "console"}),
        ("docs/how-to/durability.md", {"python", "sh", "console"}),
        ("docs/how-to/standing.md", {"python", "sh", "console"}),
        ("docs/how-to/bench.md", {"sh", "console"}),
        ("docs/how-to/spark.md", {"sh", "console"}),
    ],
)
def test_the_pages_that_teach_have_examples(name, languages):
    assert languages <= {block.language for block in blocks((ROOT / name).read_text(encoding="utf-8"))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_hides_from_the_runner(page):
    text = page.read_text(encoding="utf-8")
    found = blocks(text)
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(found), "a fence that does not close"
    for block in found:
        assert block.language in (*READ, "python", "sh", "console"), f"line {block.line}: {block.language} is not run"
        if block.language == "":
            hidden = re.search(r"^(\$ .*|promising [a-z-]+ .*|make [a-z-]+.*)$", block.text, re.MULTILINE)
            assert hidden is None, f"line {block.line}: a command in a block that is not run"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_targets_that_the_text_names_are_there(page):
    named = set(re.findall(r"`make ([a-z][a-z-]*)", page.read_text(encoding="utf-8")))
    assert named <= targets()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / link).exists(), link


# --- the runner itself -----------------------------------------------------------------------------------------------


def page_of(tmp_path, text):
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


def test_a_wrong_example_fails_at_its_line(tmp_path):
    page = page_of(tmp_path, "# Page\n\n```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as failure:
        run(page, tmp_path)
    assert failure.traceback[-1].lineno + 1 == 10


@pytest.mark.parametrize(
    ("block", "line", "why"),
    [
        ("```sh\ntrue\nfalse\n```", 4, "ended with 1"),
        ("```sh\npromising no-such-command\n```", 3, "ended with 2"),
        ("```sh\ncat <<'EOF' > a\ntext\nEOF\ncat b\n```", 6, "No such file"),
        ("```sh\npromising serve --no-such-flag &\n```", 3, "did not start"),
        ("```sh\nmake no-such-target\n```", 3, "no such target"),
        ("```console\n$ echo one\ntwo\n```", 3, "said\none"),
        ("```console\n$ echo one\n```", 3, "said\none"),
        ("```console\n$ echo one; false\none\n```", 3, "ended with 1"),
        ("```console\n$ echo 'error: none'\nerror: none\n```", 3, "ended with 0"),
    ],
)
def test_a_wrong_command_fails_with_page_and_line(tmp_path, block, line, why):
    with pytest.raises(PageError) as failure:
        run(page_of(tmp_path, f"# Page\n{block}\n"), tmp_path)
    assert str(failure.value).startswith(f"page.md:{line}: ")
    assert why in str(failure.value)


def test_blocks_of_a_page_share_folder_shell_and_names(tmp_path):
    page = page_of(
        tmp_path,
        "```sh\nkept=5\ncat > file <<'EOF'\none\n\ntwo\nEOF\n```\n"
        "```python\nfrom pathlib import Path\n\nlines = Path('file').read_text().split()\n```\n"
        "```python\nassert lines == ['one', 'two']\n```\n"
        "```console\n$ echo $kept \\\n    more\n5 more\n$ ls .venv/bin/promising\n...\n```\n",
    )
    assert run(page, tmp_path) == 4


def test_a_service_of_a_page_answers_and_ends_with_it(tmp_path):
    page = page_of(
        tmp_path,
        "```sh\npromising serve &\n```\n"
        "```console\n$ promising status\n...127.0.0.1:50151...\n...\n```\n"
        "```python\nimport promising\n\n"
        "with promising.connect('127.0.0.1:50151') as session:\n    session.execute('SHOW STREAMS')\n```\n",
    )
    run(page, tmp_path)
    (log,) = (tmp_path / "page.logs").glob("1.err")
    assert '"event": "stopped"' in log.read_text(encoding="utf-8")


def test_a_command_goes_on_over_lines_until_it_is_whole():
    (block,) = blocks("```sh\n# a remark\necho 'a\nb' \\\n  c\n\ncat <<EOF\nd\nEOF\n```\n")
    assert [(c.line, c.text) for c in commands(block)] == [(3, "echo 'a\nb' \\\n  c"), (7, "cat <<EOF\nd\nEOF")]


def test_dots_stand_for_anything():
    assert matches(["a ... c", "...", "z"], ["a b c", "1", "2", "z"])
    assert matches(["..."], [])
    assert not matches(["a", "..."], ["b"])
    assert not matches(["a", "...", "z"], ["a", "b"])
    assert not matches([], ["a"])


def test_what_a_page_started_ends_with_a_runner_that_is_cut_off(tmp_path):
    """Its end closes the shell's input, and nothing else happens."""
    shell = Shell(tmp_path, dict(os.environ), tmp_path)
    code, number, _, _ = shell.run("sleep 1000 &", merged=False)
    assert code == 0
    process = os.pidfd_open(number)
    assert shell._bash.stdin is not None
    shell._bash.stdin.close()
    ready = readable(process, 30)
    if not ready:
        signal.pidfd_send_signal(process, signal.SIGKILL)
    os.close(process)
    assert ready
    shell._bash.wait(30)
    os.close(shell._told)
