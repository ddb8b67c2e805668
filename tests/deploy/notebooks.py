"""Runs a notebook as Jupyter does: its code cells in order, in one namespace."""

import ast
import json
from pathlib import Path
from typing import Any

Notebook = dict[str, Any]


def read(path: Path) -> Notebook:
    """A notebook of format 4.5, whose outputs are not stored."""
    notebook: Notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names), "two cells with one id"
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), f"{cell['id']}: clear the outputs"
    return notebook


def run(notebook: Notebook) -> tuple[dict[str, Any], list[Any]]:
    """The namespace after the last cell, and what each code cell shows: the value of its last line, if any."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        body = ast.parse("".join(cell["source"]), cell["id"]).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), cell["id"], "exec"), names)
        shown.append(
            eval(compile(ast.Expression(last.value), cell["id"], "eval"), names) if isinstance(last, ast.Expr) else None
        )
    return names, shown
