"""Kernels: against independent references, as positive definite functions, and beside their densities."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from sklearn.base import clone
from sklearn.gaussian_process import kernels as gp
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel

import rfteach.gram
import rfteach.kernels
from rfteach.arrays import memory_budget
from rfteach.kernels import Cauchy, Gaussian, Laplacian, Laplacian1, Matern, as_kernel, gram_blocks
from rfteach.kpca import AnisotropicKernelPCA
from rfteach.stable import PowerExponential1

FAMILIES = {
    "gaussian": Gaussian,
    "laplacian": Laplacian,
    "laplacian1": Laplacian1,
    "cauchy": Cauchy,
    "matern12": lambda b=1.0: Matern(0.5, b),
    "matern32": lambda b=1.0: Matern(1.5, b),
    "matern52": lambda b=1.0: Matern(2.5, b),
    "matern0.3": lambda b=1.0: Matern(0.3, b),
    "matern2": lambda b=1.0: Matern(2, b),
}
REFERENCES = {
    "gaussian": lambda X, Y: rbf_kernel(X, Y, gamma=0.5),
    "laplacian": lambda X, Y: gp.Matern(nu=0.5)(X, Y),
    "laplacian1": lambda X, Y: laplacian_kernel(X, Y, gamma=1.0),
    "cauchy": lambda X, Y: gp.RationalQuadratic(length_scale=0.5**0.5, alpha=1)(X, Y),
    "matern12": lambda X, Y: gp.Matern(nu=0.5)(X, Y),
    "matern32": lambda X, Y: gp.Matern(nu=1.5)(X, Y),
    "matern52": lambda X, Y: gp.Matern(nu=2.5)(X, Y),
    "matern0.3": lambda X, Y: gp.Matern(nu=0.3)(X, Y),
    "matern2": lambda X, Y: gp.Matern(nu=2.0)(X, Y),
}
every_family = pytest.mark.parametrize("name", FAMILIES)
TOLERANCE = {np.float64: 1e-12, np.float32: 3e-6}


def data(n, d, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).normal(size=(n, d))


@every_family
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("bandwidth", [1.7, [0.5, 1.0, 3.0]])
def test_agrees_with_scikit_learn(name, dtype, bandwidth):
    X, Y = data(30, 3).astype(dtype), data(20, 3, seed=1).astype(dtype)
    K = FAMILIES[name](bandwidth)(X, Y)
    assert K.dtype == dtype
    reference = REFERENCES[name](X.astype(float) / bandwidth, Y.astype(float) / bandwidth)
    np.testing.assert_allclose(K, reference, atol=TOLERANCE[dtype])


@pytest.mark.parametrize("kernel", [Laplacian1(0.7), Laplacian1([0.3, 0.7, 1.1]), PowerExponential1(0.5, 0.7), Gaussian(0.7)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_origin_does_not_matter(kernel, dtype):
    """Coordinates far from zero differ as they do near it, beside which their quotients are rounded."""
    X = data(40, 3)
    far = (X + (1e5 if dtype is np.float32 else 1e9)).astype(dtype)
    near = far.astype(np.float64) - far[0].astype(np.float64)
    reference = {"x": kernel(near), "y": kernel(near, near[:20])}
    with_gradients = torch.from_numpy(far).requires_grad_()
    for K, name in [(kernel(far), "x"), (kernel(far, far[:20]), "y"), (kernel(with_gradients).detach(), "x"),
                    (kernel(with_gradients, with_gradients[:20]).detach(), "y")]:
        np.testing.assert_allclose(K, reference[name], atol=1e-5 if dtype is np.float32 else 1e-10)


@pytest.mark.parametrize("kernel", [Laplacian1(), PowerExponential1(0.5), Gaussian()])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
def test_a_row_that_is_far_out_leaves_the_others_alone(kernel, place):
    X = np.array([[0.1], [0.7], [0.2], [0.4]], dtype=np.float32)
    others = np.delete(np.arange(5), place)
    far = torch.from_numpy(np.insert(X, place, 1e8, axis=0))
    for K in (kernel(far), kernel(far.requires_grad_()).detach()):
        np.testing.assert_allclose(K[np.ix_(others, others)], kernel(X), atol=1e-6)


@pytest.mark.parametrize("nu", [0.05, 0.1, 0.7, 1, 3.5, 10, 60, 100])
def test_matern_of_any_smoothness(nu):
    X, Y = data(30, 2), data(20, 2, seed=1)
    np.testing.assert_allclose(Matern(nu)(X, Y), gp.Matern(nu=nu)(X, Y), atol=3e-13)


@every_family
def test_strips_do_not_change_the_result(name):
    X, Y = data(37, 3), data(23, 3, seed=1)
    k = FAMILIES[name](0.8)
    whole, cross = k(X), k(X, Y)
    for budget in (1, 123, 489, 1221, 1953, 5000, 10000):  # strips of one row, of a few, of all
        with memory_budget(budget):
            np.testing.assert_allclose(k(X), whole, atol=1e-14)
            np.testing.assert_allclose(k(X, Y), cross, atol=1e-14)


@every_family
@settings(max_examples=30)
@given(n=st.integers(1, 40), d=st.integers(1, 5), seed=st.integers(0, 99),
       scale=st.sampled_from([1e-150, 1e-6, 1.0, 1e3, 1e150]), shift=st.sampled_from([0.0, 1e3]))
def test_symmetric_positive_semidefinite(name, n, d, seed, scale, shift):
    X = scale * (data(n, d, seed) + shift)
    X[-1] = X[0]
    K = FAMILIES[name](scale)(X)
    assert np.isfinite(K).all() and (K >= 0).all() and (K <= 1).all()
    assert (K == K.T).all() and (np.diagonal(K) == 1).all() and K[0, -1] == 1
    assert np.linalg.eigvalsh(K)[0] > -1e-11 * n


@every_family
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_invariances(name, dtype):
    """Shifts of both arguments, order of rows, and scaling of data and bandwidth together."""
    X, Y, k = data(20, 4).astype(dtype), data(15, 4, seed=1).astype(dtype), FAMILIES[name](1.3)
    K, tolerance = k(X, Y), 4 * TOLERANCE[dtype]
    np.testing.assert_allclose(k(X + 8, Y + 8), K, atol=tolerance)
    np.testing.assert_allclose(k(Y, X), K.T, atol=tolerance)
    np.testing.assert_allclose(k(X[::-1], Y), K[::-1], atol=tolerance)
    np.testing.assert_allclose(FAMILIES[name](1.3e3)(1e3 * X, 1e3 * Y), K, atol=tolerance)
    np.testing.assert_allclose(k.diag(X), np.ones(20, dtype))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_near_points_far_from_the_origin(dtype, offset):
    """Two tight clusters: the expanded square alone would lose all distances inside them."""
    X = data(60, 5, scale=1e-2)
    X[:30] += 300
    X = (X + offset).astype(dtype)
    reference = gp.Matern(nu=0.5)(X.astype(float))
    np.testing.assert_allclose(Laplacian()(X), reference, atol=TOLERANCE[dtype])
    np.testing.assert_allclose(Laplacian()(X, X.copy()), reference, atol=TOLERANCE[dtype])


@every_family
@pytest.mark.parametrize("separation", [3, 30, 1e3, 1e6])
def test_clusters_and_outliers_in_float32(name, separation):
    """What lies near each other stays accurate, whatever lies far away; with autograd, too."""
    X = data(40, 3, scale=0.3).astype(np.float32)
    X[20:39] += np.float32(separation)
    X[39] *= 1e8
    reference = FAMILIES[name]()(X.astype(float))
    T = torch.from_numpy(X)
    with_grad = FAMILIES[name]()(T.clone().requires_grad_()).detach()
    for K in (FAMILIES[name]()(X), FAMILIES[name]()(X, X.copy()), with_grad.numpy()):
        np.testing.assert_allclose(K, reference, atol=2e-5)


@every_family
def test_duplicates_are_exactly_one_in_float32(name):
    X = np.repeat(data(10, 7, scale=30), 3, axis=0).astype(np.float32)
    for K in (FAMILIES[name](2.0)(X), FAMILIES[name](2.0)(X, X.copy())):
        same = np.kron(np.eye(10), np.ones((3, 3))) > 0
        assert (K[same] == 1).all() and np.isfinite(K).all()


@every_family
def test_gradients(name):
    g = torch.Generator().manual_seed(0)
    X, Y = (torch.randn(n, 2, generator=g, dtype=torch.float64, requires_grad=True) for n in (4, 3))
    bandwidth = torch.tensor([0.8, 1.5], dtype=torch.float64, requires_grad=True)

    def gram(X, Y, bandwidth):
        return FAMILIES[name](bandwidth)(X, Y)

    assert torch.autograd.gradcheck(gram, (X, Y, bandwidth))
    assert torch.autograd.gradcheck(lambda X, bandwidth: FAMILIES[name](bandwidth)(X), (X, bandwidth))
    if name != "laplacian1":
        assert torch.autograd.gradgradcheck(gram, (X, Y, bandwidth))
    assert torch.autograd.gradcheck(lambda X, b: FAMILIES[name](b).log_spectral_density(X), (X, bandwidth))
    assert torch.autograd.gradcheck(lambda b: FAMILIES[name](b).frequencies(5, 2, 0), (bandwidth,))
    K = FAMILIES[name](bandwidth)(X)
    np.testing.assert_allclose(K.detach(), FAMILIES[name](bandwidth.detach())(X.detach()), atol=1e-15)
    for grad in (by_graph := torch.autograd.grad(K.sum(), (X, bandwidth))):
        assert torch.isfinite(grad).all()
    by_function = torch.func.grad(lambda *t: FAMILIES[name](t[1])(t[0]).sum(), (0, 1))(X.detach(), bandwidth.detach())
    torch.testing.assert_close(by_function, by_graph)


@every_family
def test_kernel_is_the_transform_of_its_density(name):
    k = FAMILIES[name](1.4)
    for t in (0.5, 2.0):
        integral, _ = integrate.quad(lambda w: np.exp(k.log_spectral_density([[w]])[0]), 0, np.inf,
                                     weight="cos", wvar=t, epsabs=1e-10, limit=500, limlst=500)
        assert abs(2 * integral - k([[t]], [[0.0]])[0, 0]) < 1e-8


@every_family
@pytest.mark.parametrize("d", [2, 5, 20])
def test_frequencies_by_monte_carlo(name, d):
    """Mean wave within 4 standard errors of the kernel; E[q(W)/p(W)] = 1 for another density q."""
    bandwidth = np.linspace(0.7, 2.0, d)
    k = FAMILIES[name](bandwidth)
    W = k.frequencies(20000, d, random_state=d)
    for delta in data(5, d, seed=d, scale=d**-0.5):
        waves = np.cos(W @ delta)
        expected = k(delta[None], np.zeros((1, d)))[0, 0]
        assert abs(waves.mean() - expected) < 4 * waves.std(ddof=1) / np.sqrt(len(W))
    q = FAMILIES[name](bandwidth * (1.2 if name == "laplacian1" else 1.5))
    if name != "laplacian1":
        q = Gaussian(bandwidth * 2)
    ratio = np.exp(q.log_spectral_density(W) - k.log_spectral_density(W))
    assert abs(ratio.mean() - 1) < 4 * ratio.std(ddof=1) / np.sqrt(len(W))


@pytest.mark.parametrize("d", [1, 2, 3, 20, 784])
def test_cauchy_density_over_the_whole_range(d):
    """Against SciPy's Bessel function, where that neither overflows nor underflows."""
    from scipy.special import kve

    r = np.geomspace(1e-3 if d < 100 else 50, 500, 60)
    W = np.zeros((60, d))
    W[:, 0] = r
    nu = abs(1 - d / 2)
    with np.errstate(over="ignore"):
        reference = (np.log(2) - d / 2 * np.log(4 * np.pi) + (1 - d / 2) * np.log(r / 2) + np.log(kve(nu, r)) - r)
    valid = np.isfinite(reference)
    assert valid.sum() > 20
    np.testing.assert_allclose(Cauchy().log_spectral_density(W)[valid], reference[valid], rtol=1e-12, atol=1e-12)
    at_zero = Cauchy().log_spectral_density(np.zeros((1, d)))[0]
    assert at_zero == (np.log(0.5) if d == 1 else np.inf)


@every_family
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("exponent", [-0.9, -0.5, 0.5, 0.9])
def test_log_density_of_extreme_frequencies(name, dtype, exponent):
    """No NaN and no overflow of a square; heavy tails fall like a power of the frequency."""
    size = dtype(np.finfo(dtype).max) ** dtype(exponent)
    log_p = FAMILIES[name]().log_spectral_density(np.array([[size, 0.0], [10 * size, 0.0]], dtype=dtype))
    assert log_p.dtype == dtype and not np.isnan(log_p).any()
    nu = getattr(FAMILIES[name](), "nu", None)
    if nu is not None and exponent > 0:
        np.testing.assert_allclose(log_p[0] - log_p[1], 2 * (nu + 1) * np.log(10), rtol=1e-3)


@every_family
def test_kinds_and_devices(name, device):
    X, Y, k = data(6, 3), data(4, 3, seed=1), FAMILIES[name](1.3)
    reference = k(X, Y)
    out = k(torch.from_numpy(X).to(device), torch.from_numpy(Y).to(device))
    assert out.device.type == device
    np.testing.assert_allclose(out.cpu(), reference, atol=1e-12)
    frame = k(pd.DataFrame(X, index=list("abcdef")), pd.DataFrame(Y, index=list("wxyz")))
    assert list(frame.index) == list("abcdef") and list(frame.columns) == list("wxyz")
    np.testing.assert_allclose(frame, reference, atol=1e-14)
    assert k(X.astype(np.float32), Y).dtype == np.float64


@every_family
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mean, bandwidth", [(0.0, 2.0), (1e3, [0.5, 1.0, 3.0]), (0.0, 1e21)])
def test_one_side_serves_many(name, dtype, mean, bandwidth):
    """To the last bit, also where rows are centred, and for k(X, X)."""
    k, Y = FAMILIES[name](bandwidth), (torch.from_numpy(data(20, 3, seed=1)) + mean).to(dtype)
    side = k.side(Y)
    for X in [Y, *(torch.from_numpy(data(30, 3) + mean).to(dtype).split(10))]:
        assert torch.equal(k.gram(X, Y, side), k.gram(X, Y))
    with pytest.raises(ValueError, match="Y / bandwidth overflows"):
        k.side(torch.finfo(dtype).max / 2 * torch.ones_like(Y))


@pytest.mark.parametrize("max_bytes", [1, 1000, 2**28])
def test_gram_blocks(max_bytes):
    X, Y, k = data(21, 3), data(8, 3, seed=1), Gaussian(0.9)
    for args in ((X,), (X, Y)):
        parts = list(gram_blocks(k, *args, max_bytes=max_bytes))
        np.testing.assert_allclose(np.concatenate([K for _, K in parts]), k(*args), atol=1e-14)
        assert [rows.start for rows, _ in parts] == [0] + [rows.stop for rows, _ in parts][:-1]
    frame, other = pd.DataFrame(X, index=np.arange(100, 121)), pd.DataFrame(Y, index=list("abcdefgh"))
    pd.testing.assert_frame_equal(
        pd.concat([K for _, K in gram_blocks("gaussian", frame, other, max_bytes=max_bytes)]), Gaussian()(frame, other))
    assert next(gram_blocks(k, X.astype(np.float32), Y))[1].dtype == np.float64


def test_blocks_of_rows_share_what_the_columns_decide(monkeypatch):
    asked, side = [], rfteach.gram._side
    counted = lambda Y, bandwidth: asked.append(len(Y)) or side(Y, bandwidth)
    monkeypatch.setattr(rfteach.gram, "_side", counted)
    monkeypatch.setattr(Gaussian, "_side", staticmethod(counted))
    X, Y, k = data(21, 3) + 100, data(8, 3, seed=1) + 100, Gaussian(0.9)
    assert len(list(gram_blocks(k, X, Y, max_bytes=1))) == 21 and asked == [8]
    components = AnisotropicKernelPCA(2, bandwidth=0.9).fit(Y)
    expected = components.transform(X)
    asked.clear()
    with memory_budget(100):
        assert np.allclose(components.transform(X), expected, atol=1e-12)
    assert asked == [8]


def test_blocks_have_gradients():
    X, Y = (torch.from_numpy(data(n, 3, seed=n)).requires_grad_() for n in (7, 5))
    bandwidth = torch.tensor([0.8, 1.5, 1.0], dtype=torch.float64, requires_grad=True)
    for inputs, k, args in (((X, Y), Gaussian(), (X, Y)), ((X,), Gaussian(), (X,)),
                            ((bandwidth,), Gaussian(bandwidth), (X.detach(), Y.detach()))):
        by_blocks = torch.cat([K for _, K in gram_blocks(k, *args, max_bytes=1)])
        for found, wanted in zip(torch.autograd.grad(by_blocks.square().sum(), inputs),
                                 torch.autograd.grad(k(*args).square().sum(), inputs)):
            assert torch.allclose(found, wanted, atol=1e-12)


def test_estimator_parameters():
    k = Matern(2.5, bandwidth=2.0)
    assert clone(k).get_params() == {"nu": 2.5, "bandwidth": 2.0}
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(k))(data(5, 2)), k(data(5, 2)))
    assert Laplacian(3.0).get_params() == {"bandwidth": 3.0}
    assert as_kernel("matern32", 2.0).get_params() == {"nu": 1.5, "bandwidth": 2.0}
    assert as_kernel(k) is k
    X = torch.from_numpy(data(30, 4))
    assert torch.equal(k(X, X), k(X))


@pytest.mark.parametrize("name", rfteach.kernels._NAMES)
def test_names(name):
    X = data(5, 2)
    np.testing.assert_array_equal(as_kernel(name, 1.5)(X), FAMILIES[name](1.5)(X))


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda: Gaussian(-1.0), ValueError, "bandwidth must be positive and finite in torch.float64, got -1.0"),
        (lambda: Gaussian(0), ValueError, "bandwidth must be positive"),
        (lambda: Gaussian([1.0, np.nan]), ValueError, "bandwidth must be positive and finite"),
        (lambda: Gaussian("wide"), TypeError, "bandwidth must be a number or one number per input, got 'wide'"),
        (lambda: Gaussian(np.ones((2, 2))), ValueError, "bandwidth must be a number or a 1D array"),
        (lambda: Gaussian([1.0, 2.0])(np.ones((2, 3))), ValueError, "bandwidth has 2 entries.*3 columns"),
        (lambda: Gaussian(1e-30)(np.full((2, 2), 1e300)), ValueError, "X / bandwidth overflows in torch.float64"),
        (lambda: Matern(-1), ValueError, r"nu must be a number in \[0.05, 100\], got -1"),
        (lambda: Matern("2"), TypeError, "nu must be a number"),
        (lambda: Matern().set_params(nu=2000)([[1.0]]), ValueError, "nu must be a number.*got 2000"),
        (lambda: Matern().set_params(nu=-1).frequencies(2, 2), ValueError, "nu must be a number.*got -1"),
        (lambda: Gaussian().set_params(bandwidth=-1)([[1.0]]), ValueError, "bandwidth must be positive"),
        (lambda: Gaussian("2.0"), TypeError, "bandwidth must be a number"),
        (lambda: Gaussian(True), TypeError, "bandwidth must be a number"),
        (lambda: Gaussian(None), TypeError, "bandwidth must be a number"),
        (lambda: Gaussian(1e-50)(np.ones((2, 2), np.float32)), ValueError, "finite in torch.float32, got 1e-50"),
        (lambda: Gaussian(1e38)(np.full((3, 1), 3e38, np.float32)), ValueError, "X / bandwidth overflows"),
        (lambda: Gaussian()(np.ones(3)), ValueError, "X: Expected 2D array"),
        (lambda: Gaussian()([[np.nan]]), ValueError, "X contains NaN"),
        (lambda: Gaussian()([[1.0]], [[np.inf]]), ValueError, "Y contains NaN or infinity"),
        (lambda: Gaussian()([[1.0]], [[1.0, 2.0]]), ValueError, "Y must have a column for each column of X: got 2 for 1"),
        (lambda: Gaussian().frequencies(0, 2), ValueError, "n must be an integer of at least 1, got 0"),
        (lambda: Gaussian().frequencies(2, 1.5), TypeError, "d must be an integer of at least 1, got 1.5"),
        (lambda: Gaussian([1.0, 2.0]).frequencies(2, 3), ValueError, "bandwidth has 2 entries"),
        (lambda: as_kernel("gausian"), ValueError, "kernel='gausian' is unknown .did you mean 'gaussian'"),
        (lambda: as_kernel(3), TypeError, "kernel must be a name or a Kernel, got int"),
        (lambda: as_kernel(Gaussian(), 2.0), ValueError, "bandwidth=2.0 is given beside a kernel"),
        (lambda: as_kernel(Gaussian(), "median"), ValueError, "bandwidth='median' is given beside a kernel"),
        (lambda: as_kernel("gaussian", "median"), ValueError, "got 'median'; rfteach.bandwidth.fit_kernel finds"),
        (lambda: as_kernel("gaussian", "medain"), ValueError, "bandwidth must be a number or one .*'medain'"),
        (lambda: gram_blocks(Gaussian(), [[1.0]], max_bytes=0), ValueError, "max_bytes must be an integer of at least 1, got 0"),
        (lambda: gram_blocks(Gaussian(), [[1.0]], [[1e300]]), ValueError, "Y / bandwidth overflows in torch.float64"),
        (lambda: gram_blocks(Gaussian(), [[1.0], [1e300]]), ValueError, "X / bandwidth overflows in torch.float64"),
        (lambda: gram_blocks(Gaussian([1.0, 2.0]), [[1.0]]), ValueError, "bandwidth has 2 entries"),
    ],
)
def test_bad_input_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # in torch's own forward derivatives
@pytest.mark.parametrize("kernel", [Gaussian, Laplacian, Laplacian1, Cauchy, partial(Matern, 1.5), partial(Matern, 0.8)],
                         ids=["Gaussian", "Laplacian", "Laplacian1", "Cauchy", "Matern(1.5)", "Matern(0.8)"])
def test_functions_of_torch_func(kernel):
    """Beside autograd, with a point that is in X and in Y."""
    X, Y, d, w = (torch.from_numpy(np.random.default_rng(s).normal(size=(5, 3))) for s in range(4))
    Y[0], b = X[0], torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    f = lambda X, Y=Y: (kernel(b)(X, Y) @ w).sin().sum()
    slope = torch.autograd.functional.jacobian(f, X)
    one = lambda x: kernel(b)(x[None], Y)[0]
    torch.testing.assert_close(torch.vmap(one)(X), kernel(b)(X, Y))
    widths = torch.tensor([1.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(torch.vmap(lambda s: kernel(s)(X))(widths), torch.stack([kernel(s)(X) for s in widths]))
    torch.testing.assert_close(torch.func.jvp(f, (X,), (d,))[1], (slope * d).sum())
    torch.testing.assert_close(torch.vmap(torch.func.grad(lambda x: f(x[None])))(X),
                               torch.stack([torch.autograd.functional.jacobian(f, x[None])[0] for x in X]))
    if kernel is Laplacian1:
        return
    H = torch.autograd.functional.hessian(f, X)
    torch.testing.assert_close(torch.func.hessian(f)(X), H)
    torch.testing.assert_close(torch.func.grad(lambda X: (torch.func.grad(f)(X) * d).sum())(X), (H * d).sum((2, 3)))
    x, v = X.clone().requires_grad_(), w.clone().requires_grad_()
    g = lambda w, x: (kernel(b)(x, Y) @ w).sin().sum()
    slope, = torch.autograd.grad(g(v, x), v, create_graph=True)
    wanted, = torch.autograd.grad(slope.square().sum(), x)
    inner = lambda x: torch.func.grad(g)(w, x).square().sum()  # x is of no concern to it
    torch.testing.assert_close(torch.autograd.grad(inner(x), x)[0], wanted)
    torch.testing.assert_close(torch.func.grad(inner)(X), wanted)


@pytest.mark.parametrize("kernel", [Gaussian(2.0), Laplacian1([1.0, 2.0])])
def test_transforms_do_not_hide_what_is_refused(kernel):
    """Each example is looked at where `torch.func` maps over many; it shows one that has no numbers."""
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(4, 3, 2)))
    mapped = torch.func.vmap(lambda T: kernel(T, X[0]))
    torch.testing.assert_close(mapped(X)[2], kernel(X[2], X[0]))
    assert mapped(X[:0]).shape == (0, 3, 3)
    for entry, message in ((np.nan, "X contains NaN"), (1e300, "overflows")):
        wrong = X.clone()
        wrong[2, 1, 0] = entry
        with pytest.raises(ValueError, match=message):
            mapped(wrong)
    with pytest.raises(ValueError, match="bandwidth must be positive"):
        torch.func.vmap(lambda b: Gaussian(b)(X[0]))(torch.tensor([1.0, -1.0]))
