"""Pursuits: the reference, optimality, recovery, symmetries, degenerate data; the estimator's contract."""

import math
import itertools
import pickle
import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.linear_model import Ridge, orthogonal_mp
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_estimator

from rfteach.arrays import memory_budget
from rfteach.kernels import Gaussian
from rfteach.orderq import feature_matrix, sparse_frequencies
from rfteach.harfe_regressor import HARFERegressor, _eliminate, _LeaveOneOut
from rfteach.pursuit import PursuitResult, _Support, _System, cosamp, harfe, htp, omp, prune

PURSUITS = {
    "htp": htp,
    "htp, mu = 1": lambda A, y, s: htp(A, y, s, mu=1.0),
    "harfe": lambda A, y, s: harfe(A, y, s, 1e-5),
    "omp": omp,
    "cosamp": cosamp,
    "subspace": lambda A, y, s: cosamp(A, y, s, extra=1.0),
    "prune": lambda A, y, s: prune(A, y, s, 1e-5),
}
each = pytest.mark.parametrize("name", PURSUITS)


def gaussian_problem(seed=0, m=40, N=80, k=4, noise=0.0, dtype=np.float64):
    """A matrix with columns of norm about 1, a k-sparse vector with entries of size 1 to 2, and their product."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((m, N)) / np.sqrt(m)
    c = np.zeros(N)
    c[rng.choice(N, k, replace=False)] = rng.choice([-1, 1], k) * rng.uniform(1, 2, k)
    return A.astype(dtype), (A @ c + noise * rng.standard_normal(m)).astype(dtype), c


def wave_problem(seed=0, m=100, N=400, dtype=np.float64):
    """Random sine features of order 2 with columns of norm 1: far from any isometry."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (m, 6))
    W, b = sparse_frequencies(N, 6, 2, phases=True, random_state=rng)
    A = feature_matrix(X, W, b, normalize="columns")
    return A.astype(dtype), (X[:, 0] * X[:, 1] + np.cos(X[:, 3])).astype(dtype)


def harfe_reference(A, y, s, lam, mu, selection="magnitude", max_iter=200):
    """The paper's iteration with a fixed step, in float64; returns all supports until one comes again."""
    A, y = np.asarray(A, float), np.asarray(y, float)
    m, N = A.shape
    c, supports, fits = np.zeros(N), [], []
    for _ in range(max_iter):
        z = (1 - mu * m * lam) * c + mu * A.T @ (y - A @ c)
        order = np.argsort(-(z if selection == "positive" else abs(z)))[:s]
        S = sorted(j for j in order if selection == "magnitude" or z[j] > 0)
        if S in supports:
            break
        c = np.zeros(N)
        G = A[:, S].T @ A[:, S] + m * lam * np.eye(len(S))
        c[S] = np.linalg.solve(G, A[:, S].T @ y)
        supports.append(S)
        fits.append(((y - A @ c) @ (y - A @ c) + m * lam * c @ c, c))
    return supports, min(fits, key=lambda fit: fit[0])[1]


def ridge(A, y, penalty):
    return np.linalg.solve(A.T @ A + penalty * np.eye(A.shape[1]), A.T @ y)


def objective(A, y, lam, c):
    return ((y - A @ c) ** 2).sum() + len(A) * lam * (c**2).sum()


@pytest.mark.parametrize("selection", ["magnitude", "signed", "positive"])
@pytest.mark.parametrize("mu", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-9), (np.float32, 2e-3)])
@pytest.mark.parametrize("problem", [gaussian_problem, wave_problem])
def test_agrees_with_the_papers_iteration(problem, dtype, tolerance, mu, selection):
    for seed in range(3):
        A, y = problem(seed, dtype=dtype)[:2]
        supports, c = harfe_reference(A, y, 6, 1e-3, mu, selection)
        found = harfe(A, y, 6, 1e-3, mu=mu, selection=selection, tol=0.0)
        if dtype == np.float64:
            assert found.n_iter == len(supports) - (supports[0] == [])
        assert found.coef.dtype == dtype
        if dtype == np.float32 and not np.array_equal(found.support, np.flatnonzero(c)):
            # rounding may decide between supports that are as good as each other
            assert objective(A, y, 1e-3, found.coef) < 1.01 * objective(A, y, 1e-3, c)
            continue
        np.testing.assert_array_equal(found.support, np.flatnonzero(c))
        np.testing.assert_allclose(found.coef, c, atol=tolerance * abs(c).max())


def test_signed_keeps_what_the_public_code_keeps():
    """Of the s largest magnitudes the positive ones; "positive" instead fills up with smaller positive ones."""
    A, y = np.eye(5), np.array([5.0, -4.0, 3.0, -2.0, 1.0])
    assert harfe(A, y, 3, 0.0, selection="magnitude").support.tolist() == [0, 1, 2]
    assert harfe(A, y, 3, 0.0, selection="signed", mu=1.0).support.tolist() == [0, 2]
    assert harfe(A, y, 3, 0.0, selection="positive", mu=1.0).support.tolist() == [0, 2, 4]
    nothing = harfe(A, -abs(y), 3, 0.0, selection="signed", mu=1.0)
    assert len(nothing.support) == 0 and (nothing.coef == 0).all() and nothing.converged


@pytest.mark.parametrize("lam", [0.0, 1e-6, 1e-3])
@pytest.mark.parametrize("mu", ["auto", 0.5])
def test_result_is_a_fixed_point(lam, mu):
    """Equation (7.5): no gradient on the support, and where a fixed step converged, none too large outside."""
    for seed, problem in itertools.product(range(3), (gaussian_problem, wave_problem)):
        A, y = problem(seed)[:2]
        found = harfe(A, y, 8, lam, mu=mu, tol=0.0)
        g = A.T @ (y - A @ found.coef) - len(A) * lam * found.coef
        outside = np.setdiff1d(np.arange(A.shape[1]), found.support)
        assert abs(g[found.support]).max() < 1e-9
        if mu == 0.5 and found.converged:
            assert mu * abs(g[outside]).max() <= abs(found.coef[found.support]).min() + 1e-12
        assert found.n_iter == len(found.residuals)
        norms = found.residuals - np.linalg.norm(y - A @ found.coef)
        assert abs(norms).min() < 1e-9


def test_auto_lowers_the_objective_and_ends():
    for seed in range(5):
        A, y = wave_problem(seed)
        values = []
        for n in range(1, 40):
            found = harfe(A, y, 10, 1e-6, max_iter=n)
            values.append(objective(A, y, 1e-6, found.coef))
            if found.converged:
                break
        assert found.converged
        assert (np.diff(values) <= 1e-12).all()
        fixed = harfe(A, y, 10, 1e-6, mu=0.1)
        assert values[-1] < objective(A, y, 1e-6, fixed.coef)


def test_ridge_is_the_augmented_least_squares_problem():
    """HARFE on (A, y) takes the same steps as HTP on the augmented system, equation (7.7)."""
    for seed, lam, mu in itertools.product(range(3), (1e-4, 1e-2), (0.2, 2.0)):
        A, y = wave_problem(seed, m=60, N=150)
        B = np.vstack([A, np.sqrt(len(A) * lam) * np.eye(150)])
        a = harfe(A, y, 8, lam, mu=mu, tol=0.0)
        b = htp(B, np.append(y, np.zeros(150)), 8, mu=mu, tol=0.0)
        assert a.n_iter == b.n_iter and a.converged == b.converged
        np.testing.assert_allclose(a.coef, b.coef, atol=1e-10 * abs(b.coef).max())


@each
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-9), (np.float32, 1e-5)])
def test_recovers_sparse_vectors(name, dtype, tolerance):
    for seed in range(5):
        A, y, c = gaussian_problem(seed, dtype=dtype)
        found = PURSUITS[name](A, y, 4)
        assert isinstance(found, PursuitResult) and found.coef.dtype == dtype
        if name == "prune":  # its first fits are far from sparse: no promise
            continue
        np.testing.assert_array_equal(found.support, np.flatnonzero(c))
        if name != "harfe":
            np.testing.assert_allclose(found.coef, c, atol=tolerance * 10)
            assert found.converged


@pytest.mark.parametrize("lam", [0.0, 1e-3])
@pytest.mark.parametrize("name", ["htp", "cosamp", "omp"])
def test_best_subset_by_brute_force(name, lam):
    """Well-conditioned tiny problems with little noise: the pursuit finds the best of all supports."""
    function = {"htp": harfe, "cosamp": cosamp, "omp": omp}[name]
    for seed in range(8):
        rng = np.random.default_rng(seed)
        A = np.linalg.qr(rng.standard_normal((30, 10)))[0] + 0.05 * rng.standard_normal((30, 10))
        y = A[:, [1, 4, 7]] @ [1.0, -1.5, 2.0] + 0.05 * rng.standard_normal(30)
        best = min(
            (objective(A[:, S], y, lam, ridge(A[:, S], y, 30 * lam)), S)
            for S in map(list, itertools.combinations(range(10), 3)))
        found = function(A, y, 3, lam)
        assert found.support.tolist() == best[1]
        assert objective(A, y, lam, found.coef) == pytest.approx(best[0], rel=1e-10)


def test_omp_against_scikit_learn():
    for seed in range(5):
        A, y, _ = gaussian_problem(seed, m=60, N=120, k=10, noise=0.1)
        A /= np.linalg.norm(A, axis=0)
        for s in (1, 5, 20):
            found = omp(A, y, s)
            np.testing.assert_allclose(found.coef, orthogonal_mp(A, y, n_nonzero_coefs=s), atol=1e-12)
            assert found.n_iter == s and found.converged and (np.diff(found.residuals) <= 0).all()


def test_omp_with_a_penalty_is_ridge_on_the_same_support():
    A, y, _ = gaussian_problem(noise=0.1)
    a, b = omp(A, y, 6), omp(A, y, 6, 0.01)
    np.testing.assert_array_equal(a.support, b.support)
    ridge = Ridge(40 * 0.01, fit_intercept=False).fit(A[:, a.support], y)
    np.testing.assert_allclose(b.coef[b.support], ridge.coef_, atol=1e-12)
    assert b.residuals[-1] == pytest.approx(np.linalg.norm(y - A @ b.coef))


@each
def test_symmetries(name):
    """Signs of y and of columns, order of columns and rows, rotations of the rows, units of A and y."""
    run, rng = PURSUITS[name], np.random.default_rng(3)
    for problem in (gaussian_problem, wave_problem):
        A, y = problem(1)[:2]
        c = run(A, y, 6).coef
        tolerance = 1e-7 * abs(c).max()
        np.testing.assert_allclose(run(A, -y, 6).coef, -c, atol=tolerance)
        sign = rng.choice([-1.0, 1.0], A.shape[1])
        np.testing.assert_allclose(run(A * sign, y, 6).coef, sign * c, atol=tolerance)
        order = rng.permutation(A.shape[1])
        np.testing.assert_allclose(run(A[:, order], y, 6).coef, c[order], atol=tolerance)
        rows = rng.permutation(len(A))
        np.testing.assert_allclose(run(A[rows], y[rows], 6).coef, c, atol=tolerance)
        Q = np.linalg.qr(rng.standard_normal((len(A), len(A))))[0]
        np.testing.assert_allclose(run(Q @ A, Q @ y, 6).coef, c, atol=tolerance)
        np.testing.assert_allclose(run(A, 1e3 * y, 6).coef, 1e3 * c, atol=1e3 * tolerance)


@each
def test_residuals_are_in_the_units_of_y(name):
    A, y, _ = gaussian_problem(noise=0.3)
    run = PURSUITS[name]
    np.testing.assert_allclose(run(A, 1e100 * y, 6).residuals, 1e100 * run(A, y, 6).residuals, rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-3, 1e3, 1e-90, 1e90, 1e-120, 1e120])
def test_units_of_the_matrix(unit):
    """A, λ and μ scaled together: (uA, u²λ, μ/u²) gives c/u, also where squares would overflow."""
    A, y = wave_problem()
    c = harfe(A, y, 8, 1e-4).coef
    np.testing.assert_allclose(unit * htp(unit * A, y, 8).coef, htp(A, y, 8).coef, rtol=1e-6)
    huge = harfe(1e200 * A, y, 8, 0.0, mu=1.0)  # μ in the units of 1 / ‖column‖²: far too large
    assert np.isfinite(huge.coef).all() and len(huge.support) == 8
    if 1e-100 < unit < 1e100:
        np.testing.assert_allclose(unit * harfe(unit * A, y, 8, unit**2 * 1e-4).coef, c, atol=1e-8 * abs(c).max())
        fixed = harfe(A, y, 8, 1e-4, mu=3.0)
        scaled = harfe(unit * A, y, 8, unit**2 * 1e-4, mu=3.0 / unit**2)
        np.testing.assert_allclose(unit * scaled.coef, fixed.coef, atol=1e-8 * abs(c).max())


@each
def test_tensors_lists_and_frames(name):
    A, y, _ = gaussian_problem()
    run, expected = PURSUITS[name], PURSUITS[name](A, y, 4).coef
    assert isinstance(expected, np.ndarray)
    from_tensor = run(torch.from_numpy(A), torch.from_numpy(y), 4).coef
    assert isinstance(from_tensor, torch.Tensor) and from_tensor.dtype == torch.float64
    for other in (from_tensor.numpy(), run(A.tolist(), y.tolist(), 4).coef,
                  run(pd.DataFrame(A), pd.Series(y), 4).coef, run(np.asfortranarray(A), y, 4).coef):
        np.testing.assert_allclose(other, expected, atol=1e-12)
    A.flags.writeable = y.flags.writeable = False
    run(A, y, 4)


@each
def test_degenerate_matrices(name):
    """Zero, constant, repeated and dependent columns, s ≥ m, s ≥ N, y = 0, one row: finite, and a fit."""
    run, rng = PURSUITS[name], np.random.default_rng(0)
    A = rng.standard_normal((6, 10))
    A[:, 3] = 0
    A[:, 4] = 1
    A[:, 6] = A[:, 5]
    A[:, 8] = A[:, 7] + A[:, 5]
    y = rng.standard_normal(6)
    for matrix, target, s in [
        (A, y, 3), (A, y, 6), (A, y, 9), (A, y, 10), (A, y, 50), (A, 0 * y, 3), (0 * A, y, 3), (0 * A, 0 * y, 3),
        (A[:1], y[:1], 1), (A[:1], y[:1], 20), (A[:, :1], y, 1), (A[:, :1], y, 5), (A[:, 5:7], y, 2),
    ]:
        found = run(matrix, target, s)
        c = found.coef
        assert np.isfinite(c).all() and np.isfinite(found.residuals).all()
        assert (np.flatnonzero(c)[:, None] == found.support).any(1).all()
        assert len(found.support) <= min(s, 10) and (np.diff(found.support) > 0).all()
        assert np.linalg.norm(target - matrix @ c) <= np.linalg.norm(target) * (1 + 1e-12)
        assert len(found.residuals) == found.n_iter
        if not target.any() or not matrix.any():
            assert (c == 0).all()


def test_all_columns_is_least_squares():
    """s ≥ N: ridge regression, and for λ = 0 with dependent columns the solution of smallest norm."""
    rng = np.random.default_rng(0)
    A, y = rng.standard_normal((20, 5)), rng.standard_normal(20)
    for function in (harfe, cosamp, omp, prune):
        for lam in (0.0, 0.01):
            expected = np.linalg.solve(A.T @ A + 20 * lam * np.eye(5), A.T @ y)
            np.testing.assert_allclose(function(A, y, 7, lam).coef, expected, atol=1e-10)
    B = np.hstack([A, A[:, :2]])
    for function in (harfe, prune):
        np.testing.assert_allclose(function(B, y, 7, 0.0).coef, np.linalg.pinv(B) @ y, atol=1e-10)
    wide = rng.standard_normal((4, 9))
    found = htp(wide, y[:4], 9)
    np.testing.assert_allclose(found.coef, np.linalg.pinv(wide) @ y[:4], atol=1e-10)
    assert found.converged and found.residuals[-1] < 1e-10


def test_omp_stops_where_no_column_is_left():
    A = np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    found = omp(A, [1.0, 1.0, 0.0], 3)
    assert found.n_iter == 1 and not found.converged


def test_max_iter_and_cycles():
    A, y = wave_problem()
    found = harfe(A, y, 10, 1e-6, max_iter=2)
    assert found.n_iter == 2 and not found.converged
    long = harfe(A, y, 10, 1e-8, mu=1e4, max_iter=500)
    assert long.n_iter < 500  # a fixed step that is too large ends in a cycle
    c = harfe_reference(A, y, 10, 1e-8, 1e4, max_iter=500)[1]
    assert objective(A, y, 1e-8, long.coef) <= objective(A, y, 1e-8, c) * (1 + 1e-6)


def test_tolerance_stops_early():
    A, y, _ = gaussian_problem(k=6, noise=0.01)
    for run in (htp, omp, cosamp):
        loose = run(A, y, 20, tol=0.5)
        assert loose.converged and loose.residuals[-1] <= 0.5 * np.linalg.norm(y)


GOOD = np.eye(3), np.ones(3)


@pytest.mark.parametrize("call, error, message", [
    (lambda: harfe(*GOOD, 0, 0.1), ValueError, "s must be an integer of at least 1, got 0"),
    (lambda: harfe(*GOOD, 1.5, 0.1), TypeError, "s must be an integer"),
    (lambda: harfe(*GOOD, 1, -1.0), ValueError, "lam must be a number in [0, inf), got -1.0"),
    (lambda: harfe(*GOOD, 1, "a"), TypeError, "lam must be a number"),
    (lambda: harfe(*GOOD, 1, 0.1, mu=0), ValueError, "mu must be 'auto' or a number in (0, inf), got 0"),
    (lambda: harfe(*GOOD, 1, 0.1, mu=np.inf), ValueError, "mu must be 'auto' or a number in (0, inf)"),
    (lambda: harfe(*GOOD, 1, 0.1, mu="fast"), ValueError, "mu must be 'auto' or a number in (0, inf), got 'fast'"),
    (lambda: harfe(*GOOD, 1, 0.1, selection="sign"), ValueError, "selection must be 'magnitude', 'signed'"),
    (lambda: harfe(*GOOD, 1, 0.1, max_iter=0), ValueError, "max_iter must be an integer of at least 1, got 0"),
    (lambda: harfe(*GOOD, 1, 0.1, tol=-1), ValueError, "tol must be a number in [0, inf)"),
    (lambda: harfe(np.eye(3), np.ones(4), 1, 0.1), ValueError, "A and y must have as many rows, got 3 and 4"),
    (lambda: harfe(np.eye(3), np.eye(3), 1, 0.1), ValueError, "y must have one dimension"),
    (lambda: harfe(np.eye(3) * np.nan, np.ones(3), 1, 0.1), ValueError, "A contains NaN"),
    (lambda: htp(np.eye(3), [1.0, np.inf, 0.0], 1), ValueError, "y contains NaN or infinity"),
    (lambda: omp(*GOOD, 0), ValueError, "s must be an integer of at least 1"),
    (lambda: omp(*GOOD, 1, tol="a"), TypeError, "tol must be a number"),
    (lambda: cosamp(*GOOD, 1, extra=0), ValueError, "extra must be a number in (0, inf), got 0"),
    (lambda: cosamp(*GOOD, 1, extra=np.inf), ValueError, "extra must be a number in (0, inf), got inf"),
    (lambda: cosamp(*GOOD, 1, extra=np.nan), ValueError, "extra must be a number in (0, inf), got nan"),
    (lambda: cosamp(*GOOD, 1, max_iter=0), ValueError, "max_iter must be an integer of at least 1, got 0"),
    (lambda: prune(*GOOD, 1, 0.1, keep=1.0), ValueError, "keep must be a number in (0, 1), got 1.0"),
    (lambda: htp([[1e-200]], [1e200], 1), ValueError, "the coefficients overflow"),
    (lambda: HARFERegressor(sparsity=0).fit(*GOOD), ValueError, "sparsity must be 'auto' or an integer of at least 1, got 0"),
    (lambda: HARFERegressor(sparsity="some").fit(*GOOD), ValueError, "sparsity must be 'auto' or an integer"),
    (lambda: HARFERegressor(sparsity=True).fit(*GOOD), TypeError, "sparsity must be 'auto' or an integer of at least 1, got True"),
    (lambda: HARFERegressor(pursuit=np.array([1, 2])).fit(*GOOD), ValueError, "pursuit must be 'prune', 'harfe', 'cosamp' or 'omp'"),
    (lambda: HARFERegressor(alpha=-1).fit(*GOOD), ValueError, "alpha must be 'auto' or a number in [0, inf), got -1"),
    (lambda: HARFERegressor(alpha="gcv").fit(*GOOD), ValueError, "alpha must be 'auto' or a number"),
    (lambda: HARFERegressor(pursuit="htp").fit(*GOOD), ValueError, "pursuit must be 'prune', 'harfe', 'cosamp' or 'omp'"),
    (lambda: HARFERegressor(supports=None).fit(*GOOD), ValueError, "supports must be 'auto' or 'all'"),
    (lambda: HARFERegressor(order=0).fit(*GOOD), ValueError, "order must be 'auto' or an integer of at least 1, got 0"),
    (lambda: HARFERegressor(n_components=0).fit(*GOOD), ValueError, "n_components must be an integer of at least 1"),
    (lambda: HARFERegressor(bandwidth="silverman").fit(*GOOD), (ValueError, TypeError), "bandwidth"),
    (lambda: HARFERegressor(kernel="unifrom").fit(*GOOD), ValueError, "or 'uniform'"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


def leave_one_out(X, y, w, lams, intercept):
    """`_LeaveOneOut`, and its error by as many fits as there are rows; for λ = 0 those of smallest norm."""

    def centred(X, y, w):
        mean, offset = (w @ X / w.sum(), w @ y / w.sum()) if intercept else (0.0, 0.0)
        root = np.sqrt(w)[:, None]
        return (X - mean) * root, (y - offset) * root, mean, offset

    def solve(A, Y, lam):
        return ridge(A, Y, lam) if lam else np.linalg.lstsq(A, Y, rcond=1e-10)[0]

    A, Y, _, _ = centred(X, y, w)
    fit = _LeaveOneOut(*map(torch.from_numpy, (A, Y, w)), intercept, lams)
    errors = []
    for lam in lams:
        total = 0.0
        for i in range(len(X)):
            rest = np.arange(len(X)) != i
            B, Z, mean, offset = centred(X[rest], y[rest], w[rest])
            total += w[i] * (((X[i] - mean) @ solve(B, Z, lam) + offset - y[i]) ** 2).sum()
        errors.append(total / w.sum())
    np.testing.assert_allclose(fit.coef().numpy(), solve(A, Y, float(fit.lam)), rtol=1e-7, atol=1e-9)
    return fit.squares.sum(0).numpy() / w.sum(), errors


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("N", [3, 9, 40])
def test_leave_one_out_by_brute_force(N, intercept):
    """Equation (7.10) against as many fits as there are rows, with weights, for several penalties."""
    rng = np.random.default_rng(N)
    X, y, w = rng.standard_normal((12, N)), rng.standard_normal((12, 2)), rng.uniform(0.1, 30, 12)
    np.testing.assert_allclose(*leave_one_out(X, y, w, [0.01, 1.0, 30.0], intercept), rtol=1e-8)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("lam", [0.0, 1e-11, 0.1])
@pytest.mark.parametrize("N, rank", [(9, None), (10, None), (11, None), (15, None), (17, None), (18, None), (20, None),
                                     (21, None), (40, None), (30, 4), (12, 4), (9, 4)])
def test_leave_one_out_where_products_are_singular(N, rank, lam, intercept):
    """AAᵀ or AᵀA with null directions, and penalties that are next to nothing."""
    rng = np.random.default_rng(N)
    X, y = rng.standard_normal((20, N)), rng.standard_normal((20, 1))
    if rank:
        X = rng.standard_normal((20, rank)) @ rng.standard_normal((rank, N))
    if lam == 1e-11 and (rank or N > 17):
        return  # the normal equations of the reference are singular
    np.testing.assert_allclose(*leave_one_out(X, y, np.ones(20), [lam], intercept), rtol=1e-5)


few = pytest.mark.filterwarnings("ignore:.*features cannot look at all")  # scikit-learn sets n_components to 1


@few
def test_scikit_learns_contract():
    results = check_estimator(HARFERegressor(n_components=100), on_skip=None)
    assert len(results) > 40
    assert {r["status"] for r in results} == {"passed"}, [r for r in results if r["status"] != "passed"]


@few
def test_scikit_learns_contract_with_other_parameters():
    for estimator in (
        HARFERegressor(40, 1, sparsity=5, alpha=0.01, supports="all", bandwidth="scale", pursuit="harfe"),
        HARFERegressor(100, pursuit="harfe"),
    ):
        results = check_estimator(estimator, on_skip=None)
        assert {r["status"] for r in results} == {"passed"}, [r for r in results if r["status"] != "passed"]


def smooth_data(n=150, d=5, seed=0):
    X = np.random.default_rng(seed).uniform(-1, 1, (n, d))
    return X, X[:, 0] * X[:, 3] + X[:, 1] ** 2


def test_finds_the_structure():
    X, y = smooth_data(300)
    model = HARFERegressor(random_state=0).fit(X[:150], y[:150])
    assert abs(model.predict(X[150:]) - y[150:]).max() < 1e-4
    assert model.active_inputs_.tolist() == [0, 1, 3]
    assert (0, 3) in model.supports_ and all({0, 1, 3} & set(s) for s in model.supports_)
    S = model.interaction_strengths()
    assert S[1, 1] == pytest.approx(0.444, abs=0.05) and S[0, 3] == pytest.approx(0.556, abs=0.05)
    assert np.triu(S).sum() == pytest.approx(1)


@pytest.mark.parametrize("seed", range(3))
def test_friedman(seed):
    X, y = make_friedman1(700, 10, random_state=seed)
    model = HARFERegressor(random_state=seed).fit(X[:200], y[:200])
    assert np.mean((model.predict(X[200:]) - y[200:]) ** 2) < 0.05
    assert model.active_inputs_.tolist() == [0, 1, 2, 3, 4]
    noise = np.random.default_rng(seed).normal(size=200)
    model.fit(X[:200], y[:200] + noise)
    assert np.mean((model.predict(X[200:]) - y[200:]) ** 2) < 1.2  # a constant has 24


@pytest.mark.parametrize("pursuit", ["prune", "harfe", "cosamp", "omp"])
def test_sparsity_and_alpha_as_given(pursuit):
    X, y = smooth_data()
    model = HARFERegressor(300, sparsity=12, alpha=1e-6, pursuit=pursuit, random_state=0).fit(X, y)
    assert model.sparsity_ == 12 and model.alpha_ == pytest.approx(1e-6)
    assert len(model.coef_) == len(model.support_) == 12
    assert np.mean((model.predict(X) - y) ** 2) < 0.1 * y.var()


def test_papers_algorithm_through_the_estimator():
    """supports="all", a fixed bandwidth, s and λ: the estimator is `harfe` on centred, scaled columns."""
    X, y = smooth_data()
    model = HARFERegressor(200, sparsity=10, alpha=1e-3, pursuit="harfe", supports="all", bandwidth=1.0,
                           random_state=5).fit(X, y)
    W, b = sparse_frequencies(200, 5, 2, phases=True, random_state=5)
    A = feature_matrix(X, W, b)
    A -= A.mean(0)
    norm = np.linalg.norm(A, axis=0)
    found = harfe(A / norm, y - y.mean(), 10, 1e-3 / len(y))
    np.testing.assert_array_equal(model.support_, found.support)
    np.testing.assert_allclose(model.coef_, found.coef[found.support] / norm[found.support], rtol=1e-6)
    np.testing.assert_allclose(model.frequencies_, W[found.support])


def test_order_auto():
    X = np.random.default_rng(0).uniform(-1, 1, (120, 4))
    additive = np.sin(2 * X[:, 0]) + X[:, 1] ** 2
    triple = X[:, 0] * X[:, 1] * X[:, 2]
    assert HARFERegressor(600, "auto", random_state=0).fit(X, additive).order_ == 1
    assert HARFERegressor(600, "auto", random_state=0).fit(X, triple).order_ == 3
    assert HARFERegressor(50, "auto", random_state=0).fit(X[:, :1], additive).order_ == 1


def test_learned_bandwidths():
    X, y = smooth_data(200)
    model = HARFERegressor(200, bandwidth="learned", random_state=0).fit(X[:100], y[:100])
    assert abs(model.predict(X[100:]) - y[100:]).max() < 1e-2
    assert model.bandwidth_.shape == (5,) and model.active_inputs_.tolist() == [0, 1, 3]


def test_memory_of_the_leave_one_out_errors():
    """Row blocks: a small budget gives the same errors, weighted, primal and dual."""
    rng = np.random.default_rng(0)
    Y, w = torch.from_numpy(rng.standard_normal((60, 2))), torch.from_numpy(rng.integers(1, 3, 60)).double()
    for N in (10, 100):
        A = torch.from_numpy(rng.standard_normal((60, N)))
        whole = _LeaveOneOut(A, Y, w, False)
        with memory_budget(1):
            pieces = _LeaveOneOut(A, Y, w, False)
        torch.testing.assert_close(whole.squares, pieces.squares)
        if N > 60:
            torch.testing.assert_close(_LeaveOneOut(None, Y, w, False, gram=A @ A.T).squares, whole.squares)


def test_several_outputs_and_pickling_and_clone():
    X, y = smooth_data()
    Y = np.column_stack([y, np.cos(2 * X[:, 2])])
    model = HARFERegressor(300, random_state=0).fit(X, Y)
    assert model.coef_.shape[0] == 2 and len(model.sparsity_) == 2 and model.alpha_.shape == model.loo_error_.shape == (2,)
    assert abs(model.predict(X) - Y).max() < 1e-2
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(clone(model).fit(X, Y).predict(X), model.predict(X))
    assert not {"_data", "_plan", "_sets"} & set(vars(model))


def test_kinds_of_data_in_and_out():
    X, y = smooth_data()
    model = HARFERegressor(200, random_state=0).fit(X, y)
    expected = model.predict(X)
    T = HARFERegressor(200, random_state=0).fit(torch.from_numpy(X), torch.from_numpy(y)).predict(torch.from_numpy(X))
    assert isinstance(T, torch.Tensor)
    np.testing.assert_allclose(T.numpy(), expected, atol=1e-9)
    frame = pd.DataFrame(X, columns=list("abcde"))
    named = HARFERegressor(200, random_state=0).fit(frame, pd.Series(y))
    assert named.feature_names_in_.tolist() == list("abcde")
    np.testing.assert_allclose(named.predict(frame), expected, atol=1e-9)
    X32 = X.astype(np.float32)
    single = HARFERegressor(200, random_state=0).fit(X32, y.astype(np.float32)).predict(X32)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, y, atol=2e-3)


def test_grid_search():
    X, y = smooth_data(60)
    model = HARFERegressor(60, bandwidth="scale", random_state=0)
    search = GridSearchCV(model, {"order": [1, 2], "sparsity": [2, 20]}, cv=2)
    search.fit(X, y)
    assert search.best_params_ == {"order": 2, "sparsity": 20}


@pytest.mark.parametrize("pursuit", ["prune", "harfe"])
def test_weights_are_repeated_rows_and_their_unit_does_not_count(pursuit):
    rng = np.random.default_rng(0)
    X, y = smooth_data(40)
    y = y + 0.1 * rng.standard_normal(40)
    model, w = HARFERegressor(100, pursuit=pursuit, random_state=0), rng.integers(0, 4, 40)
    a = model.fit(X, y, w).predict(X)
    b = model.fit(np.repeat(X, w, 0), np.repeat(y, w)).predict(X)
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)
    a, error = model.fit(X, y).predict(X), model.loo_error_
    for data in [(X, y, np.full(40, 2.0)), (np.tile(X, (2, 1)), np.tile(y, 2)), (X, y, np.full(40, 1e4)),
                 (X, y, np.full(40, 1e-4))]:
        np.testing.assert_allclose(model.fit(*data).predict(X), a, rtol=1e-6, atol=1e-8)
        assert model.loo_error_ == pytest.approx(error)


@pytest.mark.parametrize("intercept", [False, True])
def test_leave_one_out_error_is_a_share_of_the_variance(intercept):
    """That of the columns in use, by as many fits as there are rows, for two outputs with weights."""
    X, y = smooth_data(40)
    Y, w = np.c_[y, 3 * np.cos(X[:, 2]) + 100], np.random.default_rng(0).uniform(0.5, 2, 40)
    w /= w.mean()
    options = dict(sparsity=6, alpha=0.1, supports="all", n_folds=None, fit_intercept=intercept, random_state=0)
    model = HARFERegressor(60, **options).fit(X, Y, w)
    for c, y, found in zip(model.coef_, Y.T, model.loo_error_, strict=True):
        A = np.sin(X @ model.frequencies_[c != 0].T + model.phases_[c != 0])
        A /= np.sqrt(w @ (A - intercept * np.average(A, 0, w)) ** 2)
        error = leave_one_out(A, y[:, None], w, [0.1], intercept)[1][0]
        assert found == pytest.approx(error / np.average((y - np.average(y, 0, w)) ** 2, 0, w), rel=1e-6)


def test_a_bootstrap_sample_does_not_fool_the_choice():
    X, y = make_friedman1(700, 10, noise=1.0, random_state=0)
    rows = np.random.default_rng(0).integers(0, 200, 200)
    errors = []
    for fitted in (rows, np.unique(rows)):
        model = HARFERegressor(random_state=0).fit(X[fitted], y[fitted])
        errors.append(np.mean((model.predict(X[200:]) - y[200:]) ** 2))
        assert model.loo_error_ > 0.3 / y.var()
    assert errors[0] < 2 * errors[1]


@pytest.mark.parametrize("unit", [1e-200, 1e-100, 1e100, 1e150])
def test_units_of_the_targets(unit):
    X, y = smooth_data(60)
    model = HARFERegressor(100, random_state=0)
    p, error = model.fit(X, y).predict(X), model.loo_error_
    np.testing.assert_allclose(model.fit(X, unit * y).predict(X) / unit, p, atol=1e-8)
    assert model.loo_error_ == pytest.approx(error, rel=1e-3)


@pytest.mark.parametrize("unit", [1.0, 1e-3, 1e3])
def test_each_output_has_a_say_in_the_sets(unit):
    """Whatever its unit, and whether it is the first or not."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (120, 6))
    Y = np.c_[np.sin(2 * X[:, 0]), unit * (np.sin(2 * X[:, 1]) + 0.1 * rng.normal(size=120))]
    for outputs in (Y, Y[:, ::-1]):
        model = HARFERegressor(120, order=1, bandwidth=1.0, n_folds=None, random_state=0).fit(X, outputs)
        assert {(0,), (1,)} <= set(model.supports_)


def test_sets_of_each_output_are_kept_to_the_last():
    """The first output has one of forty sets of two columns, the second four."""
    rng = np.random.default_rng(0)
    A, label, ones = torch.from_numpy(rng.normal(size=(200, 80))), torch.arange(80) // 2, torch.ones(200).double()
    Y = torch.stack([A[:, :2].sum(1), A[:, 72:].sum(1)], 1)
    eight = next(S for S, _ in _eliminate(A, Y, ones, False, label) if len(S) == 16)
    assert {0, 36, 37, 38, 39} <= set(label[eight].tolist())


def test_sets_are_looked_for_though_order_and_bandwidth_are_given():
    X = np.random.default_rng(0).uniform(-1, 1, (100, 6))
    model = HARFERegressor(120, order=1, bandwidth=1.0, n_folds=None, random_state=0).fit(X, np.sin(2 * X[:, 2]))
    assert (2,) in model.supports_ and len(model.supports_) < 6


def test_units_of_the_inputs():
    X, y = smooth_data(60)
    model = HARFERegressor(100, random_state=0)
    p = model.fit(X, y).predict(X)
    for unit in (2.0**-560, 2.0**500):
        np.testing.assert_allclose(model.fit(unit * X, y).predict(unit * X), p, atol=1e-8)


def test_more_sets_of_inputs_than_features():
    X, y = smooth_data(40, d=15)
    with pytest.warns(UserWarning, match="cannot look at all 105 sets of 2 inputs"):
        HARFERegressor(100, random_state=0).fit(X, y)
    HARFERegressor(100, supports="all", random_state=0).fit(X, y)
    assert HARFERegressor(100, "auto", random_state=0).fit(X, y).order_ == 1
    with pytest.warns(UserWarning, match="cannot look at all 15 sets of 1 inputs"):
        HARFERegressor(10, "auto", random_state=0).fit(X, y)


def test_kernel_and_bandwidth_agree():
    X, y = smooth_data(60)
    for kernel in ("gaussian", "laplacian", Gaussian(np.array([1.0, 2.0, 1.0, 1.0, 0.5])), Gaussian(2.0)):
        model = HARFERegressor(200, kernel=kernel, random_state=0).fit(X, y)
        np.testing.assert_allclose(model.kernel_.bandwidth, model.bandwidth_)
        if not isinstance(kernel, str):
            ratio = model.bandwidth_ / kernel.bandwidth
            assert ratio.std() < 1e-12 and min(abs(ratio[0] - 2 / 3**k) for k in range(5)) < 1e-12


def test_noise_and_a_constant():
    """A constant needs no features, and noise is answered by a constant; without folds features are kept."""
    X, noise = smooth_data(100)[0], np.random.default_rng(0).standard_normal(100)
    model = HARFERegressor(200, random_state=0).fit(X, np.full(100, 3.0))
    assert model.sparsity_ == model.loo_error_ == 0 and model.coef_.shape == (0,) and model.intercept_ == 3.0
    model.fit(X, noise)
    assert model.chosen_ == "constant" and model.coef_.shape == (0,)
    assert model.intercept_ == pytest.approx(noise.mean()) and 0.8 < model.error_ / noise.var() < 1.3
    model.set_params(n_folds=None).fit(X, noise)
    assert model.chosen_ == "expansion" and 0 < len(model.support_) == model.sparsity_ < 200
    assert math.isnan(model.error_) and model.errors_ == {}


@pytest.mark.parametrize("change", [
    dict(), dict(order="auto"), dict(pursuit="harfe"), dict(pursuit="omp"), dict(sparsity=7), dict(alpha=0.0),
    dict(activation="relu"), dict(fit_intercept=False), dict(kernel="uniform"), dict(complete=True),
])
def test_degenerate_data(change):
    """One row, two rows, constant and repeated columns, constant y, fewer rows than inputs: finite predictions."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 3))
    X = np.column_stack([X, np.full(12, 0.3), X[:, 0]])
    y = X[:, 0] + X[:, 1] ** 2
    model = HARFERegressor(20, random_state=0).set_params(**change)
    for data, target in [(X, y), (X[:1], y[:1]), (X[:2], y[:2]), (X[:4], y[:4]), (X, 0 * y), (X, 0 * y + 5),
                         (0 * X, y), (X[:, 3:4], y), (np.repeat(X[:3], 5, 0), np.repeat(y[:3], 5)),
                         (1e8 * X, y), (1e-8 * X, y), (X, 1e100 * y), (X, 1e-100 * y)]:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if model.complete and data.shape[1] < 2:
                continue
            p = model.fit(data, target).predict(data)
        assert np.isfinite(p).all() and np.isfinite(model.interaction_strengths()).all()
        if np.ptp(target) == 0 and model.fit_intercept:
            np.testing.assert_allclose(p, target, atol=1e-12)
        assert np.linalg.norm(p - target) <= 1.01 * np.linalg.norm(target)


@pytest.mark.parametrize("extra", [0.5, 1.0, 3.0])
def test_as_many_columns_come_in_as_asked_for(extra):
    rng = np.random.default_rng(0)
    A, s = rng.normal(size=(40, 60)), 4
    y = A[:, :6] @ rng.normal(size=6) + 0.5 * rng.normal(size=40)
    fit = lambda S: np.linalg.lstsq(A[:, S], y, rcond=None)[0]
    new = np.argsort(-abs(A.T @ y))[: round(extra * s)]
    S = new[np.argsort(-abs(fit(new)))[:s]]
    assert np.isclose(cosamp(A, y, s, extra=extra).residuals[0], np.linalg.norm(y - A[:, S] @ fit(S)))


def test_the_step_where_columns_are_more_than_rows():
    A = np.random.default_rng(0).normal(size=(6, 10))
    support = _Support(_System(A, A[:, 0], 10, 0.5))
    support.solve(np.arange(10))
    assert support.G is None and np.isclose(support.step(), 1 / ((A**2).sum(0).mean() + 6 * 0.5))


def test_order_and_bandwidth_are_chosen_by_weighted_rows():
    """Of more rows than a search looks at, those that hardly weigh have no say in the order."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (600, 3))
    light = np.arange(600) % 2 == 1
    y = np.where(light, 5 * X[:, 0] * X[:, 1], np.sin(2 * X[:, 0]) + X[:, 1])
    model = HARFERegressor(100, order="auto", n_folds=None, random_state=0).fit(X, y, sample_weight=np.where(light, 1e-9, 1.0))
    assert model.order_ == 1


def test_the_smallest_order_that_errors_do_not_speak_against():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (150, 3))
        y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.5 * rng.normal(size=150)
        assert HARFERegressor(100, order="auto", n_folds=None, random_state=0).fit(X, y).order_ == 1
