"""Random Fourier features: the contract, the statistics over seeds, the reference, what is refused."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from rfteach.arrays import memory_budget
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.features import (
    RandomFourierFeatures,
    feature_variance,
    fourier_features,
    n_components_bound,
    sample_frequencies,
    wave_features,
)
from rfteach.kernels import Cauchy, Gaussian, Laplacian, Laplacian1, Matern
from rfteach.waves import largest_waves, random_waves

KERNELS = {
    "gaussian": Gaussian(1.5),
    "laplacian": Laplacian(1.5),
    "laplacian1": Laplacian1(1.5),
    "cauchy": Cauchy([1.0, 1.5, 2.0]),
    "matern32": Matern(1.5, 1.5),
    "matern52": Matern(2.5, 1.5),
    "matern0.8": Matern(0.8, 1.5),
}
FORMS, SAMPLINGS = ["phase", "paired"], ["iid", "orthogonal", "qmc"]


def reference(X, W, b=None):
    """Equations (2.1) and (2.2), one entry at a time, in float64."""
    M = len(W)
    Z = np.zeros((len(X), M if b is not None else 2 * M))
    for i in range(len(X)):
        for j in range(M):
            angle = float(sum(float(w) * float(x) for w, x in zip(W[j], X[i])))
            if b is None:
                Z[i, j], Z[i, M + j] = np.cos(angle) / np.sqrt(M), np.sin(angle) / np.sqrt(M)
            else:
                Z[i, j] = np.sqrt(2 / M) * np.cos(angle + float(b[j]))
    return Z


def test_scikit_learns_contract():
    """No check fails, none is skipped (conftest.py switches SciPy's array API on for one of them)."""
    results = check_estimator(RandomFourierFeatures(), on_skip=None)
    assert len(results) > 40
    assert {r["status"] for r in results} == {"passed"}, [r for r in results if r["status"] != "passed"]


@pytest.mark.parametrize("sampling", SAMPLINGS[1:])
def test_scikit_learns_contract_with_other_parameters(sampling):
    """The suite sets n_components to 1, which paired features must refuse, so they are not among these."""
    estimator = RandomFourierFeatures("matern32", 2.0, sampling=sampling)
    assert {r["status"] for r in check_estimator(estimator, on_skip=None)} == {"passed"}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", KERNELS)
def test_unbiased_with_the_derived_variance(name, form, sampling):
    """Over 200 seeds: mean within 4 standard errors of k; for iid draws the variance of equation (2.3)."""
    k, N, n_seeds = KERNELS[name], 16, 200
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 3))
    Y = X + np.array([0.05, 0.5, 1.0, 2.0])[:, None] * rng.normal(size=(4, 3))
    values = np.empty((n_seeds, 4))
    for seed in range(n_seeds):
        features = RandomFourierFeatures(k, n_components=N, form=form, sampling=sampling, random_state=seed).fit(X)
        values[seed] = (features.transform(X) * features.transform(Y)).sum(1)
    exact = np.diagonal(k(X, Y))
    sd = values.std(0, ddof=1)
    assert (abs(values.mean(0) - exact) < 4 * sd / np.sqrt(n_seeds)).all()
    if sampling == "iid":
        s2, m4 = sd**2, ((values - values.mean(0)) ** 4).mean(0)
        derived = feature_variance(k, X, Y, N, form)
        assert (abs(s2 - derived) < 4 * np.sqrt((m4 - s2**2) / n_seeds)).all()


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("d", [1, 2, 7])
def test_each_frequency_has_the_right_law(sampling, d):
    """Kolmogorov–Smirnov on one coordinate of one frequency per seed; rows at right angles if orthogonal."""
    from scipy.stats import kstest

    first = [sample_frequencies("gaussian", 5, d, sampling=sampling, random_state=s)[0][4, 0] for s in range(400)]
    assert kstest(first, "norm").pvalue > 1e-4
    if sampling == "orthogonal":
        W, _ = sample_frequencies("gaussian", d, d, sampling=sampling, random_state=0)
        gram = W @ W.T
        np.testing.assert_allclose(gram, np.diag(np.diagonal(gram)), atol=1e-12)


@pytest.mark.parametrize("sampling", ["orthogonal", "qmc"])
def test_arranged_frequencies_have_smaller_errors(sampling):
    X = 0.5 * np.random.default_rng(0).normal(size=(30, 8))
    K = Gaussian(2.0)(X)

    def errors(sampling):
        maps = [RandomFourierFeatures(bandwidth=2.0, n_components=256, form="paired", sampling=sampling, random_state=s)
                for s in range(20)]
        return np.array([np.linalg.norm(Z @ Z.T - K) for Z in (m.fit_transform(X) for m in maps)])

    iid, arranged = errors("iid"), errors(sampling)
    gap = iid.mean() - arranged.mean()
    assert gap > 4 * np.sqrt((iid.var(ddof=1) + arranged.var(ddof=1)) / 20)


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-13), (np.float32, 2e-6)])
@pytest.mark.parametrize("budget", [1, 500, 2**23])
def test_agrees_with_the_reference(dtype, tolerance, budget):
    rng = np.random.default_rng(0)
    X, W, b = (rng.normal(size=shape).astype(dtype) for shape in [(23, 4), (6, 4), 6])
    for phases in (b, None):
        with memory_budget(budget):
            Z = fourier_features(X, W, phases)
            sparse = fourier_features(sp.csr_matrix(X), W, phases)
        assert Z.dtype == sparse.dtype == dtype
        np.testing.assert_allclose(Z, reference(X, W, phases), atol=tolerance)
        np.testing.assert_allclose(sparse, reference(X, W, phases), atol=tolerance)


@pytest.mark.parametrize("form", FORMS)
def test_kinds_and_devices(form, device):
    X = np.random.default_rng(0).normal(size=(12, 3))
    features = RandomFourierFeatures(n_components=8, form=form, random_state=0).fit(X)
    Z = features.transform(X)
    for T in (torch.from_numpy(X).to(device), torch.from_numpy(X).float().to(device)):
        out = features.transform(T)
        assert out.dtype == T.dtype and out.device.type == device
        np.testing.assert_allclose(out.cpu(), Z, atol=1e-6)
    moved = RandomFourierFeatures(n_components=8, form=form, random_state=0, device=device).fit_transform(X)
    assert isinstance(moved, np.ndarray)
    np.testing.assert_allclose(moved, Z, atol=1e-12)
    frame = pd.DataFrame(X, columns=list("abc"), index=np.arange(5, 17))
    assert isinstance(features.fit_transform(frame), np.ndarray)
    as_frame = features.set_output(transform="pandas").fit_transform(frame)
    assert as_frame.index.equals(frame.index)
    assert list(as_frame.columns) == list(features.get_feature_names_out())
    for matrix in (sp.csr_matrix(X), sp.csc_array(X.astype(np.float32))):
        out = features.set_output(transform="default").fit(matrix).transform(matrix)
        assert out.dtype == matrix.dtype
        np.testing.assert_allclose(out, Z, atol=1e-5)


def test_seeds():
    X = np.zeros((1, 3))
    draw = lambda seed: RandomFourierFeatures(random_state=seed).fit(X).frequencies_
    np.testing.assert_array_equal(draw(0), draw(0))
    assert not np.array_equal(draw(0), draw(1))
    np.testing.assert_array_equal(draw(np.random.default_rng(4)), draw(4))
    rng = np.random.RandomState(0)
    assert not np.array_equal(draw(rng), draw(rng))


def test_gradients_reach_inputs_frequencies_and_bandwidth():
    g = torch.Generator().manual_seed(0)
    X, W = (torch.randn(4, 2, generator=g, dtype=torch.float64, requires_grad=True) for _ in range(2))
    b = torch.rand(4, generator=g, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(fourier_features, (X, W, b))
    assert torch.autograd.gradcheck(fourier_features, (X, W))
    with torch.no_grad():
        np.testing.assert_allclose(fourier_features(X, W, b), reference(X, W, b), atol=1e-14)
    bandwidth = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    sparse = RandomFourierFeatures(bandwidth=bandwidth, random_state=0).fit_transform(sp.csr_matrix(X.detach().numpy()))
    dense = RandomFourierFeatures(bandwidth=bandwidth, random_state=0).fit_transform(X.detach().numpy())
    np.testing.assert_allclose(sparse, dense, atol=1e-14)
    Z = RandomFourierFeatures(Matern(2.5, bandwidth), n_components=6, random_state=0).fit(X.detach()).transform(X)
    assert (torch.autograd.grad(Z[:, 0].sum(), bandwidth)[0] != 0).all()


def test_fitted_map_keeps_its_kernel():
    features = RandomFourierFeatures(Gaussian(1.0)).fit(FITTED)
    features.set_params(kernel__bandwidth=9.0)
    assert features.kernel_.bandwidth == 1.0


def test_median_bandwidth_for_every_kind_of_data(device):
    from scipy.spatial.distance import pdist

    X = np.random.default_rng(0).normal(size=(30, 4))
    kinds = [X, X.tolist(), pd.DataFrame(X), sp.csr_matrix(X), sp.csc_array(X), torch.from_numpy(X).to(device)]
    for data in kinds:
        features = RandomFourierFeatures("laplacian", "median", random_state=0).fit(data)
        np.testing.assert_allclose(features.kernel_.bandwidth, np.median(pdist(X)), rtol=1e-13)
        assert features.bandwidth == "median"
        expected = RandomFourierFeatures("laplacian", features.kernel_.bandwidth, random_state=0).fit(data)
        np.testing.assert_array_equal(features.frequencies_, expected.frequencies_)
    single = RandomFourierFeatures().fit(X.astype(np.float32))  # by default
    np.testing.assert_allclose(single.kernel_.bandwidth, np.median(pdist(X)), rtol=1e-6)
    assert RandomFourierFeatures().fit(np.ones((3, 2))).kernel_.bandwidth == 1.0
    assert RandomFourierFeatures(bandwidth=None).fit(X).kernel_.bandwidth == 1.0


def test_pipeline_grid_search_and_pickle():
    X, y = make_friedman1(200, random_state=0)
    model = make_pipeline(RandomFourierFeatures(Gaussian(), n_components=60, random_state=0), Ridge(1e-3))
    grid = {"randomfourierfeatures__kernel__bandwidth": [0.01, 1.0]}
    search = GridSearchCV(model, grid, cv=3).fit(X, y)
    assert search.best_params_ == {"randomfourierfeatures__kernel__bandwidth": 1.0}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(search)).predict(X), search.predict(X))


def test_ridge_on_features_approaches_kernel_ridge():
    """The gap to the exact predictions falls with N, and both systems of equation (2.8) agree."""
    X, y = make_friedman1(300, random_state=0)
    k, lam = Gaussian(1.0), 0.1
    exact = k(X[200:], X[:200]) @ np.linalg.solve(k(X[:200]) + lam * np.eye(200), y[:200])
    gaps = []
    for N in (100, 1600):
        A = RandomFourierFeatures(k, n_components=N, random_state=0).fit_transform(X)
        c = np.linalg.solve(A[:200].T @ A[:200] + lam * np.eye(N), A[:200].T @ y[:200])
        alpha = np.linalg.solve(A[:200] @ A[:200].T + lam * np.eye(200), y[:200])
        np.testing.assert_allclose(A[200:] @ c, A[200:] @ A[:200].T @ alpha, rtol=1e-8)
        gaps.append(np.sqrt(((A[200:] @ c - exact) ** 2).mean()))
    assert gaps[1] < 0.6 * gaps[0]


def test_variance_bound_and_hoeffding():
    k, points = Gaussian(), np.random.default_rng(0).normal(size=(30, 2))
    pairs = np.triu_indices(30, 1)
    for form in FORMS:
        n = n_components_bound(0.5, 0.1, n_samples=30, form=form)
        failures = 0
        for seed in range(40):
            Z = RandomFourierFeatures(k, n_components=n, form=form, random_state=seed).fit_transform(points)
            failures += abs(Z @ Z.T - k(points))[pairs].max() > 0.5
        assert failures <= 4  # the bound allows 10 % of 40
    near = feature_variance("gaussian", points, points + 1e-9, 10, "paired")
    assert (near >= 0).all() and (near < 1e-15).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-30, 1e15])
def test_finite_in_finite_out(dtype, scale):
    X = (scale * np.random.default_rng(0).normal(size=(5, 3))).astype(dtype)
    for kernel in ("gaussian", "laplacian", Matern(0.1)):
        Z = RandomFourierFeatures(kernel, n_components=50, random_state=0).fit_transform(X)
        assert np.isfinite(Z).all() and abs(Z).max() <= np.sqrt(2 / 50) * (1 + 1e-6)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (3, 40)])
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_degenerate_shapes(shape, sampling):
    X = np.zeros(shape)
    for form, N in (("phase", 1), ("paired", 2)):
        Z = RandomFourierFeatures(n_components=N, form=form, sampling=sampling, random_state=0).fit_transform(X)
        assert Z.shape == (shape[0], N)


FITTED = np.ones((4, 3))
ROWS = torch.tensor([[1.0, -2.0, 0.5], [0.3, 0.1, -0.7], [-1.0, 0.4, 0.2]], dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("budget", [1, 300, 2**23])
@pytest.mark.parametrize("phi", [torch.cos, torch.sin, torch.tanh, torch.relu, torch.square, (torch.cos, torch.sin),
                                 (torch.square, torch.relu, torch.tanh)])
def test_waves_of_any_function(phi, budget, dtype):
    """By tiles, into a given place, sparse, and where a gradient is wanted: all the same."""
    Z = np.random.default_rng(0).normal(size=(9, 4))
    X, W, b = (torch.from_numpy(T).to(dtype) for T in (Z, Z[:5], Z[:5, 0]))
    functions = phi if isinstance(phi, tuple) else (phi,)
    for phases in (b, None):
        angle = X @ W.T + (0 if phases is None else b)
        expected = 0.5 * torch.cat([f(angle) for f in functions], 1)
        out = torch.empty_like(expected)
        with memory_budget(budget):
            found = [wave_features(X, W, phases, phi, scale=0.5), wave_features(X, W, phases, phi, scale=0.5, out=out),
                     wave_features(sp.csr_array(X.numpy()), W, phases, phi, scale=0.5),
                     wave_features(X, W.clone().requires_grad_(), phases, phi, scale=0.5)]
        assert found[1] is out and found[3].requires_grad
        for Z in found:
            torch.testing.assert_close(Z.detach(), expected)


def test_waves_that_do_not_overflow_column_by_column():
    """A column of huge numbers that meets tiny frequencies only, and the other way round."""
    X, W = torch.tensor([[1e300, 1e-300]], dtype=torch.float64), torch.tensor([[1e-300, 1e300]], dtype=torch.float64)
    for data in (X, sp.csr_array(X.numpy())):
        torch.testing.assert_close(wave_features(data, W), torch.cos(torch.tensor([[2.0]], dtype=torch.float64)))


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: RandomFourierFeatures().fit([[np.nan]]), ValueError, "X contains NaN"),
        (lambda: RandomFourierFeatures().fit(torch.tensor([[np.nan]])), ValueError, "X contains NaN"),
        (lambda: RandomFourierFeatures().fit(np.ones(3)), ValueError, "Expected 2D array, got 1D array"),
        (lambda: RandomFourierFeatures().fit(torch.ones(3)), ValueError, "Expected 2D array, got 1D array"),
        (lambda: RandomFourierFeatures(bandwidth=-1).fit(FITTED), ValueError, "bandwidth must be positive.*-1"),
        (lambda: RandomFourierFeatures(bandwidth="mean").fit(FITTED), ValueError, "bandwidth='mean' is unknown"),
        (lambda: RandomFourierFeatures(Gaussian(), 2.0).fit(FITTED), ValueError, "bandwidth=2.0 is given beside"),
        (lambda: RandomFourierFeatures(bandwidth=[1, 2]).fit(FITTED), ValueError, "bandwidth has 2 entries.*3 columns"),
        (lambda: RandomFourierFeatures("rbf").fit(FITTED), ValueError, "kernel='rbf' is unknown.*expected one of"),
        (lambda: RandomFourierFeatures(Gaussian(), 1.0).fit(FITTED), ValueError, "bandwidth=1.0 is given beside"),
        (lambda: RandomFourierFeatures(n_components=0).fit(FITTED), ValueError, "n_components must be an integer of at least 1, got 0"),
        (lambda: RandomFourierFeatures(n_components=2.5).fit(FITTED), TypeError, "n_components must be an integer of at least 1, got 2.5"),
        (lambda: RandomFourierFeatures(n_components=3, form="paired").fit(FITTED), ValueError, "must be even.*got 3"),
        (lambda: RandomFourierFeatures(form="pair").fit(FITTED), ValueError, "form must be 'phase' or 'paired', got 'pair'"),
        (lambda: RandomFourierFeatures(sampling="sobol").fit(FITTED), ValueError, "sampling must be.*got 'sobol'"),
        (lambda: RandomFourierFeatures(random_state=-3).fit(FITTED), ValueError, "random_state must not be negative"),
        (lambda: RandomFourierFeatures(device="gpu").fit(FITTED), ValueError, "device='gpu' is not available"),
        (lambda: RandomFourierFeatures().fit(FITTED).transform(np.ones((2, 2))), ValueError, "2 features.*expecting 3"),
        (lambda: RandomFourierFeatures().fit(FITTED).transform(torch.ones(2, 2)), ValueError, "2 features.*expecting 3"),
        (lambda: RandomFourierFeatures().transform(FITTED), NotFittedError, "not fitted yet"),
        (lambda: RandomFourierFeatures().fit(FITTED).transform(np.full((2, 3), 1e308)), ValueError, "angles overflow"),
        (lambda: fourier_features(FITTED, np.ones((2, 4))), ValueError, "W must have a column for each.*got 4 for 3"),
        (lambda: fourier_features(FITTED, np.ones((2, 3)), [1.0]), ValueError, "W and b must have as many rows, got 2 and 1"),
        (lambda: fourier_features(sp.csr_matrix([[np.inf]]), [[1.0]]), ValueError, "X contains NaN or infinity"),
        (lambda: wave_features(ROWS, ROWS, phi=torch.sum), TypeError, "activation must return a tensor of shape .*got"),
        (lambda: wave_features(ROWS, ROWS, phi=lambda t: 3.0), TypeError, "activation must return a tensor.*got float"),
        (lambda: wave_features(ROWS, ROWS, phi=torch.log), ValueError, "features are not finite in torch.float64"),
        (lambda: wave_features(ROWS, 1e308 * ROWS), ValueError, "angles overflow|frequencies that overflow"),
        (lambda: sample_frequencies("gaussian", 2, 30000, sampling="qmc"), ValueError, "at most 21201"),
        (lambda: n_components_bound(0), ValueError, "error must be a number in .1e-6, 2., got 0"),
        (lambda: n_components_bound(float("nan")), ValueError, "error must be a number.*got nan"),
        (lambda: n_components_bound(0.1, 1.0), ValueError, "probability must be a number.*got 1.0"),
        (lambda: feature_variance(Gaussian(), FITTED, FITTED, 0), ValueError, "n_components must be an integer.*got 0"),
        (lambda: feature_variance(Gaussian(), FITTED, FITTED[:, :1], 4), ValueError, "X and Y must have the same shape"),
        (lambda: fourier_features(sp.csr_matrix((0, 3)), np.ones((2, 3))), ValueError, "X is empty"),
        (lambda: fourier_features(FITTED.astype(np.float32), np.full((2, 3), 1e39)), ValueError, "W has frequencies"),
        (lambda: RandomFourierFeatures(device="meta").fit(sp.csr_matrix(FITTED)), ValueError, "device='meta' is not"),
    ],
)
def test_bad_input_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("sign", [1, -1])
def test_sparse_rows_that_overflow(sign):
    features = RandomFourierFeatures(random_state=0).fit(FITTED)
    with pytest.raises(ValueError, match="angles overflow"):
        features.transform(sp.csr_matrix(np.full((2, 3), sign * 1e308)))


def test_the_bound_counts_pairs():
    for n in (2, 30, 200):
        assert n_components_bound(0.5, 0.1, n_samples=n) == 2 * np.ceil(4 / 0.25 * np.log(n * (n - 1) / 0.1))


def test_waves_beside_a_head_that_has_them_all():
    """Nothing is left to draw, however large the weights are."""
    U = np.full((2, 3), 1e3)
    codes, weights = random_waves(U, 2, 10**5, np.random.default_rng(0), largest_waves(U, 2, 1000))
    assert codes.shape == (0, 2) and weights.shape == (0,)


def test_clones_of_a_computed_bandwidth():
    """They keep the way to what it was computed from, wherever it stands; clones of a leaf are leaves of their own."""
    X, log_b = torch.from_numpy(np.random.default_rng(0).normal(size=(20, 2))), torch.zeros(2, dtype=torch.float64)
    log_b.requires_grad_()
    for feature_map in (RandomFourierFeatures("gaussian", log_b.exp(), 8, random_state=0),
                        RandomFourierFeatures(Gaussian(log_b.exp()), n_components=8, random_state=0)):
        found, = torch.autograd.grad(clone(feature_map).fit(X).transform(X).sum(), log_b, retain_graph=True)
        wanted, = torch.autograd.grad(feature_map.fit(X).transform(X).sum(), log_b, retain_graph=True)
        assert torch.equal(found, wanted) and found.any() and not hasattr(clone(feature_map), "frequencies_")
        RandomFeatureRidge(feature_map).fit(X, X[:, 0])
    assert clone(Gaussian(log_b.exp()))(X).requires_grad
    b = torch.ones(2, requires_grad=True)
    for leaf in (clone(Gaussian(b)).bandwidth, clone(RandomFourierFeatures(bandwidth=b)).bandwidth):
        assert leaf.is_leaf and leaf.requires_grad and leaf is not b


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # in torch's own forward derivatives
def test_functions_of_torch_func():
    """One inside of the other, and around autograd."""
    X, d, W = (torch.from_numpy(np.random.default_rng(s).normal(size=(5, 3))) for s in range(3))
    f = lambda X: fourier_features(X, W).square().sin().sum()
    H = torch.autograd.functional.hessian(f, X)
    assert torch.allclose(torch.func.hessian(f)(X), H)
    assert torch.allclose(torch.func.grad(lambda X: (torch.func.grad(f)(X) * d).sum())(X), (H * d).sum((2, 3)))
    x, h = X.clone().requires_grad_(), torch.ones(10, dtype=torch.float64, requires_grad=True)
    g = lambda h, x: (fourier_features(x, W) @ h).sin().sum()
    slope, = torch.autograd.grad(g(h, x), h, create_graph=True)
    wanted, = torch.autograd.grad(slope.square().sum(), x)
    inner = lambda x: torch.func.grad(g)(h.detach(), x).square().sum()  # x is of no concern to it
    assert torch.allclose(torch.autograd.grad(inner(x), x)[0], wanted) and torch.allclose(torch.func.grad(inner)(X), wanted)
