"""The collection of problems that people reported of other libraries, where it lies beside the repository."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ops
import tape
from tape import grad, value_and_grad

CASES = Path(__file__).resolve().parents[2] / "shared" / "cases" / "public_cases.py"
WAITING = {"fft-parseval"}
"""Cases on what is not there yet (complex values); the list shrinks as it comes."""


class Twins:
    """NumPy, with the twins of the functions that it does not dispatch."""

    def __getattr__(self, name: str) -> Any:
        return getattr(ops if name in ("array", "zeros", "ones", "empty", "full") else np, name)


def load() -> Any:
    spec = importlib.util.spec_from_file_location("public_cases", CASES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["public_cases"] = module
    spec.loader.exec_module(module)
    return module


def test_every_case_passes_but_those_that_wait() -> None:
    if not CASES.exists():
        pytest.skip("the collection of cases is not beside this repository")
    cases = load()

    def missing(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("not there yet")

    api = types.SimpleNamespace(
        grad=grad, value_and_grad=value_and_grad, np=Twins(),
        **{name: getattr(tape, name, missing) for name in ("jacobian", "hessian", "vjp", "jvp")},
    )  # fmt: skip
    results = cases.run(api)
    assert len(results) > 50
    failed = {name: text for name, (ok, text) in results.items() if not ok}
    unexpected = {name: text for name, text in failed.items() if name not in WAITING}
    assert not unexpected, unexpected
    assert set(failed) == WAITING, f"these pass now: {WAITING - set(failed)}"
