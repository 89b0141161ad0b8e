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


LEAST = {  # examples that groups of modules have
    ("attention", "attention_layer"): 9, ("auto",): 6, ("evidence.components",): 3, ("eigenpro",): 5, ("preconditioning",): 5,
    ("orderq",): 4, ("bpdn",): 2, ("srfe",): 4, ("pca",): 7, ("pursuit",): 6, ("harfe_regressor",): 4,
    ("ridge", "moments", "streaming", "feature_ridge", "processes"): 10,
    ("chaos",): 1, ("kpca",): 1, ("swarm",): 1, ("projected",): 1, ("sobol",): 1, ("chaos", "kpca", "swarm", "projected", "sobol"): 10,
}


def test_examples_are_found():
    finder = doctest.DocTestFinder()
    counts = {name: sum(len(test.examples) for test in finder.find(import_module(f"rfteach.{name}"))) for name in rfteach._PUBLIC}
    few = {names: least for names, least in LEAST.items() if sum(map(counts.get, names)) < least}
    assert not few and sum(count > 0 for count in counts.values()) > 40
