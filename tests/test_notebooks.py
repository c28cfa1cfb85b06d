"""The notebooks of `examples` run from top to bottom, and show what they showed when they were kept."""

from pathlib import Path

import nbformat
import pytest

import tacit
from scripts.run_notebooks import EXAMPLES, run

NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path):
    done = run(path)
    assert [cell for cell in done.cells if cell.cell_type == "code"][-1].outputs


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_with_its_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert sum(bool(cell.outputs) for cell in code) >= 2
    told = [output for cell in code for output in cell.outputs]
    assert not [output for output in told if output.output_type == "error"]
    assert str(Path(tacit.__file__).parents[2]) not in path.read_text(), "no path of this machine"
