"""Parts, squares on left-out rows, the plane, the choice, and what estimators make of them."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.svm import SVR

from rfteach.adaptive import AdaptiveFeatureRegressor
from rfteach.agop import RFMRegressor
from rfteach.auto import AutoKernelRegressor
from rfteach.srfe import SRFERegressor
from rfteach.harfe_regressor import HARFERegressor
from rfteach.selection import (
    check_folds, choose, judge, left_out_parts, left_out_residuals, plane, refits, standard_deviations,
)
from rfteach.chaos import SparsePCE
from rfteach.conjugate import KernelRidgeRegressor
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.projected import ProjectedSurrogate
from rfteach.rbf import RBFRegressor
from rfteach.streaming import StreamingRidge

MODELS = {
    "srfe": SRFERegressor(150, random_state=0),
    "harfe": HARFERegressor(60, random_state=0),
    "pce": SparsePCE((3, 2)),
    "adaptive": AdaptiveFeatureRegressor(100, n_frequencies=8, max_iter=15, random_state=0),
    "projected": ProjectedSurrogate(n_reduced=2, budget=4, random_state=0),
}


def tensors(*arrays):
    return [torch.from_numpy(np.asarray(a, float)) for a in arrays]


def table(n=60, d=3, k=1, seed=0):
    rng = np.random.default_rng(seed)
    return tensors(rng.normal(size=(n, d)), rng.normal(size=(n, k)), rng.uniform(0.5, 2, n))


@pytest.mark.parametrize("n, n_folds", [(2, 5), (3, 2), (7, 3), (60, 60), (60, "auto"), (61, 5), (5, 1000)])
def test_each_row_is_left_out_once(n, n_folds):
    parts = list(left_out_parts(n, n_folds))
    left_out = np.concatenate([test for _, test in parts])
    assert sorted(left_out.tolist()) == list(range(n))
    for train, test in parts:
        assert len(train) and len(test)
        assert sorted([*train.tolist(), *test.tolist()]) == list(range(n))
    sizes = [len(test) for _, test in parts]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("n", [199, 200, 250, 251, 400, 999, 1000, 5000])
def test_auto_stops_once_200_rows_were_left_out(n):
    sizes = [len(test) for _, test in left_out_parts(n)]
    assert len(sizes) <= 5
    assert sum(sizes) >= min(n, 200)
    assert len(sizes) == 1 or sum(sizes[:-1]) < 200


def test_residuals_are_those_of_refits():
    X, Y, w = table(30, 3, 2)
    parts = list(left_out_parts(30, 4))[:3]

    def fit(X, Y, w):
        model = LinearRegression().fit(X.numpy(), Y.numpy(), w.numpy())
        return lambda T: torch.from_numpy(model.predict(T.numpy()))

    residuals = left_out_residuals(fit, X, Y, w, parts)
    for train, test in parts:
        model = LinearRegression().fit(X[train].numpy(), Y[train].numpy(), w[train].numpy())
        np.testing.assert_allclose(residuals[test], Y[test].numpy() - model.predict(X[test].numpy()))
    seen = np.concatenate([test for _, test in parts])
    assert residuals[np.setdiff1d(np.arange(30), seen)].isnan().all()
    assert not residuals[seen].isnan().any()


def test_rows_are_left_out_in_double_precision():
    seen, (X, Y, w) = [], table(6)
    fit = lambda X, Y, w: seen.append(X.dtype) or (lambda T: seen.append(T.dtype) or torch.zeros(len(T), 1))
    left_out_residuals(fit, X.float(), Y, w, left_out_parts(6))
    assert set(seen) == {torch.float64}


def test_refits_are_fits_without_folds_of_rows_and_weights():
    X, Y, w = table(40, 3)
    model = MODELS["harfe"]
    predict = refits(model)(X[:30], Y[:30], w[:30])
    same = clone(model).set_params(n_folds=None).fit(X[:30], Y[:30], w[:30])
    assert torch.equal(predict(X[30:]), same.predict(X[30:]))


def test_plane_is_ridge_regression_on_standardised_inputs():
    X, Y, _ = table(80, 4, 1)
    Y = X @ torch.tensor([[1.0], [2.0], [0.0], [-1.0]]).double() + Y
    far = X * torch.tensor([1.0, 1e-5, 1e4, 1.0]) + torch.tensor([0.0, 3.0, 1e6, 1e3])
    slopes, offsets = plane(far, Y, torch.ones(80).double())
    A = ((far - far.mean(0)) / far.std(0, correction=0)).numpy()
    reference = RidgeCV(np.logspace(-4, 4, 200)).fit(A, Y[:, 0].numpy())
    found = (far @ slopes.T + offsets)[:, 0].numpy()
    assert abs(found - reference.predict(A)).max() < 1e-2 * np.std(found)


def test_plane_weights_stand_for_copies_and_a_constant_input_has_no_slope():
    X, Y, _ = table(30, 3, 2)
    X[:, 1] = 7.0
    times = torch.arange(30) % 3 + 1
    slopes, offsets = plane(X, Y, times.double())
    copies = [T.repeat_interleave(times, 0) for T in (X, Y)]
    ones = torch.ones(len(copies[0])).double()
    from_copies, _ = plane(*copies, ones)
    assert (slopes[:, 1] == 0).all() and (from_copies[:, 1] == 0).all()
    mean = (times.double() @ Y) / times.sum()
    centre = (times.double() @ X) / times.sum()
    torch.testing.assert_close(centre @ slopes.T + offsets, mean)
    through_zero, nothing = plane(X, Y, ones[:30], fit_intercept=False)
    assert (nothing == 0).all() and through_zero.isfinite().all()


def noise(n=40, seed=0):
    X, Y, w = table(n, 2, 1, seed)
    parts = list(left_out_parts(n))
    constant = choose(Y, X, Y, w, parts).errors["constant"]
    mean = left_out_residuals(lambda X, Y, w: lambda T: ((w @ Y) / w.sum()).repeat(len(T), 1), X, Y, w, parts).square()
    share = w / w.sum()
    torch.testing.assert_close(share @ mean, constant)
    return X, Y, w, parts, mean, share


def test_the_constant_stays_for_half_a_standard_error():
    X, Y, w, parts, squares, share = noise()
    shift = torch.from_numpy(np.where(np.arange(40) % 2, 1.0, -1.0))[:, None] * squares.min() / 4
    shift -= share @ shift
    error = (share.square() @ shift.square()).sqrt()
    for times, name in ((0.4, "constant"), (0.6, "expansion")):
        gain = shift + times * error
        found = choose((squares - gain).sqrt(), X, Y, w, iter(parts))
        assert found.names == [name]
        torch.testing.assert_close(found.errors["expansion"], share @ (squares - gain))


def test_a_plane_gives_way_to_an_expansion_that_is_hardly_better():
    X, Y, w, parts, *_ = noise()
    Y = Y + 3 * X[:, :1]
    residuals = choose(torch.full_like(Y, 100.0), X, Y, w, parts).residuals  # of the plane
    squares, share = residuals.square(), w / w.sum()
    shift = torch.from_numpy(np.where(np.arange(40) % 2, 1.0, -1.0))[:, None] * squares.min() / 4
    shift -= share @ shift
    gain = 0.1 * (share.square() @ shift.square()).sqrt()
    for better, name in ((-gain, "plane"), (gain, "expansion")):
        assert choose((squares - shift - better).sqrt(), X, Y, w, parts).names == [name]


def test_three_quarters_of_the_rows_outvote_the_mean():
    X, Y, _, parts, *_ = noise()
    w = torch.ones(40).double()
    constant = left_out_residuals(lambda X, Y, w: lambda T: Y.mean(0).repeat(len(T), 1), X, Y, w, parts).square()
    for closer, name in ((29, "constant"), (30, "expansion")):
        squares = constant + 100.0  # worse by far
        squares[:closer] = constant[:closer] / 2
        assert choose(squares.sqrt(), X, Y, w, parts).names == [name]


def test_each_output_has_its_own_choice_and_its_own_numbers():
    X, Y, w = table(60, 2, 4, seed=1)
    Y[:, 1] = X[:, 0] + 0.01 * Y[:, 1]
    Y[:, 3] = 0.1
    parts = list(left_out_parts(60))
    residuals = torch.full_like(Y, 3.0)
    residuals[:, 2] = 1e-3
    found = choose(residuals, X, Y, w, parts)
    assert found.names == ["constant", "plane", "expansion", "constant"]
    assert (found.slopes[[0, 2, 3]] == 0).all() and found.slopes[1, 0] > 0.9
    torch.testing.assert_close(found.intercepts[[0, 3]], ((w @ Y) / w.sum())[[0, 3]])
    assert found.intercepts[2] == 0
    assert torch.equal(found.residuals[:, 2], residuals[:, 2])
    means = left_out_residuals(lambda X, Y, w: lambda T: ((w @ Y) / w.sum()).repeat(len(T), 1), X, Y, w, parts)
    torch.testing.assert_close(found.residuals[:, [0, 3]], means[:, [0, 3]])
    no_planes = choose(residuals, X, Y, w, parts, planes=False)
    assert set(no_planes.errors) == {"constant", "expansion"} and "plane" not in no_planes.names
    assert (choose(residuals, X, Y, w, parts, fit_intercept=False).intercepts[[0, 3]] == 0).all()


@pytest.mark.parametrize("value", [0.1, 1 / 3, -7.7, 1e10 / 3])
def test_rounding_does_not_choose(value):
    X, _, w = table(40, 2)
    Y = torch.full((40, 1), value).double()
    parts = list(left_out_parts(40))
    wrong_digit = Y * 1e-15
    for residuals in (0 * Y, wrong_digit):
        assert choose(residuals, X, Y, w, parts).names == ["constant"]


class Line(BaseEstimator):
    def __init__(self, n_folds="auto", shift=0.0, verbose=False):
        self.n_folds, self.shift, self.verbose = n_folds, shift, verbose

    def fit(self, X, y, sample_weight=None):
        assert self.n_folds is None and not self.verbose
        self.model_ = LinearRegression().fit(X.numpy() + self.shift, y.numpy(), sample_weight.numpy())
        return self

    def predict(self, X):
        return torch.from_numpy(self.model_.predict(X.numpy() + self.shift))


@pytest.mark.parametrize("n_folds", ["auto", 3])
@pytest.mark.parametrize("one", [True, False])
def test_judge_is_parts_then_residuals_then_choice(n_folds, one):
    X, Y, w = table(60, 3, 1 if one else 2)
    Y = Y + (X[:, :1] * 4).cos() if one else Y
    units, order = [2.0**400, 1.0][: Y.shape[1]], np.random.default_rng(0).permutation(60)
    model, U = Line(n_folds, verbose=True), 3 * X
    found = judge(model, X, Y, w, units, one, inputs=U, order=order)
    parts = [(order[a], order[b]) for a, b in left_out_parts(60, n_folds)]
    residuals = left_out_residuals(refits(model), X, Y, w, parts)
    choice = choose(residuals, U, Y, w, parts)
    assert found.names == choice.names and torch.equal(found.slopes, choice.slopes)
    places, predictions = model._unseen
    assert places.tolist() == list(range(60))
    assert torch.equal(predictions, (Y - choice.residuals) * torch.tensor(units).double())
    assert model.chosen_ == (choice.names[0] if one else choice.names)
    for name, error in choice.errors.items():
        expected = error.numpy() * np.square(units)
        np.testing.assert_array_equal(model.errors_[name], expected[0] if one else expected)
    np.testing.assert_array_equal(model.error_, model.errors_[choice.names[0]] if one else [
        model.errors_[name][j] for j, name in enumerate(choice.names)])
    given = Line(n_folds)
    judge(given, X, Y, w, units, one, residuals=residuals, inputs=U, order=order, planes=False, fit_intercept=False)
    assert set(given.errors_) == {"constant", "expansion"}
    np.testing.assert_array_equal(given.errors_["expansion"], model.errors_["expansion"])
    np.testing.assert_allclose(given.errors_["constant"], (w @ Y**2)[0] / w.sum() * units[0] ** 2 if one else
                               (w @ Y**2).numpy() / float(w.sum()) * np.square(units))
    by_hand = Line(n_folds)
    judge(by_hand, X, Y, w, units, one, fit=refits(Line(shift=1.0)), order=order)
    np.testing.assert_allclose(by_hand.errors_["expansion"], model.errors_["expansion"])


def test_nothing_to_judge():
    X, Y, w = table(8, 2)
    for model, rows, residuals in ((Line(None), 8, "refits"), (Line(), 1, "refits"), (Line(), 8, None)):
        assert judge(model, X[:rows], Y[:rows], w[:rows], [1.0], True, residuals=residuals) is None
        assert model.chosen_ == "expansion" and np.isnan(model.error_) and model.errors_ == {}


def test_standard_deviations_of_extreme_and_still_columns():
    X, _, w = table(50, 4)
    X[:, 3] = 0.1
    scale = torch.tensor([1.0, 1e300, 1e-300, 1.0], dtype=torch.float64)
    found = standard_deviations(X * scale, w)
    expected = np.sqrt(np.cov(X.numpy().T, aweights=w.numpy(), ddof=0).diagonal())
    np.testing.assert_allclose((found / scale)[:3], expected[:3])
    assert found[3] == 0


@pytest.mark.parametrize("bad", [1, 0, -3, 2.5, "five", True, [2]])
def test_wrong_folds_are_named(bad):
    with pytest.raises((TypeError, ValueError), match="n_folds"):
        check_folds(bad)
    with pytest.raises((TypeError, ValueError), match="n_folds"):
        list(left_out_parts(10, bad))


@pytest.mark.parametrize("name", MODELS)
def test_a_target_that_is_the_same_everywhere_is_a_constant(name):
    rng = np.random.default_rng(0)
    for n, d in ((11, 1), (11, 3), (40, 3)):
        X = rng.uniform(-1, 1, (n, d))
        model = clone(MODELS[name])
        if name == "projected":
            model.set_params(n_reduced=1)
        model.fit(X, np.full(n, 3.3))
        assert model.chosen_ == "constant"
        np.testing.assert_allclose(model.predict(X), 3.3, rtol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_the_choice_for_an_output_does_not_depend_on_the_scales_of_others(name):
    rng = np.random.default_rng(0)
    X, e = rng.uniform(-1, 1, (80, 3)), rng.normal(size=80)
    Y = np.column_stack([np.full(80, 0.1), X @ [1, 2, 0] + 0.01 * e, e, np.cos(4 * X[:, 0]) + 0.001 * e])
    expected = ["constant", "plane", "constant", "expansion"]
    units = 2.0 ** np.array([0, 500, -500, -498])
    model = clone(MODELS[name])
    if name == "projected":
        model.set_params(budget=20)
    plain, scaled = (clone(model).fit(X, T) for T in (Y, Y * units))
    assert plain.chosen_ == scaled.chosen_ == expected
    if name != "projected":  # one search for all outputs weighs them by their size
        np.testing.assert_allclose(scaled.predict(X) / units, plain.predict(X), atol=1e-6)


def test_the_constant_of_srfe_is_fitted_without_the_rows_left_out():
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (20, 3)), rng.normal(size=20)
    w = rng.uniform(0.5, 2, 20)
    model = SRFERegressor(50, random_state=0).fit(X, y, w)
    np.testing.assert_allclose(model.cv_errors_[0], model.errors_["constant"], rtol=1e-12)


@pytest.mark.parametrize("surrogate", [SVR(), RandomForestRegressor(5, random_state=0)])
@pytest.mark.filterwarnings("error")
def test_a_surrogate_may_know_one_output_only(surrogate):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (60, 4))
    y = np.cos(3 * X[:, 0])
    model = ProjectedSurrogate(surrogate=surrogate, n_reduced=1, budget=4, random_state=0).fit(X, y)
    assert model.predict(X).shape == (60,)
    assert model.error_ == model.errors_[model.chosen_]


def test_active_inputs_of_an_expansion_beside_a_plane():
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (80, 5))
        signal = np.cos(4 * X[:, 0]) + 0.01 * rng.normal(size=80)
        Y = np.column_stack([signal, X[:, 3] + 0.3 * rng.normal(size=80)])
        model = clone(MODELS["adaptive"]).set_params(max_iter=30).fit(X, Y)
        assert {i for s in model.active_sets_ for i in s} <= set(model.active_inputs_.tolist())
        assert np.isclose(model.set_shares_.sum(), 1)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", [*MODELS.values(), RFMRegressor(), AutoKernelRegressor()], ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_error_is_that_of_a_single_target_where_rows_repeat(model, outputs):
    """Thirty rows, each some thirty times: the error of their means would be a thirtieth of it."""
    rng = np.random.default_rng(0)
    X = rng.integers(30, size=(900, 1)).astype(float)
    noise = np.arange(1, outputs + 1)
    y = X / 8 + noise * rng.normal(size=(900, outputs))
    model = clone(model)
    if "n_reduced" in model.get_params():
        model.set_params(n_reduced=1)
    model.fit(X, y[:, 0] if outputs == 1 else y)
    np.testing.assert_allclose(np.ravel(model.error_), noise**2, rtol=0.2)
    if hasattr(model, "chosen_"):
        assert all((np.ravel(error) > 0.8 * noise**2).all() for error in model.errors_.values())


WEIGHTED = [SRFERegressor(100, tolerance=0.7, random_state=0), HARFERegressor(60, n_folds=None, random_state=0), SparsePCE(2, n_folds=None),
            AdaptiveFeatureRegressor(60, n_frequencies=8, max_iter=10, n_folds=None, random_state=0), RFMRegressor(n_rounds=1),
            RandomFeatureRidge(alpha=1.0), RBFRegressor(20, random_state=0), KernelRidgeRegressor(alpha=1.0), StreamingRidge(1.0)]


@pytest.mark.parametrize("model", WEIGHTED, ids=lambda model: type(model).__name__)
def test_residuals_have_weighted_mean_zero(model):
    """No row is there twice: weights that are taken for ones do not pass, as they may where copies are put together."""
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(80, 2)), rng.uniform(0.05, 3, 80)
    y = X[:, 0] ** 2 + X[:, 1] + rng.normal(size=80)
    w[y > np.median(y)] /= 10
    r = y - model.fit(X, y, sample_weight=w).predict(X)
    assert abs(w @ r) < 1e-6 * (w @ abs(r)) and r.sum() > 0.05 * abs(r).sum()
