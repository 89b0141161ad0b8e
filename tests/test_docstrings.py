"""The examples in docstrings do what they show."""

import doctest
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer

import rfteach

GIVEN = {"np": np, "pd": pd, "torch": torch, "load_breast_cancer": load_breast_cancer}  # imports that examples leave out


@pytest.mark.parametrize("module", sorted(rfteach._PUBLIC))
def test_examples(module):
    found = doctest.testmod(import_module(f"rfteach.{module}"), optionflags=doctest.NORMALIZE_WHITESPACE, extraglobs=GIVEN)
    assert not found.failed


def test_most_modules_have_examples():
    counts = [len(doctest.DocTestFinder().find(import_module(f"rfteach.{module}"))) for module in rfteach._PUBLIC]
    assert sum(count > 0 for count in counts) > 40
