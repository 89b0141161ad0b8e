"""Kernel models with few centres: projected steps against their definition, limits against least squares, estimators."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import check_estimator

import rfteach.centers
import rfteach.gram
from rfteach.arrays import memory_budget
from rfteach.centers import CentersClassifier, CentersRegressor, Projection, begin_at_centers, projected_steps
from rfteach.eigenpro import EigenProRegressor
from rfteach.eigenpro_training import parts_in_turn
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.kernels import Gaussian, Laplacian, Laplacian1, Matern
from rfteach.preconditioning import preconditioner

KERNELS = [Laplacian(2.0), Gaussian(1.0), Matern(1.5, [0.5, 1.0, 2.0]), Laplacian1(3.0)]
QUIET = dict(early_stopping=False, fit_intercept=False)


def problem(n=300, p=25, seed=0):
    """Rows X (n, 3), targets Y (n, 2) that no model of the size can meet, and centres Z (p, 3), some of them rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    Y = np.stack([np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n), X[:, 1] * X[:, 2]], 1)
    return X, Y, np.concatenate([X[: p // 2], rng.normal(size=(p - p // 2, 3))])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("T", [1, 2, 5])
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_steps_are_those_of_functions(kernel, T, dtype):
    """The function as coefficients at rows and centres, all of them at once, by the Gram matrix of all points."""
    X, Y, Z = problem(60)
    batches = np.array_split(np.arange(40), T)
    P = preconditioner(kernel(Z[:12]), 4)
    V, D = P.vectors.numpy(), P.weights.numpy()
    points = np.concatenate([Z, X])
    G, p = kernel(points), len(Z)
    start = np.random.default_rng(1).normal(size=(p, 2))
    a = np.concatenate([start, np.zeros_like(Y)])
    for rows in batches:
        g = G[p + rows] @ a - Y[rows]
        a[p + rows] -= 0.01 * g
        a[:12] += 0.01 * V @ (D[:, None] * (V.T @ (G[:12, p + rows] @ g)))
    right = np.linalg.solve(G[:p, :p], G[:p] @ a)
    tensors = [torch.from_numpy(A).to(dtype) for A in (X, Y, Z, start)]
    X, Y, Z, c = tensors
    loss = projected_steps(c, [(X[rows], Y[rows]) for rows in batches], kernel, Z, 0.01,
                           preconditioner(kernel.gram(Z[:12], Z[:12]), 4), Projection(kernel, Z))
    tolerance = 1e-9 if dtype == torch.float64 else 1e-3
    np.testing.assert_allclose(kernel(points, points[:p]) @ c.double().numpy(), G[:, :p] @ right, atol=tolerance * abs(right).max())
    assert loss.dtype == torch.float64 and loss > 0


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_a_projection_interpolates_at_the_centres(kernel):
    X, Y, Z = problem()
    h = torch.from_numpy(kernel(Z, X) @ Y)
    for U in (Z, np.concatenate([Z, Z[:5]])):  # centres that repeat
        values = torch.from_numpy(kernel(U, X) @ Y)
        for method, tolerance in (("auto", 1e-6), ("cholesky", 1e-6), ("iterations", 0.05)):
            u = Projection(kernel, U, method)(values)
            assert torch.isfinite(u).all() and u.shape == values.shape
            off = (torch.from_numpy(kernel(Z, U)) @ u - h).norm() / h.norm()
            assert off < tolerance, (method, off)
    again = pickle.loads(pickle.dumps(Projection(kernel, Z)))
    assert torch.equal(again(h), Projection(kernel, Z)(h))


def relative_excess(model, kernel, X, Y, Z):
    """Training error above that of SciPy's least squares, relative to it, (r,)."""
    A = kernel(X, Z)
    least = ((A @ scipy.linalg.lstsq(A, Y)[0] - Y) ** 2).sum(0)
    return ((model.predict(X) - Y) ** 2).sum(0) / least - 1


@pytest.mark.parametrize("method", ["cholesky", "iterations"])
@pytest.mark.parametrize("n_eigen", [0, 8])
def test_comes_to_least_squares(n_eigen, method, monkeypatch):
    if method == "iterations":
        monkeypatch.setattr(rfteach.centers, "MOST", 1)
    X, Y, Z = problem()
    kernel, steps = Laplacian(2.0), 1500 if method == "cholesky" else 300
    model = CentersRegressor(kernel, centers=Z, batch_size=len(X), delay=1, max_iter=steps, n_eigen=n_eigen, random_state=0, **QUIET)
    excess = relative_excess(model.fit(X, Y), kernel, X, Y, Z)
    assert (excess > -1e-9).all() and (excess < ({"cholesky": 0.02, "iterations": 0.05}[method] if not n_eigen else 1e-3 if method == "cholesky" else 0.02)).all(), excess


def test_the_mean_of_an_epoch_is_near_least_squares():
    X, Y, Z = problem()
    kernel = Laplacian(2.0)
    model = CentersRegressor(kernel, centers=Z, batch_size=30, max_iter=400, n_eigen=8, random_state=0, **QUIET).fit(X, Y)
    assert (relative_excess(model, kernel, X, Y, Z) < 0.01).all()
    assert model.delay_ == 1 and model.batch_size_ == 30 and model.n_eigen_ == 8


def test_a_delay_gives_nearly_the_same_fit():
    X, Y, Z = problem(2000, 200)
    fits = [CentersRegressor(Laplacian(2.0), centers=Z, batch_size=50, delay=T, max_iter=10, random_state=0, **QUIET).fit(X, Y).predict(X)
            for T in (1, 4)]
    assert 0 < np.abs(fits[0] - fits[1]).max() and ((fits[0] - fits[1]) ** 2).mean() < 0.01 * Y.var()


@pytest.mark.parametrize("model", [CentersRegressor(centers=20, max_iter=3), CentersClassifier(centers=20, max_iter=3)],
                         ids=lambda model: type(model).__name__)
@pytest.mark.filterwarnings("ignore")
def test_contract(model):
    check_estimator(model)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtypes_kinds_and_shapes(dtype):
    X, Y, Z = (A.astype(dtype) for A in problem())
    one = CentersRegressor(centers=20, random_state=0, max_iter=3).fit(X, Y[:, 0])
    two = CentersRegressor(centers=20, random_state=0, max_iter=3).fit(torch.from_numpy(X), torch.from_numpy(Y))
    assert one.predict(X).dtype == dtype and one.predict(X).shape == (300,) and one.dual_coef_.shape == (20,)
    found = two.predict(torch.from_numpy(X))
    assert isinstance(found, torch.Tensor) and str(found.dtype) == f"torch.{dtype}" and found.shape == (300, 2)
    assert two.centers_.shape == (20, 3) and two.centers_.dtype == dtype and two.dual_coef_.shape == (20, 2)
    assert isinstance(one.intercept_, float) and two.intercept_.shape == (2,)
    right = two.kernel_(X, two.centers_) @ two.dual_coef_ + two.intercept_
    np.testing.assert_allclose(found.numpy(), right, atol=1e-4)
    assert {tuple(z) for z in two.centers_} <= {tuple(x) for x in X}


@pytest.mark.parametrize("model", [CentersRegressor(centers=30, random_state=0), EigenProRegressor(random_state=0)], ids=repr)
def test_an_intercept_far_above_the_values_leaves_them_their_digits(model):
    """Fitted in float32, asked in float64: one value of float32 lies beside it. Rows of float32 have theirs in float32."""
    X = np.random.default_rng(0).uniform(-3, 3, (300, 1))
    y, Z = np.sin(X[:, 0]) + 1e8, X.astype(np.float32)
    p, ends = model.fit(Z, y).predict(X), model.predict_interval(X)
    assert np.abs(p - y).max() < 0.1 and ((0 < np.ptp(ends, axis=1)) & (np.ptp(ends, axis=1) < 0.5)).all()
    assert p.dtype == ends.dtype == np.float64 and model.predict(Z).dtype == model.predict_interval(Z).dtype == np.float32
    np.testing.assert_array_equal(model.predict(Z), model.predict(Z.astype(float)).astype(np.float32))


def test_centres_are_different_rows():
    X = np.repeat(problem(30)[0], 10, axis=0)
    model = CentersRegressor(centers=100, random_state=0, max_iter=2).fit(X, X[:, 0])
    assert len(np.unique(model.centers_, axis=0)) == len(model.centers_) <= 30


def test_the_same_seed_gives_the_same_fit_from_memory_and_from_a_file(tmp_path):
    X, Y, _ = problem(6000)
    np.save(tmp_path / "X.npy", X)
    ways = dict(centers=50, max_iter=3)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    fits = [CentersRegressor(random_state=0, **ways).fit(A, Y).dual_coef_ for A in (X, mapped)]
    np.testing.assert_array_equal(*fits)
    with memory_budget(4096):
        tight = CentersRegressor(random_state=0, **ways).fit(X, Y)
    np.testing.assert_allclose(tight.dual_coef_, fits[0], rtol=1e-6, atol=1e-8)
    assert not np.array_equal(CentersRegressor(random_state=1, **ways).fit(X, Y).dual_coef_, fits[0])


@pytest.mark.parametrize("n", [2, 30, 300, 5500])
def test_on_noise_it_is_hardly_worse_than_the_constant(n):
    worse = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, y, fresh = rng.normal(size=(n, 3)), rng.normal(size=n), rng.normal(size=(1000, 3))
        model = CentersRegressor(centers=100, max_iter=6, random_state=0).fit(X, y)
        worse.append(np.mean(model.predict(fresh) ** 2) - y.mean() ** 2)
    assert np.mean(worse) < (0.5 if n < 300 else 0.05), worse


def test_without_an_epoch_the_history_is_empty():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 5)), rng.normal(size=300)
    model = CentersRegressor(centers=50, random_state=0).fit(X, y)
    assert model.n_iter_ == 0 and model.history_ == {"loss": [], "seconds": []}
    assert {len(values) for values in model.partial_fit(X, y).history_.values()} == {1}


def test_validation_decides():
    X, Y, _ = problem(6000)
    model = CentersRegressor(centers=100, random_state=0, max_iter=8).fit(X, Y)
    losses = model.validation_loss_
    assert len(losses) == model.n_iter_ + 1 and losses.min() < losses[0] and "validation_loss" in model.history_
    few = CentersRegressor(centers=100, random_state=0, max_iter=8).fit(X[:400], Y[:400])
    assert few.n_iter_ == few.validation_loss_.argmin() and "validation_loss" not in few.history_
    plain = CentersRegressor(centers=100, random_state=0, max_iter=8, early_stopping=False).fit(X, Y)
    assert len(plain.validation_loss_) == 0 and plain.n_iter_ == 8


def test_the_last_coefficients_are_kept_where_their_loss_is_less_than_that_of_the_mean():
    X = np.random.default_rng(0).uniform(size=(5000, 1))
    model = CentersRegressor(Gaussian(0.3), centers=30, max_iter=2, random_state=0).fit(X, np.sin(6 * X[:, 0]))
    left = model.left_out_
    np.testing.assert_allclose(model.predict(X[left.rows]), left.predictions[:, 0], atol=1e-10)


def test_pieces():
    X, Y, _ = problem(3000)
    model = CentersRegressor(Laplacian(2.0), centers=100, random_state=0)
    errors = [float(((model.partial_fit(X[a : a + 1000], Y[a : a + 1000]).predict(X) - Y) ** 2).mean()) for a in (0, 1000, 2000)]
    assert model.n_iter_ == 3 and errors[-1] < errors[0] < Y.var()
    before = model.dual_coef_.copy()
    with pytest.raises(ValueError, match=r"y must have the shape \(n, 2\)"):
        model.partial_fit(X, Y[:, :1])
    np.testing.assert_array_equal(model.dual_coef_, before)


def test_classes():
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = CentersClassifier(bandwidth=1.0, centers=40, random_state=0).fit(X, names)
    assert model.score(X, names) > 0.95 and model.decision_function(X).shape == (150, 3)
    two = CentersClassifier(bandwidth=1.0, centers=40, random_state=0).fit(X[:100], names[:100])
    assert two.score(X[:100], names[:100]) == 1 and two.decision_function(X).shape == (150,) and two.dual_coef_.shape == (40, 1)
    pieces = CentersClassifier(bandwidth=1.0, centers=40, random_state=0).partial_fit(X, names, classes=["a", "b", "c"])
    assert pieces.partial_fit(X, names).score(X, names) > 0.8
    with pytest.raises(ValueError, match="classes must be given"):
        CentersClassifier().partial_fit(X, names)


def test_warnings_and_steps_that_diverge():
    X, Y, Z = problem()
    with pytest.raises(ValueError, match=r"diverges with step_size=1e\+06.*bound \(8.11\)"):
        CentersRegressor(centers=20, step_size=1e6, random_state=0).fit(X, Y)
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        CentersRegressor(centers=20, tol=1e-6, max_iter=2, early_stopping=False, random_state=0).fit(X, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = CentersRegressor(centers=20, tol=0.1, max_iter=200, early_stopping=False, random_state=0).fit(X, Y)
    assert model.n_iter_ < 200


def test_nothing_is_shared_with_the_caller():
    X, Y, Z = problem()
    model = CentersRegressor(centers=Z, random_state=0).fit(X, Y)
    before = model.predict(X)
    Z *= 0
    for shown in (model.centers_, model.dual_coef_, model.intercept_):
        shown[:] = 0
    np.testing.assert_array_equal(model.predict(X), before)


def test_rows_that_wait_for_more_are_of_the_model():
    X, Y, _ = problem(90)
    values = []
    for overwritten in (False, True):
        model = CentersRegressor(centers=40, random_state=0)
        for rows in np.split(np.arange(90), 3):
            x, y = X[rows], Y[rows]
            model.partial_fit(x, y)
            if overwritten:
                x[:], y[:] = 7, 7
        values.append(model.predict(X))
    np.testing.assert_array_equal(*values)


def test_pieces_predict_by_the_mean_of_their_second_half():
    """Coefficients after the last step dance about least squares; their mean is nearer, and steps go on from the last."""
    X, Y, Z = problem(3000)
    model = CentersRegressor(centers=Z, batch_size=10, delay=1, fit_intercept=False, random_state=0)
    last, seen = [], []
    for _ in range(3):
        model.partial_fit(X, Y)
        descent = model._descent
        seen.append(((model.predict(X) - Y) ** 2).mean())
        last.append(((descent.values(torch.from_numpy(X), descent.c).numpy() - Y) ** 2).mean())
        np.testing.assert_array_equal(model.dual_coef_, descent.mean.numpy())
    best = scipy.linalg.lstsq(model.kernel_(X, Z), Y)[0]
    least = ((model.kernel_(X, Z) @ best - Y) ** 2).mean()
    assert np.mean(seen) - least < (np.mean(last) - least) / 2
    assert len(model.validation_loss_) == 0


def test_the_mean_of_a_piece_is_over_its_second_half(monkeypatch):
    X, Y, Z = problem(40)
    seen, steps = [], rfteach.centers.projected_steps

    def watched(c, *rest):
        loss = steps(c, *rest)
        seen.append(c.clone())
        return loss

    monkeypatch.setattr(rfteach.centers, "projected_steps", watched)
    model = CentersRegressor(centers=Z[:5], batch_size=5, delay=1, random_state=0).partial_fit(X, Y)
    assert len(seen) == 8
    np.testing.assert_allclose(model.dual_coef_, torch.stack(seen[4:]).mean(0))


def test_the_step_is_measured_at_rows_that_are_no_centres(monkeypatch):
    X, Y, _ = problem(100)
    seen, made = [], rfteach.centers.preconditioner_for
    monkeypatch.setattr(rfteach.centers, "preconditioner_for", lambda *args: seen.append(len(args[3][0])) or made(*args))
    CentersRegressor(centers=30, max_iter=1, random_state=0, **QUIET).fit(X, Y)
    assert seen == [70]


def test_a_bandwidth_is_learned_from_rows_that_are_trained_on():
    X, Y, _ = (torch.from_numpy(T) for T in problem(100))
    Y[50:] = torch.nan  # held out
    descent = begin_at_centers(CentersRegressor(bandwidth="learned", centers=20), X, Y, np.arange(50), seed=0)
    assert np.isfinite(descent.kernel.bandwidth).all()


def test_warnings_name_the_line_that_called(monkeypatch):
    X, Y, _ = problem()
    monkeypatch.setattr(rfteach.centers, "largest_step", lambda *args: 1e5)
    with pytest.warns(ConvergenceWarning, match="half the step") as caught:
        CentersRegressor(centers=20, max_iter=3, early_stopping=False, random_state=0).fit(X, Y)
    with pytest.warns(ConvergenceWarning, match="half the step") as pieces:
        CentersRegressor(centers=20, random_state=0).partial_fit(X, Y)
    monkeypatch.undo()
    with pytest.warns(ConvergenceWarning, match="still falls") as long:
        CentersRegressor(centers=20, max_iter=2, tol=1e-9, early_stopping=False, random_state=0).fit(X, Y)
    assert {warning.filename for warning in (caught[0], pieces[0], long[-1])} == {__file__}


def test_an_automatic_step_that_diverges_is_halved(monkeypatch):
    X, Y, _ = problem()
    monkeypatch.setattr(rfteach.centers, "largest_step", lambda *args: 1e5)
    with pytest.warns(ConvergenceWarning, match="starts again with half the step"):
        model = CentersRegressor(centers=20, max_iter=3, early_stopping=False, random_state=0).fit(X, Y)
    assert model.step_factor_ < 1 and ((model.predict(X) - Y) ** 2).mean() < 1.1 * Y.var()


def test_a_piece_that_diverges_costs_only_itself():
    """Coefficients of earlier pieces, which cannot come again, are what the halved step starts from."""
    X, Y, _ = problem()
    model = CentersRegressor(centers=20, n_eigen=2, batch_size=10, random_state=0).partial_fit(X, Y)
    for _ in range(20):
        model.partial_fit(X, Y)
    before = ((model.predict(X) - Y) ** 2).mean()
    model._descent.step *= 1e3
    with pytest.warns(ConvergenceWarning, match="starts again with half the step"):
        model.partial_fit(X[:100], Y[:100])
    afresh = CentersRegressor(centers=20, n_eigen=2, batch_size=10, random_state=0).partial_fit(X[:100], Y[:100])
    assert model.step_factor_ < 1
    assert ((model.predict(X) - Y) ** 2).mean() < 1.2 * before < 0.8 * ((afresh.predict(X) - Y) ** 2).mean()


def test_a_piece_that_the_model_before_is_far_from():
    """Centres are chosen anew from all rows, sorted by label; the first ones, which are known, say nothing of the last."""
    X = np.random.default_rng(5).normal(size=(400, 3))
    kind = np.digitize(X[:, 0], [-0.5, 0.5])
    model, rows = CentersClassifier(bandwidth="median", random_state=0), np.argsort(kind, kind="stable")
    pieces = [rows[a : a + 20] for a in range(0, 400, 20) if np.ptp(kind[rows[a : a + 20]]) == 0]
    for piece in pieces[:16]:
        model.partial_fit(X[piece], kind[piece], classes=[0, 1, 2])
    assert model.n_iter_ == 16 and model.step_factor_ == 1


@pytest.mark.parametrize("bandwidth", [1.0, 3.0])
def test_an_iterative_projection_bears_the_directions(monkeypatch, bandwidth):
    """Below its raised diagonal no direction is flattened: the step that follows from the others does not diverge."""
    monkeypatch.setattr(rfteach.centers, "MOST", 100)
    X = np.random.default_rng(0).normal(size=(1500, 1))
    model = CentersRegressor(centers=300, bandwidth=bandwidth, max_iter=5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, np.sin(2 * X[:, 0]))
    assert 0 < model.n_eigen_ < 30 and model.step_factor_ == 1


@pytest.mark.parametrize("seed", [0, 6, 8])
def test_few_inputs_do_not_diverge(seed):
    """A row far from all centres, which a look at 500 rows misses, has a step alone that is too long for it."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 1))
    y = np.sin(2 * X[:, 0]) + X[:, 0] * np.cos(X[:, 0])
    model = CentersRegressor(centers=300, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X[:3000], y[:3000])
    assert np.mean((model.predict(X[3000:]) - y[3000:]) ** 2) < 1e-4 * y.var()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_directions_that_the_projection_cannot_bear_are_not_flattened(dtype):
    """Below what raises its diagonal, steps lose positivity by (8.35), however many directions are asked for."""
    X = np.random.default_rng(0).normal(size=(6000, 1)).astype(dtype)
    descent = CentersRegressor(centers=2000, n_eigen=40, max_iter=1, random_state=0).fit(X, np.sin(3 * X[:, 0]))._descent
    assert 5 < len(descent.P.values) < 40 and 2000 * descent.P.values[-1] > descent.project.raised


@pytest.mark.parametrize("X, y", [([[1.0]], [3.0]), ([[1.0], [1.0]], [2.0, 4.0]), (np.ones((30, 2)), np.arange(30.0)),
                                  (np.arange(40.0)[:, None], np.full(40, 7.0))])
def test_degenerate_rows(X, y):
    model = CentersRegressor(random_state=0, max_iter=3).fit(X, y)
    assert np.isfinite(model.predict(X)).all() and abs(model.predict(X).mean() - np.mean(y)) < 0.5


@pytest.mark.parametrize("bad, error, words", [
    (dict(centers=0), ValueError, "centers must be"), (dict(centers="kmeans"), TypeError, "centers must be a number or an array"),
    (dict(centers=np.ones((4, 2))), ValueError, "centers"), (dict(delay=0), ValueError, "delay"), (dict(batch_size=0), ValueError, "batch_size"),
    (dict(step_size=-1), ValueError, "step_size"), (dict(max_iter=0), ValueError, "max_iter"), (dict(tol=-1), ValueError, "tol"),
    (dict(n_eigen=-1), ValueError, "n_eigen"), (dict(validation_fraction=1.0), ValueError, "validation_fraction"),
    (dict(early_stopping="no"), TypeError, "early_stopping"), (dict(centers=[[np.nan] * 3]), ValueError, "centers contains NaN"),
    (dict(kernel="gausian"), ValueError, "gausian"),
])
def test_parameters_outside_of_their_range(bad, error, words):
    X, Y, _ = problem(40)
    model = CentersRegressor(**bad)
    with pytest.raises(error, match=words):
        model.fit(X, Y)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_projection_refuses_other_methods():
    with pytest.raises(ValueError, match="method must be"):
        Projection("gaussian", [[0.0]], "qr")


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("d, size", [(1, 100), (3, 500)])
@pytest.mark.parametrize("model", [CentersRegressor, EigenProRegressor])
def test_a_stream_of_few_inputs_does_not_diverge(model, d, size, fitted):
    """A step that is safe for the rows of the subsample, which were all that had come, is not safe for others."""
    rng = np.random.default_rng(0)
    X, fresh = rng.normal(size=(9 * size, d)), rng.normal(size=(1000, d))
    y, said = np.sin(X[:, 0]) + 0.1 * rng.normal(size=len(X)), []
    learner, pieces = model(random_state=0), [slice(a, a + size) for a in range(0, len(X), size)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i, piece in enumerate(pieces):
            learner = (learner.fit if fitted and i == 0 else learner.partial_fit)(X[piece], y[piece])
            said.append(np.mean((learner.predict(fresh) - np.sin(fresh[:, 0])) ** 2) / np.sin(fresh[:, 0]).var())
    assert max(said[2:]) < 0.15 and said[-1] < 0.05


def test_centres_that_repeat_bear_rows_that_come_later():
    rng = np.random.default_rng(0)
    X, fresh = rng.normal(size=(2000, 2)), rng.normal(size=(500, 2))
    y, Z = np.sin(X[:, 0]), np.concatenate([X[:50], X[:150]])
    model = CentersRegressor(centers=Z, random_state=0).fit(X[:200], y[:200])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for a in range(200, 2000, 200):
            model.partial_fit(X[a : a + 200], y[a : a + 200])
    assert np.mean((model.predict(fresh) - np.sin(fresh[:, 0])) ** 2) < 0.01


@pytest.mark.parametrize("model", [CentersRegressor, EigenProRegressor])
def test_rows_of_a_few_kinds_keep_their_common_kinds(model):
    """Held out with all copies, a part of 600 rows was all but the rare kinds."""
    rng = np.random.default_rng(0)
    X = (rng.random((7000, 5)) < [0.5, 0.5, 0.01, 0.01, 0.3]).astype(float)
    y = X @ [1, -1, 5, -5, 0.5] + 0.1 * rng.normal(size=7000)
    assert model(random_state=0).fit(X[:6000], y[:6000]).score(X[6000:], y[6000:]) > 0.95


@pytest.mark.parametrize("counts, rows", [([1] * 3000, 600), ([2] * 1500, 600), ([900, 700, 500, 300, *[1] * 600], 120),
                                          ([1800, 1500, 1200, 900, 700, 500, *[60] * 20], 93), ([300] * 10, 600)])
def test_a_part_is_full_whatever_repeats(counts, rows):
    """Of kinds that are no more than a twentieth of the rows, unless there are none: frequent ones stay in training."""
    counts = np.array(counts)
    numbers = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    parts = parts_in_turn(numbers, 600)
    rare = counts <= len(numbers) / 20
    most = (counts[rare] if rare.any() else counts).max()
    assert len(parts) == -(-500 // rows) and rows <= parts[0].sum() < rows + most
    assert rows * len(parts) <= np.sum(parts) < rows * len(parts) + most
    for held in parts:
        assert not np.intersect1d(numbers[held], numbers[~held]).size
        assert rare[numbers[held]].all() or not rare.any()


def test_a_part_has_the_most_rows_that_it_may_have():
    """Of large data the most that is held out is not made less by rows that stay in training."""
    numbers = np.random.default_rng(0).permutation(np.r_[np.zeros(10_000, int), np.arange(10_000)])
    assert [held.sum() for held in parts_in_turn(numbers, 2000, 300)] == [300, 300]


def test_two_kinds_of_rows_are_held_out_in_turn():
    numbers = np.arange(20) % 2
    assert [set(numbers[held]) for held in parts_in_turn(numbers, 5)] == [{0}, {1}]


@pytest.mark.parametrize("model", [CentersRegressor, EigenProRegressor])
@pytest.mark.parametrize("n, share", [(6000, 0.3), (1000, 0.6)])
def test_the_commonest_row_is_trained_on_and_does_not_choose(model, n, share):
    """Held out with all copies it would be most of a part: unknown to centres from 5000 rows on, and one x for intervals."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    X[rng.random(n) < share] = 0
    y = np.where((X == 0).all(1), 10, np.sin(X[:, 0]))
    model = model(bandwidth="median", random_state=0).fit(X, y)
    assert abs(model.predict(X[(X == 0).all(1)][:1]) - 10) < 3
    assert np.isfinite(model.predict_interval(X)).all() and len(np.unique(model.left_out_.inputs, axis=0)) > 300


def test_a_step_that_diverges_is_named_where_projections_iterate(monkeypatch):
    """What overflows has no projection that is finite, by a factor either; to solve for it would be refused."""
    monkeypatch.setattr(rfteach.centers, "MOST", 20)
    X, Y, _ = problem(100)
    with pytest.raises(ValueError, match=r"diverges with step_size=1e\+30"):
        CentersRegressor(centers=50, step_size=1e30, random_state=0).fit(X.astype(np.float32), Y)
    h = torch.tensor([[1.0], [torch.inf]])
    for method in ("iterations", "cholesky"):
        assert not torch.isfinite(Projection("gaussian", [[0.0], [1.0]], method)(h)).any()


@pytest.mark.parametrize("n, trained", [(100, 100), (1000, 400)])
def test_all_rows_are_trained_on_where_a_part_is_small(n, trained):
    """However large a share of them it is."""
    X = np.random.default_rng(0).uniform(-3, 3, (n, 1))
    model = CentersRegressor("laplacian", 1.0, validation_fraction=0.6, max_iter=5, random_state=0).fit(X, np.sin(X[:, 0]))
    assert len(model.centers_) == trained


@pytest.mark.parametrize("size", [1, 10, 100])
def test_centres_grow_with_a_stream_of_small_pieces(size):
    """Were the first piece's rows the only centres, ten of them would leave .4 of the variance, one all of it."""
    rng = np.random.default_rng(0)
    n = 100 if size == 1 else 1000
    X, fresh = rng.normal(size=(n, 3)), rng.normal(size=(1000, 3))
    f = lambda X: np.sin(X[:, 0]) + X[:, 1] / 2
    y, model = f(X) + 0.1 * rng.normal(size=n), CentersRegressor(centers=n // 4, random_state=0)
    sizes = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for a in range(0, n, size):
            model.partial_fit(X[a : a + size], y[a : a + size])
            sizes.append(len(model.centers_))
    assert sizes[0] == min(size, n // 4) and sizes[-1] == n // 4 and model._first is None
    assert len({*sizes}) <= 2 + np.log2(n // 4 / sizes[0]) and model.n_iter_ == len(sizes) == len(model.history_["loss"])
    assert np.mean((model.predict(fresh) - f(fresh)) ** 2) < {1: 0.1, 10: 0.01, 100: 0.02}[size] * f(fresh).var()
    before = model.dual_coef_.copy()
    again = CentersRegressor(centers=n // 4, random_state=0).partial_fit(X[:size], y[:size])
    with pytest.raises(ValueError, match=r"y must have the shape \(n,\), .* got \(\d+, 2\)"):
        again.partial_fit(X[:size], np.stack([y, y], 1)[:size])
    assert len(again._first[0]) == size and len(again.centers_) == sizes[0]
    assert model.fit(X, y)._first is None and model.dual_coef_.shape == before.shape


@pytest.mark.parametrize("settings", [{}, {"delay": 2, "batch_size": 20}, {"centers": 30, "bandwidth": "learned"}])
def test_few_rows_have_their_kernel_computed_once(monkeypatch, settings):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y, grams, tile = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60), [], Gaussian.tile
    monkeypatch.setattr(Gaussian, "tile", lambda self, X, Y, side=None: grams.append(len(X)) or tile(self, X, Y, side))
    models = [CentersRegressor(**settings, max_iter=9, random_state=0)]
    models[0].fit(X, y)
    n_kept, n_epochs = len(grams), len(models[0].validation_loss_) - 1
    with memory_budget(8 * 60**2):
        models.append(CentersRegressor(**settings, max_iter=9, random_state=0).fit(X, y))
    assert n_kept < 100 and len(grams) - n_kept > 10 * n_epochs  # ten parts are held out in turn
    np.testing.assert_allclose(models[0].validation_loss_, models[1].validation_loss_, rtol=1e-9)
    np.testing.assert_allclose(models[0].predict(X), models[1].predict(X), atol=1e-9)


def test_norms_of_the_centres_are_made_once_an_epoch(monkeypatch):
    X, Y, Z = problem(1000)
    seen, centred = [], rfteach.gram._centred
    monkeypatch.setattr(rfteach.gram, "_centred", lambda T, bandwidth, centre: seen.append(len(T)) or centred(T, bandwidth, centre))
    numbers = []
    for epochs in (2, 3):
        CentersRegressor(Laplacian(2.0), centers=Z, batch_size=100, max_iter=epochs, random_state=0, **QUIET).fit(X, Y)
        numbers.append([seen.count(len(Z)), seen.count(100)])
        seen.clear()
    assert np.diff(numbers, axis=0).tolist() == [[1, 10]]


@pytest.mark.parametrize("model", [RandomFeatureRidge(alpha=1.0), EigenProRegressor(), CentersRegressor(centers=5)], ids=repr)
@pytest.mark.parametrize("start", ["fit", "partial_fit"])
def test_later_pieces_have_targets_of_the_same_shape(model, start):
    """Else the shape of predictions would change on the way."""
    X, y = np.random.default_rng(0).normal(size=(2, 30, 1))
    model = getattr(clone(model), start)(X, y[:, 0])
    if start == "fit" and isinstance(model, RandomFeatureRidge):
        model.partial_fit(X, y[:, 0])  # the first piece after `fit` starts afresh
    for other in (y, np.hstack([y, y])):
        with pytest.raises(ValueError, match=r"y must have the shape \(n,\), as in earlier blocks, got \(30, [12]\)"):
            model.partial_fit(X, other)
    assert model.partial_fit(X, y[:, 0]).predict(X).shape == (30,)


def test_a_first_batch_that_is_far_off_is_no_divergence():
    """Its loss may stay far above that of all rows: it is compared with its own before the pass as well."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(1000, 2)), np.zeros(1000)
    y[:50] = 10 * rng.normal(size=50)
    model = CentersRegressor(centers=50, batch_size=50, random_state=0).partial_fit(X, y)
    assert np.isfinite(model.predict(X)).all() and model.step_factor_ == 1


def test_the_part_of_the_step_that_was_chosen_is_taken_by_the_fit_to_all_rows():
    """Where parts are held out in turn, and the best epoch of noisy targets is the first or none."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = rng.normal(size=200) + 0.3 * X[:, 0]
    assert CentersRegressor(centers=100, random_state=0).fit(X, y).step_factor_ < 1


def test_the_last_coefficients_are_kept_where_parts_are_held_out_in_turn():
    """Of a function without noise, still on its way; without validation it is the mean of the last epoch."""
    for seed in (1, 3):
        X = np.random.default_rng(seed).uniform(size=(300, 1))
        y = np.sin(6 * X[:, 0])
        model = CentersRegressor(centers=50, random_state=seed, max_iter=2).fit(X, y)
        mean = CentersRegressor(centers=50, random_state=seed, max_iter=model.n_iter_, early_stopping=False).fit(X, y)
        assert model.step_factor_ == 1 and np.std(model.predict(X) - y) < 0.95 * np.std(mean.predict(X) - y)


def test_a_tolerance_ends_training_that_is_validated():
    X = np.random.default_rng(0).uniform(size=(300, 1))
    model = CentersRegressor(centers=50, random_state=0, tol=0.999).fit(X, np.sin(6 * X[:, 0]))
    assert len(model.validation_loss_) < 10  # of up to 101


def test_new_centres_begin_at_the_function_that_there_was():
    """Steps next to nothing: the mean of the first piece is still what is predicted, whatever that of the second."""
    X = np.random.default_rng(0).uniform(-1, 1, (40, 2))
    model = CentersRegressor(bandwidth=1.0, centers=100, step_size=1e-9, random_state=0)
    model.partial_fit(X[:20], np.zeros(20)).partial_fit(X[20:], np.full(20, 10.0))
    assert len(model.centers_) == 40
    np.testing.assert_allclose(model.predict(X), 0, atol=0.05)


def test_the_order_of_the_rows_does_not_decide_the_median():
    X = np.sort(np.random.default_rng(0).uniform(size=(9000, 1)), 0)
    model = CentersRegressor(bandwidth="median", centers=10, max_iter=1, early_stopping=False, random_state=0).fit(X, X[:, 0])
    assert abs(model.kernel_.bandwidth - 0.293) < 0.02  # 1 - √½ is the median distance of two uniform numbers
