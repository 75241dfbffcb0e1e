"""The notebooks run from top to bottom, and the outputs kept in them read well."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_the_notebooks_are_there():
    assert [n.name for n in NOTEBOOKS] == [
        "01_first_gradients.ipynb",
        "02_the_tape_on_one_page.ipynb",
        "03_optimise_and_fit.ipynb",
        "04_training_loops.ipynb",
    ]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    notebook = nbformat.read(path, as_version=4)
    # A cell that fails raises.
    NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            assert output.get("name") != "stderr", output.text


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_kept_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs
    for output in outputs:
        assert output.output_type in ("stream", "display_data", "execute_result")
        text = output.get("text", "") + str(output.get("data", {}).get("text/plain", ""))
        assert not re.search(r"/(home|root|tmp|usr|work|Users)/|Warning|Error", text)


def test_the_teaching_tape_is_short():
    notebook = nbformat.read(NOTEBOOKS[1], as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert len(first.source.splitlines()) < 100
