"""Run the notebooks of `examples` and keep what they print and draw: python scripts/run_notebooks.py [--check]."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(path: Path) -> nbformat.NotebookNode:
    """The notebook with its outputs; an error in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(EXAMPLES)}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it was run
    notebook.metadata.pop("language_info", None)
    return notebook


def main() -> None:
    """Run each; with `--check` nothing is written."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        done = run(path)
        if "--check" not in sys.argv:
            nbformat.write(done, path)


if __name__ == "__main__":
    main()
