"""What tests of writes in place share."""

from __future__ import annotations

from typing import Any

import numpy as np

from tape import tensor


def equal(got: Any, expected: Any) -> None:
    """Hold a tensor or gradient against numbers."""
    got = got if isinstance(got, np.ndarray) else got.numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    assert got.shape == np.shape(expected)


def buffer(data: Any) -> Any:
    """Make a tensor without a gradient."""
    return tensor(np.array(data, float), requires_grad=False)
