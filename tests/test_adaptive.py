"""Learned active sets: kernel, evidence and waves against slow forms, the estimator's contract, what is refused."""

import itertools
import math
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import check_estimator

import rfteach.adaptive
import rfteach.waves
from rfteach.adaptive import AdaptiveFeatureRegressor, _standardised
from rfteach.arrays import power_of_two, without_units
from rfteach.copies import distinct_rows
from rfteach.datasets import sobol_g, sobol_g_moments
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.selection import left_out_parts
from rfteach.sobol import sobol_indices
from rfteach.waves import WaveFeatures, largest_waves, wave_scores

C = np.array([1, 2, 5, 10, 20, 100] + [5000] * 14, dtype=float)


@pytest.fixture(scope="module")
def g_model():
    X = np.random.default_rng(0).random((800, 20))
    return AdaptiveFeatureRegressor(bounds=np.tile([0.0, 1.0], (20, 1)), random_state=0).fit(X, sobol_g(X, C))


@pytest.fixture(scope="module")
def friedman():
    return make_friedman1(150, noise=0.1, random_state=0)


# --- the kernel, its evidence and its waves

def gram_reference(Z, V, q):
    K = 0
    for size in range(1, q + 1):
        for S in itertools.combinations(range(len(Z)), size):
            K = K + math.prod([(Z[i] * V[i]) @ Z[i].T for i in S])
    return K


@pytest.mark.parametrize("dtype, tol", [(torch.float32, 1e-5), (torch.float64, 1e-13)])
@pytest.mark.parametrize("d, q", [(1, 1), (3, 1), (4, 2), (5, 3), (4, 4)])
def test_gram_and_slope(dtype, tol, d, q):
    torch.manual_seed(0)
    Z = rfteach.waves.centred_waves(torch.rand(30, d, dtype=dtype) - 0.5, 6)
    V, G = torch.rand(d, 12, dtype=dtype).requires_grad_(), torch.randn(30, 30, dtype=dtype)
    K = gram_reference(Z, V, q)
    (slope,) = torch.autograd.grad((G * K).sum(), V)
    with torch.no_grad():
        assert (rfteach.adaptive._anova_gram(Z, V, q) - K).abs().max() < tol * K.abs().max()
        assert (rfteach.adaptive._anova_slope(Z, V, q, G) - slope).abs().max() < tol * slope.abs().max()


def test_kernel_functions_have_mean_zero_in_each_input():
    t, w = np.polynomial.legendre.leggauss(60)
    Z = rfteach.waves.centred_waves(torch.from_numpy(t / 2)[:, None], 10)
    np.testing.assert_allclose(torch.from_numpy(w / 2) @ Z[0], 0, atol=1e-12)


def test_evidence_is_a_density_and_its_gradient_right():
    rng = np.random.default_rng(1)
    Z = rfteach.waves.centred_waves(torch.from_numpy(rng.random((40, 3)) - 0.5), 5)
    Y, w = torch.from_numpy(rng.normal(size=(40, 1))), torch.from_numpy(rng.uniform(0.5, 2, 40))
    theta = rng.normal(size=10) - 1
    value, gradient, lam = rfteach.adaptive._evidence(theta, Z, Y, w, 3)
    V = rfteach.adaptive._spectrum(torch.from_numpy(theta), 3, 5).repeat(1, 2)
    K = gram_reference(Z, V, 3).numpy() + lam * np.diag(1 / w.numpy())
    R, y = np.linalg.inv(K), Y.numpy()[:, 0]
    mu = (R @ y).sum() / R.sum()
    density = multivariate_normal(np.full(40, mu), (y - mu) @ R @ (y - mu) / 40 * K).logpdf(y)
    weights = 20 * float(w.log().mean())  # a constant of the data
    assert -40 * (value + 0.5 * math.log(2 * math.pi * math.e)) + weights == pytest.approx(density, rel=1e-10)
    for j in range(10):
        step = np.eye(10)[j] * 1e-5
        up, down = (rfteach.adaptive._evidence(theta + s * step, Z, Y, w, 3)[0] for s in (1, -1))
        assert (up - down) / 2e-5 == pytest.approx(gradient[j], abs=1e-7)


def test_evidence_in_blocks_is_the_same(monkeypatch):
    rng = np.random.default_rng(1)
    Z = rfteach.waves.centred_waves(torch.from_numpy(rng.random((300, 3)) - 0.5), 5)
    V, G = torch.from_numpy(rng.random((3, 10))), torch.from_numpy(rng.normal(size=(300, 300)))
    whole = gram_reference(Z, V, 3)
    blocks = [(r, T.repeat(1, 1, 1)) for r, T in rfteach.adaptive._row_kernels(Z.repeat(4, 1, 1), V.repeat(4, 1))]
    assert len(blocks) > 1 and sum(T.shape[1] for _, T in blocks) == 300
    assert (rfteach.adaptive._anova_gram(Z, V, 3) - whole).abs().max() < 1e-12 * whole.abs().max()
    held = list(rfteach.adaptive._row_kernels(Z, V))
    assert torch.equal(rfteach.adaptive._anova_slope(Z, V, 3, G, held), rfteach.adaptive._anova_slope(Z, V, 3, G))


def test_waves_give_the_kernel():
    rng = np.random.default_rng(0)
    box, U = np.tile([0.0, 1.0], (4, 1)), rng.random((4, 3)) / 2
    X = torch.from_numpy(rng.random((6, 4)))
    K = gram_reference(rfteach.waves.centred_waves(X - 0.5, 3), torch.from_numpy(U).repeat(1, 2), 3)

    def gram(codes, weights):
        F = rfteach.waves.WaveFeatures(codes, weights, box, 3).fit(X).transform(X)
        return F @ F.T

    everything = rfteach.waves.largest_waves(U, 3, 10**6)
    # 12 single ones, C(4, 2) 3² 2 of two inputs, C(4, 3) 3³ 4 of three
    assert len(everything[0]) == 12 + 6 * 9 * 2 + 4 * 27 * 4 and len(np.unique(everything[0], axis=0)) == 552
    assert (gram(*everything) - K).abs().max() < 1e-13
    some = rfteach.waves.largest_waves(U, 3, 50)
    np.testing.assert_allclose(some[1], np.sort(everything[1])[::-1][:50])
    for head in (None, some):
        grams = torch.stack([gram(*rfteach.waves.random_waves(U, 3, 50, rng, head)) for _ in range(400)])
        grams = grams + (0 if head is None else gram(*head))
        assert ((grams.mean(0) - K).abs() < 4.5 * grams.std(0) / 20).all()
    codes, _ = rfteach.waves.random_waves(U, 3, 50, rng, some)
    assert len(codes) and not set(map(tuple, codes)) & set(map(tuple, some[0]))


def test_draws_follow_the_weights():
    U = np.random.default_rng(0).random((3, 2))
    codes, weights = rfteach.waves.largest_waves(U, 2, 1000)
    found, counts = rfteach.waves.random_waves(U, 2, 200_000, np.random.default_rng(1))
    expected = dict(zip(map(tuple, codes), weights / weights.sum()))
    got = dict(zip(map(tuple, found), counts / counts.sum()))
    for code, p in expected.items():
        assert abs(got.get(code, 0) - p) < 5 * math.sqrt(p / 200_000)


# --- the estimator

def test_contract():
    results = check_estimator(AdaptiveFeatureRegressor(n_components=500), on_skip=None)
    assert {r["status"] for r in results} == {"passed"}


def test_g_function_beats_the_goal(g_model):
    V = np.random.default_rng(1).random((2000, 20))
    f = sobol_g(V, C)
    assert np.mean((g_model.predict(V) - f) ** 2) < 0.0012 * f.var()
    assert set(range(5)) <= set(g_model.active_inputs_.tolist())
    exact = sobol_g_moments(C)
    for S in (sobol_indices(g_model), sobol_indices(g_model, method="qmc", n_points=2**14)):
        np.testing.assert_allclose(S.first, exact.first, atol=0.02)
        np.testing.assert_allclose(S.total, exact.total, atol=0.01)
    S = sobol_indices(g_model)
    assert abs(S.mean - 1) < 0.005 and S.variance == pytest.approx(exact.variance, rel=0.02)


def test_attributes(g_model):
    m = g_model
    W, b = m.frequencies_, m.phases_
    assert W.shape == (len(b), 20) and m.coef_.shape == b.shape and isinstance(m.intercept_, float)
    assert (W != 0).sum(1).max() == m.order_ <= 3 and (W != 0).any(1).all()
    X = np.random.default_rng(2).random((50, 20))
    np.testing.assert_allclose(np.cos(X @ W.T + b) @ m.coef_ + m.intercept_, m.predict(X), atol=1e-10)
    dropped = np.setdiff1d(np.arange(20), m.active_inputs_)
    assert not W[:, dropped].any() and not m.relevance_[dropped].any()
    assert np.isinf(m.bandwidth_[dropped]).all() and np.isinf(m.smoothness_[dropped]).all()
    assert (m.relevance_[m.active_inputs_] > 0).all() and np.isfinite(m.bandwidth_[m.active_inputs_]).all()
    assert (np.diff(m.set_shares_) <= 0).all() and m.set_shares_.sum() == pytest.approx(1)
    terms = sobol_indices(m).terms
    np.testing.assert_allclose([terms[u] for u in m.active_sets_], m.set_shares_, rtol=1e-6, atol=1e-12)
    assert m.n_iter_ == len(m.history_) and 0 < m.n_scouting_ <= m.n_iter_
    assert (np.diff(m.history_[: m.n_scouting_]) <= 1e-9).all() and (np.diff(m.history_[m.n_scouting_ :]) <= 1e-9).all()


def test_sums_without_interactions():
    X = np.random.default_rng(0).random((200, 4))
    y = np.sin(5 * X[:, 0]) + X[:, 1] ** 2
    m = AdaptiveFeatureRegressor(random_state=0).fit(X, y)
    assert m.active_sets_[:2] == [(0,), (1,)] and m.set_shares_[:2].sum() > 0.999
    V = np.random.default_rng(1).random((200, 4))
    assert np.mean((m.predict(V) - np.sin(5 * V[:, 0]) - V[:, 1] ** 2) ** 2) < 1e-5


def test_max_order_is_obeyed(friedman):
    for q in (1, 2):
        m = AdaptiveFeatureRegressor(max_order=q, random_state=0).fit(*friedman)
        assert m.order_ == q
    assert AdaptiveFeatureRegressor(max_order=6, random_state=0).fit(friedman[0][:, :2], friedman[1]).order_ <= 2


@pytest.mark.parametrize("selection", ["mixed", "largest", "random"])
def test_reproducible_and_pickle(friedman, selection):
    X, y = friedman
    m = AdaptiveFeatureRegressor(selection=selection, n_components=300, random_state=0).fit(X, y)
    again = clone(m).fit(X, y)
    np.testing.assert_array_equal(m.coef_, again.coef_)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(m)).predict(X), m.predict(X))


def test_kinds_of_input(friedman):
    X, y = friedman
    m = AdaptiveFeatureRegressor(n_components=300, random_state=0).fit(X, y)
    t = AdaptiveFeatureRegressor(n_components=300, random_state=0).fit(torch.from_numpy(X), torch.from_numpy(y))
    np.testing.assert_array_equal(m.coef_, t.coef_)
    p = t.predict(torch.from_numpy(X).float())
    assert isinstance(p, torch.Tensor) and p.dtype == torch.float32
    np.testing.assert_allclose(p.numpy(), m.predict(X), atol=2e-3)
    p32 = m.predict(X.astype(np.float32))
    assert p32.dtype == np.float32
    np.testing.assert_allclose(p32, m.predict(X), atol=2e-3)
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(10)])
    named = clone(m).fit(frame, y)
    assert list(named.feature_names_in_) == list(frame.columns)
    np.testing.assert_allclose(named.predict(frame), m.predict(X))


def test_device(friedman, device):
    X, y = friedman
    m = AdaptiveFeatureRegressor(n_components=300, random_state=0, device=device).fit(X, y)
    assert m.score(X, y) > 0.99


def test_several_outputs(friedman):
    X, y = friedman
    Y = np.stack([y, -2 * y + 3, np.full_like(y, 7.0)], 1)
    m = AdaptiveFeatureRegressor(random_state=0).fit(X, Y)
    P = m.predict(X)
    assert P.shape == Y.shape and m.coef_.shape == (3, len(m.phases_)) and m.intercept_.shape == (3,)
    np.testing.assert_allclose(P[:, 1], -2 * P[:, 0] + 3, atol=1e-6)
    np.testing.assert_allclose(P[:, 2], 7.0)
    S = sobol_indices(m)
    np.testing.assert_allclose(S.first[0], S.first[1], atol=1e-9)
    assert not S.first[2].any()
    column = AdaptiveFeatureRegressor(random_state=0).fit(X, Y[:, :1])
    assert column.predict(X).shape == (len(X), 1)


def test_weights(friedman):
    X, y = friedman
    w = np.random.default_rng(0).integers(0, 3, len(y))
    m = AdaptiveFeatureRegressor(n_components=300, random_state=0)
    a = clone(m).fit(X, y, sample_weight=w).predict(X)
    b = clone(m).fit(np.repeat(X, w, 0), np.repeat(y, w)).predict(X)
    np.testing.assert_allclose(a, b, atol=1e-6)
    c = clone(m).fit(X, y, sample_weight=w * 1e3).predict(X)
    np.testing.assert_allclose(a, c, atol=1e-6)


def test_a_penalty_that_is_given_does_not_depend_on_the_unit_of_the_weights():
    rng = np.random.default_rng(0)
    X, w = rng.uniform(size=(80, 2)), rng.uniform(1, 2, 80)
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.normal(size=80)
    m = AdaptiveFeatureRegressor(60, alpha=0.1, max_iter=3, tol=1.0, n_folds=None, random_state=0)
    one, other = (clone(m).fit(X, y, sample_weight=unit * w).predict(X) for unit in (1.0, 1024.0))
    np.testing.assert_allclose(other, one, rtol=1e-6)


def test_units_do_not_matter(friedman):
    X, y = friedman
    m = AdaptiveFeatureRegressor(n_components=300, random_state=0)
    a = clone(m).fit(X, y).predict(X)
    scale, shift = 2.0 ** np.arange(-5, 5), np.arange(-3.0, 7.0)
    moved = X * scale + shift
    b = clone(m).fit(moved, 1024 * y - 300).predict(moved)
    np.testing.assert_allclose((b + 300) / 1024, a, atol=1e-3)
    big = clone(m).fit(X * 1e150, y * 1e150).predict(X * 1e150)
    np.testing.assert_allclose(big / 1e150, a, atol=1e-3)


@pytest.mark.parametrize("unit", [1e200, 1e-200, 1e300])
def test_units_of_the_target(friedman, unit):
    X, y = friedman
    m = AdaptiveFeatureRegressor(n_components=300, random_state=0)
    a, b = clone(m).fit(X, y), clone(m).fit(X, y * unit)
    np.testing.assert_allclose(b.predict(X) / unit, a.predict(X), atol=1e-3)
    shares = dict(zip(b.active_sets_, b.set_shares_))
    for u, share in zip(a.active_sets_, a.set_shares_):
        assert shares[u] == pytest.approx(share, abs=1e-3)
    assert b.active_inputs_.tolist() == a.active_inputs_.tolist() and b.order_ == a.order_
    np.testing.assert_allclose(b.history_[-1], a.history_[-1], atol=1e-2)


@pytest.mark.parametrize("alpha", ["loo", "evidence"])
def test_noise_is_not_interpolated(alpha):
    rng = np.random.default_rng(0)
    X, V = rng.random((800, 8)), rng.random((1000, 8))
    m = AdaptiveFeatureRegressor(alpha=alpha, random_state=0).fit(X, X[:, 0] + rng.standard_normal(800))
    assert np.mean((m.predict(V) - V[:, 0]) ** 2) < 0.5 * V[:, 0].var()
    assert AdaptiveFeatureRegressor().alpha == "loo"


def test_fine_detail_is_not_taken_for_noise():
    def f(X):
        return np.sin(20 * np.pi * X[:, 0]) + 5 * X[:, 1]

    rng = np.random.default_rng(0)
    X, V = rng.random((400, 3)), rng.random((400, 3))
    m = AdaptiveFeatureRegressor(random_state=0).fit(X, f(X))
    assert np.mean((m.predict(V) - f(V)) ** 2) < 0.01 * f(V).var()


def test_waves_of_active_inputs_only(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.random((200, 12))
    y = np.sin(5 * X[:, 3]) * X[:, 10]
    seen = []
    plain = rfteach.waves.centred_waves
    for module in (rfteach.adaptive, rfteach.waves):
        monkeypatch.setattr(module, "centred_waves", lambda T, m: (seen.append(T.shape[1]), plain(T, m))[1])
    m = AdaptiveFeatureRegressor(n_components=500, n_folds=None, random_state=0).fit(X, y)
    assert seen[0] == 12 and set(seen[1:]) == {len(m.active_inputs_)} and len(m.active_inputs_) < 12
    assert {3, 10} <= set(m.active_inputs_) and m.active_sets_[0] in ((10,), (3,), (3, 10))
    V = rng.random((200, 12))
    assert np.mean((m.predict(V) - np.sin(5 * V[:, 3]) * V[:, 10]) ** 2) < 1e-4


def test_bounds(friedman):
    X, y = friedman
    m = AdaptiveFeatureRegressor(n_components=300, bounds=np.tile([-1, 2], (10, 1)), random_state=0).fit(X, y)
    np.testing.assert_array_equal(m.bounds_, np.tile([-1.0, 2.0], (10, 1)))
    auto = AdaptiveFeatureRegressor(n_components=300, random_state=0).fit(X, y)
    np.testing.assert_array_equal(auto.bounds_, np.stack([X.min(0), X.max(0)], 1))
    assert np.isfinite(auto.predict(X * 100)).all()
    methods = {high: sobol_indices(auto, bounds=np.tile([0, high], (10, 1))).method for high in (1.2, 2.0)}
    assert methods == {1.2: "analytic", 2.0: "qmc"}  # waves end at 1.25


@pytest.mark.parametrize("alpha", ["evidence", "loo", 0.0, 1e-3])
def test_penalties(friedman, alpha):
    X, y = friedman
    m = AdaptiveFeatureRegressor(n_components=100, alpha=alpha, random_state=0).fit(X, y)
    assert m.score(X, y) > 0.9
    if isinstance(alpha, float):
        assert m.alpha_ == pytest.approx(alpha)


def test_degenerate_data():
    rng = np.random.default_rng(0)
    X, y = rng.random((30, 3)), rng.random(30)
    m = AdaptiveFeatureRegressor(random_state=0)
    one = clone(m).fit(X[:1], y[:1])
    assert one.predict(X)[3] == y[0] and one.order_ == 0 and one.active_sets_ == []
    assert clone(m).fit(X, np.full(30, 2.5)).predict(X)[0] == 2.5
    constant = clone(m).fit(np.ones((30, 2)), y)
    np.testing.assert_allclose(constant.predict(np.ones((2, 2))), y.mean())
    assert sobol_indices(constant).variance == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for A in (np.c_[X, np.ones(30)], np.c_[X, X], np.r_[X, X], X[:2], rng.random((10, 40)), X[:, :1]):
            b = rng.random(len(A))
            p = clone(m).fit(A, b).predict(A)
            assert np.isfinite(p).all() and p.shape == b.shape
    assert np.isfinite(clone(m).set_params(n_components=1).fit(X, y).predict(X)).all()


def test_more_rows_than_are_learned_from():
    X, y = make_friedman1(1500, noise=0.5, random_state=0)
    V, f = make_friedman1(500, noise=0.0, random_state=1)
    few, more = (AdaptiveFeatureRegressor(n_components=500, n_subsample=200, random_state=0).fit(X[:n], y[:n])
                 for n in (200, 1500))
    assert np.mean((more.predict(V) - f) ** 2) < np.mean((few.predict(V) - f) ** 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 0.1])
@pytest.mark.parametrize("d", [2, 101])
def test_nothing_is_learned_from_a_constant(d, offset, dtype):
    """Rare events, all of them outside of the rows for learning; beside an output that is not rare they have no say."""
    rng = np.random.default_rng(0)
    X = rng.random((600, d)).astype(dtype)
    learning = np.random.default_rng(1).permutation(600)[:40]
    y = np.full(600, offset, dtype)
    y[np.setdiff1d(np.arange(600), learning)[:2]] += np.array([1, -1], dtype)
    model = AdaptiveFeatureRegressor(20, n_frequencies=4, n_subsample=40, n_folds=None, random_state=np.random.default_rng(1))
    found = model.fit(X, y)
    assert found.n_iter_ == 0 and np.isfinite(found.predict(X)).all()
    np.testing.assert_allclose(found.relevance_[found.active_inputs_], 0.2)
    assert len(found.active_inputs_) == min(d, 100)
    smooth = np.sin(3 * X[:, 0])
    both, one = (clone(model).set_params(random_state=np.random.default_rng(1)).fit(X, t) for t in (np.c_[y, smooth], smooth))
    np.testing.assert_array_equal(both.relevance_, one.relevance_)
    np.testing.assert_array_equal(both.history_, one.history_)


def test_learned_once_where_enough_rows_are_left(monkeypatch):
    """Waves and penalty are those of the fit without the first part; only the last regression sees that part's targets."""
    X, y = make_friedman1(300, noise=0.5, random_state=0)
    rows = distinct_rows(torch.from_numpy(X))
    X, y = X[rows], y[rows]  # the order in which fit sees them
    order = distinct_rows(without_units(torch.from_numpy(X)))
    train, test = (order[part] for part in next(left_out_parts(300, 3)))
    learned, learn = [], rfteach.adaptive._learn
    monkeypatch.setattr(rfteach.adaptive, "_learn", lambda Z, *a, **k: (learned.append(Z.shape[1]), learn(Z, *a, **k))[1])
    judged, judge = [], rfteach.adaptive.judge
    monkeypatch.setattr(rfteach.adaptive, "judge", lambda *a, **k: (judged.append(judge(*a, **k)), judged[-1])[1])
    m = AdaptiveFeatureRegressor(n_components=500, n_subsample=200, n_folds=3, random_state=0)
    whole = clone(m).fit(X, y)
    assert learned == [200] * 3
    first = clone(m).set_params(n_folds=None, bounds=whole.bounds_).fit(X[train], y[train])
    changed = clone(m).fit(X, np.where(np.isin(np.arange(300), test), y - 3, y))
    for name in ("relevance_", "bandwidth_", "smoothness_", "history_", "active_inputs_"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(first, name))
        np.testing.assert_array_equal(getattr(changed, name), getattr(first, name))
    assert whole.alpha_ == pytest.approx(first.alpha_, rel=1e-12) == changed.alpha_
    assert whole.n_iter_ == first.n_iter_ and whole.n_scouting_ == first.n_scouting_
    assert abs(whole.predict(X) - first.predict(X)).max() > 1e-3 < abs(whole.predict(X) - changed.predict(X)).max()
    unseen = y[test] - (judged[3].residuals[test, 0] * power_of_two(torch.from_numpy(y))).numpy()
    np.testing.assert_allclose(unseen, first.predict(X[test]), rtol=1e-9)
    assert abs(unseen - whole.predict(X[test])).max() > 1e-3
    few = clone(m).set_params(n_subsample=201)
    learned.clear()
    assert few.fit(X, y).relevance_.any() and learned == [200] * 3 + [201]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_penalty_of_many_features(monkeypatch, dtype):
    """Chosen on 2000 rows where rows and features are more: about as good as on all of them."""
    X, y = make_friedman1(700, noise=0.3, random_state=0)
    V, f = make_friedman1(500, noise=0.0, random_state=1)
    X, y = X.astype(dtype), y.astype(dtype)
    seen, fit = [], RandomFeatureRidge.fit

    def noted(self, X, y, **given):
        seen.append((isinstance(self.alpha, str), len(X)))
        return fit(self, X, y, **given)

    monkeypatch.setattr(RandomFeatureRidge, "fit", noted)
    errors, penalties = [], []
    for most in (300, 10_000):
        monkeypatch.setattr(rfteach.adaptive, "_CHOOSING", most)
        m = AdaptiveFeatureRegressor(n_components=1000, n_subsample=200, n_folds=None, random_state=0).fit(X, y)
        errors.append(np.mean((m.predict(V) - f) ** 2))
        penalties.append(m.alpha_)
    assert seen == [(True, 300), (False, 700), (True, 700)]
    assert errors[0] < 1.3 * errors[1] and 0.1 < penalties[0] / penalties[1] < 10


@pytest.mark.parametrize("selection", ["mixed", "largest"])
def test_waves_that_rows_can_tell(selection):
    """Noise takes waves away, at no cost; rows without noise keep all that they may have."""
    V, f = make_friedman1(1000, noise=0.0, random_state=1)
    counts, errors = {}, {}
    for noise in (0.0, 1.0):
        X, y = make_friedman1(600, noise=noise, random_state=0)
        for worth in (1e-3, 0.0):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(rfteach.waves, "_KEPT", worth)
                model = AdaptiveFeatureRegressor(selection=selection, n_folds=None, random_state=0).fit(X, y)
            counts[noise, worth] = len(model.frequencies_)
            errors[noise, worth] = np.mean((model.predict(V) - f) ** 2)
    assert counts[0.0, 1e-3] == counts[0.0, 0.0] and errors[0.0, 1e-3] == errors[0.0, 0.0]
    assert counts[1.0, 1e-3] < counts[1.0, 0.0] / 3
    assert abs(errors[1.0, 1e-3] / errors[1.0, 0.0] - 1) < 0.01
    free = AdaptiveFeatureRegressor(selection=selection, alpha=0.0, n_folds=None, random_state=0).fit(X, y)
    assert len(free.frequencies_) == counts[1.0, 0.0], "without a penalty every wave is kept"


def test_waves_that_few_rows_took_for_noise():
    """Detail that the rows of the evidence cannot resolve counts as noise there; the residuals of all rows show it."""
    rng = np.random.default_rng(0)
    X, V = rng.random((2000, 12)), rng.random((1000, 12))
    f = lambda Z: 5 * Z[:, 0] + 0.3 * np.sin(40 * Z).sum(1)
    y = f(X) + 0.1 * rng.standard_normal(2000)
    model = AdaptiveFeatureRegressor(max_order=1, n_folds=None, random_state=0).fit(X, y)
    assert np.mean((model.predict(V) - f(V)) ** 2) < 0.01  # without (10.44) ten times as much and more
    assert not [name for name in vars(model) if "spare" in name]


def test_warnings_and_bar(friedman, capsys):
    X, y = friedman
    with pytest.warns(ConvergenceWarning, match="max_iter=2 iterations"):
        m = AdaptiveFeatureRegressor(max_iter=2, random_state=0, verbose=True).fit(X, y)
    assert m.n_iter_ <= 4 and "criterion" in capsys.readouterr().err


@pytest.mark.parametrize("kw, error, text", [
    (dict(n_components=0), ValueError, "n_components"), (dict(n_components=1.5), TypeError, "n_components"),
    (dict(max_order=0), ValueError, "max_order"), (dict(max_order=7), ValueError, "max_order"),
    (dict(n_frequencies=0), ValueError, "n_frequencies"), (dict(n_subsample=1), ValueError, "n_subsample"),
    (dict(max_iter=0), ValueError, "max_iter"), (dict(tol=-1.0), ValueError, "tol"),
    (dict(tol=math.nan), ValueError, "tol must be"),
    (dict(selection="best"), ValueError, "selection must be"), (dict(alpha="gcv"), ValueError, "alpha must be"),
    (dict(alpha=-1.0), ValueError, "alpha must be"), (dict(bounds=[[0, 1]]), ValueError, "bounds must have shape"),
    (dict(bounds=[[1, 0]] * 10), ValueError, "ascending"), (dict(device="gpu"), ValueError, "device"),
])
def test_errors(friedman, kw, error, text):
    with pytest.raises(error, match=text):
        AdaptiveFeatureRegressor(**kw).fit(*friedman)


def test_bad_data(friedman):
    X, y = friedman
    with pytest.raises(NotFittedError):
        AdaptiveFeatureRegressor().predict(X)
    with pytest.raises(ValueError, match="X and y must have as many rows, got 150 and 149"):
        AdaptiveFeatureRegressor().fit(X, y[:-1])
    with pytest.raises(ValueError, match="NaN"):
        AdaptiveFeatureRegressor().fit(X, np.where(y > y.mean(), np.nan, y))
    with pytest.raises(ValueError, match="must not be negative"):
        AdaptiveFeatureRegressor().fit(X, y, sample_weight=-np.ones(150))


def test_noise_a_plane_and_a_function_of_two_inputs():
    rng = np.random.default_rng(0)
    X = rng.random((80, 12))
    noise = AdaptiveFeatureRegressor(random_state=0).fit(X, rng.normal(size=80))
    assert noise.chosen_ == "constant" and noise.coef_.shape == (0,) and noise.active_sets_ == []
    assert noise.order_ == 0 and len(noise.active_inputs_) == 0 and 0.6 < noise.error_ < 1.5
    slopes = rng.normal(size=12)
    plane = AdaptiveFeatureRegressor(random_state=0).fit(X, X @ slopes + 0.3 * rng.normal(size=80))
    if plane.chosen_ == "plane":
        assert plane.order_ == 1 and len(plane.active_sets_) == len(plane.active_inputs_)
        for dtype in (np.float64, np.float32):
            p = plane.predict(X.astype(dtype)).astype(float)
            T = np.c_[np.ones(80), X]
            assert abs(p - T @ np.linalg.lstsq(T, p, rcond=None)[0]).max() < 1e-3 * p.std()
    waves = AdaptiveFeatureRegressor(random_state=0).fit(X, np.sin(6 * X[:, 3]) * X[:, 7])
    assert waves.chosen_ == "expansion" and waves.active_inputs_.tolist() == [3, 7]
    assert waves.error_ < waves.errors_["plane"] < 1.2 * waves.errors_["constant"]


def test_learning_where_gradients_are_switched_off():
    rng = np.random.default_rng(1)
    X = rng.random((60, 3))
    y = np.sin(5 * X[:, 0])
    model = AdaptiveFeatureRegressor(500, n_folds=None, random_state=0)
    expected = model.fit(X, y).predict(X)
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            np.testing.assert_array_equal(model.fit(X, y).predict(X), expected)


def test_of_many_inputs_the_relevant_ones_are_seen():
    rng = np.random.default_rng(2)
    X = rng.random((120, 400))
    y = np.sin(5 * X[:, 17]) + 2 * (X[:, 301] - 0.5) * X[:, 44]
    model = AdaptiveFeatureRegressor(500, max_order=2, n_folds=None, max_iter=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    assert {17} <= set(model.active_inputs_) and len(model.active_inputs_) <= 100
    assert np.isinf(model.bandwidth_).sum() >= 300


def test_targets_are_standardised_by_their_weights():
    g = torch.Generator().manual_seed(0)
    Y, w = torch.randn(50, 2, generator=g).double(), torch.rand(50, generator=g).double()
    Y[:25] *= 9
    V, centre, spread = _standardised(Y, w)
    p = w / w.sum()
    torch.testing.assert_close(p @ V, torch.zeros(2).double())
    torch.testing.assert_close(p @ V**2, torch.ones(2).double())
    torch.testing.assert_close(V * spread + centre, Y)


def test_scores_are_weighted_sums():
    rng = np.random.default_rng(0)
    codes, weights = largest_waves(np.array([[1.0, 0.5], [0.7, 0.2]]), 2, 8)
    features = WaveFeatures(codes, weights, np.array([[0.0, 1.0]] * 2), 2)
    X, R = (torch.from_numpy(rng.uniform(size=(40, 2))) for _ in range(2))
    w = torch.from_numpy(rng.uniform(0.1, 3, 40))
    F = features.transform(X)
    slow = (F.T @ (w[:, None] * R)) ** 2 / ((F**2).T @ w)[:, None] / (w @ R**2 / 40)
    torch.testing.assert_close(wave_scores(features, X, R, w), slow)


def test_the_evidence_is_that_of_weighted_rows(monkeypatch):
    seen, learn = [], rfteach.adaptive._learn
    monkeypatch.setattr(rfteach.adaptive, "_learn", lambda Z, Y, w, *given, **more: seen.append(w) or learn(Z, Y, w, *given, **more))
    rng = np.random.default_rng(0)
    X, w = rng.uniform(size=(50, 2)), rng.uniform(0.1, 3, 50)
    AdaptiveFeatureRegressor(20, n_frequencies=4, max_iter=3, tol=1.0, n_folds=None, random_state=0).fit(X, X[:, 0], sample_weight=w)
    np.testing.assert_allclose(np.sort(seen[0]), np.sort(w / w.mean()))


def test_bounds_that_are_given_are_within_reach():
    """Rows in the middle of a box that is given: waves go on to its edge, and a quarter beyond."""
    rng = np.random.default_rng(0)
    X, new = rng.uniform(-1, 1, (120, 2)), rng.uniform(-2, 2, (2000, 2))
    f = lambda X: np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    model = AdaptiveFeatureRegressor(200, bounds=[[-2, 2]] * 2, n_folds=None, random_state=0).fit(X, f(X))
    np.testing.assert_allclose(model.reach_, [[-3, 3]] * 2)
    assert np.mean((model.predict(new) - f(new)) ** 2) < 0.02 * f(new).var()


def test_numbers_of_a_grid_are_numbers():
    X, y = make_friedman1(60, random_state=0)
    fits = [AdaptiveFeatureRegressor(50, n_frequencies=m, n_folds=None, random_state=0).fit(X, y) for m in (8, np.int64(8))]
    assert np.array_equal(fits[0].predict(X), fits[1].predict(X))


FEW = dict(n_components=60, n_frequencies=8, max_iter=20, n_folds=None)


def test_shares_are_those_of_all_outputs():
    """Two outputs of equal variance, each of an input of its own: half of the summed variance each."""
    X = np.random.default_rng(0).uniform(size=(120, 2))
    model = AdaptiveFeatureRegressor(**FEW, random_state=0).fit(X, np.sin(3 * X - 1.5))
    share = dict(zip(model.active_sets_, model.set_shares_))
    assert abs(share[0,] - 0.5) < 0.1 and abs(share[1,] - 0.5) < 0.1


def test_the_seed_draws_rows_and_waves():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(200, 3))
    y = np.sin(3 * X[:, 0] + X[:, 1]) + 0.1 * rng.normal(size=200)
    fits = [AdaptiveFeatureRegressor(**FEW, n_subsample=100, random_state=seed).fit(X, y).predict(X) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(fits[0], fits[1])
    assert not np.allclose(fits[0], fits[2])
