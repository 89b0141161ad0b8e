"""EigenPro: steps by their definition, estimators by exact solutions, caches, checkpoints, contract, errors."""

import json
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from types import SimpleNamespace

import card
import numpy as np
import pandas as pd
import pytest
import scipy.linalg
import scipy.sparse as sp
import torch
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_friedman1
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from rfteach import bandwidth, centers, eigenpro_engine, eigenpro_training, preconditioning
from rfteach.arrays import memory_budget
from rfteach.centers import CentersClassifier, CentersRegressor
from rfteach.eigenpro import EigenProClassifier, EigenProRegressor
from rfteach.eigenpro_engine import (FeatureSpace, KernelSpace, Rows, most_directions, open_space, plan, preconditioner_for,
                                     subsample_size)
from rfteach.eigenpro_training import Best, flat, risen, slow_down, stalled
from rfteach.features import RandomFourierFeatures
from rfteach.kernels import Cauchy, Gaussian, Laplacian, Matern
from rfteach.preconditioning import (
    Eigensystem,
    Momentum,
    Preconditioner,
    critical_batch_size,
    eigenpro_step,
    largest_step,
    leading_eigenpairs,
    preconditioner,
    top_eigensystem,
)

X0 = np.random.default_rng(0).normal(size=(90, 3))
Y0 = np.sin(X0[:, 0]) + X0[:, 1] ** 2
T0 = np.random.default_rng(1).normal(size=(20, 3))  # points that are not trained on
T6 = np.random.default_rng(1).normal(size=(50, 6))
K0 = Laplacian(1.5)(X0)
LABELS = np.array(["cat", "ant", "bee"])[np.digitize(Y0, [0.3, 1.2])]
dtypes = pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-10), (torch.float32, 1e-4)])


PLAIN = dict(early_stopping=False, fit_intercept=False)  # the iteration as it is derived


def regressor(max_iter=40, **kw):
    """Laplacian kernel, for which some dozen epochs reach the exact solution of small problems."""
    kw = {**PLAIN, "kernel": "laplacian", "bandwidth": 1.5, "random_state": 0, **kw}
    return EigenProRegressor(max_iter=max_iter, **kw)


def classifier(max_iter=30, **kw):
    kw = {**PLAIN, "kernel": "laplacian", "bandwidth": 1.5, "random_state": 0, **kw}
    return EigenProClassifier(max_iter=max_iter, **kw)


def times_one(Z):
    return Z


def times_million(Z):
    return 1e6 * Z


def times_zero(Z):
    return 0 * Z


def same_losses(a, b):
    """Whether two histories agree in all but the time they took."""
    return a.keys() == b.keys() and all(a[name] == b[name] for name in a if name != "seconds")


# ------------------------------------------------------------------ eigensystem


def psd(m, rank, dtype=torch.float64, decay=0.8):
    """A positive semi-definite matrix with eigenvalues 1, 0.8, 0.64, …"""
    Q = np.linalg.qr(np.random.default_rng(m).normal(size=(m, m)))[0][:, :rank]
    K = (Q * decay ** np.arange(rank)) @ Q.T
    return torch.from_numpy((K + K.T) / 2).to(dtype)


@dtypes
@pytest.mark.parametrize("method", ["eigh", "randomized", "auto"])
@pytest.mark.parametrize("m, rank, k", [(60, 60, 1), (60, 60, 7), (60, 60, 60), (60, 4, 3), (60, 4, 9), (150, 90, 20),
                                        (1, 1, 1), (2, 2, 1), (2, 1, 2)])
def test_eigensystem_against_scipy(m, rank, k, method, dtype, tolerance):
    K = psd(m, rank, dtype)
    found = top_eigensystem(K, k, method=method, tol=tolerance)
    values, vectors = scipy.linalg.eigh(K.double().numpy())
    assert isinstance(found, Eigensystem) and found.values.dtype == found.vectors.dtype == dtype
    assert found.values.shape == (k,) and found.vectors.shape == (m, k)
    assert (found.n_iter == 0) == (method != "randomized" or m <= k + max(10, k // 2))
    S, V = found.values.double().numpy(), found.vectors.double().numpy()
    np.testing.assert_allclose(S, values[::-1][:k], atol=tolerance)
    assert (np.diff(S) <= 1e-6).all()
    np.testing.assert_allclose(V.T @ V, np.eye(k), atol=max(1e-12, tolerance / 10))
    worst = np.linalg.norm(K.double().numpy() @ V - V * S, axis=0).max()
    assert worst <= 2 * tolerance and found.residual <= tolerance
    assert found.residual == pytest.approx(worst / values[-1], abs=tolerance / 100)
    clear = np.flatnonzero(values[::-1][:k] > 1e-2)  # where vectors are well determined
    cosines = abs((V[:, clear] * vectors[:, ::-1][:, clear]).sum(0))
    np.testing.assert_allclose(cosines, 1, atol=1e-3)


def test_eigensystem_of_many_points():
    """More than 1000 rows and few pairs: "auto" iterates; errors of the values are quadratic in the residual."""
    K = Gaussian(1.0)(torch.from_numpy(np.random.default_rng(0).normal(size=(1100, 3))))
    found = top_eigensystem(K, 30)
    assert 0 < found.n_iter < 20 and found.residual <= 1e-4
    exact = scipy.linalg.eigh(K.numpy(), eigvals_only=True, subset_by_index=(1070, 1099))[::-1]
    np.testing.assert_allclose(found.values, exact, atol=1e-6 * exact[0])
    assert top_eigensystem(K, 300).n_iter == 0


@pytest.mark.parametrize("method", ["eigh", "randomized"])
def test_eigensystem_of_zero_and_of_the_identity(method):
    for K, value in ((np.zeros((40, 40)), 0.0), (np.eye(40), 1.0), (np.full((40, 40), 1.0), 40.0)):
        found = top_eigensystem(K, 3, method=method)
        assert float(found.values[0]) == pytest.approx(value, abs=1e-12)
        np.testing.assert_allclose(found.vectors.T @ found.vectors, np.eye(3), atol=1e-12)
        assert found.residual < 1e-12
    huge = top_eigensystem(1e100 * np.diag(np.arange(1.0, 41)), 2, method=method, tol=1e-8)
    np.testing.assert_allclose(huge.values, [40e100, 39e100], rtol=1e-9)


@pytest.mark.parametrize("unit, dtype", [(1e-170, torch.float64), (1e200, torch.float64), (1e-24, torch.float32)])
def test_eigensystem_in_extreme_units(unit, dtype):
    """Where squares of entries vanish or overflow: the same pairs in as many products."""
    K = psd(150, 150, dtype, decay=0.97)
    base, found = (top_eigensystem(c * K, 5, method="randomized") for c in (1.0, unit))
    assert found.n_iter == base.n_iter > 1 and found.residual == pytest.approx(base.residual, rel=0.01)
    np.testing.assert_allclose(found.values / unit, base.values, rtol=1e-5 if dtype == torch.float32 else 1e-10)


def test_eigensystem_seeds_and_kinds():
    K = psd(150, 150, decay=0.97)
    find = lambda seed, K=K: top_eigensystem(K, 5, method="randomized", random_state=seed)
    assert torch.equal(find(3).vectors, find(3).vectors) and find(3).residual == find(3).residual
    assert not torch.equal(find(3).vectors, find(4).vectors)
    assert torch.equal(find(np.random.default_rng(3)).vectors, find(3).vectors)
    assert torch.equal(find(3, K.numpy()).vectors, find(3).vectors)
    assert torch.equal(leading_eigenpairs(K, 5, "randomized", random_state=3).vectors, find(3).vectors)
    assert top_eigensystem([[2, 1], [1, 2]], 2).values.tolist() == pytest.approx([3, 1])
    exact = scipy.linalg.eigvalsh(K.numpy())[::-1]
    loose, tight = (top_eigensystem(K, 5, method="randomized", tol=tol) for tol in (1e-2, 1e-8))
    assert loose.n_iter < tight.n_iter and loose.residual > tight.residual
    np.testing.assert_allclose(tight.values, exact[:5], rtol=1e-12)


def test_eigensystem_says_if_iterations_do_not_suffice():
    K = psd(150, 150, decay=0.97)
    with pytest.warns(ConvergenceWarning, match="residual .* after max_iter=2 products; tol=1e-09"):
        found = top_eigensystem(K, 5, method="randomized", tol=1e-9, max_iter=2)
    assert found.n_iter == 2 and found.residual > 1e-9


# ------------------------------------------------------------------ preconditioner


def operator(P, A, n_columns, rkhs):
    """The matrix P H, read off one step of length one with targets zero from each basis vector."""
    c = torch.eye(n_columns, dtype=A.dtype)
    eigenpro_step(c, A, torch.zeros(len(A), n_columns, dtype=A.dtype), 1.0, P, slice(0, len(A)) if rkhs else None)
    return np.eye(n_columns) - c.numpy()


@pytest.mark.parametrize("tau", [1.0, 0.4])
@pytest.mark.parametrize("k", [0, 1, 5, 89])
def test_spectrum_is_flattened(k, tau):
    """Subsample = everything: k eigenvalues τλ_{k+1}, the others as they were; in both spaces."""
    K = torch.from_numpy(K0)
    lam = scipy.linalg.eigvalsh(K0)[::-1] / 90
    expected = np.sort(np.r_[np.full(k, tau * lam[k]), lam[k:]])
    P = preconditioner(K, k, tau=tau)
    assert isinstance(P, Preconditioner) and P.vectors.shape == (90, k)
    assert P.lam == pytest.approx(lam[k], rel=1e-9)
    np.testing.assert_allclose(P.values, lam[:k], rtol=1e-9)
    np.testing.assert_allclose(scipy.linalg.eigvalsh(P.deflate(K, K)) / 90, expected, atol=1e-8 * lam[0])
    found = scipy.linalg.eigvals(operator(P, K, 90, rkhs=True))
    assert abs(found.imag).max() < 1e-6
    np.testing.assert_allclose(np.sort(found.real), expected, atol=1e-6 * lam[0])
    L = torch.linalg.cholesky(K)
    P = preconditioner(K, k, features=L, tau=tau)
    PH = operator(P, L, 90, rkhs=False)
    # P and H share their eigenvectors, so that P H is symmetric
    np.testing.assert_allclose(PH, PH.T, atol=1e-10)
    np.testing.assert_allclose(scipy.linalg.eigvalsh((PH + PH.T) / 2), expected, atol=1e-8 * lam[0])
    np.testing.assert_allclose(P.vectors.T @ P.vectors, np.eye(k), atol=1e-8)
    np.testing.assert_allclose(scipy.linalg.eigvalsh(P.deflate(K, L)) / 90, expected, atol=1e-8 * lam[0])


@pytest.mark.parametrize("N", [5, 40, 120])
def test_spectrum_in_the_space_of_features(N):
    """Fewer and more features than rows; never more directions than rank minus one."""
    Z = torch.from_numpy(RandomFourierFeatures(n_components=N, random_state=0).fit_transform(X0))
    lam = np.zeros(N)
    nonzero = scipy.linalg.svdvals(Z.numpy()) ** 2 / 90
    lam[: len(nonzero)] = nonzero
    for k in (0, 3, 70):
        P = preconditioner(Z @ Z.T, k, features=Z)
        kept = len(P.values)
        assert kept == k if k < N and k < 40 else kept < N
        PH = operator(P, Z, N, rkhs=False)
        expected = np.sort(np.r_[np.full(kept, lam[kept]), lam[kept:]])
        np.testing.assert_allclose(scipy.linalg.eigvalsh((PH + PH.T) / 2), expected, atol=1e-8 * lam[0])


@dtypes
@pytest.mark.parametrize("tau", [1.0, 0.5])
def test_beta_and_lam_are_those_of_the_deflated_kernel(tau, dtype, tolerance):
    for kernel in (Laplacian(1.5), Gaussian(1.0), Cauchy(2.0)):
        K = kernel(torch.from_numpy(X0).to(dtype))
        for k in (0, 1, 20):
            P = preconditioner(K, k, tau=tau)
            D = P.deflate(K, K)
            assert P.beta == pytest.approx(float(D.diagonal().max()), rel=100 * tolerance)
            assert P.lam == pytest.approx(float(torch.linalg.eigvalsh(D)[-1]) / 90, rel=100 * tolerance)
            assert P.lam <= P.beta <= 1 + tolerance
            assert P.vectors.dtype == P.weights.dtype == P.values.dtype == dtype


def test_unseen_rows_never_lower_the_constants():
    """λ and β on other rows, by eigh and by the diagonal; the subsample itself changes nothing."""
    K = torch.from_numpy(K0)
    for k in (0, 5, 25):
        P = preconditioner(K[:30, :30], k)
        for rows in (slice(30, 60), slice(0, 90), slice(30, 31)):
            Q = P.calibrated(K[rows, rows], K[rows, :30])
            D = P.deflate(K[rows, rows], K[rows, :30])
            lam = scipy.linalg.eigvalsh((D + D.T).numpy() / 2)[-1] / len(D)
            assert Q.lam == pytest.approx(max(P.lam, lam), rel=1e-9) and Q.lam >= P.lam
            assert Q.beta == pytest.approx(max(P.beta, float(D.diagonal().max()))) and Q.beta >= P.beta
            assert Q.values is P.values and Q.vectors is P.vectors and Q.weights is P.weights
        Q = P.calibrated(K[:30, :30], K[:30, :30])
        assert (Q.lam, Q.beta) == pytest.approx((P.lam, P.beta), rel=1e-9)
        assert P.calibrated(0 * K[:30, :30], 0 * K[:30, :30]).lam == P.lam


@pytest.mark.parametrize("rkhs", [True, False])
def test_degenerate_subsamples(rkhs):
    """Duplicates, rank one, the zero kernel, one row, more directions than there are: finite, positive."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(12, 4))
    for rows in (np.repeat(Z[:3], 4, 0), np.repeat(Z[:1], 12, 0), 0 * Z, Z[:1], Z[:2], 1e-100 * Z, 1e100 * Z):
        A = torch.from_numpy(rows)
        K = A @ A.T
        rank = np.linalg.matrix_rank(rows / max(abs(rows).max(), 1e-300))
        for k in (0, 1, 3, 12, 1000):
            P = preconditioner(K, k, features=None if rkhs else A)
            assert len(P.values) == min(k, max(rank - 1, 0)) == len(P.weights) == P.vectors.shape[1]
            assert all(torch.isfinite(v).all() for v in (P.values, P.vectors, P.weights))
            assert 0 <= P.lam <= P.beta * (1 + 1e-9) and math.isfinite(P.beta)
            assert (P.lam > 0) == (rank > 0)
            expected = np.sort(scipy.linalg.eigvalsh(K))[::-1][min(len(P.values), len(K) - 1)] / len(K)
            assert P.lam == pytest.approx(max(expected, 0), rel=1e-6, abs=1e-14 * float(K.abs().max()))


def test_duplicated_subsample_gives_the_same_step():
    """Each point of the subsample twice: the same eigenfunctions, so the same operator on functions."""
    K = torch.from_numpy(K0[:40, :40])
    twice = np.repeat(np.arange(40), 2)
    P, Q = preconditioner(K, 6), preconditioner(K[twice][:, twice], 6)
    np.testing.assert_allclose(Q.values, P.values, rtol=1e-9)
    assert Q.lam == pytest.approx(P.lam) and Q.beta == pytest.approx(P.beta)
    B = torch.from_numpy(K0[40:])
    np.testing.assert_allclose(Q.deflate(B[:, 40:], B[:, twice]), P.deflate(B[:, 40:], B[:, :40]), atol=1e-10)


# ------------------------------------------------------------------ batch size and step


def test_formulas_of_batch_size_and_step():
    for beta, lam in ((1.0, 0.01), (0.3, 0.3), (2.5, 1e-7)):
        critical = critical_batch_size(beta, lam)
        assert isinstance(critical, int) and critical - 1 <= beta / lam * (1 + 1e-12) and critical + 1e-9 > beta / lam
        for B in (1, 2, 17, critical):
            assert largest_step(B, beta, lam) == pytest.approx(2 * B / (beta + (B - 1) * lam), rel=1e-14)
        assert largest_step(1, beta, lam) == pytest.approx(2 / beta)
        assert largest_step(10**15, beta, lam) == pytest.approx(2 / lam, rel=1e-6)
        steps = [largest_step(B, beta, lam) for B in (1, 2, 4, 8, 1000)]
        assert (np.diff(steps) >= -1e-12).all()
        # at the critical batch size an epoch's progress is half of that of single rows, to rounding
        assert largest_step(critical, beta, lam) >= 0.5 * 2 * critical / beta * (1 - 1e-6)
    assert critical_batch_size(0.0, 0.0) == 1 and largest_step(5, 0.0, 0.0) == 0
    assert critical_batch_size(1.0, 0.0) == 1
    assert critical_batch_size(1.0, 5e-324) > 2**61 and isinstance(critical_batch_size(1.0, 5e-324), int)


@pytest.mark.parametrize("k", [0, 4, 30])
@pytest.mark.parametrize("rkhs", [True, False])
def test_largest_step_is_sharp_for_the_full_batch(rkhs, k):
    """The operator is known, so 2/λ is the exact border between convergence and divergence."""
    K = torch.from_numpy(K0)
    A = K if rkhs else torch.linalg.cholesky(K)
    P = preconditioner(K, k, features=None if rkhs else A)
    y = torch.from_numpy(scipy.linalg.eigh(K0)[1][:, ::-1] @ np.ones((90, 1)))  # as much of each eigenvector
    for factor in (0.97, 1.03):
        c, losses = torch.zeros(90, 1, dtype=torch.float64), []
        step = factor * 2 / P.lam
        for _ in range(400):
            losses.append(float(eigenpro_step(c, A, y, step, P, slice(0, 90) if rkhs else None).square().sum()))
        if factor < 1:
            assert losses[-1] < losses[0] and (np.diff(losses) <= 1e-9).all()
        else:
            assert losses[-1] > 1e6 * losses[0]


def test_largest_step_is_sharp_for_single_rows():
    """Far points: K is the identity, and each row multiplies its own residual by 1 - η; η < 2 decides."""
    X, y = 1e3 * np.arange(12.0)[:, None], np.arange(1.0, 13)
    for B in (1, 3):
        fit = lambda step: regressor(400, bandwidth=1.0, n_eigen=0, batch_size=B, step_size=step).fit(X, y)
        assert largest_step(B, 1.0, 1 / 12) <= 2 * B
        np.testing.assert_allclose(fit(0.9 * largest_step(B, 1.0, 1 / 12)).predict(X), y, atol=1e-9)
        with pytest.raises(ValueError, match="the iteration diverges with step_size"):
            fit(2.05 * B)


# ------------------------------------------------------------------ one step


def slow_step(alpha, K, y, batch, step, k, m, tau=1.0):
    """f ← f - η/B Σ_b (f(x_b) - y_b) [k(x_b, ·) - Σ_i (1 - τλ_{k+1}/λ_i) e_i(x_b) e_i], one number at a time."""
    S, V = scipy.linalg.eigh(K[:m, :m])
    S, V = S[::-1], V[:, ::-1]
    residual = [sum(alpha[j] * K[b, j] for j in range(len(K))) - y[b] for b in batch]
    new = alpha.copy()
    for b, r in zip(batch, residual):
        new[b] -= step / len(batch) * r
        for i in range(k):
            e = sum(K[b, j] * V[j, i] for j in range(m)) / math.sqrt(S[i])  # e_i(x_b), of norm one in the RKHS
            for j in range(m):
                new[j] += step / len(batch) * r * (1 - tau * S[k] / S[i]) * e * V[j, i] / math.sqrt(S[i])
    return new


def slow_feature_step(w, Z, y, batch, step, k, m, tau=1.0):
    """The same on features, from the eigenvectors of their covariance matrix."""
    S, U = scipy.linalg.eigh(Z[:m].T @ Z[:m] / m)
    S, U = S[::-1], U[:, ::-1]
    new = w.copy()
    for b in batch:
        direction = Z[b].copy()
        for i in range(k):
            direction -= (1 - tau * S[k] / S[i]) * (Z[b] @ U[:, i]) * U[:, i]
        new -= step / len(batch) * np.outer(direction, Z[b] @ w - y[b])
    return new


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-11), (torch.float32, 1e-4)])
@pytest.mark.parametrize("k, m, tau, batch", [(0, 1, 1.0, (0, 40)), (3, 20, 1.0, (10, 25)), (7, 20, 0.3, (30, 31)),
                                              (12, 40, 1.0, (0, 40)), (5, 20, 1.0, (15, 40))])
def test_step_agrees_with_the_slow_one(k, m, tau, batch, dtype, tolerance):
    rng = np.random.default_rng(k)
    K, Z = K0[:40, :40], RandomFourierFeatures("laplacian", n_components=25, random_state=0).fit_transform(X0[:40])
    c, w, Y = rng.normal(size=(40, 2)), rng.normal(size=(25, 2)), rng.normal(size=(40, 2))
    rows = slice(*batch)
    for A, start, slow, rkhs in ((K, c, slow_step, True), (Z, w, slow_feature_step, False)):
        G = A[:m] if not rkhs else None
        gram = torch.from_numpy(A[:m, :m] if rkhs else G @ G.T).to(dtype)
        P = preconditioner(gram, k, features=None if rkhs else torch.from_numpy(G).to(dtype), tau=tau)
        new = torch.from_numpy(start).to(dtype).clone()
        T, y = torch.from_numpy(A[rows]).to(dtype), torch.from_numpy(Y[rows]).to(dtype)
        kept = T.clone(), y.clone()
        g = eigenpro_step(new, T, y, 1.7, P, rows if rkhs else None)
        expected = slow(start, A, Y, range(*batch), 1.7, k, m, tau)
        np.testing.assert_allclose(new, expected, atol=tolerance * abs(expected).max())
        np.testing.assert_allclose(g, A[rows] @ start - Y[rows], atol=10 * tolerance)
        assert new.dtype == g.dtype == dtype
        assert torch.equal(T, kept[0]) and torch.equal(y, kept[1])  # only c is changed


@dtypes
@pytest.mark.parametrize("budget", [1, 1000, 2**23])
def test_step_on_half_precision(budget, dtype, tolerance):
    """Rows in float16 are as good as the same numbers in the dtype of c; wide, square and tall ones."""
    rng = np.random.default_rng(0)
    half = torch.from_numpy(K0).half()
    P = preconditioner(torch.from_numpy(K0[:30, :30]).to(dtype), 5)
    for n_rows in (7, 90):
        y = torch.from_numpy(rng.normal(size=(n_rows, 2))).to(dtype)
        c = torch.from_numpy(rng.normal(size=(90, 2))).to(dtype)
        a, b = c.clone(), c.clone()
        with memory_budget(budget):
            g = eigenpro_step(a, half[:n_rows], y, 0.5, P, slice(0, n_rows))
        h = eigenpro_step(b, half[:n_rows].to(dtype), y, 0.5, P, slice(0, n_rows))
        np.testing.assert_allclose(a, b, atol=tolerance)
        np.testing.assert_allclose(g, h, atol=tolerance)
        assert a.dtype == g.dtype == dtype and not torch.equal(a, c)
        for N in (3, 40):  # tall and wide
            Z = torch.from_numpy(RandomFourierFeatures(n_components=N, random_state=0).fit_transform(X0)).half()
            Q = preconditioner(Z.to(dtype) @ Z.to(dtype).T, 2, features=Z.to(dtype))
            a, b = c[:N].clone(), c[:N].clone()
            with memory_budget(budget):
                g = eigenpro_step(a, Z[:n_rows], y, 0.5, Q)
            h = eigenpro_step(b, Z[:n_rows].to(dtype), y, 0.5, Q)
            np.testing.assert_allclose(a, b, atol=tolerance)
            np.testing.assert_allclose(g, h, atol=tolerance)


@pytest.mark.parametrize("root", ["cholesky", "symmetric", "wide"])
def test_both_spaces_take_the_same_steps(root):
    """Features with A Aᵀ = K: the functions agree after each step, as f(x_i) = (K c)_i = (A w)_i."""
    K = torch.from_numpy(K0)
    S, V = torch.linalg.eigh(K)
    A = torch.linalg.cholesky(K) if root == "cholesky" else (V * S.sqrt()) @ V.T
    if root == "wide":
        A = torch.cat([0.6 * A, 0.8 * A], 1)
    P = preconditioner(K[:30, :30], 6, tau=0.7)
    Q = preconditioner(K[:30, :30], 6, features=A[:30], tau=0.7)
    assert (P.lam, P.beta) == pytest.approx((Q.lam, Q.beta)) and torch.equal(P.values, Q.values)
    np.testing.assert_allclose(P.deflate(K, K[:, :30]), Q.deflate(K, A), atol=1e-10)
    y = torch.from_numpy(np.c_[Y0, X0])
    c, w = torch.zeros(90, 4, dtype=torch.float64), torch.zeros(A.shape[1], 4, dtype=torch.float64)
    step = largest_step(20, 1.0, P.lam) / 3
    for epoch in range(3):
        for a in range(0, 90, 20):
            rows = slice(a, min(a + 20, 90))
            g = eigenpro_step(c, K[rows], y[rows], step, P, rows)
            h = eigenpro_step(w, A[rows], y[rows], step, Q)
            np.testing.assert_allclose(g, h, atol=1e-9)
            np.testing.assert_allclose(K @ c, A @ w, atol=1e-9)


# ------------------------------------------------------------------ exact solutions


SETTINGS = [
    dict(),
    dict(n_eigen=0),
    dict(n_eigen=1, n_subsample=2),
    dict(n_eigen=40, batch_size=90),
    dict(n_eigen=10**6, n_subsample=10**6),
    dict(batch_size=1),
    dict(batch_size=7),
    dict(batch_size=10**6),
    dict(n_subsample=30),
    dict(n_subsample=60, batch_size=50, n_eigen=9),
    dict(n_subsample=1),
]


@pytest.mark.parametrize("kw", SETTINGS, ids=str)
def test_fixed_point_is_the_interpolant(kw):
    """Neither directions, nor batches, nor subsample change what is converged to."""
    Y = np.c_[Y0, X0[:, 2], np.ones(90)]
    exact = scipy.linalg.solve(K0, Y, assume_a="pos")
    model = regressor(60 if kw.get("batch_size") == 1 else 300, **kw).fit(X0, Y)
    at_T = Laplacian(1.5)(T0, X0) @ exact
    np.testing.assert_allclose(model.predict(T0), at_T, atol=1e-6 * abs(at_T).max())
    np.testing.assert_allclose(model.predict(X0), Y, atol=1e-6 * abs(Y).max())
    assert model.history_["loss"][-1] < 1e-10 * model.history_["loss"][0]
    assert model.batch_size_ <= 90 and model.n_eigen_ <= 89


def test_interpolant_of_more_points():
    """500 rows, all automatic, against the linear system and scikit-learn."""
    rng = np.random.default_rng(2)
    X, T = rng.normal(size=(500, 4)), rng.normal(size=(100, 4))
    y = np.sin(X[:, 0] * X[:, 1]) + X[:, 2]
    model = EigenProRegressor("laplacian", 2.0, max_iter=300, random_state=0, **PLAIN).fit(X, y)
    k = Laplacian(2.0)
    exact = k(T, X) @ scipy.linalg.solve(k(X), y, assume_a="pos")
    np.testing.assert_allclose(model.predict(T), exact, atol=1e-6 * abs(exact).max())
    peer = KernelRidge(alpha=1e-12, kernel="precomputed").fit(k(X), y)
    np.testing.assert_allclose(model.predict(T), peer.predict(k(T, X)), atol=1e-6 * abs(exact).max())
    losses = np.array(model.history_["loss"])
    assert losses[100] < 1e-6 * losses[0] and model.n_eigen_ == 50


def test_float32_reaches_what_float32_allows():
    X, Y, T = X0.astype(np.float32), Y0.astype(np.float32), T0.astype(np.float32)
    exact = Laplacian(1.5)(T0, X0) @ scipy.linalg.solve(K0, Y0)
    for kw in (dict(), dict(batch_size=7), dict(n_eigen=0), dict(n_subsample=30, n_eigen=10)):
        p = regressor(150, **kw).fit(X, Y).predict(T)
        assert p.dtype == np.float32
        np.testing.assert_allclose(p, exact, atol=1e-3)


@pytest.mark.parametrize("kw", [dict(), dict(n_eigen=0), dict(n_eigen=30, batch_size=7), dict(n_subsample=45)], ids=str)
def test_features_more_than_rows_give_the_smallest_norm(kw):
    features = RandomFourierFeatures("laplacian", 1.5, 1000, random_state=0)
    Z, ZT = features.fit_transform(X0), features.transform(T0)
    Y = np.c_[Y0, X0[:, 2]]
    exact = ZT @ np.linalg.lstsq(Z, Y, rcond=None)[0]
    model = EigenProRegressor(feature_map=features, max_iter=400, random_state=0, **PLAIN, **kw).fit(X0, Y)
    np.testing.assert_allclose(model.predict(T0), exact, atol=1e-6 * abs(exact).max())
    # another way to write the same features
    other = FunctionTransformer(features.transform)
    general = EigenProRegressor(feature_map=other, max_iter=400, random_state=0, **PLAIN, **kw).fit(X0, Y)
    np.testing.assert_allclose(general.predict(T0), model.predict(T0), atol=1e-9)


@pytest.mark.parametrize("n_eigen", [6, 10, 19, 500])
def test_fewer_features_than_rows_give_least_squares(n_eigen):
    """With the full batch, where the iteration has no noise to converge to a ball only."""
    features = RandomFourierFeatures("gaussian", 0.7, 20, form="paired", random_state=0)
    Z = features.fit_transform(X0)
    w = np.linalg.lstsq(Z, Y0, rcond=None)[0]
    model = EigenProRegressor(feature_map=features, n_eigen=n_eigen, batch_size=90, max_iter=2000, random_state=0, **PLAIN)
    model.fit(X0, Y0)
    np.testing.assert_allclose(model.predict(T0), features.transform(T0) @ w, atol=1e-6)
    assert model.history_["loss"][-1] == pytest.approx(np.mean((Z @ w - Y0) ** 2), rel=1e-9)


def test_preconditioned_epochs_gain_more():
    """The point of it all: with the same batches, far fewer epochs than plain stochastic gradients."""
    loss = lambda n_eigen, batch: regressor(15, n_eigen=n_eigen, batch_size=batch).fit(X0, Y0).history_["loss"][-1]
    assert loss(30, 45) < 1e-2 * loss(0, 45)
    automatic = [regressor(1, n_eigen=k).fit(X0, Y0).batch_size_ for k in (0, 5, 30)]
    assert automatic[0] < automatic[1] < automatic[2]


def test_losses_are_those_before_each_step():
    """With one batch in an epoch: loss of the function after the epochs before; for the model zero at first."""
    for n_epochs in (1, 4):
        model = regressor(n_epochs, batch_size=90).fit(X0, Y0)
        assert model.n_iter_ == n_epochs == len(model.history_["loss"])
        assert model.history_["loss"][0] == pytest.approx(np.mean(Y0**2))
        assert model.history_["train_error"] == pytest.approx(model.history_["loss"])
    before = regressor(3, batch_size=90).fit(X0, Y0)
    assert model.history_["loss"][3] == pytest.approx(np.mean((before.predict(X0) - Y0) ** 2), rel=1e-9)
    assert all(second >= 0 for second in model.history_["seconds"])


def test_a_short_last_batch_takes_a_shorter_step():
    model = regressor(1, kernel="gaussian", bandwidth=1e-4, n_eigen=0, batch_size=4, step_size=0.3)
    np.testing.assert_allclose(model.fit(X0[:5], np.ones(5)).dual_coef_, 0.3 / 4)  # rows do not know of each other


# ------------------------------------------------------------------ caches


SPACES = {
    "kernel": dict(),
    "features": dict(feature_map=RandomFourierFeatures("laplacian", 1.5, 150, random_state=0)),
    "any features": dict(feature_map=FunctionTransformer(np.tanh)),
}


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("batch_size", [7, 30, 45, 90])
def test_caches_do_not_change_the_result(space, batch_size):
    """Nothing kept, everything, and from none to all of the rows; batches that do and do not divide n."""
    fit = lambda **kw: regressor(4, batch_size=batch_size, **SPACES[space], **kw).fit(X0, Y0, T0, T0[:, 0])
    full = fit(cache="full")
    columns = {"kernel": 90, "features": 150, "any features": 3}[space]
    assert full.cache_ == "full" and fit(cache=None).cache_ is None
    for kw in [dict(cache=None), dict(), dict(cache_size=0)] + [
            dict(cache=cache, cache_size=rows * columns * 8 / 2**20)
            for rows in (3, 20, 50, 75, 89, 91, 97, 109, 110) for cache in ("full", "auto")]:
        model = fit(**kw)
        scale = abs(full.predict(X0)).max()
        np.testing.assert_allclose(model.predict(X0), full.predict(X0), atol=1e-11 * scale, err_msg=str(kw))
        np.testing.assert_allclose(model.history_["loss"], full.history_["loss"], rtol=1e-9)
        np.testing.assert_allclose(model.history_["validation_error"], full.history_["validation_error"], rtol=1e-9)
        assert len({len(values) for values in model.history_.values()}) == 1
    assert fit(cache="full", cache_size=0).cache_ is None
    for rows in (20, 60, 99, 1000) if columns > 3 else ():
        half = fit(cache="half", cache_size=(batch_size * 8 + rows * 2) * columns / 2**20)
        assert half.cache_ in ("half", None)
        np.testing.assert_allclose(half.predict(X0), full.predict(X0), atol=0.02 * scale)


@pytest.mark.parametrize("cache", ["full", "half"])
def test_features_take_no_more_than_their_limit(cache, monkeypatch):
    """What is kept, and the batch that is not or that is about to be rounded, in each order of magnitude."""
    X, taken = torch.from_numpy(X0[:64]).float(), []

    def counted(shape, dtype, device):
        out = torch.empty(shape, dtype=dtype, device=device)
        taken.append(out.nbytes)
        return out

    monkeypatch.setattr(eigenpro_engine, "empty", counted)
    space = FeatureSpace(RandomFourierFeatures("gaussian", 1.0, 200, random_state=0).fit(X0), X)
    for limit in (13_000, 25_000, 37_000, 45_000, 58_000, 80_000):
        taken.clear()
        rows = Rows(space, X, batch=16, cache=cache, limit=limit)
        for a in (0, 16, 32, 48):
            rows[slice(a, a + 16)]
        assert sum(taken) <= limit


@pytest.mark.parametrize("budget", [1, 999, 5000])
def test_memory_budget_does_not_change_the_result(budget):
    for kw in (dict(), dict(cache=None), dict(cache="half"), SPACES["features"]):
        model = regressor(3, batch_size=25, **kw).fit(X0, Y0, T0, T0[:, 0])
        with memory_budget(budget):
            other = regressor(3, batch_size=25, **kw).fit(X0, Y0, T0, T0[:, 0])
            p = other.predict(T0)
        np.testing.assert_allclose(p, model.predict(T0), atol=1e-10)
        np.testing.assert_allclose(other.history_["loss"], model.history_["loss"], rtol=1e-9)


def test_half_precision_that_overflows():
    for dtype in (np.float32, np.float64):
        fit = lambda **kw: regressor(
            3, feature_map=FunctionTransformer(times_million), batch_size=20, **kw).fit(X0.astype(dtype), Y0)
        for kw in (dict(), dict(cache_size=0.02)):
            with pytest.warns(RuntimeWarning, match="too large for half precision"):
                model = fit(cache="half", **kw)
            assert model.cache_ == "full"
            np.testing.assert_allclose(
                model.predict(X0), fit(cache=None).predict(X0), atol=1e-10 if dtype == np.float64 else 1e-4)
            assert len(model.history_["loss"]) == model.n_iter_ == 3
        assert fit(cache="full").cache_ == "full"


def test_auto_halves_features_that_do_not_fit():
    fit = lambda dtype, size, **kw: regressor(2, batch_size=10, cache_size=size, **kw).fit(X0.astype(dtype), Y0).cache_
    features = SPACES["features"]
    assert fit(np.float32, 1, **features) == "full" and fit(np.float32, 0.06, **features) == "half"
    # float64 is asked for where digits matter, and a rounded Gram matrix may lose its positive eigenvalues
    assert fit(np.float64, 0.06, **features) == fit(np.float32, 0.02) == "full"
    assert fit(np.float32, 0) is None and fit(np.float32, 0.06, cache="half") == "half"


# ------------------------------------------------------------------ classes


def test_labels_of_each_kind():
    two = LABELS == "ant"
    for y, k in ((LABELS, 3), (two, 2), (two.astype(int), 2), (np.where(two, 2.0, -1.0), 2),
                 (np.where(two, "b", "a"), 2), (LABELS.astype(object), 3),
                 (np.digitize(Y0, [-0.2, 0.1, 0.4, 0.9, 2.0]), 6)):
        model = classifier(60).fit(X0, y)
        np.testing.assert_array_equal(model.classes_, np.unique(y))
        np.testing.assert_array_equal(model.predict(X0), y)  # the kernel is strictly positive definite
        assert model.predict(X0).dtype == model.classes_.dtype and model.score(X0, y) == 1
        values = model.decision_function(T0)
        assert values.shape == ((20,) if k == 2 else (20, k)) and len(model.classes_) == k
        best = (values > 0).astype(int) if k == 2 else values.argmax(1)
        np.testing.assert_array_equal(model.predict(T0), model.classes_[best])
        assert model.history_["train_error"][-1] == 0 <= model.history_["train_error"][0] <= 1
        for other in (list(y), pd.Series(y)):
            np.testing.assert_array_equal(classifier(60).fit(X0, other).predict(T0), model.predict(T0))
    labels = torch.from_numpy(two)
    np.testing.assert_array_equal(classifier().fit(X0, labels).predict(X0), two)


def test_classifier_is_the_regressor_of_its_targets():
    targets = (LABELS[:, None] == np.unique(LABELS)).astype(float)
    fitted, plain = classifier(5).fit(X0, LABELS), regressor(5).fit(X0, targets)
    np.testing.assert_array_equal(fitted.decision_function(T0), plain.predict(T0))
    two = LABELS == "bee"
    fitted, plain = classifier(5).fit(X0, two), regressor(5).fit(X0, np.where(two, 1.0, -1.0))
    np.testing.assert_array_equal(fitted.decision_function(T0), plain.predict(T0))
    assert fitted.history_["loss"] == plain.history_["loss"]


def test_validation_rows_of_the_classifier():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    order = np.random.default_rng(0).permutation(150)
    X, names = X[order], names[order]
    model = classifier(8).fit(X[:100], names[:100], X[100:], names[100:])
    assert len(model.history_["validation_error"]) == 8
    assert model.history_["validation_error"][-1] == pytest.approx(1 - model.score(X[100:], names[100:]), abs=1e-12)
    assert model.score(X[100:], names[100:]) > 0.9
    two = names == "setosa"
    model = classifier(8).fit(X[:100], two[:100], X[100:], two[100:])
    assert model.history_["validation_error"][-1] == 0


def test_labels_are_counted_as_wrong_with_the_intercept():
    """Before the first step that is all there is: the rarer label is wrong."""
    labels = np.arange(90) % 3 > 0
    model = classifier(1, fit_intercept=True, batch_size=90).fit(X0, labels)
    np.testing.assert_allclose(model.history_["train_error"], [1 / 3])


def test_digits():
    X, y = load_digits(return_X_y=True)
    model = EigenProClassifier("laplacian", max_iter=5, early_stopping=False, random_state=0).fit(X[:1200], y[:1200], X[1200:], y[1200:])
    assert model.score(X[1200:], y[1200:]) > 0.95
    assert model.history_["validation_error"][-1] == pytest.approx(1 - model.score(X[1200:], y[1200:]))
    features = RandomFourierFeatures(bandwidth="median", n_components=1000)
    model = EigenProClassifier(feature_map=features, max_iter=5, random_state=0).fit(X[:1200], y[:1200])
    assert model.score(X[1200:], y[1200:]) > 0.93


# ------------------------------------------------------------------ when to stop


@pytest.mark.parametrize("space", ["kernel", "features"])
def test_validation_error_is_that_of_the_epoch(space):
    for n_val in (1, 20):
        for epochs in (1, 3):
            model = regressor(epochs, batch_size=16, **SPACES[space]).fit(X0, Y0, T0[:n_val], T0[:n_val, 0])
            error = np.mean((model.predict(T0[:n_val]) - T0[:n_val, 0]) ** 2)
            assert model.history_["validation_error"][-1] == pytest.approx(error, rel=1e-9)
    two = regressor(3).fit(X0, np.c_[Y0, -Y0], T0, np.c_[T0[:, 0], T0[:, 1]])
    error = np.mean((two.predict(T0) - T0[:, :2]) ** 2)
    assert two.history_["validation_error"][-1] == pytest.approx(error, rel=1e-9)
    # rows to validate on do not change what is learned
    np.testing.assert_allclose(two.predict(T0), regressor(3).fit(X0, np.c_[Y0, -Y0]).predict(T0), atol=1e-11)


def test_early_stopping_keeps_the_best_epoch():
    rng = np.random.default_rng(0)
    noisy, clean = Y0 + rng.normal(size=90), T0[:, 1] ** 2 + np.sin(T0[:, 0])
    kw = dict(batch_size=16, step_size=1.0)
    model = regressor(200, early_stopping=True, n_iter_no_change=4, **kw).fit(X0, noisy, T0, clean)
    errors = model.history_["validation_error"]
    best = int(np.argmin(errors))
    assert 0 < best and model.n_iter_ == len(errors) == best + 5
    assert np.mean((model.predict(T0) - clean) ** 2) == pytest.approx(errors[best], rel=1e-9)
    there = regressor(best + 1, early_stopping=True, n_iter_no_change=100, **kw).fit(X0, noisy, T0, clean)
    np.testing.assert_allclose(model.predict(X0), there.predict(X0), atol=1e-10)
    patient = regressor(best + 3, early_stopping=True, n_iter_no_change=100, **kw).fit(X0, noisy, T0, clean)
    np.testing.assert_allclose(patient.predict(X0), model.predict(X0), atol=1e-10)
    assert patient.n_iter_ == best + 3


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.95])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_choice_is_that_of_its_parts(fraction, fit_intercept):
    """Parts held out in turn, each with the mean of the others; with all rows in a batch their order is of no matter."""
    noisy = Y0 + np.random.default_rng(0).normal(size=90)
    kw = dict(batch_size=90, step_size=2.0, n_eigen=0, fit_intercept=fit_intercept, bandwidth="median")
    model = regressor(30, early_stopping=True, validation_fraction=fraction, n_iter_no_change=4, **kw).fit(X0, noisy)
    held, curves = math.ceil(fraction * 90), []
    for j in range(90 // held):
        out = model._descent.order[j * held : (j + 1) * held]
        rest = np.setdiff1d(np.arange(90), out)
        part = regressor(30, **kw).fit(X0[rest], noisy[rest], X0[out], noisy[out])
        zero = noisy[rest].mean() if fit_intercept else 0.0
        curves.append([np.mean((noisy[out] - zero) ** 2), *part.history_["validation_error"]])
        assert part.history_["validation_loss"] == part.history_["validation_error"]
    curve = np.mean(curves, 0)
    found = model.validation_loss_
    np.testing.assert_allclose(found, curve[: len(found)], rtol=1e-9)
    assert model.n_iter_ == np.argmin(found) and len(found) == min(model.n_iter_ + 5, 31)
    plain = regressor(model.n_iter_, **kw).fit(X0, noisy)  # all rows, as many epochs
    np.testing.assert_allclose(model.predict(T0), plain.predict(T0), atol=1e-12)
    assert len(model.X_fit_) == 90


def iterates(descent, X, Y, epochs, begun=None, first=0):
    """The coefficients after each step, epoch by epoch, from the exact rows of K."""
    K, B, n = descent.space.kernel.gram(X, X), descent.batch_size, len(Y)
    c = torch.zeros_like(Y) if begun is None else begun.clone()
    for epoch in range(first, epochs):
        order = np.arange(-(-n // B))
        if epoch:
            order = np.random.default_rng([descent.seed, epoch]).permutation(len(order))
        seen = []
        for t in order:
            batch = slice(t * B, min((t + 1) * B, n))
            part = (batch.stop - batch.start) / B
            eigenpro_step(c, K[batch], Y[batch], part * descent.step * descent.factor, descent.P, batch)
            seen.append(c.clone())
        yield torch.stack(seen)


@pytest.mark.parametrize("validation", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_early_stopping_ends_with_the_mean_over_the_steps(validation, dtype):
    """Of the epoch that was best, which the validation loss is of; without early stopping it is the last step."""
    X, Y = X0[:81].astype(dtype), (Y0 + np.random.default_rng(0).normal(size=90))[:81].astype(dtype)
    rest = (X0[81:].astype(dtype), Y0[81:].astype(dtype)) if validation else ()
    kw = dict(kernel="laplacian", bandwidth=1.5, batch_size=20, n_eigen=5, random_state=0, max_iter=12)
    model = EigenProRegressor(**kw, n_iter_no_change=12).fit(X, Y, *rest)
    descent, tol = model._descent, dict(rtol=1e-9) if dtype == "float64" else dict(rtol=1e-2, atol=1e-4)
    T = torch.from_numpy(X[descent.order])
    U = torch.from_numpy((Y - model.intercept_).astype(dtype)[descent.order])[:, None]
    means = [seen.mean(0) for seen in iterates(descent, T, U, 12)]
    if validation:
        k = descent.space.kernel.gram(torch.from_numpy(rest[0]), T)
        losses = [float((k @ c + float(model.intercept_) - torch.from_numpy(rest[1])[:, None]).square().mean()) for c in means]
        np.testing.assert_allclose(model.history_["validation_loss"], losses, **tol)
        best = int(np.argmin(losses))
    else:
        best = model.n_iter_ - 1
    np.testing.assert_allclose(descent.result, means[best], **tol)
    last = EigenProRegressor(**kw | {"max_iter": 2}, early_stopping=False).fit(X, Y)
    *_, seen = iterates(last._descent, T, U, 2)
    np.testing.assert_allclose(last._descent.c, seen[-1], **tol)


def test_the_mean_over_the_steps_is_nearer_than_the_last():
    """With noise, on a kernel that suits: the last step is off by half as much again, for it shakes."""
    ratios = []
    for seed in range(4):
        X, y = make_friedman1(1500, 5, noise=1.0, random_state=seed)
        f = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
        kw = dict(kernel=Gaussian(np.array([1.0, 1.0, 1.5, 6.0, 12.0])), random_state=seed)
        model = EigenProRegressor(**kw).fit(X[:1000], y[:1000])
        kw |= dict(max_iter=model.n_iter_, early_stopping=False)
        models = [model, EigenProRegressor(**kw).fit(X[:1000], y[:1000])]
        mean, last = (np.sqrt(np.mean((m.predict(X[1000:]) - f[1000:]) ** 2)) for m in models)
        ratios.append(last / mean if model.step_factor_ == 1 else np.nan)
    assert np.nanmean(ratios) > 1.25


def test_mean_over_the_steps_is_for_early_stopping_alone():
    """Also where a fit goes on with another setting, or with pieces of data; the fit that came before stays as it was."""
    kw = dict(batch_size=20, warm_start=True)
    rest = X0[80:], Y0[80:]
    model = regressor(3, early_stopping=True, n_iter_no_change=9, **kw).fit(X0[:80], Y0[:80], *rest)
    begun, T = model._descent.c.clone(), torch.from_numpy(X0[:80][model._descent.order])
    U = torch.from_numpy((Y0[:80] - model.intercept_)[model._descent.order])[:, None]
    *_, seen = iterates(model._descent, T, U, 4, begun, first=3)
    for stop in (False, True):
        again = pickle.loads(pickle.dumps(model)).set_params(early_stopping=stop, max_iter=1).fit(X0[:80], Y0[:80], *rest)
        losses = again.history_["validation_loss"]
        assert losses[3] < min(losses[:3])
        np.testing.assert_allclose(again._descent.result, seen.mean(0) if stop else seen[-1], rtol=1e-9)
    np.testing.assert_array_equal(model._descent.c, begun)
    pieces = [regressor(early_stopping=stop, batch_size=20).partial_fit(X0[:50], Y0[:50]).partial_fit(X0[50:], Y0[50:])
              for stop in (False, True)]
    np.testing.assert_array_equal(pieces[0].predict(T0), pieces[1].predict(T0))


@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("stop", [False, True])
def test_warm_start_goes_on_from_the_last_step(momentum, stop):
    """Three epochs and three more are six, whatever predicts in between."""
    y = np.sin(2 * X0[:, 0])
    kw = dict(early_stopping=stop, momentum=momentum, batch_size=20, warm_start=True)
    two, one = regressor(3, **kw).fit(X0, y), regressor(6, **kw).fit(X0, y)
    assert two.n_iter_ == 3 and one.n_iter_ == 6
    two.fit(X0, y)
    np.testing.assert_array_equal(two.dual_coef_, one.dual_coef_)
    assert two.span_ == one.span_ and (one.span_ > 1) == momentum


@pytest.mark.parametrize("momentum", [False, True])
@pytest.mark.parametrize("validation", [False, True])
def test_checkpoint_has_the_mean_over_the_steps(momentum, validation, tmp_path):
    """A run that was ended, and then one that was at its end, go on to what an uninterrupted one finds."""
    rest = (X0[80:], Y0[80:]) if validation else ()
    noisy = Y0[:80] + np.random.default_rng(0).normal(size=80)
    kw = dict(batch_size=20, early_stopping=True, momentum=momentum, kernel="laplacian", bandwidth=1.5)
    whole = regressor(6, **kw).fit(X0[:80], noisy, *rest)
    assert whole.n_iter_ > 2
    model = regressor(6, **kw, checkpoint=tmp_path / "fit.npz")
    model.set_params(callback=lambda model, epoch: epoch.n_iter == 2).fit(X0[:80], noisy, *rest)
    assert model.n_iter_ == 2
    for _ in range(2):
        model.set_params(callback=None).fit(X0[:80], noisy, *rest)
        assert model.n_iter_ == whole.n_iter_
        np.testing.assert_array_equal(model.dual_coef_, whole.dual_coef_)
    longer = regressor(8, **kw).fit(X0[:80], noisy, *rest)
    np.testing.assert_array_equal(model.set_params(max_iter=8).fit(X0[:80], noisy, *rest).dual_coef_, longer.dual_coef_)


def test_mean_over_the_steps_is_what_a_callback_predicts_with():
    seen = []

    def look(model, epoch):
        seen.append([np.mean((model.predict(X0[60:]) - Y0[60:]) ** 2), epoch.record["validation_loss"], epoch.training_error(),
                     np.mean((model.predict(X0[:60]) - Y0[:60]) ** 2)])

    kw = dict(early_stopping=True, batch_size=10, n_iter_no_change=8, callback=look)
    regressor(8, **kw).fit(X0[:60], Y0[:60], X0[60:], Y0[60:])
    loss, record, error, training = np.transpose(seen)
    np.testing.assert_allclose(loss, record, rtol=1e-9)
    np.testing.assert_allclose(error, training, rtol=1e-9)


@pytest.mark.parametrize("n, d", [(50, 10), (100, 50), (300, 100)])
def test_noise_is_left_alone(n, d):
    """Nothing but noise: by default hardly worse than the mean of the targets."""
    ratios = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(n, d)), rng.normal(size=n) + 7
        model = EigenProRegressor(random_state=0).fit(X, y)
        p = model.predict(rng.normal(size=(1000, d)))
        ratios.append(1 + np.mean((p - 7) ** 2) - (y.mean() - 7) ** 2)  # for targets of variance one
        if model.n_iter_ == 0:
            np.testing.assert_allclose(p, y.mean(), rtol=1e-12)
    assert np.mean(ratios) < 1.05 and np.max(ratios) < 1.2


@pytest.mark.parametrize("momentum", [False, True])
def test_without_an_epoch_the_history_is_empty(momentum):
    """Its lists are there, and what goes on from the constant fills them."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 5)), rng.normal(size=300)
    model = EigenProRegressor(momentum=momentum, warm_start=True, random_state=0).fit(X, y)
    assert model.n_iter_ == 0 and model.history_ == {"loss": [], "train_error": [], "seconds": []}
    assert {len(values) for values in model.set_params(max_iter=2).fit(X, y).history_.values()} == {2}


def test_noisy_line_is_learned_as_a_line():
    """A linear function of 20 inputs, as much noise: near the best linear model, by shorter steps."""
    ratios = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, w, noise = rng.normal(size=(1300, 20)), rng.normal(size=20), rng.normal(size=1300)
        f = X @ w / np.linalg.norm(w)
        y = f + noise
        model = EigenProRegressor(random_state=0).fit(X[:300], y[:300])
        best = X[300:] @ np.linalg.lstsq(X[:300], y[:300], rcond=None)[0]
        ratios.append((1 + np.mean((model.predict(X[300:]) - f[300:]) ** 2)) / (1 + np.mean((best - f[300:]) ** 2)))
        assert model.step_factor_ < 1 and 1 <= model.n_eigen_ < 30
    assert np.mean(ratios) < 1.06


def test_labels_that_are_noise():
    rng = np.random.default_rng(0)
    for k in (2, 3):
        X, y = rng.normal(size=(200, 10)), (rng.random(200) < 0.3) * rng.integers(1, k, 200)
        model = EigenProClassifier(random_state=0).fit(X, y)
        assert np.mean(model.predict(rng.normal(size=(1000, 10))) == 0) > 0.97


def test_clean_functions_run_to_the_end():
    """Validation goes on falling, so that all epochs are run on all rows: what is found is the interpolation."""
    X = np.random.default_rng(0).uniform(size=(300, 2))
    y = np.sin(4 * X[:, 0]) + X[:, 1]
    model = EigenProRegressor(max_iter=20, random_state=0).fit(X, y)
    plain = EigenProRegressor(max_iter=20, early_stopping=False, random_state=0).fit(X, y)
    assert model.n_iter_ == plain.n_iter_ == 20 and len(plain.validation_loss_) == 0
    np.testing.assert_array_equal(model._descent.c, plain._descent.c)  # the last step; what predicts is the mean
    off = [np.sqrt(np.mean((m.predict(X) - y) ** 2)) for m in (model, plain)]
    assert off[0] < 1.2 * off[1] < 0.01


def test_one_row_has_nothing_to_be_validated_on():
    model = EigenProRegressor(random_state=0).fit(X0[:1], [3.0])
    np.testing.assert_allclose(model.predict(T0), 3.0)
    assert len(model.validation_loss_) == 0


@pytest.mark.parametrize("space", SPACES)
def test_intercept(space):
    """What is added to all targets is added to all predictions, and nothing else changes."""
    kw = dict(SPACES[space], fit_intercept=True)
    Y = np.c_[Y0, X0[:, 0]]
    a, b = regressor(3, **kw).fit(X0, Y), regressor(3, **kw).fit(X0, Y + [100.0, -5.0])
    np.testing.assert_allclose(a.intercept_, Y.mean(0), atol=1e-14)
    np.testing.assert_allclose(b.intercept_ - a.intercept_, [100, -5])
    np.testing.assert_allclose(b.predict(T0) - a.predict(T0), np.full((20, 2), [100.0, -5.0]), atol=1e-9)
    one = regressor(3, **kw).fit(X0, Y0)
    assert isinstance(one.intercept_, float) and regressor(3, **{**kw, "fit_intercept": False}).fit(X0, Y0).intercept_ == 0
    centred = regressor(3, **SPACES[space]).fit(X0, Y0 - Y0.mean())
    np.testing.assert_allclose(one.predict(T0), centred.predict(T0) + Y0.mean(), atol=1e-9)
    labels = classifier(3, **kw).fit(X0, LABELS)
    np.testing.assert_allclose(labels.intercept_, [np.mean(LABELS == name) for name in labels.classes_])
    wrong = classifier(1, batch_size=90, **kw).fit(X0, LABELS).history_["train_error"]  # before the step: the majority
    assert wrong[0] == pytest.approx(1 - labels.intercept_.max())
    # of rows that come in pieces it is the mean of the first ones, and stays
    parts = regressor(**kw).partial_fit(X0[:40], Y0[:40])
    assert parts.intercept_ == pytest.approx(Y0[:40].mean())
    assert parts.partial_fit(X0[40:], Y0[40:]).intercept_ == pytest.approx(Y0[:40].mean())


def test_zero_epochs_are_the_best_of_bad_ones():
    """Validation rows that contradict the others."""
    model = regressor(20, early_stopping=True, fit_intercept=True).fit(X0, Y0, X0, 2 * Y0.mean() - Y0)
    np.testing.assert_allclose(model.predict(T0), Y0.mean())


def test_choice_is_remembered_by_the_checkpoint(tmp_path, monkeypatch):
    path, noisy = tmp_path / "run", Y0 + np.random.default_rng(0).normal(size=90)
    whole = regressor(20, early_stopping=True, bandwidth="median").fit(X0, noisy)
    first = regressor(2, early_stopping=True, bandwidth="median", checkpoint=path).fit(X0, noisy)
    assert first.n_iter_ <= 2
    model = clone(first).set_params(max_iter=20).fit(X0, noisy)
    np.testing.assert_array_equal(model.predict(T0), whole.predict(T0))
    monkeypatch.setattr("rfteach.eigenpro_training.choose_epochs", None)  # nothing is chosen twice
    again = clone(model).fit(X0, noisy)
    np.testing.assert_array_equal(again.predict(T0), whole.predict(T0))
    np.testing.assert_array_equal(again.validation_loss_, whole.validation_loss_)


def test_tolerance():
    model = regressor(10**6, tol=0.5, batch_size=90, n_eigen=0).fit(X0, Y0)
    losses = np.array(model.history_["loss"])
    assert model.n_iter_ == len(losses) >= 2
    ratios = losses[1:] / losses[:-1]
    assert ratios[-1] >= 0.5 and (ratios[:-1] < 0.5).all()
    assert regressor(10**6, tol=1e-3, batch_size=90, n_eigen=0).fit(X0, Y0).n_iter_ > model.n_iter_
    with pytest.warns(ConvergenceWarning, match="falls by more than tol=0.001 in an epoch after max_iter=3 epochs"):
        regressor(3, tol=1e-3).fit(X0, Y0)
    with pytest.warns(ConvergenceWarning, match="tol=0.001"):
        classifier(2, tol=1e-3).fit(X0, LABELS)
    regressor(3, tol=0).fit(X0, Y0)  # warns of nothing


# ------------------------------------------------------------------ momentum


def momentum_by_definition(f, v, share, rate, span, step):
    """(8.17) on f and v = f + z, with the memory that solves (8.19) by bisection."""
    low, high = span, span + 1.0
    for _ in range(200):
        new = (low + high) / 2
        low, high = (new, high) if new**-2 > (1 - share / new) * span**-2 + share / new * rate else (low, new)
    alpha = share / new
    p = alpha * rate * new**2
    theta = alpha * (1 - p) / (1 - alpha * p)
    u = theta * v + (1 - theta) * f
    f = step(u)
    return f, (1 - p) * v + p * u - new * (u - f), new


@dtypes
@pytest.mark.parametrize("rkhs", [True, False])
@pytest.mark.parametrize("rate", [0.0, 0.03, 0.5])
def test_momentum_agrees_with_its_definition(rkhs, rate, dtype, tolerance):
    rng = np.random.default_rng(3)
    K = torch.from_numpy(K0[:24, :24]).to(dtype)
    A = K if rkhs else torch.from_numpy(rng.normal(size=(24, 30)) / 5).to(dtype)
    P = preconditioner(K[:9, :9], 4) if rkhs else preconditioner(A[:9] @ A[:9].T, 4, features=A[:9])
    y = torch.from_numpy(rng.normal(size=(24, 2))).to(dtype)
    c = torch.zeros(A.shape[1], 2, dtype=dtype)
    moving, f, v, span = Momentum(torch.zeros_like(c)), c.double().clone(), c.double().clone(), 1.0
    for _ in range(30):
        a = rng.integers(0, 20)
        rows = slice(int(a), int(a) + int(rng.integers(1, 5)))
        share = (rows.stop - rows.start) / 24
        place = rows if rkhs else None
        moving.ahead(c, share, rate)
        eigenpro_step(c, A[rows], y[rows], share, P, place, moving.z, moving.span)

        def plain(u):
            u, Q = u.clone(), replace(P, vectors=P.vectors.double(), weights=P.weights.double())
            eigenpro_step(u, A[rows].double(), y[rows].double(), share, Q, place)
            return u

        f, v, span = momentum_by_definition(f, v, share, rate, span, plain)
        assert moving.span == pytest.approx(span, rel=1e-9)
    np.testing.assert_allclose(c, f, rtol=0, atol=tolerance * float(f.abs().max()))
    np.testing.assert_allclose(c + moving.z, v, rtol=0, atol=10 * tolerance * float(v.abs().max()))


def test_memory_of_momentum():
    """From 1 by a half in an epoch, up to 1/√ρ; none where nothing is to be gained, or where it is not to grow."""
    for share in (1.0, 0.1, 0.003):
        moving, c = Momentum(torch.zeros(2, 1)), torch.zeros(2, 1)
        for _ in range(round(40 / share)):
            moving.ahead(c, share, 0.0)
        assert 21 <= moving.span < 22.5
        moving.ahead(c, share, 0.0, grow=False)
        before = moving.span
        moving.ahead(c, share, 0.0, grow=False)
        assert moving.span == before
        for rate, end in ((0.04, 5.0), (0.25, 2.0), (1.0, 1.0), (3.0, 1.0)):
            moving = Momentum(torch.zeros(2, 1))
            for _ in range(round(60 / share)):
                moving.ahead(c, share, rate)
            assert moving.span == pytest.approx(end, rel=1e-3) and bool((moving.z == 0).all())


def test_least_eigenvalue():
    assert preconditioner(torch.from_numpy(K0), 5).least == pytest.approx(np.linalg.eigvalsh(K0)[0], rel=0.05)
    assert preconditioner(torch.from_numpy(K0), 5).least >= np.linalg.eigvalsh(K0)[0] * (1 - 1e-9)
    twice = torch.from_numpy(K0[np.ix_(np.arange(90) // 2, np.arange(90) // 2)])
    assert preconditioner(twice, 5).least == 0 and preconditioner(torch.zeros(4, 4), 1).least == 0
    for unit in (1e-170, 1e200):
        scaled = preconditioner(unit * torch.from_numpy(K0), 5).least / unit
        assert scaled == pytest.approx(preconditioner(torch.from_numpy(K0), 5).least, rel=1e-9)


def test_momentum_needs_fewer_epochs():
    """Nearer to the interpolant than plain steps in three times as many epochs, or twice as many for a rough kernel."""
    X = np.random.default_rng(0).normal(size=(300, 6))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2]
    for kernel, epochs, plain_epochs in ((Gaussian(2.0), 60, 180), (Laplacian(1.5), 20, 40)):
        exact = scipy.linalg.solve(kernel(X), y)
        goal = kernel(T6, X) @ exact
        errors = []
        for e, momentum in ((epochs, True), (plain_epochs, False)):
            model = regressor(e, kernel=kernel, bandwidth="median", momentum=momentum).fit(X, y)
            errors.append(np.linalg.norm(model.predict(T6) - goal))
        assert errors[0] < errors[1]


def test_momentum_is_a_wish():
    assert regressor(5).fit(X0, Y0).span_ == 1 and regressor(5, momentum=True).fit(X0, Y0).span_ > 1
    for bad in ("auto", 1, None):
        with pytest.raises(TypeError, match="momentum must be True or False"):
            regressor(5, momentum=bad).fit(X0, Y0)


@pytest.mark.parametrize("batch_size", [4, 16, 60])
def test_momentum_on_labels_that_contradict(batch_size):
    """Each point twice, with 1 and with -1: no loss is new for long, and the cloud is hardly larger than with plain steps."""
    X, y = np.repeat(X0[:30], 2, 0), np.tile([1.0, -1.0], 30)
    losses = []
    for momentum in (False, True):
        model = regressor(150, batch_size=batch_size, momentum=momentum).fit(X, y)
        losses.append(np.mean(model.history_["loss"][50:]))
    assert losses[1] < 1.25 * losses[0] and max(model.history_["loss"]) < 2 * losses[0]


def test_momentum_is_taken_away():
    """After a loss of more than one and a half times the least, and after five epochs without a new least."""
    model = regressor(6, batch_size=16, momentum=True).fit(X0, Y0)
    for losses, kept in (([1, 0.5, 0.6], True), ([1, 0.5, 0.76], False), ([1, 0.5, *4 * [0.6]], True),
                         ([1, 0.5, *5 * [0.6]], False), ([1, 0.5, *5 * [0.6], 0.4], True)):
        descent = model._descent.copy()
        assert descent.momentum.z.abs().max() > 0
        descent.history["loss"] = losses[:-1]
        descent.note({"loss": losses[-1]})
        assert (descent.momentum.span > 1) == kept == bool(descent.momentum.z.abs().max() > 0)


@pytest.mark.parametrize("copies", [2, 4])
@pytest.mark.parametrize("model", [EigenProRegressor("laplacian", 1.0, random_state=0),
                                   CentersRegressor("laplacian", 1.0, centers=100, random_state=0)], ids=lambda m: type(m).__name__)
def test_copies_of_a_row_do_not_choose_interpolation(model, copies):
    """A copy among the rows of the fit would tell the noise of the one that is held out."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (400, 1))
    f, y = np.sin(2 * X[:, 0]), np.sin(2 * X[:, 0]) + rng.normal(size=400)
    once = np.mean((clone(model).fit(X, y).predict(X) - f) ** 2)
    model = clone(model).fit(np.repeat(X, copies, 0), np.repeat(y, copies))
    assert model.validation_loss_.min() > 0.7 and np.mean((model.predict(X) - f) ** 2) < once + 0.05


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("model", [EigenProRegressor(random_state=0), CentersRegressor(random_state=0)],
                         ids=lambda m: type(m).__name__)
def test_few_inputs_and_many_rows_are_learned_as_they_come(model, d):
    """With 160 directions of a spectrum that falls fast, all of them would be learned in a thousandth of an epoch's step."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4500, d))
    y = np.sin(2 * X[:, 0]) + X[:, -1] + 0.3 * rng.normal(size=4500)
    model = clone(model).fit(X[:4000], y[:4000])
    assert np.mean((model.predict(X[4000:]) - y[4000:]) ** 2) < 1.3 * 0.3**2  # of the noise alone


def test_as_many_directions_as_an_epoch_moves():
    """A quarter less, and again, while λ_{k+1} is below β / n at rows that the subsample has not seen, or 1e-5 of k(x, x)."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(400, 1)))
    kernel = Gaussian(1.0)
    K, unseen = kernel.gram(X[:200], X[:200]), (kernel.gram(X[200:], X[200:]), kernel.gram(X[200:], X[:200]))

    def moves(k, n):
        P = preconditioner(K, k)
        return n * P.lam >= P.calibrated(*unseen).beta and P.lam >= 1e-5

    for n in (400, 20, 10**12):
        P = preconditioner_for(preconditioner(K, 20), K, 20, unseen, n)
        k = len(P.values)
        tried = [20]
        while tried[-1] > k:
            tried.append(3 * len(preconditioner(K, tried[-1]).values) // 4)
        assert k == tried.pop() < 20 and (moves(k, n) or k == 1) and not any(moves(j, n) for j in tried)
        same = preconditioner(K, k).calibrated(*unseen)
        torch.testing.assert_close(P.weights, same.weights)
        assert (P.lam, P.beta) == (same.lam, same.beta)
    rough = Laplacian(0.5)
    K, unseen = rough.gram(X[:200], X[:200]), (rough.gram(X[200:], X[200:]), rough.gram(X[200:], X[:200]))
    assert len(preconditioner_for(preconditioner(K, 20), K, 20, unseen, 400).values) == 20  # a spectrum that falls slowly


def test_a_few_noisy_rows_are_not_learned_at_any_price():
    """With as many directions as an epoch moves, the last ones would have noise, hundreds of times as much between the rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    y = np.sin(2 * X[:, 0]) + X[:, -1] * np.cos(X[:, 1]) + 0.3 * rng.normal(size=4000)
    for model in (EigenProRegressor(random_state=0), CentersRegressor(random_state=0)):
        assert np.mean((model.fit(X[:2000], y[:2000]).predict(X[2000:]) - y[2000:]) ** 2) < 1.15 * 0.3**2


@pytest.mark.parametrize("d", [3, 6])
def test_float32_flattens_what_float64_does(d):
    """No fewer directions but for rounding, and λ and β are those that float64 finds for the same directions."""
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(4000, d)).astype(np.float32))
    settings, kernel = EigenProRegressor(random_state=0), Gaussian(0.8 * d**0.5)
    P, Q = (plan(KernelSpace(kernel, Z), Z, settings)[0] for Z in (X, X.double()))
    assert 0.8 * len(Q.values) <= len(P.values) <= 1.25 * len(Q.values)
    exact = replace(P, vectors=P.vectors.double(), weights=P.weights.double()).calibrated(
        *(kernel.gram(*pair) for pair in ((X[2000:].double(),) * 2, (X[2000:].double(), X[:2000].double()))))
    assert P.lam == pytest.approx(exact.lam, rel=0.01) and P.beta == pytest.approx(exact.beta, rel=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_directions_above_rounding_are_kept(dtype):
    """All eigenvalues but those that √m roundings of the largest one reach, as float64 has them for the same matrix."""
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(900, 2)))
    K = Gaussian(1.0).gram(X, X).to(dtype)
    S = torch.linalg.eigvalsh(K.double()).flip(0)
    above = int((S > 30 * torch.finfo(dtype).eps * S[0]).sum())
    assert abs(len(preconditioner(K, 180).values) - min(180, above)) <= 3


def test_directions_grow_with_the_rows():
    for n, m, k in [(5, 5, 0), (900, 900, 90), (1900, 1900, 160), (20_000, 2000, 160), (30_000, 3000, 240),
                    (50_000, 5000, 400), (10**6, 6000, 480)]:
        assert (subsample_size(n), most_directions(m)) == (m, k)
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(24_000, 5)).astype(np.float32))
    settings = EigenProRegressor(Laplacian(0.7), random_state=0)
    P = plan(open_space(settings, X, X[:, :1], 0), X, settings)[0]
    assert P.vectors.shape == (2400, 192)


@pytest.mark.parametrize("features", [False, True])
def test_directions_that_are_there_are_not_sought_again(features, monkeypatch):
    """A part of the step takes fewer of the same directions: what a plan from the start gives, and nothing is decomposed."""
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(600, 2)))
    given = {"feature_map": RandomFourierFeatures(bandwidth=1.0, n_components=300, random_state=0)} if features else {}
    settings = EigenProRegressor(Laplacian(1.0), random_state=0, **given)
    space, calls = open_space(settings, X, X[:, :1], 0), []
    fresh, made = plan(space, X, settings, 0.25), plan(space, X, settings)[0]
    one = lambda K, k, **kw: leading_eigenpairs(K, k, **kw) if k == 1 else calls.append(k)  # λ is sought at unseen rows
    monkeypatch.setattr(preconditioning, "leading_eigenpairs", one)
    again = plan(space, X, settings, 0.25, made)
    assert not calls and len(again[0].values) == int(0.25 * 60) < len(made.values) and again[1:] == fresh[1:]
    for name in ("values", "vectors", "weights", "lam", "beta", "least"):
        torch.testing.assert_close(*(torch.as_tensor(getattr(P, name)) for P in (again[0], fresh[0])))
    monkeypatch.undo()
    assert clone(settings).fit(X, X[:, 0])._descent.P.found is None  # a fitted model does not keep them


def test_a_map_that_overwrites_its_rows():
    X, y = make_friedman1(200, random_state=0)
    X, before = X * [1, 100, 0.01, *7 * [1]] + 5, None
    for copy in (True, False):
        map_ = make_pipeline(StandardScaler(copy=copy), RandomFourierFeatures(bandwidth=5.0, n_components=300, random_state=0))
        kept = X.copy()
        model = EigenProRegressor(feature_map=map_, random_state=0).fit(X, y)
        stream = EigenProRegressor(feature_map=map_, random_state=0).partial_fit(X, y)
        np.testing.assert_array_equal(X, kept)
        found = model.predict(X), stream.predict(X)
        np.testing.assert_allclose(found, found if before is None else before, rtol=1e-9)
        before = found


def test_places_of_rows_are_kept_for_centres_only():
    model = EigenProRegressor(feature_map=RandomFourierFeatures(n_components=20, random_state=0), random_state=0)
    for _ in range(3):
        model.partial_fit(X0, Y0)
    assert len(model._descent.order) == len(X0)
    assert len(regressor(1).partial_fit(X0, Y0).partial_fit(X0, Y0)._descent.order) == 2 * len(X0)


@pytest.mark.filterwarnings("ignore:the loss still falls")
def test_other_rows_have_losses_of_their_own():
    """``tol`` does not compare the first epoch on other rows with the last one on those before."""
    features = RandomFourierFeatures(n_components=30, random_state=0)
    model = regressor(5, feature_map=features, warm_start=True, tol=1e-9).fit(X0, Y0)
    model.fit(X0, 100 * Y0[::-1])
    assert len(model.history_["loss"]) > 6


@pytest.mark.parametrize("choice", [[], {"limit": 3, "last": 3, "shorter": 1.0, "losses": [], "left": None, "more": 1}])
def test_a_checkpoint_with_a_strange_choice_is_refused(tmp_path, choice):
    file = tmp_path / "fit.npz"
    regressor(2, checkpoint=file).fit(X0, Y0)
    arrays = dict(np.load(file))
    facts = json.loads(str(arrays.pop("facts"))) | {"choice": choice}
    np.savez(file, facts=np.array(json.dumps(facts)), **arrays)
    with pytest.raises(ValueError, match=r"checkpoint=.*fit.npz' is not a checkpoint of EigenPro"):
        regressor(2, checkpoint=file).fit(X0, Y0)


# ------------------------------------------------------------------ going on


@pytest.mark.parametrize("space", SPACES)
def test_warm_start_goes_on_exactly(space):
    whole = regressor(7, batch_size=16, **SPACES[space]).fit(X0, Y0)
    parts = regressor(3, batch_size=16, warm_start=True, **SPACES[space]).fit(X0, Y0)
    p = parts.predict(X0)
    assert not np.array_equal(p, whole.predict(X0))
    parts.set_params(max_iter=4).fit(X0, Y0)
    np.testing.assert_array_equal(parts.predict(X0), whole.predict(X0))
    assert parts.n_iter_ == 7 and same_losses(parts.history_, whole.history_)
    # and without, it starts afresh
    parts.set_params(max_iter=3, warm_start=False).fit(X0, Y0)
    np.testing.assert_array_equal(parts.predict(X0), p)
    assert parts.n_iter_ == 3
    labels = classifier(2, warm_start=True, **SPACES[space]).fit(X0, LABELS).fit(X0, LABELS)
    np.testing.assert_array_equal(labels.predict(T0), classifier(4, **SPACES[space]).fit(X0, LABELS).predict(T0))


def test_warm_start_with_other_rows_and_outputs():
    model = regressor(3, warm_start=True).fit(X0, Y0)
    p = model.predict(T0)
    for rows in (X0 + 1, X0[:50], X0[::-1], X0.astype(np.float32)):
        with pytest.raises(ValueError, match="warm_start=True goes on with the rows X of the last fit"):
            model.fit(rows, Y0[: len(rows)])
    with pytest.raises(ValueError, match="warm_start=True goes on with 1 outputs, but y has 2"):
        model.fit(X0, np.c_[Y0, Y0])
    np.testing.assert_array_equal(model.predict(T0).ravel(), p)
    # other targets are the way to follow what drifts
    follow = model.set_params(max_iter=200).fit(X0, X0[:, 0])
    np.testing.assert_allclose(follow.predict(X0), X0[:, 0], atol=1e-6)
    labels = classifier(3, warm_start=True).fit(X0, LABELS)
    with pytest.raises(ValueError, match="y holds labels that are not in classes: dog"):
        labels.fit(X0, np.where(LABELS == "ant", "dog", LABELS))
    # in the space of features other rows may come
    features = regressor(3, warm_start=True, **SPACES["features"]).fit(X0, Y0)
    features.fit(X0[:50], Y0[:50]).fit(T0, T0[:, 0])
    assert features.n_iter_ == 9 and np.isfinite(features.predict(X0)).all()


def test_partial_fit_adds_centres():
    """In the RKHS; one pass over everything is about as good as one epoch, and passes over more data help."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 3))
    y = np.sin(X[:, 0]) + X[:, 1] ** 2
    T, z = X[500:], y[500:]
    model = regressor(n_subsample=100)
    errors = []
    for part in np.split(np.arange(500), 5):
        assert model.partial_fit(X[part], y[part]) is model
        errors.append(np.mean((model.predict(T) - z) ** 2))
    np.testing.assert_array_equal(model.X_fit_, X[:500])
    assert model.n_iter_ == 5 and len({len(v) for v in model.history_.values()}) == 1
    assert errors[-1] < 0.5 * errors[0]
    epoch = regressor(1, n_subsample=100).fit(X[:500], y[:500])
    once = regressor(n_subsample=100).partial_fit(X[:500], y[:500])
    for other in (epoch, once):
        assert np.mean((other.predict(T) - z) ** 2) < 2 * errors[-1]
        assert errors[-1] < 3 * np.mean((other.predict(T) - z) ** 2)
    np.testing.assert_array_equal(once.X_fit_, X[:500])
    # rows one by one, and after fit
    for i in range(500, 505):
        epoch.partial_fit(X[i : i + 1], y[i : i + 1])
    np.testing.assert_array_equal(epoch.X_fit_, X[:505])
    assert np.isfinite(epoch.predict(T)).all()


def test_partial_fit_first_pass_is_an_epoch():
    """Nothing else came before: the same rows, steps and preconditioner, up to the order of the rows."""
    model = regressor(batch_size=90).partial_fit(X0, Y0)
    np.testing.assert_allclose(model.history_["loss"], [np.mean(Y0**2)])
    exact = regressor(1, batch_size=90, n_subsample=90).fit(X0, Y0)
    full = regressor(batch_size=90, n_subsample=90).partial_fit(X0, Y0)
    np.testing.assert_allclose(full.predict(T0), exact.predict(T0), atol=1e-10)


def test_partial_fit_of_classes():
    model = classifier()
    with pytest.raises(ValueError, match="classes must be given in the first call of partial_fit"):
        model.partial_fit(X0, LABELS)
    model.partial_fit(X0[:40], LABELS[:40], classes=["cat", "bee", "ant"])
    model.partial_fit(X0[40:], LABELS[40:])
    assert list(model.classes_) == ["ant", "bee", "cat"] and model.score(X0, LABELS) > 0.5
    only = LABELS[40:] == "bee"
    model.partial_fit(X0[40:][only], LABELS[40:][only])
    with pytest.raises(ValueError, match="labels that are not in classes: dog"):
        model.partial_fit(X0[:2], ["ant", "dog"])
    assert model.decision_function(T0).shape == (20, 3)


@pytest.mark.parametrize("size", [1, 100])
@pytest.mark.parametrize("space", ["kernel", "features"])
def test_pieces_that_the_model_before_is_far_from(space, size):
    """Targets that are the intercept are no measure of what was learned from others: no step is too large for that."""
    X = np.random.default_rng(0).normal(size=(6 * size, 4))
    model = EigenProRegressor(random_state=0, **SPACES[space])
    for i, rows in enumerate(np.split(X, 6)):
        model.partial_fit(rows, np.sin(rows[:, 0]) if i % 2 else np.full(size, 0.1))
    assert model.n_iter_ == 6 and model.step_factor_ == 1


def test_a_piece_of_one_batch_with_an_automatic_step_that_is_too_large(monkeypatch):
    """Its loss before the step does not show it."""
    monkeypatch.setattr(eigenpro_engine, "largest_step", lambda *args: 1e3)
    with pytest.warns(ConvergenceWarning, match="starts again with half the step"):
        model = regressor(batch_size=90).partial_fit(X0, Y0)
    assert model.step_factor_ < 1 and np.mean((model.predict(X0) - Y0) ** 2) < 4 * np.mean(Y0**2)


def test_partial_fit_refuses_what_does_not_fit():
    model = regressor().partial_fit(X0, Y0)
    with pytest.raises(ValueError, match=r"y must have the shape \(n,\), .* got \(90, 2\)"):
        model.partial_fit(X0, np.c_[Y0, Y0])
    with pytest.raises(ValueError, match="2 features, but EigenProRegressor is expecting 3"):
        model.partial_fit(X0[:, :2], Y0)
    with pytest.raises(ValueError, match="n_eigen must be"):
        regressor(n_eigen=-1).partial_fit(X0, Y0)


# ------------------------------------------------------------------ checkpoints


CHECKPOINTED = {
    "kernel, all kept": dict(PLAIN, kernel="laplacian", bandwidth=1.5, batch_size=16, cache="full"),
    "kernel, nothing kept": dict(PLAIN, kernel="laplacian", bandwidth=1.5, batch_size=16, cache=None),
    "features": dict(PLAIN, feature_map=RandomFourierFeatures("laplacian", 1.5, 70), batch_size=16),
}
CHILD = textwrap.dedent("""
    import os, pickle, sys, time
    import numpy as np
    import torch
    from rfteach.eigenpro import EigenProRegressor
    from rfteach.features import RandomFourierFeatures

    torch.set_num_threads(1)
    with open(sys.argv[1], "rb") as file:
        X, y, models = pickle.load(file)
    for model in models:  # one process for each
        if not (pid := os.fork()):
            np.random.seed(0)
            model.fit(X, y)
            os._exit(1)  # never reached
        print(pid, flush=True)
    time.sleep(600)
""")


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """Checkpoints of processes that were killed while they trained."""
    folder = tmp_path_factory.mktemp("checkpoints")
    paths = {name: folder / f"{i}.npz" for i, name in enumerate(CHECKPOINTED)}
    models = [EigenProRegressor(max_iter=10**6, checkpoint=paths[name], **kw) for name, kw in CHECKPOINTED.items()]
    (folder / "job").write_bytes(pickle.dumps((X0, np.c_[Y0, X0[:, 0]], models)))
    (folder / "child.py").write_text(CHILD)
    child = subprocess.Popen([sys.executable, folder / "child.py", folder / "job"], stdout=subprocess.PIPE, text=True)
    pids = []
    try:
        pids = [int(child.stdout.readline()) for _ in models]
        for path, pid in zip(paths.values(), pids):
            seen, deadline = set(), time.monotonic() + 60
            while len(seen) < 4 and time.monotonic() < deadline:
                if path.exists():
                    seen.add(path.stat().st_mtime_ns)
                time.sleep(0.002)
            assert len(seen) == 4, "training did not get going"
            os.kill(pid, signal.SIGKILL)
    finally:
        child.kill()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        child.communicate()
    return paths


@pytest.mark.parametrize("name", CHECKPOINTED)
def test_training_goes_on_after_a_kill(killed, name):
    """What a killed process left gives, in this one, what a run without interruption gives."""
    path, Y = killed[name], np.c_[Y0, X0[:, 0]]
    with pytest.raises(ValueError, match="epochs, more than max_iter=1") as caught:
        EigenProRegressor(max_iter=1, checkpoint=path, **CHECKPOINTED[name]).fit(X0, Y)
    reached = int(re.search(r"has (\d+) epochs", str(caught.value))[1])
    assert reached >= 3
    np.random.seed(99)  # what random_state=None has drawn is in the file
    model = EigenProRegressor(max_iter=reached + 5, checkpoint=path, **CHECKPOINTED[name]).fit(X0, Y)
    np.random.seed(0)
    whole = EigenProRegressor(max_iter=reached + 5, **CHECKPOINTED[name]).fit(X0, Y)
    assert model.n_iter_ == whole.n_iter_ == reached + 5
    np.testing.assert_allclose(model.predict(X0), whole.predict(X0), rtol=0, atol=1e-12 * abs(Y).max())
    np.testing.assert_allclose(model.history_["loss"], whole.history_["loss"], rtol=1e-9, atol=1e-28)


@pytest.mark.parametrize("name", CHECKPOINTED)
@pytest.mark.parametrize("early_stopping", [False, True])
def test_checkpoint_goes_on_exactly(tmp_path, name, early_stopping):
    """In one process to the last bit; a finished one returns at once; more epochs go on."""
    path = tmp_path / "run"
    kw = dict(CHECKPOINTED[name], random_state=5, early_stopping=early_stopping, n_iter_no_change=50)
    if "feature_map" in kw:
        kw["feature_map"] = RandomFourierFeatures("laplacian", 1.5, 70)
    for max_iter in (3, 7):
        model = EigenProRegressor(max_iter=max_iter, checkpoint=str(path), **kw).fit(X0, Y0)
        whole = EigenProRegressor(max_iter=max_iter, **kw).fit(X0, Y0)
        np.testing.assert_array_equal(model.predict(T0), whole.predict(T0))
        assert model.n_iter_ == whole.n_iter_ and same_losses(model.history_, whole.history_)
        assert early_stopping or model.n_iter_ == max_iter
    written = path.stat().st_mtime_ns
    again = EigenProRegressor(max_iter=7, checkpoint=path, tol=0.0, verbose=False, **kw).fit(X0, Y0)
    np.testing.assert_array_equal(again.predict(T0), whole.predict(T0))
    assert path.stat().st_mtime_ns == written and again.history_ == model.history_
    assert os.listdir(tmp_path) == ["run"]


def test_checkpoint_of_a_classifier(tmp_path):
    path = tmp_path / "run.npz"
    classifier(2, checkpoint=path).fit(X0, LABELS)
    model = classifier(5, checkpoint=path).fit(X0, LABELS)
    whole = classifier(5).fit(X0, LABELS)
    np.testing.assert_array_equal(model.decision_function(T0), whole.decision_function(T0))
    np.testing.assert_array_equal(model.predict(T0), whole.predict(T0))
    assert same_losses(model.history_, whole.history_)


def test_checkpoint_with_early_stop(tmp_path):
    """The best epoch and how long ago it was are in the file, too."""
    noisy = Y0 + np.random.default_rng(0).normal(size=90)
    kw = dict(early_stopping=True, n_iter_no_change=4, batch_size=16)
    whole = regressor(200, **kw).fit(X0, noisy, T0, T0[:, 0])
    for stop in range(1, whole.n_iter_ + 1, 2):
        path = tmp_path / f"{stop}.npz"
        regressor(stop, checkpoint=path, **kw).fit(X0, noisy, T0, T0[:, 0])
        model = regressor(200, checkpoint=path, **kw).fit(X0, noisy, T0, T0[:, 0])
        np.testing.assert_array_equal(model.predict(T0), whole.predict(T0))
        assert model.n_iter_ == whole.n_iter_


def test_a_checkpoint_knows_that_the_step_was_halved(tmp_path, monkeypatch):
    monkeypatch.setattr(eigenpro_engine, "largest_step", lambda *args: 1e3)
    with pytest.warns(ConvergenceWarning, match="starts again with half the step"):
        first = regressor(2, checkpoint=tmp_path / "run").fit(X0, Y0)
    again = regressor(3, checkpoint=tmp_path / "run").fit(X0, Y0)  # warns of nothing
    assert again.n_iter_ == 3 and again.step_factor_ == first.step_factor_ < 1


@pytest.mark.parametrize(
    "change",
    [
        dict(bandwidth=1.6),
        dict(kernel="gaussian"),
        dict(kernel=Laplacian(1.5), bandwidth="median"),
        dict(n_eigen=3),
        dict(n_subsample=50),
        dict(batch_size=5),
        dict(step_size=0.5),
        dict(random_state=1),
        dict(early_stopping=True),
        dict(dtype="float32"),
        dict(feature_map=RandomFourierFeatures(random_state=0)),
    ],
    ids=str,
)
def test_checkpoint_of_other_parameters(tmp_path, change):
    path = tmp_path / "run.npz"
    regressor(2, checkpoint=path).fit(X0, Y0)
    content = path.read_bytes()
    with pytest.raises(ValueError, match="checkpoint='.*run.npz' belongs to other data or parameters"):
        regressor(2, checkpoint=path, **change).fit(X0, Y0)
    assert path.read_bytes() == content


def test_checkpoint_of_other_data(tmp_path):
    path = tmp_path / "run.npz"
    regressor(2, checkpoint=path).fit(X0, Y0)
    moved = X0.copy()
    moved[77, 2] += 1e-15
    for data in ((moved, Y0), (X0, -Y0), (X0[:-1], Y0[:-1]), (X0[::-1], Y0), (X0, np.c_[Y0, Y0]),
                 (X0, Y0, T0, T0[:, 0]), (X0.astype(np.float32), Y0)):
        with pytest.raises(ValueError, match="checkpoint='.*run.npz' belongs to other data or parameters"):
            regressor(2, checkpoint=path).fit(*data)
    regressor(2, checkpoint=path).fit(X0.tolist(), Y0.tolist())


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80\x04N.", "other arrays"])
def test_file_that_is_not_a_checkpoint(tmp_path, content):
    path = tmp_path / "run.npz"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.savez(path, a=np.ones(3))
    with pytest.raises(ValueError, match="checkpoint='.*run.npz' is not a checkpoint of EigenPro"):
        regressor(2, checkpoint=path).fit(X0, Y0)
    assert os.listdir(tmp_path) == ["run.npz"]


# ------------------------------------------------------------------ callbacks and stopping rules


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("cache", ["full", None])
def test_callback_sees_each_epoch(space, cache):
    """The model as it is after the epoch, what the history has of it, and the error on the training rows."""
    seen = []

    def look(model, epoch):
        p = model.predict(X0)
        assert epoch.n_iter == model.n_iter_ == len(seen) + 1 and epoch.kept == (cache == "full")
        assert epoch.record == {name: values[-1] for name, values in model.history_.items()}
        assert epoch.training_error() == pytest.approx(np.mean((p - Y0) ** 2), rel=1e-6)
        seen.append(p)

    model = regressor(3, batch_size=16, cache=cache, callback=look, **SPACES[space]).fit(X0, Y0)
    plain = regressor(3, batch_size=16, cache=cache, **SPACES[space]).fit(X0, Y0)
    np.testing.assert_array_equal(model.predict(X0), plain.predict(X0))
    np.testing.assert_array_equal(seen[-1], plain.predict(X0))
    assert len(seen) == 3 and model.seconds_of_setup_ > 0


def test_callback_ends_training(tmp_path):
    model = regressor(20, callback=lambda model, epoch: epoch.n_iter == 4, tol=1e-9).fit(X0, Y0)  # warns of nothing
    np.testing.assert_array_equal(model.predict(T0), regressor(4).fit(X0, Y0).predict(T0))
    assert model.n_iter_ == 4
    labels = classifier(20, callback=lambda model, epoch: model.score(X0, LABELS) > 0.6).fit(X0, LABELS)
    assert labels.score(X0, LABELS) > 0.6

    def note(model, epoch):
        model.history_.setdefault("after", []).append([epoch.n_iter, epoch.training_error()])

    # not while the number of epochs is being chosen; what it adds is kept, and two callbacks may share a file
    chosen = regressor(6, early_stopping=True, callback=note).fit(X0, Y0)
    assert len(chosen.history_["after"]) == chosen.n_iter_
    path = tmp_path / "run"
    regressor(2, callback=note, checkpoint=path).fit(X0, Y0)
    model = regressor(5, callback=lambda *given: note(*given), checkpoint=path).fit(X0, Y0)
    assert [n for n, _ in model.history_["after"]] == [1, 2, 3, 4, 5]


def test_stopping_rules_by_their_definition():
    rng = np.random.default_rng(0)
    for losses in ([1.0], [1.0, 1.0], *(list(rng.integers(1, 6, 8) / 4) for _ in range(50))):
        for patience in (1, 2, 5):
            won = [loss < 0.999 * min(losses[:-patience]) for loss in losses[-patience:] if len(losses) > patience]
            assert stalled(losses, patience) == (len(won) == patience and not any(won))
        for tol in (0.1, 0.5):
            assert flat(losses, tol) == (len(losses) > 1 and losses[-1] >= (1 - tol) * losses[-2])
    slow, fast = 0.9999 ** np.arange(30), 0.9997 ** np.arange(30)  # five epochs win .0005 and .0015
    assert stalled(list(slow), 5) and not stalled(list(fast), 5) and not stalled([1.0, 0.0], 1) and stalled([1.0, 0.0, 0.0], 1)


@pytest.mark.parametrize("space", ["kernel", "features"])
@pytest.mark.parametrize("n_val", [0, 20])
def test_rows_are_those_of_the_space(space, n_val):
    """In any order, with and without rows to validate on, whatever is kept."""
    X, X_val = torch.from_numpy(X0), torch.from_numpy(T0[:n_val]) if n_val else None
    features = SPACES["features"].get("feature_map")
    here = KernelSpace(Laplacian(1.5), X) if space == "kernel" else FeatureSpace(clone(features).fit(X0), X)
    both = np.r_[X0, T0[:n_val]]
    exact = Laplacian(1.5)(both, X0) if space == "kernel" else clone(features).fit(X0).transform(both)
    for held in (0, 16, 50, 200):
        rows = Rows(here, X, X_val, batch=16, cache="full", limit=held * 8 * (here.n_columns + 96))
        for a in np.random.default_rng(held).permutation(np.arange(0, 90, 16)):
            np.testing.assert_allclose(rows[slice(a, min(a + 16, 90))], exact[a : min(a + 16, 90)], atol=1e-12)
        if n_val:
            np.testing.assert_allclose(rows[slice(90, 106)], exact[90:106], atol=1e-12)
    c = torch.from_numpy(np.random.default_rng(1).normal(size=(here.n_columns, 2)))
    np.testing.assert_allclose(here.values(torch.from_numpy(both), c), exact @ c.numpy(), atol=1e-10)


def test_warnings_name_the_line_that_called(monkeypatch):
    with pytest.warns(ConvergenceWarning) as caught:
        regressor(3, tol=1e-3).fit(X0, Y0)
    with pytest.warns(RuntimeWarning) as more:
        regressor(3, feature_map=FunctionTransformer(times_million), cache="half").fit(X0, Y0)
    monkeypatch.setattr("rfteach.eigenpro_engine.largest_step", lambda *given: 50 * largest_step(*given))
    with pytest.warns(ConvergenceWarning, match="it starts again with half the step") as last:
        long = regressor(3).fit(X0, Y0)
    assert long.step_factor_ < 0.1 and long.history_["loss"][-1] < long.history_["loss"][0]
    with pytest.warns(ConvergenceWarning) as top:
        top_eigensystem(psd(150, 150, decay=0.97), 5, method="randomized", tol=1e-9, max_iter=2)
    for warning in (caught[0], more[0], last[0], top[0]):
        assert warning.filename == __file__, warning.message


# ------------------------------------------------------------------ contract


@pytest.mark.parametrize(
    "estimator",
    [
        EigenProRegressor(),
        EigenProClassifier(),
        EigenProRegressor("laplacian", n_eigen=3, batch_size=20, n_subsample=20, cache=None, **PLAIN),
        EigenProRegressor(feature_map=RandomFourierFeatures(bandwidth="median", n_components=300), **PLAIN),
        EigenProClassifier(feature_map=RandomFourierFeatures(bandwidth="median", n_components=300), cache=None, **PLAIN),
        EigenProClassifier("matern32", early_stopping=False, dtype="float64"),
    ],
)
def test_scikit_learns_contract(estimator):
    results = check_estimator(estimator, on_skip=None)
    assert len(results) > 40
    assert {r["status"] for r in results} == {"passed"}, [r for r in results if r["status"] != "passed"]


@pytest.mark.parametrize("space", SPACES)
def test_clone_and_pickle(space):
    model = regressor(3, **SPACES[space]).fit(X0, Y0)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(T0), model.predict(T0))
    np.testing.assert_array_equal(clone(model).fit(X0, Y0).predict(T0), model.predict(T0))
    # the copy goes on where the model would
    for m in (model, copy):
        m.set_params(warm_start=True, max_iter=2).fit(X0, Y0)
    np.testing.assert_array_equal(copy.predict(T0), model.predict(T0))
    labels = classifier(3, **SPACES[space]).fit(X0, LABELS)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(labels)).predict(T0), labels.predict(T0))


def test_grid_search_and_pipeline():
    X, y = make_friedman1(200, random_state=0)
    grid = {"kernel__bandwidth": [0.001, 1.0], "n_eigen": [0, 20]}
    search = GridSearchCV(EigenProRegressor(Laplacian(), random_state=0), grid, cv=3).fit(X, y)
    assert search.best_params_["kernel__bandwidth"] == 1.0
    assert search.best_score_ > 0.6
    pipe = make_pipeline(StandardScaler(), EigenProRegressor("laplacian", random_state=0)).fit(100 * X + 7, y)
    assert pipe.score(100 * X + 7, y) > 0.95
    labels = make_pipeline(StandardScaler(), EigenProClassifier(random_state=0)).fit(X, y > y.mean())
    assert labels.score(X, y > y.mean()) > 0.9


def test_kinds_and_devices(device):
    expected = regressor(5).fit(X0, Y0).predict(T0)
    for dtype, tolerance in ((torch.float64, 1e-8), (torch.float32, 1e-3)):
        X, y, T = (torch.from_numpy(A).to(device, dtype) for A in (X0, Y0, T0))
        for kw in (dict(), SPACES["features"]):
            model = regressor(5, **kw).fit(X, y)
            p = model.predict(T)
            assert isinstance(p, torch.Tensor) and p.dtype == dtype and p.device.type == device and p.shape == (20,)
            np.testing.assert_allclose(p.cpu(), regressor(5, **kw).fit(X0, Y0).predict(T0), atol=tolerance)
            assert isinstance(model.predict(T0), np.ndarray)
        values = classifier(5).fit(X, LABELS).decision_function(T)
        assert isinstance(values, torch.Tensor) and values.dtype == dtype and values.shape == (20, 3)
    moved = regressor(5, device=device).fit(X0, Y0).predict(T0)
    assert isinstance(moved, np.ndarray)
    np.testing.assert_allclose(moved, expected, atol=1e-8)
    half = torch.from_numpy(X0).half()
    assert regressor(2).fit(half, torch.from_numpy(Y0)).predict(half).dtype == torch.float32
    grads = torch.from_numpy(X0).requires_grad_()
    model = regressor(2).fit(grads, torch.from_numpy(Y0))  # which detaches
    assert model.predict(grads).requires_grad and not model.predict(grads.detach()).requires_grad
    for X in (X0.tolist(), np.asfortranarray(X0), X0[::-1][::-1]):
        np.testing.assert_allclose(regressor(5).fit(X, Y0.tolist()).predict(T0), expected, atol=1e-10)
    one = regressor(5).fit(X0, Y0[:, None]).predict(T0)
    np.testing.assert_array_equal(one, expected[:, None])
    whole = regressor(3).fit(np.round(X0).astype(int), np.round(Y0).astype(int))
    assert whole.predict(np.round(T0).astype(int)).dtype == np.float64


def test_frames_with_names():
    frame, T = pd.DataFrame(X0, columns=list("abc"), index=np.arange(5, 95)), pd.DataFrame(T0, columns=list("abc"))
    model = regressor(3).fit(frame, pd.Series(Y0), T, pd.Series(T0[:, 0]))
    assert list(model.feature_names_in_) == ["a", "b", "c"] and model.n_features_in_ == 3
    p = model.predict(T)
    assert isinstance(p, np.ndarray)
    np.testing.assert_array_equal(p, regressor(3).fit(X0, Y0).predict(T0))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(T[["b", "a", "c"]])
    labels = classifier(3).fit(frame, pd.Series(LABELS))
    assert labels.score(frame, LABELS) > 0.8


def test_dtypes():
    """float32 stays, ``dtype`` decides the arithmetic, and what comes out has the dtype of what is asked for."""
    X32, y32 = X0.astype(np.float32), Y0.astype(np.float32)
    for kw in (dict(), SPACES["features"], SPACES["any features"]):
        single, double = regressor(5, **kw).fit(X32, y32), regressor(5, **kw).fit(X0, Y0)
        assert single.predict(X32).dtype == np.float32 and double.predict(X0).dtype == np.float64
        assert single.eigenvalues_.dtype == np.float32 and double.eigenvalues_.dtype == np.float64
        forced = regressor(5, dtype="float64", **kw).fit(X32, y32)
        assert forced.predict(X32).dtype == np.float32 and forced.eigenvalues_.dtype == np.float64
        np.testing.assert_array_equal(
            forced.predict(X32), regressor(5, **kw).fit(X32.astype(float), y32).predict(X32.astype(float)).astype("f"))
        low = regressor(5, dtype="float32", **kw).fit(X0, Y0)
        assert low.eigenvalues_.dtype == np.float32 and low.predict(X0).dtype == np.float64
        np.testing.assert_allclose(low.predict(X0), double.predict(X0), atol=1e-2)
        for dtype in (torch.float64, np.dtype("float64"), np.float64):
            assert regressor(1, dtype=dtype, **kw).fit(X32, y32).eigenvalues_.dtype == np.float64


def test_seeds():
    fit = lambda seed, **kw: regressor(2, random_state=seed, batch_size=9, **kw).fit(X0, Y0).predict(T0)
    features = dict(feature_map=RandomFourierFeatures(n_components=40))  # gets its seed from the estimator
    for kw in (dict(), features):
        np.testing.assert_array_equal(fit(3, **kw), fit(3, **kw))
        assert not np.array_equal(fit(3, **kw), fit(4, **kw))
        np.testing.assert_array_equal(fit(np.random.default_rng(3), **kw), fit(3, **kw))
        rng = np.random.RandomState(0)
        assert not np.array_equal(fit(rng, **kw), fit(rng, **kw))
        np.random.seed(0)
        first = fit(None, **kw)
        assert not np.array_equal(fit(None, **kw), first)
        np.random.seed(0)
        np.testing.assert_array_equal(fit(None, **kw), first)
    given = RandomFourierFeatures(n_components=40, random_state=7)
    a, b = (regressor(1, random_state=seed, feature_map=given).fit(X0, Y0) for seed in (0, 1))
    np.testing.assert_array_equal(a.feature_map_.frequencies_, b.feature_map_.frequencies_)
    assert features["feature_map"].random_state is None and not hasattr(given, "frequencies_")


def test_inputs_are_left_alone():
    for kw in SPACES.values():
        X, Y = X0.copy(), np.c_[Y0, Y0]
        X.flags.writeable = Y.flags.writeable = False
        regressor(2, **kw).fit(X, Y, X, Y).predict(X)
        T = torch.from_numpy(X0.copy())
        regressor(2, **kw).fit(T, T)
        assert np.array_equal(T, X0)


def test_kernels_by_name_and_by_object():
    for name, kernel in (("laplacian", Laplacian(2.0)), ("gaussian", Gaussian(2.0)), ("matern32", Matern(1.5, 2.0)),
                         ("cauchy", Cauchy(2.0))):
        a, b = (regressor(3, kernel=k, bandwidth=w).fit(X0, Y0) for k, w in ((name, 2.0), (kernel, "median")))
        c = regressor(3, kernel=kernel, bandwidth=None).fit(X0, Y0)
        assert a.kernel_.bandwidth == b.kernel_.bandwidth == 2.0
        np.testing.assert_array_equal(a.predict(T0), b.predict(T0))
        np.testing.assert_array_equal(a.predict(T0), c.predict(T0))
    median = regressor(3, bandwidth="median").fit(X0, Y0)
    assert median.kernel_.bandwidth == pytest.approx(np.median(pdist(X0)), rel=1e-9)
    assert EigenProRegressor(random_state=0).fit(X0, Y0).kernel_.bandwidth == median.kernel_.bandwidth
    vector = regressor(3, bandwidth=[1.0, 2.0, 3.0]).fit(X0, Y0)
    np.testing.assert_allclose(
        vector.predict(T0), regressor(3, bandwidth=1.0).fit(X0 / [1, 2, 3], Y0).predict(T0 / [1, 2, 3]), atol=1e-9)


def test_fitted_attributes():
    model = regressor(2, n_eigen=7, n_subsample=50, batch_size=11).fit(X0, Y0)
    assert (model.n_eigen_, model.batch_size_, model.n_iter_, model.n_features_in_) == (7, 11, 2, 3)
    assert model.eigenvalues_.shape == (7,) and (np.diff(model.eigenvalues_) <= 0).all()
    np.testing.assert_array_equal(model.X_fit_, X0)
    everything = regressor(2, n_eigen=7).fit(X0, Y0)
    np.testing.assert_allclose(everything.eigenvalues_, scipy.linalg.eigvalsh(K0)[::-1][:7] / 90, rtol=1e-9)
    given = regressor(2, step_size=0.25).fit(X0, Y0)
    assert given.step_size_ == 0.25
    assert not hasattr(regressor(), "X_fit_") and not hasattr(regressor(), "n_eigen_")
    assert 0 < everything.lam_ <= everything.beta_ <= 1
    assert everything.batch_size_ == critical_batch_size(everything.beta_, everything.lam_) // 2
    for B in (1, 20, 90):
        plain = regressor(1, batch_size=B).fit(X0, Y0)
        assert plain.step_size_ == largest_step(B, plain.beta_, plain.lam_) / 2
    assert everything.lam_ == pytest.approx(scipy.linalg.eigvalsh(K0)[::-1][7] / 90, rel=1e-9)
    features = regressor(2, **SPACES["features"]).fit(X0, Y0)
    assert features.feature_map_.frequencies_.shape == (150, 3)


@pytest.mark.parametrize("Y", [Y0, np.c_[Y0, X0]], ids=["one output", "four"])
def test_coefficients_are_those_of_the_predictions(Y):
    """In the order of the rows that came, with and without batches, held-out rows and rows that came later."""
    model = regressor(3, batch_size=16).fit(X0, Y)
    assert model.dual_coef_.shape == Y.shape and model.X_fit_.shape == X0.shape
    np.testing.assert_allclose(Laplacian(1.5)(T0, X0) @ model.dual_coef_, model.predict(T0), atol=1e-12)
    stopped = regressor(3, early_stopping=True).fit(X0, Y)
    np.testing.assert_allclose(
        Laplacian(1.5)(T0, stopped.X_fit_) @ stopped.dual_coef_, stopped.predict(T0), atol=1e-12)
    parts = regressor(batch_size=16).partial_fit(X0[:40], Y[:40]).partial_fit(X0[40:], Y[40:])
    np.testing.assert_allclose(Laplacian(1.5)(T0, X0) @ parts.dual_coef_, parts.predict(T0), atol=1e-12)
    features = regressor(3, **SPACES["features"]).fit(X0, Y)
    assert features.coef_.shape == ((150,) if Y.ndim == 1 else (4, 150))
    np.testing.assert_allclose(
        features.feature_map_.transform(T0) @ features.coef_.T, features.predict(T0), atol=1e-12)
    for fitted, name in ((model, "coef_"), (features, "dual_coef_"), (features, "X_fit_")):
        with pytest.raises(AttributeError, match="belong to the RKHS|coef_ to a feature map"):
            getattr(fitted, name)


def test_verbose_shows_a_bar(capsys):
    regressor(3, verbose=True).fit(X0, Y0, T0, T0[:, 0])
    shown = capsys.readouterr()
    assert "3/3" in shown.err and "validation_error" in shown.err and not shown.out
    regressor(3).fit(X0, Y0)
    assert capsys.readouterr() == ("", "")


# ------------------------------------------------------------------ steps that are too large


@pytest.mark.parametrize("kw", [dict(step_size=1e3), dict(step_size=1e3, batch_size=4), dict(step_size=1e12),
                                dict(step_size=1e3, feature_map=RandomFourierFeatures(random_state=0))], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_step_that_is_too_large(kw, dtype):
    X = X0.astype(dtype)
    kw = {"batch_size": 30, **kw}
    message = rf"diverges with step_size=\S+ and batches of {kw['batch_size']}; the .*step .*is about (\S+)$"
    with pytest.raises(ValueError, match=message) as caught:
        regressor(300, **kw).fit(X, Y0)
    bound = float(str(caught.value).split()[-1])
    kw["step_size"] = 0.5 * bound
    model = regressor(300, **kw).fit(X, Y0)
    assert np.isfinite(model.predict(T0.astype(dtype))).all()
    assert model.history_["loss"][-1] < 0.1 * model.history_["loss"][0]
    with pytest.raises(ValueError, match="step_size"):
        classifier(300, **{**kw, "step_size": 1e3}).fit(X, LABELS)


@pytest.mark.parametrize("content", [b"something else", None], ids=["another file", "of other data"])
def test_warm_start_leaves_files_of_others(tmp_path, content):
    path = tmp_path / "run.npz"
    path.write_bytes(content) if content else regressor(1, checkpoint=path).fit(X0, Y0 + 1)
    kept, model = path.read_bytes(), regressor(2).fit(X0, Y0)
    with pytest.raises(ValueError, match="checkpoint='.*run.npz' (is not a checkpoint|belongs to other data)"):
        model.set_params(warm_start=True, checkpoint=path).fit(X0, Y0)
    assert path.read_bytes() == kept and model.n_iter_ == 2
    path.unlink()
    model.fit(X0, Y0).fit(X0, Y0)  # its own file may stay
    assert model.n_iter_ == 6


def test_warm_start_that_diverges_goes_back_to_the_earlier_fit():
    """At first within four times the loss of the start, but not of the earlier fit's epochs: the error ends below."""
    model = regressor(20, warm_start=True, batch_size=10).fit(X0, Y0)
    before = np.square(model.predict(X0) - Y0).mean()
    model._descent.step *= 30
    with pytest.warns(ConvergenceWarning, match="starts again with half the step"):
        model.set_params(max_iter=16).fit(X0, Y0)
    afresh = regressor(8, batch_size=10).fit(X0, Y0)  # about as many epochs as are left after the last restart
    assert np.square(model.predict(X0) - Y0).mean() < before < np.square(afresh.predict(X0) - Y0).mean() / 100


def test_a_piece_of_one_batch_with_a_step_that_is_too_large():
    with pytest.raises(ValueError, match="diverges with step_size"):
        regressor(step_size=1e6, batch_size=len(X0)).partial_fit(X0, Y0)


def test_no_step_is_halved_for_ever():
    descent = SimpleNamespace(P=None, batch_size=1, given=False, step=1.0, factor=1.5e-6)
    with pytest.raises(ValueError, match="diverges with every step"):
        slow_down(descent)


def test_automatic_step_survives_a_subsample_that_knows_nothing():
    """The subsample sees one cluster; rows of another have a far larger λ than it could know."""
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(200, 2)), 1e-3 * rng.normal(size=(200, 2))]
    for m in (1, 2, 5, 20):
        for seed in range(3):
            model = regressor(5, n_subsample=m, random_state=seed)
            model.fit(X, np.sin(X[:, 0]))
            assert np.isfinite(model.predict(X)).all()
            assert model.history_["loss"][-1] < model.history_["loss"][0]


@pytest.mark.parametrize("estimator", [EigenProRegressor, CentersRegressor])
def test_a_direction_that_grows_slowly_is_noticed(estimator, monkeypatch):
    """By a tenth in a step, from a thousandth of the targets: in 60 epochs the loss never comes near that of the start."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    s, V = np.linalg.eigh(Gaussian(1.0)(X, X))
    y = V[:, -2] * 8 + V[:, -1] * 8e-3
    for module in (eigenpro_engine, centers):
        monkeypatch.setattr(module, "largest_step", lambda B, beta, lam: 2 * 2.1 * 60 / s[-1])
    given = dict(centers=X) if estimator is CentersRegressor else {}
    model = estimator(Gaussian(1.0), n_eigen=0, batch_size=60, max_iter=60, fit_intercept=False, early_stopping=False,
                      random_state=0, **given)
    with pytest.warns(ConvergenceWarning, match="starts again with half the step"):
        model.fit(X, y)
    assert model.step_factor_ == 0.5 and max(model.history_["loss"]) < 1.1 * np.mean(y**2)
    assert np.mean((model.predict(X) - y) ** 2) < 1e-3 * np.mean(y**2)


def test_a_loss_that_rises_by_its_definition():
    assert not risen(10.0, [], 1.0, torch.float64) and not risen(10.0, [1.0, 1.0], 1.0, torch.float64)
    assert risen(4.1, [1.0, 1.0, 1.0], 1.0, torch.float64) and not risen(3.9, [1.0, 1.0, 1.0], 1.0, torch.float64)
    assert not risen(4.1, [9.0, 1.0, 9.0, 1.0, 9.0], 1.0, torch.float64)  # once by luck
    assert risen(2.1, [9.0, 0.5, 0.5, 0.5, 9.0], 1.0, torch.float64) and risen(np.nan, [1.0] * 3, 1.0, torch.float64)
    assert risen(1e-8, [1e-9] * 3, 1.0, torch.float64) and not risen(1e-8, [1e-9] * 3, 1.0, torch.float32)


# ------------------------------------------------------------------ degenerate data, errors

RNG = np.random.default_rng(7)
DEGENERATE = {
    "one row": np.array([[1.0, 2.0]]),
    "two rows": np.array([[1.0, 2.0], [0.0, -1.0]]),
    "two equal rows": np.array([[1.0, 2.0], [1.0, 2.0]]),
    "one column": RNG.normal(size=(19, 1)),
    "constant": np.full((9, 2), 3.0),
    "zero": np.zeros((9, 2)),
    "constant column": np.c_[RNG.normal(size=19), np.full(19, 5.0)],
    "duplicates": np.repeat(RNG.normal(size=(6, 2)), 3, axis=0),
    "collinear": np.outer(np.arange(9.0), [1.0, 2.0, -1.0]),
    "close pair": np.array([[0.0, 1.0], [1e-300, 1.0], [5.0, 1.0], [7.0, 2.0]]),
    "outlier": np.r_[RNG.normal(size=(8, 2)), [[1e6, 0.0]]],
    "huge": 1e100 * RNG.normal(size=(9, 2)),
    "tiny": 1e-100 * RNG.normal(size=(9, 2)),
    "wide": RNG.normal(size=(4, 30)),
}
FORMS = [
    dict(),
    dict(n_eigen=50, n_subsample=100),  # more than there are
    dict(n_eigen=50, n_subsample=3),
    dict(n_eigen=0, batch_size=1),
    dict(n_subsample=1, batch_size=2, cache=None),
    dict(batch_size=100, cache="half"),
    dict(kernel="gaussian"),
]


@pytest.mark.filterwarnings("ignore:an epoch diverged")  # equal rows with targets that contradict each other
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_data(name):
    """Finite whatever the targets; those that equal rows agree on are learned."""
    X = DEGENERATE[name]
    equal = np.unique(X, axis=0, return_inverse=True)[1].ravel().astype(float)
    if name == "close pair":
        equal[:2] = 0
    for kw in FORMS:
        kw = {"bandwidth": "median", **kw}
        for y in (equal, np.arange(len(X)) - 1.0, 0 * equal, np.ones(len(X)), 1e100 * equal, 1e-100 * equal):
            model = regressor(25, **kw).fit(X, y)
            p = model.predict(X)
            assert np.isfinite(p).all() and np.isfinite(model.history_["loss"]).all()
            assert np.isfinite(model.predict(X[:1] + 1)).all() and np.isfinite(model.dual_coef_).all()
            if not y.any():
                assert not p.any() and set(model.history_["loss"]) == {0.0}
            elif y is equal:
                assert np.mean((p - y) ** 2) < 0.1 * np.mean(y**2)
                if kw.get("n_subsample") == 100:
                    np.testing.assert_allclose(p, y, atol=1e-3 * abs(y).max())
        if len(X) > 1:
            labels = classifier(5, **kw).fit(X, np.arange(len(X)) % 2)
            assert np.isfinite(labels.decision_function(X)).all()
            model = regressor(5, **kw, early_stopping=True).fit(X, equal)
            assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e3, 1e15])
def test_scale_of_the_inputs_does_not_matter(scale):
    for dtype, tolerance in ((np.float64, 1e-9), (np.float32, 1e-3)):
        X = X0.astype(dtype)
        for bandwidth in ("median", 2.0):
            p = regressor(5, bandwidth=bandwidth).fit(X, Y0).predict(X)
            Z = (X * scale).astype(dtype)
            q = regressor(5, bandwidth=bandwidth if bandwidth == "median" else 2.0 * scale).fit(Z, Y0).predict(Z)
            np.testing.assert_allclose(q, p, atol=tolerance)


@pytest.mark.parametrize(
    "dtype, scales, tolerance", [(np.float64, [1e-100, 1e100], 1e-9), (np.float32, [1e-20, 1e30], 1e-3)])
def test_scale_of_the_targets_does_not_matter(dtype, scales, tolerance):
    X, y = X0.astype(dtype), Y0.astype(dtype)
    for kw in (dict(), SPACES["features"]):
        p = regressor(5, **kw).fit(X, y).predict(X)
        for scale in scales:
            q = regressor(5, **kw).fit(X, y * dtype(scale)).predict(X)
            assert q.dtype == dtype
            np.testing.assert_allclose(q / dtype(scale), p, atol=tolerance)


@pytest.mark.parametrize("scale", [1e-100, 1e-3, 1e3, 1e100])
def test_scale_of_the_features_does_not_matter(scale):
    """A linear model of the inputs, whatever the units of the features."""
    y = X0 @ [1.0, -2.0, 0.5]
    model = regressor(400, feature_map=FunctionTransformer(times_one), batch_size=90).fit(X0 * scale, y)
    np.testing.assert_allclose(model.predict(X0 * scale), y, atol=1e-6)


def test_a_map_that_makes_another_number_of_rows_is_refused():
    """One row for many would be one row many times."""
    mean = FunctionTransformer(lambda X: X.mean(0, keepdims=True))
    with pytest.raises(ValueError, match=r"feature_map must make an array of shape .* rows, got \(1, "):
        regressor(5, feature_map=mean).fit(X0, Y0)
    model = regressor(5, feature_map=FunctionTransformer(lambda X: X if len(X) > 5 else X[:1])).fit(X0, Y0)
    with pytest.raises(ValueError, match=r"feature_map must make an array of shape .* of 3 rows, got \(1, "):
        model.predict(X0[:3])


def test_features_that_are_degenerate():
    for map_ in (FunctionTransformer(times_zero), FunctionTransformer(np.ones_like),
                 RandomFourierFeatures(n_components=1, random_state=0)):
        for X in (X0, X0[:1], X0[:2], X0[:, :1]):
            model = regressor(5, feature_map=map_).fit(X, np.ones(len(X)))
            p = model.predict(X)
            assert np.isfinite(p).all()
            if map_.__class__ is FunctionTransformer and map_.func is times_zero:
                assert not p.any()
    constant = regressor(80, feature_map=FunctionTransformer(np.ones_like), batch_size=90, step_size=1 / 3).fit(X0, Y0)
    np.testing.assert_allclose(constant.predict(X0), Y0.mean(), atol=1e-9)

    # a map that writes into what it is given, and one that returns a sparse matrix
    class Square(FunctionTransformer):
        def transform(self, X):
            X *= X
            return X

    model = regressor(3, feature_map=Square()).fit(X0, Y0)
    plain = regressor(3, feature_map=FunctionTransformer(np.square)).fit(X0, Y0)
    np.testing.assert_array_equal(model.predict(X0), plain.predict(X0))
    sparse = regressor(3, feature_map=FunctionTransformer(sp.csr_matrix)).fit(X0, Y0)
    plain = regressor(3, feature_map=FunctionTransformer(times_one)).fit(X0, Y0)
    np.testing.assert_array_equal(sparse.predict(X0), plain.predict(X0))


K1 = torch.eye(3, dtype=torch.float64)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: top_eigensystem(np.ones((2, 3)), 1), ValueError, r"K must be square, got shape \(2, 3\)"),
        (lambda: top_eigensystem([[1.0, 2.0], [0.0, 1.0]], 1), ValueError, "K must be symmetric, got .* differ by 2"),
        (lambda: top_eigensystem(K1, 0), ValueError, r"k must be an integer in \[1, 3\], got 0"),
        (lambda: top_eigensystem(K1, 4), ValueError, r"k must be an integer in \[1, 3\], got 4"),
        (lambda: top_eigensystem(K1, 1.5), TypeError, "k must be an integer"),
        (lambda: top_eigensystem(K1, 1, method="arpack"), ValueError, "method must be 'auto', .* got 'arpack'"),
        (lambda: top_eigensystem(K1 * np.nan, 1), ValueError, "K contains NaN"),
        (lambda: top_eigensystem([1.0], 1), ValueError, "K: Expected 2D"),
        (lambda: preconditioner(K1, -1), ValueError, "n_eigen must be an integer of at least 0, got -1"),
        (lambda: preconditioner(K1, 1.5), TypeError, "n_eigen must be an integer of at least 0, got 1.5"),
        (lambda: preconditioner(K1, 1, tau=0), ValueError, r"tau must be a number in \(0, 1\], got 0"),
        (lambda: preconditioner(K1, 1, tau=1.1), ValueError, r"tau must be a number in \(0, 1\], got 1.1"),
        (lambda: preconditioner(K1, 1, tau=math.nan), ValueError, "tau must be a number"),
        (lambda: preconditioner(K1, 1, method="x"), ValueError, "method must be"),
        (lambda: preconditioner(K1, 1, features=K1[:2]), ValueError, "K and features must have as many rows, got 3 and 2"),
        (lambda: preconditioner(K1[:2], 1), ValueError, "K must be square"),
        (lambda: classifier().fit(X0, np.ones(90)), ValueError, "needs at least 2 classes, got 1 class"),
        (lambda: classifier().fit(X0, LABELS, T0, ["dog"] * 20), ValueError, "labels that are not in classes: dog"),
        (lambda: classifier().fit(X0, Y0), ValueError, "Unknown label type"),
        (lambda: classifier().fit(X0, LABELS[:5]), ValueError, "X and y must have as many rows, got 90 and 5"),
        (lambda: classifier().fit(X0, None), ValueError, "requires y to be passed"),
        (lambda: classifier().predict(X0), NotFittedError, "not fitted yet"),
        (lambda: regressor().predict(X0), NotFittedError, "not fitted yet"),
        (lambda: regressor().fit(X0, None), ValueError, "requires y to be passed"),
        (lambda: regressor().fit(X0, Y0[:5]), ValueError, "X and y must have as many rows, got 90 and 5"),
        (lambda: regressor().fit(X0, Y0 * np.nan), ValueError, "y contains NaN"),
        (lambda: regressor().fit([[1.0], [np.inf]], [1.0, 2.0]), ValueError, "^X contains NaN or infinity .0 NaN, 1 infinite"),
        (lambda: regressor().fit([[1.0], [np.nan]], [1.0, 2.0]), ValueError, "X contains NaN"),
        (lambda: regressor().fit(X0[:0], Y0[:0]), ValueError, "Found array with 0 sample"),
        (lambda: regressor().fit(sp.csr_matrix(X0), Y0), TypeError, "[Ss]parse"),
        (lambda: regressor().fit(X0, Y0, T0[:, :2], Y0[:20]), ValueError, "2 features, but EigenProRegressor.*3 feat"),
        (lambda: regressor().fit(X0, Y0, T0, Y0), ValueError, "^X_val and y_val must have as many rows, got 20 and 90"),
        (lambda: regressor().fit(X0, Y0).predict(X0[:, :2]), ValueError, "2 features, but EigenProRegressor.*3 feat"),
        (lambda: regressor(early_stopping=True, validation_fraction=0).fit(X0, Y0), ValueError,
         r"validation_fraction must be a number in \(0, 1\), got 0"),
        (lambda: regressor(feature_map=3).fit(X0, Y0), TypeError, "feature_map must be None or a transformer.*, got 3"),
        (lambda: regressor(feature_map=RandomFourierFeatures).partial_fit(X0, Y0), TypeError, "feature_map must be .*, got <class"),
        (lambda: regressor(feature_map=FunctionTransformer(np.log)).fit(-abs(X0) - 1, Y0), (ValueError, RuntimeWarning),
         "feature_map contains NaN|invalid value"),
    ],
)
def test_bad_input_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize(
    "name, value, error, words",
    [
        ("kernel", "laplace", ValueError, "kernel='laplace' is unknown.*did you mean 'laplacian'"),
        ("kernel", 3, TypeError, "kernel must be a name or a Kernel, got int"),
        ("kernel", Gaussian(), ValueError, "bandwidth=1.5 is given beside a kernel"),
        ("bandwidth", "mean", ValueError, "bandwidth='mean' is unknown.*'median'"),
        ("bandwidth", 0, ValueError, "bandwidth must be positive and finite.*got 0"),
        ("bandwidth", [1.0, 2.0], ValueError, "bandwidth has 2 entries, but the data has 3 columns"),
        ("n_eigen", -1, ValueError, "n_eigen must be 'auto' or an integer of at least 0, got -1"),
        ("n_eigen", 1.5, TypeError, "n_eigen must be 'auto' or an integer.*got 1.5"),
        ("n_eigen", "all", ValueError, "n_eigen must be 'auto'.*got 'all'"),
        ("n_eigen", True, TypeError, "n_eigen must be 'auto'.*got True"),
        ("n_subsample", 0, ValueError, "n_subsample must be 'auto' or an integer of at least 1, got 0"),
        ("n_subsample", None, TypeError, "n_subsample must be 'auto'.*got None"),
        ("batch_size", 0, ValueError, "batch_size must be 'auto' or an integer of at least 1, got 0"),
        ("batch_size", 2.0, TypeError, "batch_size must be 'auto'.*got 2.0"),
        ("batch_size", np.array([1, 2]), TypeError, "batch_size must be 'auto'"),
        ("step_size", 0, ValueError, r"step_size must be 'auto' or a number in \(0, inf\), got 0"),
        ("step_size", -1.0, ValueError, r"step_size must be 'auto' or a number in \(0, inf\), got -1"),
        ("step_size", np.inf, ValueError, "step_size must be .*got inf"),
        ("step_size", np.nan, ValueError, "step_size must be .*got nan"),
        ("step_size", "large", ValueError, "step_size must be .*got 'large'"),
        ("max_iter", 0, ValueError, "max_iter must be an integer of at least 1"),
        ("max_iter", 2.5, TypeError, "max_iter must be an integer of at least 1"),
        ("tol", -1e-3, ValueError, r"tol must be a number in \[0, inf\)"),
        ("tol", "small", TypeError, r"tol must be a number in \[0, inf\)"),
        ("validation_fraction", -0.1, ValueError, r"validation_fraction must be a number in \[0, 1\)"),
        ("validation_fraction", 1, ValueError, r"validation_fraction must be a number in \[0, 1\)"),
        ("validation_fraction", np.nan, ValueError, r"validation_fraction must be a number in \[0, 1\)"),
        ("n_iter_no_change", 0, ValueError, "n_iter_no_change must be an integer of at least 1"),
        ("cache", "none", ValueError, "cache must be 'auto', 'full', 'half' or None, got 'none'"),
        ("cache_size", -1, ValueError, r"cache_size must be 'auto' or a number in \[0, inf\)"),
        ("cache_size", "2G", ValueError, r"cache_size must be 'auto' or a number in \[0, inf\)"),
        ("device", "gpu", ValueError, "device='gpu' is not available"),
        ("random_state", -1, ValueError, "random_state must not be negative, got -1"),
        ("random_state", "x", TypeError, "random_state must be"),
    ],
)
def test_parameters_out_of_range(name, value, error, words):
    for model in (regressor(), classifier()):
        with pytest.raises(error, match=words):
            model.set_params(**{name: value}).fit(X0, LABELS if isinstance(model, EigenProClassifier) else Y0)


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="no high-water mark to reset here")
@pytest.mark.parametrize("cache, cache_size", [(None, 0), ("auto", 60), ("half", 40), ("full", 300)])
def test_peak_memory(cache, cache_size):
    """A Gram matrix of 137 MiB, in a child process: no more is held than was allowed, and 40 MiB beside it."""
    code = """
        import re, torch
        from rfteach.eigenpro import EigenProRegressor
        torch.set_num_threads(1)
        def memory(mark):
            return int(re.search(mark + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
        X = torch.rand(6_000, 20, generator=torch.Generator().manual_seed(0))
        settings = dict(kernel="laplacian", bandwidth=1.0, n_subsample=500, max_iter=2, random_state=0)
        EigenProRegressor(**settings).fit(X[:600], X[:600, 0])
        open("/proc/self/clear_refs", "w").write("5")
        before = memory("VmRSS")
        EigenProRegressor(**settings, cache=%r, cache_size=%r).fit(X, X[:, 0])
        print(memory("VmHWM") - before)
    """ % (cache, cache_size)
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=env)
    assert found.returncode == 0, found.stderr
    assert float(found.stdout) < min(cache_size, 144) + 40


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="no high-water mark to reset here")
def test_wide_rows_are_copied_once():
    """Rows of 95 MiB, some of them held out: one copy of them, 48 MiB of those for intervals, and 30 MiB beside it."""
    code = """
        import re, torch
        from rfteach.eigenpro import EigenProRegressor
        torch.set_num_threads(1)
        def memory(mark):
            return int(re.search(mark + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
        X = torch.rand(2_000, 12_500, generator=torch.Generator().manual_seed(0))
        settings = dict(bandwidth=45.0, validation_fraction=0.25, n_subsample=200, max_iter=1, cache_size=0, random_state=0)
        EigenProRegressor(**settings).fit(X[:, :20], X[:, 0])
        open("/proc/self/clear_refs", "w").write("5")
        before = memory("VmRSS")
        EigenProRegressor(**settings).fit(X, X[:, 0])
        print(memory("VmHWM") - before)
    """
    found = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert float(found.stdout) < 173


@pytest.mark.parametrize("held", [[0, 1, 2], [4, 5], [1, 2], [0, 2, 5]])
def test_a_trial_has_the_rows_of_its_masks(held):
    """Views where they are side by side, copies elsewhere."""
    X, mask = torch.arange(12.0).reshape(6, 2), np.isin(np.arange(6), held)
    for part in (mask, ~mask):
        found = eigenpro_training._rows(X, part)
        assert torch.equal(found, X[torch.from_numpy(part)])
        assert (found.untyped_storage().data_ptr() == X.untyped_storage().data_ptr()) == (np.ptp(np.flatnonzero(part)) < part.sum())


# ------------------------------------------------------------------ found by trying to break it


@pytest.mark.parametrize("n, bandwidth, seed", [(100, 0.1, 2), (200, 0.1, 0), (200, 0.3, 0), (200, 1.0, 0), (400, 0.1, 0), (400, 0.1, 2)])
def test_automatic_step_converges(n, bandwidth, seed):
    """Plain data, all automatic: no warning, and the loss ends near its lowest value."""
    X = np.random.default_rng(seed).uniform(size=(n, 2))
    y = np.sin(6 * X[:, 0])
    model = EigenProRegressor("laplacian", bandwidth, random_state=seed, max_iter=60, **PLAIN).fit(X, y)
    assert model.history_["loss"][-1] < 1e-3 * model.history_["loss"][0]


@pytest.mark.parametrize("a, b", [
    (dict(bandwidth=np.full(3, 2.0)), dict(bandwidth=np.full(3, 2.0) + 1e-9)),
    (dict(kernel=Gaussian(2.0), bandwidth=None), dict(kernel=Gaussian(2.0 + 1e-15), bandwidth=None)),
])
def test_checkpoint_of_nearly_the_same_parameters(tmp_path, a, b):
    path = tmp_path / "run"
    regressor(2, checkpoint=path, **a).fit(X0, Y0)
    with pytest.raises(ValueError, match="belongs to other data or parameters"):
        regressor(2, checkpoint=path, **b).fit(X0, Y0)


def test_checkpoint_of_long_parameters(tmp_path):
    path, X = tmp_path / "run", np.random.default_rng(0).normal(size=(40, 1200))
    b = np.full(1200, 30.0)
    c = b.copy()
    c[600] = 3.0
    for wrap in (lambda v: dict(bandwidth=v), lambda v: dict(kernel=Gaussian(v), bandwidth=None),
                 lambda v: dict(feature_map=RandomFourierFeatures(bandwidth=v))):
        path.unlink(missing_ok=True)
        regressor(2, checkpoint=path, **wrap(b)).fit(X, Y0[:40])
        with pytest.raises(ValueError, match="belongs to other data or parameters"):
            regressor(2, checkpoint=path, **wrap(c)).fit(X, Y0[:40])


def test_checkpoint_of_a_function_in_another_process(tmp_path):
    code = ("import sys, numpy as np; from sklearn.preprocessing import FunctionTransformer; "
            "from rfteach.eigenpro import EigenProRegressor; pad = [object() for _ in range(int(sys.argv[2]))]\n"
            "def f(Z): return np.tanh(Z)\n"
            "X = np.arange(12.0).reshape(6, 2)\n"
            "m = EigenProRegressor(feature_map=FunctionTransformer(f), random_state=np.random.default_rng(0), max_iter=int(sys.argv[2]),"
            " checkpoint=sys.argv[1]).fit(X, X[:, 0])")
    for n in (2, 4):
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "run"), str(n)], check=True)


@pytest.mark.parametrize("given", ["bandwidth=torch.tensor(2.0)", "kernel=Gaussian(torch.tensor([2.0, 3.0])), bandwidth=None",
                                   "bandwidth=torch.tensor(2.0, dtype=torch.bfloat16)"])
def test_checkpoint_of_a_tensor_in_another_process(tmp_path, given):
    """Its pickle holds an address."""
    code = f"""
        import sys, numpy as np, torch; from rfteach import EigenProRegressor, Gaussian
        pad, X = [object() for _ in range(int(sys.argv[1]))], np.arange(12.0).reshape(6, 2)
        EigenProRegressor({given}, max_iter=int(sys.argv[1]), random_state=0, checkpoint={str(tmp_path / "run")!r}).fit(X, X[:, 0])
    """
    for n in ("2", "4000"):
        subprocess.run([sys.executable, "-c", textwrap.dedent(code), n], check=True)
    path = tmp_path / "another"
    regressor(2, checkpoint=path, bandwidth=torch.tensor(2.0)).fit(X0, Y0)
    with pytest.raises(ValueError, match="belongs to other data or parameters"):
        regressor(2, checkpoint=path, bandwidth=torch.tensor(2.5)).fit(X0, Y0)


@pytest.mark.parametrize("model", [EigenProRegressor, CentersRegressor])
@pytest.mark.parametrize("first", ["cpu", "cuda"])
def test_rows_of_another_device_go_where_the_fit_was(model, first):
    X, y = torch.from_numpy(X0), torch.from_numpy(Y0)
    with card.card():
        model = model(random_state=0).partial_fit(X[:50].to(first), y[:50].to(first))
        at = {"cpu": "cuda", "cuda": "cpu"}[first]
        found = model.partial_fit(X[50:].to(at), y[50:].to(at)).predict(X).cpu()
    right = clone(model).partial_fit(X[:50], y[:50]).partial_fit(X[50:], y[50:]).predict(X)
    torch.testing.assert_close(found, right)


@pytest.mark.parametrize("model", [EigenProRegressor, CentersRegressor])
def test_a_validation_fraction_of_zero_is_refused_where_rows_are_held_out(model):
    model = model(validation_fraction=0, max_iter=2, random_state=0)
    with pytest.raises(ValueError, match=r"validation_fraction must be a number in \(0, 1\), got 0"):
        model.fit(X0, Y0)
    model.partial_fit(X0, Y0)
    model.set_params(early_stopping=False).fit(X0, Y0)
    if isinstance(model, EigenProRegressor):
        model.set_params(early_stopping=True).fit(X0, Y0, T0, T0[:, 0])


@pytest.mark.parametrize("model, validated", [(EigenProRegressor, False), (EigenProRegressor, True), (CentersRegressor, False)])
@pytest.mark.parametrize("unit", [2.0**10, 2.0**-10, 1e3])
def test_outputs_choose_the_epochs_in_their_own_units(model, validated, unit):
    """By squares in one unit, noise in a thousandth of it would end the training for all."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (600, 2))
    Y = np.c_[rng.normal(size=600), 1.4 * np.sin(6 * X[:, 0])]
    rest = slice(500, None) if validated else slice(0)
    one, scaled = (model(bandwidth="median", random_state=0).fit(X[:500], U[:500], *([X[rest], U[rest]] if validated else []))
                   for U in (Y, Y * [unit, 1]))
    assert one.n_iter_ == scaled.n_iter_ > 3
    np.testing.assert_allclose(scaled.predict(X) / [unit, 1], one.predict(X), atol=1e-4)
    assert np.mean((scaled.predict(X)[:, 1] - Y[:, 1]) ** 2) < 0.1


def test_a_constant_output_has_no_unit_and_classes_have_none():
    X, Y = X0, np.c_[Y0, np.full(90, 0.1), 1e-300 * Y0]
    for model in (EigenProRegressor(random_state=0), CentersRegressor(random_state=0)):
        assert np.isfinite(model.fit(X, Y).validation_loss_).all() and model._descent.scales[1] == 1
    assert EigenProClassifier(random_state=0).fit(X, Y0 > 1)._descent.scales == 1.0


@pytest.mark.parametrize("dtype", ["float16", int, "double"])
def test_dtype_is_refused_by_name(dtype):
    with pytest.raises(ValueError, match="dtype must be"):
        regressor(dtype=dtype).fit(X0, Y0)


@pytest.mark.parametrize("first, second", [(np.float32, np.float64), (np.float64, np.float32)])
@pytest.mark.parametrize("space", SPACES)
def test_partial_fit_of_other_dtypes(space, first, second):
    model = regressor(**SPACES[space]).partial_fit(X0.astype(first), Y0).partial_fit(X0[:9].astype(second) + 1, Y0[:9])
    assert np.isfinite(model.predict(T0)).all() and model.eigenvalues_.dtype == first


def test_warm_start_after_partial_fit():
    model = regressor(2, warm_start=True).fit(X0, Y0).partial_fit(T0, T0[:, 0])
    with pytest.raises(ValueError, match="warm_start=True goes on with the rows X"):
        model.fit(X0, Y0)
    model = regressor(2, warm_start=True).partial_fit(X0, Y0)
    try:
        model.fit(X0, Y0)  # either goes on or says why not
    except ValueError as error:
        assert "warm_start=True" in str(error)


def test_large_targets_in_float32():
    X, y = X0.astype(np.float32), (1e30 * Y0).astype(np.float32)
    model = regressor(10).fit(X, y)
    assert np.isfinite(model.history_["loss"]).all()
    for kw in (dict(early_stopping=True), dict(tol=0.5)):
        a, b = (regressor(10, batch_size=16, **kw) for _ in range(2))
        a, b = a.fit(X, y).predict(X) / np.float32(1e30), b.fit(X, Y0).predict(X)
        np.testing.assert_allclose(a, b, atol=1e-3)


def test_targets_that_overflow():
    with pytest.raises(ValueError, match="^y "):
        regressor().fit(X0.astype(np.float32), 1e100 * Y0)


@pytest.mark.parametrize("model", [EigenProRegressor(random_state=0), CentersRegressor(random_state=0)], ids=repr)
def test_targets_whose_squares_overflow(model):
    """By infinite losses nothing could be chosen, and the constant would be the choice."""
    assert model.fit(X0, 1e140 * Y0).score(X0, 1e140 * Y0) > 0.9
    for call in (model.fit, clone(model).partial_fit, model.partial_fit):
        with pytest.raises(ValueError, match=r"^y has values up to .*e\+160, whose sums of squares overflow; rescale y$"):
            call(X0, 1e160 * Y0)
    if isinstance(model, EigenProRegressor):
        with pytest.raises(ValueError, match="^y_val has values up to .*rescale y_val$"):
            model.fit(X0, Y0, T0, 1e160 * T0[:, 0])


def test_validation_rows_that_overflow():
    with pytest.warns(RuntimeWarning, match="too large for half precision"):
        model = regressor(3, feature_map=FunctionTransformer(times_one), cache="half").fit(X0, Y0, 1e6 * T0, T0[:, 0])
    assert len(model.history_["validation_error"]) == 3


@pytest.mark.parametrize("Y, Z", [(2, 1), (1, 2), (3, 2)])
def test_validation_targets_of_other_shape(Y, Z):
    with pytest.raises(ValueError, match="y_val"):
        regressor().fit(X0, X0[:, :Y], T0, T0[:, :Z])


@pytest.mark.parametrize("X_val, y_val, message", [
    (T0 * np.nan, LABELS[:20], "^X_val contains NaN"), (T0[:, :2], LABELS[:20], "^X_val has 2 features, but EigenProClassifier"),
    (T0[:, 0], LABELS[:20], "^X_val: Expected 2D array"), (T0, np.strings.add(LABELS[:20], " X"), "^y_val holds labels.*: cat X$"),
    (T0.astype("U"), LABELS[:20], "^X_val"), (T0, [None] * 20, "^y_val has no label in row 0"),
])
def test_faults_of_the_validation_data_are_not_blamed_on_the_rows(X_val, y_val, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(X0, LABELS, X_val, y_val)
    with pytest.raises(TypeError, match="^Sparse data was passed for X_val"):
        classifier().fit(X0, LABELS, sp.csr_array(T0), y_val)
    names = ["X.1", "y.1", "X"][: X0.shape[1]]
    frames = pd.DataFrame(X0, columns=names), pd.DataFrame(T0 * np.nan, columns=names)
    with pytest.raises(ValueError, match="^X_val contains NaN.* column 'X.1'"):
        classifier().fit(frames[0], LABELS, frames[1], LABELS[:20])


def test_half_of_the_validation_data():
    for kw in (dict(X_val=T0), dict(y_val=T0[:, 0])):
        with pytest.raises(ValueError, match="y_val"):
            regressor().fit(X0, Y0, **kw)


@pytest.mark.parametrize("how", ["npy", "truncated", "damaged", "empty facts"])
def test_more_files_that_are_not_checkpoints(tmp_path, how):
    path = tmp_path / "run.npz"
    regressor(2, checkpoint=path).fit(X0, Y0)
    content = bytearray(path.read_bytes())
    if how == "npy":
        with open(path, "wb") as file:
            np.save(file, np.ones(3))
    elif how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "damaged":
        content[200] ^= 255
        path.write_bytes(content)
    else:
        np.savez(path, facts=np.array("{}"), c=np.ones(3), best=np.ones(3))
    with pytest.raises(ValueError, match="checkpoint='.*run.npz' is not a checkpoint"):
        regressor(2, checkpoint=path).fit(X0, Y0)


def test_fitted_model_keeps_its_kernel():
    model = regressor(2, kernel=Gaussian(1.0), bandwidth=None).fit(X0, Y0)
    p = model.predict(T0)
    model.set_params(kernel__bandwidth=9.0)
    np.testing.assert_array_equal(model.predict(T0), p)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("step, scale", [(1e20, 1.0), (1e300, 1.0), (1e300, 1e30)])
def test_step_that_is_too_large_in_the_last_epoch(step, scale, dtype):
    with pytest.raises(ValueError, match="step_size"):
        regressor(1, batch_size=90, step_size=step).fit(X0.astype(dtype), scale * Y0)


def test_bandwidth_that_requires_a_gradient():
    bandwidth = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    p = regressor(2, bandwidth=bandwidth).fit(X0, Y0).predict(torch.from_numpy(T0))
    np.testing.assert_array_equal(p, regressor(2, bandwidth=2.0).fit(X0, Y0).predict(T0))


def test_partial_fit_after_early_stopping():
    model = regressor(2, early_stopping=True).fit(X0, Y0).partial_fit(T0, T0[:, 0])
    np.testing.assert_array_equal(model.X_fit_[-20:], T0)


def test_pieces_go_on_from_what_predicts():
    """After early stopping that is a mean over steps. Of rows far off, at the intercept, nothing is to be learned."""
    noisy = Y0 + np.random.default_rng(0).normal(size=90)
    model = regressor(20, kernel="gaussian", early_stopping=True, fit_intercept=True).fit(X0, noisy)
    before = model.predict(X0)
    model.partial_fit(X0 + 1e4, np.full(90, model.intercept_))
    assert model.n_iter_ > 1
    np.testing.assert_allclose(model.predict(X0), before, atol=1e-10)


def test_warm_start_remembers_the_best_epoch():
    noisy = Y0 + np.random.default_rng(0).normal(size=90)
    model = regressor(100, early_stopping=True, warm_start=True, n_iter_no_change=3, batch_size=16)
    for _ in range(2):
        clean = np.sin(T0[:, 0]) + T0[:, 1] ** 2
        model.fit(X0, noisy, T0, clean)
        error = np.mean((model.predict(T0) - clean) ** 2)
        assert error == pytest.approx(min(model.history_["validation_error"]))


def test_losses_of_an_earlier_fit_do_not_count():
    assert Best(5.0, torch.zeros(1), skip=2).losses({"validation_loss": [1.0, 2.0, 3.0]}) == [5.0, 3.0]


def test_refused_call_changes_nothing():
    model = regressor(2, warm_start=True).fit(X0, Y0)
    for call, words in ((model.fit, "goes on with 1 outputs"), (model.partial_fit, r"y must have the shape \(n,\)")):
        with pytest.raises(ValueError, match=words):
            call(X0, np.c_[Y0, Y0])
        assert model.predict(T0).shape == (20,)
    labels = classifier(2).partial_fit(X0, LABELS, classes=["ant", "bee", "cat"])
    for classes in (["ant", "bee"], ["ant", "bee", "cow"]):
        with pytest.raises(ValueError, match="classes"):
            labels.partial_fit(X0, np.where(LABELS == "cat", "ant", LABELS), classes=classes)
        assert list(labels.classes_) == ["ant", "bee", "cat"]


@pytest.mark.parametrize("name, value", [("validation_fraction", "a"), ("cache_size", np.nan), ("cache_size", np.inf),
                                         ("cache", np.array([1, 2])), ("checkpoint", 5), ("tol", np.nan), ("callback", 3)])
def test_more_parameters_out_of_range(name, value):
    with pytest.raises((ValueError, TypeError), match=name):
        regressor(**{name: value}).fit(X0, Y0)


def test_attributes_before_fit():
    with pytest.raises(NotFittedError):
        regressor().lam_


def test_seed_of_a_nested_map():
    map_ = make_pipeline(StandardScaler(), RandomFourierFeatures())
    a, b = (regressor(2, feature_map=map_).fit(X0, Y0).predict(T0) for _ in range(2))
    np.testing.assert_array_equal(a, b)


def test_tiny_and_huge_features():
    y = X0 @ [1.0, -2.0, 0.5]
    for dtype, scale in ((np.float32, 1e-20), (np.float64, 1e-170)):
        with pytest.raises(ValueError, match="feature_map gives values up to .* cannot hold"):
            regressor(3, feature_map=FunctionTransformer(times_one)).fit((scale * X0).astype(dtype), y)
    with pytest.raises(ValueError, match="feature_map"):
        regressor(feature_map=FunctionTransformer(times_one)).fit((1e20 * X0).astype(np.float32), y)


@pytest.mark.parametrize("kw", [dict(), dict(kernel="gaussian"), dict(kernel=Laplacian(9.0)),
                                dict(feature_map=RandomFourierFeatures(bandwidth="learned", random_state=0))], ids=str)
def test_learned_bandwidth(kw):
    """The bandwidths are those of `learn_bandwidth`, though training needs no derivatives, for every way in."""
    if "feature_map" not in kw:
        kw["bandwidth"] = "learned"
    for model, y in ((regressor(3, **kw), Y0), (classifier(3, **kw), LABELS)):
        model.fit(X0, y)
        if "feature_map" not in kw:
            assert np.shape(model.kernel_.bandwidth) == (3,) and not isinstance(model.kernel_.bandwidth, torch.Tensor)
        with torch.no_grad():
            again = clone(model).fit(X0, y)
        np.testing.assert_array_equal(model.predict(T0), again.predict(T0))
    regressor(3, **kw).partial_fit(X0, Y0)
    classifier(3, **kw).partial_fit(X0, LABELS, classes=np.unique(LABELS))


def test_learned_bandwidth_is_that_of_its_rows():
    from rfteach.bandwidth import learn_bandwidth

    model = regressor(3, kernel="gaussian", bandwidth="learned", early_stopping=False).fit(X0, Y0)
    np.testing.assert_allclose(model.kernel_.bandwidth, learn_bandwidth(X0, Y0).bandwidth, rtol=1e-3)


def test_no_bandwidth_is_learned_from_copies_of_one_row():
    """Four fifths of the rows are zero and held out in no part; those of the others that are left are few."""
    rng = np.random.default_rng(0)
    X = 100 * rng.standard_normal((2000, 3))
    X[rng.permutation(2000)[:1600]] = 0
    y = np.sin(X[:, 0] / 100)
    model = EigenProRegressor(bandwidth="learned", max_iter=3, random_state=0).fit(X, y)
    assert model.kernel_.bandwidth[0] > 20
    alone = EigenProRegressor(bandwidth="learned", max_iter=3, random_state=0).fit(X[:1], y[:1])
    np.testing.assert_allclose(alone.predict(X[:1]), y[:1])


@pytest.mark.parametrize("word", ["learned", "loo"])
@pytest.mark.parametrize("n, once", [(1667, False), (1668, True)])
@pytest.mark.parametrize("make", [EigenProRegressor, CentersRegressor])
def test_bandwidth_is_learned_once(make, n, once, word, monkeypatch):
    """From rows that are never held out, where these are a thousand, and then for trials and the model alike."""
    find = getattr(bandwidth, word.removesuffix("ed") + "_bandwidth")
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    came, n_val = [], math.ceil(0.2 * n)
    trials = math.ceil(500 / n_val)

    def learn(X, y, **kw):
        came.append(X.numpy())
        return find(X, y, n_subsample=100 + 900 * once, **kw)

    monkeypatch.setattr(bandwidth, find.__name__, learn)
    model = make(max_iter=2, bandwidth=word, validation_fraction=0.2, batch_size=400, random_state=0).fit(X, y)
    rest = n - trials * n_val
    each = [n] if word == "loo" else [n - n_val] * trials + [n]
    assert [len(rows) for rows in came] == ([rest] if once else each)
    if once:
        place = {row.tobytes(): i for i, row in enumerate(X)}
        expected = find(came[0], y[[place[row.tobytes()] for row in came[0]]], n_subsample=1000)
        np.testing.assert_allclose(model.kernel_.bandwidth, getattr(expected, "bandwidth", expected), rtol=1e-6)
        assert not set(map(bytes, came[0])) & set(map(bytes, model._left_out.inputs))
        assert len(model._left_out.inputs) == trials * n_val


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, list])
@pytest.mark.parametrize("by_name", [True, False])
def test_model_owns_its_bandwidth(kind, by_name):
    bandwidth = kind(np.array([1.0, 2.0, 3.0]))
    kw = dict(bandwidth=bandwidth) if by_name else dict(kernel=Laplacian(bandwidth), bandwidth="median")
    model = regressor(2, **kw).fit(X0, Y0)
    before = model.predict(T0)
    bandwidth[0] = 50.0
    np.testing.assert_array_equal(model.predict(T0), before)


def test_processes_that_share_a_checkpoint(tmp_path):
    """Each writes beside the file under a name of its own, whatever another has left or is just renaming."""
    path = tmp_path / "run.npz"
    code = ("import sys, numpy as np; from rfteach.eigenpro import EigenProRegressor\n"
            "X = np.random.default_rng(0).normal(size=(40, 2))\n"
            "EigenProRegressor(random_state=0, max_iter=300, early_stopping=False, checkpoint=sys.argv[1]).fit(X, X[:, 0])")
    both = [subprocess.Popen([sys.executable, "-c", code, str(path)], stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        assert process.communicate()[1] == "" and process.returncode == 0
    assert os.listdir(tmp_path) == ["run.npz"]


def test_temporary_files_have_names_of_their_own(tmp_path, monkeypatch):
    used = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (used.append(os.fspath(a)), replace(a, b)))
    regressor(3, checkpoint=tmp_path / "run").fit(X0, Y0)
    assert len(used) == len(set(used)) >= 1

    def full(a, b):
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="no space"):
        regressor(3, checkpoint=tmp_path / "other").fit(X0, Y0)
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize("entry", ["seed", "n_iter", "history", "factor", "cache", "choice", "last", "c"])
def test_checkpoint_that_lacks_an_entry(tmp_path, entry):
    """The digest is right, so the file says that it is ours."""
    path = tmp_path / "run.npz"
    regressor(2, checkpoint=path).fit(X0, Y0)
    with np.load(path) as file:
        content = dict(file)
    if entry == "c":
        content["c"] = content["c"][:5]
    else:
        facts = json.loads(str(content["facts"]))
        del (facts["choice"] if entry == "last" else facts)[entry]
        content["facts"] = np.array(json.dumps(facts))
    np.savez(path, **content)
    words = r"coefficients of shape \(5, 1\), expected \(90, 1\)" if entry == "c" else f"no entry '{entry}'"
    with pytest.raises(ValueError, match=f"checkpoint='.*run.npz' .*{words}"):
        regressor(5, checkpoint=path).fit(X0, Y0)


@pytest.mark.parametrize("bad", ["yes", None, 2, "auto"])
def test_early_stopping_is_true_or_false(bad):
    with pytest.raises(TypeError, match=f"early_stopping must be True or False, got {bad!r}"):
        EigenProRegressor(early_stopping=bad).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0])


@pytest.mark.parametrize("model", [
    EigenProRegressor(), EigenProRegressor(kernel="laplacian"), EigenProClassifier(), CentersRegressor(centers=20), CentersClassifier(centers=20),
    EigenProRegressor(feature_map=RandomFourierFeatures(random_state=0)),
    EigenProRegressor(feature_map=FunctionTransformer(np.sin))], ids=lambda m: repr(m)[:70])
def test_predictions_keep_gradients(model):
    """Those that the library computes itself; a map that takes arrays has none. What is kept of pieces does not require one."""
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(60, 3))).requires_grad_()
    y = torch.sin(X[:, 0].detach()) + X[:, 1].detach() ** 2
    y = y > 0.5 if hasattr(model, "decision_function") else y
    model = clone(model).set_params(random_state=0).fit(X, y)
    values = getattr(model, "decision_function", model.predict)
    points = X[:3].detach().clone().requires_grad_()
    if isinstance(model.get_params().get("feature_map"), FunctionTransformer):
        assert not values(points).requires_grad
    else:
        assert torch.autograd.gradcheck(values, points, atol=1e-5)
    model.partial_fit(X, y)
    assert not values(points.detach()).requires_grad
