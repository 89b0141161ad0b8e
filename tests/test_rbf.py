"""RBF networks and Nyström features: contract, algebra, draw of the centres, degenerate data, what is refused."""

import copy
import gc
import math
import pickle
import weakref
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from scipy.spatial.distance import pdist
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.dummy import DummyRegressor
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import rfteach.gram
import rfteach.rbf
from rfteach.arrays import memory_budget
from rfteach.copies import distinct_rows
from rfteach.kernels import Cauchy, Gaussian, Laplacian, Matern
from rfteach.rbf import NystroemFeatures, RBFRegressor, rpcholesky

RULES = ["uniform", "kmeans", "rpcholesky"]
KERNELS = {
    "gaussian": Gaussian(1.5),
    "laplacian": Laplacian(1.5),
    "cauchy": Cauchy([1.0, 1.5, 2.0]),
    "matern0.8": Matern(0.8, 1.5),
}
X0 = np.random.default_rng(0).normal(size=(60, 3))
Y0 = np.sin(X0[:, 0]) + X0[:, 1] ** 2
Z0 = np.round(8 * X0) / 8  # the same numbers in each precision


def network_reference(X, U, c, b, sigma):
    """Equation (5.1) with the Gaussian, one number at a time, in float64."""
    out = np.full(len(X), float(b))
    for i in range(len(X)):
        for j in range(len(U)):
            s2 = sum((float(X[i, l]) - float(U[j, l])) ** 2 for l in range(X.shape[1]))
            out[i] += float(c[j]) * math.exp(-s2 / (2 * sigma**2))
    return out


@pytest.mark.parametrize(
    "estimator",
    [NystroemFeatures(centers=rule) for rule in RULES]
    + [RBFRegressor(centers=rule) for rule in RULES]
    + [RBFRegressor(solver="pinv"), RBFRegressor(alpha=1e-3, fit_intercept=False, kernel="matern32")],
)
def test_scikit_learns_contract(estimator):
    """No check fails, none is skipped; the equivalence of weights and repeated rows is among them."""
    results = check_estimator(estimator, on_skip=None)
    assert len(results) > 40
    assert {r["status"] for r in results} == {"passed"}, [r for r in results if r["status"] != "passed"]
    assert any("sample_weight_equivalence" in r["check_name"] for r in results)


# ------------------------------------------------------------------ features


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", KERNELS)
def test_nystroem_identities(name, rule):
    """A Aᵀ = K_nm K_mm⁺ K_mn, exact on the centres, K − A Aᵀ positive semidefinite: the proposition."""
    k = KERNELS[name]
    features = NystroemFeatures(k, n_components=20, centers=rule, random_state=0).fit(X0)
    A, U = features.transform(X0), features.centers_
    assert U.shape == (20, 3) and A.shape == (60, features.whitening_.shape[1])
    residual = k(X0) - A @ A.T
    np.testing.assert_allclose(A @ A.T, k(X0, U) @ np.linalg.pinv(k(U), rcond=1e-13) @ k(U, X0), atol=1e-9)
    assert np.linalg.eigvalsh(residual)[0] > -1e-10
    on_centres = features.transform(U)
    np.testing.assert_allclose(A @ on_centres.T, k(X0, U), atol=1e-10)


def test_all_points_as_centres_is_exact_kernel_ridge():
    for k in (Laplacian(2.0), Gaussian(1.5)):
        features = NystroemFeatures(k, n_components=60).fit(X0)
        A, At = features.transform(X0), features.transform(X0 + 0.1)
        np.testing.assert_allclose(A @ A.T, k(X0), atol=1e-9)
        a = np.linalg.solve(A.T @ A + 0.1 * np.eye(A.shape[1]), A.T @ Y0)
        alpha = np.linalg.solve(k(X0) + 0.1 * np.eye(60), Y0)
        np.testing.assert_allclose(At @ a, k(X0 + 0.1, X0) @ alpha, atol=1e-7)


def test_same_kernel_as_scikit_learns_nystroem():
    features = NystroemFeatures(Gaussian(1.5), n_components=25, random_state=0).fit(X0)
    peer = Nystroem(gamma=1 / (2 * 1.5**2), n_components=25).fit(features.centers_)
    B, A = peer.transform(X0), features.transform(X0)
    np.testing.assert_allclose(A @ A.T, B @ B.T, atol=1e-8)


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-12), (np.float32, 1e-5)])
@pytest.mark.parametrize("budget", [1, 2**20])
def test_network_agrees_with_the_reference(dtype, tolerance, budget):
    X = X0.astype(dtype)
    with memory_budget(budget):
        model = RBFRegressor(12, bandwidth=1.5, alpha=1e-2, random_state=0).fit(X, Y0)
        p = model.predict(X)
    assert p.dtype == dtype and model.centers_.dtype == dtype
    slow = network_reference(X, model.centers_, model.coef_, model.intercept_, 1.5)
    np.testing.assert_allclose(p, slow, atol=10 * tolerance * abs(model.coef_).sum())
    # the weights are those of ridge regression with a free intercept
    A = Gaussian(1.5)(X.astype(float), model.centers_.astype(float))
    peer = Ridge(alpha=1e-2).fit(A, Y0)
    np.testing.assert_allclose(p, peer.predict(A), atol=1e-7 if dtype == np.float64 else 1e-3)


def test_precisions_may_differ_between_fit_and_transform():
    """The higher one decides: a float64 whitening is not applied to float32 kernel values."""
    X = np.random.default_rng(3).uniform(-1, 1, (150, 2)).astype(np.float32)
    exact = Gaussian(0.7)(X.astype(float))
    for fitted in (np.float32, np.float64):
        for used in (np.float32, np.float64):
            features = NystroemFeatures(Gaussian(0.7), n_components=150).fit(X.astype(fitted))
            A = features.transform(X.astype(used))
            assert A.dtype == used
            assert abs(A.astype(float) @ A.T.astype(float) - exact).max() < 1e-3


def test_kinds_and_devices(device):
    numpy_out = NystroemFeatures("matern32", n_components=10, random_state=0).fit(Z0).transform(Z0)
    model = RBFRegressor(10, random_state=0, kernel="matern32").fit(Z0, Y0)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-3)):
        X, y = torch.from_numpy(Z0).to(device, dtype), torch.from_numpy(Y0).to(device, dtype)
        features = NystroemFeatures("matern32", n_components=10, random_state=0).fit(X)
        A = features.transform(X)
        assert A.dtype == dtype and A.device.type == device
        np.testing.assert_allclose(abs(A.cpu().numpy()), abs(numpy_out), atol=tolerance)
        p = RBFRegressor(10, random_state=0, kernel="matern32").fit(X, y).predict(X)
        assert isinstance(p, torch.Tensor) and p.dtype == dtype and p.device.type == device
        np.testing.assert_allclose(p.cpu(), model.predict(Z0), atol=tolerance)
    moved = RBFRegressor(10, random_state=0, kernel="matern32", device=device).fit(Z0, Y0).predict(Z0)
    assert isinstance(moved, np.ndarray)
    np.testing.assert_allclose(moved, model.predict(Z0), atol=1e-8)
    half = torch.from_numpy(Z0).half()
    assert RBFRegressor(10, alpha=0.1).fit(half, torch.from_numpy(Y0)).predict(half).dtype == torch.float32
    frame = pd.DataFrame(Z0, columns=list("abc"), index=np.arange(5, 65))
    features = NystroemFeatures(n_components=10, random_state=0).set_output(transform="pandas").fit(frame)
    out = features.transform(frame)
    assert out.index.equals(frame.index) and list(out.columns) == list(features.get_feature_names_out())
    assert list(model.fit(frame, pd.Series(Y0)).feature_names_in_) == ["a", "b", "c"]


def test_gradients_reach_the_inputs():
    features = NystroemFeatures(Matern(2.5, 2.0), n_components=5, random_state=0).fit(X0)
    X = torch.from_numpy(X0[:4]).requires_grad_()
    assert torch.autograd.gradcheck(features.transform, (X,))
    bandwidth = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    A = NystroemFeatures(Gaussian(bandwidth), n_components=5, random_state=0).fit(X0).transform(X0)
    np.testing.assert_allclose(
        abs(A), abs(NystroemFeatures(Gaussian(2.0), n_components=5, random_state=0).fit_transform(X0)), atol=1e-9
    )


def test_fitted_map_keeps_its_kernel():
    features = NystroemFeatures(Gaussian(1.0)).fit(X0)
    features.set_params(kernel__bandwidth=9.0)
    assert features.kernel_.bandwidth == 1.0


@pytest.mark.parametrize("make", [np.array, torch.tensor, list])
def test_a_fitted_model_owns_its_state(make):
    """What is given and changed after fit, in place, changes no prediction."""
    for kw in ("bandwidth", "kernel", "centers"):
        for estimator in (NystroemFeatures, RBFRegressor):
            given = make([1.0, 1.5, 2.0]) if kw != "centers" else make(X0[:9].tolist())
            value = Gaussian(given) if kw == "kernel" else given
            model = estimator(**{kw: value}, random_state=0).fit(X0, Y0)
            read = model.predict if estimator is RBFRegressor else model.transform
            before = read(X0)
            given[0] = given[1]
            np.testing.assert_array_equal(read(X0), before)


def test_gradients_reach_a_bandwidth():
    bandwidth = torch.tensor([2.0, 1.0, 3.0], dtype=torch.float64, requires_grad=True)
    features = NystroemFeatures(Gaussian(bandwidth), n_components=5, random_state=0).fit(X0)
    features.transform(torch.from_numpy(X0)).sum().backward()
    assert (bandwidth.grad != 0).all()


# ------------------------------------------------------------------ centres


@pytest.mark.parametrize(
    "rows",
    [
        np.arange(12.0)[:, None],
        np.stack(np.meshgrid([0.0, 1.0, 2.0], [0.0, -1.0, 2.0, 3.0]), -1).reshape(-1, 2),
        np.random.default_rng(0).normal(size=(12, 5)),
    ],
    ids=["integers", "grid with zeros", "normal"],
)
def test_uniform_draw(rows):
    """Each distinct row, and each pair of rows, is drawn equally often over seeds: χ² at 1e-4."""
    repeated = torch.from_numpy(np.concatenate([rows, np.repeat(rows[3:4], 50, 0), rows[:2]]))
    n, m, n_seeds = 12, 4, 2000
    count, pairs = np.zeros(n), np.zeros((n, n))
    name = np.r_[np.arange(n), np.full(50, 3), 0, 1]
    for seed in range(n_seeds):
        drawn = name[distinct_rows(repeated, seed=seed)]
        assert sorted(drawn) == list(range(n))
        count[drawn[:m]] += 1
        pairs[np.ix_(drawn[:m], drawn[:m])] += 1
    mean = n_seeds * m / n
    statistic = ((count - mean) ** 2 / mean).sum() / ((n - m) / (n - 1))
    assert chi2.sf(statistic, n - 1) > 1e-4
    mean = n_seeds * m * (m - 1) / (n * (n - 1))
    z = (pairs[np.triu_indices(n, 1)] - mean) / np.sqrt(mean)
    assert abs(z).max() < 4.5


@pytest.mark.parametrize("rule", RULES)
def test_centres_depend_on_the_set_of_rows_alone(rule):
    """Not on order, repetition, dtype, the sign of zero, or how large a weight is."""
    X = np.round(X0, 1).astype(np.float32).astype(float)
    X[:5, 0] = 0.0
    fit = lambda X, w=None: NystroemFeatures(n_components=15, centers=rule, random_state=3).fit(X, sample_weight=w)
    first = fit(X)
    rng = np.random.default_rng(0)
    shuffled = X[rng.permutation(60)]
    signed = np.where(X == 0, -0.0, X)
    repeated = np.repeat(X, rng.integers(1, 5, 60), axis=0)
    weights = np.r_[rng.uniform(0.1, 9, 60), np.zeros(40)]
    padded = np.r_[X, rng.normal(size=(40, 3))]
    for other in (fit(shuffled), fit(signed), fit(repeated), fit(padded, weights), fit(np.asfortranarray(X))):
        np.testing.assert_allclose(other.centers_, first.centers_, atol=1e-12)
        assert other.kernel_.bandwidth == pytest.approx(first.kernel_.bandwidth, rel=1e-12)
        assert not np.signbit(other.centers_[other.centers_ == 0]).any()
    if rule == "uniform":
        np.testing.assert_array_equal(fit(X.astype(np.float32)).centers_, first.centers_)
        np.testing.assert_array_equal(fit(torch.from_numpy(X).float()).centers_, first.centers_)
    other = NystroemFeatures(n_components=15, centers=rule, random_state=4).fit(X)
    assert not np.array_equal(other.centers_, first.centers_)


def test_bottom_m_sketch_can_be_merged():
    """The draw from all rows lies in the draws from the parts, for the same seed."""
    draw = lambda X: NystroemFeatures(n_components=10, random_state=0).fit(X).centers_
    whole, parts = draw(X0), np.concatenate([draw(X0[:25]), draw(X0[25:])])
    np.testing.assert_array_equal(draw(parts), whole)


@pytest.mark.parametrize("rule", RULES[:1] + RULES[2:])
def test_centres_are_rows(rule):
    U = NystroemFeatures(n_components=15, centers=rule, random_state=0).fit(X0).centers_
    rows = {tuple(row) for row in X0}
    assert len({tuple(u) for u in U} & rows) == 15


class Table:
    """A kernel between the numbers of rows, read from a matrix with ones on its diagonal."""

    def __init__(self, K):
        self.K = torch.as_tensor(K)

    def gram(self, X, Y):
        return self.K[X[:, 0].long()][:, Y[:, 0].long()].to(X.dtype)

    def side(self, Y, name):
        """Nothing is made of one side."""

    def tile(self, X, Y, side=None):
        values = self.gram(X, Y)
        return lambda rows, cols, out: out.copy_(values[rows, cols])


def test_norms_of_all_rows_are_made_once(monkeypatch):
    """Whatever the number of rounds."""
    X, k, seen, centred = torch.randn(500, 3, generator=torch.Generator().manual_seed(0)), Gaussian(0.5), [], rfteach.gram._centred
    monkeypatch.setattr(rfteach.gram, "_centred", lambda T, *more: seen.append(T is X) or centred(T, *more))
    assert len(rpcholesky(k, X, 100, np.random.default_rng(0), proposals=16)[0]) == 100
    assert sum(seen) == 1 and len(seen) > 10


def cosines(rows, rank):
    """Cosines of the angles between random vectors, the first two of them equal."""
    V = np.random.default_rng(1).normal(size=(rows, rank))
    V[1] = V[0]
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    return V @ V.T


def one_by_one(K, m, rng):
    """Equation (5.8) on the whole residual matrix, one pivot after the other; what is left of K."""
    R = K.copy()
    for _ in range(m):
        total = np.maximum(np.diag(R), 0).cumsum()
        p = int(np.searchsorted(total, rng.random() * total[-1], side="right"))
        R = R - np.outer(R[:, p], R[p]) / R[p, p]
    return R


def law(K, m):
    """The probability of each sequence of m pivots."""
    found = {(): (1.0, K)}
    for _ in range(m):
        found = {(*s, p): (weight * R[p, p] / R.trace(), R - np.outer(R[:, p], R[p]) / R[p, p])
                 for s, (weight, R) in found.items() for p in range(len(K)) if R[p, p] > 1e-9}
    return {s: weight for s, (weight, _) in found.items()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("proposals", [1, 3, 128])
def test_rpcholesky_draws_by_the_law(proposals, dtype):
    """Sequences of three pivots as often as by (5.8), however many are proposed in a round: χ² at 1e-4."""
    K = Gaussian(1.0)(np.array([0.0, 0.4, 0.4, 1.0, 3.0, 3.3])[:, None])
    n_draws, rng = 1500, np.random.default_rng(proposals)
    X, exact, found = torch.arange(6, dtype=dtype)[:, None], law(K, 3), Counter()
    for _ in range(n_draws):
        found[tuple(rpcholesky(Table(K), X, 3, rng, proposals)[0])] += 1
    assert found.keys() <= exact.keys() and sum(exact.values()) == pytest.approx(1)
    ranked = sorted(exact, key=exact.get)
    expected, seen, group = [], [], [0.0, 0]  # rare ones together, 10 expected in each class
    for s in ranked:
        group = [group[0] + n_draws * exact[s], group[1] + found[s]]
        if group[0] >= 10:
            expected, seen, group = [*expected, group[0]], [*seen, group[1]], [0.0, 0]
    expected[-1], seen[-1] = expected[-1] + group[0], seen[-1] + group[1]
    statistic = ((np.array(seen) - expected) ** 2 / expected).sum()
    assert len(expected) > 15 and chi2.sf(statistic, len(expected) - 1) > 1e-4


def test_rpcholesky_leaves_as_much_as_one_by_one():
    """The mean trace of the residual within four standard errors, which are 2 % of it."""
    X = np.random.default_rng(2).normal(size=(150, 2))
    k, K = Gaussian(0.7), Gaussian(0.7)(X)
    slow = [one_by_one(K, 20, np.random.default_rng(seed)).trace() for seed in range(200)]
    for proposals in (8, 128):
        fast = [150 - float((rpcholesky(k, torch.from_numpy(X), 20, np.random.default_rng(seed), proposals)[1] ** 2).sum())
                for seed in range(200)]
        se = math.hypot(np.std(slow), np.std(fast)) / 200**0.5
        assert abs(np.mean(fast) - np.mean(slow)) < 4 * se < 0.1 * np.mean(slow)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("name", KERNELS)
def test_rpcholesky_is_a_cholesky_factor(name, dtype, tolerance, device):
    """F is that of the pivots in their order; it is exact there, and each column lowers the diagonal."""
    k, X = KERNELS[name], torch.from_numpy(Z0).to(device, dtype)
    pivots, F = rpcholesky(k, X, 25, np.random.default_rng(5))
    assert F.dtype == dtype and F.device.type == device and F.shape == (60, 25) and len(set(pivots)) == 25
    F, K = F.cpu().double().numpy(), k(Z0)
    assert abs(F @ F[pivots].T - K[:, pivots]).max() < tolerance
    np.testing.assert_allclose(F @ F.T, K[:, pivots] @ np.linalg.solve(k(Z0[pivots]), K[pivots]), atol=10 * tolerance)
    L = np.linalg.cholesky(k(Z0[pivots]))
    np.testing.assert_allclose(F, K[:, pivots] @ np.linalg.inv(L).T, atol=100 * tolerance)
    left = 1 - np.cumsum(F**2, axis=1)
    assert (np.diff(left, axis=1) <= 0).all() and left.min() > -tolerance
    with memory_budget(2000):  # ten rows, or twenty
        again = rpcholesky(k, X, 25, np.random.default_rng(5))
    assert again[0] == pivots
    np.testing.assert_allclose(again[1].cpu(), F, atol=100 * tolerance)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-11), (torch.float32, 1e-4)])
def test_rpcholesky_on_degenerate_rows(dtype, tolerance):
    """Equal rows, rows of zeros, one row, more pivots than rows, exact and numerical lack of rank: K, and no pivot twice."""
    X = torch.from_numpy(Z0).to(dtype)
    cases = {
        "each row four times": (Laplacian(2.0), X[:10].repeat(4, 1), 10),
        "rows of zeros": (Gaussian(1.0), torch.zeros(30, 3, dtype=dtype), 1),
        "zeros of both signs": (Gaussian(1.0), torch.tensor([[0.0], [-0.0], [1.0]], dtype=dtype), 2),
        "one row": (Matern(1.5), X[:1], 1),
        "rank three": (Table(cosines(40, 3)), torch.arange(40, dtype=dtype)[:, None], 3),
        "a rank for numbers only": (Gaussian(4.0), X, None),
        "rows that do not see each other": (Gaussian(1e-3), X, 60),
    }
    for name, (k, rows, rank) in cases.items():
        for seed in range(5):
            pivots, F = rpcholesky(k, rows, 80, np.random.default_rng(seed))
            assert len(set(pivots)) == len(pivots) == F.shape[1] <= len(rows), name
            assert rank is None or len(pivots) == rank, name
            K = k.gram(rows.double(), rows.double()).numpy()
            assert abs(K - (F.double() @ F.T.double()).numpy()).max() < tolerance, name


def test_rpcholesky_is_nearly_optimal_and_stops():
    """Mean trace error against bound (5.9); on a smooth kernel it stops before it runs out of rank."""
    X = np.random.default_rng(0).normal(size=(300, 2))
    k = Gaussian(0.5)
    tail = np.linalg.eigvalsh(k(X))[::-1][15:].sum()
    m = math.ceil(15 + 15 * math.log(300 / tail))
    errors = []
    for seed in range(20):
        _, F = rpcholesky(k, torch.from_numpy(X), m, np.random.default_rng(seed))
        errors.append(300 - float((F**2).sum()))
    assert np.mean(errors) + 3 * np.std(errors) / np.sqrt(20) < 2 * tail
    pivots, F = rpcholesky(Gaussian(5.0), torch.from_numpy(X), 300, np.random.default_rng(0))
    assert 5 < len(pivots) < 100
    assert abs(Gaussian(5.0)(X) - (F @ F.T).numpy()).max() < 1e-10


def test_which_centres_on_clustered_data():
    """k-means and randomly pivoted Cholesky explain the kernel several times better than uniform ones."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((800, 1)) < 0.9, rng.normal(0, 0.1, (800, 2)), rng.uniform(-4, 4, (800, 2)))
    trace = {}
    for rule in RULES:
        A = [
            NystroemFeatures(Gaussian(1.0), n_components=40, centers=rule, random_state=s).fit_transform(X)
            for s in range(3)
        ]
        trace[rule] = np.mean([800 - (a**2).sum() for a in A])
    assert trace["kmeans"] < 0.4 * trace["uniform"] and trace["rpcholesky"] < 0.4 * trace["uniform"]


def test_median_bandwidth_of_the_distinct_rows():
    X = np.concatenate([X0, np.repeat(X0[:3], 200, axis=0)])
    for model in (NystroemFeatures(random_state=0).fit(X), RBFRegressor(random_state=0).fit(X, np.zeros(len(X)))):
        assert model.kernel_.bandwidth == pytest.approx(np.median(pdist(X0)), rel=1e-9)
    big = np.random.default_rng(0).normal(size=(6000, 2))
    estimate = NystroemFeatures(random_state=0).fit(big).kernel_.bandwidth
    assert estimate == pytest.approx(np.median(pdist(big[:3000])), rel=0.03)
    assert NystroemFeatures(Gaussian(7.0)).fit(X0).kernel_.bandwidth == 7.0
    assert NystroemFeatures(bandwidth=[1.0, 2.0, 3.0]).fit(X0).kernel_.bandwidth == [1.0, 2.0, 3.0]


def test_given_centres():
    U = X0[:7] + 0.01
    model = RBFRegressor(3, centers=U, alpha=0.1).fit(X0, Y0)
    np.testing.assert_array_equal(model.centers_, U)
    assert model.coef_.shape == (7,)
    np.testing.assert_array_equal(NystroemFeatures(centers=torch.from_numpy(U)).fit(X0).centers_, U)


def test_seeds():
    draw = lambda seed: NystroemFeatures(n_components=5, random_state=seed).fit(X0).centers_
    np.testing.assert_array_equal(draw(0), draw(0))
    np.testing.assert_array_equal(draw(np.random.default_rng(4)), draw(4))
    rng = np.random.default_rng(0)
    models = [RBFRegressor(5, random_state=rng).fit(X0, Y0) for _ in range(2)]
    assert not np.array_equal(models[0].centers_, models[1].centers_)


# ------------------------------------------------------------------ the network


def test_penalties_and_solvers():
    """The intercept is free, "loo" and "gcv" are no worse than their neighbours, pinv is least squares."""
    A = np.c_[np.ones(60), Gaussian(1.5)(X0, X0[:10])]
    network = lambda **kw: RBFRegressor(bandwidth=1.5, centers=X0[:10], **kw)
    exact = A @ np.linalg.lstsq(A, Y0, rcond=None)[0]
    for model in (network(solver="pinv"), network(alpha=0.0)):
        np.testing.assert_allclose(model.fit(X0, Y0).predict(X0), exact, atol=1e-9)
        assert model.alpha_ == 0
    for alpha in ("loo", 1e-3):
        moved = network(alpha=alpha).fit(X0, Y0 + 1e4).predict(X0) - 1e4
        np.testing.assert_allclose(moved, network(alpha=alpha).fit(X0, Y0).predict(X0), atol=1e-6)
    y = Y0 + np.random.default_rng(1).normal(size=60)

    def loo(alpha):  # by leaving out
        errors = []
        for i in range(60):
            rest = np.arange(60) != i
            errors.append(network(alpha=alpha).fit(X0[rest], y[rest]).predict(X0[i : i + 1])[0] - y[i])
        return np.mean(np.square(errors))

    def gcv(alpha):  # the residual, over the share of the degrees of freedom that is left
        B = A[:, 1:] - A[:, 1:].mean(0)
        H = B @ np.linalg.solve(B.T @ B + alpha * np.eye(10), B.T) + 1 / 60
        return np.mean((y - H @ y) ** 2) / (1 - np.trace(H) / 60) ** 2

    for error, best in ((loo, network().fit(X0, y).alpha_), (gcv, network(alpha="gcv").fit(X0, y).alpha_)):
        assert error(best) <= min(error(10 * best), error(best / 10)) * (1 + 1e-9)


def test_many_digits_where_normal_equations_have_none():
    """50 wide Gaussians on 1000 points, condition number near 1e10, against SVD; no noise."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-4, 4, (1000, 2))
    y = np.exp(-0.5 * ((X - 0.3) ** 2).sum(1))
    U, sigma = X[:50], np.sqrt(16.8 / 2)
    A = np.c_[np.ones(1000), Gaussian(sigma)(X, U)]
    assert 1e8 < np.linalg.cond(A) < 1e12
    u, s, vt = np.linalg.svd(A, full_matrices=False)
    p = RBFRegressor(bandwidth=sigma, centers=U, solver="pinv").fit(X, y).predict(X)
    np.testing.assert_allclose(p, u @ (u.T @ y), atol=1e-6 * y.std())
    loo = RBFRegressor(bandwidth=sigma, centers=U).fit(X, y)
    assert np.sqrt(((loo.predict(X) - y) ** 2).mean()) < 1.1 * np.sqrt(((p - y) ** 2).mean())


def test_weights_and_outputs():
    rng = np.random.default_rng(0)
    Y = np.c_[Y0, -Y0, rng.normal(size=60)]
    for kw in (dict(alpha=0.1, bandwidth=1.0), dict(solver="pinv", bandwidth=1.0), dict()):
        network = lambda: RBFRegressor(8, kernel="matern32", random_state=0, **kw)
        together = network().fit(X0, Y)
        assert together.coef_.shape == (3, 8) and together.intercept_.shape == (3,)
        if kw:
            alone = np.stack([network().fit(X0, y).predict(X0) for y in Y.T], 1)
            np.testing.assert_allclose(together.predict(X0), alone, atol=1e-8)
            np.testing.assert_allclose(network().fit(X0, -Y).predict(X0), -together.predict(X0), atol=1e-8)
        w = rng.integers(0, 4, 60)
        weighted = network().fit(X0, Y0, sample_weight=w).predict(X0)
        repeated = network().fit(np.repeat(X0, w, 0), np.repeat(Y0, w)).predict(X0)
        np.testing.assert_allclose(weighted, repeated, atol=1e-6)


def test_the_scale_of_weights_and_copies_do_not_matter():
    """Width and penalty are chosen for the problem, not for how its weights are written."""
    y = Y0 + np.random.default_rng(1).normal(size=60)
    w = np.random.default_rng(0).uniform(0.1, 3, 60)
    for m in (20, 100):
        fit = lambda v, X=X0, y=y: RBFRegressor(m, random_state=0).fit(X, y, sample_weight=v).predict(X0)
        for c in (1.1, 2.0, 100.0, 1e-6):
            np.testing.assert_allclose(fit(c * w), fit(w), rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(fit(np.full(60, c)), fit(None), rtol=1e-6, atol=1e-9)
        twice = fit(None, np.r_[X0, X0], np.r_[y, y])
        np.testing.assert_allclose(twice, fit(None), rtol=1e-6, atol=1e-9)
        penalty = lambda c: RBFRegressor(m, alpha=0.3 * c, random_state=0).fit(X0, y, sample_weight=c * w)
        np.testing.assert_allclose(penalty(50.0).predict(X0), penalty(1.0).predict(X0), rtol=1e-6, atol=1e-9)


# ------------------------------------------------------------------ the width


def bump(n, sigma, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-4, 4, (n + 200, 2))
    y = np.exp(-((X - 0.3) ** 2).sum(1) / (2 * sigma**2))
    return X[:n], y[:n], X[n:], y[n:]


@pytest.mark.parametrize("kw", [dict(), dict(kernel="matern52"), dict(centers="kmeans"), dict(centers="rpcholesky"),
                                dict(alpha="gcv"), dict(alpha=1e-8), dict(solver="pinv"), dict(centers=X0[:40, :2])])
def test_the_width_is_that_of_least_error_among_multiples_of_the_median(kw):
    """A function narrower than the median distance; and the choice against errors from fits one by one."""
    X, y, Xt, yt = bump(300, 0.7)
    network = lambda **more: RBFRegressor(60, random_state=0, **kw, **more)
    model, median = network().fit(X, y), network(bandwidth="median").fit(X, y)
    ratio = model.kernel_.bandwidth / median.kernel_.bandwidth
    assert any(ratio == pytest.approx(r) for r in (1.0, 0.5, 0.25, 0.125))
    error = lambda model: ((model.predict(Xt) - yt) ** 2).mean()
    assert error(model) <= (1 if "kernel" in kw else 0.5) * error(median)
    if kw == {}:
        errors = [network(bandwidth=r * median.kernel_.bandwidth).fit(X, y).cv_errors_.min()
                  for r in (1.0, 0.5, 0.25, 0.125)]
        assert ratio == pytest.approx((1.0, 0.5, 0.25, 0.125)[np.argmin(errors)])
        many = bump(5000, 0.7)  # chosen on 2000 of them
        assert RBFRegressor(60, random_state=0).fit(*many[:2]).kernel_.bandwidth / median.kernel_.bandwidth == pytest.approx(
            ratio, rel=0.05)
        two = network().fit(X, np.c_[y, -y])
        assert two.kernel_.bandwidth == model.kernel_.bandwidth
    own = RBFRegressor(60, kernel=Gaussian(3.0), random_state=0).fit(X, y)
    assert own.kernel_.bandwidth == 3.0
    assert own.alphas_.shape == own.cv_errors_.shape and own.alpha_ in own.alphas_
    assert not hasattr(own.set_params(alpha=0.1).fit(X, y), "cv_errors_")


def test_one_place_has_the_median_whatever_chooses():
    """Generalised cross-validation of a single observation is 0/0; it is no reason for half of the median."""
    X, y = np.ones((50, 3)), np.arange(50.0)
    loo, gcv = (RBFRegressor(alpha=alpha, random_state=0).fit(X, y) for alpha in ("loo", "gcv"))
    assert gcv.kernel_.bandwidth == loo.kernel_.bandwidth
    np.testing.assert_allclose(gcv.predict(X), 24.5)


@pytest.mark.parametrize("noise, limit", [(True, 1.05), (False, 1.10)])
@pytest.mark.parametrize("n, d", [(50, 10), (100, 50), (300, 20), (300, 100)])
def test_defaults_notice_noise(n, d, noise, limit):
    """Pure noise, or a linear function as large as the noise: test error against a constant and linear ridge."""
    ratios = []
    for seed in range(12):
        rng = np.random.default_rng([seed, n, d])
        X, c = rng.normal(size=(n + 2000, d)), rng.normal(size=d)
        y = (0 if noise else X @ c / np.linalg.norm(c)) + rng.normal(size=len(X))
        error = lambda model: ((model.fit(X[:n], y[:n]).predict(X[n:]) - y[n:]) ** 2).mean()
        ratios.append(error(RBFRegressor(random_state=seed)) / min(error(DummyRegressor()), error(RidgeCV(10.0 ** np.arange(-3, 6)))))
    assert np.mean(ratios) < limit


def test_learns():
    X, y = make_friedman1(1000, noise=0.5, random_state=0)
    for kw, least in ((dict(), 0.9), (dict(kernel="matern52"), 0.9), (dict(centers="kmeans"), 0.9)):
        model = RBFRegressor(200, random_state=0, **kw).fit(X[:700], y[:700])
        assert model.score(X[700:], y[700:]) > least
    single = RBFRegressor(200, random_state=0).fit(X[:700].astype(np.float32), y[:700].astype(np.float32))
    assert single.score(X[700:].astype(np.float32), y[700:]) > 0.9


def test_pipeline_grid_search_clone_and_pickle():
    X, y = make_friedman1(200, random_state=0)
    search = GridSearchCV(RBFRegressor(50, kernel=Gaussian(), random_state=0), {"kernel__bandwidth": [0.01, 1.0]}, cv=3)
    search.fit(X, y)
    assert search.best_params_ == {"kernel__bandwidth": 1.0}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(search)).predict(X), search.predict(X))
    model = clone(RBFRegressor(5, centers=X[:4])).fit(X, y)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    features = NystroemFeatures(n_components=30, random_state=0)
    pipe = make_pipeline(features, Ridge(1e-3)).fit(X, y)
    assert pipe.score(X, y) > 0.5
    copy = pickle.loads(pickle.dumps(features.fit(X)))
    np.testing.assert_array_equal(copy.transform(X), features.transform(X))


# ------------------------------------------------------------------ degenerate data, errors

RNG = np.random.default_rng(7)
DEGENERATE = {
    "one row": np.array([[1.0, 2.0]]),
    "one column": RNG.normal(size=(9, 1)),
    "constant": np.full((9, 2), 3.0),
    "constant column": np.c_[RNG.normal(size=9), np.zeros(9)],
    "duplicates": np.repeat(RNG.normal(size=(3, 2)), 3, axis=0),
    "collinear": np.outer(np.arange(9.0), [1.0, 2.0, -1.0]),
    "close pair": np.array([[0.0, 1.0], [1e-300, 1.0], [5.0, 1.0], [7.0, 2.0]]),
    "huge": 1e100 * RNG.normal(size=(9, 2)),
    "tiny": 1e-100 * RNG.normal(size=(9, 2)),
    "wide": RNG.normal(size=(4, 30)),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_data(name, rule):
    """More centres than rows, in every shape of data; finite out, and the training points are hit."""
    X = DEGENERATE[name]
    y = np.arange(len(X), dtype=float) if name != "duplicates" else np.repeat([1.0, 5.0, 2.0], 3)
    A = NystroemFeatures(n_components=20, centers=rule, random_state=0).fit_transform(X)
    assert np.isfinite(A).all() and 1 <= A.shape[1] <= len(np.unique(X, axis=0))
    for kw in (dict(), dict(alpha=0.0), dict(alpha=1e-3), dict(solver="pinv")):
        for targets in (y, 0 * y, 1e100 * y):
            model = RBFRegressor(20, centers=rule, random_state=0, **kw).fit(X, targets)
            p = model.predict(X)
            assert np.isfinite(p).all() and np.isfinite(model.coef_).all()
            if not targets.any():
                assert not p.any()
            elif name == "constant":
                np.testing.assert_allclose(p, np.mean(targets), rtol=1e-9)
            elif "solver" in kw and name != "close pair":
                np.testing.assert_allclose(p, targets, atol=1e-4 * abs(targets).max())


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e30])
def test_scale_of_the_inputs_does_not_matter(scale):
    """With the median bandwidth; a power of two would give the same bits."""
    for dtype in (np.float32, np.float64):
        X = X0.astype(dtype)
        p = RBFRegressor(10, alpha=0.1, random_state=0, centers=X[:10]).fit(X, Y0).predict(X)
        Z = (X * scale).astype(dtype)
        q = RBFRegressor(10, alpha=0.1, random_state=0, centers=Z[:10]).fit(Z, Y0).predict(Z)
        np.testing.assert_allclose(p, q, atol=1e-8 if dtype == np.float64 else 1e-3)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: RBFRegressor(0).fit(X0, Y0), ValueError, "n_centers must be an integer of at least 1, got 0"),
        (lambda: RBFRegressor(2.5).fit(X0, Y0), TypeError, "n_centers must be an integer of at least 1, got 2.5"),
        (lambda: RBFRegressor(solver="svd").fit(X0, Y0), ValueError, "solver must be 'ridge' or 'pinv', got 'svd'"),
        (lambda: RBFRegressor(alpha=-1).fit(X0, Y0), ValueError, "alpha must be.*-1"),
        (lambda: RBFRegressor(alpha="cv").fit(X0, Y0), ValueError, "alpha must be.*'cv'"),
        (lambda: RBFRegressor().fit(X0, None), ValueError, "requires y to be passed"),
        (lambda: RBFRegressor().fit(X0, Y0[:3]), ValueError, "X and y must have as many rows, got 60 and 3"),
        (lambda: RBFRegressor().fit(X0, np.full(60, np.nan)), ValueError, "y contains NaN"),
        (lambda: RBFRegressor().fit(X0, Y0, sample_weight=-np.ones(60)), ValueError, "sample_weight must not be neg"),
        (lambda: RBFRegressor().predict(X0), NotFittedError, "not fitted yet"),
        (lambda: RBFRegressor().fit(X0, Y0).predict(X0[:, :2]), ValueError, "2 features, but RBFRegressor.*3 features"),
        (lambda: RBFRegressor(device="gpu").fit(X0, Y0), ValueError, "device='gpu' is not available"),
        (lambda: RBFRegressor(random_state=-1).fit(X0, Y0), ValueError, "random_state must not be negative"),
        (lambda: NystroemFeatures(n_components=0).fit(X0), ValueError, "n_components must be an integer of at least 1, got 0"),
        (lambda: NystroemFeatures(centers="random").fit(X0), ValueError, "centers must be .*got 'random'"),
        (lambda: NystroemFeatures(centers=X0[:, :2]).fit(X0), ValueError, "centers must have a column.*got 2 for 3"),
        (lambda: NystroemFeatures(centers=[[np.inf] * 3]).fit(X0), ValueError, "centers contains NaN or infinity"),
        (lambda: NystroemFeatures(centers=3).fit(X0), ValueError, "centers: Expected 2D array"),
        (lambda: NystroemFeatures("rbf").fit(X0), ValueError, "kernel='rbf' is unknown"),
        (lambda: NystroemFeatures(bandwidth="mean").fit(X0), ValueError, "bandwidth='mean' is unknown.*'median'"),
        (lambda: RBFRegressor(bandwidth="mean").fit(X0, Y0), ValueError, "bandwidth must be .*'loo', 'median' or 'learned', got 'mean'"),
        (lambda: NystroemFeatures(bandwidth=-1.0).fit(X0), ValueError, "bandwidth must be positive.*-1"),
        (lambda: NystroemFeatures(bandwidth=[1.0, 2.0]).fit(X0), ValueError, "bandwidth has 2 entries.*3 columns"),
        (lambda: NystroemFeatures(Gaussian(), 2.0).fit(X0), ValueError, "bandwidth=2.0 is given beside"),
        (lambda: NystroemFeatures().fit([[np.nan]]), ValueError, "^X contains NaN or infinity .1 NaN, 0 infinite"),
        (lambda: NystroemFeatures().fit(sp.csr_matrix(X0)), TypeError, "[Ss]parse"),
        (lambda: NystroemFeatures().fit(X0, sample_weight=np.zeros(60)), ValueError, "sample_weight|[Ss]ample weights"),
        (lambda: NystroemFeatures().fit(X0, sample_weight=-np.ones(60)), ValueError, "sample_weight must not be neg"),
        (lambda: NystroemFeatures().fit(X0, sample_weight=np.ones(3)), ValueError, "X and sample_weight must have as many rows, got 60 and 3"),
        (lambda: NystroemFeatures().transform(X0), NotFittedError, "not fitted yet"),
        (lambda: NystroemFeatures().fit(X0).transform(X0[:, :2]), ValueError, "2 features.*expecting 3"),
        (lambda: NystroemFeatures(random_state="x").fit(X0), TypeError, "random_state must be"),
    ],
)
def test_bad_input_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_nothing_large_is_held():
    """``fit`` on 20 000 rows with 50 centres: blocks of the budget only, no n×m matrix."""
    X = np.random.default_rng(0).normal(size=(20000, 3))
    largest = []
    kernel = Gaussian(2.0)
    original = Gaussian.gram

    def spy(self, A, B):
        largest.append(len(A) * len(B))
        return original(self, A, B)

    with pytest.MonkeyPatch.context() as patch, memory_budget(2**18):
        patch.setattr(Gaussian, "gram", spy)
        RBFRegressor(50, kernel=kernel, random_state=0).fit(X, X[:, 0]).predict(X)
        NystroemFeatures(kernel, n_components=50, random_state=0).fit_transform(X)
    assert max(largest) * 8 <= 2**18


def test_kmeans_warns_of_nothing():
    """Rows that differ by rounding only are fewer clusters than centres."""
    X = np.repeat(np.eye(3), 4, axis=0) * (1 + 4e-16 * np.arange(12))[:, None]
    U = NystroemFeatures(n_components=5, centers="kmeans", bandwidth=1.0, random_state=0).fit(X).centers_
    assert np.isfinite(U).all() and abs(U[:, None] - X).sum(2).min(0).max() < 1e-12  # each row has its centre


def test_kmeans_finds_clusters():
    rng = np.random.default_rng(0)
    means = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0], [9.0, 9.0]]) + 1e3
    X = np.concatenate([m + rng.normal(size=(50, 2)) for m in means])
    U = NystroemFeatures(n_components=4, centers="kmeans", random_state=0).fit(X).centers_
    assert np.abs(U[np.lexsort(U.T.round())] - X.reshape(4, 50, 2).mean(1)).max() < 1e-9


def test_a_penalty_is_as_large_for_the_rows_that_choose_the_width(monkeypatch):
    monkeypatch.setattr(rfteach.rbf, "_WIDTH_ROWS", 50)
    seen, network = [], RBFRegressor._network
    monkeypatch.setattr(RBFRegressor, "_network", lambda self, *given: seen.append(given) or network(self, *given))
    X = np.random.default_rng(0).normal(size=(500, 2))
    RBFRegressor(20, alpha=0.3, random_state=0).fit(X, np.sin(X[:, 0]))
    assert [given[3] for given in seen[:-1]] == [[0.3 * 50 / 500]] * 4 and seen[-1][1] == 0.3


@pytest.mark.parametrize("rule", ["uniform", "kmeans", "rpcholesky"])
def test_the_last_bit_does_not_choose_centres(rule):
    """What stands before a network may be rounded differently elsewhere, and float32 has fewer bits."""
    X = np.random.default_rng(0).normal(size=(200, 5))
    y, near = np.sin(X[:, 0]) + X[:, 1], X * (1 + 1e-15 * np.random.default_rng(1).normal(size=X.shape))
    assert (near != X).mean() > 0.9
    centres = [RBFRegressor(20, centers=rule, random_state=0).fit(T, y).centers_ for T in (X, near, X.astype(np.float32))]
    np.testing.assert_allclose(centres[1], centres[0], atol=1e-12)
    if rule == "uniform":
        np.testing.assert_array_equal(centres[2], centres[0].astype(np.float32))


def test_rows_that_float32_cannot_tell_are_drawn_fairly():
    """An hour of seconds since 1970, of which float32 knows every second minute."""
    X = 1.7e9 + np.random.default_rng(0).uniform(0, 3600, (5000, 1))
    centres = RBFRegressor(20, bandwidth=300.0, random_state=0).fit(X, np.sin(X[:, 0] / 300)).centers_ - 1.7e9
    assert centres.min() < 600 and centres.max() > 3000 and np.diff(np.sort(centres[:, 0])).max() < 1200
    X[:2500] = np.random.default_rng(1).normal(size=(2500, 1))  # which it can tell
    drawn = [np.mean(NystroemFeatures(Gaussian(), n_components=200, random_state=s).fit(X).centers_ > 1e9) for s in range(4)]
    assert abs(np.mean(drawn) - 0.5) < 4 * 0.5 / 800**0.5


def left_out_by_refits(model, X, y, w, with_centre):
    """What fits without each row, and perhaps without the centre that it is, say of it."""
    said = []
    for x in X:
        others = (X != x).any(1)
        U = model.centers_[(model.centers_ != x).any(1)] if with_centre else model.centers_
        again = RBFRegressor(bandwidth=0.4, centers=U, alpha=model.alpha_, fit_intercept=model.fit_intercept)
        said.append(again.fit(X[others], y[others], sample_weight=w[others]).predict(x[None])[0])
    return np.array(said)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n_centers, alpha", [(15, "loo"), (50, "loo"), (15, 0.1), (15, 0.0), (50, 1e-3), (50, 1e-9)])
def test_a_centre_is_left_out_with_its_row(n_centers, alpha, fit_intercept):
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(50, 2)), rng.uniform(0.3, 3, 50)
    y = np.stack([np.sin(3 * X[:, 0]) + 0.3 * rng.normal(size=50), X[:, 1]], 1)
    model = RBFRegressor(n_centers, bandwidth=0.4, alpha=alpha, fit_intercept=fit_intercept, random_state=0)
    left = model.fit(X, y, sample_weight=w).left_out_
    wanted = left_out_by_refits(model, X, y, w, with_centre=True)
    np.testing.assert_allclose(left.predictions, wanted[left.rows], atol=1e-4)
    if alpha == "loo":
        error = (w @ (y - wanted) ** 2).mean() / w.sum()
        assert model.cv_errors_[model.alphas_ == model.alpha_] == pytest.approx(error, rel=1e-4)
    row_alone = left_out_by_refits(model, X, y, w, with_centre=False)
    assert abs(row_alone - wanted).max() > 0.01
    given = RBFRegressor(bandwidth=0.4, centers=model.centers_, alpha=model.alpha_, fit_intercept=fit_intercept)
    left = given.fit(X, y, sample_weight=w).left_out_  # centres that do not come from the rows stay
    np.testing.assert_allclose(left.predictions, row_alone[left.rows], atol=1e-4)


def test_a_centre_of_several_observations_stays():
    """Of two observations at one place that are left out one by one, the other one still has the centre there."""
    rng = np.random.default_rng(0)
    X = np.repeat(np.eye(12), 4, axis=0)  # levels of a category, four times each
    y = X @ rng.normal(size=12) + rng.normal(size=48)
    drawn = RBFRegressor(bandwidth=1.0, random_state=0).fit(X, y)
    given = RBFRegressor(bandwidth=1.0, centers=drawn.centers_).fit(X, y)
    np.testing.assert_allclose(drawn.left_out_.residuals, given.left_out_.residuals, rtol=1e-6)


def test_a_copy_keeps_its_law_and_a_network_that_is_dropped_goes():
    model = RBFRegressor(20, random_state=0).fit(X0, Y0)
    kept, wanted = copy.copy(model), model.predict(X0[:3], return_std=True)
    model.fit(X0, 100 * Y0)
    np.testing.assert_array_equal(kept.predict(X0[:3], return_std=True), wanted)
    other = RBFRegressor(20, random_state=0).fit(X0, Y0)
    gone = weakref.ref(other)
    gc.collect()
    gc.disable()
    try:
        del other
        assert gone() is None
    finally:
        gc.enable()
