"""What each operation computes and how it differentiates, and twins of the NumPy functions that do not dispatch."""

from ops import (
    catalog,
    cumulative,
    differences,
    edit,
    einsum,
    elementwise,
    functional,
    index,
    join,
    linalg,
    norm,
    polynomial,
    quantile,
    reduce,
    shape,
    solve,
    sort,
)
from ops.create import array, asarray, empty, full, ones, zeros

__all__ = [
    "array", "asarray", "catalog", "cumulative", "differences", "edit", "einsum", "elementwise", "empty", "full",
    "functional", "index", "join", "linalg", "norm", "ones", "polynomial", "quantile", "reduce", "shape", "solve",
    "sort", "zeros",
]  # fmt: skip
