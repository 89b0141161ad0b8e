"""Gradient PCA: calculus, landscape, solvers against eigh, the source's sequence, streaming, what is refused."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from rfteach.arrays import memory_budget
from rfteach.pca import (
    GradientPCA,
    leading_components,
    reconstruction_error,
    reconstruction_gradient,
)

TUMOURS = load_breast_cancer(return_X_y=True)[0]
SOLVERS = ["batch", "sgd"]


def data(n=60, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * np.geomspace(5, 0.5, d) @ np.linalg.qr(rng.standard_normal((d, d)))[0]


def standard(X):
    return (X - X.mean(0)) / X.std(0)


def spectrum(X):
    values, vectors = np.linalg.eigh(X.T @ X / len(X))
    return values[::-1], vectors[:, ::-1]


def distance(U, W):
    """Largest sine of an angle between the row spaces of U and W."""
    U, W = (np.linalg.qr(np.asarray(A, dtype=float).T)[0] for A in (U, W))
    return np.linalg.norm(U - W @ (W.T @ U), 2)


def error_by_loops(X, u, alpha):
    total = 0.0
    for x in X:
        y = sum(float(a) * float(b) for a, b in zip(u, x))
        total += sum((float(b) - y * float(a)) ** 2 for a, b in zip(u, x)) / len(X)
    return total + alpha * sum(float(a) ** 2 for a in u)


def test_scores_keep_gradients():
    X = 1e3 + data()
    model, T = GradientPCA(2).fit(X), torch.from_numpy(X[:5]).requires_grad_()
    assert torch.autograd.gradcheck(model.transform, T)
    np.testing.assert_array_equal(model.transform(T).detach(), model.transform(X[:5]))


@pytest.mark.parametrize("solver", SOLVERS)
def test_scikit_learns_contract(solver):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        results = check_estimator(GradientPCA(solver=solver), on_skip=None)
    assert len(results) > 40
    assert {r["status"] for r in results} == {"passed"}, [r for r in results if r["status"] != "passed"]


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-13), (np.float32, 1e-5)])
@pytest.mark.parametrize("budget", [1, 500, 2**23])
def test_error_agrees_with_loops(dtype, tolerance, budget):
    X, u = data().astype(dtype), np.linspace(-0.5, 0.6, 6).astype(dtype)
    with memory_budget(budget):
        value = reconstruction_error(X, u, 0.3)
    assert value.dtype == dtype
    assert float(value) == pytest.approx(error_by_loops(X, u, 0.3), rel=tolerance)


@pytest.mark.parametrize("shape", [(6,), (1, 6), (3, 6)])
@pytest.mark.parametrize("alpha", [0.0, 0.8])
def test_gradient_is_that_of_autograd(shape, alpha):
    X = torch.from_numpy(data())
    U = torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64, requires_grad=True)
    (auto,) = torch.autograd.grad(reconstruction_error(X, U, alpha), U)
    ours = reconstruction_gradient(X, U.detach(), alpha)
    assert ours.shape == shape
    torch.testing.assert_close(ours, auto, rtol=1e-12, atol=1e-11)
    assert torch.autograd.gradcheck(lambda U: reconstruction_error(X, U, alpha), U)
    single = reconstruction_gradient(X.float(), U.detach().float(), alpha)
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), auto, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("alpha", [0.0, 0.4])
def test_landscape(alpha):
    """Every eigenvector at its length is level, with as many ways down as larger eigenvalues."""
    X = standard(data())
    values, V = spectrum(X)
    for k, sigma in enumerate(values):
        r2 = 1 - alpha / (2 * sigma)
        if r2 <= 0:
            continue
        u = np.sqrt(r2) * V[:, k]
        assert abs(reconstruction_gradient(X, u, alpha)).max() < 1e-12
        H = torch.autograd.functional.hessian(
            lambda w: reconstruction_error(torch.from_numpy(X), w, alpha), torch.from_numpy(u))
        predicted = 2 * (2 - r2) * (sigma - values)
        predicted[k] = 8 * r2 * sigma
        np.testing.assert_allclose(torch.linalg.eigvalsh(H), np.sort(predicted), atol=1e-11)


@pytest.mark.parametrize("d, k", [(1, 1), (3, 1), (6, 6), (40, 1), (40, 5), (200, 10)])
def test_leading_components_against_eigh(d, k):
    X = np.random.default_rng(d).standard_normal((300, d)) * np.arange(1, d + 1) ** -0.7
    C = X.T @ X / 300
    values, V = np.linalg.eigh(C)
    found = leading_components(torch.from_numpy(C), k, tol=1e-13)
    assert found.converged and found.n_iter == len(found.residuals)
    np.testing.assert_allclose(found.variances, values[::-1][:k], rtol=1e-11)
    assert distance(found.vectors, V[:, ::-1][:, :k].T) < 1e-10
    np.testing.assert_allclose(found.vectors @ found.vectors.T, np.eye(k), atol=1e-13)
    by_products = leading_components((torch.from_numpy(C).matmul, torch.float64, "cpu", d), k, tol=1e-13)
    assert distance(by_products.vectors, V[:, ::-1][:, :k].T) < 1e-10


@pytest.mark.parametrize("start", [torch.zeros(20, 5), torch.eye(20)[:, :5], torch.eye(20)[:, :9]])
def test_a_start_in_a_subspace_of_its_own_is_left(start):
    found = leading_components(torch.arange(20.0).double().diag(), 2, start=start)
    assert found.converged
    np.testing.assert_allclose(found.variances, [19, 18], rtol=1e-10)


def test_first_component_to_1e_10():
    X = standard(TUMOURS)
    v = spectrum(X)[1][:, :1].T
    assert distance(GradientPCA(1, tol=1e-12).fit(TUMOURS).components_, v) < 1e-10


@pytest.mark.parametrize("standardize", [True, False])
def test_as_scikit_learns_pca(standardize):
    X = data(200, 8)
    Z = standard(X) if standardize else X
    ours, peer = GradientPCA(3, standardize=standardize, tol=1e-13).fit(X), PCA(3, svd_solver="full").fit(Z)
    signs = np.sign((ours.components_ * peer.components_).sum(1))
    np.testing.assert_allclose(ours.components_, signs[:, None] * peer.components_, atol=1e-10)
    assert (ours.components_[np.arange(3), abs(ours.components_).argmax(1)] > 0).all()
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "noise_variance_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(peer, name), rtol=1e-10)
    np.testing.assert_allclose(ours.transform(X), peer.transform(Z) * signs, atol=1e-9)
    back = ours.inverse_transform(ours.transform(X))
    np.testing.assert_allclose((back - ours.mean_) / ours.scale_, peer.inverse_transform(peer.transform(Z)) - (
        0 if standardize else ours.mean_), atol=1e-9)
    np.testing.assert_allclose(ours.mean_, X.mean(0), atol=1e-13)
    assert ours.n_components_ == 3 and ours.n_samples_seen_ == 200


def test_sgd_comes_near():
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        GradientPCA(2, solver="sgd", max_iter=2, tol=0.0).fit(TUMOURS)
    exact = GradientPCA(2).fit(TUMOURS)
    distances = []
    for seed in range(5):
        pca = GradientPCA(2, solver="sgd", random_state=seed).fit(TUMOURS)
        distances.append(distance(pca.components_, exact.components_))
        np.testing.assert_allclose(pca.explained_variance_, exact.explained_variance_, rtol=0.02)
        np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(2), atol=1e-12)
    assert max(distances) < 0.1


def test_sgd_improves_with_more_rows():
    X = data(20_000, 10)
    exact = GradientPCA(2, standardize=False).fit(X)
    pca, distances = GradientPCA(2, standardize=False, solver="sgd", batch_size=50), []
    for rows in np.array_split(X, 10):
        distances.append(distance(pca.partial_fit(rows).components_, exact.components_))
    assert distances[-1] < 0.05 and distances[-1] < distances[0]
    np.testing.assert_allclose(pca.explained_variance_, exact.explained_variance_, rtol=0.05)
    np.testing.assert_allclose(pca.mean_, X.mean(0), atol=1e-12)


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_penalty(alpha):
    """Lengths by (9.4), level at each component, and no component below half of the penalty."""
    X = standard(TUMOURS)
    values = spectrum(X)[0]
    pca = GradientPCA(30, alpha=alpha, tol=1e-11).fit(TUMOURS)
    assert pca.n_components_ == (values > alpha / 2).sum()
    kept = values[: pca.n_components_]
    np.testing.assert_allclose((pca.components_**2).sum(1), 1 - alpha / (2 * kept), atol=1e-10)
    for u in pca.components_:
        assert abs(reconstruction_gradient(X, u, alpha)).max() < 1e-8
    assert abs(reconstruction_gradient(X, pca.components_, alpha)).max() < 1e-8
    back = (pca.inverse_transform(pca.transform(TUMOURS)) - pca.mean_) / pca.scale_
    rest = ((X - back) ** 2).sum() / len(X)
    assert rest == pytest.approx(30 * np.prod(1 - pca.reconstruction_gain_), rel=1e-9)
    assert GradientPCA(2, alpha=1000.0).fit(TUMOURS).components_.shape == (0, 30)


def test_number_of_components():
    values = spectrum(standard(TUMOURS))[0]
    gains = values / np.cumsum(values[::-1])[::-1]
    pca = GradientPCA(min_gain=0.19).fit(TUMOURS)
    assert pca.n_components_ == np.argmax(gains < 0.19) == 7
    np.testing.assert_allclose(pca.reconstruction_gain_, gains[:7], rtol=1e-10)
    assert GradientPCA().fit(TUMOURS).n_components_ == 30
    assert GradientPCA(min_gain=0.9).fit(TUMOURS).n_components_ == 0
    assert GradientPCA(min_gain=0.0, alpha=1.0).fit(TUMOURS).n_components_ == (values > 0.5).sum()
    assert GradientPCA(12, min_gain=0.9).fit(TUMOURS).n_components_ == 12


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 25])
def test_streaming_is_one_fit(standardize, rows):
    X = data(50)
    whole, stream = GradientPCA(3, standardize=standardize, tol=1e-12).fit(X), None
    stream = GradientPCA(3, standardize=standardize, tol=1e-12)
    for start in range(0, 50, rows):
        stream.partial_fit(X[start : start + rows])
    for name in ("components_", "mean_", "scale_", "explained_variance_", "reconstruction_gain_", "noise_variance_"):
        np.testing.assert_allclose(getattr(stream, name), getattr(whole, name), atol=1e-10)
    assert stream.n_samples_seen_ == 50
    stream.fit(X[:20])
    assert stream.n_samples_seen_ == 20
    with memory_budget(200):
        blocks = GradientPCA(3, standardize=standardize, tol=1e-12).fit(X)
        np.testing.assert_allclose(blocks.components_, whole.components_, atol=1e-11)
        np.testing.assert_allclose(blocks.transform(X), whole.transform(X), atol=1e-10)


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("scale", [1e150, 1e-150, 1e300, 1e-290])
def test_any_scale(standardize, scale):
    X = data(50)
    one, other = (GradientPCA(3, standardize=standardize, tol=1e-12).fit(s * X) for s in (1.0, scale))
    np.testing.assert_allclose(other.components_, one.components_, atol=1e-10)
    np.testing.assert_allclose(other.explained_variance_ratio_, one.explained_variance_ratio_, rtol=1e-10)
    np.testing.assert_allclose(other.mean_ / scale, one.mean_, atol=1e-13)
    back = other.inverse_transform(other.transform(X * scale)) / scale
    np.testing.assert_allclose(back, one.inverse_transform(one.transform(X)), atol=1e-9)
    stream = GradientPCA(3, standardize=standardize, tol=1e-12)
    for start in range(0, 50, 10):
        stream.partial_fit(scale * X[start : start + 10])
    np.testing.assert_allclose(stream.components_, one.components_, atol=1e-10)
    penalised = GradientPCA(2, alpha=0.5, standardize=True).fit(scale * X)
    np.testing.assert_allclose(penalised.components_, GradientPCA(2, alpha=0.5).fit(X).components_, atol=1e-9)


def test_columns_of_different_scales():
    X, c = data(50), np.array([1e150, 1e-150, 1.0, 1e200, 1e-200, 1e10])
    one, other = (GradientPCA(3, tol=1e-12).fit(Z) for Z in (X, X * c))
    np.testing.assert_allclose(other.components_, one.components_, atol=1e-10)
    raw = GradientPCA(standardize=False).fit(X * c)
    assert np.isfinite(raw.transform(X * c)).all() and abs(raw.components_[0, 3]) == pytest.approx(1)


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-8), (np.float32, 1e-4)])
def test_means_far_away(dtype, tolerance):
    far = 1e7 if dtype == np.float64 else 1e3
    X = (data(100) + far).astype(dtype)
    Z = X.astype(float) - X.astype(float).mean(0)
    pca = GradientPCA(3, tol=1e-12).fit(X)
    V = spectrum(Z / Z.std(0))[1]
    assert distance(pca.components_, V[:, :3].T) < tolerance
    scores = pca.transform(X)
    assert scores.dtype == dtype
    np.testing.assert_allclose(scores, Z / Z.std(0) @ pca.components_.T, atol=10 * tolerance)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_degenerate_data(solver):
    rng = np.random.default_rng(0)
    make = lambda **given: GradientPCA(solver=solver, **given)
    X = data(30, 4)
    X[:, 2] = 0.1
    pca = make(n_components=2).fit(X)
    assert pca.scale_[2] == 1 and abs(pca.components_[:, 2]).max() < 1e-12
    constant = make().fit(np.full((5, 3), 0.1))
    assert constant.n_components_ == 0 and constant.transform(np.ones((2, 3))).shape == (2, 0)
    np.testing.assert_allclose(constant.inverse_transform(np.zeros((2, 0))), 0.1)
    single = make(n_components=1).fit([[1.0, 2.0, 3.0]])
    assert single.n_components_ == 0 and single.noise_variance_ == 0
    with pytest.warns(UserWarning, match="kept 1 of n_components=3"):
        one = make(n_components=3).fit(np.outer(rng.standard_normal(40), [1.0, -2.0, 3.0]))
    assert one.n_components_ == 1
    np.testing.assert_allclose(abs(one.components_), 3**-0.5, atol=1e-9)
    wide = make(n_components=4).fit(rng.standard_normal((5, 50)))
    assert wide.n_components_ == 4 and wide.explained_variance_ratio_.sum() == pytest.approx(1, abs=1e-9 if solver != "sgd" else 0.01)
    column = make().fit(rng.standard_normal((20, 1)))
    assert column.components_.tolist() == [[1.0]]
    for name, value in vars(pca).items():
        if isinstance(value, np.ndarray):
            assert np.isfinite(value).all(), name


def test_double_eigenvalue():
    """Two equal variances: the directions are arbitrary, their plane is not."""
    rng = np.random.default_rng(0)
    Q = rng.standard_normal((300, 6))
    Q = np.linalg.qr(Q - Q.mean(0))[0]
    B = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    X = Q * [3.0, 3.0, 2.0, 1.0, 1.0, 0.5] @ B
    pca = GradientPCA(2, standardize=False, tol=1e-12).fit(X)
    assert distance(pca.components_, B[:2]) < 1e-9
    np.testing.assert_allclose(pca.explained_variance_, 9 / 299, rtol=1e-9)


def test_many_columns_by_products():
    X = np.random.default_rng(0).standard_normal((40, 2100)) * np.arange(1, 2101) ** -0.5
    pca = GradientPCA(3, standardize=False, tol=1e-11).fit(X)
    assert not pca._scatter.full
    exact = PCA(3, svd_solver="full").fit(X)
    assert distance(pca.components_, exact.components_) < 1e-8
    np.testing.assert_allclose(pca.explained_variance_, exact.explained_variance_, rtol=1e-9)
    single = GradientPCA(3, standardize=False, tol=1e-5).fit(X.astype(np.float32))
    assert distance(single.components_, exact.components_) < 1e-3


def test_metamorphic():
    X = data(40)
    pca = GradientPCA(3, tol=1e-12).fit(X)
    rows = np.random.default_rng(1).permutation(40)
    np.testing.assert_allclose(GradientPCA(3, tol=1e-12).fit(X[rows]).components_, pca.components_, atol=1e-9)
    columns = np.array([3, 1, 5, 0, 2, 4])
    permuted = GradientPCA(3, tol=1e-12).fit(X[:, columns])
    np.testing.assert_allclose(permuted.components_, pca.components_[:, columns], atol=1e-9)
    np.testing.assert_allclose(GradientPCA(3, tol=1e-12).fit(-X).components_, pca.components_, atol=1e-9)
    moved = GradientPCA(3, tol=1e-12).fit(7 * X - 2)
    np.testing.assert_allclose(moved.transform(7 * X - 2), pca.transform(X), atol=1e-9)


def test_kinds_and_devices(device):
    X = data(30)
    for solver in SOLVERS:
        given = dict(solver=solver, tol=0.9 if solver == "sgd" else None, random_state=0)
        pca = GradientPCA(2, **given).fit(X)
        T = torch.from_numpy(X).to(device)
        other = GradientPCA(2, **given).fit(T)
        np.testing.assert_allclose(other.components_, pca.components_, atol=1e-7)
        for tensor in (T, T.float()):
            scores = other.transform(tensor)
            assert scores.dtype == tensor.dtype and scores.device.type == device
            np.testing.assert_allclose(scores.cpu(), pca.transform(X), atol=1e-4)
            assert other.inverse_transform(scores).device.type == device
        moved = GradientPCA(2, device=device, **given).fit(X)
        assert isinstance(moved.transform(X), np.ndarray)
        before = moved.components_.copy()
        moved.partial_fit(X)
        if solver != "sgd":  # the same rows twice
            np.testing.assert_allclose(moved.components_, before, atol=1e-7)
    assert reconstruction_error(T, T[0]).device.type == device
    frame = pd.DataFrame(X, columns=list("abcdef"))
    pca = GradientPCA(2).set_output(transform="pandas").fit(frame)
    assert list(pca.transform(frame).columns) == ["gradientpca0", "gradientpca1"]
    assert GradientPCA(2).fit_transform(X.astype(np.float32)).dtype == np.float32
    assert GradientPCA(2).fit(X.tolist()).transform(X.tolist()).dtype == np.float64


def test_pipeline_grid_search_clone_and_pickle():
    X, y = load_breast_cancer(return_X_y=True)
    model = make_pipeline(GradientPCA(2), LogisticRegression())
    search = GridSearchCV(model, {"gradientpca__n_components": [1, 4]}, cv=3).fit(X, y)
    assert search.best_params_ == {"gradientpca__n_components": 4} and search.score(X, y) > 0.9
    pca = GradientPCA(3).partial_fit(X[:100])
    again = pickle.loads(pickle.dumps(pca)).partial_fit(X[100:])
    np.testing.assert_allclose(again.components_, pca.partial_fit(X[100:]).components_)
    assert clone(pca).get_params() == pca.get_params()


def test_progress(capfd):
    for solver in SOLVERS:
        pca = GradientPCA(2, solver=solver, tol=0.9, verbose=True).fit(data())
        assert pca.n_iter_ == len(pca.history_) >= 1
    assert "residual" in capfd.readouterr().err
    with pytest.warns(ConvergenceWarning, match="max_iter=1 steps"):
        assert GradientPCA(1, max_iter=1).fit(data(100, 40)).n_iter_ == 1


@pytest.mark.parametrize("given, words", [
    (dict(n_components=0), "n_components"),
    (dict(n_components=7), "n_components=7 must be at most"),
    (dict(n_components=1.5), "n_components"),
    (dict(alpha=-1.0), "alpha"),
    (dict(min_gain=1.5), "min_gain"),
    (dict(tol=-1.0), "tol"),
    (dict(max_iter=0), "max_iter"),
    (dict(batch_size=0), "batch_size"),
    (dict(solver="newton"), "solver must be 'batch' or 'sgd', got 'newton'"),
    (dict(random_state=-1), "random_state"),
    (dict(device="nowhere"), "device"),
])
def test_refused_parameters(given, words):
    with pytest.raises((ValueError, TypeError), match=words):
        GradientPCA(**given).fit(data())
    with pytest.raises((ValueError, TypeError), match=words.replace(" must be at most", "")):
        GradientPCA(**given).partial_fit(data())


def test_refused_data():
    pca = GradientPCA(2).fit(data())
    for X in (data()[:, :5], data()[0], np.full((3, 6), np.nan)):
        with pytest.raises(ValueError):
            pca.transform(X)
        with pytest.raises(ValueError):
            pca.partial_fit(X)
    with pytest.raises(ValueError, match="Z must have 2 columns, got 3"):
        pca.inverse_transform(np.zeros((1, 3)))
    with pytest.raises(NotFittedError):
        GradientPCA().transform(data())
    with pytest.raises(ValueError, match="u must have a column for each column of X: got 5 for 6"):
        reconstruction_error(data(), np.zeros(5))
    with pytest.raises(ValueError, match="alpha"):
        reconstruction_gradient(data(), np.zeros(6), -1.0)
    for k in (0, 3):
        with pytest.raises(ValueError, match="k"):
            leading_components(torch.eye(2), k)
    with pytest.raises(ValueError, match="solver='sgd' cannot go on"):
        pca.set_params(solver="sgd").partial_fit(data())


def test_refused_nan_and_strings():
    for name in ("alpha", "min_gain", "tol"):
        for value in (np.nan, np.inf):
            with pytest.raises(ValueError, match=name):
                GradientPCA(**{name: value}).fit(data())
    for value in ("no", 1, None):
        with pytest.raises(TypeError, match="standardize must be True or False"):
            GradientPCA(standardize=value).fit(data())
    with pytest.raises(ValueError, match="alpha must be a number in .*, got nan"):
        reconstruction_error(data(), np.zeros(6), np.nan)


@pytest.mark.parametrize("given, error, words", [
    (dict(max_iter=0), ValueError, "max_iter"),
    (dict(tol=-1.0), ValueError, "tol"),
    (dict(tol=np.nan), ValueError, r"tol must be a number in \[0, inf\), got nan"),
    (dict(start=torch.ones(3, 1)), ValueError, r"start must have shape \(4, b\), got \(3, 1\)"),
    (dict(C=np.eye(4)), TypeError, "C must be a torch.Tensor or a tuple .* got ndarray"),
    (dict(C=torch.eye(4, dtype=torch.int64)), TypeError, "C must be a floating-point tensor, got torch.int64"),
    (dict(C=torch.full((4, 4), torch.nan)), ValueError, "C must be finite"),
    (dict(C=torch.zeros(3, 4)), ValueError, r"C must be square, got shape \(3, 4\)"),
    (dict(C=torch.arange(16.0).reshape(4, 4)), ValueError, "C must be symmetric"),
])
def test_leading_components_refuses(given, error, words):
    with pytest.raises(error, match=words):
        leading_components(**{"C": torch.eye(4), "k": 1, **given})


@pytest.mark.parametrize("c", [1.0, 1 / 3, 3.0, 1e6 + 0.1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_column(c, dtype):
    """Its rounded mean must not become a direction."""
    A = np.random.default_rng(0).standard_normal((5000, 3)).astype(dtype)
    A[:, 1] = c
    stream = GradientPCA()
    for rows in np.array_split(A, 10):
        stream.partial_fit(rows)
    with memory_budget(20_000):
        blocks = GradientPCA().fit(A)
    for pca in (GradientPCA().fit(A), GradientPCA().fit(np.tile(A, (10, 1))), stream, blocks,
                GradientPCA(solver="sgd", tol=0.9).fit(A)):
        assert pca.n_components_ == 2 and pca.scale_[1] == 1.0 and pca.mean_[1] == A[0, 1]
        assert abs(pca.components_[:, 1]).max() < 1e-12


@pytest.mark.parametrize("c", [1.0, -1.0])
def test_a_column_that_is_constant_up_to_rounding(c):
    A = np.random.default_rng(0).standard_normal((500, 3))
    A[:, 1] = np.where(np.arange(500) % 2, c, np.nextafter(c, 2 * c))
    assert GradientPCA().fit(A).n_components_ == 2


def test_many_rows_far_away():
    """Rounding of the mean does not grow with the number of rows."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    X = rng.standard_normal((300_000, 3)) * [3.0, 2.0, 1.0] @ Q + 1e10
    pca = GradientPCA(3, standardize=False).fit(X)
    np.testing.assert_allclose(pca.explained_variance_, [9, 4, 1], rtol=0.01)


@pytest.mark.parametrize("exponent", [-120, -100, -80, 80, 100, 120])
def test_solver_at_any_scale(exponent):
    X = np.random.default_rng(0).standard_normal((400, 200))
    exact = PCA(3, svd_solver="full").fit(X).components_
    pca = GradientPCA(3, standardize=False).fit(X * 10.0**exponent)
    assert pca.n_iter_ > 3 and distance(pca.components_, exact) < 1e-7
    C = torch.from_numpy(X.T @ X) * 10.0 ** (2 * exponent)
    found = leading_components(C, 3, tol=1e-12)
    assert found.converged and distance(found.vectors, np.linalg.eigh(X.T @ X)[1][:, :-4:-1].T) < 1e-9
    stream = GradientPCA(3, standardize=False, solver="sgd")
    for part in (X[:100], 50 * X[100:]):
        stream.partial_fit(part * 10.0**exponent)
    plain = GradientPCA(3, standardize=False, solver="sgd")
    for part in (X[:100], 50 * X[100:]):
        plain.partial_fit(part)
    np.testing.assert_allclose(stream.components_, plain.components_, atol=1e-9)
    ratio = stream.singular_values_ / plain.singular_values_
    np.testing.assert_allclose(ratio * 10.0**-exponent, 1, rtol=1e-9)


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e25])
def test_single_precision_at_any_scale(scale, standardize):
    """Squares leave the range of float32 long before that of float64."""
    X = data(50).astype(np.float32)
    one, other = (GradientPCA(3, standardize=standardize).fit(np.float32(s) * X) for s in (1, scale))
    np.testing.assert_allclose(other.components_, one.components_, atol=1e-5)
    np.testing.assert_allclose(other.singular_values_ / (1 if standardize else scale), one.singular_values_, rtol=1e-5)


@pytest.mark.parametrize("scale", [1e-12, 1e-30, 1e12])
def test_single_precision_by_products_at_any_scale(scale):
    X = (np.random.default_rng(0).standard_normal((60, 2100)) * scale).astype(np.float32)
    pca = GradientPCA(2, standardize=False, tol=1e-5).fit(X)
    exact = PCA(2, svd_solver="full").fit(X.astype(float) / scale).components_
    assert distance(pca.components_, exact) < 1e-3


@pytest.mark.parametrize("first", [1.0, 1e3, 1e5])
def test_tolerance_is_relative_to_each_component(first):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 100)) * np.append(first, np.linspace(2, 1, 99))
    exact = PCA(3, svd_solver="full").fit(X).components_
    pca = GradientPCA(3, standardize=False).fit(X)
    assert distance(pca.components_, exact) < (1e-7 if first < 1e5 else 1e-3)


def test_components_of_raw_tumours():
    exact = PCA(10, svd_solver="full").fit(TUMOURS).components_
    assert distance(GradientPCA(10, standardize=False).fit(TUMOURS).components_, exact) < 1e-5


def test_single_precision_keeps_small_variances():
    X = np.random.default_rng(0).standard_normal((3000, 50)) * np.append(1000.0, np.ones(49))
    double, single = (GradientPCA(5, standardize=False).fit(X.astype(T)) for T in (np.float64, np.float32))
    assert double.n_components_ == single.n_components_ == 5
    np.testing.assert_allclose(single.explained_variance_, double.explained_variance_, rtol=1e-3)
    assert distance(single.components_, double.components_) < 1e-2
    B = np.linalg.qr(np.random.default_rng(1).standard_normal((50, 50)))[0]
    with pytest.warns(UserWarning, match="kept 1 of n_components=5: .* not above rounding in float32"):
        GradientPCA(5, standardize=False).fit((X * np.append(100, np.ones(49)) @ B).astype(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # here alpha sets the end
        assert GradientPCA(5, standardize=False, alpha=1e3).fit(X).n_components_ == 1


def test_sgd_goes_on_after_fit():
    X = data(2000, 10)
    pca = GradientPCA(2, solver="sgd").fit(X)
    before = pca.components_.copy()
    steps = pca._oja.t
    pca.partial_fit(X[:100])
    assert pca._oja.t == steps + 1 and distance(pca.components_, before) < 0.05
    assert pca.set_params(n_components=1).partial_fit(X[:100]).components_.shape == (1, 10)
    assert distance(pca.components_, before[:1]) < 0.1
    with pytest.raises(ValueError, match="n_components=3 is more than the 2 that solver='sgd' began with"):
        pca.set_params(n_components=3).partial_fit(X[:100])
    assert pca.n_components_ == 1


def test_sgd_begins_with_rows_that_hardly_vary():
    """One row, or a batch of which one column varies, says nothing about the others; two columns never vary."""
    X = np.c_[np.ones((2000, 2)), data(2000, 8)]
    exact = GradientPCA(2, standardize=False).fit(X)
    for first in (X[:1], np.where(np.arange(10) == 5, X[:10], X[0])):
        pca = GradientPCA(2, standardize=False, solver="sgd", batch_size=50).partial_fit(first)
        for rows in np.array_split(X, 40):
            pca.partial_fit(rows)
        assert pca.n_components_ == 2 and distance(pca.components_, exact.components_) < 0.1
        np.testing.assert_allclose(pca.explained_variance_, exact.explained_variance_, rtol=0.1)


def test_failure_leaves_the_model_as_it_was(monkeypatch):
    pca = GradientPCA(2).fit(data())
    scores, state = pca.transform(data()), dict(vars(pca))
    with pytest.raises(ValueError):
        pca.fit(np.full((5, 4), np.nan))
    other = 7 + 3 * data(80, 6, seed=5)

    def interrupted(*args, **given):
        raise KeyboardInterrupt

    monkeypatch.setattr("rfteach.pca.leading_components", interrupted)
    for method in (pca.fit, pca.partial_fit):
        with pytest.raises(KeyboardInterrupt):
            method(other)
        assert vars(pca).keys() == state.keys() and all(vars(pca)[name] is state[name] for name in state)
        assert pca.n_samples_seen_ == pca._scatter.n == 60
    monkeypatch.undo()
    np.testing.assert_array_equal(pca.transform(data()), scores)
    assert pca.partial_fit(other).n_samples_seen_ == 140


def test_wide_data_and_partial_fit():
    X = np.random.default_rng(0).standard_normal((20, 2100))
    pca = GradientPCA(2, tol=1e-3).fit(X)
    with pytest.raises(ValueError, match="fit kept no matrix of 2100 × 2100.*solver='sgd'"):
        pca.partial_fit(X)
    with pytest.raises(ValueError, match="solver='sgd' cannot go on"):
        pca.set_params(solver="sgd").partial_fit(X)
    assert GradientPCA(2, solver="sgd").partial_fit(X).components_.shape == (2, 2100)


def test_sgd_does_not_notice_a_power_of_two():
    """Between two blocks the largest deviation passes a power of two in one unit and none in another."""
    rng = np.random.default_rng(0)
    spread = np.array([1.0, 0.4, 0.2, 0.1])
    first, later = 0.98 * rng.normal(size=(1000, 4)) * spread, 1.25 * rng.normal(size=(300, 4)) * spread
    found = []
    for c in (1.0, 1.5):
        pca = GradientPCA(2, solver="sgd", standardize=False)
        found.append(pca.partial_fit(c * first).partial_fit(c * later).explained_variance_ / c**2)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


def test_deviations_of_rows_in_a_pattern():
    """Every second row is no sample: what they leave of the mean is taken off, with a matrix and without."""
    X = np.where(np.arange(2000) % 2, 1.0, -1.0)[:, None] * [1.0, 3.0] + 5
    for solver in ("batch", "sgd"):
        np.testing.assert_allclose(GradientPCA(1, solver=solver).partial_fit(X).scale_, X.std(0), rtol=1e-9)


def test_scores_lose_nothing_of_a_mean_between_two_single_precision_numbers():
    X = (2.0**24 + 2 * np.random.default_rng(0).integers(0, 4, (100, 2))).astype(np.float32)
    Z = GradientPCA(2, standardize=False).fit(X).transform(X)
    np.testing.assert_allclose(Z.mean(0), 0, atol=1e-5)


def test_components_end_at_the_first_that_gains_too_little():
    """Of variances 10, 1, 1, 1, 1 the second gains 1/4 of what is left, the third 1/3: it is not reached."""
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(50, 6)) - [[1, 0, 0, 0, 0, 0]])[0]
    X = np.linalg.qr(np.c_[np.ones(50), Q[:, :5]])[0][:, 1:] * np.sqrt([10.0, 1, 1, 1, 1])
    assert GradientPCA(min_gain=0.3, standardize=False).fit(X).n_components_ == 1
    assert GradientPCA(min_gain=0.2, standardize=False).fit(X).n_components_ == 5


def test_a_stream_of_sgd_counts_all_rows_and_takes_the_last_batch():
    X = np.random.default_rng(0).normal(size=(300, 4))
    pca = GradientPCA(2, solver="sgd", batch_size=64)
    for part in (X[:100], X[100:]):
        pca.partial_fit(part)
    assert pca.n_samples_seen_ == 300
    assert pca.n_iter_ == 2 + 4  # 64 and 36 rows; 64, 64, 64 and 8
    np.testing.assert_allclose(pca.singular_values_**2, 299 * pca.explained_variance_)
