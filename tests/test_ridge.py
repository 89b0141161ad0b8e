"""Ridge regression: exact references, leave-one-out by leaving out, streams, processes, estimators."""

import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import LinAlgWarning, hilbert
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris, make_friedman1
from sklearn.ensemble import BaggingRegressor
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from rfteach import moments, products
from rfteach.arrays import block_bytes, memory_budget
from rfteach.conjugate import KernelRidgeRegressor
from rfteach.features import RandomFourierFeatures
from rfteach.feature_ridge import RandomFeatureRidge, RandomFeatureRidgeClassifier
from rfteach.kernel_ridge import gram_solve
from rfteach.moments import Moments, add_rows
from rfteach.processes import process_group
from rfteach.rbf import NystroemFeatures, RBFRegressor
from rfteach.ridge import Spectrum, centred, cholesky, factorise, loo_error, pinv_solve, raised_cholesky, ridge, ridge_path
from rfteach.streaming import Stream, StreamingRidge, _left_errors

METHODS = ["auto", "cholesky", "qr", "svd"]
SHAPES = [(9, 4), (4, 9), (6, 6)]


def exact(A, y, lam):
    """Ridge regression in rational arithmetic: Gaussian elimination on the primal normal equations."""
    A, y = [[Fraction(float(a)) for a in row] for row in A], [Fraction(float(v)) for v in y]
    N = len(A[0])
    M = [[sum(r[i] * r[j] for r in A) + (Fraction(lam) if i == j else 0) for j in range(N)]
         + [sum(r[i] * v for r, v in zip(A, y))] for i in range(N)]
    for i in range(N):
        pivot = next(r for r in range(i, N) if M[r][i] != 0)
        M[i], M[pivot] = M[pivot], M[i]
        M[i] = [v / M[i][i] for v in M[i]]
        for r in range(N):
            if r != i:
                M[r] = [a - M[r][i] * b for a, b in zip(M[r], M[i])]
    return np.array([float(row[N]) for row in M])


def system(n, N, k=None, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, N)).astype(dtype), rng.normal(size=n if k is None else (n, k)).astype(dtype)


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-12), (np.float32, 2e-4)])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", SHAPES)
def test_ridge_is_exact(shape, method, dtype, tolerance, device):
    A, y = system(*shape, dtype=dtype)
    for lam in (0.125, 8.0):
        c = ridge(A, y, lam, method=method)
        assert c.dtype == dtype and c.shape == (shape[1],)
        np.testing.assert_allclose(c, exact(A, y, lam), atol=tolerance)
        T = torch.from_numpy(A).to(device)
        out = ridge(T, torch.from_numpy(y).to(device), lam, method=method)
        assert out.device.type == device and out.dtype == T.dtype
        np.testing.assert_allclose(out.cpu(), c, atol=tolerance)


@pytest.mark.parametrize("method", ["auto", "qr", "svd"])
def test_orthogonal_solvers_keep_the_digits_that_normal_equations_lose(method):
    """Hilbert columns: condition number 5e8, whose square leaves nothing; against rational arithmetic."""
    A, y = hilbert(12)[:, :7], np.linspace(1, 2, 12)
    lam = 2.0**-70
    truth = exact(A, y, lam)
    condition = np.linalg.cond(A)
    error = np.linalg.norm(ridge(A, y, lam, method=method) - truth) / np.linalg.norm(truth)
    assert error < 1e3 * condition * np.finfo(float).eps
    bare = np.linalg.norm(ridge(A, y, lam, method="cholesky") - truth) / np.linalg.norm(truth)
    assert bare > 100 * error


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 7), N=st.integers(1, 7), power=st.integers(-6, 6), seed=st.integers(0, 10**6),
       method=st.sampled_from(METHODS))
def test_optimality_condition_and_metamorphic_relations(n, N, power, seed, method):
    """The gradient vanishes; sign, order of rows and columns, and scale carry over to c."""
    A, y = system(n, N, 2, seed)
    lam = 10.0**power
    c = ridge(A, y, lam, method=method)
    gradient = A.T @ (A @ c - y) + lam * c
    bound = 1e-10 * (np.linalg.norm(A, 2) ** 2 + lam) * max(np.linalg.norm(c), 1e-300)
    assert np.linalg.norm(gradient) <= bound + 1e-13 * np.linalg.norm(A.T @ y) * max(1, np.linalg.norm(A, 2)**2 / lam)
    scale = 1e-9 * np.abs(c).max() * max(1, np.linalg.norm(A, 2) ** 2 / lam) + 1e-300
    rng = np.random.default_rng(seed)
    rows, cols = rng.permutation(n), rng.permutation(N)
    np.testing.assert_allclose(ridge(A, -y, lam, method=method), -c, atol=scale)
    np.testing.assert_allclose(ridge(A[rows], y[rows], lam, method=method), c, atol=scale)
    np.testing.assert_allclose(ridge(A[:, cols], y, lam, method=method), c[cols], atol=scale)
    np.testing.assert_allclose(ridge(4 * A, y, 16 * lam, method=method), c / 4, atol=scale)


@pytest.mark.parametrize("method", ["auto", "qr", "svd"])
@pytest.mark.parametrize("make", [
    lambda A: np.c_[A, A[:, :1]], lambda A: np.r_[A, A], lambda A: 0 * A, lambda A: np.c_[A, 0 * A[:, :2]],
    lambda A: A[:1], lambda A: A.T, lambda A: np.outer(A[:, 0], A[0])])
def test_without_penalty_the_smallest_of_all_solutions(make, method):
    """Rank-deficient systems, lam = 0: NumPy's pseudoinverse is the reference."""
    A = make(system(8, 5)[0])
    y = system(len(A), 1)[1]
    expected = np.linalg.pinv(A, rcond=1e-13) @ y
    np.testing.assert_allclose(ridge(A, y, 0, method=method), expected, atol=1e-10)
    np.testing.assert_allclose(pinv_solve(A, y), expected, atol=1e-10)


def test_pinv_solve_drops_what_is_below_rcond():
    A = np.diag([1.0, 1e-3, 1e-6])
    np.testing.assert_allclose(pinv_solve(A, np.ones(3), rcond=1e-4), [1, 1e3, 0])
    np.testing.assert_allclose(pinv_solve(A, np.ones(3)), [1, 1e3, 1e6])


@pytest.mark.parametrize("scale", [1e-150, 1e150])
@pytest.mark.parametrize("method", METHODS)
def test_extreme_scales(scale, method):
    A, y = system(6, 3)
    c = ridge(A, y, 1.0, method=method)
    np.testing.assert_allclose(ridge(A, scale * y, 1.0, method=method), scale * c, rtol=1e-10)
    if scale > 1:
        np.testing.assert_allclose(ridge(scale * A, y, 0, method=method), pinv_solve(A, y) / scale, rtol=1e-10)
    np.testing.assert_allclose(loo_error(A, scale * y, 1.0), loo_error(A, y, 1.0) * scale**2, rtol=1e-10)


@pytest.mark.parametrize("a, y, lam, dtype", [
    (1.0, 1e200, 1e180, "float64"), (1.0, 1e200, 1e240, "float64"), (1e-200, 1.0, 1.0, "float64"), (1e-80, 1.0, 1.0, "float64"),
    (1e-10, 1.0, 1.0, "float32"), (1e-12, 1.0, 1.0, "float32"), (1e-20, 1.0, 1.0, "float32"), (1.0, 1e30, 1e25, "float32"),
    (1e-12, 1e30, 1e34, "float32")])
@pytest.mark.parametrize("method", METHODS)
def test_large_penalties(a, y, lam, dtype, method):
    """c = a y / (a² + λ), also where λ in units of the rows is beyond the range."""
    c = ridge(np.array([[a]], dtype), np.array([y], dtype), lam, method=method)
    np.testing.assert_allclose(c, a * (y / lam), rtol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_penalty_above_all_singular_values_costs_no_digits(shape, method):
    A, y = system(*shape)
    for lam in 2.0 ** np.array([5, 15, 25, 35, 45, 55, 300, 700]):
        c, truth = lam * ridge(A, y, lam, method=method), lam * exact(A, y, lam)
        assert np.linalg.norm(c - truth) < 1e-14 * np.linalg.norm(truth), lam


def test_a_penalty_beside_many_large_entries():
    """Their sum of squares counts, not what one of them has."""
    A, y = np.random.default_rng(0).uniform(3e9, 4e9, (3000, 300)).astype(np.float32), np.ones(3000, np.float32)
    B = A.astype(np.float64) / 1e9
    truth = np.linalg.solve(B.T @ B + 2e8 * np.eye(300), B.T @ y) / 1e9
    np.testing.assert_allclose(ridge(A, y, 2e26), truth, rtol=1e-5)


def test_an_output_of_zeros_costs_no_digits(monkeypatch):
    """In float32, 0 / 0 in its steps had all outputs solved again by QR."""
    monkeypatch.setattr("rfteach.ridge.solve_qr", lambda *_: pytest.fail("QR"))
    A, y = system(60, 5, 3, dtype=np.float32)
    y[:, 1] = 0
    assert (ridge(A, y, 1.0)[:, 1] == 0).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", METHODS)
def test_gradients(shape, method):
    A, y = (torch.from_numpy(T).requires_grad_() for T in system(*shape, 2))
    assert torch.autograd.gradcheck(lambda A, y: ridge(A, y, 0.7, method=method), (A, y))


def left_out(A, y, lam, fit_intercept):
    """Leave-one-out residuals by leaving out."""
    out = []
    for i in range(len(A)):
        rest = np.arange(len(A)) != i
        a, t = A[rest], y[rest]
        ma, mt = (a.mean(0), t.mean(0)) if fit_intercept else (0, 0)
        c = pinv_solve(a - ma, t - mt) if lam == 0 else ridge(a - ma, t - mt, lam, method="svd")
        out.append((A[i] - ma) @ c + mt - y[i])
    return np.array(out)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("shape", [(9, 4), (5, 9), (6, 6), (2, 3)])
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-8), (np.float32, 1e-2)])
def test_leave_one_out_error_is_that_of_leaving_out(shape, fit_intercept, dtype, tolerance):
    A, y = system(*shape, 2, dtype=dtype)
    lams = [0.0, 1e-3, 1.0, 100.0]
    expected = [(left_out(A.astype(float), y.astype(float), lam, fit_intercept) ** 2).mean() for lam in lams]
    np.testing.assert_allclose(loo_error(A, y, lams, fit_intercept=fit_intercept), expected, rtol=tolerance)
    assert loo_error(A, y, 1.0, fit_intercept=fit_intercept) == pytest.approx(expected[2], rel=tolerance)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_leave_one_out_of_a_row_that_stands_alone(fit_intercept):
    """One column is zero but at one row: its leverage is one without a penalty."""
    A, y = system(7, 3)
    A[:, 2] = 0
    A[4, 2] = 5
    for lam in (0.0, 1e-12, 1e-3):
        expected = (left_out(A, y, lam, fit_intercept) ** 2).mean()
        assert loo_error(A, y, lam, fit_intercept=fit_intercept) == pytest.approx(expected, rel=1e-5)


def test_leave_one_out_of_degenerate_data():
    y = np.array([1.0, 2.0, 3.0])
    assert loo_error(np.zeros((3, 2)), y, 1.0, fit_intercept=True) == pytest.approx(1.5)
    assert loo_error(np.zeros((3, 2)), y, 0.0) == pytest.approx((y**2).mean())
    assert loo_error([[2.0]], [3.0], 0.5, fit_intercept=True) == pytest.approx(9.0)
    assert loo_error([[2.0]], [3.0], 0.0) == pytest.approx(9.0)
    assert loo_error(np.ones((3, 2)), 0 * y, 0.0) == 0


def test_path(monkeypatch):
    """Each point is the ridge solution; degrees of freedom are a trace; best is the smallest error."""
    A, y = load_diabetes(return_X_y=True)
    path = ridge_path(A, y, fit_intercept=True)
    assert len(path.lams) == len(path.coef) == len(path.dof) and (np.diff(path.lams) < 0).all()
    centred, t = A - A.mean(0), y - y.mean()
    for j in (path.best, 10, 25):
        np.testing.assert_allclose(path.coef[j], ridge(centred, t, path.lams[j], method="svd"), rtol=1e-9)
        hat = centred @ np.linalg.solve(centred.T @ centred + path.lams[j] * np.eye(10), centred.T)
        assert path.dof[j] == pytest.approx(np.trace(hat) + 1)
        assert path.gcv[j] == pytest.approx(((t - hat @ t) ** 2).mean() / (1 - path.dof[j] / 442) ** 2)
        model = Ridge(alpha=path.lams[j]).fit(A, y)
        assert path.intercept[j] == pytest.approx(model.intercept_)
    assert path.best == path.loo.argmin()
    sizes, kept = [], Spectrum.leave_one_out
    monkeypatch.setattr(Spectrum, "leave_one_out", lambda self, U, *more: sizes.append(len(U)) or kept(self, U, *more))
    with memory_budget(1):
        np.testing.assert_allclose(ridge_path(A, y, fit_intercept=True).loo, path.loo, rtol=1e-12)
    assert max(sizes) == 1
    two = ridge_path(A, np.c_[y, -y], path.lams[:3], fit_intercept=True)
    np.testing.assert_allclose(two.coef[:, :, 1], -path.coef[:3], rtol=1e-12)
    assert two.loo == pytest.approx(path.loo[:3])


def test_a_path_keeps_its_penalties():
    lams = np.array([0.1, 1.0])
    path = ridge_path(*system(5, 2), lams)
    lams *= 2
    assert path.lams.tolist() == [0.1, 1.0]


def test_targets_that_columns_meet_leave_nothing_to_the_evidence():
    """Beside as many columns as rows, what is left of y² is rounding."""
    B, w = torch.from_numpy(np.c_[system(5, 10)]), torch.ones(5).double()
    spectrum, _ = factorise(*centred(B, w, 10, False), w, False, True)
    lams = spectrum.grid(1e-12)
    rounded, exact = (replace(spectrum, y2=torch.full_like(spectrum.y2, left)) for left in (1e-10, 0.0))
    torch.testing.assert_close(rounded.evidence(lams), exact.evidence(lams))


@pytest.mark.parametrize("call, error, message", [
    (lambda A, y: ridge(A, y, -1), ValueError, "lam must be a number in .0, inf., got -1"),
    (lambda A, y: ridge(A, y, np.inf), ValueError, "lam must be a number in .0, inf., got inf"),
    (lambda A, y: ridge(A, y, "1"), TypeError, "lam must be a number"),
    (lambda A, y: ridge(A, y, True), TypeError, "lam must be a number"),
    (lambda A, y: ridge(A, y[:3], 1), ValueError, "A and y must have as many rows, got 6 and 3"),
    (lambda A, y: ridge(A, y, 1, method="lu"), ValueError, "method must be 'auto', .* or 'cholesky', got 'lu'"),
    (lambda A, y: ridge(A * np.nan, y, 1), ValueError, "A contains NaN or infinity"),
    (lambda A, y: ridge(np.ones((6, 2)), y, 0, method="cholesky"), ValueError, "not positive definite"),
    (lambda A, y: ridge(A * 1e-200, y * 1e200, 0), ValueError, "the coefficients overflow"),
    (lambda A, y: pinv_solve(A, y, rcond=1), ValueError, r"rcond must be None or a number in \[0, 1\), got 1"),
    (lambda A, y: ridge_path(A, y, [1.0, -1.0]), ValueError, "lams must not be negative"),
    (lambda A, y: loo_error(A, y, [-1.0]), ValueError, "lam must not be negative"),
    (lambda A, y: StreamingRidge(alpha="loo").fit(A, y), ValueError, "alpha must be 'auto', 'gcv' or a number in"),
    (lambda A, y: StreamingRidge(alpha=-1).fit(A, y), ValueError, "alpha must be 'auto', 'gcv' or a number in .0, inf., got -1"),
    (lambda A, y: StreamingRidge(method="lu").fit(A, y), ValueError, "method must be 'gram' or 'qr'"),
    (lambda A, y: StreamingRidge(dtype="half").fit(A, y), ValueError, "dtype must be None, 'float32' or"),
    (lambda A, y: StreamingRidge().fit(A, None), ValueError, "requires y"),
    (lambda A, y: StreamingRidge().fit(A, y[:3]), ValueError, "X and y must have as many rows, got 6 and 3"),
    (lambda A, y: StreamingRidge().fit(A, y, -np.ones(6)), ValueError, "sample_weight must not be negative"),
    (lambda A, y: StreamingRidge().fit(A, y, np.zeros(6)), ValueError, "sample_weight is zero for every row"),
    (lambda A, y: StreamingRidge().fit(A, y, np.ones(5)), ValueError, "X and sample_weight must have as many rows, got 6 and 5"),
    (lambda A, y: StreamingRidge().fit(A * 1e200, y).coef_, ValueError, "sums of squares of the features or of y overflow"),
    (lambda A, y: StreamingRidge().fit(A, y).partial_fit(A[:, :2], y), ValueError, "expecting 3 features"),
    (lambda A, y: StreamingRidge().fit(A, y).partial_fit(A, np.c_[y, y]), ValueError,
     r"y must have the shape \(n,\), as in earlier blocks, got \(\d+, 2\)"),
    (lambda A, y: StreamingRidge().fit(A, y).partial_fit(A, y[:, None]), ValueError, r"shape \(n,\).*got \(\d+, 1\)"),
    (lambda A, y: StreamingRidge().fit(A, y[:, None]).partial_fit(A, y), ValueError, r"shape \(n, 1\).*got \(\d+,\)"),
    (lambda A, y: StreamingRidge().fit(A, y).merge(Ridge()), TypeError, "must be a StreamingRidge"),
    (lambda A, y: StreamingRidge().fit(A, y).merge(StreamingRidge(method="qr").fit(A, y)), ValueError,
     "other does not fit"),
    (lambda A, y: StreamingRidge().fit(A, y).merge(StreamingRidge().fit(A[:, :2], y)), ValueError,
     "number of columns = 2, this one has 3"),
    (lambda A, y: StreamingRidge().fit(pd.DataFrame(A, columns=[*"abc"]), y).merge(
        StreamingRidge().fit(pd.DataFrame(A, columns=[*"bac"]), y)), ValueError,
     r"names of columns = \['b', 'a', 'c'\], this one has \['a', 'b', 'c'\]"),
    (lambda A, y: StreamingRidge().fit(A, y).merge(StreamingRidge().fit(A, y[:, None])), ValueError,
     "y of one dimension = False, this one has True"),
    (lambda A, y: StreamingRidge().merge(StreamingRidge()), NotFittedError, "not fitted"),
    (lambda A, y: StreamingRidge().fit(A, y).all_reduce(), RuntimeError, "no process group"),
    (lambda A, y: RandomFeatureRidge(alpha="aic").fit(A, y), ValueError, "alpha must be 'loo', 'gcv' or a number in .0, inf., got 'aic'"),
    (lambda A, y: RandomFeatureRidge(alphas=[-1.0]).fit(A, y), ValueError, "alphas must not be negative"),
    (lambda A, y: RandomFeatureRidge(solver="cg").fit(A, y), ValueError, "solver must be 'auto', 'gram' or 'qr', got 'cg'"),
    (lambda A, y: RandomFeatureRidge().partial_fit(A, y), AttributeError, "partial_fit"),
    (lambda A, y: RandomFeatureRidge(alpha=1.0).fit(A, y).all_reduce(), RuntimeError, "partial_fit"),
    (lambda A, y: RandomFeatureRidge(device="tpu7").fit(A, y), ValueError, "device='tpu7' is not available"),
    (lambda A, y: RandomFeatureRidgeClassifier().fit(A, ["a"] * 6), ValueError, "at least 2 classes, got 1"),
    (lambda A, y: RandomFeatureRidgeClassifier().fit(A, y), ValueError, "Unknown label type"),
    (lambda A, y: RandomFeatureRidgeClassifier(alpha=1.0).partial_fit(A, [0, 1] * 3), ValueError,
     "classes must be given"),
    (lambda A, y: RandomFeatureRidgeClassifier(alpha=1.0).partial_fit(A, [0, 2] * 3, classes=[0, 1]), ValueError,
     "labels that are not in classes: 2"),
    (lambda A, y: RandomFeatureRidgeClassifier(alpha=1.0).partial_fit(A, [0, 1] * 3, classes=[0, 1, np.nan]), ValueError,
     "classes contains NaN"),
    (lambda A, y: RandomFeatureRidgeClassifier(alpha=1.0).partial_fit(A, ["a", "b"] * 3, classes=["a", "b", None]), ValueError,
     "classes has no label in row 2"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(*system(6, 3))


def blocks(n, size):
    return [slice(i, min(i + size, n)) for i in range(0, n, size)]


@pytest.mark.parametrize("method, tolerance", [("gram", 1e-10), ("qr", 1e-11)])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("budget", [1, 4000, 2**23])
def test_streaming_is_exact_whatever_the_blocks(method, tolerance, fit_intercept, budget):
    rng = np.random.default_rng(0)
    A, y = 1e3 + rng.normal(size=(101, 6)), rng.normal(size=(101, 2)) - 50
    w = rng.integers(0, 3, 101)
    centre = np.average(A, axis=0, weights=w) if fit_intercept else 0
    shift = np.average(y, axis=0, weights=w) if fit_intercept else 0
    root = np.sqrt(w)[:, None]
    c = ridge((A - centre) * root, (y - shift) * root, 0.3, method="svd")
    for size in (1, 7, 50, 101):
        model = StreamingRidge(0.3, fit_intercept=fit_intercept, method=method)
        with memory_budget(budget):
            for rows in blocks(101, size):
                if w[rows].any():
                    model.partial_fit(A[rows], y[rows], w[rows])
        np.testing.assert_allclose(model.coef_, c.T, rtol=1e5 * tolerance if not fit_intercept else 1e-8, atol=1e-8)
        np.testing.assert_allclose(model.predict(A), (A - centre) @ c + shift, atol=1e-7)


@pytest.mark.parametrize("method", ["gram", "qr"])
def test_merged_halves_are_the_whole(method):
    A, y = system(60, 5, seed=3)
    A += 7
    whole = StreamingRidge(0.1, method=method).fit(A, y)
    parts = [StreamingRidge(0.1, method=method).fit(A[rows], y[rows]) for rows in blocks(60, 23)]
    before = parts[1].coef_
    merged = parts[0].merge(parts[1]).merge(parts[2])
    np.testing.assert_allclose(merged.coef_, whole.coef_, rtol=1e-10)
    assert merged.intercept_ == pytest.approx(whole.intercept_, rel=1e-10)
    assert merged.n_samples_seen_ == 60
    np.testing.assert_array_equal(parts[1].coef_, before)
    again = pickle.loads(pickle.dumps(merged)).partial_fit(A, y)
    np.testing.assert_allclose(again.coef_, StreamingRidge(0.2 / 2, method=method).fit(
        np.r_[A, A], np.r_[y, y]).coef_, rtol=1e-10)


@pytest.mark.parametrize("method", ["gram", "qr"])
def test_a_merge_forgets_what_was_solved_before(method):
    A, y = system(60, 3)
    one, other = (StreamingRidge(0.1, method=method).fit(A[rows], y[rows]) for rows in blocks(60, 30))
    before = one.coef_, one.left_out_
    one.merge(other)
    np.testing.assert_allclose(one.coef_, StreamingRidge(0.1, method=method).fit(A, y).coef_)
    assert not np.allclose(one.coef_, before[0]) and len(before[1].w) == 30 and len(one.left_out_.w) == 60


@pytest.mark.parametrize("method", ["gram", "qr"])
def test_a_merge_counts_the_rows_of_both(method):
    """As many as generalised cross-validation compares with the degrees of freedom."""
    A, noise = system(60, 25)
    y = A.sum(1) + 5 * noise
    fit = lambda rows: StreamingRidge("gcv", method=method).fit(A[rows], y[rows])
    np.testing.assert_allclose(fit(slice(30)).merge(fit(slice(30, 60))).coef_, fit(slice(60)).coef_, atol=1e-9)


def test_streaming_against_scikit_learn_and_its_choice_of_the_penalty():
    A, y = load_diabetes(return_X_y=True)
    model = StreamingRidge(0.05).fit(A, y)
    peer = Ridge(alpha=0.05).fit(A, y)
    np.testing.assert_allclose(model.coef_, peer.coef_, rtol=1e-8)
    model.set_params(alpha="gcv")
    path = ridge_path(A, y, fit_intercept=True)
    coarse = path.gcv[path.lams >= model.alpha_ / 1.01]
    assert path.gcv.min() == pytest.approx(coarse.min())
    assert model.alpha_ == pytest.approx(path.lams[path.gcv.argmin()], rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 7, 300])
def test_a_factor_is_triangular_and_takes_the_memory_of_the_matrix(dtype, n):
    B = torch.randn(n, n + 5, generator=torch.Generator().manual_seed(0), dtype=dtype)
    kept = B @ B.T
    M = kept.tril() + torch.full_like(kept, torch.nan).triu(1)  # what is above the diagonal is not read
    L = cholesky(M)
    assert torch.equal(L, L.tril()) and L.data_ptr() == M.data_ptr() and L.dtype == dtype
    assert (L @ L.T - kept).abs().max() < 8 * n * torch.finfo(dtype).eps * kept.abs().max()
    wide = torch.stack([kept, kept], 2)[:, :, 0]
    assert torch.equal(cholesky(wide), L) and torch.equal(wide, L)


def test_no_factor_where_a_pivot_is_lost_until_the_diagonal_is_raised():
    M = torch.ones(3, 3, dtype=torch.float64)
    M[1, 1] -= 1e-9
    assert cholesky(M.clone()) is None and cholesky(torch.full((2, 2), torch.nan)) is None
    kept, L = M.clone(), raised_cholesky(M, 1e-12)
    assert torch.equal(M, kept) and (L @ L.T - M).abs().max() < 4e-8
    raised = (L @ L.T - M).diagonal()
    assert 1e-9 < raised.min() and raised.max() - raised.min() < 1e-14  # tenfold of 3e-12 until it does


@pytest.mark.parametrize("weight", [None, np.full(50, 2.0)])
def test_rows_that_differ_are_not_copied_though_some_columns_repeat(monkeypatch, weight):
    """In the columns that are looked at first; a copy in the order of hashes would be a second table."""
    X, taken = np.ones((50, 24)), []  # each third column is looked at
    X[:, 1] = np.arange(50)
    monkeypatch.setattr(Stream, "add", lambda self, A, y, w, n: taken.append((A.data_ptr(), len(A), n)))
    StreamingRidge(1.0).fit(X, X[:, 0], weight)
    X[7] = X[8]
    StreamingRidge(1.0).fit(X, X[:, 0], weight)
    first, second = taken
    assert first == (X.ctypes.data, 50, 50) and second[0] != X.ctypes.data and second[1:] == (49, 50)


@pytest.mark.parametrize("n", [1000, 300_000])
def test_long_sums_of_float32_do_not_spoil_errors_of_rows_left_out(n):
    """One row that weighs as much as all others; a tolerance for 1 - h that grows with n, or sums in float32, lose it."""
    A, y = np.random.default_rng(0).normal(size=(n, 2)), np.random.default_rng(1).normal(size=n)
    A[0] *= n**0.5
    y += A.sum(1)
    y[0] += 50
    for lam in (0.0, 1.0):
        exact = loo_error(A, y, lam)
        assert loo_error(A.astype("f4"), y.astype("f4"), lam) == pytest.approx(exact, rel=1e-4)
        path = ridge_path(A.astype("f4"), y.astype("f4"), [lam])
        assert path.gcv == pytest.approx(ridge_path(A, y, [lam]).gcv, rel=1e-4)


def test_singular_values_of_many_rows_count_where_they_are_not_rounding():
    """In float32, 50 000 rows times the machine epsilon are 0.006; columns in a ratio of 250 are no less than two."""
    A = (np.random.default_rng(0).normal(size=(50_000, 2)) * [1, 0.004]).astype("f4")
    y = A @ np.float32([1, 250])
    for c in (ridge(A, y, 0.0, method="svd"), ridge(A, y, 0.0, method="qr"), ridge_path(A, y, [0.0]).coef[0], pinv_solve(A, y)):
        np.testing.assert_allclose(c, [1, 250], rtol=1e-3)
    B = np.column_stack([A, A.sum(1)])  # three are, but for rounding, two
    for c in (ridge(B, y, 0.0, method="svd"), ridge_path(B, y, [0.0]).coef[0], pinv_solve(B, y)):
        assert abs(c).max() < 250


def test_squares_beyond_float32():
    """Errors and penalties are squares; coefficients, which fit, are not lost with them."""
    A, y = np.random.default_rng(0).normal(size=(50, 3)).astype("f4"), np.random.default_rng(1).normal(size=50).astype("f4")
    path, large = ridge_path(A, y, [0.1, 1.0]), ridge_path(A, np.float32(1e25) * y, [0.1, 1.0])
    np.testing.assert_allclose(large.coef / np.float32(1e25), path.coef, rtol=1e-5)
    np.testing.assert_allclose(large.loo, path.loo * 1e50, rtol=1e-5)
    assert loo_error(A, np.float32(1e25) * y, 1.0) == pytest.approx(large.loo[1])
    assert np.isfinite(ridge_path(np.float32(1e18) * A, y).lams).all()


RUN = 6144 * 2.0**-24  # of the sum of the sizes, what a float32 sum over 6144 products may be off by


def test_float32_rows_are_summed_in_float64():
    """One row of 2¹² and 13 000 of 1, one by one: of 2²⁴ + 13 000, float32 loses every one; and c to float32's digits."""
    ones = np.ones((1, 1), np.float32)
    model = StreamingRidge(0.0, fit_intercept=False).partial_fit(4096 * ones, 4096 * ones[0])
    for _ in range(13_000):
        model.partial_fit(ones, 0 * ones[0])
    total = 2.0**24 + 13_000
    assert model.coef_[0] == pytest.approx(2.0**24 / total, rel=RUN)
    assert abs(2.0**24 / total - 1) > 2 * RUN
    assert model.predict(ones).dtype == np.float32
    model = StreamingRidge(dtype="float32").fit(np.eye(3), np.arange(3.0))
    assert model.predict(np.eye(3)).dtype == np.float64


@pytest.mark.parametrize("method", ["gram", "qr"])
def test_rows_on_another_device_than_earlier_ones_are_refused_at_once(method):
    """Not when the rows that are held are multiplied, thousands of rows later."""
    stream = Stream(2, 1, fit_intercept=False, method=method, dtype=None, device="cpu")
    with pytest.raises(ValueError, match="features are on meta, but those of earlier blocks were on cpu"):
        stream.add(torch.zeros(3, 2, device="meta"), torch.zeros(3, 1), None, 3)


@pytest.mark.parametrize("size", [100, 1500, 20000])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("half_width", [False, True])
def test_error_of_float32_sums(size, weights, half_width, monkeypatch):
    """Moments in float32 against float64, within the bound; 8 u more for centring, weights and rounding."""
    monkeypatch.setattr(products, "_half_width", lambda: half_width)
    rng, N = np.random.default_rng(0), 200 if half_width else 5
    A, w = rng.normal(size=(20000, N)).astype(np.float32), rng.uniform(0.5, 2, 20000)
    y = (A @ np.arange(N)).astype(np.float32)
    G = {}
    for dtype in ("float32", "float64"):
        model = StreamingRidge(1e-3, dtype=dtype)
        for rows in blocks(20000, size):
            model.partial_fit(A[rows], y[rows], w[rows] if weights else None)
        model._stream.sums.flush()
        G[dtype] = model._stream.sums.G.tril().numpy()
    B = abs(np.column_stack([A, y]).astype(float)) * np.sqrt(w if weights else np.ones(20000))[:, None]
    B += abs(B).mean(0)  # room for the shift by the mean
    assert (abs(G["float32"] - G["float64"]) <= (RUN + 8 * 2.0**-24) * np.tril(B.T @ B)).all()


@pytest.mark.parametrize("size, budget", [(100, 2**23), (1500, 2**23), (20000, 2**23), (20000, 2**16), (20, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_heights_of_blocks_and_of_products(size, budget, dtype, monkeypatch):
    """Blocks within three memory budgets or of a row; products of 2048 to 6144 rows in float32, of 1024 or more in float64, but
    those at the end of a batch, of which the first ones are short."""
    written, multiplied, copy, add = [], [], moments.copy_rows, moments.add_gram
    monkeypatch.setattr(moments, "copy_rows", lambda B, out: written.append(len(B)) or copy(B, out))
    monkeypatch.setattr(moments, "add_gram", lambda G, B: multiplied.append(len(B)) or add(G, B))
    n, least = 20000 if budget > 1 else 20, 2048 if dtype == torch.float32 else 1024
    X = torch.from_numpy(system(n, 7)[0]).to(dtype)
    with memory_budget(budget):
        model = StreamingRidge()
        for rows in blocks(n, size):
            model.partial_fit(X[rows], X[rows, 0])
        model.coef_
    assert sum(written) == sum(multiplied) == n
    assert max(written) * 8 * dtype.itemsize <= 3 * budget or set(written) == {1}
    assert sum(height < least for height in multiplied) <= 10 and (dtype == torch.float64 or max(multiplied) <= 6144)


@pytest.mark.parametrize("dtype, far, weight, tolerance", [
    ("float64", 2e7, 1e-15, 1e-6), ("float64", 1e15, 1e-30, 1e-6), ("float64", 1e4, 1.0, 1e-6), ("float32", 1e3, 1.0, 1e-2)])
@pytest.mark.parametrize("size", [1, 2000])
def test_a_first_row_that_is_far_off_takes_no_digits_from_the_others(dtype, far, weight, tolerance, size):
    """Moments against the triangular factor, which has no origin that a first row could spoil."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    y, found = X @ [1.0, 2.0] + 0.1 * rng.normal(size=2000), {}
    for method in ("gram", "qr"):
        model = StreamingRidge(1e-3, method=method, dtype=dtype).partial_fit([[far, -far]], [0.0], [weight])
        for rows in blocks(2000, size):
            model.partial_fit(X[rows], y[rows])
        found[method] = np.r_[model.coef_, model.intercept_]
    np.testing.assert_allclose(found["gram"], found["qr"], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("size", [1, 50, 1000])
def test_single_precision_does_not_shift_the_mean(size):
    """What is taken off rows in float32 is what comes back: the fit passes through their mean."""
    rng = np.random.default_rng(1)
    X = (12346 + rng.normal(size=(2000, 2))).astype(np.float32)
    y = ((X - 12346) @ [1.0, 2.0]).astype(np.float32)
    model = StreamingRidge(1e-3, dtype="float32")
    for rows in blocks(2000, size):
        model.partial_fit(X[rows], y[rows])
    wide = X.astype(float)
    assert abs((wide @ model.coef_ + model.intercept_ - y).mean()) < 3e-6  # sums of numbers of size one are rounded


@pytest.mark.parametrize("model", [
    lambda: StreamingRidge(1.0), lambda: StreamingRidge(1.0, method="qr"),
    lambda: RandomFeatureRidge(FunctionTransformer(), 1.0, solver="gram")], ids=["gram", "qr", "features"])
@pytest.mark.parametrize("blocks", [None, 1, 4, 300])
def test_a_mean_of_y_that_is_far_off_takes_no_digits(model, blocks):
    """In float32 seconds since 1970 are 128 apart; where rows are in float32, too, at once and in blocks, also of a single row.

    Nor does it where another output has none.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)).astype("f4")
    y = (X @ rng.normal(size=4) + rng.normal(size=300))[:, None] + [0.0, 1.7e9]
    expected, fit = Ridge(1.0).fit(X.astype(float), y), model()
    for rows in np.array_split(np.arange(300), blocks or 1):
        fit = fit.partial_fit(X[rows], y[rows]) if blocks else fit.fit(X, y)
    np.testing.assert_allclose(fit.coef_, expected.coef_, rtol=1e-6)


@pytest.mark.parametrize("method", ["gram", "qr"])
@pytest.mark.parametrize("unit", [1e-200, 1e150])
def test_the_product_of_two_weights_may_be_no_number(method, unit):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)) + (np.arange(60) > 25)[:, None], rng.normal(size=60)
    one, other = (StreamingRidge(2 * unit, method=method).fit(X[rows], y[rows], np.full(30, unit)) for rows in np.split(np.arange(60), 2))
    np.testing.assert_allclose(one.merge(other).coef_, Ridge(2.0).fit(X, y).coef_, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::scipy.linalg.LinAlgWarning")
def test_float32_sums_that_have_no_digits_left_for_a_penalty_are_told():
    """Rows at another level: what is wrong by a tenth and more is told, and what is told is off by a thousandth at least."""
    rng = np.random.default_rng(0)
    told, off = [], []
    for level in (1.0, 10.0, 100.0, 1e3):
        X = rng.normal(size=(6000, 5))
        X[:150] = level + 1e-3 * X[:150]
        X = X.astype("f4")
        y = X.astype(float) @ np.ones(5) + rng.normal(size=6000)
        fits = []
        for dtype in (None, "float64"):
            with warnings.catch_warnings(record=True) as heard:
                warnings.simplefilter("always")
                fits.append(StreamingRidge(1.0, dtype=dtype).fit(X, y).coef_)
            if dtype is None:
                told.append(len(heard) > 0)
            assert dtype is None or not heard
        off.append(np.linalg.norm(fits[0] - fits[1]) / np.linalg.norm(fits[1]))
    assert all(o < 0.1 for t, o in zip(told, off) if not t) and all(o > 1e-3 for t, o in zip(told, off) if t) and any(told)


def test_a_penalty_below_the_rounding_of_the_sums_is_told():
    A = np.random.default_rng(0).normal(size=(50, 1)) * np.array([[1.0, 1.0]])
    with pytest.warns(LinAlgWarning, match="alpha=1e-18 is so small"):
        StreamingRidge(1e-18).fit(A, A[:, 0]).coef_
    c = StreamingRidge(1e-18, method="qr").fit(A, A[:, 0]).coef_
    np.testing.assert_allclose(c, [0.5, 0.5], atol=1e-6)
    np.testing.assert_allclose(StreamingRidge(0).fit(A, A[:, 0]).coef_, [0.5, 0.5], atol=1e-6)


ESTIMATORS = [
    StreamingRidge(), StreamingRidge("gcv", method="qr"), RandomFeatureRidge(),
    RandomFeatureRidge(RandomFourierFeatures("matern32", "median", 40, random_state=0), 0.1, solver="qr"),
    RandomFeatureRidgeClassifier(RandomFourierFeatures(bandwidth="median", random_state=0)),
    RandomFeatureRidgeClassifier(RandomFourierFeatures(bandwidth="median", random_state=0), "gcv", solver="gram")]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: re.sub(r"\s+", "", str(e))[:60])
def test_scikit_learns_contract(estimator):
    results = check_estimator(estimator, on_skip=None)
    assert len(results) > 40 and {r["status"] for r in results} == {"passed"}


SOLVERS = ["auto", "gram", "qr"]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n", [40, 300])
@pytest.mark.parametrize("alpha", [0.1, "loo", "gcv"])
def test_regressor_is_ridge_on_the_features(solver, n, alpha):
    """Held (n < N) or streamed (n > N), with and without choice of the penalty; against the functions."""
    X, y = make_friedman1(n, noise=0.3, random_state=0)
    features = RandomFourierFeatures(bandwidth=1.5, n_components=80, random_state=1)
    with memory_budget(20_000):
        model = RandomFeatureRidge(features, alpha, solver=solver).fit(X, y)
    A = features.fit_transform(X)
    if alpha == 0.1:
        lam = 0.1
    else:
        path = ridge_path(A, y, model.alphas_, fit_intercept=True)
        np.testing.assert_allclose(model.cv_errors_, path.loo if alpha == "loo" else path.gcv, rtol=1e-3)
        lam = model.alphas_[model.cv_errors_.argmin()]
        assert model.alpha_ == lam
    reference = ridge_path(A, y, [lam], fit_intercept=True)
    np.testing.assert_allclose(model.predict(X), A @ reference.coef[0] + reference.intercept[0], atol=1e-4)


def test_regressor_without_noise_goes_below_what_moments_can_resolve():
    """A smooth target and no noise: "auto" notices that the best penalty is at the rounding and turns to QR."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (500, 1))
    y = np.exp(X[:, 0]) * np.sin(3 * X[:, 0])
    features = RandomFourierFeatures(bandwidth=1.0, n_components=60, random_state=0)
    t = np.linspace(-0.9, 0.9, 50)[:, None]
    error = {solver: abs(RandomFeatureRidge(features, solver=solver).fit(X, y).predict(t)
                         - np.exp(t[:, 0]) * np.sin(3 * t[:, 0])).max() for solver in SOLVERS}
    assert error["auto"] == error["qr"] < error["gram"] / 10


FIXED_MAP = RandomFourierFeatures(bandwidth=3.0, n_components=50, random_state=0)


def test_any_feature_map():
    X, y = make_friedman1(300, random_state=0)
    for features in (Nystroem(n_components=30, random_state=0), StandardScaler(copy=False),
                     FunctionTransformer(sp.csr_matrix), make_pipeline(StandardScaler(), RandomFourierFeatures(bandwidth="median")),
                     FrozenEstimator(RandomFourierFeatures(n_components=20, random_state=0).fit(X))):
        before = X.copy()
        assert RandomFeatureRidge(features).fit(X, y).score(X, y) > 0.5
        np.testing.assert_array_equal(X, before)


def test_a_sparse_map_that_overwrites_its_rows():
    X = 50 * sp.random(200, 20, 0.3, format="csr", random_state=0)
    y, kept = X[:, [0]].toarray()[:, 0] / 50, X.copy()
    found = [RandomFeatureRidge(make_pipeline(MaxAbsScaler(copy=copy), FIXED_MAP)).fit(X, y).predict(X) for copy in (True, False)]
    np.testing.assert_array_equal(*found)
    assert abs(X - kept).max() == 0


def test_penalties_of_a_stream_are_those_that_are_given():
    X, y = make_friedman1(100, random_state=0)
    model = RandomFeatureRidge(FIXED_MAP, "gcv", alphas=[123.0, 1e6])
    whole = model.fit(X, y).alpha_, model.cv_errors_
    assert whole[0] in (123.0, 1e6) and model.partial_fit(X, y).alpha_ == whole[0]
    assert not hasattr(model, "cv_errors_")  # of the fit before
    assert model.set_params(alphas=[7.0]).alpha_ == 7.0 != model.set_params(alphas=None).alpha_
    assert hasattr(model.fit(X, y), "alphas_")
    assert not {"alphas_", "cv_errors_"} & vars(model.set_params(alpha=0.5).fit(X, y)).keys()


def test_kinds_of_data(device):
    X, y = make_friedman1(60, random_state=0)
    features = RandomFourierFeatures(bandwidth=1.5, n_components=30, random_state=0)
    model = RandomFeatureRidge(features, 0.1).fit(X, y)
    expected = model.predict(X)
    T = torch.from_numpy(X).to(device)
    out = RandomFeatureRidge(features, 0.1).fit(T, torch.from_numpy(y).to(device)).predict(T)
    assert isinstance(out, torch.Tensor) and out.device.type == device
    np.testing.assert_allclose(out.cpu(), expected, atol=1e-8)
    moved = RandomFeatureRidge(features, 0.1, device=device).fit(X, y).predict(X)
    assert isinstance(moved, np.ndarray)
    np.testing.assert_allclose(moved, expected, atol=1e-8)
    np.testing.assert_allclose(model.predict(T).cpu(), expected, atol=1e-8)
    single = RandomFeatureRidge(features, 0.1).fit(X.astype(np.float32), y)
    assert single.predict(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.predict(X.astype(np.float32)), expected, atol=1e-3)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(10)])
    named = RandomFeatureRidge(features, 0.1).fit(frame, pd.Series(y))
    np.testing.assert_allclose(named.predict(frame), expected, atol=1e-8)
    assert list(named.feature_names_in_) == list(frame.columns)
    sparse = RandomFeatureRidge(features, 0.1).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(sparse.predict(sp.csr_matrix(X)), expected, atol=1e-8)
    grid = GridSearchCV(model, {"features__bandwidth": [0.5, 1.5], "alpha": [0.1, "loo"]}, cv=2).fit(X, y)
    assert grid.best_score_ > 0
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), expected)


@pytest.mark.parametrize("alpha", [0.0, 0.1, "loo", "gcv"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("data", ["constant column", "duplicates", "collinear", "y zero", "one row", "two rows",
                                  "constant y", "huge", "tiny"])
def test_degenerate_data(data, solver, alpha):
    X, y = make_friedman1(50, random_state=0)
    scale = {"huge": 1e100, "tiny": 1e-100}.get(data, 1.0)
    X, y = {"constant column": (np.c_[X, np.ones(50)], y), "duplicates": (np.r_[X, X], np.r_[y, y]),
            "collinear": (np.c_[X, X], y), "y zero": (X, 0 * y), "one row": (X[:1], y[:1]),
            "two rows": (X[:2], y[:2]), "constant y": (X, 0 * y + 3)}.get(data, (X * scale, y * scale))
    for n_components in (20, 120):  # fewer and more than rows
        features = RandomFourierFeatures(bandwidth=2.0 * scale, n_components=n_components, random_state=0)
        model = RandomFeatureRidge(features, alpha, solver=solver).fit(X, y)
        out = model.predict(X)
        assert np.isfinite(out).all() and np.isfinite(model.coef_).all()
        if data in ("y zero", "constant y", "one row"):
            np.testing.assert_allclose(out, y, atol=1e-6)


def test_weights_are_repetitions_and_order_does_not_matter():
    X, y = make_friedman1(60, noise=1.0, random_state=0)
    w = np.random.default_rng(0).integers(0, 4, 60)
    for alpha in ("loo", "gcv", 0.1):
        for solver in SOLVERS:
            make = lambda: RandomFeatureRidge(Nystroem(n_components=25, random_state=0), alpha, solver=solver)
            weighted = make().fit(X, y, sample_weight=w)
            repeated = make().fit(np.repeat(X, w, axis=0), np.repeat(y, w))
            np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-6)
            shuffled = np.random.default_rng(1).permutation(60)
            other = make().fit(X[shuffled], y[shuffled], sample_weight=w[shuffled])
            np.testing.assert_allclose(weighted.predict(X), other.predict(X), atol=1e-6)


def test_several_outputs_are_fitted_side_by_side():
    X, y = make_friedman1(80, noise=0.5, random_state=0)
    Y = np.c_[y, y**2]
    model = RandomFeatureRidge(alpha=0.2).fit(X, Y)
    for j in range(2):
        np.testing.assert_allclose(model.predict(X)[:, j], RandomFeatureRidge(alpha=0.2).fit(X, Y[:, j]).predict(X),
                                   rtol=1e-9)
    assert model.coef_.shape == (2, 500) and model.intercept_.shape == (2,)


@pytest.mark.parametrize("alpha", ["loo", "gcv", 0.1])
def test_classifier_with_string_labels(alpha):
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    features = RandomFourierFeatures(bandwidth="median", n_components=200, random_state=0)
    model = RandomFeatureRidgeClassifier(features, alpha).fit(X, names)
    assert list(model.classes_) == ["setosa", "versicolor", "virginica"]
    assert model.decision_function(X).shape == (150, 3) and model.score(X, names) > 0.95
    two = RandomFeatureRidgeClassifier(features, alpha).fit(X[50:], names[50:])
    assert two.decision_function(X).shape == (150,) and two.score(X[50:], names[50:]) > 0.9
    if alpha == 0.1:
        A = two.features_.transform(X[50:])
        peer = RidgeClassifier(alpha=0.1).fit(A, names[50:])
        np.testing.assert_allclose(two.decision_function(X[50:]), peer.decision_function(A), atol=1e-8)


@pytest.mark.parametrize("alpha", [0.1, "gcv"])
def test_partial_fit_of_the_estimators(alpha):
    X, y = load_digits(return_X_y=True)
    features = FrozenEstimator(RandomFourierFeatures(bandwidth=40.0, n_components=100, random_state=0).fit(X))
    whole = RandomFeatureRidgeClassifier(features, alpha).fit(X, y)
    parts = RandomFeatureRidgeClassifier(features, alpha)
    for rows in blocks(len(X), 400):
        parts.partial_fit(X[rows], y[rows], classes=range(10))
    np.testing.assert_allclose(parts.decision_function(X), whole.decision_function(X), atol=1e-6)
    regressor = RandomFeatureRidge(features, alpha)
    for rows in blocks(len(X), 400):
        regressor.partial_fit(X[rows], y[rows])
    np.testing.assert_allclose(regressor.predict(X), RandomFeatureRidge(features, alpha).fit(X, y).predict(X),
                               atol=1e-6)
    once = regressor.fit(X[:300], y[:300]).predict(X)  # forgets
    np.testing.assert_allclose(regressor.partial_fit(X[:300], y[:300]).predict(X), once, atol=1e-6)


# ------------------------------------------------------------------ weights and copies


def left_out_together(A, y, w, lam, fit_intercept):
    """Weighted mean squared error where all rows equal to a row are left out with it: a fit for each."""
    total = np.zeros(y.shape[1])
    for i in range(len(A)):
        rest = (A != A[i]).any(1)
        a, t, v = A[rest], y[rest], w[rest]
        ma, mt = (np.average(a, 0, v), np.average(t, 0, v)) if fit_intercept else (0, 0)
        root = np.sqrt(v)[:, None]
        c = ridge((a - ma) * root, (t - mt) * root, lam, method="svd")
        total += w[i] * ((A[i] - ma) @ c + mt - y[i]) ** 2
    return total.mean() / w.sum()


def with_copies(dtype=np.float64, n=14):
    """Rows of which some are there twice or three times, with targets of their own; weights, one of them zero."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, 3)).astype(dtype), rng.normal(size=(n, 2)).astype(dtype)
    X[3], X[7], X[8] = X[1], X[5], X[5]
    w = rng.uniform(0.1, 5, n)
    w[4] = 0
    return X, y, w


@pytest.mark.parametrize("n_components", [4, 30])  # fewer and more than rows: streamed and held
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("dtype, solver, tolerance", [
    (np.float64, "auto", 1e-8), (np.float64, "qr", 1e-8), (np.float32, "auto", 1e-4), (np.float32, "gram", 1e-2)])
def test_what_is_left_out_is_an_observation(n_components, fit_intercept, dtype, solver, tolerance):
    X, y, w = with_copies(dtype)
    features = RandomFourierFeatures(bandwidth=1.5, n_components=n_components, random_state=0).fit(X)
    lams = [0.3, 1.0, 10.0]
    model = RandomFeatureRidge(FrozenEstimator(features), alphas=lams, fit_intercept=fit_intercept, solver=solver)
    for weight in (w, None):
        model.fit(X, y, sample_weight=weight)
        v = np.ones(len(X)) if weight is None else w
        A = features.transform(X[v > 0]).astype(float)
        expected = [left_out_together(A, y[v > 0].astype(float), v[v > 0], lam, fit_intercept) for lam in lams]
        np.testing.assert_allclose(model.cv_errors_, expected, rtol=tolerance)


@pytest.mark.parametrize("n_components", [4, 30])
def test_generalised_cross_validation_counts_observations(n_components):
    """(3.14) with the leverages of (3.20) replaced by their mean."""
    X, y, w = with_copies()
    features = RandomFourierFeatures(bandwidth=1.5, n_components=n_components, random_state=0).fit(X)
    model = RandomFeatureRidge(FrozenEstimator(features), "gcv", alphas=[0.3, 1.0], fit_intercept=False).fit(X, y, w)
    groups = [np.flatnonzero((X == x).all(1) & (w > 0)) for x in np.unique(X[w > 0], axis=0)]
    W = np.array([w[g].sum() for g in groups])
    mean = np.array([np.average(y[g], axis=0, weights=w[g]) for g in groups])
    within = sum((w[g, None] * (y[g] - m) ** 2).sum(0) for g, m in zip(groups, mean))
    A, n = features.transform(X[[g[0] for g in groups]]) * np.sqrt(W)[:, None], len(groups)
    for lam, error in zip([0.3, 1.0], model.cv_errors_):
        H = A @ np.linalg.solve(A.T @ A + lam * np.eye(n_components), A.T)
        residual = np.sqrt(W)[:, None] * mean - H @ (np.sqrt(W)[:, None] * mean)
        rss = (residual**2).sum(0) / (1 - np.trace(H) / n) ** 2
        assert error == pytest.approx(((rss + within) / w.sum()).mean(), rel=1e-9)


@pytest.mark.parametrize("n_components", [50, 300])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("alpha", ["loo", "gcv"])
def test_the_scale_of_all_weights_does_not_matter(alpha, solver, n_components):
    """The penalty that is chosen grows with the weights; the fit, and the error, stay what they are."""
    X, y = make_friedman1(120, noise=5.0, random_state=0)
    w = np.random.default_rng(0).uniform(0.1, 3, 120)
    features = RandomFourierFeatures(bandwidth="median", n_components=n_components, random_state=0)
    fit = lambda v: RandomFeatureRidge(features, alpha, solver=solver).fit(X, y, sample_weight=v)
    one, plain = fit(w), fit(None)
    assert ((one.predict(X) - y) ** 2).mean() > 5  # noise that is not fitted
    for c in (1.1, 2.0, 100.0, 1e-6, 1e-200, 1e200):
        model = fit(c * w)
        np.testing.assert_allclose(model.predict(X), one.predict(X), rtol=1e-6)
        np.testing.assert_allclose(fit(np.full(120, c)).predict(X), plain.predict(X), rtol=1e-6)
        np.testing.assert_allclose(model.cv_errors_, one.cv_errors_, rtol=1e-6)
        assert model.alpha_ / c == pytest.approx(one.alpha_, rel=1e-6)
        scaled = RandomFeatureRidge(features, alphas=[c, 10 * c], solver=solver).fit(X, y, sample_weight=c * w)
        assert scaled.alpha_ / c == pytest.approx(
            RandomFeatureRidge(features, alphas=[1.0, 10.0], solver=solver).fit(X, y, sample_weight=w).alpha_)
    single = RandomFeatureRidge(features, alpha, solver=solver)
    out = [single.fit(X.astype(np.float32), y, sample_weight=c * w).predict(X) for c in (1.0, 1.1, 1e-60)]
    np.testing.assert_allclose(out[1:], [out[0]] * 2, rtol=1e-2)


@pytest.mark.parametrize("make", [RandomFeatureRidge, RandomFeatureRidgeClassifier])
@pytest.mark.parametrize("alpha", ["loo", "gcv"])
def test_copies_of_rows_do_not_switch_the_penalty_off(alpha, make):
    """All rows twice, or drawn with replacement, against the same as weights; a bagging ensemble."""
    X, y = make_friedman1(150, noise=1.0, random_state=0)
    y = y > np.median(y) if make is RandomFeatureRidgeClassifier else y
    once, twice = make(alpha=alpha).fit(X, y), make(alpha=alpha).fit(np.r_[X, X], np.r_[y, y])
    values = lambda model: model.decision_function(X) if hasattr(model, "classes_") else model.predict(X)
    np.testing.assert_allclose(values(twice), values(once), rtol=1e-6, atol=1e-8)
    assert twice.alpha_ == pytest.approx(2 * once.alpha_)
    np.testing.assert_allclose(twice.cv_errors_, once.cv_errors_, rtol=1e-6)
    drawn = np.random.default_rng(0).integers(0, 150, 150)
    weights = np.bincount(drawn, minlength=150)
    np.testing.assert_allclose(values(make(alpha=alpha).fit(X[drawn], y[drawn])),
                               values(make(alpha=alpha).fit(X, y, sample_weight=weights)), rtol=1e-6, atol=1e-8)
    if make is RandomFeatureRidge:
        Xt, yt = make_friedman1(500, random_state=1)
        bagged = BaggingRegressor(make(alpha=alpha), 5, random_state=0).fit(X, y).predict(Xt)
        assert ((bagged - yt) ** 2).mean() < 1.3 * ((once.predict(Xt) - yt) ** 2).mean()
        if alpha == "gcv":
            parts = make(alpha=alpha).partial_fit(np.r_[X, X], np.r_[y, y])
            np.testing.assert_allclose(parts.predict(X), once.predict(X), rtol=1e-3)
        T = torch.from_numpy(np.r_[X, X])
        np.testing.assert_allclose(make(alpha=alpha).fit(T, torch.from_numpy(np.r_[y, y])).predict(T)[:150],
                                   once.predict(X), rtol=1e-6)
        sparse = make(alpha=alpha).fit(sp.csr_matrix(np.r_[X, X]), np.r_[y, y])
        np.testing.assert_allclose(sparse.predict(sp.csr_matrix(X)), once.predict(X), rtol=1e-6)


@pytest.mark.parametrize("method", ["gram", "qr"])
def test_streams_choose_the_same_whatever_the_scale_of_the_weights(method):
    rng = np.random.default_rng(0)
    A, y, w = rng.normal(size=(150, 100)), rng.normal(size=150), rng.uniform(0.1, 3, 150)

    def stream(c, *parts):
        model = StreamingRidge("gcv", method=method)
        for rows in parts:
            model.partial_fit(A[rows], y[rows], None if c is None else c * w[rows])
        return model

    everything = np.arange(150)
    one = stream(1.0, everything)
    for c in (1.1, 100.0, 1e-6):
        np.testing.assert_allclose(stream(c, everything).predict(A), one.predict(A), atol=1e-7)
        np.testing.assert_allclose(stream(c, *blocks(150, 40)).predict(A), one.predict(A), atol=1e-7)
        halves = stream(c, slice(0, 70)).merge(stream(c, slice(70, 150)))
        np.testing.assert_allclose(halves.predict(A), one.predict(A), atol=1e-7)
        assert halves.alpha_ == pytest.approx(c * one.alpha_)
    twice = np.r_[everything, everything]
    np.testing.assert_allclose(stream(None, twice).predict(A), stream(None, everything).predict(A), atol=1e-7)
    assert stream(None, twice).n_samples_seen_ == 300
    single = lambda c: StreamingRidge("gcv", method=method).fit(A.astype(np.float32), y, c * w).predict(A)
    np.testing.assert_allclose(single(1e-60), single(1.0), atol=1e-3)
    held = RandomFeatureRidge(FunctionTransformer(), "gcv").fit(A, y, sample_weight=w)
    np.testing.assert_allclose(held.predict(A), one.predict(A), atol=1e-6)


@pytest.mark.parametrize("make", [StreamingRidge, lambda: RandomFeatureRidge(alpha=0.5),
                                  lambda: RandomFeatureRidgeClassifier(alpha=0.5)])
def test_a_block_without_rows_or_weight_adds_nothing(make):
    X, y = make_friedman1(40, random_state=0)
    y = (y > np.median(y)).astype(int)
    kw = {} if not isinstance(make(), RandomFeatureRidgeClassifier) else {"classes": [0, 1]}
    empty = make().partial_fit(X[:0], y[:0], **kw).partial_fit(X, y, sample_weight=np.zeros(40), **kw)
    with pytest.raises(NotFittedError):
        empty.predict(X)
    late = empty.partial_fit(X, y, **kw).partial_fit(X[:0], y[:0]).partial_fit(5 * X, y, sample_weight=np.zeros(40))
    np.testing.assert_array_equal(late.predict(X), make().partial_fit(X, y, **kw).predict(X))
    with pytest.raises(ValueError, match="sample_weight is zero for every row"):
        make().fit(X, y, sample_weight=np.zeros(40))


def test_rows_without_weight_are_not_counted_beside_others():
    A, y = system(100, 25)
    with_them = StreamingRidge("gcv").partial_fit(A, y, np.repeat([1.0, 0.0], [40, 60]))
    np.testing.assert_allclose(with_them.coef_, StreamingRidge("gcv").partial_fit(A[:40], y[:40]).coef_, atol=1e-9)


# ------------------------------------------------------------------ memory, processes


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="no high-water mark to reset here")
def test_memory_does_not_grow_with_the_rows():
    """Peak memory of fit in a child process beside X, for 60 000 and 160 000 rows: both are more than two blocks."""
    code = textwrap.dedent("""
        import re, sys
        import numpy as np
        from rfteach.features import RandomFourierFeatures
        from rfteach.feature_ridge import RandomFeatureRidge
        def memory(mark):
            return 1024 * int(re.search(mark + r":\\s+(\\d+)", open("/proc/self/status").read())[1])
        n = int(sys.argv[1])
        X = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
        y = X[:, 0].copy()
        model = RandomFeatureRidge(RandomFourierFeatures(bandwidth=2.0, n_components=100, random_state=0), 0.1)
        model.fit(X[:3000], y[:3000])
        open("/proc/self/clear_refs", "w").write("5")
        before = memory("VmRSS")
        model.fit(X, y)
        print(memory("VmHWM") - before)
    """)
    extra = {n: int(subprocess.run([sys.executable, "-c", code, str(n)], capture_output=True, text=True,
                                   check=True).stdout) for n in (60_000, 160_000)}
    features = 100_000 * 100 * 8  # what holding the features would take more
    assert extra[160_000] - extra[60_000] < features / 4


SCRIPT = textwrap.dedent("""
    import sys, time
    import numpy as np
    import pandas as pd
    import torch.distributed as dist
    from rfteach.features import RandomFourierFeatures
    from rfteach.feature_ridge import RandomFeatureRidge, RandomFeatureRidgeClassifier
    from rfteach.processes import process_group
    from rfteach.streaming import StreamingRidge
    mode, timeout, folder = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    rng = np.random.default_rng(0)
    A, y = 5 + rng.normal(size=(1001, 12)), rng.normal(size=(1001, 2))
    with process_group("gloo", timeout=timeout) as (rank, size):
        mine = slice(rank, None, size)
        if mode == "lost":
            model = StreamingRidge(0.5).partial_fit(A[mine], y[mine])
            before = model.predict(A)
            print("ready", flush=True)
            if rank == 1:
                time.sleep(600)
            sys.stdin.readline()  # until the other one is dead
            try:
                model.all_reduce()
            finally:
                assert (model.predict(A) == before).all()
        for method in ("gram", "qr"):
            model = StreamingRidge(0.5, method=method).partial_fit(A[mine], y[mine]).all_reduce()
            assert model.n_samples_seen_ == 1001
            np.save(f"{folder}/{method}{rank}.npy", model.predict(A))
        for seed in (0, rank):
            features = RandomFourierFeatures(bandwidth=5.0, n_components=20, random_state=seed)
            model = RandomFeatureRidge(features, 0.5).partial_fit(A[mine], y[mine])
            try:
                np.save(f"{folder}/features{rank}.npy", model.all_reduce().predict(A))
            except ValueError as error:
                print(f"process {rank}: {error}")
        def refused(call):
            try:
                call()
            except ValueError as error:
                print(f"process {rank}: {error}")

        refused(StreamingRidge(0.5).partial_fit(A[:, : 12 - rank], y).all_reduce)
        named = pd.DataFrame(A[:, :2], columns=[*["ab", "ba"][rank]])
        for model in (StreamingRidge(0.5), RandomFeatureRidge(features, 0.5)):
            refused(model.partial_fit(named, y).all_reduce)
        for model in (StreamingRidge(0.5), RandomFeatureRidge(features, 0.5)):
            refused(model.partial_fit(A, y[:, 0] if rank else y[:, :1]).all_reduce)
        for method in ("gram", "qr"):  # block after block, combined after each; the second process is slow to start
            model = StreamingRidge("gcv", method=method)
            for block in np.array_split(np.arange(1001), 5):
                half = block[rank::size] if block[0] or rank == 0 else block[:0]
                model.partial_fit(A[half], y[half]).all_reduce()
                model.all_reduce()
                assert rank or model.n_samples_seen_ < 1002
            other = StreamingRidge("gcv", method=method).partial_fit(A[half], y[half]).all_reduce()
            seen = model.n_samples_seen_
            np.save(f"{folder}/loop-{method}{rank}.npy", model.predict(A))
            model.merge(other).all_reduce().all_reduce()
            assert model.n_samples_seen_ == seen + len(block)
        features = RandomFourierFeatures(bandwidth="median", n_components=20, random_state=0)
        for number, shard in enumerate((A[:0], A[:3])):
            w = None if rank == 0 else np.zeros(len(shard))
            rows = slice(None) if rank == 0 else slice(0, len(shard))
            labels = np.where(y[:, 0] > 0, "b", "a")
            models = StreamingRidge(0.5), RandomFeatureRidge(features, 0.5), RandomFeatureRidgeClassifier(features, 0.5)
            for j, model in enumerate(models):
                if rank == 0 or number:
                    more = {"classes": ["a", "b"]} if j == 2 else {}
                    model.partial_fit(A[rows], labels[rows] if j == 2 else y[rows], sample_weight=w, **more)
                model.all_reduce()
                out = model.decision_function(A) if j == 2 else model.predict(A)
                np.save(f"{folder}/empty-{j}{rank}.npy", out)
        model = RandomFeatureRidgeClassifier(RandomFourierFeatures(random_state=0), 0.5)
        letters = np.array(["ab", "bc"][rank : rank + 1] * 1).astype("U2").view("U1")
        model.partial_fit(A, letters[(y[:, 0] > 0).astype(int)], classes=letters)
        refused(model.all_reduce)
        refused(StreamingRidge().all_reduce)
        model = StreamingRidge().partial_fit(A[mine], y[mine])
        if rank == 0:
            model.all_reduce(dist.new_group([0]))
        else:
            dist.new_group([0])
        refused(model.all_reduce)
""")


@pytest.fixture
def script(tmp_path):
    file = tmp_path / "fit.py"
    file.write_text(SCRIPT)
    return file


def test_two_processes_give_the_result_of_one(script):
    """By torchrun: moments, triangular factors, a feature map; what does not fit is refused by both."""
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", script,
                           "sums", "60", script.parent], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rng = np.random.default_rng(0)
    A, y = 5 + rng.normal(size=(1001, 12)), rng.normal(size=(1001, 2))
    features = RandomFourierFeatures(bandwidth=5.0, n_components=20, random_state=0)
    one = {method: StreamingRidge(0.5, method=method).fit(A, y).predict(A) for method in ("gram", "qr")}
    one["features"] = RandomFeatureRidge(features, 0.5).fit(A, y).predict(A)
    late = np.r_[0:201:2, 201:1001]  # what is left of the first block
    one["loop-gram"] = one["loop-qr"] = StreamingRidge("gcv").fit(A[late], y[late]).predict(A)
    features.set_params(bandwidth="median")
    one["empty-0"] = StreamingRidge(0.5).fit(A, y).predict(A)
    one["empty-1"] = RandomFeatureRidge(features, 0.5).fit(A, y).predict(A)
    one["empty-2"] = RandomFeatureRidgeClassifier(features, 0.5).fit(A, y[:, 0] > 0).decision_function(A)
    for name, expected in one.items():
        for rank in (0, 1):
            np.testing.assert_allclose(np.load(script.parent / f"{name}{rank}.npy"), expected, rtol=0, atol=1e-8)
    assert "process 0: process 1 has number of columns = 11, this one has 12" in done.stdout
    assert "process 1: process 0 has number of columns = 12, this one has 11" in done.stdout
    assert done.stdout.count("process 1 has names of columns = ['b', 'a'], this one has ['a', 'b']") == 2
    assert done.stdout.count("process 0 has y of one dimension = False, this one has True") == 2
    assert done.stdout.count("the feature maps of processes 0 and 1 differ") == 2
    assert "process 0: process 1 has classes_ = ['b', 'c'], this one has ['a', 'b']" in done.stdout
    assert done.stdout.count("all_reduce needs a row with a positive weight in at least one process") == 2
    assert done.stdout.count("has last all_reduce = ") == 2


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_lost_process_ends_the_others_with_a_clear_error(script, how):
    """Process 1 is killed, or is there and does not answer; process 0 must end by itself, and say why."""
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(29500 + os.getpid() % 1000), "WORLD_SIZE": "2"}
    start = [sys.executable, script, "lost", "60" if how == "killed" else "2", script.parent]
    ranks = [subprocess.Popen(start, env={**env, "RANK": str(rank)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) for rank in (0, 1)]
    try:
        for process in ranks:
            assert process.stdout.readline() == "ready\n"
        if how == "killed":
            ranks[1].send_signal(signal.SIGKILL)
            ranks[1].wait()
        began = time.monotonic()
        _, errors = ranks[0].communicate("go\n", timeout=60)
        assert ranks[0].returncode == 1
        assert "process 0 of 2: another process was lost, or did not answer in time" in errors
        assert time.monotonic() - began < 40
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def test_process_group_outside_of_torchrun(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(RuntimeError, match="RANK is not set: start the program with torchrun"):
        with process_group():
            pass


def test_masked_labels_of_a_block_are_refused():
    X, y = np.arange(6.0)[:, None], np.ma.array([0, 1, 0, 1, 0, 1], mask=[1, 0, 0, 0, 0, 0])
    with pytest.raises(ValueError, match="mask"):
        RandomFeatureRidgeClassifier(alpha=1.0).partial_fit(X, y, classes=[0, 1])


@pytest.mark.parametrize("criterion", ["loo", "gcv"])
@pytest.mark.parametrize("n_components", [100, 300, 1000])
def test_rows_left_out_in_float32_are_those_of_the_factorisation(n_components, criterion):
    """Features as many as rows or more, moments in the dtype of X: the residuals are those of the same features in float64."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(100, 10)).astype(np.float32)
    y = (10 * np.sin(3 * X[:, 0] * X[:, 1]) + 5 * X[:, 2] + 0.1 * rng.normal(size=100)).astype(np.float32)
    features = RandomFourierFeatures(bandwidth=2.0, n_components=n_components, form="paired", random_state=0)
    model = RandomFeatureRidge(features, criterion, solver="gram").fit(X, y)
    A, left = model.features_.transform(X).astype(float), model.left_out_
    right = gram_solve(A @ A.T, y.astype(float), model.alpha_).residuals[left.rows]
    np.testing.assert_allclose(left.residuals[:, 0], right, atol=1e-5 * abs(right).max())


@pytest.mark.parametrize("model", [RandomFeatureRidge(FIXED_MAP), RandomFeatureRidge(FIXED_MAP, "gcv"), StreamingRidge(),
                                   RBFRegressor(50, random_state=0), RBFRegressor(50, alpha="gcv", random_state=0)],
                         ids=lambda m: f"{type(m).__name__} {m.alpha}")
def test_outputs_may_have_units_of_their_own(model):
    """A penalty is chosen in units of each output: what one of them weighs does not depend on the other's scale."""
    X, y = make_friedman1(200, random_state=0)
    Y = np.stack([np.random.default_rng(0).normal(size=200), y], 1)
    found = [model.fit(X, Y * [1, c]).predict(X) / [1, c] for c in (1.0, 1e-3, 1e3)]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-6, atol=1e-9)
    if hasattr(model, "cv_errors_"):
        assert model.cv_errors_.min() > 1e5  # in raw units


def test_the_best_penalty_of_a_path_is_free_of_units():
    X, y = make_friedman1(60, random_state=0)
    Y = np.stack([np.random.default_rng(0).normal(size=60), y], 1)
    paths = [ridge_path(X, Y * [1, c], fit_intercept=True) for c in (1.0, 1e3, 1e-3)]
    alone = [ridge_path(X, column, fit_intercept=True).best for column in Y.T]
    assert len({path.best for path in paths}) == 1 and min(alone) <= paths[0].best <= max(alone)
    assert alone[0] != alone[1]


@pytest.mark.parametrize("model", [
    lambda: RandomFeatureRidge(RandomFourierFeatures(n_components=500, form="paired", random_state=0)),
    lambda: RandomFeatureRidge(RandomFourierFeatures(n_components=60, form="paired", random_state=0)),
    lambda: KernelRidgeRegressor("gaussian", 1.0)], ids=["many features", "few features", "kernel"])
def test_luck_at_the_edge_chooses_no_penalty(model):
    """For a step leave-one-out errors alone take next to no penalty in a third of draws, and miss by thousands of variances."""
    errors = []
    for seed in range(16):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(700, 1))
        step = np.sign(X[:, 0])
        fit = model().fit(X[:200], (step + 0.1 * rng.normal(size=700))[:200])
        errors.append(np.mean((fit.predict(X[200:]) - step[200:]) ** 2))
    assert np.median(errors) < 0.2 and max(errors) < 50


@pytest.mark.parametrize("n, d", [(60, 59), (30, 30), (40, 60)])
def test_a_stream_with_few_rows_leaves_them_out(n, d):
    """Generalised cross-validation alone takes next to no penalty there, and predicts worse than the mean."""
    worse = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n + 300, d))
        y = 2 * X[:, 0] + rng.normal(size=n + 300)
        model = StreamingRidge().fit(X[:n], y[:n])
        cut = StreamingRidge()
        for rows in np.array_split(np.arange(n), 3):
            cut.partial_fit(X[rows], y[rows])
        loo = ridge_path(X[:n], y[:n], model.alpha_ * 10 ** np.array([0.0, 0.5, 1.0, -0.5, -1.0]), fit_intercept=True).loo
        assert cut.alpha_ == pytest.approx(model.alpha_) and loo[0] <= min(loo[:3]) * (1 + 1e-5)  # none larger is better
        errors = [np.mean((fit.predict(X[n:]) - y[n:]) ** 2) for fit in (model, StreamingRidge("gcv").fit(X[:n], y[:n]))]
        worse.append(errors / np.mean((y[n:] - y[:n].mean()) ** 2))
    assert np.mean(worse, 0).max() < 0.75


@pytest.mark.parametrize("n, share, far", [(120, 0.03, 100), (2000, 0.003, 100), (3000, 0.01, 30)])
def test_rows_far_from_the_others_choose_no_small_penalty(n, share, far):
    """Generalised cross-validation knows the mean leverage alone: its penalty predicts several times worse than the mean."""
    errors = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n + 2000, 4))
        y = np.tanh(X[:, 0]) + np.tanh(X[:, 1]) * X[:, 2] + 0.1 * rng.normal(size=n + 2000)
        X[rng.random(n + 2000) < share] *= far
        if n == 3000:
            X = np.maximum(X @ np.random.default_rng(0).normal(size=(4, 100)), 3)
        fits = StreamingRidge("gcv").fit(X[:n], y[:n]), StreamingRidge().fit(X[:n], y[:n])
        errors.append([np.mean((fit.predict(X[n:]) - y[n:]) ** 2) / y[n:].var() for fit in fits])
    by_gcv, by_others = np.median(errors, 0)
    assert by_others < 1.1 and by_others <= by_gcv and np.max(errors, 0)[0] > 2


@pytest.mark.parametrize("b", [1e-90, 1e90])
def test_errors_of_a_path_are_in_the_units_of_y(b):
    rng = np.random.default_rng(0)
    A, y = rng.normal(size=(20, 4)), rng.normal(size=20)
    one, other = (ridge_path(A, t, fit_intercept=True) for t in (y, b * y))
    for name, power in (("coef", 1), ("intercept", 1), ("dof", 0), ("loo", 2), ("gcv", 2)):
        np.testing.assert_allclose(getattr(other, name) / b**power, getattr(one, name), rtol=1e-6)


@pytest.mark.parametrize("dtype, a", [("float32", 1e-30), ("float64", 1e-200)])
def test_beside_a_penalty_beyond_the_largest_number_all_is_zero(dtype, a):
    """λ/a² is infinite: the errors are those of the mean, no degrees of freedom but the constant's, and λ is what was given."""
    rng = np.random.default_rng(0)
    A, y = (a * rng.normal(size=(20, 4))).astype(dtype), rng.normal(size=20).astype(dtype)
    path = ridge_path(A, y, [2.0, 1.0], fit_intercept=True)
    left = (y - y.mean()) * 20 / 19
    np.testing.assert_allclose([path.loo, path.gcv], np.full((2, 2), np.mean(left**2)), rtol=1e-5)
    np.testing.assert_allclose(path.intercept, y.mean(), rtol=1e-5)
    exact = (A - A.mean(0)).T @ y / np.array([[2.0], [1.0]])
    np.testing.assert_allclose(path.coef, exact if dtype == "float32" else 0 * exact, rtol=1e-4)
    assert list(path.dof) == [1, 1] and list(path.lams) == [2, 1]
    given = np.array([2.0, 1.0])
    assert not np.shares_memory(ridge_path(A, y, given).lams, given)
    assert loo_error(A, y, 1.0, fit_intercept=True) == pytest.approx(path.loo[0])


@pytest.mark.parametrize("criterion", ["loo", "gcv"])
def test_a_single_row_with_a_weight(criterion):
    model = RandomFeatureRidge(FunctionTransformer(), criterion).fit([[1.0, 2.0]], [3.0], sample_weight=[4.0])
    np.testing.assert_allclose(model.cv_errors_, 9.0)


def test_rows_left_out_of_a_stream_follow_its_penalty():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    model = StreamingRidge(0.1).fit(X, y)
    first = model.left_out_.predictions
    said = model.set_params(alpha=30.0).left_out_.predictions
    assert not np.allclose(said, first)
    np.testing.assert_allclose(said, StreamingRidge(30.0).fit(X, y).left_out_.predictions)


def test_a_later_copy_of_the_last_row_that_was_drawn_adds_to_its_weight():
    A, y = system(3300, 2)
    model = StreamingRidge(1.0)
    for rows in blocks(3300, 1100):
        model.partial_fit(A[rows], y[rows])
    left = model.left_out_
    again = model.partial_fit(left.inputs[-1:], left.targets[-1:, 0]).left_out_
    assert left.w.max() == 1 and again.w.tolist() == [1] * 999 + [2]


def test_merged_sums_know_the_coarser_rounding():
    rng = np.random.default_rng(0)
    A, y = np.repeat(rng.normal(size=(60, 2)), 2, 1), rng.normal(size=60)
    fine = StreamingRidge(1e-5).partial_fit(A[:57], y[:57])
    coarse = StreamingRidge(1e-5).partial_fit(A[57:].astype(np.float32), y[57:])
    fine.merge(coarse)
    with pytest.warns(LinAlgWarning, match="is so small that rounding of the sums"):
        fine.predict(A)


def test_rows_that_choose_the_penalty_of_a_stream_count_by_their_weights():
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(12, 9)), rng.normal(size=12), rng.uniform(0.1, 5, 12)
    stream = StreamingRidge().fit(X, y, sample_weight=w)._stream
    B, v, Y, w = stream._split(stream._all_drawn())
    spectrum, lams = stream._sums().spectrum(9), torch.tensor([0.1, 1.0, 10.0]).double()
    errors = lambda w: _left_errors(spectrum, B, v, Y, w, lams)
    each = torch.stack([errors(torch.eye(12).double()[i]) for i in range(12)])
    assert (each.std(0) > 0.01).all()
    torch.testing.assert_close(errors(w), (w / w.sum() @ each[:, :, 0])[:, None])


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n, budget", [(900, 2**30), (1300, 2**30), (1300, 10**4)])
def test_drawn_rows_correct_what_a_long_stream_takes_for_errors_left_out(n, fit_intercept, budget):
    """By the hat matrix: with all rows drawn nothing of generalised cross-validation remains."""
    rng = np.random.default_rng(0)
    X, Y, w = rng.standard_t(2, size=(n, 5)), rng.normal(size=(n, 2)), rng.uniform(0.1, 5, n)
    stream = StreamingRidge(fit_intercept=fit_intercept).fit(X, Y, sample_weight=w)._stream
    drawn, spectrum, lams = stream._all_drawn(), stream._sums().spectrum(5), torch.tensor([0.1, 100.0, 1e4]).double()
    some = [int(np.flatnonzero((X == row).all(1))[0]) for row in drawn.parts[0][:, -5:].numpy()]
    assert len(some) == min(n, 1000)
    with memory_budget(budget):
        found = _left_errors(spectrum, *stream._split(drawn), lams)
    mean = fit_intercept * np.outer(np.ones(n), w / w.sum())
    A = X - mean @ X
    for lam, errors in zip(lams.tolist(), found.numpy()):
        H = mean + A @ np.linalg.solve(A.T * w @ A + lam * np.eye(5), A.T * w) @ (np.eye(n) - mean)
        R, h, of = Y - H @ Y, np.diagonal(H)[:, None], w[some] / w[some].sum()
        gcv = R**2 / (1 - h.mean()) ** 2
        right = of @ (R / (1 - h))[some] ** 2 + (n > 1000) * (w @ gcv / w.sum() - of @ gcv[some])
        np.testing.assert_allclose(errors, right, rtol=1e-8)


@pytest.mark.parametrize("estimator", [RandomFeatureRidge, RandomFeatureRidgeClassifier])
@pytest.mark.parametrize("features", ["gaussian", 100, RandomFourierFeatures])
def test_what_is_no_feature_map_is_named(estimator, features):
    with pytest.raises(TypeError, match="features must be None or a transformer"):
        estimator(features).fit(np.eye(4), [0, 1, 0, 1])


@pytest.mark.parametrize("kind", [RandomFourierFeatures, NystroemFeatures])
@pytest.mark.parametrize("solver", ["auto", "gram", "qr"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_map_whose_bandwidth_wants_a_gradient(kind, solver, dtype):
    """The fit takes its numbers: there is no derivative through a solve by blocks."""
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(300, 3))).to(dtype)
    fits = {"fit": [], "partial_fit": []}
    for width in (2.0, torch.tensor(2.0, dtype=dtype, requires_grad=True)):
        model = lambda: RandomFeatureRidge(kind(bandwidth=width, n_components=40, random_state=0), 0.1, solver=solver)
        fits["fit"].append(model().fit(X, X[:, 0]))
        later = (X + 1).requires_grad_(isinstance(width, torch.Tensor))
        fits["partial_fit"].append(model().partial_fit(X, X[:, 0]).partial_fit(later, X[:, 0]))
    assert not any(part.requires_grad for part in fits["partial_fit"][1]._stream.drawn.parts)
    close = dict(rtol=1e-9, atol=1e-12) if dtype == torch.float64 else dict(rtol=1e-4, atol=1e-4)
    for without, wanted in fits.values():
        np.testing.assert_allclose(wanted.predict(X).detach(), without.predict(X), **close)
        np.testing.assert_allclose(wanted.left_out_.residuals, without.left_out_.residuals, **close)


@pytest.mark.parametrize("solver", ["auto", "gram", "qr"])
def test_a_map_that_makes_another_number_of_rows_is_refused(solver):
    """One row for many would be one row many times."""
    X = np.random.default_rng(0).normal(size=(300, 8))
    mean = FunctionTransformer(lambda X: X.mean(0, keepdims=True))
    with pytest.raises(ValueError, match=r"features must make an array of shape \(300, 8\) of 300 rows, got \(1, 8\)"):
        RandomFeatureRidge(mean, solver=solver).fit(X, X[:, 0])
    model = RandomFeatureRidge(FunctionTransformer(lambda X: X if len(X) > 5 else X[:1]), solver=solver).fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"features must make an array of shape \(3, 8\) of 3 rows, got \(1, 8\)"):
        model.predict(X[:3])


@pytest.mark.parametrize("shape", ["fewer rows than columns", "columns that depend"])
@pytest.mark.parametrize("shift", [100.0, 1e6])
def test_an_intercept_makes_the_origin_of_no_account(shape, shift):
    """Rounding of the centring is no direction: one more of them fits each target, and calls nothing left out."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((12, 30) if shape == "fewer rows than columns" else (50, 3))
    A = A if len(A) < 30 else np.c_[A, A.sum(1), np.full(50, 1 / 3)]
    y = A[:, 0] + rng.standard_normal(len(A))
    lams, close = [0.0, 1e-4, 1.0], dict(rtol=1e-6)
    here, there = (ridge_path(A + by, y, lams, fit_intercept=True) for by in (0.0, shift))
    for name in ("loo", "gcv", "dof"):
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), **close)
    plain = FunctionTransformer()
    for model in (RandomFeatureRidge(plain, "gcv", solver="qr"), RandomFeatureRidge(plain, solver="qr"),
                  StreamingRidge(method="qr"), StreamingRidge("gcv", method="qr")):
        here, there = (clone(model).fit(A + by, y) for by in (0.0, shift))
        assert there.alpha_ == pytest.approx(here.alpha_, rel=1e-3)
        np.testing.assert_allclose(there.predict(A + shift), here.predict(A), atol=1e-3)


def test_digits_that_are_there_are_used():
    """What is hardly above the rounding of the means still counts, in float32 and in float64, in any unit."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((1000, 10))
    y = A[:, 0] + 0.1 * rng.standard_normal(1000)
    for dtype, shift in ((np.float32, 1e5), (np.float64, 1e12)):
        for columns in (slice(None), slice(0, 1)):
            B = A.copy()
            B[:, columns] += shift
            path = ridge_path(B.astype(dtype), y.astype(dtype), fit_intercept=True)
            assert path.loo.min() < 0.02 and path.dof.max() == pytest.approx(11, abs=1e-3)
    assert RandomFeatureRidge(FunctionTransformer(), solver="qr").fit(1e150 * A, y).score(1e150 * A, y) > 0.9


def test_a_network_of_wide_bumps_has_a_penalty_and_intervals():
    """Beside their mean the columns hardly vary, and what varies least of them is rounding."""
    rng = np.random.default_rng(11)
    X, T = rng.random((40, 2)), rng.random((1000, 2))
    f, noise = lambda X: np.sin(3 * X[:, 0]) + X[:, 1] ** 2, rng.standard_normal(1040) / 10
    for alpha in ("loo", "gcv"):
        model = RBFRegressor(200, bandwidth=300.0, alpha=alpha).fit(X, f(X) + noise[:40])
        ends, t = model.predict_interval(T), f(T) + noise[40:]
        assert 0.7 < np.mean((ends[:, 0] <= t) & (t <= ends[:, 1])) and np.mean((model.predict(T) - t) ** 2) < 0.02


def test_a_constant_column_of_any_size_is_none_in_a_stream():
    """A triangle of many blocks is rounded as often as it is made anew."""
    rng = np.random.default_rng(0)
    A = np.c_[rng.standard_normal((3000, 5)), np.full(3000, 1e8)]
    sums = moments.Triangle(7, True, "cpu")
    for rows in np.split(np.c_[A, A[:, :1]], 300):
        sums.add(torch.from_numpy(rows), None, 10.0, 10)
    assert len(sums.spectrum(6).s) == 5


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("classes", [range(30), np.arange(30), [str(i) for i in range(30)], [0, 1, 2**70], pd.array([0, 1], "Int64"),
                                     pd.array([True, False], "boolean"), torch.arange(3), np.array([0, 1, 2], dtype=object)])
def test_classes_of_a_stream_may_be_any_labels(classes):
    """They are all that may come, and need not look like the targets of a table."""
    y = np.resize([each for each in classes][:2], 6)
    model = RandomFeatureRidgeClassifier(alpha=1.0).partial_fit(np.eye(6), y, classes=classes)
    assert model.classes_.tolist() == np.unique(classes).tolist() and set(model.predict(np.eye(6))) <= set(np.unique(classes))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("alpha", ["auto", "gcv"])
@pytest.mark.parametrize("factor", [1e-4, 1e3, 1e5])
def test_a_stream_keeps_small_columns_beside_one_in_another_unit(factor, alpha, dtype):
    """A penalty that is small for metres shrinks kilometres to nothing."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((20_000, 8))
    y = X.sum(1) + rng.standard_normal(20_000)
    X[:, 0] *= factor
    right = StreamingRidge(alpha, method="qr").fit(X, y).predict(X)
    found = StreamingRidge(alpha).fit(X.astype(dtype), y.astype(dtype)).predict(X)
    assert np.abs(found - right).max() < 0.02  # one per cent of what noise makes of it


def test_the_least_penalty_knows_units():
    """The least one with AᵀA + λI ⪰ τD; a part of the largest eigenvalue where columns have one size."""
    rng = np.random.default_rng(1)
    unit = torch.from_numpy(10.0 ** rng.uniform(-2, 2, 12))
    B = torch.from_numpy(rng.standard_normal((300, 13)))
    B[:, 1] = B[:, 0] + 1e-4 * B[:, 1]
    for scaled in (False, True):
        A = B * torch.cat([unit, torch.ones(1)]) if scaled else B
        sums = Moments(13, False, "cpu")
        add_rows(sums, A, A[:, :0], None, torch.float32)
        G = (A[:, :12].T @ A[:, :12]).double()
        d, top = G.diagonal(), float(torch.linalg.eigvalsh(G)[-1])
        tau = 2 ** (-46 / 3) * float(torch.linalg.eigvalsh(G / d.sqrt() / d.sqrt()[:, None])[-1])
        if not scaled:
            assert sums.floor(12) == pytest.approx(2 ** (-46 / 3))
            continue
        least = lambda lam: float(torch.linalg.eigvalsh((G + lam * torch.eye(12) - (tau * d).diag()) / d.sqrt() / d.sqrt()[:, None])[0])
        found = sums.floor(12) * top
        assert least(1.01 * found) > 0 > least(0.99 * found)


def test_a_stream_says_where_rounding_ends_its_penalties():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5000, 6)).astype(np.float32)
    y = X.sum(1) + rng.standard_normal(5000).astype(np.float32)
    X[:, 1] = X[:, 0] + np.float32(0.003) * X[:, 1]  # of y their difference tells much
    model = StreamingRidge().fit(X, y)
    with pytest.warns(LinAlgWarning, match="a penalty below .*, the smallest that rounding of the sums .* leaves, may be better; take products in float64"):
        model.alpha_
    assert StreamingRidge(dtype="float64").fit(X, y).score(X, y) > model.score(X, y) + 0.05  # and says nothing
    y = X.sum(1)
    assert StreamingRidge().fit(X, y).score(X, y) > 0.9999  # nor where nothing is to be gained


@pytest.mark.parametrize("n", [60, 5000])
def test_many_outputs_are_left_out_in_blocks(n, monkeypatch):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((n, 3)), rng.standard_normal((n, 40))
    model = RandomFeatureRidge(RandomFourierFeatures(n_components=80, random_state=0))
    sizes, one = [], Spectrum.leave_one_out
    monkeypatch.setattr(Spectrum, "leave_one_out", lambda self, U, y, w, lams, *rest: sizes.append(len(U) * len(lams) * y.shape[1])
                        or one(self, U, y, w, lams, *rest))
    whole = model.fit(X, Y).cv_errors_
    with memory_budget(2**20):
        parts = clone(model).fit(X, Y).cv_errors_
    np.testing.assert_allclose(parts, whole, rtol=1e-8)
    assert 8 * min(sizes[-20:]) <= 2**20 and max(sizes) * 8 <= max(2**20, block_bytes("cpu"))


@pytest.mark.parametrize("dtype, factor", [("float64", 1e7), ("float64", 1e10), ("float32", 1e8)])
def test_a_stream_says_where_a_column_is_too_small_for_its_sums(dtype, factor):
    """In any unit of the targets, and beside an output that tells nothing; orthogonal transformations have the digits."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((2000, 3)) * [factor, 1, 1]
    y = A[:, 1] + A[:, 2] + 0.3 * rng.standard_normal(2000)
    for Y in (y, np.stack([y, 1e6 * rng.standard_normal(2000)], 1)):
        with pytest.warns(LinAlgWarning, match="a penalty below .* may be better; take .*columns of one scale"):
            StreamingRidge().fit(A.astype(dtype), Y.astype(dtype)).alpha_
    assert StreamingRidge(method="qr").fit(A, y).score(A, y) > 0.9
    A[:, 0] = 7e5  # a constant is no small column
    assert StreamingRidge().fit(A.astype(dtype), y.astype(dtype)).score(A, y) > 0.9
