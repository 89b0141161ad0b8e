"""Kernel ridge regression on all rows: against fits without each row, against scikit-learn, and at the edges."""

import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.linalg import null_space
from scipy.stats import multivariate_normal
from sklearn.kernel_ridge import KernelRidge

import rfteach.kernel_ridge
from rfteach.arrays import memory_budget
from rfteach.kernel_ridge import gram_path, gram_solve, gram_times
from rfteach.kernels import Gaussian, Laplacian, Laplacian1, Matern

LAMS = [100.0, 0.5, 1e-3]


def problem(n, d=3, k=2, seed=0, kernel=None):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, (kernel or Laplacian(2.0))(X), rng.normal(size=(n, k)) + 3, rng.uniform(0.1, 3, n)


def fit(K, Y, w, lam, free):
    """Coefficients and constant from the bordered system, by least squares where it is singular."""
    n, ones = len(K), np.ones((len(K), int(free)))
    Z = np.block([[K + lam * np.diag(1 / w), ones], [ones.T, np.zeros((int(free), int(free)))]])
    s = np.linalg.lstsq(Z, np.vstack([Y, np.zeros((len(Z) - n, Y.shape[1]))]), rcond=1e-14)[0]
    return s[:n], s[n:].sum(0)


def refits(K, Y, w, lam, free):
    """What a row misses its target by that took no part; an only row is predicted as zero."""
    left = np.empty_like(Y)
    for i in range(len(K)):
        rest = (np.arange(len(K)) != i) & (w > 0)
        a, b = fit(K[np.ix_(rest, rest)], Y[rest], w[rest], lam, free)
        left[i] = Y[i] - K[i, rest] @ a - b
    return left


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("weighted", ["none", "weights", "with zeros"])
@pytest.mark.parametrize("n", [2, 3, 17])
def test_left_out_is_left_out(n, weighted, free):
    _, K, Y, w = problem(n)
    w = {"none": np.ones(n), "weights": w, "with zeros": w * (np.arange(n) != 1)}[weighted]
    given = None if weighted == "none" else w
    path = gram_path(K, Y, given, LAMS, fit_intercept=free)
    for j, lam in enumerate(LAMS):
        right, kept = refits(K, Y, w, lam, free), w > 0
        a, b = fit(K[np.ix_(kept, kept)], Y[kept], w[kept], lam, free)
        for found in [gram_solve(K, Y, lam, given, fit_intercept=free),
                      gram_solve(K.copy(), Y, lam, given, fit_intercept=free, overwrite=True)]:
            if kept.sum() > 1:
                np.testing.assert_allclose(found.residuals, right, atol=1e-9)
            np.testing.assert_allclose(found.coef[kept], a, atol=1e-9)
            np.testing.assert_allclose(found.intercept, b, atol=1e-9)
            np.testing.assert_allclose(found.residuals, path.loo[:, j], atol=1e-9)
            assert not found.coef[~kept].any()
        np.testing.assert_allclose(path.errors[j], w @ (path.loo[:, j] ** 2).mean(1) / w.sum())
        np.testing.assert_allclose(path.dual(lam)[0][kept], a, atol=1e-9)
        np.testing.assert_allclose(path.dual(lam)[1], b, atol=1e-9)


@pytest.mark.parametrize("free", [True, False])
def test_the_best_penalty_is_among_the_likely_ones(free):
    """The least error, in units of the outputs, of the penalties from a tenth of that of the greatest normal density on."""
    lams, acts = 10.0 ** np.arange(3, -6.5, -0.5), 0
    for seed in range(12):
        _, K, Y, w = problem(12, d=1, seed=seed, kernel=Gaussian(2.0))
        Y = Y * [1.0, 300.0]
        path, root = gram_path(K, Y, w, lams, fit_intercept=free), np.sqrt(w)
        C = null_space(root[None]).T if free else np.eye(12)
        log_p, U = np.zeros(len(lams)), C @ (root[:, None] * Y)
        for j, lam in enumerate(lams):
            M = C @ (root[:, None] * K * root + lam * np.eye(12)) @ C.T
            M = (M + M.T) / 2
            for u in U.T:
                log_p[j] += multivariate_normal(cov=u @ np.linalg.solve(M, u) / len(u) * M).logpdf(u)
        errors = (w[:, None, None] * path.loo**2).sum(0) @ (1 / (U**2).sum(0))
        best = np.where(lams >= 0.0999 * lams[log_p.argmax()], errors, np.inf).argmin()
        assert path.best == best
        acts += best != errors.argmin()
    assert acts or not free


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-10), (np.float32, 2e-4)])
@pytest.mark.parametrize("kernel", [Laplacian(2.0), Gaussian(2.0), Laplacian1(3.0), Gaussian(50.0)], ids=repr)
def test_both_precisions(kernel, dtype, tolerance):
    """A wide kernel too, which is nearly constant; targets far from zero."""
    _, K, Y, w = problem(60, kernel=kernel)
    Y += 20
    for lam in (10.0, 0.1, 1e-2):
        right = gram_path(K, Y, w, [lam]).loo[:, 0]
        K_low = K.astype(dtype)
        for found in (gram_solve(K_low, Y, lam, w).residuals, gram_path(K_low, Y, w, [lam]).loo[:, 0]):
            assert found.dtype == dtype
            np.testing.assert_allclose(found, right, atol=tolerance * 20)
    np.testing.assert_allclose(right, refits(K, Y, w, lam, True), atol=1e-6)


def test_without_residuals_the_same_fit():
    _, K, Y, w = problem(40)
    for kept in (w, np.where(np.arange(40) % 3, w, 0)):
        for lam in (0.3, 0.0):
            whole, part = gram_solve(K, Y, lam, kept), gram_solve(K, Y, lam, kept, left_out=False)
            np.testing.assert_array_equal(part.coef, whole.coef)
            np.testing.assert_array_equal(part.intercept, whole.intercept)
            assert part.residuals is None
            for m in (1, 7, 40, 60):
                last = gram_solve(K, Y, lam, kept, left_out=m)
                np.testing.assert_array_equal(last.coef, whole.coef)
                np.testing.assert_allclose(last.residuals, whole.residuals[-m:], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("weighted", [True, False])
def test_is_scikit_learns(weighted):
    X, K, Y, w = problem(30)
    w = w if weighted else None
    peer = KernelRidge(alpha=0.3, kernel="precomputed").fit(K, Y, w)
    np.testing.assert_allclose(gram_solve(K, Y, 0.3, w, fit_intercept=False).coef, peer.dual_coef_, rtol=1e-9)
    np.testing.assert_allclose(gram_path(K, Y, w, fit_intercept=False).dual(0.3)[0], peer.dual_coef_, rtol=1e-8)


def test_the_sign_of_y_the_order_of_rows_and_shifts():
    _, K, Y, w = problem(25)
    found, turned = gram_solve(K, Y, 0.2, w), gram_solve(K[::-1, ::-1], Y[::-1], 0.2, w[::-1])
    np.testing.assert_allclose(turned.residuals[::-1], found.residuals, atol=1e-12)
    np.testing.assert_allclose(gram_solve(K, -Y, 0.2, w).coef, -found.coef, atol=1e-12)
    u = np.linspace(0, 5, 25)
    for other in (K + 100, K + u[:, None] + u):  # the constant takes it
        np.testing.assert_allclose(gram_solve(other, Y + 7, 0.2, w).residuals, found.residuals, atol=1e-10)
        np.testing.assert_allclose(gram_path(other, Y + 7, w, [0.2]).loo[:, 0], found.residuals, atol=1e-10)


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_an_only_row(lam, free):
    for found in (gram_solve([[2.0]], [3.0], lam, fit_intercept=free).residuals,
                  gram_path([[2.0]], [3.0], None, [lam], fit_intercept=free).loo[:, 0],
                  gram_solve(np.eye(3), [3.0, 0, 0], lam, [1.0, 0, 0], fit_intercept=free).residuals[:1]):
        np.testing.assert_allclose(found, [3.0])  # zero is predicted


@pytest.mark.parametrize("lam", [0.0, 1e-14, 1e-3])
def test_rank_deficient_and_without_penalty(lam):
    """A Gram matrix of three columns: least squares on these columns and a constant."""
    X, _, Y, _ = problem(20)
    right = refits(X @ X.T, Y, np.ones(20), max(lam, 1e-7), True)
    np.testing.assert_allclose(gram_solve(X @ X.T, Y, lam).residuals, right, atol=1e-5)
    np.testing.assert_allclose(gram_path(X @ X.T, Y, None, [lam]).loo[:, 0], right, atol=1e-5)


def test_constant_kernel_and_constant_targets():
    _, K, Y, _ = problem(9)
    mean_of_the_rest = (Y - Y.mean(0)) * 9 / 8
    for lam in (0.0, 1e-15, 0.1):
        np.testing.assert_allclose(gram_solve(np.ones((9, 9)), Y, lam).residuals, mean_of_the_rest, atol=1e-12)
        np.testing.assert_allclose(gram_path(np.ones((9, 9)), Y, None, [lam]).loo[:, 0], mean_of_the_rest, atol=1e-12)
    assert abs(gram_solve(K, np.full(9, 0.1), 0.1).residuals).max() < 1e-14
    assert gram_path(K, np.full(9, 0.1)).errors.max() < 1e-28 and not gram_solve(K, np.zeros(9), 0.1).coef.any()


def test_copies_are_left_out_one_by_one():
    X, K, Y, _ = problem(15)
    twice = np.repeat(np.arange(15), 2)
    found = gram_path(K[np.ix_(twice, twice)], Y[twice])
    assert found.errors[-1] < 1e-8 < found.errors[0] and found.best > len(found.lams) // 2
    np.testing.assert_allclose(gram_solve(K[np.ix_(twice, twice)], Y[twice], 0.5).residuals,
                               refits(K[np.ix_(twice, twice)], Y[twice], np.ones(30), 0.5, True), atol=1e-9)
    whole = gram_solve(K, Y, 0.5, np.full(15, 2.0)).coef
    np.testing.assert_allclose(gram_solve(K[np.ix_(twice, twice)], Y[twice], 0.5).coef[::2], whole / 2, atol=1e-10)


@pytest.mark.parametrize("size, dtype", [(1e-300, np.float64), (1e-150, np.float64), (1e150, np.float64),
                                         (1e300, np.float64), (1e-30, np.float32), (1e30, np.float32)])
def test_units(size, dtype):
    """Of the kernel and the penalty, of the targets, of the weights and the penalty."""
    _, K, Y, w = problem(20)
    right, tolerance = gram_solve(K, Y, 0.1, w), {np.float64: 1e-10, np.float32: 1e-4}[dtype]
    scaled = (K * size).astype(dtype), (Y * size).astype(dtype), w * size
    for found in (gram_solve(scaled[0], scaled[1], 0.1 * size, w).residuals / dtype(size),
                  gram_solve(K.astype(dtype), scaled[1], 0.1, w).residuals / dtype(size),
                  gram_solve(K.astype(dtype), Y, 0.1 * size, scaled[2]).residuals,
                  gram_path(K.astype(dtype), Y, scaled[2], [0.1 * size]).loo[:, 0],
                  gram_path(scaled[0], scaled[1], w, [0.1 * size]).loo[:, 0] / dtype(size)):
        np.testing.assert_allclose(found, right.residuals, atol=tolerance * 10)
    if dtype is np.float32:  # which cannot hold the squares
        error = gram_path(scaled[0], scaled[1], w, [0.1 * size]).errors[0] / size**2
        assert error == pytest.approx(np.average(np.square(right.residuals).mean(1), weights=w), rel=1e-3)
    for lam in (1e-300, 1e300):
        assert np.isfinite(gram_solve(K.astype(dtype), Y, lam).residuals).all()
        assert np.isfinite(gram_path(K.astype(dtype), Y, None, [lam]).loo).all()


def test_the_default_grid_covers_all_fits():
    _, K, Y, _ = problem(50)
    path = gram_path(K, Y)
    assert (np.diff(path.lams) < 0).all()
    np.testing.assert_allclose(path.loo[:, 0], (Y - Y.mean(0)) * 50 / 49, rtol=0.05, atol=0.05)
    assert gram_path(K.astype(np.float32), Y).lams[-1] > path.lams[-1]


@pytest.mark.parametrize("width", [1, 7, 256])
@pytest.mark.parametrize("n", [1, 7, 20, 40])
def test_inverse_of_a_triangle(n, width):
    L = torch.from_numpy(np.linalg.cholesky(problem(n)[1]))
    right = torch.linalg.inv(L)
    for given in (L.clone(), L.T.clone().T):
        found = rfteach.kernel_ridge._inverted(given, width)
        assert found.data_ptr() == given.data_ptr()
        torch.testing.assert_close(found, right)


def test_kinds(device):
    _, K, Y, w = problem(12)
    right = gram_solve(K, Y, 0.1, w)
    T = torch.from_numpy(K).to(device).requires_grad_()
    found = gram_solve(T, torch.from_numpy(Y).to(device), 0.1, torch.from_numpy(w).to(device))
    assert found.coef.device.type == device and not found.coef.requires_grad
    np.testing.assert_allclose(found.coef.cpu(), right.coef, atol=1e-12)
    one = gram_solve(K, list(Y[:, 0]), 0.1, w)
    assert one.coef.shape == one.residuals.shape == (12,) and np.shape(one.intercept) == ()
    np.testing.assert_allclose(one.residuals, right.residuals[:, 0], atol=1e-12)
    path = pickle.loads(pickle.dumps(gram_path(T.detach(), torch.from_numpy(Y).to(device), w)))
    assert isinstance(path.loo, torch.Tensor) and path.loo.shape == (12, len(path.lams), 2)
    assert gram_path(K, Y[:, 0], lams=[1.0, 2.0]).loo.shape == (12, 2)


def test_overwrite_takes_the_memory_of_the_matrix_and_no_other_call_does():
    _, K, Y, w = problem(40)
    before, right = K.copy(), gram_solve(K, Y, 0.1, w)
    gram_path(K, Y, w)
    np.testing.assert_array_equal(K, before)
    K.flags.writeable = False
    np.testing.assert_array_equal(gram_solve(K, Y, 0.1, w, overwrite=True).residuals, right.residuals)
    np.testing.assert_array_equal(K, before)
    frame = pd.DataFrame(before.copy())
    np.testing.assert_array_equal(gram_solve(frame, Y, 0.1, w, overwrite=True).residuals, right.residuals)
    np.testing.assert_array_equal(frame, before)
    for own in (before.copy(), torch.from_numpy(before.copy()), np.asfortranarray(before)):
        np.testing.assert_allclose(gram_solve(own, Y, 0.1, w, overwrite=True).residuals, right.residuals, atol=1e-12)
    assert not np.array_equal(gram_solve(own := before.copy(), Y, 0.1, w, overwrite=True), own)
    assert abs(own - before).max() > 0.1


@pytest.mark.parametrize("budget", [1000, 30000, 2**23])
@pytest.mark.parametrize("kernel", [Laplacian(0.7), Laplacian1(2.0), Matern(1.5)], ids=repr)
def test_products_by_tiles(kernel, budget, device):
    rng = np.random.default_rng(1)
    X, centers, C = rng.normal(size=(70, 3)), rng.normal(size=(31, 3)), rng.normal(size=(31, 2))
    right = kernel(X, centers) @ C
    with memory_budget(budget):
        np.testing.assert_allclose(gram_times(kernel, X, centers, C), right, atol=1e-12)
        np.testing.assert_allclose(gram_times(kernel, X, centers, C[:, 0]), right[:, 0], atol=1e-12)
        T = gram_times(kernel, torch.from_numpy(X).to(device).float(), torch.from_numpy(centers).to(device).float(),
                       torch.from_numpy(C).to(device).float())
    assert T.dtype == torch.float32 and T.device.type == device
    np.testing.assert_allclose(T.cpu(), right, atol=1e-4)


@pytest.mark.parametrize("kernel", [Laplacian, Laplacian1, Gaussian], ids=lambda kernel: kernel.__name__)
def test_products_keep_gradients(kernel):
    X, U, C, sigma = (torch.rand(*shape, dtype=torch.float64) + 0.1 for shape in ((5, 2), (4, 2), (4, 3), (2,)))
    f = lambda X, U, C, sigma: gram_times(kernel(sigma), X, U, C)
    right, every = f(X, U, C, sigma), tuple(T.requires_grad_() for T in (X, U, C, sigma))
    assert torch.autograd.gradcheck(f, every)
    torch.testing.assert_close(f(*every), right)
    assert gram_times(kernel(sigma), X.detach(), U.detach(), C.detach()[:, 0]).requires_grad
    with torch.no_grad():
        assert torch.equal(f(*every), right) and torch.equal(gram_times(kernel(sigma), X, X, X), f(X, X.clone(), X, sigma))


@pytest.mark.parametrize("call, error, words", [
    (lambda K, y: gram_solve(K[:, :3], y, 1.0), ValueError, r"K must be square, got shape \(5, 3\)"),
    (lambda K, y: gram_solve(K, y[:4], 1.0), ValueError, "K and Y and w must have as many rows, got 5 and 4 and 5"),
    (lambda K, y: gram_path(K, y, [1.0]), ValueError, "K and Y and w must have as many rows"),
    (lambda K, y: gram_path(K, y, -np.ones(5)), ValueError, "w must be at least zero, and not zero everywhere"),
    (lambda K, y: gram_path(K, y, np.zeros(5)), ValueError, "w must be at least zero, and not zero everywhere"),
    (lambda K, y: gram_path(np.triu(K), y), ValueError, "K must be symmetric, but its first row and its first column"),
    (lambda K, y: gram_path(K * np.nan, y), ValueError, "K contains NaN"),
    (lambda K, y: gram_path(K, y + np.inf), ValueError, "Y contains NaN or infinity"),
    (lambda K, y: gram_path(K, y, lams=[-1.0]), ValueError, "lams must not be negative, got -1"),
    (lambda K, y: gram_path(K, y).dual(-1), ValueError, r"lam must be a number in \[0, inf\), got -1"),
    (lambda K, y: gram_solve(K, y, "1"), TypeError, "lam must be a number"),
    (lambda K, y: gram_solve(K, y, 1.0, left_out=0), ValueError, "left_out must be"),
    (lambda K, y: gram_solve(K, y, 1.0, fit_intercept=1), TypeError, "fit_intercept must be True or False, got 1"),
    (lambda K, y: gram_solve(np.ones((5, 5)), y, 0.0, overwrite=True), ValueError, "not positive definite in torch.float64"),
    (lambda K, y: gram_solve(K * 1e-300, y * 1e200, 0.0), ValueError, "the coefficients overflow"),
    (lambda K, y: gram_path(K.astype("f4"), y * 1e39), ValueError, r"Y has values up to 4e\+39, which overflow in torch.float32"),
    (lambda K, y: gram_times(Gaussian(), K, K[:, :2], y), ValueError, "centers must have a column for each column of X"),
    (lambda K, y: gram_times(Gaussian(), K, K, y[:2]), ValueError, "centers and C must have as many rows, got 5 and 2"),
    (lambda K, y: gram_times(3, K, K, y), TypeError, "kernel must be a name or a Kernel, got int"),
])
def test_bad_input_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call(Laplacian()(np.arange(5.0)[:, None]), np.arange(5.0))


def test_coefficients_add_up_to_zero_far_below_the_largest_eigenvalue():
    """Else predictions are off by a constant, which no residual of a left-out row shows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y, k = X[:, 0] + X[:, 1] ** 2, Matern(1.5, 3000.0)
    path = gram_path(k(X), y)
    for lam in (1e-5, 1e-7, 1e-9):
        a, b = path.dual(lam)
        assert abs(a.sum()) < 1e-14 * abs(a).sum()
        assert np.abs(k(X) @ a + b + lam * a - y).max() < 1e-4


@pytest.mark.parametrize("kernel", [Matern(2.5, 100.0), Matern(1.5, 1000.0)], ids=repr)
def test_left_out_far_below_the_largest_eigenvalue(kernel):
    """A wide smooth kernel is nearly constant: eigenvectors that hold a little of the constant spoil what is left."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(300, 20)), rng.uniform(0.2, 2, 300)
    Y, K, lams = X[:, 0] + rng.normal(size=300), kernel(X), [1e-6, 1e-9, 1e-11]
    path = gram_path(K, Y, w, lams)
    for found, lam in zip(path.loo.T, lams):
        right = gram_solve(K, Y, lam, w).residuals
        np.testing.assert_allclose(found, right, atol=1e-6 * abs(right).max())


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_system_holds_to_the_rounding_of_its_own_products(fit_intercept):
    """Coefficients of 1e5 for values of one: the median of nine draws is half a unit of rounding, of which the last bits decide
    for each draw whether it is 0.2 or 1; with an intercept and without the step of refinement it is twenty."""
    units = []
    for seed in range(9):
        rng = np.random.default_rng(seed)
        X, w, lam = rng.normal(size=(800, 2)), rng.uniform(0.5, 1.5, 800), 1e-9
        K, y = Gaussian(1.0)(X), np.sin(3 * X[:, 0]) + rng.normal(size=800)
        found = gram_solve(K, y, lam, w, fit_intercept=fit_intercept)
        off = y - K @ found.coef - found.intercept - lam / w * found.coef
        units.append(abs(off).max() / (np.finfo(float).eps * (K @ abs(found.coef)).max()))
    assert np.median(units) < 0.8
