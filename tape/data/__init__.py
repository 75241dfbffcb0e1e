"""A small real data set to try things on; its source and licence are in README.md beside it."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np


class Table(NamedTuple):
    """Features and labels.

    Attributes
    ----------
    features : ndarray of shape (rows, columns)
    benign : ndarray of shape (rows,)
        1.0 for benign, 0.0 for malignant.
    names : list of str
        Of the features.
    """

    features: np.ndarray[Any, np.dtype[np.float64]]
    benign: np.ndarray[Any, np.dtype[np.float64]]
    names: list[str]


def breast_cancer() -> Table:
    """Load Breast Cancer Wisconsin (Diagnostic): 569 tumours, 30 features of their cell nuclei, and the diagnosis.

    Examples
    --------
    >>> from tape.data import breast_cancer
    >>> features, benign, names = breast_cancer()
    >>> features.shape, int(benign.sum()), names[0]
    ((569, 30), 357, 'mean_radius')
    """
    head, *lines = files("tape.data").joinpath("breast_cancer.csv").read_text(encoding="utf-8").splitlines()
    table = np.loadtxt(lines, delimiter=",")
    return Table(np.ascontiguousarray(table[:, :-1]), table[:, -1].copy(), head.split(",")[:-1])
