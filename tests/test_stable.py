"""Powers of a distance as kernels: formulas, special cases, gradients, draws, and the stable law beneath."""

import pickle

import numpy as np
import pytest
import torch
from scipy import special
from scipy.spatial.distance import cdist
from sklearn.base import clone

from rfteach.arrays import memory_budget
from rfteach.features import RandomFourierFeatures, sample_frequencies
from rfteach.kernels import Gaussian, Laplacian, Laplacian1, as_kernel
from rfteach.stable import PowerExponential, PowerExponential1, positive_stable

CASES = [(PowerExponential, q, "euclidean") for q in (0.1, 0.7, 1.0, 1.6, 2.0)]
CASES += [(PowerExponential1, q, "cityblock") for q in (0.1, 0.7, 1.0)]
every_case = pytest.mark.parametrize("family, q, metric", CASES)


def data(n, d, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


@every_case
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-12), (np.float32, 3e-6)])
@pytest.mark.parametrize("bandwidth", [1.7, [0.5, 1.0, 3.0]])
def test_is_the_formula(family, q, metric, dtype, tolerance, bandwidth):
    X, Y = data(30, 3).astype(dtype), data(20, 3, seed=1).astype(dtype)
    right = np.exp(-cdist(X.astype(float) / bandwidth, Y.astype(float) / bandwidth, metric) ** q)
    for budget in (500, 2**23):
        with memory_budget(budget):
            K = family(q, bandwidth)(X, Y)
            assert K.dtype == dtype
            np.testing.assert_allclose(K, right, atol=tolerance)
            square = family(q, bandwidth)(X)
            assert (square == square.T).all() and (np.diagonal(square) == 1).all()


@every_case
def test_is_positive_definite(family, q, metric):
    for d in (1, 4):
        X = data(50, d)
        X[3] = X[7]
        assert np.linalg.eigvalsh(family(q, 0.8)(X))[0] > -1e-11


def test_special_cases():
    X = data(20, 3)
    np.testing.assert_allclose(PowerExponential(1.0, 1.3)(X), Laplacian(1.3)(X), atol=1e-14)
    np.testing.assert_allclose(PowerExponential(2.0, 1.3)(X), Gaussian(1.3 / 2**0.5)(X), atol=1e-14)
    np.testing.assert_allclose(PowerExponential1(1.0, 1.3)(X), Laplacian1(1.3)(X), atol=1e-14)
    Z, U = data(5, 3), np.random.default_rng(0).random((5, 5))
    np.testing.assert_allclose(PowerExponential(2.0).from_gaussian(Z, U[:, :2]), 2**0.5 * Z)
    np.testing.assert_allclose(PowerExponential1(1.0).from_gaussian(Z, U), Laplacian1().from_gaussian(Z, U[:, :3]))


def test_second_derivatives_where_points_coincide():
    """exp(-s²) has them, those of the Gaussian: at distance zero -2 I in units of the bandwidths."""
    X, b = torch.from_numpy(data(3, 2)).requires_grad_(), torch.tensor([0.8, 1.5], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda X, b: PowerExponential(2.0, b)(X), (X, b))
    for k in (PowerExponential(2.0, b.detach()), Gaussian(b.detach() / 2**0.5)):
        H = torch.autograd.functional.hessian(lambda x: k(x[None], X[:1].detach())[0, 0], X[0].detach())
        torch.testing.assert_close(H, torch.diag(-2 / b.detach() ** 2))


@every_case
def test_gradients(family, q, metric):
    g = torch.Generator().manual_seed(0)
    X, Y = (torch.randn(n, 2, generator=g, dtype=torch.float64, requires_grad=True) for n in (4, 3))
    bandwidth = torch.tensor([0.8, 1.5], dtype=torch.float64, requires_grad=True)
    gram = lambda X, Y, b: family(q, b)(X, Y)
    assert torch.autograd.gradcheck(gram, (X, Y, bandwidth))
    if metric == "euclidean":
        assert torch.autograd.gradgradcheck(gram, (X, Y, bandwidth))
    assert torch.autograd.gradcheck(lambda b: family(q, b).frequencies(5, 2, 0), (bandwidth,))
    K = family(q, bandwidth)(X)
    np.testing.assert_allclose(K.detach(), family(q, bandwidth.detach())(X.detach()), atol=1e-14)
    for grad in (by_graph := torch.autograd.grad(K.sum(), (X, bandwidth))):
        assert torch.isfinite(grad).all()
    by_function = torch.func.grad(lambda X, b: family(q, b)(X).sum(), (0, 1))(X.detach(), bandwidth.detach())
    torch.testing.assert_close(by_function, by_graph)


@every_case
@pytest.mark.parametrize("sampling", ["iid", "orthogonal", "qmc"])
def test_draws(family, q, metric, sampling):
    """Mean waves within four standard errors; arranged draws are no worse than independent ones."""
    k, n = family(q, [0.7, 1.4]), 16384
    W, _ = sample_frequencies(k, n, 2, sampling=sampling, random_state=3)
    for delta in np.array([[0.3, -0.5], [1.0, 0.4], [0.2, 0.9]]):
        waves = np.cos(W @ delta)
        assert abs(waves.mean() - k(delta[None], np.zeros((1, 2)))[0, 0]) < 4 * waves.std(ddof=1) / n**0.5


def test_features_stand_in_for_the_kernel():
    X = data(10, 3)
    Z = RandomFourierFeatures(PowerExponential1(0.7, 2.0), n_components=20000, random_state=0).fit_transform(X)
    assert abs(Z @ Z.T - PowerExponential1(0.7, 2.0)(X)).max() < 5 / 20000**0.5


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5, 0.9, 1.0])
def test_the_stable_law(p):
    S = positive_stable(p, 1 - np.random.default_rng(0).random((100000, 2)))
    for t in (0.1, 1.0, 5.0):
        values = np.exp(-S * t)
        assert abs(values.mean() - np.exp(-(t**p))) <= 4 * values.std(ddof=1) / len(S) ** 0.5 + 1e-12
    if p == 0.5:  # Lévy's law: P(S ≤ x) = erfc(1 / (2 √x))
        ranks = special.erfc(0.5 / np.sqrt(np.sort(S)))
        assert abs(ranks - np.arange(1, len(S) + 1) / len(S)).max() < 1.95 / len(S) ** 0.5


@pytest.mark.parametrize("p", [0.05, 0.5, 1.0])
def test_the_ends_of_the_uniform_numbers(p):
    ends = np.array([[u, v] for u in (2.0**-53, 0.5, 1.0) for v in (2.0**-53, 0.5, 1.0)])
    S = positive_stable(p, ends)
    assert np.isfinite(S).all() and (S >= 0).all()
    for k in (PowerExponential(2 * p), PowerExponential1(max(p, 0.1))):
        U = np.repeat(ends[:, :1], k.n_uniforms(3), 1)
        U[:, -2:] = ends
        assert np.isfinite(k.from_gaussian(np.ones((9, 3)), U)).all()


def test_parameters():
    k = PowerExponential(1.5, bandwidth=2.0)
    assert clone(k).get_params() == {"exponent": 1.5, "bandwidth": 2.0} and as_kernel(k) is k
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(k))(data(5, 2)), k(data(5, 2)))


@pytest.mark.parametrize("call, error, words", [
    (lambda: PowerExponential(0), ValueError, r"exponent must be a number in \[0.1, 2\], got 0"),
    (lambda: PowerExponential(2.1), ValueError, r"exponent must be a number in \[0.1, 2\], got 2.1"),
    (lambda: PowerExponential1(1.5), ValueError, r"exponent must be a number in \[0.1, 1\], got 1.5"),
    (lambda: PowerExponential1("1"), TypeError, "exponent must be a number"),
    (lambda: PowerExponential().set_params(exponent=3)([[1.0]]), ValueError, "exponent must be .* got 3"),
    (lambda: PowerExponential1().set_params(exponent=3).frequencies(2, 2), ValueError, "exponent must be .* got 3"),
    (lambda: PowerExponential(1.0, -1.0), ValueError, "bandwidth must be positive"),
    (lambda: PowerExponential().log_spectral_density([[1.0]]), NotImplementedError, "no closed form; draw from it"),
    (lambda: PowerExponential1().log_spectral_density([[1.0]]), NotImplementedError, "no closed form; draw from it"),
    (lambda: positive_stable(1.5, np.ones((1, 2))), ValueError, r"p must be a number in \(0, 1\], got 1.5"),
])
def test_bad_input_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()
