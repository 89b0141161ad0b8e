"""Laws of the inputs: recurrences and characteristic functions against references, surrogates and indices under them."""

import itertools
import math
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.polynomial import hermite_e, laguerre
from scipy import stats
from scipy.integrate import quad
from sklearn.base import clone

from rfteach.arrays import memory_budget
from rfteach.chaos import SparsePCE
from rfteach.effects import sensitivity
from rfteach.harfe_regressor import HARFERegressor
from rfteach.laws import Law, as_laws, law_polynomials
from rfteach.modules import to_module
from rfteach.sobol import sobol_indices
from rfteach.srfe import SRFERegressor

SAMPLE = np.random.default_rng(5).gamma(2.0, size=40)
LAWS = {
    "normal": stats.norm(-1, 2), "unfrozen": stats.norm, "uniform": stats.uniform(2, 3), "exponential": stats.expon(1, 2),
    "gamma": stats.gamma(0.7, -1, 3), "chi2": stats.chi2(3), "beta": stats.beta(0.5, 3, 1, 2), "triangle": stats.triang(0.2),
    "edge": stats.triang(1.0), "truncated": stats.truncnorm(-1, 3), "Weibull": stats.weibull_min(0.7), "Gumbel": stats.gumbel_r(3, 2),
    "logistic": stats.logistic(), "far": stats.gumbel_r(1e6, 1e-3), "Poisson": stats.poisson(4), "binomial": stats.binom(12, 0.3),
    "geometric": stats.geom(0.4), "sample": SAMPLE, "small": [3.0, 1.0, 1.0, 2.0], "arcsine": stats.beta(0.5, 0.5),
}


def slow(x, w, p):
    """Polynomials by Gram and Schmidt, twice, from values at points x (m,) with weights w; (p + 1, m)."""
    u = (x - w @ x) / math.sqrt(w @ (x - w @ x) ** 2)
    P = [np.ones_like(u)]
    for _ in range(p):
        v = u * P[-1]
        for _ in range(2):
            v = v - sum((w @ (v * q)) * q for q in P)
        P.append(v / math.sqrt(w @ (v * v)))
    return np.array(P)


@pytest.mark.parametrize("name", LAWS)
def test_polynomials_are_orthonormal_and_those_of_gram_and_schmidt(name):
    law = Law(LAWS[name])
    u, w = law.points()
    p = int(np.count_nonzero(law.recurrence(7)[1]))
    assert p == (2 if name == "small" else 7)
    found = law_polynomials([law], torch.from_numpy(u[None]), 7)[:, 0].numpy()
    np.testing.assert_allclose((found * w) @ found.T, np.diag(np.arange(8) <= p), atol=2e-7)
    expected = slow(law.centre + law.scale * u if name != "far" else u, w, p)
    np.testing.assert_allclose(found[: p + 1] * np.sqrt(w), expected * np.sqrt(w), atol=2e-6)
    assert np.isclose(w.sum(), 1) and abs(w @ u) < 1e-6 and abs(w @ u**2 - 1) < 1e-6
    single = law_polynomials([law], torch.from_numpy(u[None]).float(), 7)[:, 0].numpy()
    assert single.dtype == np.float32
    np.testing.assert_allclose(single * np.sqrt(w), found * np.sqrt(w), atol=5e-5)


def test_high_degrees_of_the_normal_and_the_exponential_law():
    """NumPy's polynomials; f' of ψ_k is √k ψ_{k-1} for the normal law."""
    u = np.linspace(-4, 4, 9)
    found = law_polynomials([Law(stats.norm())], torch.from_numpy(u[None]), 40)[:, 0].numpy()
    for k in (1, 9, 40):
        exact = hermite_e.hermeval(u, np.eye(41)[k]) / math.sqrt(math.factorial(k))
        np.testing.assert_allclose(found[k], exact, rtol=1e-9, atol=1e-9 * abs(exact).max())
    found = law_polynomials([Law(stats.expon())], torch.from_numpy(u[None] + 3), 20)[:, 0].numpy()
    for k in (1, 8, 20):
        exact = (-1) ** k * laguerre.lagval(u + 4, np.eye(21)[k])
        np.testing.assert_allclose(found[k], exact, rtol=1e-8, atol=1e-9 * abs(exact).max())


def test_polynomials_against_openturns():
    ot = pytest.importorskip("openturns")
    for ours, theirs in ((stats.norm(), ot.Normal()), (stats.gamma(2.5), ot.Gamma(2.5, 1.0)), (stats.triang(0.3), ot.Triangular(0, 0.3, 1)),
                         (stats.beta(2, 3), ot.Beta(2, 3, 0, 1)), (stats.gumbel_r(), ot.Gumbel(1.0, 0.0))):
        factory, law = ot.StandardDistributionPolynomialFactory(theirs), Law(ours)
        standard = factory.getMeasure()
        x = ours.rvs(8, random_state=0)
        scale = standard.getStandardDeviation()[0] / law.scale
        z = (x - law.centre) * scale + standard.getMean()[0]
        exact = theirs.getName() != "Gumbel"  # theirs adds up rounding for a law that has no family
        p = 6 if exact else 4
        found = law_polynomials([law], torch.from_numpy(((x - law.centre) / law.scale)[None]), p)[:, 0].numpy()
        peer = np.array([[factory.build(k)(float(v)) for v in z] for k in range(p + 1)])
        peer *= np.sign(peer[:, [abs(x).argmax()]] * found[:, [abs(x).argmax()]])
        np.testing.assert_allclose(found, peer, rtol=1e-9 if exact else 1e-4, atol=1e-9 if exact else 1e-4)


@pytest.mark.parametrize("name", [name for name in LAWS if name not in ("sample", "small", "far")])
def test_characteristic_functions_against_their_definition(name):
    law, w = Law(LAWS[name]), np.array([-2.0, 0.0, 0.3, 5.0])
    found = law.characteristic(torch.from_numpy(w)).numpy()
    if hasattr(law.law, "pmf"):
        k = np.arange(0, 400)
        exact = [(law.law.pmf(k) * np.exp(1j * v * (k - law.centre) / law.scale)).sum() for v in w]
    else:
        exact = []
        for v in w:
            def wave(t):  # x as a function of an exponential number
                return np.exp(1j * v * (law.law.isf(np.exp(-t)) - law.centre) / law.scale - t)

            exact.append(quad(wave, 0, 40, limit=500, complex_func=True)[0])
    np.testing.assert_allclose(found, exact, atol=2e-6)
    pairs = law.second(torch.from_numpy(w), torch.from_numpy(w[:2]), -1)
    np.testing.assert_allclose(pairs, law.characteristic(torch.from_numpy(w[:, None] - w[:2])), atol=1e-9)


def test_a_sample_is_its_own_law():
    law, w = Law(SAMPLE), np.array([0.7, -3.0])
    exact = [np.exp(1j * v * (SAMPLE - SAMPLE.mean()) / SAMPLE.std()).mean() for v in w]
    np.testing.assert_allclose(law.characteristic(torch.from_numpy(w)), exact, atol=1e-12)
    np.testing.assert_array_equal(law.ppf((np.arange(40) + 0.5) / 40), np.sort(SAMPLE))
    again = Law(np.repeat(SAMPLE, 3))
    np.testing.assert_allclose(again.recurrence(6), law.recurrence(6), atol=1e-8)


def test_degrees_that_do_not_exist_are_zero():
    assert [np.count_nonzero(Law(law).recurrence(12)[1]) for law in (
        stats.t(5), stats.t(2.9), stats.pareto(7), [1.0, 2.0], stats.bernoulli(0.2), [4.0])] == [2, 1, 3, 1, 1, 0]
    few = Law(np.random.default_rng(0).gamma(2, size=30))
    assert 12 < np.count_nonzero(few.recurrence(40)[1]) < 30  # what three terms can evaluate


@pytest.mark.parametrize("law", [stats.norm(), SAMPLE], ids=["norm", "sample"])
def test_degrees_are_there_as_they_are_asked_for(law):
    law = Law(law)
    for p in range(1, 20):
        assert [len(numbers) for numbers in law.recurrence(p)] == [p + 1] * 2


def rows(n, seed=0):
    rng = np.random.default_rng(seed)
    return np.c_[rng.normal(2, 3, n), rng.exponential(0.5, n), rng.choice(SAMPLE, n), rng.integers(0, 2, n)]


FOUR = [stats.norm(2, 3), stats.expon(scale=0.5), SAMPLE, stats.bernoulli(0.5)]


def polynomial(X):
    return 1 + (X[:, 0] - 2) ** 2 / 9 + X[:, 1] * X[:, 3] + 0.2 * X[:, 2] * X[:, 0]


@pytest.mark.parametrize("degree", ["auto", (3, 2)])
def test_a_polynomial_is_found_again_under_its_laws(degree):
    X = rows(250)
    model = SparsePCE(degree, laws=FOUR).fit(X, polynomial(X))
    Z = rows(1000, 1)
    np.testing.assert_allclose(model.predict(Z), polynomial(Z), atol=1e-6)
    m, v = SAMPLE.mean(), SAMPLE.var()
    assert model.intercept_ == pytest.approx(1 + 1 + 0.25 + 0.4 * m)
    terms = {(0,): 2 + (0.6 * m) ** 2, (2,): 0.16 * v, (0, 2): 0.36 * v, (1,): 0.25 * 0.25, (3,): 0.25 * 0.25, (1, 3): 0.25 * 0.25}
    assert model.variance_ == pytest.approx(sum(terms.values()))
    found = sobol_indices(model)
    assert found.method == "analytic"
    for u, value in terms.items():
        assert found.terms[u] == pytest.approx(value / sum(terms.values()), abs=1e-8)
    sampled = sobol_indices(model, method="qmc", n_points=2**15)
    np.testing.assert_allclose(sampled.first, found.first, atol=0.01)
    assert model.indices_[:, 3].max() <= 1 and model.bounds_.tolist()[:2] == [[-np.inf, np.inf], [0, np.inf]]


def test_uniform_laws_are_bounds_and_units_do_not_matter():
    X = np.random.default_rng(0).random((150, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1] * X[:, 2]
    a = SparsePCE((4, 3), bounds="unit").fit(X, y)
    b = SparsePCE((4, 3), laws=stats.uniform()).fit(X, y)
    np.testing.assert_array_equal(a.indices_, b.indices_)
    np.testing.assert_allclose(a.coef_, b.coef_, atol=1e-9)
    np.testing.assert_allclose(a.predict(X), b.predict(X), atol=1e-9)
    np.testing.assert_allclose(sobol_indices(a, laws=stats.uniform()).first, sobol_indices(b).first, atol=1e-9)
    np.testing.assert_allclose(sobol_indices(b, bounds=[[0, 1]] * 3).first, sobol_indices(a).first, atol=1e-9)
    Z = stats.norm.ppf(X)
    c = SparsePCE((4, 3), laws=stats.norm).fit(Z, y)
    d = SparsePCE((4, 3), laws=stats.norm(5, 1e-3)).fit(5 + 1e-3 * Z, y)
    np.testing.assert_allclose(c.coef_, d.coef_, atol=1e-6)


def test_kinds_weights_outputs_and_copies():
    X, laws = rows(120), FOUR
    y = polynomial(X)
    model = SparsePCE((3, 2), laws=laws).fit(X, y)
    for Z in (torch.from_numpy(X), pd.DataFrame(X, columns=list("abcd"))):
        other = SparsePCE((3, 2), laws=laws).fit(Z, y)
        np.testing.assert_allclose(np.asarray(other.predict(Z)), model.predict(X), rtol=1e-9)
    single = SparsePCE((3, 2), laws=laws).fit(X.astype(np.float32), y.astype(np.float32))
    assert single.predict(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.predict(X.astype(np.float32)), y, rtol=2e-3, atol=2e-3)
    two = SparsePCE((3, 2), laws=laws).fit(X, np.c_[y, X[:, 0]])
    assert two.coef_.shape[0] == 2 and np.allclose(two.variance_[1], 9)
    w = np.random.default_rng(0).integers(0, 3, 120)
    weighted = SparsePCE((3, 2), laws=laws).fit(X, y, sample_weight=w)
    repeated = SparsePCE((3, 2), laws=laws).fit(np.repeat(X, w, axis=0), np.repeat(y, w))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-7)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(clone(model).fit(X, y).coef_, model.coef_)
    line = SparsePCE(laws=laws).fit(X, 3 * X[:, 0] - X[:, 1] + 3 * np.random.default_rng(1).normal(size=120))
    assert line.chosen_ == "plane"
    T = np.c_[np.ones(120), X]
    p = line.predict(X)
    np.testing.assert_allclose(T @ np.linalg.lstsq(T, p, rcond=None)[0], p, atol=1e-8)


def test_outside_of_the_laws():
    X = rows(80)
    model = SparsePCE(2, laws=FOUR, n_folds=None).fit(X, polynomial(X))
    Z = X.copy()
    Z[:, 1] = -1.0
    edge = Z.copy()
    edge[:, 1] = 0.0
    np.testing.assert_allclose(model.predict(Z), model.predict(edge))
    model.set_params(outside="raise")
    with pytest.raises(ValueError, match="X leaves the laws: an input is 3 standard deviations"):
        model.predict(Z)
    assert np.isfinite(model.set_params(outside="extrapolate").predict(Z)).all()
    with pytest.warns(UserWarning, match="80 of 80 rows of X leave the bounds"):
        SparsePCE(2, laws=FOUR, n_folds=None).fit(Z, polynomial(X))
    constant = SparsePCE(2, laws=[stats.norm, [3.0]], n_folds=None).fit(np.c_[X[:, 0], np.full(80, 3.0)], X[:, 0])
    assert constant.indices_[:, 1].max() == 0 and np.allclose(constant.predict(np.c_[X[:, 0], X[:, 1]]), X[:, 0])


@pytest.mark.parametrize("Estimator", [HARFERegressor, SRFERegressor])
def test_waves_under_laws_against_the_sampler(Estimator):
    rng = np.random.default_rng(0)
    laws = [stats.norm(0, 0.5), stats.gamma(3, scale=0.2), stats.triang(0.3), SAMPLE / 5]
    X = np.column_stack([stats.norm(0, 0.5).rvs(600, random_state=rng), stats.gamma(3, scale=0.2).rvs(600, random_state=rng),
                         stats.triang(0.3).rvs(600, random_state=rng), rng.choice(SAMPLE / 5, 600)])
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + X[:, 3]
    model = Estimator(400, random_state=0).fit(X, y)
    found = sobol_indices(model, laws=laws, order=2)
    assert found.method == "analytic"  # the rows are many enough for the waves to reach all but a thousandth of each law
    sampled = sobol_indices(model, laws=laws, method="qmc", n_points=2**15)
    np.testing.assert_allclose(found.mean, sampled.mean, atol=0.01)
    np.testing.assert_allclose(found.variance, sampled.variance, rtol=0.03)
    np.testing.assert_allclose(found.first, sampled.first, atol=0.015)
    np.testing.assert_allclose(found.total, sampled.total, atol=0.015)
    assert found.shapley.sum() == pytest.approx(1)
    other = sobol_indices(model)
    assert abs(other.first - found.first).max() > 0.02  # a box is another law


def test_ishigami_with_normal_inputs():
    """All of its variances by the moments of waves under the normal law."""
    a, b = 7.0, 0.1
    first = np.exp(-0.5)  # E cos x; E sin² x = (1 - e⁻²) / 2
    square = (1 - np.exp(-2)) / 2
    V1 = square * (1 + 3 * b) ** 2
    V2 = a**2 * ((3 - 4 * np.exp(-2) + np.exp(-8)) / 8 - square**2)
    V13 = square * b**2 * (105 - 9)
    found = sobol_indices(lambda X: np.sin(X[:, 0]) + a * np.sin(X[:, 1]) ** 2 + b * X[:, 2] ** 4 * np.sin(X[:, 0]),
                          laws=[stats.norm] * 3, n_points=2**16)
    V = V1 + V2 + V13
    np.testing.assert_allclose(found.first, [V1 / V, V2 / V, 0], atol=0.02)
    np.testing.assert_allclose(found.total, [(V1 + V13) / V, V2 / V, V13 / V], atol=0.03)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    f = np.sin(X[:, 0]) + a * np.sin(X[:, 1]) ** 2 + b * X[:, 2] ** 4 * np.sin(X[:, 0])
    model = SparsePCE((12, 9), laws=stats.norm, n_folds=None).fit(X, f)
    read = sobol_indices(model)
    np.testing.assert_allclose(read.first, [V1 / V, V2 / V, 0], atol=0.03)
    np.testing.assert_allclose(read.total, [(V1 + V13) / V, V2 / V, V13 / V], atol=0.03)
    assert first < 1


@pytest.mark.parametrize("call, kind, words", [
    (lambda X, y: SparsePCE(laws=[stats.norm] * 3).fit(X, y), ValueError, "one law for each of 4 inputs, got 3"),
    (lambda X, y: SparsePCE(laws="normal").fit(X, y), TypeError, "laws must be a distribution with a method ppf, as .* or a sequence, got str"),
    (lambda X, y: SparsePCE(laws=[1.0, 2.0, 3.0, 4.0]).fit(X, y), TypeError, r"laws\[0\] must be a distribution with a method ppf, as .* or a sample"),
    (lambda X, y: SparsePCE(laws=[stats.norm, stats.norm, stats.norm, []]).fit(X, y), TypeError, r"laws\[3\] must be"),
    (lambda X, y: SparsePCE(laws=[stats.norm, stats.cauchy, stats.norm, stats.norm]).fit(X, y), ValueError, r"laws\[1\] must have a finite var"),
    (lambda X, y: SparsePCE(laws=[stats.norm, stats.t(2.05), stats.norm, stats.norm]).fit(X, y), ValueError, r"laws\[1\] .* tails are too heavy"),
    (lambda X, y: SparsePCE(laws=[[1.0, np.nan]] * 4).fit(X, y), ValueError, r"laws\[0\] contains NaN"),
    (lambda X, y: SparsePCE(laws=stats.norm, bounds="unit").fit(X, y), ValueError, "bounds and laws must not both be given"),
    (lambda X, y: sobol_indices(lambda X: X[:, 0], laws=stats.norm), ValueError, "one law alone does not say how many"),
    (lambda X, y: sobol_indices(lambda X: X[:, 0], laws=[stats.norm], bounds=[[0, 1]]), ValueError, "must not both be given"),
    (lambda X, y: sobol_indices(SparsePCE(2, laws=FOUR).fit(X, y), laws=stats.norm, method="analytic"), ValueError, "under other laws"),
    (lambda X, y: sobol_indices(SparsePCE(2, laws=stats.beta(2, 2)).fit(X % 1, y), bounds=[[0, 1]] * 4, method="analytic"), ValueError,
     "under other laws"),
    (lambda X, y: as_laws(stats.norm([0, 1], [1, 2]), 2), ValueError, r"laws must be one distribution of numbers, got \(2,\)"),
    (lambda X, y: sensitivity(X, y, SparsePCE(laws=FOUR)), ValueError, "model must have laws=None"),
    (lambda X, y: to_module(SparsePCE(2, laws=FOUR).fit(X, y)), TypeError, "has no module"),
])
def test_wrong_laws_are_named(call, kind, words):
    X = rows(60)
    with pytest.raises(kind, match=words):
        call(X, polynomial(X))


def test_frequencies_too_high_for_quadrature_are_sampled():
    from types import SimpleNamespace

    model = SimpleNamespace(frequencies_=np.array([[400.0, 0.0]]), phases_=np.zeros(1), coef_=np.ones(1), intercept_=0.0,
                            activation_="cos", n_features_in_=2, predict=lambda X: np.cos(400 * X[:, 0]))
    with pytest.raises(ValueError, match=r"frequencies of input 0 are too high for the quadrature of laws\[0\]"):
        sobol_indices(model, laws=[stats.triang(0.5), stats.norm], method="analytic")
    assert sobol_indices(model, laws=[stats.triang(0.5), stats.norm], n_points=64).method == "qmc"
    assert sobol_indices(model, laws=[stats.norm, stats.triang(0.5)]).method == "analytic"


@pytest.mark.parametrize("law", [stats.beta(2, 3), [0.0, 0.5, 2.0, 2.0, 7.0]], ids=["beta", "sample"])
def test_waves_go_over_points_by_blocks(law, monkeypatch):
    law, w = Law(law), torch.linspace(-2, 2, 7, dtype=torch.float64)
    whole = law.characteristic(w), law.second(w, w[:3], 1), law.second(w, w[:3], -1)
    u, p = (torch.from_numpy(v) for v in law.points())
    waves = torch.exp(1j * torch.outer(w, u))
    exact = waves @ p.to(waves), waves * p @ waves[:3].T, waves * p @ waves[:3].conj().T
    sizes, polar = [], torch.polar
    monkeypatch.setattr(torch, "polar", lambda one, angle: sizes.append(angle.shape[1]) or polar(one, angle))
    with memory_budget(1):
        some = law.characteristic(w), law.second(w, w[:3], 1), law.second(w, w[:3], -1)
    assert max(sizes) == 1
    for a, b, c in zip(whole, some, exact):
        torch.testing.assert_close(a, c, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(b, c, rtol=1e-12, atol=1e-14)


def test_lists_of_laws():
    assert len(as_laws(stats.norm(), 3)) == 3 and [law.centre for law in as_laws([[1.0, 3.0], stats.norm(5)], None)] == [2, 5]
    one, other = Law(stats.uniform(0, 1)), Law(stats.triang(0.5))
    assert one.same(Law(stats.uniform()), 5) and not one.same(other, 3) and not one.same(Law(stats.uniform(0, 1.001)), 0)
    pressures = Law(stats.norm(2e11, 2e10)), Law(stats.uniform(2e11 - 12**0.5 * 1e10, 12**0.5 * 2e10))
    assert pressures[0].same(Law(stats.norm(2e11, 2e10 + 1)), 4) and not pressures[0].same(pressures[1], 4)
    assert not Law(stats.norm(1.7e9, 1)).same(Law(stats.norm(1.7e9 + 1.5, 1)), 3)
    assert Law(stats.norm(1.7e9, 1)).same(Law(stats.norm(1.7e9 * (1 + 2e-16), 1 + 1e-10)), 3)
    for pair in itertools.combinations(LAWS.values(), 2):
        assert not Law(pair[0]).same(Law(pair[1]), 4) or pair[0] is pair[1]


def test_a_density_that_does_not_end_is_refused():
    with pytest.raises(ValueError, match="whose integral is not found on 100 000 intervals"):
        Law(stats.vonmises(2.0)).recurrence(3)


@pytest.mark.parametrize("other", [stats.norm(3, 1), stats.norm(0, 2)])
def test_a_law_that_is_shifted_or_scaled_is_another_law(other):
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = SparsePCE(2, laws=stats.norm()).fit(X, X[:, 0] + X[:, 0] * X[:, 1])
    with pytest.raises(ValueError, match="under other laws"):
        sobol_indices(model, laws=other, method="analytic")


def test_quantiles_of_a_sample():
    np.testing.assert_array_equal(Law([4.0, 1.0, 3.0, 2.0]).ppf([0.0, 0.25, 0.2501, 0.5, 1.0]), [1, 1, 2, 2, 4])


@pytest.mark.parametrize("law, mass", [(stats.randint(0, 200_001), 0.5), (stats.rv_discrete(values=([0, 0.5, 1], [0.2, 0.5, 0.3])), 0.5)])
def test_a_discrete_law_beyond_its_grid_is_refused(law, mass):
    with pytest.raises(ValueError, match=f"whole steps within 50 000 of its median, got {mass:.1f}"):
        Law(law)
