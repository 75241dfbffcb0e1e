"""Every example in a docstring of `tape` and `ops` runs and gives what it says."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import ops
import tape


def modules():
    for package in (ops, tape):
        yield package.__name__
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith("__main__"):
                yield found.name


@pytest.mark.parametrize("name", list(modules()))
def test_examples(name):
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    reports = []
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        with np.printoptions(legacy=False):
            runner.run(example, out=reports.append)
    assert not runner.failures, "".join(reports)


def test_examples_are_found():
    finder = doctest.DocTestFinder()
    module = importlib.import_module("tape.transforms")
    assert sum(len(found.examples) for found in finder.find(module)) > 5
