"""The main job: `python -m tape` and its other commands."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize

from tape import __main__ as main_module
from tape import value_and_grad
from tape.data import breast_cancer

ROOT = Path(__file__).resolve().parents[1]

# An independent solver (Newton's method on the same problem) gives these, intercept last.
WEIGHTS = np.array([
    -0.4055703, -0.55904897, -0.39504049, -0.52230609, -0.35864876, 0.43371492, -0.8081561, -0.92160254, 0.34275216,
    0.48131585, -1.22584061, 0.04860506, -0.80498897, -0.8963655, -0.13806708, 0.70743607, 0.07560549, -0.26259874,
    0.1284084, 0.55553442, -0.94099367, -0.89726443, -0.80495701, -0.94078305, -0.58433265, 0.01969935, -0.62245531,
    -0.85921145, -0.83036359, -0.4989438, 0.05867796,
])  # fmt: skip


def standardised():
    features, labels, _ = breast_cancer()
    held_out = np.arange(len(labels)) % 4 == 3
    features = (features - features[~held_out].mean(axis=0)) / features[~held_out].std(axis=0)
    return features[~held_out], labels[~held_out]


def run(*arguments, cwd=ROOT, **environment):
    command = [sys.executable, "-m", "tape", *arguments]
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONWARNINGS"}
    return subprocess.run(
        command, cwd=cwd, env=inherited | environment, capture_output=True, text=True, check=False, timeout=500
    )


def test_data_is_what_its_licence_note_says():
    features, labels, names = breast_cancer()
    assert features.shape == (569, 30)
    assert len(names) == 30
    assert (labels.sum(), len(labels)) == (357, 569)
    assert np.isfinite(features).all()
    # The ranges that the source publishes.
    assert features[:, names.index("mean_radius")].min() == 6.981
    assert features[:, names.index("worst_area")].max() == 4254.0
    note = (ROOT / "tape" / "data" / "README.md").read_text(encoding="utf-8")
    assert "10.24432/C5DW2B" in note
    assert "CC BY 4.0" in note


def test_the_fit_is_that_of_another_solver():
    loss = main_module.logistic_loss(*standardised())
    fit = minimize(
        value_and_grad(loss), np.zeros(31), jac=True, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-10}
    )
    assert fit.x == pytest.approx(WEIGHTS, abs=2e-5)


def test_the_gradient_is_that_of_the_closed_form():
    features, labels = standardised()
    at = np.random.default_rng(1).normal(size=31)
    gradient = value_and_grad(main_module.logistic_loss(features, labels))(at)[1]
    wrong = 1 / (1 + np.exp(-(features @ at[:-1] + at[-1]))) - labels
    closed = np.append(features.T @ wrong + at[:-1], wrong.sum()) / len(labels)
    assert gradient == pytest.approx(closed, rel=1e-12, abs=1e-15)


def test_main_job():
    done = run()
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    loss = re.search(r"^loss +0\.693147 before, (\S+) after (\d+) gradients$", done.stdout, re.M)
    assert float(loss[1]) == pytest.approx(0.069973, abs=2e-6)
    assert int(loss[2]) < 60
    accuracy = re.search(r"^accuracy +(\S+)% fitted, (\S+)% held out$", done.stdout, re.M)
    assert (float(accuracy[1]), float(accuracy[2])) == (99.3, 97.2)
    error = re.search(r"central differences by (\S+) of", done.stdout)
    assert float(error[1]) < 1e-8
    assert re.search(r"^time +\d+ µs for loss and gradient, \d+ µs", done.stdout, re.M)
    assert re.search(r"^ +3  constant +\(427, 30\)  float64$", done.stdout, re.M)
    assert re.search(r"^ +4  matmul +3 1 +\(427,\) +float64$", done.stdout, re.M)


def test_info():
    done = run("info")
    assert done.returncode == 0, done.stderr
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in done.stdout.splitlines())
    assert {"python", "numpy", "numba", "scipy", "optree", "vector math", "cache", "BLAS of NumPy"} <= set(rows)
    assert rows["numpy"] == np.__version__


def test_help_and_a_wrong_command():
    assert "warm" in run("--help").stdout
    wrong = run("bake")
    assert wrong.returncode == 2
    assert "invalid choice" in wrong.stderr


def test_without_a_writable_cache(tmp_path):
    for package in ("ops", "tape"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
        # Not even the superuser can make a folder of this name then.
        (tmp_path / package / "__pycache__").write_text("")
    nowhere = "/proc/nonexistent"
    done = run(
        cwd=tmp_path, NUMBA_CACHE_DIR=nowhere, HOME=nowhere, XDG_CACHE_HOME=nowhere, PYTHONPATH=str(tmp_path),
        PYTHONDONTWRITEBYTECODE="1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RuntimeWarning") == 1
    assert "NUMBA_CACHE_DIR" in done.stderr
    assert "compiling the reverse sweep" in done.stderr
    assert "compiling the backward kernel of logaddexp" in done.stderr
    assert "99.3% fitted" in done.stdout


@pytest.mark.exhaustive
def test_warm(tmp_path):
    done = run("warm", NUMBA_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\d+ kernels ready", done.stdout, re.M)
    assert sum(1 for _ in tmp_path.rglob("*.nbc")) > 100
    again = run(NUMBA_CACHE_DIR=str(tmp_path))
    assert again.returncode == 0, again.stderr
    assert "compiling" not in again.stderr
