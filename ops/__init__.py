"""What each operation computes and how it differentiates, and twins of the NumPy functions that do not dispatch."""

from ops import catalog, elementwise, index, join, linalg, reduce, shape
from ops.create import array, asarray, empty, full, ones, zeros

__all__ = [
    "array", "asarray", "catalog", "elementwise", "empty", "full", "index", "join", "linalg", "ones", "reduce", "shape",
    "zeros",
]  # fmt: skip
