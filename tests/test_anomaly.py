"""detect_anomaly: where a value or gradient first stopped being finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tape import AnomalyError, backward_pairs, detect_anomaly, grad, gradients, tensor

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def test_a_value() -> None:
    """PyTorch: an error names the operation; here also the line of source and the first value that is not finite."""
    x = tensor([1.0, -1.0, 4.0])
    where = r"log.*nan at index \(1,\).*test_anomaly\.py.*y = np\.log\(x\)"
    with detect_anomaly(), pytest.raises(AnomalyError, match=where):
        y = np.log(x)  # noqa: F841


def test_a_gradient() -> None:
    """PyTorch: "Function 'SqrtBackward0' returned nan values in its 0th output"."""
    x = tensor([4.0, 0.0])
    with detect_anomaly():
        y = np.sqrt(x)
        z = np.sum(y)
        where = r"gradient of sqrt is inf at index \(1,\).*test_anomaly\.py.*y = np\.sqrt\(x\)"
        with pytest.raises(AnomalyError, match=where):
            z.backward()


def test_it_is_a_runtime_error_and_a_context_and_a_decorator() -> None:
    @detect_anomaly()
    def run(x: Any) -> Any:
        return np.log(x)

    with pytest.raises(RuntimeError, match="log"):
        run(tensor(-1.0))
    assert np.isnan(np.log(tensor(-1.0)).item())
    assert run(tensor(1.0)).item() == 0.0


def test_everything_finite_gives_the_same_numbers() -> None:
    def work() -> list[Any]:
        x, w = tensor(np.linspace(0.5, 1.0, 6).reshape(2, 3)), tensor([1.0, 2.0, 3.0])
        y = np.exp(x) @ w
        y[0] = np.sin(y[1])
        view = x[1:]
        (np.sum(y * y) + np.sum(view)).backward(retain_graph=True)
        (g,) = gradients(np.sum(y), x, create_graph=True)
        (h,) = gradients(np.sum(g * g), w)
        return [x.grad, w.grad, h, y.grad, view.grad]

    expected = work()
    with detect_anomaly():
        got = work()
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)


def test_pairs_and_retained_graphs() -> None:
    x = tensor([0.0, 1.0])
    with detect_anomaly():
        loss = np.sum(np.sqrt(x))
        with pytest.raises(AnomalyError, match="sqrt"):
            list(backward_pairs(loss, retain_graph=True))
        with pytest.raises(AnomalyError, match="sqrt"):
            gradients(loss, x, retain_graph=True)
    loss.backward()
    assert x.grad[1] == 0.5


def test_what_was_recorded_before_is_told_so() -> None:
    x = tensor([0.0, 1.0])
    loss = np.sum(np.sqrt(x))
    with detect_anomaly(), pytest.raises(AnomalyError, match="recorded outside of detect_anomaly"):
        loss.backward()


def test_without_check_nan_nothing_is_raised() -> None:
    """PyTorch: detect_anomaly(check_nan=True)."""
    x = tensor([0.0, 1.0])
    with detect_anomaly(check_nan=False):
        np.sum(np.sqrt(x)).backward()
    assert np.isinf(x.grad[0])


def test_contexts_nest_and_end() -> None:
    x = tensor(-1.0)
    with detect_anomaly():
        with detect_anomaly(), pytest.raises(AnomalyError):
            np.log(x)
        with pytest.raises(AnomalyError):
            np.log(x)
    assert np.isnan(np.log(x).item())
    with pytest.raises(KeyError), detect_anomaly():
        raise KeyError("mine")
    assert np.isnan(np.log(x).item())


def test_the_inner_mode_holds_meanwhile() -> None:
    x = tensor(-1.0)
    with detect_anomaly():
        with detect_anomaly(check_nan=False):
            assert np.isnan(np.log(x).item())
        with pytest.raises(AnomalyError):
            np.log(x)


def test_numbers_and_infinities() -> None:
    with detect_anomaly():
        for f, name in ((lambda t: 1.0 / t, "divide"), (lambda t: np.exp(t + 1000.0), "exp"), (np.log, "log")):
            with pytest.raises(AnomalyError, match=rf"{name}.*inf"):
                f(tensor(0.0))


def test_data_that_are_not_finite_are_nobodys_fault() -> None:
    """A leaf is no operation; the first operation on it is named."""
    x = tensor([np.nan, 1.0])
    with detect_anomaly(), pytest.raises(AnomalyError, match=r"multiply.*nan at index \(0,\)"):
        x * 2.0


def test_under_transforms() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.sqrt(x))

    where = r"gradient of sqrt is inf.*return np\.sum\(np\.sqrt\(x\)\)"
    with detect_anomaly(), pytest.raises(AnomalyError, match=where):
        grad(f)(np.array([0.0, 1.0]))
    assert np.isinf(grad(f)(np.array([0.0, 1.0]))[0])
