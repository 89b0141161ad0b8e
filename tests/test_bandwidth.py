"""The median of all distances, exact and sampled, and learned bandwidths."""

import math
import pickle
import tracemalloc
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from scipy.optimize import check_grad
from scipy.spatial.distance import pdist
from scipy.stats import binom
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import rfteach.bandwidth
import rfteach.distances
from rfteach.arrays import memory_budget
from rfteach.bandwidth import (
    MedianBandwidth,
    _criterion,
    _draw_different,
    _value_and_gradient,
    fit_kernel,
    learn_bandwidth,
    loo_bandwidth,
    median_bandwidth,
    narrower,
)
from rfteach.centers import CentersRegressor
from rfteach.conjugate import KernelRidgeRegressor
from rfteach.distances import draw_pairs, order_statistics, pair_distances
from rfteach.eigenpro import EigenProRegressor
from rfteach.feature_ridge import RandomFeatureRidge, RandomFeatureRidgeClassifier
from rfteach.features import RandomFourierFeatures
from rfteach.harfe_regressor import HARFERegressor
from rfteach.kernels import Gaussian, Laplacian1, Matern, as_kernel
from rfteach.kpca import AnisotropicKernelPCA
from rfteach.rbf import NystroemFeatures, RBFRegressor
from rfteach.srfe import SRFERegressor


def reference(X):
    """All distances, stored; the positive ones where more than half are zero; 1 where all are."""
    X = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    largest = abs(X).max()
    scale = 1.0 if largest == 0 or 1e-100 < largest < 1e100 else 2.0 ** (math.frexp(largest)[1] - 1)
    distances = pdist(X / scale) * scale
    if len(distances) == 0 or not distances.any():
        return 1.0
    found = np.median(distances)
    return found if found > 0 else np.median(distances[distances > 0])


def normal(n, d=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def with_outlier(X, far):
    X = X.copy()
    X[0] = far
    return X


DATA = {
    "odd number of pairs": normal(7),
    "even number of pairs": normal(8),
    "two rows": normal(2),
    "one column": normal(40, 1),
    "more columns than rows": normal(6, 50),
    "far from the origin": 1e8 + normal(60),
    "far and close together": 1e6 + 1e-3 * normal(60),
    "one column far off": normal(60) + [0, 0, 1e9],
    "an outlier": with_outlier(normal(60), 1e9),
    "two clusters": np.r_[normal(40), normal(20) + 1e9],
    "heavy tails": np.random.default_rng(0).standard_cauchy((80, 2)),
    "duplicates": np.repeat(normal(12), 5, axis=0),
    "mostly equal": np.r_[np.zeros((90, 3)), normal(10)],
    "mostly equal, not zero": np.r_[np.full((90, 3), 0.1), normal(10)],
    "exactly half equal": np.r_[np.zeros((3, 1)), [[1.0]]],
    "one row differs": np.r_[np.full((50, 2), 0.3), [[0.4, 0.3]]],
    "all equal": np.full((30, 4), 1 / 3),
    "one row": normal(1),
    "whole numbers": np.random.default_rng(0).integers(-3, 4, (90, 4)),
    "binary": np.random.default_rng(0).integers(0, 2, (90, 6)),
    "binary, scaled": np.random.default_rng(0).integers(0, 2, (90, 6)) / 3,
    "one binary column": np.random.default_rng(0).integers(0, 2, (90, 1)) * 0.7 + 0.1,
    "three values": np.random.default_rng(0).integers(0, 3, (90, 1)) / 7,
    "huge": 1e150 * normal(50),
    "tiny": 1e-150 * normal(50),
    "differences that underflow": np.r_[1e-170 * np.random.default_rng(0).random((30, 1)), [[1.0]]],
    "hugest": np.array([[8e307], [-8e307], [0.0]]),
}


@pytest.mark.parametrize("capacity", [2**22, 100])
@pytest.mark.parametrize("budget", [3000, 2**23])
@pytest.mark.parametrize("name", DATA)
def test_exact_is_the_median_of_pdist(name, budget, capacity, monkeypatch):
    """Also where a pass can keep 100 pairs only, so that it has to narrow the interval."""
    monkeypatch.setattr(rfteach.distances, "_CAPACITY", capacity)
    X = DATA[name]
    with memory_budget(budget):
        found = median_bandwidth(X, method="exact")
    sparse = median_bandwidth(sp.csr_matrix(X), method="exact")
    assert type(found) is float
    np.testing.assert_allclose([found, sparse], reference(X), rtol=1e-12)
    with memory_budget(1):  # strips of one pair
        np.testing.assert_allclose(median_bandwidth(X[-12:], method="exact"), reference(X[-12:]), rtol=1e-12)


@pytest.mark.parametrize("n", [1500, 3300])
@pytest.mark.parametrize("name", ["normal", "binary", "thirds", "duplicates", "far", "outlier"])
def test_exact_at_sizes_that_take_an_interval(name, n):
    rng = np.random.default_rng(n)
    X = {
        "normal": lambda: rng.normal(size=(n, 8)),
        "binary": lambda: rng.integers(0, 2, (n, 8)),
        "thirds": lambda: rng.integers(0, 2, (n, 2)) / 3,
        "duplicates": lambda: np.repeat(rng.normal(size=(n // 100, 3)), 100, axis=0),
        "far": lambda: 1e7 + rng.normal(size=(n, 3)),
        "outlier": lambda: with_outlier(rng.normal(size=(n, 3)), 1e9),
    }[name]()
    np.testing.assert_allclose(median_bandwidth(X, method="exact"), reference(X), rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("d", [1, 4, 30, 300])
def test_products_keep_their_bound(d, dtype):
    """Equation (4.6), against extended precision; entries that all have the same sign, or one cluster far off."""
    far = 1e3 * (np.arange(60) % 7 == 0)[:, None]
    for X in (np.random.default_rng(d).uniform(0.9, 1, (60, d)), normal(60, d) + far):
        points = pair_distances(torch.from_numpy(X).to(dtype))
        tau = points.tolerance(dtype)
        ((_, _, strip),) = list(points.tiles(dtype))
        wide = torch.from_numpy(X).to(dtype).numpy().astype(np.longdouble)
        exact = ((wide[:, None] - wide) ** 2).sum(2)
        i, j = np.triu_indices(60, 1)
        assert 0 < tau == 3 * (d + 8) * torch.finfo(dtype).eps * points.largest
        assert abs(strip.numpy()[i, j] - exact[i, j]).max() <= tau


def test_a_missed_interval_is_widened(monkeypatch):
    """With a sample that misleads, the passes still find the ranks."""
    X = normal(200)
    monkeypatch.setattr(rfteach.distances, "_CAPACITY", 2000)
    for i, j in [(0, 1), (3, 150)]:
        constant = lambda n, m, rng: (torch.full((m,), i), torch.full((m,), j))
        monkeypatch.setattr(rfteach.distances, "draw_pairs", constant)
        np.testing.assert_allclose(median_bandwidth(X, method="exact"), reference(X), rtol=1e-12)


@pytest.mark.parametrize("rank", [1, 20, 33])
def test_an_interval_that_begins_right_after_the_rank_is_widened(rank, monkeypatch):
    X = normal(12, 1)
    d = np.sort(pdist(X))
    missed = d[rank - 1] ** 2 * (1 + 1e-6), d[rank + 5] ** 2, torch.float64
    monkeypatch.setattr(rfteach.distances, "_guess", lambda *args: missed)
    assert order_statistics(pair_distances(X), (rank,))[0] == pytest.approx(d[rank - 1])


@pytest.mark.parametrize("shift, scale", [(0.0, 1.0), (1e4, 1.0), (0.0, 1e30), (0.0, 1e-35)])
def test_float32(shift, scale, monkeypatch):
    """The median of the distances between the float32 rows, to rounding in float64."""
    X = (shift + scale * normal(400, 10)).astype(np.float32)
    for capacity in (2**22, 20_000):
        monkeypatch.setattr(rfteach.distances, "_CAPACITY", capacity)
        np.testing.assert_allclose(median_bandwidth(X, method="exact"), reference(X), rtol=1e-12)


def test_metamorphic():
    X = normal(120, 4)
    found = median_bandwidth(X)
    Q, _ = np.linalg.qr(normal(4, 4, seed=1))
    np.testing.assert_allclose(median_bandwidth(X @ Q + 5.0), found, rtol=1e-12)
    np.testing.assert_allclose(median_bandwidth(-3 * X), 3 * found, rtol=1e-12)
    assert median_bandwidth(X[::-1]) == found
    assert median_bandwidth(2.0**700 * X) == 2.0**700 * found


@pytest.mark.parametrize("method", ["exact", "subsample"])
def test_kinds_and_devices(method, device):
    X = normal(50)
    found = median_bandwidth(X, method=method)
    kinds = [X.tolist(), pd.DataFrame(X), torch.from_numpy(X).to(device), sp.csr_matrix(X), sp.coo_array(X),
             np.asfortranarray(X), X[::-1][::-1]]
    for data in kinds:
        value = median_bandwidth(data, method=method)
        assert type(value) is float
        np.testing.assert_allclose(value, found, rtol=1e-12)
    np.testing.assert_allclose(median_bandwidth(X, method=method, device=device), found, rtol=1e-12)
    leaf = torch.from_numpy(X).requires_grad_()
    assert median_bandwidth(leaf, method=method) == found
    unordered = sp.csr_matrix((np.ones(4), [1, 0, 1, 1], [0, 2, 4]), shape=(2, 3))
    np.testing.assert_allclose(median_bandwidth(unordered, method=method), math.sqrt(2))


def test_memory_stays_bounded():
    """Seven million pairs, 57 MB of distances: less than a fifth of what NumPy takes is held at a time."""
    X = normal(3800, 4)
    median_bandwidth(X[:10], method="exact")
    tracemalloc.start()  # sees NumPy only: what torch holds is measured by benchmarks/run.py
    median_bandwidth(X, method="exact")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * 8 * 3800 * 3799 / 2 / 5


def test_auto_and_result():
    small = median_bandwidth(normal(100), return_interval=True)
    assert small == MedianBandwidth(small.bandwidth, small.bandwidth, small.bandwidth, 4950, "exact")
    large = median_bandwidth(normal(3001), n_pairs=500, return_interval=True)
    assert large.method == "subsample" and large.n_pairs == 500 and large.low < large.bandwidth < large.high
    assert pickle.loads(pickle.dumps(large)) == large
    with pytest.raises(FrozenInstanceError):
        large.low = 0.0
    assert median_bandwidth(normal(1), return_interval=True).n_pairs == 0


def test_seeds():
    X = normal(3100)
    draw = lambda **options: median_bandwidth(X, n_pairs=100, **options)
    assert draw() == draw() == draw(random_state=0) != draw(random_state=1)
    rng = np.random.default_rng(0)
    assert draw(random_state=rng) != draw(random_state=rng)
    assert median_bandwidth(X, method="exact", random_state=5) == median_bandwidth(X, method="exact")


@pytest.mark.parametrize("confidence, n_pairs", [(0.95, 400), (0.8, 99), (0.5, 10)])
def test_coverage_of_the_interval(confidence, n_pairs):
    """Given the data it is binomial: at least the confidence, and no more than the steps of the law allow."""
    X = normal(60)
    target, n_seeds = reference(X), 1000
    hits = 0
    for seed in range(n_seeds):
        found = median_bandwidth(X, method="subsample", n_pairs=n_pairs, confidence=confidence,
                                 return_interval=True, random_state=seed)
        hits += found.low <= target <= found.high
    rank = int(binom.ppf((1 - confidence) / 2, n_pairs, 0.5))
    nominal = 1 - 2 * binom.cdf(rank - 1, n_pairs, 0.5)
    assert nominal >= confidence
    error = math.sqrt(nominal * (1 - nominal) / n_seeds)
    assert abs(hits / n_seeds - nominal) < 4 * error


def test_too_few_pairs_for_an_interval():
    found = median_bandwidth(normal(9), method="subsample", n_pairs=3, return_interval=True)
    assert (found.low, found.high) == (0.0, math.inf)


def test_pairs_are_uniform():
    n, m = 5, 40_000
    i, j = (v.numpy() for v in draw_pairs(n, m, np.random.default_rng(0)))
    counts = np.bincount(i * n + j, minlength=n * n).reshape(n, n)
    assert (np.diagonal(counts) == 0).all()
    expected = m / (n * (n - 1))
    assert abs(counts[~np.eye(n, dtype=bool)] - expected).max() < 5 * math.sqrt(expected)
    label = np.array([0, 1, 0, 2, 1, 0])
    i, j = (v.numpy() for v in _draw_different(label, np.bincount(label), m, np.random.default_rng(0)))
    counts = np.bincount(i * 6 + j, minlength=36).reshape(6, 6)
    differ = label[:, None] != label
    assert (counts[~differ] == 0).all()
    expected = m / differ.sum()
    assert abs(counts[differ] - expected).max() < 5 * math.sqrt(expected)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix])
def test_subsample_of_data_that_is_mostly_equal(make):
    X = DATA["mostly equal, not zero"]
    found = median_bandwidth(make(X), method="subsample", return_interval=True)
    assert found.low <= reference(X) <= found.high
    assert median_bandwidth(make(DATA["one row differs"]), method="subsample", n_pairs=20) == pytest.approx(0.1)
    assert median_bandwidth(make(DATA["all equal"]), method="subsample") == 1.0
    assert median_bandwidth(make(DATA["differences that underflow"]), method="subsample") == 1.0


@pytest.mark.parametrize("name", rfteach.kernels._NAMES)
def test_a_kernel_from_a_word(name):
    X, y = normal(60, 2), normal(60, 2)[:, 0]
    k = fit_kernel(name, "median", [[0.0], [1.0], [3.0]])
    assert k.bandwidth == 2.0 and type(k) is type(as_kernel(name))
    assert fit_kernel(name, 3.0, [[0.0], [1.0], [3.0]]).bandwidth == 3.0
    assert fit_kernel(name, None, X).bandwidth == 1.0
    k = as_kernel(name, 5.0)
    assert fit_kernel(k, None, X) is k
    learned = fit_kernel(k, "learned", X, y)
    np.testing.assert_array_equal(learned.bandwidth, learn_bandwidth(X, y, kernel=name).bandwidth)
    assert k.bandwidth == 5.0 and learned.get_params().keys() == k.get_params().keys()


def gram_and_targets(n, k, seed=0):
    X = normal(n, 3, seed=seed)
    return torch.from_numpy(Gaussian([1.0, 2.0, 0.5])(X)), torch.from_numpy(normal(n, k, seed=seed + 1))


@pytest.mark.parametrize("n, k, lam", [(20, 1, 0.1), (12, 3, 1e-3), (2, 1, 1.0)])
def test_leave_one_out_is_leaving_out(n, k, lam):
    K, Y = (T.numpy() for T in gram_and_targets(n, k))
    residuals = np.empty_like(Y)
    for i in range(n):
        rest = np.arange(n) != i
        fit = KernelRidge(alpha=lam, kernel="precomputed").fit(K[rest][:, rest], Y[rest])
        residuals[i] = Y[i] - fit.predict(K[i : i + 1, rest])[0]
    value, _ = _criterion(torch.from_numpy(K), torch.from_numpy(Y), lam, "loo")
    assert float(value) == pytest.approx(0.5 * np.log(np.mean(residuals**2)), abs=1e-9)


@pytest.mark.parametrize("n, k, lam", [(20, 1, 0.1), (12, 3, 1e-3)])
def test_evidence_is_that_of_a_gaussian_process(n, k, lam):
    """scikit-learn's marginal likelihood with the best scale, which all outputs share."""
    X, Y = normal(n, 3), normal(n, k, seed=1)
    kernel = RBF([1.0, 2.0, 0.5])
    tau = np.mean(Y * np.linalg.solve(kernel(X) + lam * np.eye(n), Y)) * 1.0
    process = GaussianProcessRegressor(ConstantKernel(tau) * kernel + WhiteKernel(tau * lam), alpha=0.0, optimizer=None)
    expected = -sum(process.fit(X, y).log_marginal_likelihood() for y in Y.T) / (n * k)
    K = torch.from_numpy(Gaussian([1.0, 2.0, 0.5])(X))
    assert float(_criterion(K, torch.from_numpy(Y), lam, "evidence")[0]) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("name", ["evidence", "loo"])
@pytest.mark.parametrize("kernel", [Gaussian(), Matern(2.5), Laplacian1()])
@pytest.mark.parametrize("scales", [1, 3])
def test_gradient(name, kernel, scales):
    """By finite differences: for each criterion and kind of kernel, one bandwidth and three."""
    U, Y = torch.from_numpy(normal(15, 3)), torch.from_numpy(normal(15, 2, seed=1))
    theta = normal(1 + scales, seed=2)[:, 0]
    error = check_grad(lambda t: _value_and_gradient(t, kernel, U, Y, name)[0],
                       lambda t: _value_and_gradient(t, kernel, U, Y, name)[1], theta)
    assert error < 1e-6


def test_learned_relevance_and_test_error():
    """Friedman 1 with noise columns: inputs that matter get small bandwidths, and the error falls."""
    X, y = make_friedman1(900, n_features=12, noise=0.5, random_state=0)
    options = [dict(bandwidth="median"), dict(bandwidth="learned")]
    options += [dict(bandwidth=learn_bandwidth(X[:400], y[:400], per_input=False).bandwidth),
                dict(bandwidth=learn_bandwidth(X[:400], y[:400], criterion="loo").bandwidth)]
    errors, kernels = [], []
    for option in options:
        features = RandomFourierFeatures(n_components=300, form="paired", random_state=1, **option)
        model = RandomFeatureRidge(features).fit(X[:400], y[:400])
        errors.append(np.mean((model.predict(X[400:]) - y[400:]) ** 2))
        kernels.append(model.features_.kernel_)
    median, learned, single, loo = errors
    for kernel in (kernels[1], kernels[3]):
        assert isinstance(kernel.bandwidth, np.ndarray)
        assert kernel.bandwidth[5:].min() > 5 * kernel.bandwidth[:3].max()
    assert max(learned, loo) < 0.3 * min(single, median)


def test_several_starts():
    """A draw on which a start with little noise ends in a valley where the error is five times as large."""
    X, y = make_friedman1(1200, random_state=3)
    noisy = y[:200] + np.random.default_rng(3).normal(size=200)
    features = RandomFourierFeatures(bandwidth="learned", n_components=1000, form="paired", random_state=0)
    model = RandomFeatureRidge(features).fit(X[:200], noisy)
    assert np.mean((model.predict(X[200:]) - y[200:]) ** 2) < 0.6


@pytest.mark.parametrize("criterion", ["evidence", "loo"])
def test_learned_result(criterion):
    X, y = make_friedman1(150, n_features=5, random_state=0)
    found = learn_bandwidth(X, y, criterion=criterion)
    assert found.bandwidth.shape == (5,) and found.bandwidth.dtype == np.float64
    assert found.history[-1] == found.history.min() and len(found.history) == found.n_iter + 1
    assert found.converged and (np.diff(found.history) <= 0).all()
    if criterion == "loo":
        assert np.sqrt(found.loo_error) == pytest.approx(
                np.exp(found.history[-1] + (1 + X.shape[1]) / len(X)) * y.std(), rel=1e-4)
    again = learn_bandwidth(X, y, criterion=criterion)
    np.testing.assert_array_equal(again.bandwidth, found.bandwidth)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(found)).bandwidth, found.bandwidth)
    single = learn_bandwidth(X, y, criterion=criterion, per_input=False)
    assert type(single.bandwidth) is float and single.history[-1] > found.history[-1]
    for kernel in ("laplacian1", "matern32", Matern(2.5, 7.0), Gaussian([1.0, 2.0])):
        assert (learn_bandwidth(X, y, kernel=kernel, criterion=criterion, tol=1e-2).bandwidth > 0).all()


def test_learned_bandwidth_is_equivariant():
    """Units of each input scale its bandwidth, units and offset of each output do nothing."""
    X, y = make_friedman1(120, n_features=5, noise=1.0, random_state=0)
    Y = np.c_[y, X[:, 0] ** 2]
    base = learn_bandwidth(X, Y)
    units = np.array([1e-3, 1.0, 1e3, 1e100, 1e-100])
    scaled = learn_bandwidth(X * units, [100.0, 1e-9] * Y - 7 * np.array([1.0, 1e-9]))
    np.testing.assert_allclose(scaled.bandwidth[:3], (base.bandwidth * units)[:3], rtol=0.01)
    np.testing.assert_allclose(scaled.history[-1], base.history[-1], rtol=1e-4)
    np.testing.assert_allclose(learn_bandwidth(X, 100 * y - 7).loo_error, 1e4 * learn_bandwidth(X, y).loo_error, rtol=1e-2)


def test_learning_that_does_not_converge():
    X, y = make_friedman1(400, noise=1.0, random_state=0)
    with pytest.warns(ConvergenceWarning, match="stopped after 1 iterations"):
        found = learn_bandwidth(X, y, max_iter=1)
    assert not found.converged and found.n_iter == 1 and found.history[1] < found.history[0]


@pytest.mark.parametrize("criterion", ["evidence", "loo"])
def test_outputs_of_different_noise(criterion):
    """An output without noise does not outvote one with noise."""
    X = normal(300, 3)
    Y = np.c_[np.sin(2 * X[:, 0]) + 0.3 * normal(300, 1, seed=1)[:, 0], X[:, 1] ** 2]
    found = learn_bandwidth(X, Y, criterion=criterion)
    assert found.bandwidth[0] < 3 and found.bandwidth[1] < 10 < found.bandwidth[2] and found.loo_error < 0.1


def test_copies_count_once():
    """Copies of rows change nothing, and rows that repeat with other targets stand for their mean."""
    X, y = make_friedman1(150, noise=1.0, random_state=0)
    expected = learn_bandwidth(X, y).bandwidth
    rows = np.random.default_rng(0).permutation(np.r_[0:150, 0:60])
    np.testing.assert_array_equal(learn_bandwidth(X[rows], y[rows]).bandwidth, expected)
    shift = np.r_[np.ones(150), -np.ones(150)]
    found = learn_bandwidth(np.r_[X, X], np.r_[y, y] + shift).bandwidth
    np.testing.assert_allclose(found[:3], expected[:3], rtol=0.01)


def test_learning_for_kinds_and_devices(device):
    X, y = make_friedman1(80, n_features=5, random_state=0)
    base = learn_bandwidth(X, y, tol=1e-3)
    tensor = torch.from_numpy(X).to(device)
    found = learn_bandwidth(tensor, torch.from_numpy(y).to(device), tol=1e-3)
    assert found.bandwidth.device.type == device
    np.testing.assert_allclose(found.bandwidth.cpu(), base.bandwidth, rtol=1e-2)
    single = learn_bandwidth(tensor.float(), y, tol=1e-3).bandwidth
    assert single.dtype == torch.float32
    frame = learn_bandwidth(pd.DataFrame(X), pd.Series(y), tol=1e-3).bandwidth
    assert isinstance(frame, np.ndarray)
    np.testing.assert_allclose(frame, base.bandwidth, rtol=1e-2)  # another order of summation
    np.testing.assert_allclose(learn_bandwidth(X, y[:, None], tol=1e-3).bandwidth, base.bandwidth, rtol=1e-2)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("per_input", [True, False])
@pytest.mark.parametrize("criterion", ["evidence", "loo"])
def test_learning_from_degenerate_data(per_input, criterion):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.normal(size=(40, 2))
    constant, half = X.copy(), y.copy()
    constant[:, 1] = half[:, 0] = 0.1
    cases = [
        (constant, y), (np.full((10, 2), 0.3), y[:10]), (X, np.full(40, 0.1)), (X[:1], y[:1]), (X[:2], y[:2]),
        (np.repeat(X, 3, axis=0), np.repeat(y, 3, axis=0)), (rng.normal(size=(5, 30)), y[:5]), (1e150 * X, y),
        (1e-150 * X, y), (X, 1e-150 * y), (X, X[:, :1]), (np.eye(20), y[:20]), (X.astype(np.float32), y), (X, half),
    ]
    for data, target in cases:
        found = learn_bandwidth(data, target, per_input=per_input, criterion=criterion, max_iter=8)
        values = np.atleast_1d(found.bandwidth)
        assert (values > 0).all() and np.isfinite(values).all() and len(values) == (data.shape[1] if per_input else 1)
        assert np.isfinite([found.lam, found.loo_error]).all() and found.lam > 0 and not np.isnan(found.history).any()
        RandomFourierFeatures(bandwidth=found.bandwidth).fit_transform(data)
    if per_input:
        found = learn_bandwidth(constant, y, max_iter=8, criterion=criterion)
        assert found.bandwidth[1] == median_bandwidth(constant)


def test_the_word_learned():
    """Every estimator takes it, learns from what fit sees, and holds the numbers in float64."""
    X, y = make_friedman1(150, noise=0.5, random_state=0)
    expected = learn_bandwidth(X, y).bandwidth
    features = RandomFourierFeatures(bandwidth="learned", random_state=0)
    np.testing.assert_array_equal(features.fit(X, y).kernel_.bandwidth, expected)
    tensors = features.fit(torch.from_numpy(X).float(), torch.from_numpy(y)).kernel_.bandwidth
    assert isinstance(tensors, np.ndarray) and tensors.dtype == np.float64
    np.testing.assert_allclose(tensors[:5], expected[:5], rtol=0.1)
    matern = RandomFourierFeatures(Matern(2.5, 7.0), bandwidth="learned").fit(X, y).kernel_
    assert matern.nu == 2.5 and matern.bandwidth.shape == (10,)
    for model in (RBFRegressor(bandwidth="learned", random_state=0),
                  make_pipeline(NystroemFeatures(bandwidth="learned", random_state=0), Ridge(1e-3)),
                  RandomFeatureRidge(features)):
        assert clone(model).fit(X, y).score(X, y) > 0.9
    for kind in (list, pd.Series, torch.from_numpy):
        assert RBFRegressor(bandwidth="learned", random_state=0).fit(X, kind(y)).score(X, y) > 0.9
    with pytest.raises(ValueError, match="bandwidth='learned' is taken from data, but no y came with it"):
        features.fit(X)
    with pytest.raises(ValueError, match="bandwidth='learnt' is unknown .did you mean 'learned'.*or 'learned'"):
        RandomFourierFeatures(bandwidth="learnt").fit(X, y)
    with pytest.raises(TypeError, match="X must be dense"):
        features.fit(sp.csr_matrix(X), y)


def test_estimators_learn_from_means():
    """Rows that repeat stand for the (weighted) mean of their targets, whatever their order."""
    X, y = make_friedman1(100, noise=1.0, random_state=0)
    shift = np.random.default_rng(0).normal(size=100)
    twice, targets = np.r_[X, X], np.r_[y + shift, y - shift]
    for model in (RandomFeatureRidge(RandomFourierFeatures(bandwidth="learned", random_state=0)),
                  RBFRegressor(bandwidth="learned", random_state=0)):
        model.fit(twice, targets)
        kernel = model.features_.kernel_ if hasattr(model, "features_") else model.kernel_
        np.testing.assert_allclose(kernel.bandwidth[:3], learn_bandwidth(X, y).bandwidth[:3], rtol=0.01)
    with pytest.raises(ValueError, match="X and y must have as many rows, got 100 and 200"):
        NystroemFeatures(bandwidth="learned").fit(X, targets)
    tensors = torch.from_numpy(X).requires_grad_(), torch.from_numpy(y).requires_grad_()
    for model in (RandomFeatureRidge(RandomFourierFeatures(bandwidth="learned")), RBFRegressor(bandwidth="median")):
        assert np.isfinite(model.fit(*tensors).score(X, y))


def test_learning_from_labels():
    """Strings, and the classifier's own labels, become a column of ±1 for each class."""
    X, y = make_friedman1(300, random_state=0)
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [11, 17])]
    indicator = 2.0 * (labels[:, None] == np.unique(labels)) - 1
    expected = learn_bandwidth(X, indicator).bandwidth
    np.testing.assert_array_equal(learn_bandwidth(X, labels).bandwidth, expected)
    features = RandomFourierFeatures(bandwidth="learned", n_components=300, random_state=0)
    model = RandomFeatureRidgeClassifier(features).fit(X, np.digitize(y, [11, 17]))
    learned = model.features_.kernel_.bandwidth  # from the rows in another order, and labels in another one
    np.testing.assert_allclose(learned[:3], expected[:3], rtol=0.2)
    assert model.score(X, np.digitize(y, [11, 17])) > 0.95


@pytest.mark.parametrize("estimator", [RandomFourierFeatures, NystroemFeatures, RBFRegressor, KernelRidgeRegressor, EigenProRegressor,
                                       CentersRegressor, AnisotropicKernelPCA, SRFERegressor, HARFERegressor])
def test_a_kernel_object_keeps_its_bandwidth(estimator):
    """Beside "median", its own default, which of HARFE gives each input another one, and None."""
    X, y = make_friedman1(60, random_state=0)
    for given in (dict(bandwidth="median"), dict(bandwidth=None), {})[: 2 if estimator is HARFERegressor else 3]:
        assert estimator(kernel=Laplacian1(0.7), **given).fit(X, y).kernel_.bandwidth == 0.7


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_matrix, torch.from_numpy])
@pytest.mark.parametrize("n", [2, 60, 3500])
def test_median_of_sums_of_absolute_differences(n, kind):
    X = 5 + np.random.default_rng(n).normal(size=(n, 4))
    X[: n // 2, 1:] = 0
    expected = np.median(pdist(X, "cityblock"))
    assert median_bandwidth(kind(X), norm=1, method="exact") == pytest.approx(expected, rel=1e-12)
    assert fit_kernel("laplacian1", "median", kind(X)).bandwidth == pytest.approx(expected, rel=0.02)
    for unit in (1e-200, 1e150):
        assert median_bandwidth(kind(unit * X), norm=1, method="exact") == pytest.approx(unit * expected, rel=1e-12)
    single = X.astype(np.float32)
    expected = np.median(pdist(single.astype(float), "cityblock"))
    assert median_bandwidth(single, norm=1, method="exact") == pytest.approx(expected, rel=1e-12)


def test_median_of_rows_most_of_which_are_equal_in_the_other_norm():
    X = np.zeros((40, 3))
    X[:5] = np.random.default_rng(0).normal(size=(5, 3))
    distances = pdist(X, "cityblock")
    for method in ("exact", "subsample"):
        found = median_bandwidth(X, norm=1, method=method)
        assert found == pytest.approx(np.median(distances[distances > 0]), rel=1e-12 if method == "exact" else 0.1)


def test_subsample_of_rows():
    X, y = make_friedman1(500, random_state=0)
    options = dict(n_subsample=50, tol=1e-2)
    a, b, c = (learn_bandwidth(X, y, random_state=seed, **options).bandwidth for seed in (0, 0, 1))
    assert (a == b).all() and (a != c).any()


X0 = np.ones((4, 3))


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: median_bandwidth([[np.nan]]), ValueError, "X contains NaN"),
        (lambda: median_bandwidth(X0, norm=3), ValueError, r"norm must be an integer in \[1, 2\], got 3"),
        (lambda: fit_kernel(Gaussian(), 2.0, X0), ValueError, "bandwidth=2.0 is given beside a kernel"),
        (lambda: fit_kernel(Gaussian(), "medain", X0), ValueError, "bandwidth='medain'.*did you mean 'median'"),
        (lambda: fit_kernel("gaussian", "medain", X0), ValueError, "bandwidth='medain'.*did you mean 'median'"),
        (lambda: fit_kernel("gaussian", "scale", X0), ValueError, "bandwidth='scale' is unknown; expected a number"),
        (lambda: fit_kernel("gaussian", "learned", X0), ValueError, "bandwidth='learned' is taken.*but no y"),
        (lambda: fit_kernel("gausian", "median", X0), ValueError, "kernel='gausian' is unknown .did you mean"),
        (lambda: fit_kernel(3, "median", X0), TypeError, "kernel must be a name or a Kernel, got int"),
        (lambda: median_bandwidth(np.ones(3)), ValueError, "X: Expected 2D array"),
        (lambda: median_bandwidth(np.ones((0, 3))), ValueError, "X is empty"),
        (lambda: median_bandwidth(sp.csr_matrix((0, 3))), ValueError, "X is empty"),
        (lambda: median_bandwidth(sp.csr_matrix([[np.inf]])), ValueError, "X contains NaN or infinity"),
        (lambda: median_bandwidth(sp.csr_matrix(X0), device="meta"), ValueError, "device='meta' is not available"),
        (lambda: median_bandwidth(X0, device="gpu"), ValueError, "device='gpu' is not available"),
        (lambda: median_bandwidth(X0, method="fast"), ValueError, "method must be 'auto', 'exact' or .*got 'fast'"),
        (lambda: median_bandwidth(X0, n_pairs=0), ValueError, "n_pairs must be an integer of at least 1, got 0"),
        (lambda: median_bandwidth(X0, n_pairs=1.5), TypeError, "n_pairs must be an integer of at least 1, got 1.5"),
        (lambda: median_bandwidth(X0, confidence=1.0), ValueError, "confidence must be a number in .0, 1., got 1.0"),
        (lambda: median_bandwidth(X0, confidence="high"), TypeError, "confidence must be a number.*'high'"),
        (lambda: median_bandwidth(X0, random_state=-1), ValueError, "random_state must not be negative"),
        (lambda: learn_bandwidth(X0, np.ones(3)), ValueError, "X and y must have as many rows, got 4 and 3"),
        (lambda: learn_bandwidth(X0, [1, 2, 3, np.nan]), ValueError, "y contains NaN"),
        (lambda: learn_bandwidth(X0, np.ones((4, 1, 1))), ValueError, "y: Expected 1D or 2D array"),
        (lambda: learn_bandwidth(sp.csr_matrix(X0), np.ones(4)), TypeError, "X must be dense"),
        (lambda: learn_bandwidth(X0, np.ones(4), kernel="gausian"), ValueError, "kernel='gausian' is unknown"),
        (lambda: learn_bandwidth(X0, np.ones(4), criterion="gcv"), ValueError, "criterion must be .*got 'gcv'"),
        (lambda: learn_bandwidth(X0, None), ValueError, "bandwidths are learned from targets, but y is None"),
        (lambda: learn_bandwidth(X0, np.ones(4), n_subsample=1), ValueError, "n_subsample must be an integer of at least 2, got 1"),
        (lambda: learn_bandwidth(X0, np.ones(4), max_iter=0), ValueError, "max_iter must be an integer.*got 0"),
        (lambda: learn_bandwidth(X0, np.ones(4), tol=-1.0), ValueError, "tol must be a number in .0, inf., got -1.0"),
        (lambda: learn_bandwidth(X0, np.ones(4), tol=np.nan), ValueError, "tol must be a number in .0, inf., got nan"),
        (lambda: learn_bandwidth(X0, []), ValueError, "y is empty"),
        (lambda: learn_bandwidth(X0, ["a", "b", None, "a"]), ValueError, "y must be numeric, or one column of labels"),
    ],
)
def test_bad_input_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_as_many_bandwidths_as_the_evidence_carries():
    """One for noise, its own for each input of a smooth function without noise, a few where few inputs count."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(150, 8))
    smooth = np.sin(4 * X[:, 0]) * X[:, 1] + X[:, 2] ** 2
    few = np.sin(9 * X[:, 0]) + 0.5 * rng.normal(size=150)
    assert learn_bandwidth(X, rng.normal(size=150)).n_bandwidths == 1
    every = learn_bandwidth(X, smooth)
    assert every.n_bandwidths == 8
    np.testing.assert_array_equal(every.bandwidth, learn_bandwidth(X, smooth, per_input=True).bandwidth)
    found = learn_bandwidth(X, few)
    assert 1 < found.n_bandwidths <= 8 and found.bandwidth.argmin() == 0
    if found.n_bandwidths < 8:
        assert len(np.unique(np.round(found.bandwidth / X.std(0), 9))) == found.n_bandwidths


def test_one_input_is_minimised_once(monkeypatch):
    calls = []
    monkeypatch.setattr(rfteach.bandwidth, "_minimise", lambda *args, found=rfteach.bandwidth._minimise: calls.append(0) or found(*args))
    x = np.random.default_rng(0).random((60, 1))
    auto, shared = (learn_bandwidth(x, np.sin(9 * x[:, 0]), per_input=per_input) for per_input in ("auto", False))
    assert len(calls) == 2 and float(auto.bandwidth[0]) == pytest.approx(float(np.ravel(shared.bandwidth)[0]), rel=1e-3)


@pytest.mark.parametrize("per_input", [True, "auto"])
def test_inputs_that_do_not_vary_change_nothing(per_input):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 3))
    y = np.sin(5 * X[:, 0]) + 0.3 * rng.normal(size=60)
    plain = learn_bandwidth(X, y, per_input=per_input)
    for more in (3, 10):
        found = learn_bandwidth(np.insert(X, [1] * more, 0.5, axis=1), y, per_input=per_input)
        np.testing.assert_allclose(found.bandwidth[[0, -2, -1]], plain.bandwidth, rtol=1e-5)
        assert found.loo_error == pytest.approx(plain.loo_error, rel=1e-6) and found.n_bandwidths == plain.n_bandwidths


@pytest.mark.parametrize("group", [[0, 0, 0], [0, 1, 1], [2, 0, 1]])
def test_gradient_for_shared_bandwidths(group):
    rng = np.random.default_rng(1)
    U, Y = torch.from_numpy(rng.normal(size=(25, 3))), torch.from_numpy(rng.normal(size=(25, 1)))
    group = np.array(group)
    theta = rng.normal(size=2 + group.max())
    error = check_grad(lambda t: _value_and_gradient(t, Gaussian(), U, Y, "evidence", group)[0],
                       lambda t: _value_and_gradient(t, Gaussian(), U, Y, "evidence", group)[1], theta)
    assert error < 1e-6


def test_learning_needs_no_gradients_of_the_caller():
    X, y = make_friedman1(60, random_state=0)
    expected = learn_bandwidth(X, y).bandwidth
    for off in (torch.no_grad, torch.inference_mode):
        with off():
            np.testing.assert_array_equal(learn_bandwidth(X, y).bandwidth, expected)
            np.testing.assert_allclose(learn_bandwidth(torch.from_numpy(X), y).bandwidth, expected)


def test_the_reported_error_counts_what_was_fitted():
    """Mean over 20 draws of the corrected leave-one-out error and of the error on new rows; without the
    correction the first is 15 % too small or more."""
    claimed, plain, true = [], [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.uniform(size=(700, 6))
        y = np.sin(4 * X[:, 0]) + X[:, 1] + 0.7 * rng.normal(size=700)
        found = learn_bandwidth(X[:100], y[:100], per_input=True)
        kernel, mean = Gaussian(found.bandwidth), y[:100].mean()
        a = np.linalg.solve(kernel(X[:100]) + found.lam * np.eye(100), y[:100] - mean)
        true.append(np.mean((kernel(X[100:], X[:100]) @ a + mean - y[100:]) ** 2))
        claimed.append(found.loo_error)
        plain.append(found.loo_error / np.exp(2 * 7 / 100))
    difference = np.array(claimed) / true - 1
    assert abs(difference.mean()) < 4 * difference.std(ddof=1) / 20**0.5 and abs(difference.mean()) < 0.1
    assert np.mean(plain) < 0.92 * np.mean(true)


@pytest.mark.parametrize("bad", ["yes", None, 2, np.array([1, 2])])
def test_wrong_per_input_is_named(bad):
    with pytest.raises(ValueError, match="per_input must be 'auto', True or False"):
        learn_bandwidth([[0.0], [1.0], [2.0]], [0.0, 1.0, 0.0], per_input=bad)


def bumps(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, np.sin(6 * X[:, 0]) * np.cos(5 * X[:, 1]) + 0.1 * rng.normal(size=n)


def test_loo_bandwidth_is_the_part_of_least_error():
    """Against fits that leave out one row after the other, at the best of a few penalties."""
    X, y = bumps(60)
    median = median_bandwidth(X)
    errors = []
    for part in (1, 0.5, 0.25, 0.125):
        K, at = Gaussian(part * median)(X), []
        for lam in np.geomspace(1e-4, 10, 12):
            left = [y[i] - y[o].mean() - K[i, o] @ np.linalg.solve(K[np.ix_(o, o)] + lam * np.eye(59), y[o] - y[o].mean())
                    for i in range(60) for o in [np.delete(np.arange(60), i)]]
            at.append(np.mean(np.square(left)))
        errors.append(min(at))
    assert min(errors) * 1.2 < errors[0]  # no case of doubt
    assert loo_bandwidth(X, y) == 0.5 ** int(np.argmin(errors)) * median


def test_narrower_asks_for_a_clear_gain():
    found = lambda gain, n: narrower(8.0, {8.0: 1.0, 4.0: 1.0, 2.0: 1 - gain, 1.0: 2.0}.get, n)
    assert found(0.06, 100) == 2.0 and found(0.04, 100) == 8.0  # 1 / (2√100) is one twentieth
    assert found(0.01, 10**4) == 2.0 and found(0.004, 10**4) == 8.0
    assert narrower(8.0, lambda width: math.nan, 5) == 8.0


@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, torch.from_numpy, lambda X: X.astype(np.float32)])
@pytest.mark.parametrize("kernel", ["gaussian", "laplacian1"])
def test_loo_bandwidth_knows_no_units_and_no_kinds(kernel, kind):
    """Nor other rows' order, an output that does not vary, or copies."""
    X, y = bumps(150)
    X = X.astype(np.float32).astype(float)
    found = loo_bandwidth(X, y, kernel=kernel)
    assert found < median_bandwidth(X, norm=as_kernel(kernel).norm)
    assert loo_bandwidth(kind(X), y, kernel=kernel) == pytest.approx(found, rel=1e-5)
    for unit in (1e-150, 1e100):
        assert loo_bandwidth(unit * X, 7 - unit * y, kernel=kernel) == pytest.approx(unit * found, rel=1e-12)
    order = np.random.default_rng(1).permutation(150)
    assert loo_bandwidth(X[order], y[order], kernel=kernel) == pytest.approx(found, rel=1e-12)
    two = np.stack([1e9 * y, np.full(150, 3.0)], 1)
    assert loo_bandwidth(X, two, kernel=kernel) == found
    twice = np.r_[X, X], np.r_[y, y]
    assert loo_bandwidth(*twice, kernel=kernel) / median_bandwidth(twice[0], norm=as_kernel(kernel).norm) == pytest.approx(
        found / median_bandwidth(X, norm=as_kernel(kernel).norm))


def test_loo_bandwidth_without_anything_to_choose_by():
    X, y = bumps(20)
    for rows, targets in ((X, np.ones(20)), (X[:1], y[:1]), (np.ones((5, 2)), y[:5]), (X[:2], y[:2])):
        assert loo_bandwidth(rows, targets) == median_bandwidth(rows)
    kept = [loo_bandwidth(*(np.random.default_rng([seed, k]).normal(size=size) for k, size in enumerate([(40, 5), 40])))
            == median_bandwidth(np.random.default_rng([seed, 0]).normal(size=(40, 5))) for seed in range(20)]
    assert sum(kept) >= 15  # of noise


def test_loo_bandwidth_looks_at_few_rows_and_all_distances(monkeypatch):
    X, y = bumps(900)
    seen, path = [], rfteach.bandwidth.gram_path
    monkeypatch.setattr(rfteach.bandwidth, "gram_path", lambda K, *rest: seen.append(len(K)) or path(K, *rest))
    found = loo_bandwidth(X, y)
    assert seen == 4 * [500] and found in [median_bandwidth(X) / 2**k for k in range(1, 4)]
    loo_bandwidth(X, y, n_subsample=80)
    assert seen[4:] == 4 * [80]


def test_loo_among_the_words():
    X, y = bumps(150)
    labels = np.where(y > 0, "up", "down")
    assert fit_kernel("gaussian", "loo", X, y).bandwidth == loo_bandwidth(X, y) == KernelRidgeRegressor().fit(X, y).kernel_.bandwidth
    assert fit_kernel("laplacian", "loo", X, labels).bandwidth == loo_bandwidth(X, np.where(y > 0, 1.0, 0.0), kernel="laplacian")
    assert RandomFourierFeatures(bandwidth="loo", random_state=0).fit(X, y).kernel_.bandwidth == loo_bandwidth(X, y)
    by_default = [KernelRidgeRegressor(), EigenProRegressor(random_state=0), CentersRegressor(random_state=0)]
    for model in (*by_default, NystroemFeatures(bandwidth="loo", random_state=0), AnisotropicKernelPCA(bandwidth="loo")):
        assert model.fit(X, y).kernel_.bandwidth < 0.6 * median_bandwidth(X)
        assert clone(model).set_params(kernel=Laplacian1(0.7)).fit(X, y).kernel_.bandwidth == 0.7
    for model in (RandomFourierFeatures(random_state=0), NystroemFeatures(random_state=0), AnisotropicKernelPCA()):
        assert model.fit(X, y).kernel_.bandwidth == pytest.approx(median_bandwidth(X), rel=1e-6)
    with pytest.raises(ValueError, match="bandwidth='loo' is taken from data, but no y came with it"):
        fit_kernel("gaussian", "loo", X)
    assert fit_kernel(Laplacian1(0.7), "loo", X).bandwidth == 0.7
    with pytest.raises(ValueError, match="y is a masked array"):
        loo_bandwidth(X, np.ma.masked_array(labels, y > 0.5))
    with pytest.raises(ValueError, match="n_subsample must be .*2.*, got 1"):
        loo_bandwidth(X, y, n_subsample=1)
    with pytest.raises(ValueError, match="X and y must have as many rows, got 150 and 149"):
        loo_bandwidth(X, y[1:])
