"""Kernel ridge regression on many rows: conjugate gradients against the factorisation."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import check_estimator

import rfteach.conjugate
from rfteach.arrays import memory_budget
from rfteach.bandwidth import median_bandwidth
from rfteach.conjugate import KernelRidgeRegressor, gram_cg
from rfteach.kernel_ridge import gram_path, gram_solve
from rfteach.kernels import Gaussian, Laplacian, Laplacian1, Matern
from rfteach.stable import PowerExponential

KERNELS = [Laplacian(2.0), Gaussian(1.0), Gaussian(30.0), Matern(1.5, [0.5, 1.0, 2.0]), Laplacian1(3.0),
           PowerExponential()]


def problem(n=200, seed=0):
    """X (n, 3) with copies and near copies, Y (n, 3) with a constant column, weights (n,), one of them zero."""
    rng = np.random.default_rng(seed)
    X, w = rng.normal(size=(n, 3)) + 5, rng.uniform(0.2, 3, n)
    X[n // 2 : n // 2 + 5], X[-5:], w[3] = X[:5], X[:5] + 1e-9, 0
    Y = np.stack([np.sin(X[:, 0]), X[:, 1] ** 2 + 30, np.full(n, 0.1)], 1)
    Y[:, :2] += 0.1 * rng.normal(size=(n, 2))
    return X, Y, w


def off(kernel, X, found, right, Y, w, fit_intercept=True):
    """Error of the fit at the rows, in standard deviations of the targets, (k,)."""
    apart = kernel(X) @ (found.coef - right.coef) + found.intercept - right.intercept
    return np.sqrt(w @ apart**2 / (w @ (Y - fit_intercept * (w @ Y) / w.sum()) ** 2))


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_is_the_fit_of_the_factorisation(kernel, fit_intercept):
    X, Y, w = problem()
    Y = Y[:, :2]
    for lam in (1.0, 0.05):
        right = gram_solve(kernel(X), Y, lam, w, fit_intercept=fit_intercept)
        for way in ({}, {"memory": 0}, {"n_landmarks": 0}, {"n_landmarks": 40}, {"n_landmarks": 40, "memory": 0}):
            found = gram_cg(kernel, X, Y, lam, w, fit_intercept=fit_intercept, **way)
            assert found.residual <= 1e-3 and (off(kernel, X, found, right, Y, w, fit_intercept) < 1.01e-3).all(), way
            exact = gram_cg(kernel, X, Y, lam, w, fit_intercept=fit_intercept, tol=1e-9, max_iter=500, **way)
            assert exact.residual <= 1e-9
            np.testing.assert_allclose(exact.coef, right.coef, atol=1e-6 * abs(right.coef).max())
            np.testing.assert_allclose(exact.intercept, right.intercept, atol=1e-5)
            assert not exact.coef[3].any() and not found.coef[3].any()
            if fit_intercept:
                assert (abs(found.coef.sum(0)) < 1e-12 * abs(found.coef).sum(0)).all()


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("n_landmarks", [0, 40])
def test_columns_may_have_weights_of_their_own(n_landmarks, fit_intercept):
    """Each column is the fit with its weights alone, rows of weight zero left out of it."""
    X, Y, w = problem()
    W = np.stack([w, w * (np.arange(len(w)) < 150), w[::-1]], 1)
    form = {"fit_intercept": fit_intercept, "n_landmarks": n_landmarks, "tol": 1e-9, "max_iter": 500}
    found = gram_cg(Laplacian(2.0), X, Y[:, [0, 0, 1]], 0.1, W, **form)
    for j, y in enumerate((Y[:, 0], Y[:, 0], Y[:, 1])):
        right = gram_solve(Laplacian(2.0)(X), y, 0.1, W[:, j], fit_intercept=fit_intercept)
        np.testing.assert_allclose(found.coef[:, j], right.coef, atol=1e-6 * abs(right.coef).max())
        np.testing.assert_allclose(found.intercept[j], right.intercept, atol=1e-5)
    assert not found.coef[150:, 1].any()
    far = np.where(W > 0, Y[:, [0, 0, 1]], -1e30)  # targets without a weight are not looked at
    np.testing.assert_array_equal(gram_cg(Laplacian(2.0), X, far, 0.1, W, **form).coef, found.coef)
    with pytest.raises(ValueError, match=r"a column for each of Y, got shapes \(200, 3\) and \(200, 2\)"):
        gram_cg("laplacian", X, Y[:, :2], 0.1, W)
    with pytest.raises(ValueError, match="not zero everywhere"):
        gram_cg("laplacian", X, Y, 0.1, W * [1, 0, 1])


@pytest.mark.parametrize("way", [{}, {"memory": 0}, {"n_landmarks": 5}, {"n_landmarks": 0}], ids=str)
def test_a_constant_column_has_coefficients_of_zero(way):
    X, Y, w = problem()
    found = gram_cg(Laplacian(), X, Y, 0.1, w, **way)
    assert not found.coef[:, 2].any() and np.isclose(found.intercept[2], 0.1) and np.isfinite(found.coef).all()
    only = gram_cg(Laplacian(), X, np.full(200, 0.1), 0.1, w, **way)
    assert not only.coef.any() and only.n_iter == 0 and only.residual == 0 and np.isclose(only.intercept, 0.1)
    zero = gram_cg(Laplacian(), X, np.zeros(200), 0.1, fit_intercept=False, **way)
    assert not zero.coef.any() and zero.intercept == 0


def test_all_rows_as_landmarks_leave_nothing_and_more_of_them_less():
    X, Y, w = problem(300)
    counts = [gram_cg(Matern(1.5), X, Y, 0.1, w, n_landmarks=m, tol=1e-8).n_iter for m in (0, 20, 100, 1000)]
    assert counts == sorted(counts, reverse=True) and counts[-1] <= 2 < counts[-2] < counts[0] / 2


def test_columns_do_not_disturb_each_other():
    X, Y, w = problem()
    both = gram_cg(Laplacian(), X, Y, 0.1, w, n_landmarks=30, tol=1e-9)
    for j in range(3):
        alone = gram_cg(Laplacian(), X, Y[:, j], 0.1, w, n_landmarks=30, tol=1e-9)
        np.testing.assert_allclose(alone.coef, both.coef[:, j], atol=1e-7)
        assert alone.coef.shape == (200,) and np.shape(alone.intercept) == ()
        assert alone.n_iter <= both.n_iter + 1 and alone.residual <= 1e-9


@pytest.mark.parametrize("sizes", [(1e-200, 1.0, 1e200), (1e200, 1.0, 1.0)])
def test_each_column_has_its_unit(sizes):
    """Targets of very different scales in one call: each is fitted as if it were alone."""
    X, Y, w = problem()
    y = Y[:, 0]
    right = gram_cg(Laplacian(), X, y, 0.1, w, tol=1e-9)
    found = gram_cg(Laplacian(), X, y[:, None] * np.array(sizes), 0.1, w, tol=1e-9)
    assert found.residual <= 1e-9
    np.testing.assert_allclose(found.coef / sizes, np.tile(right.coef[:, None], 3), atol=1e-9)
    np.testing.assert_allclose(found.intercept / sizes, np.full(3, right.intercept), atol=1e-9)


def test_the_order_of_rows_shifts_and_units():
    X, Y, w = problem()
    Y, order = Y[:, :2], np.random.default_rng(1).permutation(200)
    right = gram_cg(Laplacian(), X, Y, 0.1, w, n_landmarks=30, tol=1e-9)
    turned = gram_cg(Laplacian(), X[order], Y[order], 0.1, w[order], n_landmarks=30, tol=1e-9)
    assert abs(turned.n_iter - right.n_iter) <= 1  # the goal may be met by a hair
    np.testing.assert_allclose(turned.coef, right.coef[order], atol=1e-7)
    np.testing.assert_allclose(gram_cg(Laplacian(), X, -Y, 0.1, w, n_landmarks=30, tol=1e-9).coef, -right.coef, atol=1e-7)
    moved = gram_cg(Laplacian(), X + 1e6, Y + 7, 0.1, w, tol=1e-9)
    np.testing.assert_allclose(moved.coef, right.coef, atol=1e-5)
    np.testing.assert_allclose(moved.intercept, right.intercept + 7, atol=1e-5)
    for size in (1e-200, 1e200):
        for found, unit in ((gram_cg(Laplacian(size), X * size, Y, 0.1, w), 1),
                            (gram_cg(Laplacian(), X, Y * size, 0.1, w), size),
                            (gram_cg(Laplacian(), X, Y, 0.1 * size, w * size), 1)):
            assert (off(Laplacian(), X, _times(found, 1 / unit), right, Y, w) < 2e-3).all()


def _times(found, factor):
    return replace(found, coef=found.coef * factor, intercept=found.intercept * factor)


def test_the_error_is_within_its_bounds_for_each_tolerance():
    """(3.44) and (3.45)."""
    X, Y, w = problem()
    y, kernel, new = Y[:, 1], Laplacian(), np.random.default_rng(2).normal(size=(500, 3)) + 5
    right, p = gram_solve(kernel(X), y, 0.1, w), w / w.sum()
    s = np.sqrt(p @ (y - p @ y) ** 2)
    width = np.sqrt(1 - 2 * kernel(new, X) @ p + p @ kernel(X) @ p)
    at_rows = []
    for tol in (0.3, 0.1, 1e-2, 1e-3, 1e-5):
        found = gram_cg(kernel, X, y, 0.1, w, n_landmarks=0, tol=tol)
        apart, epsilon = found.coef - right.coef, found.residual
        at_rows.append(off(kernel, X, found, right, y, w))
        assert epsilon <= tol and at_rows[-1] <= epsilon + 1e-6
        norm = np.sqrt(apart @ kernel(X) @ apart)
        assert norm <= (epsilon + 1e-5) * s / 2 * np.sqrt(w.sum() / 0.1)
        assert (abs(kernel(new, X) @ apart + found.intercept - right.intercept) <= width * norm + 1e-6).all()
    assert at_rows == sorted(at_rows, reverse=True)


def test_the_bound_of_the_error_does_not_depend_on_the_unit_of_the_weights():
    X, Y, w = problem()
    bounds = [gram_cg(Laplacian(), X, Y[:, 0], 0.1 * u, u * w, n_landmarks=0).error_bound for u in (1.0, 100.0)]
    assert bounds[1] == pytest.approx(bounds[0], rel=0.01)


def test_a_warning_names_tol_and_max_iter_and_the_best_iterate_comes_back():
    X, Y, w = problem()
    with pytest.warns(ConvergenceWarning, match=r"after 3 steps \(max_iter=3\).* above tol=0.001"):
        found = gram_cg(Laplacian(), X, Y, 0.01, w, n_landmarks=0, max_iter=3)
    assert found.n_iter == 3 and 1e-3 < found.residual < 1 and np.isfinite(found.coef).all()
    with pytest.warns(ConvergenceWarning):
        one = gram_cg(Laplacian(), X, Y, 0.01, w, n_landmarks=0, max_iter=1)
    assert one.residual > found.residual


def test_max_iter_of_the_estimator_ends_its_steps(monkeypatch):
    monkeypatch.setattr(rfteach.conjugate, "_ROWS", 50)
    X, Y, w = problem()
    model = KernelRidgeRegressor(Laplacian(), alpha=0.01, n_landmarks=0, max_iter=3)
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        assert model.fit(X, Y, w).n_iter_ == 3


def test_where_rounding_ends_it():
    X, Y, w = problem()
    for lam in (1e-14, 1e-100):
        with pytest.warns(ConvergenceWarning, match="rounding|at this rate"):
            found = gram_cg(Gaussian(3.0), X, Y, lam, w)
        assert np.isfinite(found.coef).all() and found.residual <= 1 + 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kernel in (Laplacian(1e6), Laplacian(1e-6)):
            assert gram_cg(kernel, X, Y, 1e-3, w, tol=1e-6).residual <= 1e-6
            assert np.isfinite(gram_cg(kernel, X, Y, 1e8).coef).all()


@pytest.mark.parametrize("budget", [1000, 30_000])
def test_small_tiles(budget):
    X, Y, w = problem(120)
    right = gram_cg(Laplacian(), X, Y, 0.1, w, n_landmarks=20, tol=1e-10)
    with memory_budget(budget):
        found = gram_cg(Laplacian(), X, Y, 0.1, w, n_landmarks=20, tol=1e-10, memory=0)
    np.testing.assert_allclose(found.coef, right.coef, atol=1e-7)


def test_the_matrix_is_made_once_and_only_where_it_fits(monkeypatch):
    X, Y, _ = problem(150)
    made = []
    gram = Laplacian.gram

    def counted(self, A, B):
        made.append((len(A), len(B), A.dtype))
        return gram(self, A, B)

    monkeypatch.setattr(Laplacian, "gram", counted)
    monkeypatch.setattr(Gaussian, "gram", counted)
    for memory, tol, expected in ((4 * 150**2, 1e-3, [torch.float32]), (4 * 150**2 - 1, 1e-3, []),
                                  (4 * 150**2, 1e-9, [torch.float32])):
        made.clear()
        gram_cg(Laplacian(), X, Y, 0.1, n_landmarks=20, memory=memory, tol=tol)
        assert [dtype for rows, cols, dtype in made if rows == cols == 150] == expected
    for memory, expected in ((8 * 150**2, [torch.float32, torch.float64]), (8 * 150**2 - 1, [torch.float32])):
        made.clear()  # a penalty below what float32 can do
        assert gram_cg(Gaussian(30.0), X, Y[:, 0], 1e-6, n_landmarks=20, memory=memory, tol=1e-6).residual <= 1e-6
        assert [dtype for rows, cols, dtype in made if rows == cols == 150] == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", [Laplacian(2.0), Matern(1.5, 2.0), Gaussian(10.0)], ids=repr)
def test_the_residual_and_its_bounds_are_true(kernel, dtype):
    """(3.44) to (3.46) against the factorisation in float64, down to penalties where products in float32 are no longer enough."""
    X, Y, w = problem(300)
    X, y, new = X.astype(dtype), Y[:, 1], np.random.default_rng(2).normal(size=(200, 3)) + 5
    K, p = kernel(X.astype(float)), w / w.sum()
    width = np.sqrt(1 - 2 * kernel(new, X.astype(float)) @ p + p @ K @ p)
    for lam in (1.0, 1e-2, 1e-4, 1e-6):
        right = gram_solve(K, y, lam, w, left_out=False)
        for tol, m in ((1e-2, 20), (1e-6, 20), (1e-6, 150)):
            found = gram_cg(kernel, X, y, lam, w, tol=tol, n_landmarks=m, max_iter=3000)
            seen = w > 0
            shift = y - K @ found.coef - found.intercept - np.divide(lam * found.coef, w, where=seen, out=np.zeros(300))
            relative = np.sqrt(p @ shift**2 / (p @ (y - p @ y) ** 2))
            assert found.residual <= tol and relative <= 1.02 * found.residual + 2e-7 * (dtype == np.float32), (lam, tol, m)
            apart, constant = found.coef - right.coef, found.intercept - right.intercept
            slack = 1e-6 * np.std(y) if lam > 1e-5 and dtype == np.float64 else 1e-4 * np.std(y)
            assert np.sqrt(p @ (K @ apart + constant) ** 2) <= found.error_bound + slack
            norm = np.sqrt(max(0, apart @ K @ apart))
            assert norm <= found.norm_bound * 1.01 + slack / lam**0.5
            assert found.norm_bound <= found.error_bound / 2 * np.sqrt(w.sum() / lam) * (1 + 1e-9)
            assert (abs(kernel(new, X.astype(float)) @ apart + constant) <= width * found.norm_bound + 2 * slack).all()


def test_the_norm_is_bounded_nearer_with_landmarks_and_one_weight_for_all():
    X, Y, w = problem(300)
    half = lambda found: found.error_bound / 2 * np.sqrt(w.sum() / 1e-3)
    with pytest.warns(ConvergenceWarning):
        found = gram_cg(Laplacian(2.0), X, Y[:, 0], 1e-3, w, n_landmarks=20, max_iter=3)
    assert 0 < found.norm_bound < 0.999 * half(found)
    with pytest.warns(ConvergenceWarning):
        without = gram_cg(Laplacian(2.0), X, Y[:, 0], 1e-3, w, n_landmarks=0, max_iter=3)
    assert np.isclose(without.norm_bound, half(without))
    W = np.stack([w, w[::-1]], 1)
    with pytest.warns(ConvergenceWarning):
        several = gram_cg(Laplacian(2.0), X, Y[:, :2], 1e-3, W, n_landmarks=20, max_iter=3)
    np.testing.assert_allclose(several.norm_bound, half(several))


def test_history_and_what_is_said_of_too_few_landmarks():
    X, Y, w = problem(300)
    found = gram_cg(Laplacian(2.0), X, Y[:, 0], 1e-2, w, n_landmarks=100, tol=1e-6)
    assert len(found.history) == found.n_iter and found.history[-1] < 1e-3 * found.history[0]
    with pytest.warns(ConvergenceWarning, match=r"it takes about \d+ more: raise n_landmarks \(now 5\)") as caught:
        short = gram_cg(Laplacian(2.0), X, Y[:, 0], 1e-2, w, n_landmarks=5, tol=1e-6, max_iter=40)
    more = int(str(caught[0].message).split("about ")[1].split()[0])
    needed = gram_cg(Laplacian(2.0), X, Y[:, 0], 1e-2, w, n_landmarks=5, tol=1e-6, max_iter=5000).n_iter - short.n_iter
    assert needed / 3 < more < 3 * needed


def test_kinds(device):
    X, Y, w = problem(80)
    right = gram_cg(Laplacian(), X, Y, 0.1, w)
    on = lambda A: torch.from_numpy(A).to(device)
    for way in ({}, {"memory": 0}):
        found = gram_cg(Laplacian(), on(X).requires_grad_(), on(Y), 0.1, on(w), **way)
        assert found.coef.device.type == found.intercept.device.type == device and not found.coef.requires_grad
        assert found.coef.dtype == torch.float64 and isinstance(found.n_iter, int) and isinstance(found.residual, float)
        np.testing.assert_allclose(found.coef.cpu(), right.coef, atol=1e-5)
        single = gram_cg(Laplacian(), on(X).float(), on(Y).float(), 0.1, on(w), tol=1e-6, **way)
        assert single.coef.dtype == torch.float32
    frame = gram_cg("laplacian", pd.DataFrame(X), Y[:, 0].tolist(), 0.1, w.tolist())
    np.testing.assert_allclose(frame.coef, right.coef[:, 0], atol=1e-5)
    assert isinstance(frame.coef, np.ndarray) and gram_cg("laplacian", X, on(Y).cpu(), 0.1).coef.shape == (80, 3)


def test_an_only_row_and_what_came_in_stays():
    found = gram_cg(Laplacian(), [[2.0]], [3.0], 1.0)
    assert found.coef == [0] and found.intercept == 3 and found.n_iter == 0
    np.testing.assert_allclose(gram_cg(Laplacian(), [[2.0]], [3.0], 2.0, fit_intercept=False, tol=1e-6).coef, [1.0])
    X, Y, w = problem()
    kernel, before = Laplacian(np.array([1.0, 2.0, 3.0])), [A.copy() for A in (X, Y, w)]
    gram_cg(kernel, X, Y, 0.1, w)
    assert all(map(np.array_equal, (X, Y, w), before)) and list(kernel.bandwidth) == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("call, error, words", [
    (lambda X, y: gram_cg("gaussian", X, y, 0.0), ValueError, r"lam must be a number in \(0, inf\), got 0"),
    (lambda X, y: gram_cg("gaussian", X, y, 1e-308), ValueError, "lam must not be so small that w / lam overflows, got 1e-308"),
    (lambda X, y: gram_cg("gaussian", X, y, 1e-308, n_landmarks=0), ValueError, "lam must not be so small"),
    (lambda X, y: gram_cg("gaussian", X, y, "1"), TypeError, "lam must be a number"),
    (lambda X, y: gram_cg("gaussian", X, y[:4], 1.0), ValueError, "X and Y and w must have as many rows, got 5 and 4 and 5"),
    (lambda X, y: gram_cg("gaussian", X, y, 1.0, y[:3]), ValueError, "X and Y and w must have as many rows"),
    (lambda X, y: gram_cg("gaussian", X, y, 1.0, -np.ones(5)), ValueError, "w must be at least zero, and not zero everywhere"),
    (lambda X, y: gram_cg("gaussian", X, y, 1.0, np.zeros(5)), ValueError, "w must be at least zero, and not zero everywhere"),
    (lambda X, y: gram_cg("gaussian", X * np.nan, y, 1.0), ValueError, "X contains NaN"),
    (lambda X, y: gram_cg("gaussian", X, y + np.inf, 1.0), ValueError, "Y contains NaN or infinity"),
    (lambda X, y: gram_cg("gaussian", X, y, 1.0, tol=0), ValueError, "tol must be a number"),
    (lambda X, y: gram_cg("gaussian", X, y, 1.0, max_iter=0), ValueError, "max_iter must be an integer of at least 1"),
    (lambda X, y: gram_cg("gaussian", X, y, 1.0, n_landmarks=1.5), TypeError, "n_landmarks must be an integer"),
    (lambda X, y: gram_cg("gaussian", X, y, 1.0, memory=-1), ValueError, "memory must be a number"),
    (lambda X, y: gram_cg("gaussian", X, y, 1.0, fit_intercept=1), TypeError, "fit_intercept must be True or False, got 1"),
    (lambda X, y: gram_cg(Gaussian([1.0, 2.0]), X, y, 1.0), ValueError, "bandwidth has 2 entries"),
    (lambda X, y: gram_cg(3, X, y, 1.0), TypeError, "kernel must be a name or a Kernel, got int"),
])
def test_bad_input_is_refused_by_name(call, error, words):
    with pytest.raises(error, match=words):
        call(np.arange(5.0)[:, None], np.arange(5.0))


# ---- the estimator
def test_errors_of_the_penalties_are_those_of_fits_without_each_observation():
    """One by one, with weights, two outputs in their own units, and a row that stands twice, of which both go; none for a number."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(25, 2)), rng.uniform(0.5, 2, 25)
    X[7] = X[3]
    Y = np.stack([np.sin(X[:, 0]), 100 * X[:, 1]], 1) + rng.normal(size=(25, 2))
    model = KernelRidgeRegressor(Laplacian(1.0)).fit(X, Y, w)
    assert model.alphas_.shape == model.cv_errors_.shape and model.alpha_ in model.alphas_
    for j in (0, len(model.alphas_) // 3, len(model.alphas_) // 2):  # below 1e-10 rounding decides beside a copy
        squares = np.empty_like(Y)
        for i in range(25):
            others = (X != X[i]).any(1)
            fit = KernelRidgeRegressor(Laplacian(1.0), alpha=model.alphas_[j]).fit(X[others], Y[others], w[others])
            squares[i] = (fit.predict(X[i : i + 1])[0] - Y[i]) ** 2
        assert model.cv_errors_[j] == pytest.approx((w @ squares / w.sum()).mean(), rel=1e-6)
    Y[:, 1] = 5  # does not vary, and is fitted without an intercept
    model.set_params(fit_intercept=False).fit(X, Y, w)
    fit = KernelRidgeRegressor(Laplacian(1.0), alpha=model.alpha_, fit_intercept=False).fit(X[:-1], Y[:-1], w[:-1])
    place = model.left_out_.rows.tolist().index(24)
    np.testing.assert_allclose(model.left_out_.residuals[place], Y[-1] - fit.predict(X[-1:])[0], rtol=1e-6)
    model.set_params(alpha=1).fit(X, Y)
    assert isinstance(model.alpha_, float) and not hasattr(model, "cv_errors_") and not hasattr(model, "alphas_")


@pytest.mark.parametrize("model", [KernelRidgeRegressor(), KernelRidgeRegressor("laplacian", alpha=0.1)], ids=repr)
def test_contract(model):
    check_estimator(model)


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-6), (np.float32, 1e-4)])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("few", [2000, 50])
def test_the_estimator_is_the_fit_of_the_factorisation(few, fit_intercept, dtype, tolerance, monkeypatch):
    """By one factorisation and by conjugate gradients: two outputs, weights, one of them zero, and copies of rows."""
    monkeypatch.setattr(rfteach.conjugate, "_ROWS", few)
    X, Y, w = problem()
    X, Y = X.astype(dtype), Y[:, :2].astype(dtype)
    kernel, (new, _, _) = Laplacian(2.0), problem(30, seed=1)
    right = gram_solve(kernel(X.astype(float)), Y.astype(float), 0.1, w, fit_intercept=fit_intercept)
    model = KernelRidgeRegressor(kernel, alpha=0.1, fit_intercept=fit_intercept, n_landmarks=40).fit(X, Y, w)
    assert model.dual_coef_.shape == (200, 2) and not model.dual_coef_[3].any() and model.alpha_ == 0.1
    assert (model.n_iter_ == 1) == (few == 2000)
    values = kernel(new, X.astype(float)) @ right.coef + right.intercept
    found = model.predict(new.astype(dtype))
    assert found.dtype == dtype and found.shape == (30, 2)
    size = Y.std(0) if fit_intercept else np.sqrt(np.mean(Y**2, 0))
    assert (abs(found - values) < 5 * tolerance * size).all()
    p = w / w.sum()
    apart = kernel(X.astype(float)) @ (model.dual_coef_ - right.coef) + model.intercept_ - right.intercept
    bound = model.error_bound_ if few == 50 else model.error_bound_ + 1e-10
    assert (np.sqrt(p @ apart**2) <= bound * (1 + 1e-6) + 1e-12).all() and (model.error_bound_ <= 2e-6 * size).all()
    one = KernelRidgeRegressor(kernel, alpha=0.1, fit_intercept=fit_intercept, n_landmarks=40).fit(X, Y[:, 0], w)
    assert one.dual_coef_.shape == (200,) and isinstance(one.intercept_, float) and isinstance(one.error_bound_, float)
    np.testing.assert_allclose(one.predict(new), found[:, 0], atol=10 * tolerance)


def test_columns_without_some_rows_take_no_more_steps():
    """Each set of rows has its preconditioner, so that a small penalty does no harm."""
    X, Y, _ = problem()
    w = np.c_[np.ones(200), np.arange(200) < 150]
    ways = dict(lam=1e-3, n_landmarks=150, tol=1e-8)
    both = gram_cg(Matern(1.5, 2.0), X, Y[:, :2], w=w, **ways)
    alone = [gram_cg(Matern(1.5, 2.0), X[w[:, j] > 0], Y[w[:, j] > 0, j], **ways) for j in (0, 1)]
    assert both.n_iter <= 1.5 * max(one.n_iter for one in alone) + 2
    for j, one in enumerate(alone):
        values = Matern(1.5, 2.0)(X) @ both.coef[:, j] + both.intercept[j]
        np.testing.assert_allclose(values, Matern(1.5, 2.0)(X, X[w[:, j] > 0]) @ one.coef + one.intercept, atol=1e-5)


@pytest.mark.parametrize("few", [2000, 50])
def test_a_weight_is_a_number_of_copies(few, monkeypatch):
    monkeypatch.setattr(rfteach.conjugate, "_ROWS", few)
    X, Y, _ = problem()
    counts = np.random.default_rng(0).integers(0, 3, 200)
    weighted = KernelRidgeRegressor("matern32").fit(X, Y[:, 0], counts)
    repeated = KernelRidgeRegressor("matern32").fit(X.repeat(counts, 0), Y[:, 0].repeat(counts))
    assert np.isclose(weighted.alpha_, repeated.alpha_)
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-5)


def test_the_penalty_is_that_of_least_leave_one_out_error():
    X, Y, _ = problem()
    X, y = X[:195], Y[:195, 0]
    X[100:105] += 0.5  # no copies
    model = KernelRidgeRegressor(Laplacian(2.0)).fit(X, y)
    path = gram_path(Laplacian(2.0)(X), y / y.std())
    assert np.isclose(model.alpha_, path.lams[path.best])
    order = np.random.default_rng(0).permutation(195)
    assert np.isclose(KernelRidgeRegressor(Laplacian(2.0)).fit(X[order], y[order]).alpha_, model.alpha_)
    both = KernelRidgeRegressor(Laplacian(2.0)).fit(X, np.stack([y, 1e6 * y], 1))
    assert np.isclose(both.alpha_, model.alpha_)
    assert median_bandwidth(X) == pytest.approx(KernelRidgeRegressor("laplacian", alpha=1.0).fit(X, y).kernel_.bandwidth)


def test_certify_is_the_pass_in_float64(monkeypatch):
    """Without it there is none, and the residual of the float32 matrix is below the tolerance."""
    X, Y, w = problem()
    made, products = [], rfteach.conjugate._products
    monkeypatch.setattr(rfteach.conjugate, "_products", lambda k, X, *rest: made.append(X.dtype) or products(k, X, *rest))
    for certify, expected in ((True, [torch.float32, torch.float64]), (False, [torch.float32])):
        made.clear()
        found = gram_cg(Laplacian(2.0), X, Y[:, :2], 0.1, w, n_landmarks=20, certify=certify)
        right = gram_solve(Laplacian(2.0)(X), Y[:, :2], 0.1, w)
        assert made == expected and found.residual <= 1e-3
        assert (off(Laplacian(2.0), X, found, right, Y[:, :2], w) < 1.01e-3).all()


def test_verbose(capsys):
    X, Y, _ = problem()
    gram_cg(Laplacian(), X, Y[:, 0], 0.1, n_landmarks=20, verbose=True)
    said = capsys.readouterr().err
    assert "conjugate gradients" in said and "residual=" in said
    gram_cg(Laplacian(), X, Y[:, 0], 0.1, n_landmarks=20)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("bad, error, words", [
    (dict(alpha=0), ValueError, "alpha must be"), (dict(alpha="cv"), ValueError, "alpha must be"),
    (dict(tol=1), ValueError, "tol must be"), (dict(n_landmarks=-1), ValueError, "n_landmarks must be"),
    (dict(max_iter=0), ValueError, "max_iter must be"), (dict(memory=-1), ValueError, "memory must be"),
    (dict(fit_intercept=1), TypeError, "fit_intercept must be"), (dict(verbose=1), TypeError, "verbose must be"),
    (dict(kernel="no"), ValueError, "no"), (dict(bandwidth="no"), ValueError, "bandwidth"),
])
def test_bad_parameters_of_the_estimator(bad, error, words):
    with pytest.raises(error, match=words):
        KernelRidgeRegressor(**bad).fit(np.arange(5.0)[:, None], np.arange(5.0))


def test_rows_are_copied():
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = KernelRidgeRegressor().fit(X, X[:, 0])
    before = model.predict([[1.0, 1.0]])
    X *= 0
    assert model.predict([[1.0, 1.0]]) == before


@pytest.mark.parametrize("alpha", ["loo", 0.1])
def test_a_bandwidth_that_wants_a_gradient(alpha):
    """It is a number like any other; of a kernel object, too."""
    X, sigma = np.random.default_rng(0).normal(size=(40, 2)), torch.tensor(2.0, requires_grad=True)
    right = KernelRidgeRegressor(bandwidth=2.0, alpha=alpha).fit(X, X[:, 0]).predict(X)
    for given in (dict(bandwidth=sigma), dict(kernel=Gaussian(sigma))):
        model = KernelRidgeRegressor(alpha=alpha, **given).fit(X, X[:, 0])
        np.testing.assert_array_equal(model.predict(X), right)
        assert not model.kernel_.bandwidth.requires_grad and sigma.requires_grad


@pytest.mark.parametrize("shape", [(40,), (40, 2)])
def test_predictions_keep_gradients(shape):
    rng = np.random.default_rng(0)
    model = KernelRidgeRegressor(kernel="matern52").fit(rng.normal(size=(40, 2)), rng.normal(size=shape))
    assert torch.autograd.gradcheck(model.predict, torch.from_numpy(rng.normal(size=(5, 2))).requires_grad_())


def test_a_residual_of_zero_is_rounding():
    with pytest.warns(ConvergenceWarning, match="rounding in float64"):
        gram_cg("gaussian", [[0.0], [1.0]], [1.0, -1.0], 1.0, tol=1e-17, max_iter=1)


def test_the_penalty_is_that_of_least_weighted_leave_one_out_error():
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(100, 2)), np.repeat([1.0, 0.01], 50)
    y = np.sin(X[:, 0]) + np.r_[0.01 * rng.normal(size=50), 3 * rng.normal(size=50)]
    model = KernelRidgeRegressor(Laplacian(2.0)).fit(X, y, sample_weight=w)
    mean = w @ y / w.sum()
    path = gram_path(Laplacian(2.0)(X), y / np.sqrt(w @ (y - mean) ** 2 / w.sum()), w)
    assert np.isclose(model.alpha_, path.lams[path.best])


def test_the_residual_is_that_of_the_worst_column():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    Y = np.c_[np.sin(X[:, 0]), rng.normal(size=300)]
    ways = dict(n_landmarks=0, max_iter=5, tol=1e-6, lam=0.1)
    with pytest.warns(ConvergenceWarning):
        both = gram_cg("gaussian", X, Y, **ways).residual
        each = [gram_cg("gaussian", X, y, **ways).residual for y in Y.T]
    assert each[0] < 0.8 * each[1]
    assert np.isclose(both, max(each), rtol=1e-3)
