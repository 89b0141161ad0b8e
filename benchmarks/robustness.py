"""Every public estimator under everything that may go wrong, with inputs that hypothesis draws and shrinks.

``python benchmarks/robustness.py [ESTIMATOR ...] [--examples N] [--checks CHECK ...] [--out FILE]``
runs each check with N inputs for each estimator, and keeps how many were tried, how many faults ended
as they should, and the smallest input that failed. ``--list`` names estimators and checks.
To put an estimator of one's own to the test, see `Case` and `run`.
"""

import argparse
import copy
import importlib
import inspect
import io
import json
import linecache
import os
import pickle
import pkgutil
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Callable

import joblib
import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits

import rfteach
from harness import machine
from memory import status
from rfteach.arrays import memory_budget
from rfteach.attention_layer import RandomFeatureAttention

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
EPS = np.finfo(np.float64).eps


# ---- the estimators
@dataclass(frozen=True)
class Case:
    """An estimator, at settings under which it is quick, and what it promises.

    Attributes
    ----------
    make : callable
        Returns the estimator, unfitted; a ``random_state`` is an int.
    grid : dict
        Parameters and values for a grid search.
    columns : bool
        Whether multiplying X by a power of two changes nothing, as with a bandwidth that is taken from
        the data. Not so with a fixed bandwidth, with a penalty on the coefficients of X, or where the
        rows that are chosen depend on their values.
    targets : bool
        Whether multiplying y by a power of two multiplies the prediction.
    parts : dict or None
        Parameters under which ``partial_fit`` is offered; None where it never is.
    large : tuple or None
        Rows n, parameters, number N of features, and how many numbers the systems may take that are solved, for a run
        whose n × N matrix would be half as large again as what `held` allows, where memory is promised to be bounded
        by data, result, systems and the budget for a block.
    refuses : callable
        Takes X and y; whether a ValueError is the right answer, because the mathematics has none.
    float32 : float
        How far results in float32 may be from those in float64, relative to the largest.
    rounding : float
        The same for another order of the same sums: memory layout, threads, units. More for
        Nyström features, where the least eigenvalue that is kept has half of the digits, for an RBF network,
        whose penalty is next to nothing where targets have no noise, and for steps at centres, whose projection makes
        more of rounding.
    limits : bool
        Whether units in which exponents overflow may be refused, clearly.
    goes_on : bool
        Whether Ctrl-C may end a part of the fit, such as a search, and the fit goes on with what was found.
    seen : callable
        What of the result rounding must not change; products of rows where features are determined up
        to their signs.
    skip : tuple of str
        Checks that make no sense for it.
    """

    make: Callable
    grid: dict
    columns: bool = False
    targets: bool = False
    parts: dict | None = None
    large: tuple | None = None
    refuses: Callable = lambda X, y: False
    float32: float = 1e-3
    rounding: float = 1e-8
    limits: bool = False
    goes_on: bool = False
    seen: Callable = lambda result: result
    skip: tuple = ()


class Attention(BaseEstimator):
    """`RandomFeatureAttention` as a transformer: rows are the positions of one sequence."""

    def __init__(self, n_components=8, random_state=0):
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X, y=None):
        d = np.shape(X)[1]
        generator = torch.get_rng_state()
        torch.manual_seed(0)  # for the projections, which torch draws from its own state
        self.module_ = RandomFeatureAttention(d, 1, n_components=self.n_components,
                                             random_state=self.random_state).eval()
        torch.set_rng_state(generator)
        return self

    def transform(self, X):
        T = X if isinstance(X, torch.Tensor) else torch.from_numpy(np.array(X))
        self.module_.to(T.dtype)
        with torch.no_grad():
            out = self.module_(T[None], T[None], T[None])
        return (out[0] if isinstance(out, tuple) else out)[0]


def products(Z):
    """Of all pairs of rows, which do not depend on the signs of the features."""
    Z = array(Z).astype(np.float64)
    return Z @ Z.T


def one_label(X, y):
    return len(np.unique(y)) < 2


def cases():
    """The table: name, case."""
    from rfteach.adaptive import AdaptiveFeatureRegressor
    from rfteach.agop import RFMClassifier, RFMRegressor
    from rfteach.auto import AutoKernelClassifier, AutoKernelRegressor
    from rfteach.centers import CentersClassifier, CentersRegressor
    from rfteach.columns import TableEncoder
    from rfteach.conjugate import KernelRidgeRegressor
    from rfteach.eigenpro import EigenProClassifier, EigenProRegressor
    from rfteach.features import RandomFourierFeatures
    from rfteach.srfe import SRFERegressor
    from rfteach.pca import GradientPCA
    from rfteach.harfe_regressor import HARFERegressor
    from rfteach.rbf import NystroemFeatures, RBFRegressor
    from rfteach.chaos import SparsePCE
    from rfteach.kpca import AnisotropicKernelPCA
    from rfteach.projected import ProjectedSurrogate
    from rfteach.feature_ridge import RandomFeatureRidge, RandomFeatureRidgeClassifier
    from rfteach.streaming import StreamingRidge

    def waves(N=8):
        return RandomFourierFeatures(bandwidth="median", n_components=N, random_state=0)

    step = 6 * 200**2 + 2 * 2000**2  # 2000 rows tell the step
    eigen, size = dict(kernel=["gaussian", "laplacian"]), dict(max_iter=1, cache=None, n_subsample=100, batch_size=100)
    found = [
        Case(waves, dict(form=["phase", "paired"]), True, large=(40_000, dict(n_components=400), 400, 6 * 400**2)),
        Case(lambda: NystroemFeatures(n_components=6, random_state=0), dict(n_components=[3, 5]),
             seen=products, rounding=1e-6, large=(40_000, dict(n_components=400), 400, 6 * 400**2)),
        Case(lambda: RandomFeatureRidge(waves()), dict(alpha=[0.1, "gcv"]), True, True, parts=dict(alpha=0.1),
             large=(40_000, dict(features=waves(200)), 200, 6 * 200**2)),
        Case(lambda: RandomFeatureRidgeClassifier(waves(), alpha=0.1), dict(alpha=[0.1, "gcv"]), True, parts={},
             refuses=one_label, large=(40_000, dict(features=waves(200)), 200, 6 * 200**2)),
        Case(KernelRidgeRegressor, dict(alpha=[0.1, "loo"]), True, True, rounding=1e-6,
             large=(4_000, dict(alpha=1.0, n_landmarks=200, tol=1e-3, memory=0), 4_000, 6 * 200**2)),
        Case(lambda: StreamingRidge("gcv"), dict(alpha=[1.0, "gcv"]), targets=True, parts={}),
        Case(lambda: RBFRegressor(6, random_state=0), dict(n_centers=[3, 5]), targets=True,
             rounding=1e-6, large=(40_000, dict(n_centers=200), 200, 6 * 200**2)),
        Case(lambda: SRFERegressor(20, n_folds=2, random_state=0), dict(order=[1, 2]), targets=True),
        Case(lambda: HARFERegressor(8, bandwidth="scale", random_state=0), dict(bandwidth=["scale", "auto"]), True,
             True),
        Case(lambda: EigenProRegressor(max_iter=3, random_state=0), eigen, True, True, parts={},
             large=(5_000, size, 5_000, 6 * 100**2)),
        Case(lambda: EigenProClassifier(max_iter=3, random_state=0), eigen, True, parts={}, refuses=one_label,
             large=(5_000, size, 5_000, 6 * 100**2)),
        Case(lambda: CentersRegressor(centers=8, max_iter=3, random_state=0), dict(centers=[4, 8]), True, True, parts={},
             rounding=1e-6, large=(120_000, dict(centers=200, max_iter=1), 200, step)),
        Case(lambda: CentersClassifier(centers=8, max_iter=3, random_state=0), dict(centers=[4, 8]), True, parts={},
             rounding=1e-6, refuses=one_label, large=(120_000, dict(centers=200, max_iter=1), 200, step)),
        Case(lambda: GradientPCA(random_state=0), dict(alpha=[0.0, 0.1]), True, parts={}, seen=products),
        Case(lambda: SparsePCE(3), dict(degree=[1, 2]), True, True),
        Case(lambda: AnisotropicKernelPCA(2), dict(n_components=[1, 2]), True, seen=products),
        Case(lambda: ProjectedSurrogate(None, SparsePCE(2, n_folds=None), budget=3, random_state=0), dict(n_reduced=[1]), True,
             True, goes_on=True),
        Case(lambda: AdaptiveFeatureRegressor(12, 2, n_frequencies=3, max_iter=3, random_state=0),
             dict(n_components=[6, 12]), True, True),
        Case(lambda: RFMRegressor(n_rounds=1, metric="full"), dict(n_rounds=[0, "auto"]), True, True, rounding=1e-6,
             large=(40_000, dict(n_rounds=0, n_subsample=200, n_centers=200, alpha=0.1), 200, 6 * 200**2)),
        Case(lambda: RFMClassifier(n_rounds=1, metric="full", alpha=0.1), dict(n_rounds=[0, "auto"]), True,
             rounding=1e-6, refuses=one_label,
             large=(40_000, dict(n_rounds=0, n_subsample=200, n_centers=200), 200, 6 * 200**2)),
        Case(lambda: AutoKernelRegressor(time_budget=1e-9), dict(random_state=[0, 1]), True, True, rounding=1e-5,
             skip=("dtypes", "not finite")),  # one candidate, whatever the clock says
        Case(lambda: AutoKernelClassifier(time_budget=1e-9), dict(random_state=[0, 1]), True, rounding=1e-5,
             skip=("dtypes", "not finite"), refuses=one_label),
        Case(TableEncoder, dict(max_levels=[2, 5]), True, skip=("dtypes", "not finite")),  # a gap is NaN
        Case(Attention, {}, limits=True, skip=("dtypes", "frames", "not finite", "searches", "interrupts")),
    ]
    return {type(case.make()).__name__: case for case in found}


def public_estimators():
    """Names of all classes with a ``fit`` like scikit-learn's in the modules that users import from."""
    found = {}
    for module in pkgutil.iter_modules(rfteach.__path__):
        found.update(vars(importlib.import_module(f"rfteach.{module.name}")))
    return {name for name, kind in found.items() if inspect.isclass(kind) and issubclass(kind, BaseEstimator)
            and hasattr(kind, "fit") and rfteach._PUBLIC.get(kind.__module__.removeprefix("rfteach."))
            and not name.startswith("_")}


# ---- how they are called
def value(model, X):
    """The result of a fitted estimator that depends on most: values, or features."""
    for method in ("decision_function", "predict", "transform"):
        if hasattr(model, method):
            return getattr(model, method)(X)
    raise TypeError(f"{type(model).__name__} has neither predict nor transform")


def array(result):
    return result.detach().cpu().numpy() if isinstance(result, torch.Tensor) else np.asarray(result)


def fitted(case, X, y, **fit):
    return case.make().fit(X, y, **fit)


def problem(draw, case, least=1, most=9, outputs=True):
    """X of shape (n, d) and targets or labels, with the seed that new rows are drawn from."""
    n = draw(st.integers(least, most), "n")
    d = draw(st.integers(1, 4), "d")
    seed = draw(st.integers(0, 99), "seed")
    k = draw(st.sampled_from([0, 1, 2]), "outputs") if outputs and multiple(case) else 0
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.sin(X @ rng.normal(size=(d, max(k, 1)))) + 0.1 * rng.normal(size=(n, max(k, 1)))
    y = y if k else y[:, 0]
    return X, labels(y) if is_classifier(case.make()) else y, seed


def labels(y):
    """Three classes, or two for few rows, all of them there where there are enough rows."""
    y = np.arange(len(y)) % (3 if len(y) > 5 else 2)
    return y.astype(np.int64)


def multiple(case):
    return is_regressor(case.make()) and case.make().__sklearn_tags__().target_tags.multi_output


def arguments(estimator):
    """The words that a message may call an argument by."""
    return {*inspect.signature(estimator.fit).parameters, *estimator.get_params(), "X", "y", "features", "classes"}


def assert_clear(error, estimator, *names):
    """The message names an argument, or one of ``names``."""
    words = set(re.findall(r"\w+", str(error)))
    assert words & set(names or arguments(estimator)), f"which argument is meant? {error!r}"


def assert_same(found, expected, tolerance, of=None):
    """Equal up to ``tolerance`` times the largest value expected (or ``of``)."""
    found, expected = (array(v).astype(np.float64) for v in (found, expected))
    assert found.shape == expected.shape, f"shapes {found.shape} and {expected.shape}"
    assert np.isfinite(found).all(), f"not finite: {found}"
    size = np.abs(expected).max(initial=0.0) if of is None else of
    worst = np.abs(found - expected).max(initial=0.0)
    assert worst <= tolerance * size, f"differ by {worst:.3g} where the largest is {size:.3g}: {found} and {expected}"


def assert_unfitted(model, X):
    try:
        value(model, X)
    except NotFittedError:
        return
    raise AssertionError("was never fitted, but gives a result")


def attempt(case, X, y, allowed, **fit):
    """The fitted estimator, or None where it refuses with a clear ValueError and may."""
    model = case.make()
    try:
        return model.fit(X, y, **fit)
    except ValueError as error:
        if not allowed:
            raise AssertionError(f"refused: {error}") from error
        assert_clear(error, model)
        return None


# ---- the checks: each takes a case and hypothesis' draw, and returns how many faults ended well
def shapes(case, draw):
    """Few rows, one row, more columns than rows, constant columns, equal rows, constant targets."""
    X, y, seed = problem(draw, case)
    n, d = X.shape
    pattern = draw(st.sampled_from(["none", "constant column", "duplicates", "equal rows", "zeros"]), "pattern")
    if pattern == "constant column":
        X[:, 0] = 3.0
    elif pattern == "duplicates":
        X = X[np.arange(n) // 2]
    elif pattern == "equal rows":
        X[:] = X[0]
    elif pattern == "zeros":
        X[:] = 0.0
    if draw(st.booleans(), "constant y"):
        y = np.full_like(y, 2)
    refused = case.refuses(X, y)
    model = attempt(case, X, y, refused)
    assert (model is None) == refused, "a result that the mathematics does not have"
    if model is None:
        return 1
    new = np.random.default_rng(seed + 1).normal(size=(draw(st.integers(1, 3), "new rows"), d))
    for rows in (X, new, np.concatenate([X, new])):
        out = array(value(model, rows))
        assert len(out) == len(rows) and np.isfinite(out).all(), out
        if is_regressor(model):
            assert out.shape == (len(rows),) + y.shape[1:]
        elif is_classifier(model):
            assert out.shape == (len(rows),) + ((len(model.classes_),) if len(model.classes_) > 2 else ())
            assert set(model.predict(rows)) <= set(y)
    return int(pattern != "none")


def dtypes(case, draw):
    """The same numbers as floats, integers, booleans, lists and tensors; complex numbers and objects."""
    kind = draw(st.sampled_from(["float32", "float16", "int64", "uint8", "bool", "list", ">f8", "longdouble",
                                 "torch.float64", "torch.float32", "torch.float16", "torch.int64"]), "kind")
    bad = draw(st.sampled_from(["complex128", "text", "None"]), "wrong kind")
    X, y, seed = problem(draw, case, least=4)
    X = np.random.default_rng(seed).integers(0, 2 if kind == "bool" else 5, size=X.shape).astype(float)
    wrong = X.astype(complex if bad == "complex128" else object)
    wrong[0, 0] = {"complex128": 1j, "text": "a", "None": None}[bad]
    plain = value(fitted(case, X, y), X)
    if kind == "list":
        other, expected = X.tolist(), np.float64
    elif kind.startswith("torch."):
        other = torch.from_numpy(X).to(getattr(torch, kind[6:]))
        expected = other.dtype if other.is_floating_point() else torch.float64
        expected = torch.float32 if expected == torch.float16 else expected
    else:
        other = X.astype(kind)
        expected = np.dtype(kind) if other.dtype.kind == "f" and other.dtype.itemsize < 9 else np.float64
        expected = np.dtype("float32" if kind == "float16" else expected).newbyteorder("=")
    found = value(fitted(case, other, y), other)
    assert isinstance(found, torch.Tensor) == kind.startswith("torch."), type(found)
    assert found.dtype == expected, f"{found.dtype}, expected {expected}"
    low = {"float32": case.float32, "float16": max(case.float32, 4e-3)}.get(kind.removeprefix("torch."))
    found, plain = case.seen(found), case.seen(plain)
    assert_same(found, plain, low or case.rounding, of=max(np.abs(array(plain)).max(initial=0.0), np.abs(y).max()))
    return refusals(case, [(wrong, y)], X, y, wrong, (ValueError, TypeError), "X", "A")


def refusals(case, fits, X, y, new, kinds, *names):
    """How many wrong fits and one wrong prediction are refused, clearly, and leave a model as it was."""
    model = fitted(case, X, y)
    before = array(value(model, X))
    for wrong in fits:
        for m in (case.make(), model):
            try:
                m.fit(*wrong)
            except kinds as error:
                assert_clear(error, model, *names)
            else:
                raise AssertionError("took what it should refuse")
            if m is not model:
                assert_unfitted(m, X)
        assert_same(value(model, X), before, 0.0)
    if new is not None:
        try:
            value(model, new)
        except kinds as error:
            assert_clear(error, model, *(names or ("X", "A")))
        else:
            raise AssertionError("took what it should refuse")
    return 2 * len(fits) + (new is not None)


def scales(case, draw):
    """X, one column of X, y or both X and y in units from 1e-100 to 1e100 (1e-30 to 1e30 in float32)."""
    single = draw(st.booleans(), "float32")
    reach = 30 if single else 100
    which = draw(st.sampled_from(["X", "y", "both", "one column"]), "which")
    kx, ky = (draw(st.integers(-reach, reach), f"power of ten of {name}") if changes else 0
              for name, changes in (("X", which != "y"), ("y", which in ("y", "both"))))
    X, y, _ = problem(draw, case, least=2)
    a, b = (2.0 ** round(k / np.log10(2)) for k in (kx, ky))
    b = 1 if is_classifier(case.make()) else b
    if single:
        X, y = X.astype(np.float32), y if is_classifier(case.make()) else y.astype(np.float32)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        one = array(value(fitted(case, X, y), X))
        scaled = y if b == 1 else (y * b).astype(y.dtype)
        units = np.where(np.arange(X.shape[1]) > 0, 1.0, a) if which == "one column" else a
        X2 = (X * units).astype(X.dtype)
        try:
            two = array(value(fitted(case, X2, scaled), X2))
        except ValueError as error:
            assert case.limits, f"refused: {error}"
            assert_clear(error, case.make(), "X", "q", "k")
            return 1
    assert np.isfinite(two).all(), two
    unit = b if is_regressor(case.make()) else 1.0
    if (a == 1 or case.columns) and (unit == 1 or case.targets) and which != "one column":
        assert_same(case.seen(two.astype(float) / unit), case.seen(one), 1e-2 if single else case.rounding)
    return 1


def layouts(case, draw):
    """Other orders and strides in memory, read-only and mapped files; no input is written to."""
    X, y, _ = problem(draw, case, least=3)
    form = draw(st.sampled_from(["fortran", "rows apart", "columns apart", "backwards", "read-only", "mapped",
                                 "tensor, transposed", "tensor"]), "form")
    n, d = X.shape
    expected = value(fitted(case, X, y), X)
    with tempfile.TemporaryDirectory() as folder:
        y2 = y
        if form == "fortran":
            X2, y2 = np.asfortranarray(X), np.asfortranarray(y)
        elif form == "rows apart":
            X2, y2 = np.repeat(X, 2, axis=0)[::2], np.repeat(y, 2, axis=0)[::2]
        elif form == "columns apart":
            X2 = np.repeat(X, 3, axis=1)[:, 1::3]
        elif form == "backwards":
            X2, y2 = X[::-1, ::-1].copy()[::-1, ::-1], y[::-1].copy()[::-1]
        elif form == "mapped":
            X2 = np.memmap(Path(folder) / "X", X.dtype, "w+", shape=X.shape)
            X2[:] = X
            X2.flush()
            X2 = np.memmap(Path(folder) / "X", X.dtype, "r", shape=X.shape)
        elif form == "read-only":
            X2, y2 = X.copy(), y.copy()
            X2.flags.writeable = y2.flags.writeable = False
        else:
            X2 = torch.from_numpy(X.T.copy()).T if "transposed" in form else torch.from_numpy(X.copy())
        given = array(X2).tobytes(), y2.tobytes()
        model = fitted(case, X2, y2)
        found = array(value(model, X2))
        assert (array(X2).tobytes(), y2.tobytes()) == given, "an input was written to"
        assert_same(case.seen(found), case.seen(expected), case.rounding)
        if has_fit_parameter(model, "sample_weight"):
            w = np.arange(1.0, n + 1)
            kept = w.tobytes()
            fitted(case, X2, y2, sample_weight=w)
            assert w.tobytes() == kept, "sample_weight was written to"
        del X2
    return 0


def frames(case, draw):
    """Data frames with names: the same numbers, names kept, other names and orders refused."""
    import pandas as pd

    X, y, _ = problem(draw, case, least=3)
    n, d = X.shape
    names = [f"c{j}" for j in range(d)]
    rows = [f"r{i}" for i in range(n)]
    F = pd.DataFrame(X, columns=names, index=rows)
    target = (pd.DataFrame if y.ndim == 2 else pd.Series)(y, index=rows)
    model = fitted(case, F, target)
    assert_same(case.seen(value(model, F)), case.seen(value(fitted(case, X, y), X)), case.rounding)
    assert model.feature_names_in_.tolist() == names and model.n_features_in_ == d
    survived = 0
    wrong = [F.rename(columns={"c0": "other"}), F.assign(more=1.0)]
    wrong += [F[names[::-1]], F[names[1:]]] if d > 1 else []
    for frame in wrong:
        try:
            value(model, frame)
        except ValueError as error:
            assert re.search("feature|column", str(error)), error
            survived += 1
        else:
            raise AssertionError(f"took columns {list(frame.columns)} for {names}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            value(model, X)
        except UserWarning as warning:
            assert "feature names" in str(warning)
        else:
            raise AssertionError("columns without names go unnoticed")
    if hasattr(model, "get_feature_names_out"):
        out = model.get_feature_names_out()
        assert len(out) == array(model.transform(F)).shape[1]
        frame = case.make().set_output(transform="pandas").fit(F, target).transform(F)
        assert list(frame.columns) == list(out) and list(frame.index) == rows
    return survived


def not_finite(case, draw):
    """NaN or infinity at one place of X, y or the weights: refused, naming which; a model stays as it was."""
    X, y, _ = problem(draw, case, least=4)
    bad = draw(st.sampled_from([np.nan, np.inf, -np.inf]), "value")
    weighted = has_fit_parameter(case.make(), "sample_weight")
    supervised = is_regressor(case.make()) or is_classifier(case.make())
    which = draw(st.sampled_from(["X"] + ["y"] * supervised + ["sample_weight"] * weighted), "where")
    as_tensor = draw(st.booleans(), "tensor")
    w = np.ones(len(X))
    spoiled = {"X": X.copy(), "y": y.astype(float), "sample_weight": w}[which]
    place = draw(st.integers(0, spoiled.size - 1), "place")
    spoiled.reshape(-1)[place] = bad
    if as_tensor:
        spoiled = torch.from_numpy(spoiled)
    given = {"X": (spoiled, y), "y": (X, spoiled), "sample_weight": (X, y, spoiled)}[which]
    names = {"X": ("X", "A"), "y": ("y",), "sample_weight": ("sample_weight",)}[which]
    return refusals(case, [given], X, y, spoiled if which == "X" else None, ValueError, *names)


def global_states():
    """NumPy's and torch's own random states, whole: the position of NumPy's generator is a part of it."""
    return pickle.dumps(np.random.get_state()), torch.get_rng_state().numpy().tobytes()


def repeats(case, draw):
    """The same seed, the same bits; a second fit forgets the first; NumPy's and torch's own states stay."""
    X, y, seed = problem(draw, case, least=3, most=40)
    model = fitted(case, X, y)
    states = global_states()
    expected = array(value(model, X))
    assert_same(value(fitted(case, X, y), X), expected, 0.0)
    other = np.random.default_rng(seed + 1).normal(size=(5, X.shape[1] + 1))
    y5 = (np.arange(5) % 2) if is_classifier(model) else np.arange(5.0)
    assert_same(value(model.fit(other, y5).fit(X, y), X), expected, 0.0)
    assert states == global_states(), "a global random state was used"
    free = {name: None for name in model.get_params() if name.split("__")[-1] == "random_state"}
    out = array(value(case.make().set_params(**free).fit(X, y), X))
    assert np.isfinite(out).all()
    return 0


def threads(case, draw):
    """Two threads give what one gives, up to rounding; with the many features of ``large`` where there are any."""
    X, y, _ = problem(draw, case, *((600, 900) if case.large else (60, 120)), outputs=False)
    results, before = [], torch.get_num_threads()
    for n in (1, 2):
        try:
            torch.set_num_threads(n)
            with threadpool_limits(n):
                model = case.make().set_params(**(case.large[1] if case.large else {})).fit(X, y)
                results.append(case.seen(value(model, X)))
        finally:
            torch.set_num_threads(before)
    assert_same(results[1], results[0], case.rounding)
    return 0


def copies(case, draw):
    """Pickle, joblib, deepcopy: the same bits; on another device: the same numbers."""
    X, y, _ = problem(draw, case, least=3)
    model = fitted(case, X, y)
    expected = value(model, X)
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    for twin in (pickle.loads(pickle.dumps(model)), joblib.load(file), copy.deepcopy(model)):
        assert_same(value(twin, X), expected, 0.0)
        assert twin.get_params().keys() == model.get_params().keys()
    for device in DEVICES if "device" in model.get_params() else []:
        there = case.make().set_params(device=device).fit(X, y)
        for model in (there, pickle.loads(pickle.dumps(there))):
            assert_same(case.seen(value(model, X)), case.seen(expected), case.rounding)
    return 0


def searches(case, draw):
    """clone, a pipeline behind a scaler, and a grid search with two folds."""
    X, y, _ = problem(draw, case, least=12, most=24, outputs=False)
    model = case.make()
    fresh = model.get_params(deep=False)
    model.fit(X, y)
    twin = clone(model)
    assert_unfitted(twin, X)
    after = model.get_params(deep=False)
    assert all(after[name] is fresh[name] for name in fresh), "fit changed a parameter"
    assert_same(value(twin.fit(X, y), X), value(model, X), 0.0)
    line = make_pipeline(StandardScaler(), case.make())
    name = line.steps[-1][0]
    score = None if hasattr(model, "score") else lambda fitted, X, y=None: 0.0
    grid = {f"{name}__{key}": values for key, values in case.grid.items()}
    search = GridSearchCV(line, grid, cv=2, error_score="raise", scoring=score).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert np.isfinite(array(value(search.best_estimator_, X))).all()
    return 0


class Stop:
    """Raises KeyboardInterrupt at the k-th line that is executed in certain files; counts lines.

    Lines of a ``with`` do not count: one is executed at the end, too, where no signal comes between the body and ``__exit__``.
    """

    def __init__(self, folders, at=None):
        self.folders, self.at, self.count = tuple(map(str, folders)), at, 0

    def _call(self, frame, event, arg):
        return self._line if frame.f_code.co_filename.startswith(self.folders) else None

    def _line(self, frame, event, arg):
        if event == "line" and not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            self.count += 1
            if self.count - 1 == self.at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self._line

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *error):
        sys.settrace(self.before)


def sources(model):
    """Where the code of an estimator stands: the package, and the file of its class."""
    return Path(rfteach.__file__).parent, inspect.getfile(type(model))


def interrupts(case, draw):
    """Ctrl-C at any line of fit or partial_fit: unfitted, or as before; the next fit as if nothing had been."""
    X, y, seed = problem(draw, case, least=4)
    first = draw(st.sampled_from(["nothing", "fit", "partial_fit"]), "before")
    again = draw(st.sampled_from(["fit", "partial_fit"]), "interrupted")
    model = case.make()
    if case.parts is None:
        first, again = ("fit" if first != "nothing" else first), "fit"
    elif "partial_fit" in (first, again):
        model.set_params(**case.parts)
    rng = np.random.default_rng(seed + 1)
    other = rng.normal(size=(5, X.shape[1] + (again == "fit")))
    y5 = np.arange(5) % len(np.unique(y)) if is_classifier(model) else rng.normal(size=(5, *y.shape[1:]))

    def call(m, method, X, y):
        more = {"classes": np.unique(y)} if method == "partial_fit" and is_classifier(m) else {}
        return getattr(m, method)(X, y, **more)

    if first != "nothing":
        call(model, first, X, y)
        before = array(value(model, X))
    new = (X, y) if first == "nothing" else (other, y5)
    undisturbed = copy.deepcopy(model)
    with Stop(sources(model)) as lines:
        call(undisturbed, again, *new)
    expected = array(value(undisturbed, new[0]))
    at = draw(st.integers(0, lines.count - 1), "line")
    if draw(st.booleans(), "from the end"):  # where results are written; small numbers are drawn more often
        at = lines.count - 1 - at
    try:
        with Stop(sources(model), at) as stop:
            call(model, again, *new)
    except KeyboardInterrupt:
        if first == "nothing":
            assert_unfitted(model, X)
        else:
            assert_same(value(model, X), before, 0.0)
    else:
        assert case.goes_on, f"Ctrl-C was swallowed, or line {at} of {lines.count} not reached: {stop.count}"
        assert np.isfinite(array(value(model, new[0]))).all()
        if again == "partial_fit":
            return 1
    assert_same(value(call(model, again, *new), new[0]), expected, 0.0)
    return 1


def memory(case, draw):
    """In a process of its own, under a budget of 1 MiB: no n × N matrix is held."""
    if not os.access("/proc/self/clear_refs", os.W_OK):  # no high-water mark to reset here
        return 0
    draw(st.none(), "once")  # one input is all there is
    n, _, N, _ = case.large
    extra, result = child(type(case.make()).__name__)
    allowed = held(case, result)
    found, promised, whole = (f"{v / 2**20:.1f} MiB" for v in (extra, allowed, 8 * n * N))
    assert extra <= allowed, f"{found}, promised {promised}; n × N takes {whole}"
    return 1


def held(case, result):
    """Bytes that a large run may take: four copies of rows and targets, the result, systems, a block, and SLACK."""
    n, _, _, systems = case.large
    return 4 * 8 * n * (COLUMNS + 1) + result + 8 * systems + 2**20 + SLACK


def child(name):
    """What `memory_here` prints, from a process with one thread that gives back pages when it releases them."""
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536",
           "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, __file__, "--memory", name], env=env, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


SLACK = 24 * 2**20  # libraries, and what the allocator keeps
COLUMNS = 3


def memory_here(name):
    """The child's part: peak beyond what was there, and the size of the result, in bytes."""
    case = cases()[name]
    n, parameters, *_ = case.large
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, COLUMNS))
    y = np.arange(n) % 2 if is_classifier(case.make()) else np.sin(X[:, 0])
    with memory_budget(2**20):
        value(case.make().fit(X[:64], y[:64]), X[:64])
        Path("/proc/self/clear_refs").write_text("5")
        before = status("VmRSS")
        model = case.make().set_params(**parameters).fit(X, y)
        result = value(model, X)
    print(json.dumps([max(status("VmHWM") - before, 0), result.nbytes]))


CHECKS = {"shapes": shapes, "dtypes": dtypes, "scales": scales, "layouts": layouts, "frames": frames,
          "not finite": not_finite, "repeats": repeats, "threads": threads, "copies": copies,
          "searches": searches, "interrupts": interrupts, "memory": memory}
SLOW = {"threads": 4, "searches": 4, "memory": 10**9}  # by how much fewer inputs


# ---- how they are run
def run(case, check, examples):
    """Put a case to one check.

    Parameters
    ----------
    case : Case
    check : str
        One of `CHECKS`.
    examples : int
        Inputs to draw; fewer for the slow checks.

    Returns
    -------
    dict
        ``inputs`` tried, ``survived``: faults that ended as they should, and ``failures``: the smallest
        input that failed and how, if one did.
    """
    count, failures = Counter(), []

    @settings(max_examples=max(1, examples // SLOW.get(check, 1)), deadline=None, database=None, derandomize=True,
              suppress_health_check=list(HealthCheck), print_blob=False, report_multiple_bugs=False,
              phases=(Phase.generate, Phase.shrink))
    @given(st.data())
    def attempt(data):
        count["inputs"] += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for kind in (RuntimeWarning, DeprecationWarning, FutureWarning):
                warnings.simplefilter("error", kind)
            warnings.simplefilter("ignore", ConvergenceWarning)
            count["survived"] += CHECKS[check](case, data.draw)

    if check not in case.skip and (check != "memory" or case.large):
        try:
            attempt()
        except Exception as error:
            drawn = [found for note in getattr(error, "__notes__", [])
                     for found in re.findall(r"Draw \d+ \((.*?)\): (.*)", note)]
            failures.append({"input": {name: text.split("  #")[0] for name, text in drawn},
                             "error": f"{type(error).__name__}: {error}"[:400]})
    return {"inputs": count["inputs"], "survived": count["survived"], "failures": failures}


def summary(record):
    """One line for each estimator: inputs, and the faults that ended well."""
    lines = [f"{'estimator':30}{'inputs':>8}{'faults survived':>17}{'failures':>10}"]
    for name, found in record["estimators"].items():
        total = [sum(row[key] for row in found.values()) for key in ("inputs", "survived")]
        bad = sum(len(row["failures"]) for row in found.values())
        lines.append(f"{name:30}{total[0]:8}{total[1]:17}{bad:10}")
    return "\n".join(lines)


def main(argv=None):
    """Run the checks, and keep what came out."""
    parser = argparse.ArgumentParser(description="Every estimator under everything that may go wrong.")
    parser.add_argument("estimator", nargs="*", help="which ones (all)")
    parser.add_argument("--examples", type=int, default=200, help="inputs for each check (200)")
    parser.add_argument("--checks", nargs="*", default=list(CHECKS), choices=list(CHECKS), help="which checks (all)")
    parser.add_argument("--list", action="store_true", help="name estimators and checks, and stop")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS / "robustness.json", metavar="FILE",
                        help="benchmarks/results/robustness.json")
    args = parser.parse_args(argv)
    if args.memory:
        return memory_here(args.memory)
    table = cases()
    if args.list:
        print("\n".join([*table, "", *CHECKS]))
        return None
    if unknown := [name for name in args.estimator if name not in table]:
        parser.error(f"no such estimator: {unknown}; --list names them")
    about = {**machine(), "hypothesis": version("hypothesis")}
    record = {"machine": about, "date": str(date.today()), "estimators": {}}
    if args.out.exists():
        record["estimators"] = json.loads(args.out.read_text(encoding="utf-8"))["estimators"]
    for name in args.estimator or table:
        rows = record["estimators"].setdefault(name, {})
        for check in args.checks:
            start = time.perf_counter()
            rows[check] = run(table[name], check, args.examples)
            print(f"{name:30}{check:12}{rows[check]['inputs']:6}{rows[check]['survived']:6}"
                  f"{time.perf_counter() - start:8.1f} s", flush=True)
            for failure in rows[check]["failures"]:
                print(f"    {failure['input']}\n    {failure['error']}", flush=True)
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print("\n" + summary(record))
    return None


if __name__ == "__main__":
    main()
