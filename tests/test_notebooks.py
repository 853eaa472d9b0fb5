"""Notebooks are their percent scripts, executed in order; that they still run is tested by `pytest --nbmake`."""

import pathlib

import jupytext
import nbformat
import pytest

FOLDER = pathlib.Path(__file__).parent.parent / "notebooks"
SCRIPTS = sorted(FOLDER.glob("*.py"))


def test_each_notebook_has_a_script():
    assert [path.stem for path in SCRIPTS] == sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    assert len(SCRIPTS) == 4


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_notebook_is_its_script_with_outputs_and_pictures(script):
    written = jupytext.read(script)
    saved = nbformat.read(script.with_suffix(".ipynb"), as_version=4)
    assert [(cell.cell_type, cell.source) for cell in saved.cells] == [
        (cell.cell_type, cell.source) for cell in written.cells
    ]
    code = [cell for cell in saved.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) >= 3
    assert not [line for cell in code for line in cell.source.splitlines() if line.startswith(("!", "%"))]
