"""Intervals of indices: the formulas against slow refits and samplers, coverage as a statistic, what is refused."""

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.stats import norm, randint, triang
from scipy.stats import sobol_indices as scipy_indices
from scipy.stats import t as student
from scipy.stats import uniform
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

import sensitivity as benchmark
from rfteach.adaptive import AdaptiveFeatureRegressor
from rfteach.chaos import SparsePCE, legendre_basis
from rfteach.datasets import ishigami, sobol_g, sobol_g_moments
from rfteach.effects import _dictionary, sensitivity
from rfteach.harfe_regressor import HARFERegressor
from rfteach.sobol import sobol_indices
from rfteach.srfe import SRFERegressor

SHARES = "first", "total", "shapley"


def draw(seed, n, d=3):
    X = np.random.default_rng(seed).random((n, d))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * X[:, 1] ** 2


def slow(X, y, model, n_folds, noise, coverage=0.9):
    """(10.33) to (10.35) and (10.42) with a loop over rows, polynomials and effects: values and ends, (3, 3, d)."""
    y = y - y.mean()
    (n, d), D = X.shape, [tuple(a) for a in _dictionary(*X.shape).tolist()]
    fits = []
    for k in range(n_folds):
        m = SparsePCE(**model).set_params(bounds="unit", n_folds=None).fit(X[np.arange(n) % n_folds != k],
                                                                          y[np.arange(n) % n_folds != k])
        fits.append(dict(zip(map(tuple, m.indices_.tolist()), m.coef_)))
    zero, every = (0,) * d, sorted(set(D).union(*fits))
    phi = {a: legendre_basis(X, [a])[:, 0] for a in every}
    w = [fits[j % n_folds] for j in range(n)]
    f = np.array([sum(v * phi[a][j] for a, v in w[j].items()) for j in range(n)])
    e = y - f
    bar = {a: np.mean([w[j].get(a, 0) for j in range(n)]) for a in every}
    c = {a: np.mean(e * phi[a]) for a in D}
    s = {a: (np.mean((e * phi[a]) ** 2) - c[a] ** 2) / (n - 1) for a in D}
    Q = {a: (bar[a] + c[a]) ** 2 - s[a] for a in D}
    beyond = {a: np.mean([w[j].get(a, 0) ** 2 + 2 * w[j].get(a, 0) * e[j] * phi[a][j] for j in range(n)])
              for a in every if a not in D}
    squares = {a: sum(fit.get(a, 0) ** 2 for fit in fits) for a in beyond}
    if not any(squares.values()):
        squares = {a: bar[a] ** 2 for a in D if a != zero}
    rest = sum(v for a, v in {**Q, **beyond}.items() if a != zero)
    V = np.mean([sum(v * v for v in w[j].values()) + y[j] ** 2 - f[j] ** 2 for j in range(n)]) - Q[zero]
    V, R = (rest, 0) if noise else (V, max(V - rest, 0))
    found, e2 = [], np.mean(e * e)
    for kind, i in itertools.product(range(3), range(d)):
        def a_(alpha):
            u = [k for k in range(d) if alpha[k]]
            return (u == [i], i in u, (i in u) / max(len(u), 1))[kind]

        p = {a: v / sum(squares.values()) for a, v in squares.items()}
        mean = sum(a_(a) * v for a, v in p.items())
        J = (sum(a_(a) * v for a, v in {**Q, **beyond}.items()) + R * mean) / V
        g = [sum(a_(a) * bar[a] * phi[a][j] for a in D) + sum(a_(a) * w[j].get(a, 0) * phi[a][j] for a in beyond)
             for j in range(n)]
        whole = [sum(bar[a] * phi[a][j] for a in D if a != zero) + sum(w[j].get(a, 0) * phi[a][j] for a in beyond)
                 for j in range(n)] if noise else f - bar[zero]
        psi = 2 * e * (np.array(g) - J * np.array(whole)) - (0 if noise else J * (e * e - e2))
        square = (psi - psi.mean()) ** 2
        a2 = {a: (a_(a) - J * noise * (a != zero)) ** 2 for a in D}
        second = sum(v * 2 * e2**2 / n**2 for v in a2.values())
        third = max(sum(v * 4 * e2 / n * (Q[a] - bar[a] ** 2) for a, v in a2.items()), 0)
        last = R * R / 2 * (sum(a_(a) ** 2 * v for a, v in p.items()) - mean**2)
        freedom = 2 * square.sum() ** 2 / (np.sum(square**2) - square.sum() ** 2 / n)
        sigma = math.sqrt(square.sum() / n / (n - 1) + second + third + last) / V
        t, kappa, start = student.ppf((1 + coverage) / 2, max(freedom, 3)), 4 * e2 / n / V, min(max(J, 0), 1)
        kappa *= 1 - 2 * start
        found.append((J, *np.sort(np.roots([1, -t * t * kappa, -t * t * sigma**2]).real) + start))
    return np.array(found).T.reshape(3, 3, d)


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("model", [{"degree": (2, 2)}, {"degree": (6, 5)}, {"degree": 1, "max_interaction": 1}])
def test_the_formulas_are_those_of_slow_refits(model, noise):
    X, y = draw(0, 36, 2 + (model["degree"] == 1)) if model["degree"] == 1 else draw(0, 36)
    y = y + noise * 0.1 * np.random.default_rng(1).normal(size=len(y))
    found = sensitivity(X, y, SparsePCE(**model), noise=noise, n_folds=4)
    J, *ends = slow(X, y, model, 4, noise)
    for k, name in enumerate(SHARES):
        np.testing.assert_allclose(getattr(found, name), J[k], atol=1e-10)
        np.testing.assert_allclose(getattr(found, f"{name}_interval"), np.clip(np.stack(ends, -1)[k], 0, 1), atol=1e-10)


def test_large_samples_agree_with_a_sampler():
    """Saltelli's estimates of the function itself, and Shapley effects by their definition from its sets."""
    box = np.tile([-np.pi, np.pi], (3, 1))
    X = np.random.default_rng(0).uniform(-np.pi, np.pi, (1500, 3))
    found = sensitivity(X, ishigami(X), SparsePCE((7, 6)), bounds=box, n_folds=5)
    law = [uniform(-np.pi, 2 * np.pi)] * 3
    exact = scipy_indices(func=lambda x: ishigami(x.T), n=2**15, dists=law, rng=np.random.default_rng(0))
    for name, value in (("first", exact.first_order), ("total", exact.total_order)):
        ends = getattr(found, f"{name}_interval")
        width = np.ptp(ends, axis=1)
        assert (width < 0.06).all() and (abs(getattr(found, name) - value) < 2 * width + 1e-3).all()
    assert abs(found.shapley.sum() - 1) < 0.01 and abs(found.variance - 13.845) < 0.6
    assert ((found.first <= found.shapley + 1e-9) | (found.first < 0.02)).all()


def test_shapley_effects_of_a_closed_form():
    """What an input adds to the variance explained, over all orders in which inputs come."""
    X, y = draw(0, 80)
    model = SparsePCE((3, 4), n_folds=None, bounds="unit").fit(X, y)
    S = sobol_indices(model)
    value = {u: sum(v for s, v in S.terms.items() if set(s) <= set(u)) for r in range(4)
             for u in itertools.combinations(range(3), r)}
    gains = np.zeros(3)
    for order in itertools.permutations(range(3)):
        for k, i in enumerate(order):
            gains[i] += (value[tuple(sorted(order[: k + 1]))] - value[tuple(sorted(order[:k]))]) / 6
    np.testing.assert_allclose(S.shapley, gains, atol=1e-12)
    assert sobol_indices(lambda X: X[:, 0], bounds=[[0, 1]], n_points=64).shapley is None


def test_intervals_cover_and_those_of_sampling_do_not():
    """90 % within four standard errors, of a function that no surrogate of this degree can learn."""
    c, designs = np.array([0.5, 2.0, 9.0]), 100
    truth, inside, alone = sobol_g_moments(c), [], []
    for seed in range(designs):
        X = np.random.default_rng(seed).random((80, 3))
        y = sobol_g(X, c)
        found = sensitivity(X, y, SparsePCE((4, 2)), n_folds=5)
        inside.append([(e[:, 0] <= v) & (v <= e[:, 1]) for e, v in
                       ((found.first_interval, truth.first), (found.total_interval, truth.total))])
        model = SparsePCE((4, 2), n_folds=None, bounds="unit").fit(X, y)
        sampled = sobol_indices(model, method="qmc", n_points=4096)
        alone.append([abs(sampled.first - truth.first) < 1.645 * sampled.first_error,
                      abs(sampled.total - truth.total) < 1.645 * sampled.total_error])
    error = math.sqrt(0.9 * 0.1 / designs)
    assert np.mean(inside, 0).min() > 0.9 - 4 * error and np.mean(inside) > 0.86
    assert np.mean(alone, 0)[:, :2].max() < 0.5 < np.mean(inside, 0).min()


def test_small_effects_are_missed_on_both_sides():
    """Estimates that are too small come with standard errors that are too small: no interval ends too early for that."""
    c, designs = np.array([0.3, 7.0, 15.0]), 100
    value, missed = sobol_g_moments(c).first[1], []
    for seed in range(designs):
        X = np.random.default_rng(seed).random((60, 3))
        low, high = sensitivity(X, sobol_g(X, c), SparsePCE((2, 1)), n_folds=5).first_interval[1]
        missed.append((value < low, high < value))
    assert np.mean(missed, 0).max() < 0.05 + 2 * math.sqrt(0.05 * 0.95 / designs)


def test_the_record_covers():
    """Each effect of an input that matters in 85 % of the designs or more, within three standard errors."""
    record = json.loads(benchmark.RESULTS.read_text(encoding="utf-8"))
    assert set(record["cases"]) == set(benchmark.CASES)
    for case, runs in record["cases"].items():
        matter = benchmark.CASES[case][1]()[1] >= 1e-3
        least = 0.85 - 3 * math.sqrt(0.85 * 0.15 / len(runs))
        for key in SHARES:
            assert benchmark.coverage(runs, key)[matter].min() > least, (case, key)
        width = np.median([run["first_half_width"] for run in runs.values()])
        assert width < 0.05
        if case.startswith("g "):
            assert np.mean(benchmark.coverage(runs, "first_sampling")[matter]) < 0.75


def test_the_benchmark_grows_its_file(tmp_path, capsys):
    file, case = tmp_path / "sensitivity.json", "Ishigami, noise 4 %, n = 100"
    benchmark.main([case, "--designs", "1", "--out", str(file)])
    kept = json.loads(file.read_text(encoding="utf-8"))
    kept["cases"][case]["0"]["first"] = "000"
    file.write_text(json.dumps(kept), encoding="utf-8")
    record = benchmark.main([case, "--designs", "1", "--out", str(file)])
    assert record["cases"][case]["0"]["first"] == "000" and "noise 4 %" in capsys.readouterr().out
    assert benchmark.RESULTS == Path(benchmark.__file__).parent / "results" / "sensitivity.json"
    with pytest.raises(SystemExit):
        benchmark.main(["no such case"])


def test_a_share_of_g_has_its_exact_value():
    """The integral over t of the benchmark, and the sum over sets."""
    first, total, shapley = benchmark.exact_g()
    V = 1 / (3 * (1 + benchmark.C) ** 2)
    sets = [u for r in range(1, 7) for u in itertools.combinations(range(6), r)]
    by_sets = [sum(np.prod(V[list(u)]) / len(u) for u in sets if i in u) for i in range(6)]
    np.testing.assert_allclose(shapley[:6], np.array(by_sets) / np.expm1(np.log1p(V).sum()), atol=1e-6)
    assert abs(shapley.sum() - 1) < 1e-12 and (first <= shapley).all() and (shapley <= total).all()


def test_laws_units_kinds_and_outputs():
    X, y = draw(1, 60)
    found, model = sensitivity(X, y, SparsePCE(2), n_folds=4), SparsePCE(2)
    Z = np.column_stack([norm.ppf(X[:, 0], 1, 2), triang.ppf(X[:, 1], 0.3), 5 * X[:, 2]])
    others = {
        "laws": sensitivity(Z, y, model, laws=[norm(1, 2), triang(0.3), uniform(0, 5)], n_folds=4),
        "one law": sensitivity(norm.ppf(X), y, model, laws=norm, n_folds=4),
        "bounds": sensitivity(2 * X - 1, y, model, bounds=[[-1, 1]] * 3, n_folds=4),
        "fitted": sensitivity(X, y, SparsePCE(2, bounds="unit").fit(X, y), n_folds=4),
        "frame": sensitivity(pd.DataFrame(X), pd.Series(y), model, n_folds=4),
        "tensor": sensitivity(torch.from_numpy(X), torch.from_numpy(y), model, n_folds=4),
        "units": sensitivity(X, 1e150 * y + 0.0, model, n_folds=4),
        "shift and sign": sensitivity(X, 7 - y, model, n_folds=4),
    }
    for name, other in others.items():
        for key in (*SHARES, *(f"{share}_interval" for share in SHARES)):
            np.testing.assert_allclose(getattr(other, key), getattr(found, key), atol=1e-8, err_msg=f"{name}, {key}")
        unit = 1e300 if name == "units" else 1
        assert other.variance == pytest.approx(unit * found.variance, rel=1e-8), name
    two = sensitivity(X, np.column_stack([y, y**2]), model, n_folds=4)
    assert two.first.shape == (2, 3) and two.total_interval.shape == (2, 3, 2) and two.variance.shape == (2,)
    np.testing.assert_allclose(two.shapley[0], found.shapley, atol=1e-12)
    np.testing.assert_allclose(two.variance[0], found.variance, rtol=1e-12)
    wide = sensitivity(X, y, model, coverage=0.99, n_folds=4)
    assert (np.ptp(wide.first_interval, axis=1) > np.ptp(found.first_interval, axis=1)).all() and wide.coverage == 0.99
    order = [2, 0, 1]
    np.testing.assert_allclose(sensitivity(X[:, order], y, model, n_folds=4).first, found.first[order], atol=1e-8)


@pytest.mark.parametrize("ways", [{}, {"laws": uniform(0, 1)}], ids=["bounds", "laws"])
def test_rounding_may_leave_the_range(ways):
    """By less than a millionth of it; such a point counts as at the end."""
    X, y = draw(0, 60)
    X[3, 0], X[4, 1] = 1 + 5e-7, -5e-7
    found, clipped = (sensitivity(Z, y, n_folds=4, **ways) for Z in (X, X.clip(0, 1)))
    np.testing.assert_array_equal(found.total_interval, clipped.total_interval)
    with pytest.raises(ValueError, match="input 0 of X leaves its bounds"):
        sensitivity(X + 5e-6 * (X > 1), y, n_folds=4, **ways)


def test_an_input_has_no_more_polynomials_than_a_third_of_the_rows():
    for n, d in itertools.product((20, 60, 200, 1000), (2, 3, 10)):
        assert (_dictionary(n, d) > 0).sum(0).max() <= n / 3


def test_constants_and_noise_have_no_shares():
    X = np.random.default_rng(0).random((60, 2))
    found = sensitivity(X, np.full(60, 0.1))
    assert found.variance == 0 and (found.first == 0).all() and (found.total_interval == [0, 1]).all()
    noise = sensitivity(X, np.random.default_rng(1).normal(size=60), noise=True)
    assert np.isfinite(noise.first).all() and (noise.first_interval[:, 0] == 0).all()
    assert (np.ptp(noise.first_interval, axis=1) > 0.1).all()
    assert sensitivity(X[:, :1], X[:, 0] ** 2).first_interval.tolist()[0][1] == 1


def test_waves_that_are_long_beside_the_bounds_are_sampled():
    """Their coefficients are of size 1e5 and cancel: in closed form rounding is more than the variance on a small box, and little of it on a large one."""
    X = np.random.default_rng(0).random((200, 2))
    model = HARFERegressor(bandwidth=100.0, random_state=0).fit(X, np.exp(0.5 * X[:, 0] + X[:, 1]))
    for half, method in ((0.5, "analytic"), (5e-4, "qmc")):
        box = [[0.5 - half, 0.5 + half]] * 2
        found, points = sobol_indices(model, bounds=box), sobol_indices(model, bounds=box, method="qmc", random_state=1)
        assert found.method == method
        np.testing.assert_allclose(found.first, points.first, atol=2e-3)
        assert found.variance == pytest.approx(points.variance, rel=2e-3)
    with pytest.raises(ValueError, match="so long beside the bounds or laws that they cancel"):
        sobol_indices(model, bounds=box, method="analytic")
    assert sobol_indices(model, bounds=[[0.5, 0.5]] * 2, method="analytic").variance == 0
    for bandwidth, atol in ((20.0, 0.002), (100.0, 0.004), (500.0, 0.02)):
        model = HARFERegressor(bandwidth=bandwidth, random_state=0).fit(X, np.exp(0.5 * X[:, 0] + X[:, 1]))
        np.testing.assert_allclose(model.interaction_strengths(), [[0.19, 0.016], [0.016, 0.794]], atol=atol)
        assert model.active_inputs_.tolist() == [0, 1]


@pytest.mark.parametrize("shape", [(), (2,)])
def test_copies_of_a_point_are_one_point(shape):
    """With the mean of their values: replicates would be in the rows that are fitted and in those that are left out."""
    X = np.random.default_rng(0).random((60, 3))
    y = np.sin(9 * X[:, 0]) + 3 * X[:, 1] ** 2 * np.sin(7 * X[:, 2])
    y = y[:, None] * np.ones(shape) if shape else y
    once = sensitivity(X, y)
    again = np.r_[np.arange(60), np.arange(0, 60, 2), np.arange(0, 60, 3)]
    for off in (0.0, 0.2):  # from their mean, where there are two
        twice = np.isin(again, np.flatnonzero(np.bincount(again) == 2))
        sign = np.where(np.arange(len(again)) < 60, 1, -1) * twice
        found = sensitivity(X[again], (y[again].T + off * sign).T)
        np.testing.assert_allclose(found.total, once.total, atol=0.06)
        assert np.ptp(found.total_interval, -1).mean() > 0.5 * np.ptp(once.total_interval, -1).mean()
    with pytest.raises(ValueError, match="20 rows that differ, got 19"):
        sensitivity(np.tile(X[:19], (2, 1)), np.r_[y[:19], y[:19]])


def test_distributions_of_scipys_new_kind():
    X, y = np.random.default_rng(0).normal(1, 2, (60, 2)), np.arange(60)
    new, old = sensitivity(X, X @ [1, 2], laws=stats.Normal(mu=1.0, sigma=2.0)), sensitivity(X, X @ [1, 2], laws=norm(1, 2))
    np.testing.assert_allclose(new.total_interval, old.total_interval, atol=1e-9)
    with pytest.raises(ValueError, match="laws must have densities"):
        sensitivity(y[:, None], y, laws=stats.make_distribution(randint)(low=0, high=60))
    with pytest.raises(TypeError, match="laws must be a distribution with a method ppf, as .* got StandardNormal"):
        SparsePCE(laws=stats.Normal()).fit(X, y)


def test_rows_of_other_laws_are_refused():
    rng = np.random.default_rng(0)
    U = rng.random((200, 3))
    y = U.sum(1)
    with pytest.raises(ValueError, match="inputs 0 and 2 of X are not independent: .*degree 1 and 1"):
        sensitivity(np.column_stack([U[:, :2], np.clip(U[:, 0] + 0.02 * rng.normal(size=200), 0, 1)]), y)
    with pytest.raises(ValueError, match="are not independent: .*degree 2 and 1|are not independent: .*degree 1 and 2"):
        sensitivity(np.column_stack([U[:, 0], abs(2 * U[:, 0] - 1), U[:, 2]]), y)
    with pytest.raises(ValueError, match="input 1 of X is not uniform: its polynomial of degree 1 .* bounds"):
        sensitivity(U * [1, 0.5, 1], y)
    with pytest.raises(ValueError, match="input 2 of X is not uniform: its polynomial of degree 2 .* laws"):
        sensitivity(np.column_stack([U[:, :2], norm.cdf(0.2 * norm.ppf(U[:, 2]))]), y)
    false = 0
    for seed in range(100):
        X = np.random.default_rng(seed).random((25, 6))
        try:
            sensitivity(X, X[:, 0], SparsePCE(1, max_interaction=1), n_folds=2)
        except ValueError:
            false += 1
    assert false == 0


@pytest.mark.parametrize("call, words", [
    (lambda X, y: sensitivity(X, y, LinearRegression()), "model must be a SparsePCE, got LinearRegression"),
    (lambda X, y: sensitivity(X, y, noise=0.1), "noise must be True or False, got 0.1"),
    (lambda X, y: sensitivity(X, y[:-1]), "as many rows"),
    (lambda X, y: sensitivity(X[:19], y[:19]), "at least 2 n_folds = 20 rows that differ, got 19"),
    (lambda X, y: sensitivity(X, y, coverage=1.0), "coverage"),
    (lambda X, y: sensitivity(X, y, n_folds=1), "n_folds"),
    (lambda X, y: sensitivity(2 * X, y), "input 0 of X leaves its bounds: it is in"),
    (lambda X, y: sensitivity(X, y, laws=[norm] * 2), "one for each of 3 inputs"),
    (lambda X, y: sensitivity(X, y, laws=[1, 2, 3]), "a method cdf"),
    (lambda X, y: sensitivity(X, y, laws=[norm, randint(0, 5), norm]), "laws must have densities"),
    (lambda X, y: sensitivity(X, y, laws=norm, bounds=[[0, 1]] * 3), "must not both be given"),
    (lambda X, y: sensitivity(np.where(X == X[3], -9, X), y, laws=uniform(0, 1)), r"input 0 of X leaves its bounds: it is in \[-9,"),
    (lambda X, y: sensitivity(np.where(X == X[3], 1e6 - 0.9, 1e6 + X), y, laws=uniform(1e6, 1)), "input 0 of X leaves its bounds"),
    (lambda X, y: sensitivity(X, y, bounds=[[0, 1], [2, 2], [0, 1]]), "bounds must have low < high, got 2 twice for input 1"),
    (lambda X, y: sensitivity(X, y, bounds=[[0, 1]]), r"must have shape \(3, 2\)"),
    (lambda X, y: sensitivity(X, np.where(y > 1, np.nan, y)), "y contains NaN"),
])
def test_wrong_arguments_are_named(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call(*draw(0, 60))


@pytest.mark.parametrize("model", [HARFERegressor(200, random_state=0), AdaptiveFeatureRegressor(200, n_folds=None, random_state=0)],
                         ids=["harfe", "adaptive"])
def test_waves_that_end_have_no_closed_form(model):
    """Beyond the reach of the waves the closed form is not of what is predicted: points are, and are within their errors of it inside."""
    X = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    model = clone(model).fit(X, np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 2 + X[:, 0] * X[:, 1])
    near, far = [[-1.4, 1.4]] * 2, [[-4.0, 4.0]] * 2
    assert sobol_indices(model, bounds=near).method == "analytic" and sobol_indices(model, bounds=far).method == "qmc"
    exact, points = sobol_indices(model, bounds=near), sobol_indices(model, bounds=near, method="qmc", random_state=0)
    np.testing.assert_allclose(exact.total, points.total, atol=0.02)
    with pytest.raises(ValueError, match="its waves end at reach_, short of the bounds or the law of input 0"):
        sobol_indices(model, bounds=far, method="analytic")
    assert sobol_indices(model, laws=[norm(0, 0.4)] * 2).method == "analytic"
    assert sobol_indices(model, laws=[norm(0, 1.0)] * 2).method == "qmc"


def square(n=80):
    X = np.random.default_rng(0).uniform(-(3**0.5), 3**0.5, (n, 2))
    return X, X[:, 0] + X[:, 0] ** 2 + X[:, 1]


def test_polynomials_for_other_laws_than_asked_for_have_no_closed_form():
    """Of a box, under normal laws; under normal laws, on a box of the same mean and variance: polynomials of degree one alone agree."""
    X, y = square()
    box, normal = stats.uniform(-(3**0.5), 2 * 3**0.5), stats.norm()
    on_box = SparsePCE(3, bounds=[[-(3**0.5), 3**0.5]] * 2, n_folds=None).fit(X, y)
    on_line = SparsePCE(3, laws=[normal] * 2, n_folds=None).fit(X, y)
    for model, own, other in ((on_box, box, normal), (on_line, normal, box)):
        assert sobol_indices(model, laws=[own] * 2).method == "analytic"
        assert sobol_indices(model, laws=[other] * 2).method == "qmc"


def test_waves_that_end_at_one_side_have_no_closed_form():
    X, y = square()
    model = SRFERegressor(60, tolerance=0.1, random_state=0).fit(X, y)
    for wide in ([-2, 5], [-5, 2], [-5, 5]):
        assert sobol_indices(model, bounds=[[-1, 1], wide]).method == "qmc"
    assert sobol_indices(model, bounds=[[-1, 1], [-1, 1]]).method == "analytic"
