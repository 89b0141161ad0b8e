"""Which kernel: the race against slow fits, what must not matter, tables as they come, edges, the estimators' contract."""

import pickle
from dataclasses import replace
from functools import partial

import matplotlib.pyplot
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, make_friedman1
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import check_estimator

import rfteach.auto
from rfteach import race
from rfteach.arrays import memory_budget
from rfteach.auto import AutoKernelClassifier, AutoKernelRegressor
from rfteach.averaging import combine, mean_of_others
from rfteach.columns import TableEncoder
from rfteach.intervals import calibrate, smoothed
from rfteach.race import (FAMILIES, Candidate, Metric, Rows, constant_left_out, descend, in_second_round, log_evidence, plane,
                          plane_left_out)

matplotlib.use("Agg")
BOTH = [AutoKernelRegressor, AutoKernelClassifier]
QUICK = dict(time_budget=1e-9)  # one candidate, whatever the clock says


ALL_METRICS = {"test_a_learned_metric_pays_for_what_it_fits", "test_the_error_is_honest", "test_report_plot_pickle_clone",
               "test_few_rows_of_a_class"}


@pytest.fixture(autouse=True)
def few_metrics(request, monkeypatch):
    """Learning five metrics takes seconds: most of the tests do without four of them."""
    if request.function.__name__ not in ALL_METRICS:
        only = {name: race.METRICS[name] for name in ("standard", "gradients")}
        monkeypatch.setattr(race, "METRICS", only)


@pytest.fixture
def small(monkeypatch):
    """A race of two rounds on few rows."""
    monkeypatch.setattr(race, "_SCOUTS", 60)
    monkeypatch.setattr(race, "_SECOND", 120)


def problem(n=150, d=3, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + noise * rng.normal(size=n)


def refit(model, X, y, X_new, w=None):
    """The prediction that the report describes, by linear systems; for metrics of the columns as they are."""
    encoder = TableEncoder().fit(X, sample_weight=w)
    Z, Z_new = encoder.transform(X), encoder.transform(X_new)
    w = np.ones(len(y)) if w is None else w / w.mean()
    mean, spread = np.average(y, weights=w), np.sqrt(np.average((y - np.average(y, weights=w)) ** 2, weights=w))
    t, out = (y - mean) / spread, 0.0
    r = model.report_
    for k, metric, bandwidth, lam, weight in zip(*(r[key] for key in ("kernel", "metric", "bandwidth", "penalty", "weight"))):
        if weight == 0 or k == "constant":
            continue
        if k == "plane":
            R = Z - w @ Z / w.sum()
            slopes = np.linalg.solve(R.T @ (w[:, None] * R) + lam * np.eye(Z.shape[1]), R.T @ (w * t))
            out = out + weight * ((Z_new - w @ Z / w.sum()) @ slopes)
            continue
        assert metric == "standard"
        kernel = FAMILIES[k][0](bandwidth=bandwidth)
        A = np.block([[kernel(Z) + lam * np.diag(1 / w), np.ones((len(t), 1))], [np.ones((1, len(t))), np.zeros((1, 1))]])
        a = np.linalg.solve(A, np.r_[t, 0])
        out = out + weight * (kernel(Z_new, Z) @ a[:-1] + a[-1])
    return mean + spread * out


# --- the race


def test_the_report_says_what_is_predicted(monkeypatch):
    X, y = problem()
    only = {"standard": race.METRICS["standard"]}
    monkeypatch.setattr(race, "METRICS", only)
    w = np.random.default_rng(1).uniform(0.2, 2, len(y))
    for target in (y, X @ [1.0, 2.0, 0.0] + 0.5 * y, np.sign(X[:, 0]) + np.floor(X[:, 1])):
        for v in (None, w):
            model = AutoKernelRegressor().fit(X, target, sample_weight=v)
            new = np.random.default_rng(2).normal(size=(20, 3))
            np.testing.assert_allclose(model.predict(new), refit(model, X, target, new, v), atol=1e-4)


def test_descent_ends_where_neighbours_are_worse():
    X, y = problem(80)
    rows = race.Rows(torch.from_numpy(X), torch.from_numpy(y)[:, None], torch.ones(80).double())
    for family in FAMILIES:
        found = descend(family, "standard", rows.Z, rows, 1.0, lambda: True)
        limit = 2.0**6 * race._distance(rows.Z, family)
        for factor in (0.5, 2.0) if found.bandwidth < limit else (0.5,):
            other = race.by_path(Candidate(family, bandwidth=factor * found.bandwidth), rows.Z, rows)
            assert other.error > found.error * (1 - 2e-3)


def test_a_learned_metric_pays_for_what_it_fits():
    """Pure noise in many inputs: bandwidths for each, learned by leave-one-out, must not look better than nothing."""
    errors, moved = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(120, 15)), rng.normal(size=120)
        model = AutoKernelRegressor().fit(X, y)
        errors.append(model.error_ / y.var())
        moved.append(np.var(model.predict(rng.normal(size=(200, 15)))))
    assert np.mean(errors) > 0.9 and np.mean(moved) < 0.1


@pytest.mark.parametrize("n, d", [(60, 3), (300, 130)])
def test_relevance_is_that_of_one_input_after_the_other(n, d, monkeypatch):
    X = pd.DataFrame(np.random.default_rng(0).random((n, d))).assign(word=np.resize(["a", "b", "c"], n))
    X.columns = X.columns.astype(str)
    y = X["0"] + 0.3 * (X.word == "a") + X["1"] * X["2"]
    model = AutoKernelRegressor(random_state=0).fit(X, y)
    seen, whole = [], model._predict
    monkeypatch.setattr(model, "_predict", lambda Z, like: seen.append(len(Z)) or whole(Z, like))
    rows = Rows(torch.from_numpy(model.table_.transform(X)), torch.zeros(n, 1).double(), torch.ones(n).double())
    found = model._relevance(rows)
    assert len(seen) <= 3 + d / 5  # calls
    half = max(20, min(400, 20_000 // (d + 1)))
    shifts = range(1, min(n, 2 + half // n))
    Z = rows.Z
    A, B = (Z[:half], Z[half:2 * half]) if n >= 2 * half else (
        Z.repeat(len(shifts), 1), torch.cat([Z.roll(-s, 0) for s in shifts]))
    spread = float(whole(Z[:2 * half], None).var(0).sum())
    for j in range(d + 1):
        changed, own = A.clone(), np.flatnonzero(model.table_.inputs_ == j)
        changed[:, own] = B[:, own]
        expected = float((whole(A, None) - whole(changed, None)).square().sum(1).mean()) / (2 * spread)
        assert found[j] == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_relevance_of_many_inputs_fits_the_budget(monkeypatch):
    rng, sizes = np.random.default_rng(0), []
    model = AutoKernelRegressor(random_state=0).fit(rng.random((40, 50)), rng.random(40))
    monkeypatch.setattr(model, "_predict", lambda Z, like, found=model._predict: sizes.append(Z.numel()) or found(Z, like))
    rows = Rows(torch.from_numpy(rng.random((40, 50))), torch.zeros(40, 1).double(), torch.ones(40).double())
    with memory_budget(1):
        model._relevance(rows)
    assert max(sizes) == sizes[0] < 50 * 500  # a single input at a time
    model._relevance(rows)
    assert max(sizes) > 5 * sizes[0]


def test_two_rounds(small):
    X, y = problem(200)
    model = AutoKernelRegressor().fit(X, y)
    assert set(model.report_["rows"]) == {60, 120}
    assert not model.report_["weight"][model.report_["rows"] == 60].any() and model.n_rows_ == 200
    assert (np.diff(model.report_["error"][model.report_["rows"] == 120]) >= 0).all()


def test_the_error_is_honest():
    ratios = []
    for seed in range(4):
        X, y = make_friedman1(120, noise=1.0, random_state=seed)
        model = AutoKernelRegressor().fit(X, y)
        X_new, y_new = make_friedman1(2000, noise=1.0, random_state=100 + seed)
        ratios.append(np.mean((model.predict(X_new) - y_new) ** 2) / model.error_)
    error = np.std(ratios) / 4**0.5
    assert abs(np.mean(ratios) - 1) < 0.15 + 3 * error and error < 0.15


def test_all_rows_in_double_precision():
    """A wide smooth kernel with a penalty of .01: single precision would lose the second digit."""
    X, y = problem(2600, noise=0.5)
    rows = race.Rows(torch.from_numpy(X), torch.from_numpy(y)[:, None], torch.ones(2600).double())
    kernel = FAMILIES["cauchy"][0](bandwidth=3.0)
    _, coef, intercept, _ = race.solve(kernel, rows.Z, rows, 0.011, 1e9, 0)
    values = kernel(X) @ coef.numpy() + intercept.numpy()
    np.testing.assert_allclose(values + 0.011 * coef.numpy(), y[:, None], atol=1e-7)
    np.testing.assert_allclose(coef.sum(), 0, atol=1e-7)


@pytest.mark.parametrize("verdict, direct, factor", [(False, 1000, 1.0), (True, 1000, 0.5), (True, 300, 1.0)])
def test_all_rows_may_halve_the_bandwidths(monkeypatch, verdict, direct, factor):
    """Of all kernels in use, where the first one predicts the last rows better by it; not beyond direct solves."""
    for name, value in (("_SCOUTS", 60), ("_SECOND", 90), ("_LAST", 100), ("_DIRECT", direct), ("better", lambda gain, w: verdict),
                        ("METRICS", {"standard": race.METRICS["standard"]})):
        monkeypatch.setattr(rfteach.auto if name == "_LAST" else race, name, value)
    X = np.random.default_rng(1).uniform(-1, 1, (400, 1))
    model = AutoKernelRegressor().fit(X, np.sin(6 * X[:, 0]))
    kernels = [m.kernel.bandwidth for m in model.members_ if m.kernel is not None]
    raced = model.report_["bandwidth"][(model.report_["weight"] > 0) & np.isfinite(model.report_["bandwidth"])]
    np.testing.assert_allclose(np.sort(kernels), factor * np.sort(raced))
    assert len(kernels) > 1 and model.score(X, np.sin(6 * X[:, 0])) > 0.999


@pytest.mark.parametrize("direct, iterated", [(1000, 2000), (50, 1000), (50, 60)])
def test_what_is_said_of_the_last_rows_is_said_without_them(monkeypatch, direct, iterated):
    """Leaving each out where there is a factor, and all of them where there is none; in the mean of a plane and a kernel."""
    monkeypatch.setattr(race, "_DIRECT", direct)
    monkeypatch.setattr(race, "_ITERATED", iterated)
    rng = np.random.default_rng(0)
    Z, Y, w = (torch.from_numpy(T) for T in (rng.normal(size=(150, 3)), rng.normal(size=(150, 2)), rng.uniform(0.5, 2, 150)))
    rows, kernel = race.Rows(Z, Y, w), FAMILIES["laplacian"][0](bandwidth=3.0)
    fit = lambda rows, last=0: race.solve(kernel, rows.Z, rows, 0.3, 1e9, last)
    values = lambda found, Z: kernel(Z.numpy(), found[0].numpy()) @ found[1].numpy() + found[2].numpy()
    found = fit(rows, 20)
    np.testing.assert_allclose(values(found, Z), values(fit(rows if iterated > 100 else rows.first(130)), Z), atol=0.02)
    if direct > 150:
        for i in range(130, 150):
            others = torch.arange(150) != i
            refit = fit(race.Rows(Z[others], Y[others], w[others]))
            np.testing.assert_allclose(found[3][i - 130], values(refit, Z[[i]])[0], atol=1e-9)
            slopes, b, _ = race.plane(race.Rows(Z[others], Y[others], w[others]), 0.3, 0)
            np.testing.assert_allclose(race.plane(rows, 0.3, 20)[2][i - 130], Z[i] @ slopes + b, atol=1e-9)
    else:
        np.testing.assert_allclose(found[3], values(fit(rows.first(130)), Z[130:]), atol=0.02)


@pytest.mark.parametrize("n", [150, 1100])
def test_intervals_cover(monkeypatch, n):
    """Of noise that grows, from leave-one-out predictions of the choice, and from the last rows of the final fits."""
    monkeypatch.setattr(race, "_SECOND", 800)
    monkeypatch.setattr(rfteach.auto, "_LAST", 250)
    shares, widths = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (n + 2000, 3))
        y = np.sin(3 * X[:, 0]) + X[:, 1] + (0.05 + 0.5 * X[:, 2] ** 2) * rng.normal(size=n + 2000)
        model = AutoKernelRegressor().fit(X[:n], y[:n])
        low, high = model.predict_interval(X[n:], 0.9).T
        shares.append(np.mean((low <= y[n:]) & (y[n:] <= high)))
        still = abs(X[n:, 2]) < 0.3
        widths.append((high - low)[~still].mean() / (high - low)[still].mean())
        assert len(model.left_out_.w) == (150 if n == 150 else 250)
    assert abs(np.mean(shares) - 0.9) < 4 * np.std(shares) / 2 + 0.01 and np.mean(widths) > 1.2


@pytest.mark.parametrize("direct, iterated", [(50, 1000), (50, 60)])
def test_the_other_solvers_agree(monkeypatch, direct, iterated):
    X, y = problem(150)
    right = AutoKernelRegressor().fit(X, y)
    monkeypatch.setattr(race, "_DIRECT", direct)
    monkeypatch.setattr(race, "_ITERATED", iterated)
    other = AutoKernelRegressor().fit(X, y)
    assert other.report_["weight"].tolist() == right.report_["weight"].tolist()
    assert np.abs(other.predict(X) - right.predict(X)).max() < 0.05  # its penalty has a floor


def test_less_time_fewer_rows(monkeypatch, small):
    X, y = problem(400)
    monkeypatch.setattr(rfteach.auto, "work", lambda n: 1e30)
    model = AutoKernelRegressor(time_budget=1e6).fit(X, y)
    assert model.n_rows_ == 120
    assert AutoKernelRegressor(**QUICK).fit(X, y).report_["kernel"].tolist()[:1] != []


# --- what must not matter


@pytest.mark.parametrize("estimator", BOTH)
def test_order_copies_weights_and_units(estimator):
    X, y = problem(90)
    y = y > 0 if estimator is AutoKernelClassifier else y
    of = lambda model, A=X: model.decision_function(A) if estimator is AutoKernelClassifier else model.predict(A)
    right = of(estimator().fit(X, y))
    order = np.random.default_rng(0).permutation(90)
    np.testing.assert_allclose(of(estimator().fit(X[order], y[order])), right, atol=1e-5)
    twice = np.repeat(np.arange(90), 1 + np.arange(90) % 2)
    weighted = of(estimator().fit(X, y, sample_weight=1.0 + np.arange(90) % 2))
    np.testing.assert_allclose(of(estimator().fit(X[twice], y[twice])), weighted, atol=1e-5)
    padded = np.r_[X, 100 + X[:5]], np.r_[y, y[:5]], np.r_[np.ones(90), np.zeros(5)]
    np.testing.assert_allclose(of(estimator().fit(padded[0], padded[1], sample_weight=padded[2])), right, atol=1e-5)
    np.testing.assert_allclose(of(estimator().fit(8 * X + 1, y), 8 * X + 1), right, atol=1e-4)


def test_units_of_the_targets():
    X, y = problem(90)
    right = AutoKernelRegressor().fit(X, y)
    other = AutoKernelRegressor().fit(X, 1e6 * y - 3e6)
    np.testing.assert_allclose(other.predict(X), 1e6 * right.predict(X) - 3e6, rtol=1e-4, atol=10)
    np.testing.assert_allclose(other.error_, 1e12 * right.error_, rtol=1e-2)


# --- tables as people have them


def table(n=120, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.normal(size=n), "kind": rng.choice(["a", "b", "c"], n), "new": rng.random(n) < 0.5,
                          "idle": pd.Categorical(rng.choice(["u", "v"], n))})
    y = frame["size"] + frame["kind"].map({"a": 0.0, "b": 2.0, "c": -1.0}) * np.where(frame["new"], 1, 0.5)
    frame.loc[rng.random(n) < 0.1, "size"] = np.nan
    return frame, y.to_numpy() + 0.05 * rng.normal(size=n)


def test_frames_with_words_and_gaps():
    frame, y = table()
    model = AutoKernelRegressor().fit(frame, y)
    new, truth = table(100, 1)
    seen = ~new["size"].isna()
    assert np.corrcoef(model.predict(new)[seen], truth[seen])[0, 1] > 0.95
    assert model.feature_names_in_.tolist() == frame.columns.tolist() and model.n_features_in_ == 4
    assert model.relevance_.argmin() == 3 and (model.relevance_ >= 0).all()
    for wrong, part in ((new.drop(columns="kind"), "kind"), (new.assign(size="big"), "size")):
        with pytest.raises(ValueError, match=part):
            model.predict(wrong)
    with pytest.raises(TypeError, match="when"):
        AutoKernelRegressor().fit(frame.assign(when=pd.Timestamp("2020-01-01")), y)


@pytest.mark.parametrize("estimator", BOTH)
def test_what_cannot_be_taken_is_named(estimator):
    X, y = problem(30)
    with pytest.raises(TypeError, match="sparse"):
        estimator().fit(sp.csr_array(X), y > 0)
    with pytest.raises(ValueError, match="x1.*infinity"):
        estimator().fit(np.where(np.arange(3) == 1, np.inf, X), y > 0)
    with pytest.raises(ValueError, match="time_budget must be"):
        estimator(time_budget=0).fit(X, y > 0)
    with pytest.raises(ValueError, match="memory must be"):
        estimator(memory=-1).fit(X, y > 0)


# --- edges


def test_tensors_and_precisions():
    X, y = problem(50)
    right = AutoKernelRegressor().fit(X, y).predict(X)
    for A in (torch.from_numpy(X), torch.from_numpy(X).requires_grad_(), X.astype(np.float32), torch.from_numpy(X).float()):
        found = AutoKernelRegressor().fit(A, y).predict(A)
        assert type(found) is (torch.Tensor if isinstance(A, torch.Tensor) else np.ndarray)
        assert found.dtype == A.dtype
        assert np.mean((torch.as_tensor(found).detach().numpy() - right) ** 2) < 0.01  # rounded rows may come in another order


@pytest.mark.parametrize("gap", [False, True])
def test_predictions_keep_gradients(gap):
    """Of numbers; a gap has none, and a column that does not vary one of zero."""
    X, y = problem(50)
    X[:, 1] = 3.0
    X[::7, 0] = np.nan if gap else 0.0
    T = torch.from_numpy(X[:4] + 0.01)
    some, model = ~T.isnan(), AutoKernelRegressor(**QUICK).fit(X, y)
    f = lambda v: model.predict(T.masked_scatter(some, v))
    v = T[some].requires_grad_()
    assert torch.autograd.gradcheck(f, v)
    np.testing.assert_allclose(f(v).detach(), model.predict(T), atol=1e-12)
    whole = T.clone().requires_grad_()
    model.predict(whole).sum().backward()
    assert whole.grad.isfinite().all() and not whole.grad[~some].any() and whole.grad[:, 0].any()
    assert torch.autograd.gradcheck(AutoKernelClassifier(**QUICK).fit(X, y > 0).decision_function, T[some[:, 0]].requires_grad_())


@pytest.mark.parametrize("n", [1, 2, 5, 12])
def test_few_rows(n):
    X, y = problem(n)
    model = AutoKernelRegressor().fit(X, y)
    assert np.isfinite(model.predict(X)).all() and len(model.relevance_) == 3
    if n < 10:
        np.testing.assert_allclose(model.predict(X), y.mean())


def test_nothing_to_learn_from():
    X, y = problem(40)
    for A, b in ((np.ones((40, 2)), y), (X, np.full(40, 3.0)), (X[:, :1] * 0, y)):
        model = AutoKernelRegressor().fit(A, b)
        np.testing.assert_allclose(model.predict(A), b.mean())
        assert not model.relevance_.any()
    one = AutoKernelRegressor().fit(X[:, :1], np.sin(2 * X[:, 0]))
    assert one.error_ < 1e-2


def test_noise_gives_the_mean():
    """A plane by least squares would be 3 % worse than the mean on average, a kernel that interpolates 100 %."""
    rng = np.random.default_rng(0)
    worse = []
    for seed in range(8):
        X, y = rng.normal(size=(100, 3)), rng.normal(size=100)
        worse.append(np.mean((AutoKernelRegressor(random_state=seed).fit(X, y).predict(rng.normal(size=(300, 3))) - y.mean()) ** 2))
    assert np.mean(worse) < 0.06 and np.median(worse) < 0.03


def test_a_plane_is_a_plane():
    X, _ = problem(100)
    rng = np.random.default_rng(1)
    y = X @ [1.0, -2.0, 0.0] + 0.5 * rng.normal(size=100)
    model = AutoKernelRegressor().fit(X, y)
    new = rng.normal(size=(300, 3))
    assert np.mean((model.predict(new) - new @ [1.0, -2.0, 0.0]) ** 2) < 0.03


def test_several_outputs():
    X, y = problem(100)
    Y = np.c_[y, 100 * X[:, 2] + y, np.full(100, 2.0)]
    model = AutoKernelRegressor().fit(X, Y)
    assert model.predict(X).shape == (100, 3) and model.score(X, Y[:, :]) > 0.9
    np.testing.assert_allclose(model.predict(X)[:, 2], 2.0)
    assert model.error_.shape == (3,) and model.error_[2] == 0
    np.testing.assert_allclose(model.error_[1] / model.error_[0], 1e4, rtol=3)


def test_report_plot_pickle_clone():
    X, y = problem(60)
    model = AutoKernelRegressor(verbose=True).fit(X, y)
    frame = pd.DataFrame(model.report_)
    assert len(frame) > 20 and set(frame["kernel"]) == {*FAMILIES, "plane", "constant"}
    ax = model.plot_report(most=5)
    assert len(ax.get_yticks()) == 5
    matplotlib.pyplot.close(ax.figure)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))
    np.testing.assert_array_equal(clone(model).fit(X, y).predict(X), model.predict(X))


@pytest.mark.parametrize("kind", ["Float64", "Float32", pd.SparseDtype(float), "float32"])
def test_columns_of_other_floats(kind):
    X, y = problem(20)
    frame = pd.DataFrame(X).astype({0: kind})
    said = AutoKernelRegressor(**QUICK).fit(frame, y).predict(frame)
    assert said.dtype == np.float64 and np.isfinite(said).all()
    said = AutoKernelRegressor(**QUICK).fit(frame[[0]], y).predict(frame[[0]])
    assert said.dtype == (np.float32 if "32" in str(kind) else np.float64)


# --- classes


def test_probabilities():
    X, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = AutoKernelClassifier().fit(X[::2], names[::2])
    p = model.predict_proba(X[1::2])
    assert p.shape == (75, 3) and model.score(X[1::2], names[1::2]) > 0.93
    np.testing.assert_allclose(p.sum(1), 1)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X[1::2])), p)
    assert (model.classes_[p.argmax(1)] == model.predict(X[1::2])).all()
    assert log_loss(names[1::2], p) < 0.2
    two = AutoKernelClassifier().fit(X[:100:2], names[:100:2])
    scores, p = two.decision_function(X[:100]), two.predict_proba(X[:100])
    np.testing.assert_allclose(np.log(p[:, 1] / p[:, 0]), scores, atol=1e-6)
    assert (two.predict(X[:100]) == two.classes_[(scores > 0).astype(int)]).all()


def test_probabilities_are_frequencies():
    """Noisy labels: among new rows with a probability around p, a part p has the label."""
    rng = np.random.default_rng(0)
    draw = lambda n: (X := rng.normal(size=(n, 2)), rng.random(n) < 1 / (1 + np.exp(-2 * X[:, 0])))
    gaps = []
    for _ in range(3):
        model = AutoKernelClassifier().fit(*draw(250))
        X, y = draw(3000)
        p = model.predict_proba(X)[:, 1]
        gaps.append([np.mean(y[part] - p[part]) for part in (p < 0.3, (p >= 0.3) & (p < 0.7), p >= 0.7)])
    assert np.abs(np.mean(gaps, 0)).max() < 0.08


@pytest.mark.parametrize("seed, n, few, apart", [(9, 200, 3, False), (0, 150, 6, True)])
def test_few_rows_of_a_class(seed, n, few, apart):
    """The inputs know nothing of a class with three rows of 200; or a class with six of 150 lies apart."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n + 2000, 5))
    y = rng.random(n + 2000) < 0.01
    y[:2] = True
    if apart:
        y[:n] = np.arange(n) < few
        X[y, :2] += 4
    assert y[:n].sum() == few
    p = AutoKernelClassifier().fit(X[:n], y[:n]).predict_proba(X[n:])[:, 1]
    ratio = log_loss(y[n:], p) / log_loss(y[n:], np.full(2000, few / n))
    assert ratio < 0.4 if apart else ratio < 1.1


def test_rows_that_count_for_bandwidths(monkeypatch):
    """All of equally frequent classes, and 4 n_1 n_2 / n of two; weights count. No metric has more bandwidths than that."""
    heard = []
    monkeypatch.setattr(rfteach.auto, "race", lambda rows, *_: (heard.append(rows.part), ({}, [], []))[1])
    X = np.random.default_rng(0).normal(size=(60, 3))
    rare = np.arange(60) < 6
    for y, w in ((np.arange(60) % 5, None), (np.arange(60) % 2, None), (rare, None), (rare, np.where(rare, 9.0, 1.0))):
        AutoKernelClassifier().fit(X, y, w)
    AutoKernelRegressor().fit(X, rare.astype(float))
    np.testing.assert_allclose(heard, [1, 1, 4 * 0.1 * 0.9, 1, 1])
    rows = Rows(torch.from_numpy(X), torch.from_numpy(np.sin(3 * X[:, :1]) + X[:, 1:2]), torch.ones(60).double())
    learn = partial(race._by_bandwidths, go_on=None, kernel="gaussian", criterion="evidence")
    whole = np.log(learn(rows).flattery)
    assert 60 * whole / 2 >= 2 and learn(replace(rows, part=whole / 2 - 0.001)) is None
    np.testing.assert_allclose(np.log(learn(replace(rows, part=0.5)).flattery), 2 * whole)


def test_calibration_is_a_minimum():
    rng = np.random.default_rng(0)
    F, w = rng.normal(size=(100, 3)), rng.uniform(0.1, 2, 100)
    t = smoothed(np.eye(3)[rng.integers(0, 3, 100)], w / w.mean())
    np.testing.assert_allclose(t.sum(1), 1)

    def loss(a, b):
        S = a * F + b
        return w @ (np.log(np.exp(S).sum(1)) - (t * S).sum(1))

    a, b = calibrate(F, t, w)
    assert a >= 0
    for _ in range(50):
        assert loss(abs(a + 0.2 * rng.normal()), b + 0.2 * rng.normal(size=3)) >= loss(a, b) - 1e-6
    assert calibrate(-np.eye(3)[t.argmax(1)], t, w)[0] < 1e-6  # values against their classes say nothing


# --- contract


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize("estimator", BOTH)
def test_scikit_learns_checks(estimator):
    check_estimator(estimator(**QUICK))


@pytest.mark.parametrize("n, d", [(12, 1), (20, 2)])
def test_few_rows_of_noise_are_not_much_worse_than_their_mean(n, d):
    """Error on new rows over that of the mean, 60 draws; with penalties by leave-one-out the means are 213 and 1.16."""
    ratios = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X, y, X_new = rng.normal(size=(n, d)), rng.normal(size=n), rng.normal(size=(500, d))
        p = AutoKernelRegressor().fit(X, y).predict(X_new)
        ratios.append((1 + np.mean(p**2)) / (1 + y.mean() ** 2))
    assert np.mean(ratios) < 1.15 and max(ratios) < 4


def test_few_rows_of_a_smooth_function_are_learned():
    """What the caution of few rows must not cost."""
    shares = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, X_new = rng.uniform(-2, 2, (15, 1)), np.linspace(-1.8, 1.8, 100)[:, None]
        p = AutoKernelRegressor().fit(X, np.sin(2 * X[:, 0])).predict(X_new)
        shares.append(np.mean((p - np.sin(2 * X_new[:, 0])) ** 2) / 0.5)
    assert np.median(shares) < 0.02


@pytest.mark.parametrize("weight", [1e10, 1e18, 1e307])
@pytest.mark.parametrize("everywhere", [True, False])
def test_weights_of_any_size(weight, everywhere):
    X, y = problem(40)
    w = np.full(40, weight)
    w[: 0 if everywhere else 39] = 1.0
    with np.errstate(all="ignore"):
        model = AutoKernelRegressor(**QUICK).fit(X, y, sample_weight=w)
        assert np.isfinite(model.predict(X)).all()
        assert np.isfinite(model.predict_interval(X)).all()
    if everywhere:
        assert np.allclose(model.predict(X), AutoKernelRegressor(**QUICK).fit(X, y).predict(X))


@pytest.mark.parametrize("levels", [2, 3, 9])
def test_few_different_rows_are_told_apart(levels):
    """Leaving out all copies of one of two rows says nothing; the means of the levels are there all the same."""
    rng = np.random.default_rng(levels)
    x = rng.integers(levels, size=600)
    mean = 3.0 * rng.permutation(levels)
    y = mean[x] + rng.normal(size=600)
    model = AutoKernelRegressor().fit(x[:, None].astype(str), y)
    said = model.predict(np.arange(levels)[:, None].astype(str))
    np.testing.assert_allclose(said, [y[x == j].mean() for j in range(levels)], atol=0.3)
    assert 0.8 < model.error_ < 1.2 and 0.8 < model.relevance_[0] < 1.2
    low, high = model.predict_interval(x[:, None].astype(str), 0.9).T
    assert 0.85 < np.mean((low <= y) & (y <= high)) < 0.95


@pytest.mark.parametrize("levels, n", [(50, 300), (30, 3000)])
def test_rows_that_repeat_are_told_apart_where_their_targets_differ(levels, n):
    """A word says nothing of another one: with all copies of each left out the mean of all would be chosen."""
    rng = np.random.default_rng(levels)
    x, mean, words = rng.integers(levels, size=n), rng.normal(size=levels), np.array([f"w{j}" for j in range(levels)])[:, None]
    model = AutoKernelRegressor().fit(words[x], mean[x] + 0.1 * rng.normal(size=n))
    known = np.unique(x)
    assert np.mean((model.predict(words[known]) - mean[known]) ** 2) < 0.02
    assert 0.009 < model.error_ < 0.03


def test_few_different_rows_of_noise_cost_little():
    added = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = rng.integers(2, size=(60, 2)), rng.normal(size=60)
        added.append(np.mean(AutoKernelRegressor().fit(X, y).predict(X) ** 2) - y.mean() ** 2)
    assert np.mean(added) < 0.05  # the means of four levels would add 3 / 60


def test_probabilities_of_few_different_rows():
    rng = np.random.default_rng(0)
    x = rng.integers(2, size=300)
    c = rng.random(300) < np.where(x, 0.9, 0.1)
    said = AutoKernelClassifier().fit(x[:, None], c).predict_proba([[0], [1]])[:, 1]
    np.testing.assert_allclose(said, [c[x == 0].mean(), c[x == 1].mean()], atol=0.08)


def test_learning_gradients_ends_with_the_time():
    rng = np.random.default_rng(0)
    rows = race.Rows(*map(torch.from_numpy, (rng.normal(size=(60, 4)), rng.normal(size=(60, 1)), np.ones(60))))
    asked = []
    assert race._by_gradients(rows, lambda: asked.append(1) or len(asked) < 3) is None
    assert len(asked) == 3


def test_single_precision_comes_back_from_a_frame():
    X, y = problem(40)
    for kind, wanted in (("float32", np.float32), ("float64", np.float64)):
        frame = pd.DataFrame(X.astype(kind), columns=list("abc")).assign(word=["u", "v"] * 20)
        assert AutoKernelRegressor(**QUICK).fit(frame, y).predict(frame).dtype == wanted


def weighted(n=15, k=2):
    rng = np.random.default_rng(0)
    return Rows(*(torch.from_numpy(T) for T in (rng.normal(size=(n, 2)), rng.normal(size=(n, k)), rng.uniform(0.1, 4, n))))


def test_the_constant_of_the_other_rows_is_weighted():
    rows = weighted()
    w, Y = rows.w.numpy(), rows.Y.numpy()
    slow = [np.average(np.delete(Y, i, 0), axis=0, weights=np.delete(w, i)) for i in range(15)]
    np.testing.assert_allclose(constant_left_out(rows).left_out, slow)


def test_the_first_rows_keep_their_part():
    few = replace(weighted(), part=0.25).first(3)
    assert len(few) == 3 and few.part == 0.25


def test_the_evidence_of_few_rows_is_weighted():
    rows = weighted()
    Z, Y, w = (T.numpy() for T in (rows.Z, rows.Y, rows.w))
    K, lams = np.exp(-0.5 * ((Z[:, None] - Z) ** 2).sum(2)), np.array([1e-2, 1.0, 30.0])
    slow = []
    for lam in lams:
        M = K + lam * np.diag(1 / w)
        R, h = np.linalg.inv(M), np.linalg.inv(M).sum()
        Q = np.trace(Y.T @ R @ Y) - np.sum((R.sum(0) @ Y) ** 2) / h
        slow.append(-0.5 * 2 * (14 * np.log(Q) + np.linalg.slogdet(M)[1] + np.log(h)))
    np.testing.assert_allclose(log_evidence(torch.from_numpy(K), rows.Y, rows.w, torch.from_numpy(lams)), slow)


def test_a_hundred_levels_of_three_rows_are_told_apart():
    rng = np.random.default_rng(0)
    level, mean = rng.integers(100, size=1300), rng.normal(size=100)
    table = pd.DataFrame({"city": [f"c{v}" for v in level]})
    y = mean[level] + 0.1 * rng.normal(size=1300)
    model = AutoKernelRegressor().fit(table[:300], y[:300])
    assert np.mean((model.predict(table[300:]) - mean[level[300:]]) ** 2) < 0.1 * mean.var()


@pytest.mark.parametrize("labels", [[0, 1], [0, 1, 1], list("aabbbbbc")])
def test_rows_that_are_all_the_same_have_the_shares_of_their_classes(labels):
    """Nobody was left out, so there is nothing to calibrate by but the shares."""
    X = np.ones((len(labels), 2))
    model = AutoKernelClassifier(random_state=0).fit(X, labels)
    p = model.predict_proba(X)
    shares = np.unique(labels, return_counts=True)[1]
    assert np.isfinite(p).all() and (p == p[0]).all()
    assert p[0].argmax() == shares.argmax() and p[0].argmin() == shares.argmin()


def test_an_average_does_not_restore_its_targets():
    """Each candidate less the mean of the other rows knows its row by one part in n - 1."""
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((100, 1))
    Y -= Y.mean()
    others = (Y.sum() - Y) / 99
    found = combine(np.stack([others, np.zeros((100, 1)), 0.3 * rng.standard_normal((100, 1))]), Y, np.ones(100))
    assert found.error > 0.8 * np.mean(Y**2) and found.weights.sum() <= 1
    w = np.where(np.arange(100) < 10, 1.0, 1e-6)  # few rows have all the weight
    others = mean_of_others(*map(torch.from_numpy, (Y, w))).numpy()
    found = combine(np.stack([others, np.zeros((100, 1)), 0.3 * rng.standard_normal((100, 1))]), Y, w)
    assert found.weights.sum() < 2


def test_an_average_of_what_shrinks_may_weigh_more_than_one():
    rng = np.random.default_rng(0)
    f = rng.standard_normal((60, 1))
    P = np.stack([0 * f, 0.3 * f + 0.05 * rng.standard_normal((60, 1)), 0.3 * f + 0.05 * rng.standard_normal((60, 1))])
    found = combine(P, f + 0.1 * rng.standard_normal((60, 1)), np.ones(60))
    assert found.error < 0.2 and 2 < found.weights.sum() < 4


def test_what_is_left_of_an_average_is_weighted_anew():
    """Two per cent of an average are no member of it."""
    rng = np.random.default_rng(0)
    f, g = rng.standard_normal((2, 400, 1))
    P, Y = np.stack([0 * f, f, 10 * g]), f + 0.1 * g + 0.3 * rng.standard_normal((400, 1))
    found, alone = combine(P, Y, np.ones(400)), combine(P[:2], Y, np.ones(400))
    assert found.weights[2] == 0 and found.weights[1] == pytest.approx(alone.weights[1], rel=1e-9)


def test_the_second_round_pays_for_a_metric_as_well():
    """A metric that was learned from all rows, and whose errors are half of what they should be."""
    rng = np.random.default_rng(0)
    Z = torch.from_numpy(rng.normal(size=(60, 2)))
    rows = Rows(Z, Z[:, :1].sin(), torch.ones(60).double())
    c = Candidate("gaussian", bandwidth=2.0, lam=0.1)
    plain, learned = (in_second_round(c, metric, rows).error for metric in (Metric(), Metric(None, 2.0, 60)))
    assert np.isclose(learned, 2 * plain)


def test_the_penalty_of_the_plane_is_that_of_weighted_errors():
    """Light rows, of another slope, have no say in it."""
    rng = np.random.default_rng(0)
    Z = torch.from_numpy(rng.normal(size=(80, 5)))
    w = torch.where(torch.arange(80) < 40, 1.0, 1e-6).double()
    Y = torch.where(w == 1, Z[:, 0], 30 * torch.from_numpy(rng.normal(size=80)))[:, None] + 0.1 * torch.from_numpy(rng.normal(size=(80, 1)))
    rows = Rows(Z, Y, w)
    found = plane_left_out(rows)
    errors = [rows.mean_square(Y - plane(rows, found.lam * s, 80)[2])[0] for s in (1.0, 0.1, 10.0)]
    assert np.isclose(errors[0], found.error) and errors[0] <= min(errors[1:])


def test_the_seed_counts():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.sin(X[:, 0]) + 0.5 * rng.normal(size=60)
    errors = [AutoKernelRegressor(random_state=seed).fit(X, y).error_ for seed in (0, 0, 1)]
    assert errors[0] == errors[1] != errors[2]
