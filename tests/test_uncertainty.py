"""How sure: the law against exact processes, draws as statistics, intervals against refits, edges."""


import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from scipy.special import softmax
from scipy.stats import kstest
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_iris, make_classification
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, DotProduct
from sklearn.metrics import log_loss
from sklearn.preprocessing import FunctionTransformer
from sklearn.random_projection import SparseRandomProjection

import rfteach.centers
import rfteach.conjugate
import rfteach.eigenpro_training
import rfteach.feature_ridge
import rfteach.streaming
import rfteach.uncertainty
from rfteach.adaptive import AdaptiveFeatureRegressor
from rfteach.agop import RFMClassifier, RFMRegressor
from rfteach.arrays import memory_budget
from rfteach.centers import CentersClassifier, CentersRegressor
from rfteach.chaos import SparsePCE
from rfteach.conjugate import KernelRidgeRegressor
from rfteach.copies import row_hashes
from rfteach.eigenpro import EigenProClassifier, EigenProRegressor
from rfteach.feature_ridge import RandomFeatureRidge, RandomFeatureRidgeClassifier
from rfteach.features import RandomFourierFeatures
from rfteach.harfe_regressor import HARFERegressor
from rfteach.intervals import calibrate, smoothed
from rfteach.kernels import Gaussian
from rfteach.projected import ProjectedSurrogate
from rfteach.rbf import RBFRegressor
from rfteach.srfe import SRFERegressor
from rfteach.streaming import StreamingRidge
from rfteach.uncertainty import interval_score, jackknife_plus, local_scale, pathwise, posterior, weighted_quantile


def table(n=40, N=6, k=None, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, N)), rng.normal(size=(n,) if k is None else (n, k)), rng.uniform(0.2, 3, n)


# --- the law


@pytest.mark.parametrize("n, N", [(40, 6), (6, 40), (12, 12)])
def test_mean_and_deviation_are_those_of_the_process(n, N):
    A, y, w = table(n, N)
    new = table(9, N, seed=1)[0]
    found = posterior(A, y, 0.3, w=w, fit_intercept=False)
    peer = GaussianProcessRegressor(DotProduct(0.0, "fixed"), alpha=0.3 / w, optimizer=None).fit(A, y)
    mean, std = peer.predict(new, return_std=True)
    ours = found.predict(new, return_std=True)
    np.testing.assert_allclose(ours[0], mean, atol=1e-9)
    np.testing.assert_allclose(ours[1], std * (found.noise / 0.3) ** 0.5, atol=1e-7)


def test_an_intercept_is_a_feature_of_a_wide_prior():
    A, y, w = table()
    found, wide = posterior(A, y, 0.5, w=w), 1e6
    B = np.c_[A, np.full(len(A), wide)]
    peer = posterior(B, y, 0.5, w=w, fit_intercept=False)
    new = table(5, seed=2)[0]
    mean, std = found.predict(new, return_std=True)
    mean_p, std_p = peer.predict(np.c_[new, np.full(5, wide)], return_std=True)
    np.testing.assert_allclose(mean, mean_p, atol=1e-8)
    np.testing.assert_allclose(std / found.noise**0.5, std_p / peer.noise**0.5, rtol=1e-6)


def test_evidence_finds_noise_and_scale():
    """Targets drawn from the model; errors of the estimates over 60 draws against the truth."""
    noise, lam = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        A = rng.normal(size=(150, 30))
        y = A @ (0.7 * rng.normal(size=30)) + 0.5 * rng.normal(size=150) + 3
        found = posterior(A, y)
        noise.append(found.noise)
        lam.append(np.log(found.lam))
    assert abs(np.mean(noise) - 0.25) < 4 * np.std(noise) / 60**0.5
    assert abs(np.mean(lam) - np.log(0.25 / 0.49)) < 4 * np.std(lam) / 60**0.5 + 0.1  # the mode, to a twentieth of a decade


@pytest.mark.parametrize("k, fit_intercept, unit", [(None, False, 1.0), (None, True, 1.0), (2, True, 2.0**400)])
def test_evidence_is_the_density_of_the_targets(k, fit_intercept, unit):
    """By its matrices; where an intercept is fitted, the integral over all constants."""
    A, y, w = table(20, 3, k)
    found, right, one = posterior(A, unit * y, 0.7, w=w, fit_intercept=fit_intercept), 0.0, np.ones(20)
    for t, noise in zip(unit * y.reshape(20, -1).T, np.atleast_1d(found.noise)):
        P = np.linalg.inv(noise * (np.diag(1 / w) + A @ A.T / 0.7))
        right += 0.5 * np.linalg.slogdet(P / (2 * np.pi))[1]
        if fit_intercept:
            right -= 0.5 * np.log(one @ P @ one / (2 * np.pi))
            t = t - one @ P @ t / (one @ P @ one)
        right -= 0.5 * t @ P @ t
    assert found.log_evidence == pytest.approx(right, abs=1e-6)


def test_units_outputs_and_order():
    A, Y, w = table(k=2)
    found, order = posterior(A, Y, w=w), np.random.default_rng(3).permutation(len(A))
    other = posterior(8e3 * A[order], 1e-5 * Y[order] + 7, w=w[order])
    new = table(4, seed=4)[0]
    for ours, theirs, shift in zip(found.predict(new, return_std=True), other.predict(8e3 * new, return_std=True), (7, 0)):
        np.testing.assert_allclose(1e5 * (theirs - shift), ours, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(other.noise, 1e-10 * found.noise, rtol=1e-9)
    np.testing.assert_allclose(other.lam, 64e6 * found.lam)
    assert abs(other.log_evidence - found.log_evidence - 2 * 39 * np.log(1e5)) < 1e-4
    one = posterior(A, Y[:, 1], found.lam, w=w)
    np.testing.assert_allclose(one.predict(new), found.predict(new)[:, 1], atol=1e-12)
    np.testing.assert_allclose(one.noise, found.noise[1])
    vanishing = posterior(np.r_[A, A[:3] + 1], np.r_[Y, Y[:3]], w=np.r_[w, 0, 0, 0])
    np.testing.assert_allclose(vanishing.coef, found.coef, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kinds_and_precisions(dtype):
    A, y, _ = table()
    right = posterior(A, y, 0.3).predict(A, return_std=True)
    for T in (lambda Z: Z.astype(dtype), lambda Z: torch.from_numpy(Z.astype(dtype))):
        found = posterior(T(A), T(y), 0.3).predict(T(A), return_std=True)
        for ours, exact in zip(found, right):
            assert type(ours) is type(T(A)) and str(ours.dtype).endswith(np.dtype(dtype).name)
            np.testing.assert_allclose(np.asarray(ours), exact, atol=1e-5 if dtype is np.float32 else 1e-12)
        ends = jackknife_plus(T(A), T(y), 0.3, T(A[:3]))
        assert type(ends) is type(T(A)) and str(ends.dtype).endswith(np.dtype(dtype).name)


@pytest.mark.parametrize("n, N, k", [(40, 6, None), (6, 15, 2)])
def test_draws_have_the_mean_and_the_covariance(n, N, k):
    A, y, w = table(n, N, k)
    new = table(4, N, seed=1)[0]
    found = posterior(A, y, 0.4, w=w)
    draws = found.draw(20_000, random_state=0)(new)
    assert draws.shape == (4, 20_000) if k is None else (4, 2, 20_000)
    mean, std = found.predict(new, return_std=True)
    assert (abs(draws.mean(-1) - mean) < 4.5 * std / 20_000**0.5).all()
    first = draws if k is None else draws[:, 0]
    exact = np.atleast_1d(found.noise)[0] * found.influence(new, new)
    error = ((np.outer(np.diag(exact), np.diag(exact)) + exact**2) / 20_000) ** 0.5
    assert (abs(np.cov(first) - exact) < 4.5 * error).all()
    assert (found.draw(3, random_state=1)(new) == found.draw(3, random_state=1)(new)).all()


def test_paths_are_draws_of_the_exact_process():
    """Marginals by Kolmogorov and Smirnov; the mean, to which the features of the prior do not matter."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (30, 2))
    y, w = np.sin(X[:, 0]) + X[:, 1], rng.uniform(0.5, 2, 30)
    new = np.array([[0.0, 0.0], [1.9, -1.5], [5.0, 5.0]])
    values = pathwise(Gaussian(1.3), X, y, 0.1, 2.0, w=w, n_draws=4000, n_components=8000, random_state=0)(new)
    peer = GaussianProcessRegressor(2.0 * RBF(1.3), alpha=0.1 / w, optimizer=None).fit(X, y)
    mean, std = peer.predict(new, return_std=True)
    assert (abs(values.mean(1) - mean) < 4 * std / 4000**0.5).all()
    assert all(kstest((v - m) / s, "norm").pvalue > 1e-3 for v, m, s in zip(values, mean, std))
    lifted = pathwise(Gaussian(1.3), X, y + 50, 0.1, 2.0, w=w, fit_intercept=True, n_draws=4000, random_state=0)(new[:2])
    level = pathwise(Gaussian(1.3), X, y, 0.1, 2.0, w=w, fit_intercept=True, n_draws=4000, random_state=0)(new[:2])
    np.testing.assert_allclose(lifted, level + 50, atol=1e-8)


# --- intervals


def test_paths_have_gradients_and_stay_as_they_are():
    X, y = np.random.default_rng(0).uniform(-1, 1, (12, 2)), np.arange(12.0)
    kernel = Gaussian(torch.tensor(0.8, dtype=torch.float64, requires_grad=True))
    f = pathwise(kernel, X, y, 0.1, n_components=40, n_draws=2, random_state=0)
    at = torch.tensor([[0.3, -0.2], [0.5, 0.9]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(f, (at,))
    before = f(at).detach()
    torch.testing.assert_close(f(at.detach()), before)
    X[:] = 0
    kernel.set_params(bandwidth=3.0)
    torch.testing.assert_close(f(at.detach()), before, rtol=1e-10, atol=1e-10)


def test_a_scale_stays_as_it_is_and_goes_by_blocks(monkeypatch):
    F, r, w = np.random.default_rng(0).random((60, 2)), np.linspace(-1, 2, 60), np.full(60, 2.0)
    scale = local_scale(F, r, w)
    values = scale(F), scale.half_widths(F)
    r[:], w[:] = 9, 5
    sizes, whole = [], type(scale._columns).__call__
    monkeypatch.setattr(type(scale._columns), "__call__", lambda self, F: sizes.append(len(F)) or whole(self, F))
    with memory_budget(1):
        few = scale(F), scale.half_widths(F)
    np.testing.assert_allclose(few, values, rtol=1e-12)
    assert max(sizes) == 1


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n, N", [(25, 6), (12, 20)])
def test_jackknife_is_that_of_refits(fit_intercept, n, N):
    """Several outputs and weights; the quantile by counting weights."""
    A, Y, w = table(n, N, 2)
    new, coverage = table(5, N, seed=1)[0], 0.7
    ends = jackknife_plus(A, Y, 0.6, new, coverage, w=w, fit_intercept=fit_intercept)
    others = [np.arange(n) != i for i in range(n)]
    fits = [posterior(A[o], Y[o], 0.6, w=w[o], fit_intercept=fit_intercept) for o in others]
    r = np.stack([abs(Y[i] - fits[i].predict(A[[i]])[0]) for i in range(n)])
    p = np.stack([fit.predict(new) for fit in fits])  # (n, m, k)

    def quantile(values):
        order = np.argsort(values)
        return values[order][np.searchsorted(np.cumsum(w[order]), coverage * (w.sum() + w.mean()))]

    high = np.apply_along_axis(quantile, 0, p + r[:, None])
    low = -np.apply_along_axis(quantile, 0, r[:, None] - p)
    np.testing.assert_allclose(ends, np.stack([low, high], -1), atol=1e-10)


def test_jackknife_goes_by_blocks(monkeypatch):
    A, y, _ = table()
    whole, sizes = jackknife_plus(A, y, 0.3, A), []
    quantile = lambda T, *more: sizes.append(len(T)) or weighted_quantile(T, *more)
    monkeypatch.setattr(rfteach.uncertainty, "weighted_quantile", quantile)
    with memory_budget(1):
        np.testing.assert_allclose(jackknife_plus(A, y, 0.3, A), whole, rtol=1e-12)
    assert max(sizes) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("unit", [1.0, 1e5])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n, N", [(25, 60), (25, 6)])
def test_jackknife_with_a_vanishing_penalty_is_that_of_least_squares(n, N, fit_intercept, unit, dtype):
    """More features than rows: every row is fitted, and what the others say of it is the solution of smallest norm."""
    A, y, _ = table(n, N)
    A, y, new = A.astype(dtype), y.astype(dtype), table(3, N, seed=1)[0].astype(dtype)
    r, p = np.empty(n), np.empty((n, 3))
    for i in range(n):
        others = np.arange(n) != i
        m, level = (A[others].mean(0, dtype=float), y[others].mean(dtype=float)) if fit_intercept else (0.0, 0.0)
        c = np.linalg.pinv(A[others] - m) @ (y[others] - level)
        r[i], p[i] = abs(y[i] - level - (A[i] - m) @ c), level + (new - m) @ c
    k = int(np.ceil(0.8 * (n + 1))) - 1
    right = np.stack([-np.sort(r[:, None] - p, 0)[k], np.sort(p + r[:, None], 0)[k]], 1)
    for lam in (1e-10, 1e-14):
        ends = jackknife_plus(dtype(unit) * A, y, lam * unit**2, dtype(unit) * new, 0.8, fit_intercept=fit_intercept)
        np.testing.assert_allclose(ends, right, atol=1e-5 if dtype is np.float32 else 1e-8)


@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("unit", [1e-24, 1e20])
def test_the_square_of_the_noise_may_be_beyond_float32(unit, k):
    A, y, _ = table(k=k)
    small = [T.astype(np.float32) for T in (A, y * unit)]
    found, right = posterior(*small, 0.3), posterior(A, y, 0.3)
    np.testing.assert_allclose(found.noise, unit**2 * right.noise, rtol=1e-5)
    ours, exact = (np.array(f.predict(A[:3].astype(f.coef.dtype), return_std=True), float) for f in (found, right))
    np.testing.assert_allclose(ours, unit * exact, rtol=1e-5, atol=1e-5 * unit)
    ends = jackknife_plus(*small, 0.3, small[0][:3])
    np.testing.assert_allclose(ends / unit, jackknife_plus(A, y, 0.3, A[:3]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("unit", [2.0**-565, 2.0**532])
@pytest.mark.parametrize("model", [RandomFeatureRidge(alpha=0.1), RBFRegressor(20, "median", alpha=0.1, random_state=0)])
def test_the_square_of_the_noise_may_be_beyond_any_number(model, unit):
    X, y, _ = table(N=2)
    right, found = clone(model).fit(X, y), clone(model).fit(X, unit * y)
    np.testing.assert_allclose(found.predict(X, return_std=True)[1] / unit, right.predict(X, return_std=True)[1], rtol=1e-6)
    draws = (m.sample_functions(3, 0)(X) / s for m, s in ((found, unit), (right, 1.0)))
    np.testing.assert_allclose(*draws, rtol=1e-6, atol=1e-9)
    assert posterior(X, np.full(40, unit), 0.1).noise == 0


@pytest.mark.parametrize("k", [None, 2])
def test_draws_for_a_data_frame(k):
    A, y, _ = table(k=k)
    draw = posterior(A, y, 0.3).draw(3, random_state=0)
    frame = pd.DataFrame(A[:4], index=list("abcd"))
    assert isinstance(draw(frame), pd.DataFrame if k is None else np.ndarray)
    np.testing.assert_allclose(draw(frame), draw(A[:4]), atol=1e-12)


def test_quantile_counts_the_new_row():
    T = torch.arange(1.0, 20.0)[None, :, None].double()
    w = torch.ones(19).double()
    assert weighted_quantile(T, w, 0.9)[0, 0] == 18 and weighted_quantile(T, w, 0.95)[0, 0] == 19
    assert weighted_quantile(T, 7 * w, 0.9)[0, 0] == 18
    with pytest.raises(ValueError, match="coverage=0.96 needs at least 24 rows, got 19"):
        weighted_quantile(T, w, 0.96)


def test_scale_follows_the_noise_and_is_flat_without_it():
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (800, 2))
    size = np.exp(1.5 * X[:, 0])
    steep = local_scale(X, size * rng.normal(size=800)).half_widths(X, 0.9)[:, 0]
    assert np.corrcoef(np.log(steep), np.log(size))[0, 1] > 0.95
    flat = local_scale(X, rng.normal(size=800)).half_widths(X, 0.9)[:, 0]
    assert flat.std() < 0.1 * flat.mean() and abs(flat.mean() - 1.645) < 0.15


@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
def test_learned_intervals_cover(coverage):
    """New rows, over 40 tables of 150; the tolerance catches residuals that were not left out."""
    shares = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (650, 3))
        r = (0.2 + abs(X[:, 0])) * rng.standard_t(4, size=650)
        half = local_scale(X[:150], r[:150]).half_widths(X[150:], coverage)[:, 0]
        shares.append(np.mean(abs(r[150:]) <= half))
    error = np.std(shares) / 40**0.5
    assert abs(np.mean(shares) - coverage) < 4 * error + 0.01


def test_a_scale_leaves_whole_places_out():
    """As fits of the roots without any row of a place do; copies are one row with their weight."""
    rng = np.random.default_rng(0)
    place = rng.permutation(np.repeat(np.arange(40), 1 + rng.poisson(1.5, 40)))
    F, w, n = rng.uniform(-1, 1, (40, 2))[place], rng.uniform(0.3, 2, len(place)), len(place)
    r = np.exp(F[:, 0] + rng.normal(size=40)[place]) * rng.normal(size=n)
    found = local_scale(F, r, w, place=7 - place, n_components=20)
    A, roots = found._columns(F), np.sqrt(abs(r))
    M = (A - w @ A / w.sum()) * w[:, None] ** 0.5
    lams, left = np.linalg.norm(M, 2) ** 2 * np.logspace(3, -7, 21), np.zeros((21, n))
    for g in range(40):
        kept = place != g
        v = w[kept] / w[kept].sum()
        B, c = A[kept] - v @ A[kept], v @ roots[kept]
        for lam, out in zip(lams, left):
            slopes = np.linalg.solve((B.T * w[kept]) @ B + lam * np.eye(22), (B.T * w[kept]) @ (roots[kept] - c))
            out[~kept] = c + (A[~kept] - v @ A[kept]) @ slopes
    best = left[np.argmin(np.square(left - roots) @ w)]
    np.testing.assert_allclose(found.left_out[:, 0], np.maximum(best, 0.2 * (w @ roots) / w.sum()) ** 2, rtol=1e-6)
    copies, counts = r[np.unique(place, return_index=True)[1]], np.bincount(place)
    G = F[np.unique(place, return_index=True)[1]]
    again, once = local_scale(F, copies[place], place=place), local_scale(G, copies, counts)
    np.testing.assert_allclose(again.half_widths(G, 0.8), once.half_widths(G, 0.8), rtol=1e-6)


def drawn_again(rng):
    X = rng.normal(size=(620, 4))
    y, rows = X[:, 0] + rng.normal(size=620), rng.integers(120, size=360)
    return X[rows], y[rows], X[120:], y[120:]


def readings(rng):
    """Several at each of sixty places, which have effects of their own; and one at each of 500 new ones."""
    X, place = rng.uniform(-1, 1, (560, 2)), np.r_[np.repeat(np.arange(60), 1 + rng.poisson(3, 60)), np.arange(60, 560)]
    y = (np.sin(2 * X[:, 0]) + rng.normal(size=560))[place] + 0.2 * rng.normal(size=len(place))
    return X[place][:-500], y[:-500], X[60:], y[-500:]


@pytest.mark.parametrize("model", [RandomFeatureRidge(), StreamingRidge(), KernelRidgeRegressor()], ids=repr)
@pytest.mark.parametrize("table", [drawn_again, readings])
def test_intervals_cover_where_rows_share_a_place(model, table):
    """Scales that have seen copies cover .72 to .82 of new targets, but for a stream of rows drawn again."""
    shares = []
    for seed in range(25):
        X, y, X_new, y_new = table(np.random.default_rng(seed))
        low, high = clone(model).fit(X, y).predict_interval(X_new).T
        shares.append(np.mean((low <= y_new) & (y_new <= high)))
    error = np.std(shares) / 5
    assert abs(np.mean(shares) - 0.9) < 3 * error + 0.01 and error < 0.015, (np.mean(shares), error)


def test_scale_does_not_depend_on_order_weights_and_units():
    rng = np.random.default_rng(2)
    X, r = rng.normal(size=(120, 2)), rng.normal(size=(120, 2)) * [1.0, 30.0]
    right = local_scale(X, r).half_widths(X[:5], 0.8)
    order = rng.permutation(120)
    np.testing.assert_allclose(local_scale(X[order], r[order]).half_widths(X[:5], 0.8), right, rtol=1e-6)
    np.testing.assert_allclose(local_scale(X, r, np.full(120, 3.0)).half_widths(X[:5], 0.8), right, rtol=1e-6)
    np.testing.assert_allclose(local_scale(1e3 * X + 5, 1e-4 * r).half_widths(1e3 * X[:5] + 5, 0.8), 1e-4 * right, rtol=1e-5)
    np.testing.assert_allclose(local_scale(X, r[:, 1]).half_widths(X[:5], 0.8)[:, 0], right[:, 1], rtol=1e-6)


def test_edges():
    """Constant inputs, no error at all, few rows: numbers that are finite and not negative."""
    for F, r in ((np.ones((30, 2)), np.random.default_rng(0).normal(size=30)), (np.eye(30), np.zeros(30)),
                 (np.arange(12.0)[:, None], np.r_[np.zeros(11), 1.0])):
        half = local_scale(F, r).half_widths(F, 0.9)
        assert np.isfinite(half).all() and (half >= 0).all()
    still = posterior(np.eye(4), np.full(4, 2.0), 0.1)
    mean, std = still.predict(np.eye(4), return_std=True)
    assert np.allclose(mean, 2) and np.allclose(std, 0, atol=1e-12)
    assert np.isfinite(posterior(np.ones((5, 2)), np.arange(5.0)).predict(np.ones((1, 2)), return_std=True)).all()


@pytest.mark.parametrize("call, error, words", [
    (lambda A, y: posterior(A, y, 0.0), ValueError, "lam"),
    (lambda A, y: posterior(A, y, "loo"), ValueError, "lam"),
    (lambda A, y: posterior(A[:1], y[:1]), ValueError, "at least 2 rows, got 1"),
    (lambda A, y: posterior(A, y[:-1]), ValueError, "y"),
    (lambda A, y: posterior(A, y, w=-np.ones(len(y))), ValueError, "w must not be negative, got -1"),
    (lambda A, y: posterior(A, y, 1.0).predict(A[:, :2]), ValueError, "A"),
    (lambda A, y: posterior(A, y, 1.0).draw(0), ValueError, "n_draws"),
    (lambda A, y: jackknife_plus(A, y, "evidence", A), (ValueError, TypeError), "lam"),
    (lambda A, y: jackknife_plus(A, y, 1.0, A, 1.0), ValueError, "coverage"),
    (lambda A, y: jackknife_plus(A, y, 1.0, A[:, :2]), ValueError, "A_new must have"),
    (lambda A, y: jackknife_plus(A, y, 1.0, A, 0.99), ValueError, "at least 99 rows, got 40"),
    (lambda A, y: pathwise("gaussian", A, y, 0.0), ValueError, "noise"),
    (lambda A, y: pathwise("gaussian", A, y, 1.0, w=np.r_[0, np.ones(39)]), ValueError, "w must be above zero"),
    (lambda A, y: pathwise("gaussian", A, y, 1.0)(A[:, :2]), ValueError, "X"),
    (lambda A, y: local_scale(A, y[:-1]), ValueError, "residuals"),
    (lambda A, y: local_scale(A, np.r_[np.nan, y[1:]]), ValueError, "residuals"),
    (lambda A, y: local_scale(A, y, np.r_[0, np.ones(39)]), ValueError, "w must be above zero"),
    (lambda A, y: local_scale(A, y, place=np.arange(39)), ValueError, "place"),
    (lambda A, y: local_scale(A, y, place=np.zeros(40)), ValueError, "rows of one place must be equal in F"),
    (lambda A, y: local_scale(A[:8].repeat(5, 0), y, place=np.repeat(np.arange(8), 5)).half_widths(A), ValueError,
     "coverage=0.9 needs at least 9 places with rows, got 8"),
    (lambda A, y: local_scale(A, y, place=np.ones((40, 2))), ValueError, "place: Expected 1D array"),
    (lambda A, y: local_scale(A, y).half_widths(A[:, :2]), ValueError, "F"),
    (lambda A, y: interval_score(y, y, y, 0.0), ValueError, "coverage"),
    (lambda A, y: interval_score(y, y, y[:, None], 0.9), ValueError, r"one shape, got \(40,\), \(40,\), \(40, 1\)"),
    (lambda A, y: interval_score(y, y[1:], y, 0.9), ValueError, "one shape"),
])
def test_what_cannot_be_taken_is_named(call, error, words):
    A, y, _ = table()
    with pytest.raises(error, match=words):
        call(A, y)


def test_features_of_a_map():
    """The std of few features is starved, that of many is the kernel's."""
    X = np.random.default_rng(0).uniform(-2, 2, (60, 1))
    y, far = np.sin(X[:, 0]), np.array([[30.0]])
    stds = []
    for N in (20, 2000):
        Z = RandomFourierFeatures(n_components=N, form="paired", random_state=0).fit(X)
        found = posterior(Z.transform(X), y, 1e-3, fit_intercept=False)
        stds.append(found.predict(Z.transform(far), return_std=True)[1][0] / (found.noise / 1e-3) ** 0.5)
    assert stds[0] < 0.8 < 0.97 < stds[1] <= 1


# --- estimators


def refits(model, X, y, w):
    """Residuals of n fits, each without a row and its copies, with the features and the penalty of the model."""
    features, out = FrozenEstimator(model.features_), np.zeros((len(X), np.size(y) // len(y)))
    for i in range(len(X)):
        others = (X != X[i]).any(1)
        fit = RandomFeatureRidge(features, model.alpha_, solver="qr").fit(X[others], y[others], w[others])
        out[i] = y[i] - fit.predict(X[[i]])[0]
    return out


@pytest.mark.parametrize("n, N, alpha", [(60, 20, "loo"), (25, 80, "loo"), (60, 20, 0.3), (25, 80, 0.3), (60, 20, 0.0)])
@pytest.mark.parametrize("copies", [False, True])
def test_residuals_that_are_kept_are_those_of_refits(n, N, copies, alpha):
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(n, 2)), rng.uniform(0.3, 2, n)
    X[n // 2 :: 3] = X[0] if copies else X[n // 2 :: 3]
    y = np.c_[np.sin(X[:, 0]), 100 * X[:, 1]] + rng.normal(size=(n, 2))
    features = RandomFourierFeatures(bandwidth=1.0, n_components=N, random_state=0)
    model = RandomFeatureRidge(features, alpha).fit(X, y, w)
    right, left = refits(model, X, y, w), model.left_out_
    order, order_left = np.lexsort(right.T), np.lexsort(left.residuals.T)
    np.testing.assert_allclose(left.residuals[order_left], right[order], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(left.w[order_left] / left.w.sum(), (w / w.sum())[order])
    np.testing.assert_array_equal(left.inputs[order_left], X[order])
    np.testing.assert_allclose(left.predictions[order_left], (y - right)[order], rtol=1e-6, atol=1e-6)


REGRESSORS = {
    "ridge": RandomFeatureRidge(),
    "gcv": RandomFeatureRidge(alpha="gcv"),
    "given": RandomFeatureRidge(alpha=0.3),
    "rbf": RBFRegressor(random_state=0),
    "srfe": SRFERegressor(100, random_state=0),
    "harfe": HARFERegressor(40, random_state=0),
    "chaos": SparsePCE((4, 4)),
    "metric": RFMRegressor(),
    "landmarks": RFMRegressor(solver="landmarks", n_centers=60, n_subsample=200),
    "more rows": RFMRegressor(n_subsample=120, n_rounds=1),
    "adaptive": AdaptiveFeatureRegressor(100, n_frequencies=8, max_iter=15, random_state=0),
    "projected": ProjectedSurrogate(n_reduced=2, budget=2, random_state=0),
    "centers": CentersRegressor(centers=100, random_state=0),
    "kernel": KernelRidgeRegressor(),
    "kernel, given": KernelRidgeRegressor(alpha=0.05),
}


@pytest.mark.parametrize("alpha", ["loo", 0.3])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("many", [False, True])
def test_errors_of_kernel_ridge_are_those_of_refits(monkeypatch, many, intercept, alpha):
    """With copies, weights and two outputs in units of their own: each row alone, or of many rows the last ones together."""
    if many:
        monkeypatch.setattr(rfteach.conjugate, "_ROWS", 40)
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(70, 2)), rng.uniform(0.3, 2, 70)
    X[40::3], w[5] = X[0], 0
    Y = np.c_[np.sin(X[:, 0]), 1e6 * X[:, 1] ** 2] + rng.normal(size=(70, 2))
    ways = {"fit_intercept": intercept, "tol": 1e-10}
    model = KernelRidgeRegressor(bandwidth=1.5, alpha=alpha, **ways).fit(X, Y, w)
    plain = KernelRidgeRegressor(bandwidth=1.5, alpha=model.alpha_, **ways)
    left = model.left_out_
    np.testing.assert_allclose(model.predict(X), clone(plain).set_params(tol=1e-12).fit(X, Y, w).predict(X), rtol=1e-7, atol=1e-7)
    np.testing.assert_array_equal(left.targets, Y[left.rows])
    np.testing.assert_array_equal(left.inputs, X[left.rows])
    np.testing.assert_array_equal(left.w, w[left.rows])
    assert len(left.rows) == 69 if not many else 20 <= len(left.rows) <= 30
    assert not many or (X[left.rows] == X[0]).all(1).sum() in (0, 11)
    for x, said in zip(left.inputs, left.predictions):
        rest = ~np.isin(np.arange(70), left.rows) if many else (X != x).any(1)
        right = clone(plain).fit(X[rest], Y[rest], w[rest]).predict(x[None])[0]
        np.testing.assert_allclose(said, right, rtol=1e-6, atol=1e-6)


def test_paths_do_not_depend_on_scikit_learns_global_setting():
    values = lambda: pathwise("gaussian", [[0.0], [1.0]], [0.0, 1.0], 1e-6, n_draws=2, random_state=0)([[0.5]])
    right = values()
    with config_context(transform_output="pandas"):
        np.testing.assert_array_equal(values(), right)


@pytest.mark.parametrize("name", sorted(set(REGRESSORS) - {"centers"}))  # which warn that they halve the step
def test_predictions_at_the_end_of_the_range_of_float32(name):
    """Coefficients may be a thousand times the targets; what float32 holds is said, what it does not hold is refused."""
    X = np.random.default_rng(0).random((80, 2)).astype(np.float32)
    y = X.sum(1) + 0.1 * np.random.default_rng(1).normal(size=80)
    model = clone(REGRESSORS[name])
    said = model.fit(X, y.astype(np.float32)).predict(X)
    large = model.fit(X, (1e37 * y).astype(np.float32)).predict(X)
    assert said.dtype == large.dtype == np.float32
    np.testing.assert_allclose(large / np.float32(1e37), said, rtol=1e-3, atol=1e-3)
    with pytest.raises(ValueError, match="the result overflows in torch.float32"):
        model.fit(X, 1e44 * y).predict(X)


@pytest.mark.parametrize("name", REGRESSORS)
def test_estimators_cover(name):
    """Uneven noise: coverage of all rows and of those where it is large, over 12 tables of 300."""
    shares = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (2300, 2))
        y = np.sin(3 * X[:, 0]) + X[:, 1] + (0.05 + 0.5 * X[:, 0] ** 2) * rng.normal(size=2300)
        low, high = clone(REGRESSORS[name]).fit(X[:300], y[:300]).predict_interval(X[300:], 0.9).T
        inside = (low <= y[300:]) & (y[300:] <= high)
        shares.append([inside.mean(), inside[abs(X[300:, 0]) > 0.8].mean()])
    error = np.std(shares, 0) / 12**0.5
    assert (abs(np.mean(shares, 0) - 0.9) < 4 * error + [0.01, 0.04]).all()


@pytest.mark.parametrize("name", sorted(set(REGRESSORS) - {"gcv", "projected", "more rows", "centers"}))
def test_errors_are_those_of_rows_as_they_came(name):
    """With copies, weights and two outputs in units of their own: each row's error is its target minus what is said of its place."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(60, 2)), rng.uniform(0.3, 2, 60)
    X[30::3], w[5] = X[0], 0
    Y = np.c_[np.sin(X[:, 0]), 1e6 * X[:, 1] ** 2] + rng.normal(size=(60, 2))
    left = clone(REGRESSORS[name]).fit(X, Y, w).left_out_
    assert len(left.w) == 59 - 1 * (X[5] == X[0]).all()
    for row, target, weight in zip(left.inputs, left.targets, left.w):
        near = np.flatnonzero((abs(X - row) < 1e-12).all(1) & (abs(Y - target) < 1e-6 * abs(Y).max(0)).all(1))
        assert len(near) == 1 and np.isclose(w[near[0]], weight)
    copies = left.predictions[(left.inputs == X[0]).all(1)]
    assert len(copies) == 11 and np.ptp(copies / [1, 1e6], axis=0).max() < 1e-9  # one prediction for all


@pytest.mark.parametrize("d", [2, 60])
def test_intervals_of_fits_that_are_too_smooth_cover(d):
    """What a scale learns from the left-out prediction, which tells the residual, is no use at a new point."""
    shares = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (2300, d))
        y = np.sin(3 * X[:, 0]) + X[:, 1] + (0.05 + 0.5 * X[:, 0] ** 2) * rng.normal(size=2300)
        low, high = KernelRidgeRegressor(alpha=[10.0, 100.0][d > 2]).fit(X[:300], y[:300]).predict_interval(X[300:], 0.9).T
        shares.append(np.mean((low <= y[300:]) & (y[300:] <= high)))
    assert abs(np.mean(shares) - 0.9) < 4 * np.std(shares) / 12**0.5


def test_intervals_of_estimators_keep_kind_and_shape():
    X, y = np.random.default_rng(0).normal(size=(2, 50, 3))
    model = RandomFeatureRidge().fit(X, y)
    assert model.predict_interval(X).shape == (50, 3, 2)
    for A in (X.astype(np.float32), torch.from_numpy(X), torch.from_numpy(X).float()):
        ends = RandomFeatureRidge().fit(A, y[:, 0]).predict_interval(A, 0.5)
        assert type(ends) is type(A) and ends.dtype == A.dtype and tuple(ends.shape) == (50, 2)
    sparse = RandomFeatureRidge().fit(sp.csr_array(X), y[:, 0]).predict_interval(sp.csr_array(X))
    assert np.isfinite(sparse).all() and (sparse[:, 0] < sparse[:, 1]).all()
    few, many = (model.predict_interval(X, c)[:, 0] for c in (0.5, 0.95))
    assert (np.diff(few) < np.diff(many)).all()


@pytest.mark.parametrize("model", [RandomFeatureRidge(RandomFourierFeatures(n_components=30, random_state=0)),
                                   RandomFeatureRidge(alpha="gcv", fit_intercept=False), RBFRegressor(25, random_state=0),
                                   RandomFeatureRidge(RandomFourierFeatures(n_components=30, random_state=0), 1e3),
                                   RandomFeatureRidge(alpha=1e3), RBFRegressor(25, alpha=1e3, random_state=0)])
@pytest.mark.parametrize("k", [None, 2])
def test_deviations_and_draws_are_those_of_the_law(model, k):
    """Of all rows, copies and weights included, in the units of the targets; for few and for many features."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(80, 2)), rng.uniform(1e3, 3e4, 80)
    X[60:] = X[:20]
    w[7] = 0
    Y = 1e-4 * (np.sin(X[:, :1]) + X[:, 1:] + 0.3 * rng.normal(size=(80, k or 1)))
    Y = Y[:, 0] if k is None else Y
    model = clone(model).fit(X, Y, w)
    new = rng.normal(size=(50, 2))
    features = model.features_ if hasattr(model, "features_") else model._model.features_
    intercept = getattr(model, "fit_intercept", True)
    exact = posterior(features.transform(X), Y, model.alpha_, w=w, fit_intercept=intercept)
    A = features.transform(new)
    for ours, right in zip(model.predict(new, return_std=True), exact.predict(A, return_std=True)):
        np.testing.assert_allclose(ours, right, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(model.law_.noise, exact.noise, rtol=1e-6)
    np.testing.assert_allclose(model.law_.log_evidence, exact.log_evidence, rtol=1e-6)
    functions = model.sample_functions(4000, random_state=0)
    values, (mean, std) = functions(new), model.predict(new, return_std=True)
    assert values.shape == (*mean.shape, 4000) and (functions(new) == values).all()
    assert (abs(values.mean(-1) - mean) < 5 * std / 4000**0.5).all()
    assert (abs(values.std(-1) / std - 1) < 5 / 8000**0.5).all()
    for T in (new.astype(np.float32), torch.from_numpy(new)):
        for ours, right in zip(model.predict(T, return_std=True), (mean, std)):
            assert type(ours) is type(T) and ours.dtype == T.dtype
            np.testing.assert_allclose(np.asarray(ours), right, rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("size, penalty", [(1e20, 1e40), (1e-25, 1e-50), (1.0, 1e-3)])
def test_units_of_features_beyond_single_precision(size, penalty):
    """Penalties keep their digits where single precision has none of their size."""
    A, y, w = table()
    right = posterior(A, y, penalty / size**2, w=w)
    found = posterior(A * size, y, penalty, w=w)
    np.testing.assert_allclose(found.noise, right.noise, rtol=1e-12)
    np.testing.assert_allclose(found.log_evidence, right.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(found.predict(A * size, return_std=True), right.predict(A, return_std=True), rtol=1e-9)
    one, other = (RandomFeatureRidge(FunctionTransformer()).fit(A * c, y, w) for c in (1.0, size))
    np.testing.assert_allclose(other.left_out_.residuals, one.left_out_.residuals, rtol=1e-9)
    np.testing.assert_allclose(other.law_.noise, one.law_.noise, rtol=1e-9)


@pytest.mark.parametrize("model", [RandomFeatureRidge(), RBFRegressor(20, random_state=0)])
def test_shapes_of_one_output_and_of_one_column(model):
    X, y = table(60, 3)[:2]
    plain, column = clone(model).fit(X, y), clone(model).fit(X, y[:, None])
    for one, shape in ((plain, (5,)), (column, (5, 1))):
        mean, std = one.predict(X[:5], return_std=True)
        assert one.predict(X[:5]).shape == mean.shape == std.shape == shape
        assert one.sample_functions(2, 0)(X[:5]).shape == (*shape, 2)
        assert one.predict_interval(X[:5]).shape == (*shape, 2) and np.shape(one.law_.noise) == shape[1:]
    np.testing.assert_allclose(column.predict(X[:5], return_std=True)[1][:, 0], plain.predict(X[:5], return_std=True)[1])


def test_intervals_have_no_gradient():
    X = torch.rand(60, 2, dtype=torch.float64, requires_grad=True)
    model = RandomFeatureRidge().fit(X.detach(), X.detach()[:, 0])
    assert model.predict(X).requires_grad and not model.predict_interval(X).requires_grad
    ends, y = model.predict_interval(X), X[:, 0]
    assert interval_score(*ends.T, y, 0.9).shape == (60,)


def test_a_function_that_was_drawn_stays():
    X, y = table(60, 3)[:2]
    for model in (RandomFeatureRidge(), RBFRegressor(20, random_state=0)):
        drawn = model.fit(X, y).sample_functions(1, 0)
        before = drawn(X[:3])
        model.fit(3 * X, -y)
        np.testing.assert_array_equal(drawn(X[:3]), before)


def test_dense_rows_after_sparse_ones():
    X, y = table(60, 3)[:2]
    dense, sparse = RandomFeatureRidge().fit(X, y), RandomFeatureRidge().fit(sp.csr_array(X), y)
    np.testing.assert_allclose(sparse.predict_interval(X), dense.predict_interval(sp.csr_array(X)), rtol=1e-6)


def test_why_there_is_no_law(monkeypatch):
    X, y = table()[:2]
    streamed = RandomFeatureRidge(alpha="gcv").fit(X, y).partial_fit(X, y)
    for call in (lambda: streamed.predict(X, return_std=True), streamed.sample_functions):
        with pytest.raises(AttributeError, match="no law of the coefficients was kept in fit, which takes.*no partial_fit"):
            call()
    for model in (RandomFeatureRidge(alphas=[0.0]).fit(X[:20], y[:20]), RandomFeatureRidge().fit(X[:1], y[:1]),
                  RandomFeatureRidge(alpha=0.0).fit(X[:20], y[:20]), RBFRegressor(solver="pinv").fit(X, y)):
        with pytest.raises(AttributeError, match="a penalty above zero"):
            model.predict(X, return_std=True)
    monkeypatch.setattr(rfteach.feature_ridge, "_COVARIANCE", 100)
    with pytest.raises(AttributeError, match="at most four million"):
        RandomFeatureRidge().fit(X, y).predict(X, return_std=True)
    with pytest.raises(NotFittedError):
        RandomFeatureRidge().sample_functions()


def test_why_there_is_no_interval(monkeypatch):
    X, y = table()[:2]
    for model in (SRFERegressor(50, tolerance=0.5).fit(X, y), HARFERegressor(50, n_folds=None).fit(X, y),
                  EigenProRegressor(early_stopping=False, max_iter=1).fit(X, y), CentersRegressor(early_stopping=False, max_iter=1).fit(X, y),
                  CentersRegressor(max_iter=1).fit(X, y).partial_fit(X, y), RFMRegressor(n_rounds=0, alpha=1.0).fit(X, y)):
        with pytest.raises(AttributeError, match="no rows were left out in fit, which takes"):
            model.predict_interval(X)
    monkeypatch.setattr(rfteach.feature_ridge, "_COVARIANCE", 100)
    with pytest.raises(AttributeError, match="four million"):
        RandomFeatureRidge(alpha=0.1).fit(X, y).predict_interval(X)
    for model in (RandomFeatureRidge(), StreamingRidge(), EigenProRegressor()):
        with pytest.raises(NotFittedError):
            model.predict_interval(X)
    with pytest.raises(ValueError, match="at least 99 rows, got 40"):
        RandomFeatureRidge().fit(X, y).predict_interval(X, 0.99)


# --- rows in blocks


def in_blocks(model, X, y, w, sizes):
    model, start = clone(model), 0
    while start < len(X):
        for size in sizes:
            rows = slice(start, start + size)
            model.partial_fit(X[rows], y[rows], sample_weight=w[rows])
            start += size
    return model


def by_inputs(left):
    order = np.lexsort(np.c_[left.targets, left.inputs].T)
    return left.inputs[order], left.targets[order], left.w[order], left.predictions[order]


FIXED = RandomFourierFeatures(n_components=15, bandwidth=1.5, random_state=0)


@pytest.mark.parametrize("model", [StreamingRidge(0.5), StreamingRidge("gcv"), StreamingRidge(0.5, method="qr", fit_intercept=False),
                                   RandomFeatureRidge(FIXED, 0.5), RandomFeatureRidge(FIXED, "gcv", solver="qr")])
def test_a_stream_leaves_the_same_rows_out_however_it_is_cut(model):
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(5000, 3)), rng.uniform(0.3, 2, 5000)
    Y = np.c_[np.sin(X[:, 0]), 100 * X[:, 1]] + rng.normal(size=(5000, 2))
    w[::7] = 0
    whole = in_blocks(model, X, Y, w, [5000])
    right = by_inputs(whole.left_out_)
    assert len(right[0]) == 1000 and (right[2] > 0).all()
    order = rng.permutation(5000)
    others = [in_blocks(model, X, Y, w, [1, 700, 13]), in_blocks(model, X[order], Y[order], w[order], [1700])]
    if isinstance(model, StreamingRidge):
        halves = [in_blocks(model, X[half], Y[half], w[half], [300]) for half in (slice(2100, None), slice(0, 2100))]
        others += [halves[0].merge(halves[1]), clone(model).fit(X, Y, w)]
    for other in others:
        for ours, theirs in zip(by_inputs(other.left_out_), right):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(other.predict_interval(X[:5]), whole.predict_interval(X[:5]), rtol=1e-6)
        assert sum(map(len, other._stream.drawn.numbers)) <= 2000
    assert kstest(right[0][:, 0], X[:, 0]).pvalue > 1e-3  # a fair draw
    assert abs((right[2].mean() - w[w > 0].mean()) / (w[w > 0].std() / 1000**0.5)) < 4


@pytest.mark.parametrize("model", [StreamingRidge(0.5), StreamingRidge(0.5, method="qr"), RandomFeatureRidge(FIXED, 0.5)])
def test_residuals_of_a_stream_are_those_of_refits(model):
    """Copies in one block are left out together, each with an error of its own."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(60, 3)), rng.uniform(0.3, 2, 60)
    X[20:24], w[5] = X[24], 0
    Y = np.c_[np.sin(X[:, 0]), 100 * X[:, 1]] + rng.normal(size=(60, 2))
    left = in_blocks(model, X, Y, w, [30, 7, 23]).left_out_
    assert len(left.w) == 59
    for x, target, weight, residual in zip(left.inputs, left.targets, left.w, left.residuals):
        i = np.flatnonzero((X == x).all(1) & (Y == target).all(1))
        assert len(i) == 1 and weight == w[i[0]]
        rest = (X != x).any(1)
        fit = clone(model).partial_fit(X[rest], Y[rest], sample_weight=w[rest])
        np.testing.assert_allclose(residual, target - fit.predict(x[None])[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cut", [20000, 700])
def test_a_stream_covers_where_rows_repeat(cut):
    """Some seventy different rows stand for twenty thousand, each with the weight of its copies."""
    covered = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 5, (40000, 1)).astype(float)
        y = rng.poisson(2 + X[:, 0]).astype(float)
        for model in (StreamingRidge(), RandomFeatureRidge(alpha="gcv")):
            model = in_blocks(model, X[:20000], y[:20000], np.ones(20000), [cut])
            left = model.left_out_
            assert len(left.w) == len(np.unique(np.c_[X, y][:20000], axis=0)) and left.w.sum() == 20000
            low, high = model.predict_interval(X[20000:]).T
            covered.append(((low <= y[20000:]) & (y[20000:] <= high)).mean())
    assert 0.86 < min(covered) and max(covered) < 0.95, covered


def test_rows_that_a_map_cannot_tell_apart_are_different_rows():
    rng = np.random.default_rng(0)
    X = np.c_[rng.integers(0, 30, 200), rng.normal(size=200)]
    model = RandomFeatureRidge(FunctionTransformer(lambda X: X[:, :1]), alpha="gcv").partial_fit(X, X[:, 0] % 3)
    assert len(np.unique(model.left_out_.place)) == 200 and np.isfinite(model.predict_interval(X)).all()


def test_rows_that_differ_where_few_columns_look_are_drawn_fairly():
    """Sparse rows that are zero in most places: a draw by some of the columns takes the rows of one label."""
    X = sp.random(3000, 5000, 0.004, format="csr", random_state=0)
    y = np.random.default_rng(0).integers(0, 2, 3000)
    model = RandomFeatureRidgeClassifier(SparseRandomProjection(50, random_state=0), alpha="gcv").partial_fit(X, y, classes=[0, 1])
    share = (model.left_out_.targets > 0).mean()
    assert len(model.left_out_.w) == 1000 and abs(share - y.mean()) < 4 * 0.5 / 1000**0.5


def test_a_stream_covers():
    shares = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (2300, 2))
        y = np.sin(3 * X[:, 0]) + X[:, 1] + (0.05 + 0.5 * X[:, 0] ** 2) * rng.normal(size=2300)
        model = in_blocks(RandomFeatureRidge(alpha="gcv"), X[:300], y[:300], np.ones(300), [90])
        low, high = model.predict_interval(X[300:], 0.9).T
        shares.append(np.mean((low <= y[300:]) & (y[300:] <= high)))
    assert abs(np.mean(shares) - 0.9) < 4 * np.std(shares) / 12**0.5 + 0.01


def test_a_stream_takes_any_kind_of_rows():
    """Sparse after dense, tensors, float32, more inputs than a scale looks at; a block that is refused changes nothing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = X[:, 0] + rng.normal(size=120)
    plain = in_blocks(RandomFeatureRidge(FIXED, 0.5), X, y, np.ones(120), [60])
    mixed = clone(plain).partial_fit(X[:60], y[:60]).partial_fit(sp.csr_array(X[60:]), y[60:])
    np.testing.assert_allclose(mixed.predict_interval(X[:5]), plain.predict_interval(X[:5]), rtol=1e-9)
    before = mixed.predict_interval(X[:5])
    with pytest.raises(ValueError, match="y must have the shape"):
        mixed.partial_fit(X, np.c_[y, y])
    np.testing.assert_array_equal(mixed.predict_interval(X[:5]), before)
    for T in (torch.from_numpy(X), torch.from_numpy(X).float()):
        ends = StreamingRidge().partial_fit(T, torch.from_numpy(y).to(T)).predict_interval(T[:5])
        assert ends.dtype == T.dtype and ends.shape == (5, 2)
    wide = StreamingRidge(1.0).fit(rng.normal(size=(120, 60)), y)
    assert np.ptp(np.diff(wide.predict_interval(rng.normal(size=(5, 60))))) < 1e-9 and np.isfinite(wide.predict_interval(np.zeros((1, 60)))).all()


@pytest.mark.parametrize("model", [RandomFeatureRidge(alpha=1.0), RandomFeatureRidgeClassifier(alpha=1.0)])
def test_a_block_without_weight_after_fit_changes_nothing(model):
    X, y = table(60, 3)[:2]
    y = y if isinstance(model, RandomFeatureRidge) else (y > 0).astype(int)
    model = clone(model).fit(X, y)
    before, said = model.predict(X), model.__sklearn_is_fitted__()
    if isinstance(model, RandomFeatureRidge):
        model.partial_fit(X[:4, :2], np.c_[y, y][:4], sample_weight=np.zeros(4))
        assert model.predict_interval(X).shape == (60, 2)
    else:
        model.partial_fit(X[:4, :2], np.array(list("abab")), classes=["a", "b"], sample_weight=np.zeros(4))
        assert model.predict_proba(X).shape == (60, 2)
    assert said and (model.predict(X) == before).all()


# --- classes


def frequencies(p, right):
    """The worst gap, over bins of the second class's probability, in standard errors of the frequency."""
    parts = [p <= 0.25, (0.25 < p) & (p <= 0.5), (0.5 < p) & (p <= 0.75), 0.75 < p]
    gaps = [(right[part] - p[part]).sum() / max(p[part] @ (1 - p[part]), 1.0) ** 0.5 for part in parts if part.any()]
    return np.abs(gaps).max()


CLASSIFIERS = {
    "ridge": RandomFeatureRidgeClassifier(),
    "given": RandomFeatureRidgeClassifier(alpha=1.0),
    "metric": RFMClassifier(n_rounds=1),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_probabilities_are_frequencies(name):
    """Noisy labels, 2000 new rows: within five standard errors and 0.03; those of a slope of one or of the fit's own rows are not."""
    rng = np.random.default_rng(0)
    draw = lambda n: (X := rng.normal(size=(n, 2)), rng.random(n) < 1 / (1 + np.exp(-3 * X[:, 0])))
    X, y = draw(800)
    model = clone(CLASSIFIERS[name]).fit(X, y)
    X, y = draw(4000)
    p = model.predict_proba(X)[:, 1]
    plain = 1 / (1 + np.exp(-2 * model.decision_function(X)))
    bins = [np.flatnonzero((low < p) & (p <= low + 0.2)) for low in np.arange(5) / 5]
    bias = max(abs(np.mean(y[part] - p[part])) - 5 * (0.25 / len(part)) ** 0.5 for part in bins)
    assert bias < 0.03
    assert frequencies(p, y) < 0.6 * frequencies(plain, y)
    assert log_loss(y, p) < log_loss(y, plain) - 0.01


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_most_probable_class_is_the_one_that_is_predicted(name):
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = clone(CLASSIFIERS[name]).fit(X[::2], names[::2])
    p = model.predict_proba(X[1::2])
    assert p.shape == (75, 3) and log_loss(names[1::2], p) < 0.2
    np.testing.assert_allclose(p.sum(1), 1)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X[1::2])), p)
    np.testing.assert_allclose(p, softmax(model.calibration_[0] * model.decision_function(X[1::2]), 1))
    assert (model.classes_[p.argmax(1)] == model.predict(X[1::2])).all()
    two = clone(model).fit(X[:100:2], names[:100:2])
    scores, p = two.decision_function(X[:100]), two.predict_proba(X[:100])
    np.testing.assert_allclose(np.log(p[:, 1] / p[:, 0]), 2 * two.calibration_[0] * scores, atol=1e-6)
    assert (two.classes_[p.argmax(1)] == two.predict(X[:100])).all()
    assert np.isfinite(two.predict_log_proba(X)).all() and p.min() > 1e-6  # no class that overlaps, and no certainty
    for T in (X.astype(np.float32), torch.from_numpy(X)):
        assert type(two.predict_proba(T)) is type(T) and two.predict_proba(T).dtype == T.dtype


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_weight_of_two_is_the_row_twice_and_one_member_is_enough(name):
    X, y = make_classification(60, 4, random_state=0)
    y[0] = 2  # the only one
    twice = np.arange(60) % 3 == 0
    weighted = clone(CLASSIFIERS[name]).fit(X, y, 1.0 + twice)
    repeated = clone(CLASSIFIERS[name]).fit(np.r_[X, X[twice]], np.r_[y, y[twice]])
    p = weighted.predict_proba(X)
    np.testing.assert_allclose(repeated.predict_proba(X), p, rtol=1e-5)
    assert p.shape == (60, 3) and np.isfinite(p).all() and np.isfinite(weighted.predict_log_proba(X)).all()
    assert (p.argmax(1) == weighted.predict(X)).all() and (p > 0).all()


def test_values_that_say_nothing_leave_the_order_of_the_classes():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 30)), rng.integers(0, 2, 40)
    model = RandomFeatureRidgeClassifier().fit(X, y)
    p = model.predict_proba(X)
    assert model.calibration_[0] > 0 and (p.argmax(1) == model.predict(X)).all()
    T = np.eye(3)[rng.integers(0, 3, 50)]
    a, b = calibrate(-T, smoothed(T, np.ones(50)), np.ones(50), offsets=False)
    assert 0 < a < 1e-5 and (b == 0).all()


def test_a_slope_is_a_minimum():
    rng = np.random.default_rng(0)
    F, w = rng.normal(size=(100, 3)), rng.uniform(0.1, 2, 100)
    t = smoothed(np.eye(3)[[rng.choice(3, p=p) for p in softmax(1.5 * F, 1)]], w / w.mean())
    loss = lambda a: w @ (np.log(np.exp(a * F).sum(1)) - (t * (a * F)).sum(1))
    a, _ = calibrate(F, t, w, offsets=False)
    assert all(loss(a) <= loss(a * factor) for factor in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0))
    for with_offsets in (True, False):
        scaled = [calibrate(size * F, t, w, with_offsets)[0] * size for size in (1e-6, 1.0, 1e6)]
        np.testing.assert_allclose(scaled, scaled[1], rtol=1e-6)


def test_probabilities_of_rows_in_blocks():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = rng.random(600) < 1 / (1 + np.exp(-2 * X[:, 0]))
    whole = RandomFeatureRidgeClassifier(FIXED, 0.5).fit(X, y)
    stream = RandomFeatureRidgeClassifier(FIXED, 0.5)
    for rows in np.array_split(np.arange(600), 7):
        stream.partial_fit(X[rows], y[rows], classes=[False, True])
    np.testing.assert_allclose(stream.predict_proba(X), whole.predict_proba(X), rtol=1e-5)
    left, other = by_inputs(whole.left_out_), by_inputs(stream.left_out_)
    np.testing.assert_allclose(left[3], other[3], rtol=1e-9, atol=1e-9)


# --- EigenPro


def test_validation_data_of_eigenpro_gives_intervals_and_probabilities():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (3300, 2))
    y = np.sin(3 * X[:, 0]) + X[:, 1] + (0.05 + 0.5 * X[:, 0] ** 2) * rng.normal(size=3300)
    model = EigenProRegressor(max_iter=10, random_state=0).fit(X[:400], y[:400], X[400:700], y[400:700])
    left = model.left_out_
    np.testing.assert_allclose(left.residuals[:, 0], y[400:700][left.rows] - model.predict(X[400:700][left.rows]), atol=1e-10)
    low, high = model.predict_interval(X[700:]).T
    assert abs(np.mean((low <= y[700:]) & (y[700:] <= high)) - 0.9) < 0.06  # three standard errors of 300 rows
    labels = rng.random(3300) < 1 / (1 + np.exp(-3 * X[:, 0]))
    model = EigenProClassifier(max_iter=10, random_state=0)
    assert not hasattr(clone(model).set_params(early_stopping=False).fit(X[:400], labels[:400]), "predict_proba")
    model.fit(X[:400], labels[:400], X[400:700], labels[400:700])
    p = model.predict_proba(X[700:])
    assert log_loss(labels[700:], p) < 0.6 and (p.argmax(1) == model.predict(X[700:])).all()
    model.partial_fit(X[:50], labels[:50])
    for call in (lambda: model.left_out_, lambda: model.calibration_):
        with pytest.raises(AttributeError, match="takes validation data, or early_stopping and .* nor partial_fit after it"):
            call()
    assert not hasattr(model, "predict_proba")


def copied(n=300):
    """Rows of which a third stands twice, with two outputs in different units."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 2))
    X[2 * n // 3 :] = X[: n // 3]
    return X, np.c_[np.sin(3 * X[:, 0]), 1e3 * X[:, 1] + 50] + 0.1 * rng.normal(size=(n, 2))


@pytest.mark.parametrize("enough", [500, 90, 20])
def test_rows_that_eigenpro_holds_out(monkeypatch, enough):
    """Each with its copies, predicted by a fit to the other rows for as many epochs as were chosen."""
    monkeypatch.setattr(rfteach.eigenpro_training, "ENOUGH", enough)
    X, Y = copied()
    model = EigenProRegressor("laplacian", 0.7, random_state=0).fit(X, Y)
    left, descent = model.left_out_, model._descent
    np.testing.assert_array_equal(left.inputs, X[left.rows])
    np.testing.assert_array_equal(left.targets, Y[left.rows])
    copies = np.isin(X[:, 0], left.inputs[:, 0])
    assert sorted(left.rows) == list(np.flatnonzero(copies)) and copies.all() == (enough == 500)
    order = np.random.default_rng(descent.seed).permutation(300)
    T, U = torch.from_numpy(X[order]), torch.from_numpy(Y[order])
    said, losses = np.full((300, 2), np.nan), []
    for held in rfteach.eigenpro_training.parts_in_turn(row_hashes(torch.from_numpy(X))[order], 30):
        other = EigenProRegressor("laplacian", 0.7, max_iter=model.n_iter_)
        one = rfteach.eigenpro_engine.begin(other, T[~held], U[~held], descent.seed, model._mistakes, descent.factor, again=True)
        data = rfteach.eigenpro_engine.Data(T[~held], U[~held] - one.intercept)
        for _ in rfteach.eigenpro_training.run_epochs(one, data, model.n_iter_, 100):
            pass
        said[order[held]] = one.space.kernel.gram(T[held], T[~held]) @ one.result + one.intercept
        losses.append((((said - Y)[order[held]] * one.scales.numpy()) ** 2).mean())
    np.testing.assert_allclose(left.predictions, said[left.rows], rtol=1e-9)
    np.testing.assert_allclose(np.mean(losses), model.validation_loss_.min(), rtol=1e-9)
    assert model.predict_interval(X).shape == (300, 2, 2)


def test_intervals_and_probabilities_of_eigenpro_without_validation_data():
    rng, caught = np.random.default_rng(0), []
    for seed in range(20):
        X = rng.uniform(-1, 1, (500, 2))
        y = np.sin(3 * X[:, 0]) + X[:, 1] + (0.05 + 0.5 * X[:, 0] ** 2) * rng.normal(size=500)
        low, high = EigenProRegressor(max_iter=10, random_state=seed).fit(X[:300], y[:300]).predict_interval(X[300:]).T
        caught.append(np.mean((low <= y[300:]) & (y[300:] <= high)))
    assert abs(np.mean(caught) - 0.9) < 0.02 + 3 * np.std(caught, ddof=1) / 20**0.5
    labels = rng.random(500) < 1 / (1 + np.exp(-3 * X[:, 0]))
    model = EigenProClassifier(max_iter=10, random_state=0).fit(X[:300], labels[:300])
    p = model.predict_proba(X[300:])
    assert log_loss(labels[300:], p) < 0.6 and (p.argmax(1) == model.predict(X[300:])).all()
    model.set_params(warm_start=True).fit(X[:300], labels[:300])
    assert not hasattr(model, "predict_proba")  # all rows have been trained on


def test_a_checkpoint_has_what_was_left_out(tmp_path):
    X, Y = copied(120)
    model = EigenProRegressor("laplacian", 0.7, random_state=0, checkpoint=tmp_path / "fit.npz", callback=lambda model, epoch: True)
    left = model.fit(X, Y).left_out_
    again = model.set_params(callback=None).fit(X, Y)
    assert again.n_iter_ > 1
    for name in ("rows", "predictions", "targets"):
        np.testing.assert_array_equal(getattr(again.left_out_, name), getattr(left, name))


def test_a_constant_is_left_out_too():
    """Where no epoch is better than the constant, the means of the other rows are what was said."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=40)
    model = EigenProRegressor(random_state=0).fit(X, y)
    left = model.left_out_
    assert model.n_iter_ == 0
    order = np.random.default_rng(model._descent.seed).permutation(40)
    for part in order.reshape(10, 4):
        means = left.predictions[np.isin(left.rows, part)]
        np.testing.assert_allclose(means, np.delete(y, part).mean())


# --- centres


@pytest.mark.parametrize("enough", [500, 20])
def test_rows_that_centres_hold_out(monkeypatch, enough):
    """Each with its copies; held out once, they are those that the model has not seen; in turn, all of them are."""
    for module in (rfteach.eigenpro_training, rfteach.centers):
        monkeypatch.setattr(module, "ENOUGH", enough)
    X, Y = copied()
    model = CentersRegressor(centers=50, random_state=0).fit(X, Y)
    left = model.left_out_
    np.testing.assert_array_equal(left.inputs, X[left.rows])
    np.testing.assert_array_equal(left.targets, Y[left.rows])
    order = np.random.default_rng(model._descent.seed).permutation(300)
    parts = [order[held] for held in rfteach.eigenpro_training.parts_in_turn(row_hashes(torch.from_numpy(X))[order], 30)]
    losses = np.full(300, np.nan)
    losses[left.rows] = ((left.residuals * model._descent.scales.numpy()) ** 2).mean(1)
    np.testing.assert_allclose(np.mean([losses[part].mean() for part in parts]), model.validation_loss_.min(), rtol=1e-9)
    copies = np.isin(X[:, 0], left.inputs[:, 0])
    assert sorted(left.rows) == list(np.flatnonzero(copies)) and copies.all() == (enough == 500)
    if enough == 20:
        np.testing.assert_allclose(left.predictions, model.predict(left.inputs), rtol=1e-9, atol=1e-9)
    assert model.predict_interval(X).shape == (300, 2, 2)
    same = CentersRegressor(centers=10, random_state=0).fit(np.ones((30, 2)), np.arange(30.0))
    assert same.validation_loss_.size == 0


def test_probabilities_of_centres():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2400, 2))
    labels = rng.random(2400) < 1 / (1 + np.exp(-3 * X[:, 0]))
    model = CentersClassifier(centers=50, random_state=0).fit(X[:400], labels[:400])
    p = model.predict_proba(X[400:])
    assert log_loss(labels[400:], p) < 0.45 and (p.argmax(1) == model.predict(X[400:])).all()
    assert not hasattr(CentersClassifier(early_stopping=False), "predict_proba")
    assert not hasattr(model.partial_fit(X[:400], labels[:400]), "predict_proba")


def test_the_noise_has_the_unit_of_the_weights():
    """And deviations, of which the constant has a part, have none."""
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(40, 3)), rng.normal(size=40), rng.uniform(0.5, 2, 40)
    one, other = (RandomFeatureRidge(FunctionTransformer(), 0.5 * c).fit(X, y, sample_weight=c * w) for c in (1.0, 2.0**300))
    np.testing.assert_allclose(other.law_.noise / 2.0**300, one.law_.noise, rtol=1e-9)
    np.testing.assert_allclose(other.predict(X, return_std=True), one.predict(X, return_std=True), rtol=1e-9)


def test_errors_count_copies_by_their_weights():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(60, 2)), rng.uniform(0.1, 5, 60)
    X[30:] = X[:30]
    y = np.sin(X[:, 0]) + rng.normal(size=60)
    model = RFMRegressor(n_rounds=0).fit(X, y, sample_weight=w)
    left = model.left_out_
    assert len(left.rows) == 60
    np.testing.assert_allclose(model.error_, np.average(left.residuals[:, 0] ** 2, weights=left.w), rtol=1e-6)


def test_a_scale_weighs_its_rows():
    """Rows of next to no weight change nothing."""
    rng = np.random.default_rng(2)
    X, r = rng.normal(size=(120, 2)), rng.normal(size=(120, 1))
    right = local_scale(X, r)
    more = local_scale(np.r_[X, 50 + X[:60]], np.r_[r, 1e3 * r[:60]], np.r_[np.ones(120), np.full(60, 1e-12)])
    np.testing.assert_allclose(more._columns.units, right._columns.units, rtol=1e-6)
    np.testing.assert_allclose(more(X[:9]), right(X[:9]), rtol=1e-5)
    np.testing.assert_allclose(more.half_widths(X[:9], 0.8), right.half_widths(X[:9], 0.8), rtol=0.05)


def test_rounding_has_no_slope():
    """Where all rows are one, nothing is left of the values that it was left out of."""
    y = np.repeat([0, 1, 2], [20, 30, 40])
    for k in (2, 3):
        model = RandomFeatureRidgeClassifier().fit(np.full((90, 2), 0.1), np.minimum(y, k - 1))
        P = model.predict_proba(np.ones((1, 2)))[0]
        assert model.calibration_[0] < 10 and 0.1 < P.min() and P.max() < 0.8


def test_draws_of_several_outputs_are_independent():
    rng = np.random.default_rng(0)
    A, Y = rng.normal(size=(40, 3)), rng.normal(size=(40, 2))
    draws = posterior(A, Y, 0.4).draw(4000, random_state=0)(rng.normal(size=(5, 3)))
    for one, other in draws:
        assert abs(np.corrcoef(one, other)[0, 1]) < 4.5 / 4000**0.5


@pytest.mark.parametrize("coverage, seed", [(0.5, 3), (0.9, 0)])
def test_the_exponent_of_least_score_is_taken(coverage, seed):
    """By the definition of (14.11) and (14.12), at the coverage that is asked for."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(300, 1))
    found = local_scale(x, (0.3 + x[:, 0]) * rng.standard_t(2.5, size=300))
    r, s, new = abs(found.residuals[:, 0]), found.left_out[:, 0], np.array([[0.1], [0.9]])
    tried = []
    for e in np.linspace(0, 1, 5):
        q = np.sort(r / s**e)[int(np.ceil(coverage * 301 - 1e-9)) - 1]
        tried.append((np.mean(2 * q * s**e + 2 / (1 - coverage) * np.maximum(r - q * s**e, 0)), q * found(new)[:, 0] ** e))
    right = min(tried, key=lambda entry: entry[0])[1]
    np.testing.assert_allclose(found.half_widths(new, coverage)[:, 0], right)


def test_a_scale_is_flat_beyond_four_deviations():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 1))
    found = local_scale(x, np.exp(x[:, 0]) * rng.normal(size=300))
    ends = x.mean() + x.std() * np.array([[-100.0], [-4.001], [4.001], [100.0]])
    low, near_low, near_high, high = found(ends)[:, 0]
    assert low == near_low and high == near_high


def test_each_output_has_a_scale_of_its_own():
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(300, 1))
    R = np.c_[rng.normal(size=300), x[:, 0] ** 2 * rng.normal(size=300)]
    both = local_scale(x, R)(x)
    for j in range(2):
        np.testing.assert_allclose(both[:, j], local_scale(x, R[:, j])(x)[:, 0], rtol=1e-9)


def test_seeds_of_scales_and_paths_count():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(60, 1)), rng.normal(size=60)
    for found in (lambda seed: local_scale(x, y, random_state=seed)(x), lambda seed: pathwise("gaussian", x, y, 0.1, random_state=seed)(x)):
        np.testing.assert_array_equal(found(1), found(1))
        assert not np.allclose(found(1), found(2))
