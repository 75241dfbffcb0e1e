"""What the tests share: the ways to call an op of the catalogue and to differentiate it numerically."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    """Give a generator with a fixed seed."""
    return np.random.default_rng(20240607)
