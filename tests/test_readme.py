"""The README's Python runs as written, and its commands are those that are tested."""

import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


def test_snippets_run_in_order():
    scope, printed = {}, []
    for snippet in blocks("python"):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(snippet, "README.md", "exec"), scope)
        if out.getvalue():
            printed.append(out.getvalue().splitlines())
            # What a snippet prints stands in its comments.
            told = [line[2:] for line in snippet.splitlines() if line.startswith("# ")]
            assert printed[-1] == told
    assert printed
    first = scope["grad"](scope["rosenbrock"])(np.array([-1.2, 1.0]))
    assert first == pytest.approx([-215.6, -88.0])


def test_expressions_in_the_text():
    scope = {}
    exec("import numpy as np\nfrom tape import grad", scope)
    found = re.findall(r"`(grad\([^`]+)` is `([^`]+)`", README)
    assert found
    for expression, value in found:
        assert eval(expression, scope) == eval(value)


def test_two_commands():
    shell = blocks("bash")
    assert len(shell) == 2
    assert shell[0] == "pip install . && python -m tape\n"
    # .ci/run picks the command by this pattern.
    assert re.fullmatch(r"pip install -e .*pytest.*\n", shell[1])


def test_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists()
