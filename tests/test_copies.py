"""Which rows are equal: hashes of values alone, what is an observation, one row for each, what copies differ by."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from sklearn.base import clone

from rfteach.agop import RFMRegressor
from rfteach.arrays import as_csr
from rfteach.centers import CentersRegressor
from rfteach.chaos import SparsePCE
from rfteach.conjugate import KernelRidgeRegressor
from rfteach.copies import distinct_rows, merge_copies, neighbours_agree, row_groups, row_hashes, spread_of_copies
from rfteach.eigenpro import EigenProRegressor
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.features import RandomFourierFeatures
from rfteach.rbf import RBFRegressor
from rfteach.srfe import SRFERegressor
from rfteach.streaming import StreamingRidge


def test_row_hashes_depend_on_values_alone():
    """Equal rows, whatever their place, dtype, storage and sign of zero; different rows and seeds differ."""
    rows = np.random.default_rng(0).integers(-2, 3, (50, 3)).astype(float)
    h = row_hashes(torch.from_numpy(rows))
    equal = (rows[:, None] == rows).all(2)
    np.testing.assert_array_equal(h[:, None] == h, equal)
    for other in (torch.from_numpy(rows * np.where(rows == 0, -1.0, 1.0)), torch.from_numpy(rows).float(),
                  sp.csr_matrix(rows), torch.from_numpy(np.asfortranarray(rows))):
        np.testing.assert_array_equal(row_hashes(other), h)
    assert (row_hashes(torch.from_numpy(rows), seed=1) != h).all()
    assert (row_hashes(torch.from_numpy(rows[:, ::-1].copy())) != h).any()
    zero = [row_hashes(torch.zeros(1, 2), seed)[0] for seed in range(200)]
    assert len(set(zero)) == 200 and 60 < sum(z < 2**63 for z in zero) < 140


@pytest.mark.parametrize("storage", [torch.from_numpy, sp.csr_matrix])
@pytest.mark.parametrize("n_levels", [3, 6])
def test_merge_copies(storage, n_levels):
    """One position for each observation, weighted means, summed weights; order does not count."""
    rng = np.random.default_rng(0)
    X, Y, w = rng.integers(0, n_levels, (60, 2)).astype(float), rng.normal(size=(60, 2)), rng.integers(0, 4, 60) * 1.0
    by_nature = n_levels == 3
    rows, means, weights = merge_copies(storage(X), torch.from_numpy(Y), weight=w)
    different = len({tuple(x) for x in X[w > 0]})
    assert len(rows) == ((w > 0).sum() if by_nature else different) == len(means) == len(weights)
    for row, mean, weight in zip(rows, means.numpy(), weights.numpy()):
        same = np.arange(60) == row if by_nature else (X == X[row]).all(1)
        assert weight == w[same].sum()
        np.testing.assert_allclose(mean, w[same] @ Y[same] / weight, atol=1e-14)
    repeated = rng.permutation(60)
    again, same_means, _ = merge_copies(storage(X[repeated]), torch.from_numpy(Y[repeated]), weight=w[repeated])
    np.testing.assert_array_equal(X[repeated][again], X[rows])
    np.testing.assert_allclose(same_means, means, atol=1e-14)
    few = distinct_rows(storage(X), weight=w)
    assert len(few) == different and (X[distinct_rows(storage(X), seed=1)] != X[distinct_rows(storage(X))]).any()
    if not by_nature:
        np.testing.assert_array_equal(few, rows)


def noisy_words(counts, seed=0):
    """Columns of zeros and ones, and targets with noise of their own."""
    rng = np.random.default_rng(seed)
    word = np.repeat(np.arange(len(counts)), counts)
    rng.shuffle(word)
    return torch.eye(len(counts))[word], torch.from_numpy(rng.normal(size=len(counts))[word] + 0.1 * rng.normal(size=len(word)))[:, None]


def n_groups(X, Y):
    return len(row_groups(X, Y)[1])


def test_when_rows_repeat_by_nature():
    """Four times in the mean, or two where all are equally far, no more than twenty of one counted, and different targets;
    or ten times each of fewer than ten."""
    X, Y = noisy_words([4] * 25)
    pairs = torch.from_numpy(np.concatenate([np.kron(np.eye(5), np.ones((5, 1))), np.kron(np.ones((5, 1)), np.eye(5))], 1))
    two_words = lambda X: X.double() @ pairs  # some have one in common: not all equally far
    assert n_groups(two_words(X), Y) == 100 and n_groups(two_words(X[:99]), Y[:99]) == 25
    for count, expected in ((2, 50), (1, 25)):
        assert n_groups(*noisy_words([count] * 25)) == expected
    assert n_groups(*(T[:49] for T in noisy_words([2] * 25))) == 25
    assert n_groups(X, X @ torch.randn(25, 1, generator=torch.manual_seed(0))) == 25  # no noise
    for m, expected in ((9, 90), (10, 10)):
        X, _ = noisy_words([10] * m)
        means = X @ torch.randn(m, 1, generator=torch.manual_seed(0))
        assert n_groups(X, means) == expected and n_groups(X[:-1], means[:-1]) == m
    X, Y = noisy_words([1000, *[3] * 24])
    assert n_groups(two_words(X), Y) == 25  # 20 + 72 of 100
    X, Y = noisy_words([1000, *[4] * 24])
    assert n_groups(two_words(X), Y) == 20 + 96
    assert n_groups(X[:, :1] * 0, Y) == 1  # nothing differs
    X, Y = noisy_words([2] * 25)
    assert {n_groups(X, unit * Y) for unit in (1e-200, 1.0, 1e200)} == {50}
    for m in (2, 3, 4):  # columns of two values are no coordinates
        X, Y = noisy_words([5] * m)
        assert n_groups(X, Y) == 5 * m


@pytest.mark.parametrize("seed", range(3))
def test_places_stay_together(seed):
    """Two coordinates tell them apart, or one does or a plan has repeated them, and neighbours foretell them; not levels and labels."""
    rng = np.random.default_rng(seed)
    planned, by_chance = np.repeat(np.arange(64), 6), rng.integers(64, size=384)
    by_chance[:64] = np.arange(64)
    noise = 0.1 * torch.from_numpy(rng.normal(size=(384, 1)))
    stations, levels = torch.from_numpy(rng.normal(size=(64, 2))), torch.cartesian_prod(*[torch.arange(4.0)] * 3).double()
    smooth = lambda Z: Z.sum(1, keepdim=True)
    for unit in (1.0, 1e-200, 1e200):
        for plan in (planned, by_chance):
            assert n_groups(unit * stations[plan], smooth(stations)[plan] + noise) == 64
            assert n_groups(unit * stations[plan, :1], stations[plan, :1] + noise) == 64
    assert n_groups(levels[planned], smooth(levels)[planned] + noise) == 64
    assert n_groups(levels[by_chance], smooth(levels)[by_chance] + noise) == 384
    for shape in ((3, 3), (3, 4), (4, 4), (3, 6)):  # few places: chance is hardly less even than a plan
        plan = torch.cartesian_prod(*map(torch.arange, shape)).double().repeat(5, 1)
        assert n_groups(plan, smooth(plan) + noise[: len(plan)]) == len(plan) // 5
    rough = torch.from_numpy(rng.normal(size=(64, 1)))
    labels = torch.eye(64).double()
    for Z in (stations[:, :1], levels, labels):
        assert n_groups(Z[planned], rough[planned] + noise) == 384
    assert n_groups(stations[planned], rough[planned] + noise) == 64
    for Z in (labels, torch.cat([torch.zeros(64, 5000).double(), labels], 1)):
        assert n_groups(sp.csr_array(Z.numpy())[planned], rough[planned] + noise) == 384


def test_the_decision_is_the_same_in_all_units_and_orders():
    """Also where it is close: the random orders are those of ranks."""
    close = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        Z = torch.from_numpy(rng.random((30, 1)))
        X, Y = Z.repeat(5, 1), (Z + 0.7 * torch.from_numpy(rng.normal(size=(30, 1)))).repeat(5, 1)
        Y = Y + 0.1 * torch.from_numpy(rng.normal(size=(150, 1)))
        order = rng.permutation(150)
        found = {n_groups(X, Y), n_groups(3 * X + 7, 0.1 * Y), n_groups(X[order], Y[order]), len(row_groups(X, Y, seed=5)[1])}
        assert len(found) == 1
        close += found == {150}
    assert 5 < close < 35


def test_stations_do_not_make_an_estimator_interpolate():
    """Readings that repeat at forty stations: left out one by one, they had a narrow kernel swing between the stations."""
    rng = np.random.default_rng(0)
    S, T = rng.random((40, 2)), rng.random((500, 2))
    f, station = lambda X: np.sin(4 * X[:, 0]) * np.cos(4 * X[:, 1]), rng.integers(40, size=800)
    y = (f(S) + 0.3 * rng.normal(size=40))[station] + 0.3 * rng.normal(size=800)
    for model in (RBFRegressor(random_state=0), KernelRidgeRegressor()):
        assert np.mean((model.fit(S[station], y).predict(T) - f(T)) ** 2) < f(T).var()


def test_neighbours_agree_by_chance_once_in_a_hundred():
    rng = np.random.default_rng(0)
    Z, Y = rng.normal(size=(300, 20, 2)), rng.normal(size=(300, 20, 1))
    found = sum(neighbours_agree(z, torch.from_numpy(y)) for z, y in zip(Z, Y))
    assert found <= 3 + 4 * 3**0.5
    assert sum(neighbours_agree(z, torch.from_numpy(z[:, :1] + y / 4)) for z, y in zip(Z, Y)) > 250
    assert not any(neighbours_agree(np.eye(20), torch.from_numpy(y)) for y in Y)  # equally far apart, but for rounding


def test_targets_that_are_the_same_everywhere_have_no_say():
    """Beside another output they change nothing, and alone no neighbours agree in them."""
    Z, still = np.arange(30.0)[:, None], torch.full((30, 1), 0.5).double()
    Y = torch.from_numpy(np.cos(Z / 5))
    assert neighbours_agree(Z, torch.cat([Y, still], 1)) and not neighbours_agree(Z, still)


def test_the_parts_of_a_row():
    """Of even size, at most twenty, the same for rows in another order, in other units of the targets and without those of no weight."""
    X, Y = noisy_words([65, 21, 7, *[5] * 20])
    kept, rows, group = row_groups(X, Y)
    sizes = {word: sorted(np.bincount(group)[np.unique(group[X[:, word].numpy() > 0])]) for word in range(23)}
    assert sizes[0] == [3] * 15 + [4] * 5 and sizes[1] == [1] * 19 + [2] and sizes[2] == [1] * 7
    assert (X[rows[group]] == X).all()
    order = np.random.default_rng(0).permutation(len(X))
    again = row_groups(X[order], 1e-3 * Y[order])
    assert (X[order][again[1]] == X[rows]).all()
    np.testing.assert_array_equal(again[2], group[order])
    w = np.ones(len(X) + 3)
    w[-3:] = 0
    np.testing.assert_array_equal(row_groups(torch.cat([X, X[:3]]), torch.cat([Y, 9 + Y[:3]]), weight=w)[2], group)


def test_parts_of_copies_that_differ_in_weight_alone():
    """The same in any order of the rows."""
    rng = np.random.default_rng(0)
    X, Y, w = torch.eye(3).repeat(40, 1), torch.from_numpy(rng.integers(2, size=(120, 1)) * 1.0), rng.random(120)
    order = rng.permutation(120)
    found, other = merge_copies(X, Y, weight=w), merge_copies(X[order], Y[order], weight=w[order])
    assert len(found[0]) == 60
    for ours, theirs in zip(found[1:], other[1:]):
        torch.testing.assert_close(ours, theirs)


def test_parts_are_drawn_at_random():
    """Means of parts differ as those of independent draws do, not less, as where sorted targets are dealt in turn."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(100):
        X, Y = torch.eye(2)[np.repeat([0, 1], 400)], torch.from_numpy(rng.normal(size=(800, 1)))
        _, means, weights = merge_copies(X, Y)
        ratios.append(float(means.square().mean() * 20))
    assert abs(np.mean(ratios) - 1) < 4 * np.std(ratios) / 10


ONE_HOT = [RandomFeatureRidge(), StreamingRidge(), KernelRidgeRegressor(), RBFRegressor(random_state=0), RFMRegressor(), SRFERegressor(random_state=0),
           SparsePCE(), CentersRegressor(random_state=0), EigenProRegressor(random_state=0)]


@pytest.mark.parametrize("model", ONE_HOT, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("n_words, n", [(30, 180), (8, 2200), (60, 180)])
def test_estimators_learn_words(model, n_words, n):
    """With all copies of a word left out nothing is known of it, and a constant is as good as anything."""
    rng = np.random.default_rng(n_words)
    word, mean = rng.integers(n_words, size=n + 500), rng.normal(size=n_words)
    word[:n_words] = np.arange(n_words)
    X, y = np.eye(n_words)[word], mean[word] + 0.1 * rng.normal(size=n + 500)
    model = clone(model).fit(X[:n], y[:n])
    assert np.mean((model.predict(X[n:]) - mean[word[n:]]) ** 2) < 0.01
    if "EigenPro" not in type(model).__name__:
        low, high = model.predict_interval(X[n:]).T
        assert np.mean((low <= y[n:]) & (y[n:] <= high)) > 0.8


@pytest.mark.parametrize("storage", [torch.from_numpy, sp.csr_array])
def test_spread_of_copies(storage):
    rng = np.random.default_rng(0)
    X, Y, w = rng.integers(5, size=(40, 2)).astype(float), rng.normal(size=(40, 2)), rng.uniform(0, 2, 40)
    w[:5] = 0
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y0": Y[:, 0], "y1": Y[:, 1], "w": w})
    wanted = np.zeros(2)
    for _, part in frame[w > 0].groupby(["a", "b"]):
        for j in range(2):
            y = part[f"y{j}"]
            wanted[j] += part["w"] @ (y - np.average(y, weights=part["w"])) ** 2 / w.sum()
    found = spread_of_copies(storage(X), torch.from_numpy(Y), weight=w)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    np.testing.assert_allclose(spread_of_copies(storage(X), torch.from_numpy(Y), weight=8e307 * w), wanted, rtol=1e-12)
    assert not spread_of_copies(torch.arange(4.0)[:, None], torch.ones(4, 1)).any()


def test_weights_below_the_range_of_the_targets():
    """Weights are added up in float64, whatever the dtype of what they weigh."""
    X, Y = torch.ones(3, 1), torch.tensor([[1.0], [2.0], [6.0]])
    means = merge_copies(X, Y, weight=np.array([1e-60, 2e-60, 1e-60]))[1]
    assert means.item() == pytest.approx(2.75) and means.dtype == torch.float32


def test_sparse_rows_are_worked_on_on_the_cpu(device):
    rows = sp.eye(3, format="csr")
    with pytest.raises(ValueError, match="device='nonsense' is not available"):
        as_csr(rows, device="nonsense")
    if device == "cpu":
        assert (as_csr(rows, device=device)[0] != rows).nnz == 0
    else:
        with pytest.raises(ValueError, match="X is sparse, which is worked on on the CPU only, but device='cuda'"):
            as_csr(rows, device=device)


def test_entries_of_a_sparse_matrix_that_stand_at_one_place():
    """Two entries of 1 are one of 2, for what is kept of rows and for a fit."""
    split = sp.csr_matrix(([1.0, 1.0, 2.0, 5.0], [0, 0, 0, 1], [0, 2, 3, 4]), shape=(3, 2))
    whole = sp.csr_matrix(split.toarray())
    first, second = as_csr(split)[0], as_csr(whole)[0]
    with pytest.raises(ValueError, match="X: Expected 2D array, got 1D array"):
        as_csr(sp.coo_array([1.0, 0.0, 2.0]))
    np.testing.assert_array_equal(row_hashes(first), row_hashes(second))
    assert split.nnz == 4, "what came in was changed"
    fits = [RandomFeatureRidge(RandomFourierFeatures(random_state=0), alpha=0.1).fit(X, [1.0, 3.0, 0.0]).predict(whole) for X in (split, whole)]
    np.testing.assert_allclose(*fits, rtol=1e-12)
