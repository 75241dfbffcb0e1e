"""What each operation computes and how it differentiates, and twins of the NumPy functions that do not dispatch.

An op is one declaration (see `ops.catalog`). User code declares ops of its own by `tape.elementwise_op` and
`tape.structural_op`, which check what they are given, may be called again with the same name, and keep ops out of the
catalogue unless they have compiled kernels.
"""

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
    nn,
    norm,
    polynomial,
    quantile,
    reduce,
    shape,
    solve,
    sort,
)
from ops.create import array, asarray, empty, full, ones, zeros
from ops.nn import relu

__all__ = [
    "array",
    "asarray",
    "catalog",
    "cumulative",
    "differences",
    "edit",
    "einsum",
    "elementwise",
    "empty",
    "full",
    "functional",
    "index",
    "join",
    "linalg",
    "nn",
    "norm",
    "ones",
    "polynomial",
    "quantile",
    "reduce",
    "relu",
    "shape",
    "solve",
    "sort",
    "zeros",
]
