"""Which rows are equal: hashes of values alone, one row of equal ones, what copies differ by."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from rfteach.arrays import as_csr
from rfteach.copies import distinct_rows, row_hashes, spread_of_copies
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.features import RandomFourierFeatures


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
def test_distinct_rows(storage):
    """One position for each row of positive weight, weighted means, summed weights; order and copies do not count."""
    rng = np.random.default_rng(0)
    X, Y, w = rng.integers(0, 3, (60, 2)).astype(float), rng.normal(size=(60, 2)), rng.integers(0, 4, 60) * 1.0
    rows, means, weights = distinct_rows(storage(X), torch.from_numpy(Y), weight=w)
    assert len(rows) == len({tuple(x) for x in X[w > 0]}) == len(means) == len(weights)
    for row, mean, weight in zip(rows, means.numpy(), weights.numpy()):
        same = (X == X[row]).all(1)
        assert weight == w[same].sum()
        np.testing.assert_allclose(mean, w[same] @ Y[same] / weight, atol=1e-14)
    repeated = rng.permutation(60)
    again, same_means, _ = distinct_rows(storage(X[repeated]), torch.from_numpy(Y[repeated]), weight=w[repeated])
    np.testing.assert_array_equal(X[repeated][again], X[rows])
    np.testing.assert_allclose(same_means, means, atol=1e-14)
    np.testing.assert_array_equal(X[distinct_rows(storage(X), weight=w)], X[rows])
    assert (X[distinct_rows(storage(X), seed=1)] != X[distinct_rows(storage(X))]).any()


@pytest.mark.parametrize("storage", [torch.from_numpy, sp.csr_array])
def test_spread_of_copies(storage):
    rng = np.random.default_rng(0)
    X, Y, w = rng.integers(3, size=(40, 2)).astype(float), rng.normal(size=(40, 2)), rng.uniform(0, 2, 40)
    w[:5] = 0
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y0": Y[:, 0], "y1": Y[:, 1], "w": w})
    wanted = np.zeros(2)
    for _, part in frame[w > 0].groupby(["a", "b"]):
        for j in range(2):
            y = part[f"y{j}"]
            wanted[j] += part["w"] @ (y - np.average(y, weights=part["w"])) ** 2 / w.sum()
    found = spread_of_copies(storage(X), torch.from_numpy(Y), weight=w)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    np.testing.assert_allclose(spread_of_copies(storage(X), torch.from_numpy(Y), weight=1e300 * w), wanted, rtol=1e-12)
    assert not spread_of_copies(torch.arange(4.0)[:, None], torch.ones(4, 1)).any()


def test_weights_below_the_range_of_the_targets():
    """Weights are added up in float64, whatever the dtype of what they weigh."""
    X, Y = torch.ones(3, 1), torch.tensor([[1.0], [2.0], [6.0]])
    means = distinct_rows(X, Y, weight=np.array([1e-60, 2e-60, 1e-60]))[1]
    assert means.item() == pytest.approx(2.75) and means.dtype == torch.float32


def test_entries_of_a_sparse_matrix_that_stand_at_one_place():
    """Two entries of 1 are one of 2, for what is kept of rows and for a fit."""
    split = sp.csr_matrix(([1.0, 1.0, 2.0, 5.0], [0, 0, 0, 1], [0, 2, 3, 4]), shape=(3, 2))
    whole = sp.csr_matrix(split.toarray())
    first, second = as_csr(split)[0], as_csr(whole)[0]
    np.testing.assert_array_equal(row_hashes(first), row_hashes(second))
    assert split.nnz == 4, "what came in was changed"
    fits = [RandomFeatureRidge(RandomFourierFeatures(random_state=0), alpha=0.1).fit(X, [1.0, 3.0, 0.0]).predict(whole) for X in (split, whole)]
    np.testing.assert_allclose(*fits, rtol=1e-12)
