"""Recursive feature machines: gradients, rounds and the choice against slow forms, the estimators' contract, edges."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.linalg import subspace_angles
from scipy.stats import ortho_group
from sklearn.base import clone
from sklearn.datasets import load_iris, make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

import rfteach.agop
from rfteach.agop import RFMClassifier, RFMRegressor, _winner, kernel_gradients, learn_metric, metric_root, outer_product
from rfteach.agop import rfm_rounds
from rfteach.arrays import memory_budget
from rfteach.eigenpro import EigenProRegressor
from rfteach.kernel_ridge import gram_solve
from rfteach.kernels import Cauchy, Gaussian, Laplacian, Laplacian1, Matern

KERNELS = [Gaussian(1.3), Laplacian(1.3), Laplacian1(1.3), Matern(1.5, 1.3), Matern(2.5, 1.3), Matern(0.8, 1.3), Cauchy(1.3)]
FAST = dict(n_rounds=1, metric="full", alpha=0.1)


def problem(n=60, d=4, k=None, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = np.sin(2 * X[:, :1] + X[:, 1:2] * np.arange(1, (k or 1) + 1))
    return X, Y if k else Y[:, 0]


def tensors(X, y):
    Y = torch.from_numpy(y if y.ndim > 1 else y[:, None])
    return torch.from_numpy(X), Y, torch.ones(len(X)).double()


# --- gradients


def slow_gradients(k, Z, U, A):
    """By autograd, one function and one row after the other."""
    Z, U, A = (torch.as_tensor(T).double() for T in (Z, U, A))
    G = torch.zeros(len(Z), A.shape[1], Z.shape[1]).double()
    for j in range(len(Z)):
        for i in range(A.shape[1]):
            z = Z[j : j + 1].clone().requires_grad_()
            others = (U != Z[j]).any(1)
            (g,) = torch.autograd.grad((k.gram(z, U[others]) @ A[others, i]).sum(), z)
            G[j, i] = g[0]
    return G


@pytest.mark.parametrize("k", KERNELS, ids=str)
@pytest.mark.parametrize("budget", [2_000, 2**23])
def test_gradients_are_those_of_autograd(k, budget):
    rng = np.random.default_rng(0)
    U, Z, A = rng.normal(size=(40, 3)), rng.normal(size=(7, 3)), rng.normal(size=(40, 2))
    U[5] = U[6]  # a copy at the same place
    for points in (Z, U):
        slow = slow_gradients(k, points, U, A)
        with memory_budget(budget):
            G = kernel_gradients(k, points, U, A)
        assert np.abs(G - slow.numpy()).max() < 1e-12 * max(1, float(slow.abs().max()))
        assert np.allclose(kernel_gradients(k, points, U, A[:, 0]), G[:, 0], atol=1e-12)


def test_gradients_in_float32_and_of_rows_that_nearly_coincide():
    X = np.random.default_rng(0).normal(size=(50, 3))
    exact = kernel_gradients("laplacian", X, X, X[:, 0])
    single = kernel_gradients("laplacian", X.astype(np.float32), X.astype(np.float32), X[:, 0].astype(np.float32))
    assert single.dtype == np.float32 and np.abs(single - exact).max() < 1e-4
    X[1] = X[0] + 1e-12
    assert np.isfinite(kernel_gradients("laplacian", X, X, X[:, 0])).all()
    T = torch.from_numpy(X)
    assert isinstance(kernel_gradients("laplacian", T, T, T[:, 0]), torch.Tensor)


def test_a_full_memory_for_differences_is_not_needed():
    X = torch.randn(4000, 50).double()
    held = []

    class Watched(Gaussian):
        def _profile(self, s):
            held.append(s.numel())
            return super()._profile(s)

    with memory_budget(2**20):
        kernel_gradients(Watched(5.0), X, X[:100], X[:100, 0])
    assert max(held) <= 2**20 / 8


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", ["gaussian", "matern32", "laplacian1"])
def test_gradients_are_refused_where_the_kernel_is(kernel, dtype):
    far = np.array([[0.9], [1.0]], dtype) * np.finfo(dtype).max
    for centers in (far, far.copy(), -far):
        with pytest.raises(ValueError, match="^X / bandwidth overflows in"):
            kernel_gradients(kernel, far, centers, [1.0, 1.0])
    with pytest.raises(ValueError, match="^centers / bandwidth overflows in"):
        kernel_gradients(kernel, far / far, far, [1.0, 1.0])


def test_metrics_are_learned_beside_a_graph():
    """Of the rows, or of the kernel's bandwidth: the rounds keep no graph, and are not disturbed by one."""
    X, w = torch.rand(40, 2, dtype=torch.float64), torch.ones(40, dtype=torch.float64)
    sigma = torch.tensor(3.0, dtype=torch.float64)
    *_, right = rfm_rounds(X, X[:, :1], w, Matern(1.5, sigma), 1)
    *_, found = rfm_rounds(X, X[:, :1], w, Matern(1.5, sigma.requires_grad_()), 1)
    torch.testing.assert_close(found.L, right.L)
    found = learn_metric(X, X[:, :1], w, Matern(1.5, sigma))
    assert not any(T.requires_grad for T in (found.last.L, *found.residuals.values()))


def test_predictions_keep_gradients():
    X, y = problem()
    T = torch.from_numpy(X[:4]).requires_grad_()
    for f in (RFMRegressor(n_rounds=1).fit(X, y).predict, RFMClassifier(n_rounds=1).fit(X, y > 0).decision_function):
        assert torch.autograd.gradcheck(f, T, atol=1e-4)


def test_gradients_for_a_data_frame():
    X, A = np.random.default_rng(0).normal(size=(4, 2)), np.eye(4)[:, :3]
    frame = pd.DataFrame(X, index=list("abcd"))
    one, several = kernel_gradients("gaussian", frame, frame, A[:, 0]), kernel_gradients("gaussian", frame, frame, A)
    assert list(one.index) == list("abcd") and isinstance(several, np.ndarray)
    np.testing.assert_allclose(several, kernel_gradients("gaussian", X, X, A), atol=1e-15)
    np.testing.assert_allclose(one, several[:, 0], atol=1e-15)


def test_outer_product_and_root():
    G = torch.randn(20, 2, 3).double()
    w = torch.rand(20).double()
    slow = sum(w[i] * torch.outer(g, g) for i in range(20) for g in G[i]) / w.sum()
    assert torch.allclose(outer_product(G, w), slow)
    for metric in ("full", "diagonal"):
        L = metric_root(slow, metric, 0.1)
        M = slow if metric == "full" else slow.diagonal().diag()
        assert torch.allclose(L.T @ L, M * 3 / slow.trace() + 0.1 * torch.eye(3))
    assert torch.equal(metric_root(torch.zeros(3, 3)), torch.eye(3))
    singular = torch.outer(G[0, 0], G[0, 0])
    L = metric_root(singular, "full")
    assert torch.allclose(L.T @ L, singular * 3 / singular.trace(), atol=1e-12)
    with pytest.raises(ValueError, match="metric must be"):
        metric_root(torch.eye(2), "auto")


# --- rounds and the choice


@pytest.mark.parametrize("k", [Laplacian(2.0), Laplacian1(2.0), Matern(1.5, 3.0)], ids=str)
def test_rounds_by_hand(k):
    X, Y, w = tensors(*problem())
    w = w * torch.rand(60).double() + 0.1
    metric = "diagonal" if isinstance(k, Laplacian1) else "full"
    first, second = rfm_rounds(X, Y, w, k, 1, alpha=0.1, metric=metric)
    G = torch.from_numpy(slow_gradients(k, X @ first.L.T, X @ first.L.T, first.coef).numpy()) @ first.L
    L = metric_root(outer_product(G, w), metric, 0.03)
    L = L / np.median(torch.pdist(X @ L.T))
    assert torch.allclose(second.L.T @ second.L, L.T @ L, rtol=1e-8)
    K = k.gram(X @ first.L.T, X @ first.L.T)
    assert torch.allclose(K @ first.coef + first.intercept + 0.1 * first.coef / w[:, None], Y)
    assert abs(first.coef.sum()) < 1e-9


@pytest.mark.parametrize("alpha", [0.1, "loo"])
def test_residuals_of_rows_left_out(alpha):
    X, Y, w = tensors(*problem(30))
    r = next(rfm_rounds(X, Y, w, Laplacian(3.0), 0, alpha=alpha))
    keep = torch.arange(30) != 4
    U = X @ r.L.T
    K = Laplacian(3.0).gram(U[keep], U[keep]) + r.lam * torch.eye(29)
    one = torch.ones(29, 1).double()
    a = torch.linalg.solve(torch.cat([torch.cat([K, one], 1), torch.cat([one.T, torch.zeros(1, 1)], 1)]),
                           torch.cat([Y[keep], torch.zeros(1, 1)]))
    value = Laplacian(3.0).gram(U[4:5], U[keep]) @ a[:-1] + a[-1]
    assert torch.allclose(r.residuals[4], Y[4] - value[0], rtol=1e-6)


def test_without_residuals_it_is_the_same_fit():
    X, Y, w = tensors(*problem(k=2))
    for free in (True, False):
        with_, without = (next(rfm_rounds(X, Y, w, Laplacian(1.0), 0, alpha=0.1, left_out=known, fit_intercept=free))
                          for known in (True, False))
        assert without.residuals is None and torch.allclose(with_.coef, without.coef, atol=1e-9)
        assert torch.allclose(with_.intercept, without.intercept, atol=1e-9)


def test_no_matrix_is_learned_from_noise():
    ratios = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        found = learn_metric(*tensors(rng.normal(size=(80, 8)), rng.normal(size=80)), Matern(1.5, 3.0))
        assert found.n_rounds == 0 or found.metric == "diagonal"
        hopeful = learn_metric(*tensors(rng.normal(size=(80, 8)), rng.normal(size=80)), Matern(1.5, 3.0), n_rounds="loo")
        means = {key: float(e.square().mean()) for key, e in hopeful.residuals.items()}
        ratios.append(means["full", 5] / means["full", 0])
    assert np.mean(ratios) < 0.97, "leave-one-out is known to be too hopeful"


def test_a_rotation_needs_a_full_metric_and_an_axis_does_not():
    X = np.random.default_rng(1).normal(size=(250, 6))
    assert RFMRegressor().fit(X, np.sin(2 * X.sum(1) / 6**0.5)).learned_ == "full"
    assert RFMRegressor().fit(X, np.sin(2 * X[:, 2])).learned_ == "diagonal"


@pytest.mark.parametrize("rank", [1, 2])
def test_directions_are_found(rank):
    P, X = ortho_group.rvs(10, random_state=0)[:rank], np.random.default_rng(0).normal(size=(300, 10))
    y = np.sin(1.5 * X @ P[0]) + (rank > 1) * (X @ P[-1]) ** 2 / 2
    model = RFMRegressor(metric="full").fit(X, y)
    assert np.degrees(subspace_angles(P.T, model.directions_[:rank].T)[0]) < 6
    assert model.shares_[:rank].sum() > 0.97 and np.isclose(model.shares_.sum(), 1)
    assert np.allclose(model.directions_ @ model.directions_.T, np.eye(10))


def test_learning_helps_on_friedman():
    X, y = make_friedman1(200, noise=1.0, random_state=0)
    Z, z = make_friedman1(500, random_state=1)
    error = lambda m: np.mean((m.fit(X, y).predict(Z) - z) ** 2)
    assert error(RFMRegressor()) < 0.5 * error(RFMRegressor(n_rounds=0))
    assert set(np.argsort(-RFMRegressor().fit(X, y).relevance_)[:5]) == set(range(5))


# --- the estimators


@pytest.mark.parametrize("model", [RFMRegressor(), RFMClassifier(), RFMRegressor("laplacian1"),
                                   RFMRegressor(n_rounds="loo", metric="diagonal"), RFMRegressor(**FAST)], ids=str)
def test_contract(model):
    results = check_estimator(model, on_skip=None)
    assert {r["status"] for r in results} == {"passed"}


def test_prediction_is_what_the_attributes_say():
    X, Y = problem(k=2)
    model = RFMRegressor().fit(X, Y)
    M, k = model.metric_, model.kernel_
    values, V = np.linalg.eigh(M)
    L = np.sqrt(values.clip(0))[:, None] * V.T
    by_hand = k(X[:5] @ L.T, model.centers_ @ L.T) @ model.coef_.T + model.intercept_
    assert np.allclose(model.predict(X[:5]), by_hand, atol=1e-8)
    assert model.error_.shape == (2,) and np.allclose(M, M.T) and values.min() > -1e-12


def test_units_do_not_matter():
    X, y = problem()
    scale, shift = np.array([1e-3, 1.0, 5.0, 1e4]), np.array([0.0, 3.0, -1.0, 1e4])
    kind = dict(n_rounds=2, metric="full")
    plain, other = RFMRegressor(**kind).fit(X, y), RFMRegressor(**kind).fit(X * scale + shift, 1e3 * y - 7)
    assert np.allclose(other.predict(X * scale + shift), 1e3 * plain.predict(X) - 7, rtol=1e-5, atol=1e-4)
    assert np.allclose(other.metric_ * np.outer(scale, scale), plain.metric_, rtol=1e-5, atol=1e-7)
    assert np.isclose(other.error_, 1e6 * plain.error_, rtol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_units_do_not_matter_for_the_choice(seed):
    """Which rows are left out follows from the standardised rows, not from the bits of the raw ones."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(80, 4))
    y = np.sin(2 * X[:, 0] + X[:, 1]) + 0.3 * rng.normal(size=80)
    scale, shift = np.array([1e3, 1e-3, 1.8, 1.0]), np.array([5.0, 100.0, 32.0, 0.0])
    plain, other = RFMRegressor().fit(X, y), RFMRegressor().fit(X * scale + shift, y)
    assert (plain.learned_, plain.n_rounds_) == (other.learned_, other.n_rounds_)
    assert np.isclose(plain.error_, other.error_, rtol=1e-6)
    assert np.allclose(plain.predict(X), other.predict(X * scale + shift), atol=1e-6)


def test_a_far_row_does_not_decide_the_unit_of_its_input():
    X, _ = problem(d=2)
    y = X.sum(1)
    X[0, 0] = 1e6
    M = RFMRegressor(n_rounds=0, alpha=0.1).fit(X, y).metric_
    assert M[0, 0] > 0.01 * M[1, 1]


def test_rows_in_another_order_and_weights():
    X, y = problem()
    plain = RFMRegressor(**FAST).fit(X, y)
    order = np.random.default_rng(0).permutation(60)
    assert np.allclose(RFMRegressor(**FAST).fit(X[order], y[order]).predict(X), plain.predict(X))
    twice = RFMRegressor(n_rounds=1).fit(np.r_[X, X[:20]], np.r_[y, y[:20]])
    weighted = RFMRegressor(n_rounds=1).fit(X, y, sample_weight=np.r_[np.full(20, 2.0), np.ones(40)])
    assert np.allclose(twice.predict(X), weighted.predict(X))
    without = RFMRegressor(n_rounds=1).fit(X[20:], y[20:])
    zero = RFMRegressor(n_rounds=1).fit(X, y, sample_weight=np.r_[np.zeros(20), np.ones(40)])
    assert np.allclose(without.predict(X), zero.predict(X))


@pytest.mark.parametrize("solver", ["landmarks", "eigenpro", "direct"])
def test_solvers_agree(solver):
    X, y = problem(200)
    y = y + 0.1 * np.random.default_rng(0).normal(size=200)
    exact = RFMRegressor(n_rounds=1, metric="full", alpha=0.1).fit(X, y)
    model = RFMRegressor(n_rounds=1, metric="full", alpha=0.1, solver=solver, random_state=0).fit(X, y)
    assert model.solver_ == solver
    close = 0.05 if solver == "eigenpro" else 1e-10
    assert np.mean((model.predict(X) - exact.predict(X)) ** 2) < close
    assert len(model.coef_) == len(model.centers_) == 200


def test_more_rows_than_the_metric_is_learned_from():
    X, y = problem(400)
    Z, z = problem(200, seed=1)
    few = RFMRegressor(n_subsample=100).fit(X, y)
    assert few.solver_ == "direct" and len(few.centers_) == 400
    part = RFMRegressor(n_subsample=100, solver="landmarks", n_centers=150).fit(X, y)
    assert len(part.centers_) == 150
    for model in (few, part):
        assert np.mean((model.predict(Z) - z) ** 2) < 0.05


def test_a_bandwidth_that_wants_a_gradient():
    X, y = problem()
    sigma = torch.tensor(3.0, dtype=torch.float64, requires_grad=True)
    right, model = (RFMRegressor(Matern(1.5, b), n_rounds=1).fit(X, y) for b in (3.0, sigma))
    np.testing.assert_array_equal(model.metric_, right.metric_)
    assert not model.kernel_.bandwidth.requires_grad and sigma.requires_grad


def test_one_gram_matrix_for_all_penalties(monkeypatch):
    """Where the last fit is on more rows than the metric was learned from."""
    X, y = problem(400)
    seen, gram = [], Matern.gram
    monkeypatch.setattr(Matern, "gram", lambda kernel, X, Y, *side: (seen.append(len(X)), gram(kernel, X, Y, *side))[1])
    RFMRegressor(n_subsample=100).fit(X, y)
    assert seen.count(400) == 1


def test_several_outputs_share_a_metric_in_their_own_units():
    X, Y = problem(k=2)
    plain, scaled = RFMRegressor(**FAST).fit(X, Y), RFMRegressor(**FAST).fit(X, Y * [1.0, 1e5])
    assert np.allclose(plain.metric_, scaled.metric_)
    assert np.allclose(plain.predict(X) * [1, 1e5], scaled.predict(X))
    with_constant = RFMRegressor(**FAST).fit(X, np.c_[Y[:, 0], np.full(60, 3.0)])
    assert np.allclose(with_constant.predict(X)[:, 1], 3) and np.allclose(
        with_constant.predict(X)[:, 0], RFMRegressor(**FAST).fit(X, Y[:, 0]).predict(X))


@pytest.mark.parametrize("model", [RFMRegressor(), RFMRegressor(n_rounds=2), RFMRegressor(n_rounds=2, metric="full"),
                                   RFMRegressor("laplacian1")], ids=str)
def test_degenerate_data(model):
    rng = np.random.default_rng(0)
    X, y = problem(12)
    cases = {
        "one row": (X[:1], y[:1]), "two rows": (X[:2], y[:2]), "three rows": (X[:3], y[:3]),
        "constant column": (np.c_[X, np.ones(12)], y), "constant inputs": (np.ones((12, 2)), y),
        "constant target": (X, np.full(12, 5.0)), "copies": (np.repeat(X, 3, 0), np.repeat(y, 3)),
        "collinear": (np.c_[X, X @ X[0, :4]], y), "more columns than rows": (rng.normal(size=(12, 40)), y),
        "huge": (X * 1e200, y * 1e200), "tiny": (X * 1e-200, y * 1e-200), "zero": (0 * X, 0 * y),
    }
    for name, (A, b) in cases.items():
        fitted = clone(model).fit(A, b)
        values = fitted.predict(A)
        assert np.isfinite(values).all() and (name == "tiny" or np.isfinite(fitted.metric_).all()), name
        assert np.isfinite(fitted.relevance_).all() and np.isfinite(fitted.directions_).all(), name
        if name in ("one row", "constant target", "zero"):
            assert np.allclose(values, b), name
        if name == "constant column":
            assert np.allclose(fitted.predict(np.c_[X, np.full(12, 9.0)]), values), name


def test_a_single_row_has_no_error():
    """However often it is there: without it there is no model."""
    y = 1000 + np.random.default_rng(0).normal(size=20)
    model = RFMRegressor().fit(np.zeros((20, 1)), y)
    assert np.isnan(model.error_) and abs(model.predict([[0.0]])[0] - y.mean()) < 1e-9
    with pytest.raises(AttributeError, match="more than one different row"):
        model.predict_interval([[0.0]])


def test_predictions_on_collinear_inputs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    X = np.c_[X, X @ rng.normal(size=(4, 6))] + 1e-5 * rng.normal(size=(300, 10))
    y = X[:, 0] + X[:, 1] ** 2
    model = RFMRegressor(bandwidth=10.0).fit(X[:200], y[:200])
    assert np.mean((model.predict(X[200:]) - y[200:]) ** 2) < 1e-3 * y.var()


def test_kinds_of_data():
    X, y = problem()
    plain = RFMRegressor(**FAST).fit(X, y)
    frame = RFMRegressor(**FAST).fit(pd.DataFrame(X, columns=list("abcd")), pd.Series(y))
    assert list(frame.feature_names_in_) == list("abcd") and isinstance(frame.predict(pd.DataFrame(X, columns=list("abcd"))), np.ndarray)
    tensor = RFMRegressor(**FAST).fit(torch.from_numpy(X), torch.from_numpy(y))
    out = tensor.predict(torch.from_numpy(X))
    assert isinstance(out, torch.Tensor) and np.allclose(out, plain.predict(X))
    single = RFMRegressor(**FAST).fit(X.astype(np.float32), y.astype(np.float32))
    assert single.predict(X.astype(np.float32)).dtype == np.float32
    assert np.abs(single.predict(X.astype(np.float32)) - plain.predict(X)).max() < 1e-4
    with torch.inference_mode():
        assert np.allclose(RFMRegressor(**FAST).fit(X, y).predict(X), plain.predict(X))
    copy = pickle.loads(pickle.dumps(plain))
    assert np.array_equal(copy.predict(X), plain.predict(X))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_on_cuda():
    X, y = problem()
    plain, there = RFMRegressor().fit(X, y), RFMRegressor(device="cuda").fit(X, y)
    assert np.allclose(plain.predict(X), there.predict(X), atol=1e-6)


def test_classes():
    X, y = load_iris(return_X_y=True)
    model = RFMClassifier().fit(X[::2], y[::2])
    assert model.score(X[1::2], y[1::2]) > 0.93 and model.decision_function(X).shape == (150, 3)
    two = RFMClassifier(**FAST).fit(X[:100], np.array(["a", "b"])[y[:100]])
    assert two.coef_.shape == (len(two.centers_),) and isinstance(two.intercept_, float)
    assert (two.predict(X[:100]) == np.array(["a", "b"])[y[:100]]).mean() > 0.98


def test_verbose(capsys):
    X, y = problem(40)
    RFMRegressor(verbose=True).fit(X, y)
    assert "rounds" in capsys.readouterr().err


@pytest.mark.parametrize("settings, error, words", [
    (dict(kernel="laplacian1", metric="full"), ValueError, "metric must be 'diagonal' or 'auto' for the ℓ₁"),
    (dict(kernel="unknown"), ValueError, "kernel='unknown' is unknown"),
    (dict(bandwidth="median"), ValueError, "bandwidth must be None or a number in .0, inf., got 'median'"),
    (dict(bandwidth=-1.0), ValueError, "bandwidth must be"),
    (dict(kernel=Laplacian(2.0), bandwidth=7.0), ValueError, "bandwidth=7.0 is given beside a kernel that has its own"),
    (dict(kernel=Laplacian(np.ones(4))), ValueError, "bandwidth must be one number"),
    (dict(metric="round"), ValueError, "metric must be 'auto', 'full' or 'diagonal'"),
    (dict(n_rounds=-1), ValueError, "n_rounds must be"),
    (dict(n_rounds=1.5), TypeError, "n_rounds must be"),
    (dict(alpha=-1.0), ValueError, "alpha must be"),
    (dict(shrinkage="a"), TypeError, "shrinkage must be"),
    (dict(solver="cg"), ValueError, "solver must be"),
    (dict(n_centers=0), ValueError, "n_centers must be"),
    (dict(verbose=1), TypeError, "verbose must be"),
], ids=str)
def test_what_is_refused(settings, error, words):
    with pytest.raises(error, match=words):
        RFMRegressor(**settings).fit(*problem())


def test_more_that_is_refused():
    X, y = problem()
    with pytest.raises(ValueError, match="sample_weight must be the same"):
        RFMRegressor(solver="eigenpro").fit(X, y, sample_weight=np.arange(60.0))
    with pytest.raises(NotFittedError):
        RFMRegressor().predict(X)
    with pytest.raises(ValueError, match="NaN|nan"):
        RFMRegressor().fit(np.where(X > 1, np.nan, X), y)
    with pytest.raises(ValueError, match="centers"):
        kernel_gradients("gaussian", X, X[:, :2], y)
    with pytest.raises(ValueError, match="coef"):
        kernel_gradients("gaussian", X, X, y[:5])


def test_left_out_predictions_belong_to_their_rows():
    X, y = problem()
    model = RFMRegressor().fit(X, y)
    left = model.left_out_
    assert np.isclose(np.mean(left.residuals**2), model.error_, rtol=1e-6)
    classifier = RFMClassifier().fit(X, y > y.mean())
    assert np.mean(-np.log(classifier.predict_proba(X)[np.arange(len(y)), (y > y.mean()).astype(int)])) < 0.3


def test_a_wrong_seed_is_refused_whatever_the_solver():
    X = np.arange(20.0)[:, None]
    with pytest.raises(TypeError, match="random_state must be"):
        RFMRegressor(random_state="hello").fit(X, X[:, 0])
    with pytest.raises(ValueError, match="random_state"):
        RFMRegressor(random_state=-1).fit(X, X[:, 0])


def test_the_seed_reaches_eigenpro(monkeypatch):
    monkeypatch.setattr(rfteach.agop, "EigenProRegressor", partial(EigenProRegressor, max_iter=2))
    X, y = problem(30, 2)
    model = RFMRegressor(n_rounds=0, alpha=0.1, solver="eigenpro")
    first, other, again = (clone(model).set_params(random_state=s).fit(X, y).predict(X) for s in (0, 1, 0))
    assert np.array_equal(first, again) and not np.allclose(first, other)


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA, pd.NaT])
def test_missing_labels_are_refused(missing):
    y = np.array(["a"] * 10 + [missing] * 10, dtype=object)
    for y in (y, pd.Series(y), y.tolist()):
        with pytest.raises(ValueError, match="y has no label in row 10"):
            RFMClassifier().fit(np.arange(20.0)[:, None], y)


def test_labels_of_several_kinds_are_refused():
    for y in (["a", 1] * 10, np.array(["a", 1] * 10, dtype=object), pd.Series(["a", 1] * 10), ["a", True] * 10):
        with pytest.raises(ValueError, match="y mixes the word 'a' with (1|True); expected integers, strings or booleans"):
            RFMClassifier().fit(np.arange(20.0)[:, None], y)


def test_what_is_read_of_the_gradients_is_weighted():
    """relevance_ and shares_ are those of the weighted mean of outer products of the slopes of `predict`."""
    X, y = problem()
    y = np.where(X[:, 3] > 0, y, 3 * X[:, 2])
    w = np.where(X[:, 3] > 0, 1.0, 0.01)
    model = RFMRegressor(n_rounds=1, metric="full", alpha=0.1).fit(X, y, sample_weight=w)
    spread = np.sqrt(w @ (X - w @ X / w.sum()) ** 2 / w.sum())
    steps = 1e-5 * np.eye(4)
    G = np.stack([model.predict(X + e) - model.predict(X - e) for e in steps], 1) / 2e-5 * spread
    M = (w[:, None] * G).T @ G
    np.testing.assert_allclose(model.relevance_, M.diagonal() / M.trace(), atol=1e-6)
    np.testing.assert_allclose(model.shares_, np.linalg.eigvalsh(M)[::-1] / M.trace(), atol=1e-6)


def test_the_error_is_a_weighted_mean():
    X, y = problem()
    w = np.random.default_rng(1).uniform(0.1, 5, 60)
    model = RFMRegressor(n_rounds=0).fit(X, y, sample_weight=w)
    left = model.left_out_
    assert np.isclose(np.average(left.residuals[:, 0] ** 2, weights=left.w), model.error_, rtol=1e-6)


def test_a_choice_counts_rows_by_their_weights():
    """More rounds are better on half of the rows, and worse on the other."""
    rng = np.random.default_rng(0)
    first = torch.arange(40) < 20
    plain = 1 + 0.1 * torch.from_numpy(rng.normal(size=(40, 1)))
    residuals = {("full", 0): plain, ("full", 1): torch.where(first[:, None], 0.5 * plain, 1.5 * plain)}
    groups = [[("full", 0)], [("full", 1)]]
    for better, winner in ((1.0, ("full", 1)), (0.01, ("full", 0))):
        w = torch.where(first, better, 1.01 - better).double()
        assert _winner(groups, residuals, w) == winner


def test_the_penalty_for_more_rows_has_the_least_weighted_error():
    """Half of the rows are noise, and have next to no weight."""
    rng, model = np.random.default_rng(0), RFMRegressor()
    model.kernel_ = Gaussian(0.3)
    U, w = torch.from_numpy(rng.uniform(size=(60, 1))), torch.tensor([1.0, 1e-3]).double().repeat_interleave(30)
    Y = torch.sin(6 * U) + torch.where(w == 1, 0.05, 3.0)[:, None] * torch.from_numpy(rng.normal(size=(60, 1)))
    K = model.kernel_.gram(U, U)
    for lam in (1e-6, 1e-3, 1.0):
        tried = [0.25 * lam, lam, 4 * lam]
        errors = [float(w @ gram_solve(K, Y, other, w).residuals.square()[:, 0]) for other in tried]
        assert model._around(U, Y, w, lam)[0] == tried[int(np.argmin(errors))]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("unit", [1e-25, 1e20])
def test_gradients_have_the_unit_of_the_inputs(dtype, unit):
    """Also where its square leaves the range of float32."""
    X, U, c = (np.random.default_rng(s).standard_normal((5, 2)).astype(dtype) for s in range(3))
    right = kernel_gradients(Gaussian(1.0), X, U, c)
    found = kernel_gradients(Gaussian(unit), X * dtype(unit), U * dtype(unit), c) * dtype(unit)
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


def plane_far_up(n=60):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, 10 + X[:, 0] + 0.1 * rng.normal(size=n), rng.uniform(0.1, 3, n)


@pytest.mark.parametrize("ways", [{}, {"n_subsample": 40}, {"solver": "landmarks"}, {"solver": "eigenpro"}, {"n_rounds": 1, "alpha": 0.1}], ids=str)
def test_without_an_intercept_it_is_zero_whatever_the_solver(ways):
    X, y, _ = plane_far_up()
    assert RFMRegressor(fit_intercept=False, random_state=0, **ways).fit(X, y).intercept_ == 0
    assert RFMRegressor(random_state=0, **ways).fit(X, y).intercept_ > 5


def test_all_rows_as_weighted_landmarks_are_the_direct_fit():
    X, y, w = plane_far_up()
    direct, landmarks = (RFMRegressor(n_rounds=0, alpha=3.0, solver=solver).fit(X, y, w) for solver in ("direct", "landmarks"))
    np.testing.assert_allclose(landmarks.predict(X), direct.predict(X), rtol=1e-4)


def test_rows_that_the_metric_is_learned_from_are_not_left_out():
    X, y, _ = plane_far_up()
    model = RFMRegressor(n_subsample=40).fit(X, y)
    assert len(model.left_out_.rows) == 20
    assert not set(model.left_out_.rows) & set(np.flatnonzero((X[:, None] == model.centers_[:40]).all(2).any(1)))
