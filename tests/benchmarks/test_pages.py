"""The pages of results in the documentation are what the stored numbers give, and nothing has to be run for them."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.paper import __main__ as paper
from benchmarks.paper.page import SHOWS, page
from benchmarks.peers import __main__ as peers

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"


def test_the_page_of_the_paper_is_that_of_its_numbers(capsys):
    assert paper.main(["--render", str(RESULTS / "paper.json")]) == 0
    assert capsys.readouterr().out == (RESULTS / "paper.md").read_text(encoding="utf-8")


def test_the_page_of_the_peers_is_that_of_its_numbers(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["peers", "--render", str(RESULTS / "peers.json")])
    peers.main()
    assert capsys.readouterr().out == (RESULTS / "peers.md").read_text(encoding="utf-8")


def test_every_figure_has_a_line_its_plots_and_its_goals():
    assert set(SHOWS) == set(paper.FIGURES)
    numbers = json.loads((RESULTS / "paper.json").read_text(encoding="utf-8"))
    text = page(numbers)
    for name, saved in numbers.items():
        section = text.split(f"## {saved['title']}\n")[1].split("\n## ")[0]
        assert SHOWS[name] in section
        assert all(f"({Path('../images/paper') / plot['name']}.png)" in section for plot in saved["plots"])
        for goal in saved["goals"]:
            on, _, wanted = goal["text"].rpartition(": ")
            (row,) = (line for line in section.splitlines() if line.startswith(f"{wanted} | "))
            assert f"{on}: {goal['measured']}".removeprefix(": ") in row.split(" | ")[1 if goal["met"] else 2]
    assert "seeds 1, 2, 3; cores" in text


def test_figures_of_different_runs_say_so():
    numbers = json.loads((RESULTS / "paper.json").read_text(encoding="utf-8"))
    numbers["fig9"]["seeds"] = [7]
    text = page(numbers)
    assert "Run of fig9: seeds 7; " in text
    assert "Run of fig10, fig11" in text


@pytest.mark.parametrize("name", ["paper.json", "peers.json"])
def test_a_page_links_the_numbers(name):
    assert f"[{name}]({name})" in (RESULTS / name).with_suffix(".md").read_text(encoding="utf-8")
