"""Tables as people have them: what becomes of each kind of column, and what is refused by name."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rfteach.columns import TableEncoder
from rfteach.feature_ridge import RandomFeatureRidge
from rfteach.rbf import NystroemFeatures


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({
        "age": rng.normal(40, 10, 60), "colour": rng.choice(["red", "green", "blue"], 60), "member": rng.random(60) < 0.3,
        "code": pd.Categorical(rng.integers(0, 4, 60)), "count": pd.array(rng.integers(0, 9, 60), dtype="Int64")})
    frame.loc[::7, "age"] = np.nan
    frame.loc[3, "colour"] = None
    frame.loc[5, "count"] = pd.NA
    return frame


def test_each_column_counts_the_same(table):
    encoder = TableEncoder().fit(table)
    Z = encoder.transform(table)
    squares = ((Z[:, None] - Z) ** 2).mean((0, 1))
    for j, name in enumerate(table):
        mine = encoder.inputs_ == j
        gap = table[name].isna().mean() if name in ("age", "count") else 0
        expected = 2 + (2 * (1 - gap) if gap else 0)  # of a number with gaps: the category, and what is there
        assert np.isclose(squares[mine].sum(), expected), name
    assert len(encoder.get_feature_names_out()) == Z.shape[1] == len(encoder.inputs_)


def test_rows_at_equal_levels_agree_and_others_do_not(table):
    encoder = TableEncoder().fit(table)
    Z = encoder.transform(table)[:, encoder.inputs_ == 1]
    levels = table["colour"].fillna("gap").to_numpy()
    distance = ((Z[:, None] - Z) ** 2).sum(2)
    same = levels[:, None] == levels
    assert (distance[same] == 0).all() and np.ptp(distance[~same]) < 1e-12 and distance[~same].min() > 1


def test_a_row_alone_is_written_as_among_others(table):
    encoder = TableEncoder().fit(table)
    Z = encoder.transform(table)
    for i in (0, 1, 3, 5):
        assert np.array_equal(encoder.transform(table.iloc[i : i + 1])[0], Z[i])


def test_weights_are_copies(table):
    w = np.random.default_rng(1).integers(0, 4, len(table))
    weighted = TableEncoder().fit(table, sample_weight=w)
    copied = TableEncoder().fit(table.loc[table.index.repeat(w)])
    assert np.allclose(weighted.transform(table), copied.transform(table), atol=1e-12)


def test_units_and_order_do_not_matter(table):
    Z = TableEncoder().fit(table).transform(table)
    other = table.assign(age=1e6 * table["age"] - 3e4)
    assert np.allclose(TableEncoder().fit(other).transform(other), Z, atol=1e-8)
    mixed = table.sample(frac=1, random_state=0)
    assert np.allclose(TableEncoder().fit(mixed).transform(table), Z, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_numbers_of_any_size(scale):
    x = np.random.default_rng(0).normal(size=(30, 1))
    Z = TableEncoder().fit(scale * x).transform(scale * x)
    assert np.allclose(Z[:, 0], (x[:, 0] - x.mean()) / x.std(), atol=1e-9)


def test_what_tells_nothing_is_left_out():
    frame = pd.DataFrame({"one": [2.0, 2.0, 2.0], "word": ["a"] * 3, "gap": [None] * 3, "nan": [np.nan] * 3, "x": [1.0, 2, 4]})
    encoder = TableEncoder().fit(frame)
    assert encoder.get_feature_names_out().tolist() == ["x"] and encoder.inputs_.tolist() == [4]
    assert TableEncoder().fit(frame[["one"]]).transform(frame[["one"]]).shape == (3, 0)


def test_a_constant_is_one_whatever_its_weights():
    """Its mean may be off by rounding, and is then no value that tells something."""
    for seed in range(20):
        w, X = np.random.default_rng(seed).random(1000), np.c_[np.full(1000, 0.1), np.arange(1000)]
        assert TableEncoder().fit(X, sample_weight=w).inputs_.tolist() == [1]


def test_a_number_that_is_constant_but_for_gaps_tells_by_its_gaps():
    frame = pd.DataFrame({"x": [1.0, None, 1.0, None]})
    Z = TableEncoder().fit(frame).transform(frame)
    assert Z.shape == (4, 2) and np.isclose(((Z[0] - Z[1]) ** 2).sum(), 4)


def test_rare_levels_are_joined():
    frame = pd.DataFrame({"c": list("aaabbbccde")})
    encoder = TableEncoder(max_levels=2).fit(frame)
    assert encoder.get_feature_names_out().tolist() == ["c=a", "c=b", "c=other"]
    Z = encoder.transform(frame)
    assert np.array_equal(Z[6], Z[9]) and np.isclose(((Z[:, None] - Z) ** 2).sum(2).mean(), 2)


def test_a_gap_or_a_level_that_was_not_there_before(table):
    encoder = TableEncoder().fit(table[["member", "code"]])
    new = encoder.transform(pd.DataFrame({"member": [None, True], "code": [7, 1.0]}))
    assert np.array_equal(new[1], encoder.transform(pd.DataFrame({"member": [True], "code": pd.Categorical([1])}))[0])
    assert (new[0] != 0).sum() == 2
    full = TableEncoder().fit(np.arange(6.0)[:, None])
    assert full.transform(np.array([[np.nan]])).tolist() == [[0.0]]  # no row had a gap: the mean


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA])
def test_a_gap_of_any_kind_in_a_batch_of_gaps(gap):
    table = pd.DataFrame({"size": [1.0, np.nan, 3.0], "colour": ["red", None, "blue"], "open": [True, None, False]})
    encoder = TableEncoder().fit(table)
    alone = pd.DataFrame({name: [gap] for name in table})
    assert np.array_equal(encoder.transform(alone), encoder.transform(table)[1:2])


def test_truth_values_that_come_back_as_numbers():
    table = pd.DataFrame({"open": [True, False, True], "size": [1.0, 2.0, 4.0]})
    encoder = TableEncoder().fit(table)
    assert np.array_equal(encoder.transform(table.astype(float)), encoder.transform(table))


def test_a_list_of_rows_keeps_its_numbers():
    rows = [[1.0, "red"], [2.5, "blue"], [4.0, "red"]]
    frame = pd.DataFrame(rows, columns=["x0", "x1"])
    assert np.array_equal(TableEncoder().fit_transform(rows), TableEncoder().fit_transform(frame))


@pytest.mark.parametrize("column, error, word", [
    ([1.0, np.inf, 2.0], ValueError, "infinity in row 1"), ([1.0, "many", 2.0], ValueError, "'many'"),
    (pd.to_datetime(["2020-01-01"] * 3), TypeError, "datetime64.*total_seconds"), ([[1], [2], [3]], TypeError, "list"),
    ([1j, 2j, 3j], ValueError, "complex"), ([{}, {}, {}], TypeError, "dict")])
def test_what_cannot_be_taken_is_said_by_name(column, error, word):
    with pytest.raises(error, match="'price'.*" + word):
        TableEncoder().fit(pd.DataFrame({"ok": [1, 2, 3], "price": pd.Series(column)}))


def test_other_columns_than_those_of_fit(table):
    encoder = TableEncoder().fit(table)
    with pytest.raises(ValueError, match="names should match|4 features"):
        encoder.transform(table.drop(columns="age"))
    with pytest.raises(ValueError, match="same order"):
        encoder.transform(table[["colour", "age", "member", "code", "count"]])
    with pytest.raises(ValueError, match="'age'.*numbers"):
        encoder.transform(table.assign(age="old"))


def test_in_a_pipeline(table):
    y = np.where(table["colour"] == "red", 1.0, 0.0) + 0.01 * table["age"].fillna(0)
    model = make_pipeline(TableEncoder(), NystroemFeatures(n_components=60, random_state=0), RandomFeatureRidge())
    assert clone(model).fit(table, y).score(table, y) > 0.9
    assert clone(TableEncoder(max_levels=7)).max_levels == 7


def test_numbers_as_words_are_said():
    words = np.arange(40).astype(str)
    with pytest.warns(UserWarning, match="column 'x0' holds numbers as words"):
        TableEncoder().fit(words[:, None])
    with pytest.warns(UserWarning, match="'size'"):
        encoder = TableEncoder().fit(pd.DataFrame({"size": words.astype(object)}))
    for quiet, kind in ((words, "category"), ([*words[:10]] * 4, object), ([*words[:-1], "none"], object)):
        TableEncoder().fit(pd.DataFrame({"size": pd.Series(quiet, dtype=kind)}))
    assert encoder.transform(pd.DataFrame({"size": ["3"]})).any()  # and nothing is said of a batch


def test_names_that_come_twice_and_ragged_rows():
    with pytest.raises(ValueError, match="X has 2 columns named 'a'"):
        TableEncoder().fit(pd.DataFrame(np.ones((3, 3)), columns=["a", "b", "a"]))
    with pytest.raises(ValueError, match="X must be a table with as many values in each row"):
        TableEncoder().fit([[1.0, 2.0], [3.0]])


def test_a_level_called_other_keeps_its_name():
    encoder = TableEncoder().fit(pd.DataFrame({"c": ["a", "other"] * 20}))
    names = encoder.get_feature_names_out().tolist()
    assert names == ["c=a", "c=other", "c=other_"]


def test_names_are_those_of_the_input():
    X = np.random.default_rng(0).normal(size=(20, 4))
    parts = make_column_transformer((TableEncoder(), [0, 1]), (TableEncoder(), [2, 3]), verbose_feature_names_out=False)
    assert parts.fit(X).get_feature_names_out().tolist() == ["x0", "x1", "x2", "x3"]
    frame = pd.DataFrame(X, columns=list("abcd"))
    assert make_pipeline(StandardScaler(), TableEncoder()).fit(frame).get_feature_names_out().tolist() == list("abcd")
    with pytest.raises(ValueError, match="input_features is not equal to feature_names_in_"):
        TableEncoder().fit(frame).get_feature_names_out(list("abce"))
    with pytest.raises(ValueError, match=r"number of features \(4\), got 3"):
        TableEncoder().fit(X).get_feature_names_out(list("abc"))


@pytest.mark.parametrize("named, expected", [
    ({0: [1.0, None, 3.0], 1: [1.0, 2.0, 4.0]}, ["x0", "x0=missing", "x0=there", "x1"]),
    ({"a": [1.0, None, 3.0], "a=missing": [1.0, 2.0, 4.0]}, ["a", "a=missing_", "a=there", "a=missing"])])
def test_a_frame_that_comes_out_goes_into_the_next_step(named, expected):
    frame = TableEncoder().set_output(transform="pandas").fit_transform(pd.DataFrame(named))
    assert frame.columns.tolist() == StandardScaler().fit(frame).get_feature_names_out().tolist() == expected


def test_one_long_word_costs_its_own_length():
    rows = [["red"], ["blue"]] * 200 + [["x" * 20_000]]
    tracemalloc.start()
    Z = TableEncoder().fit_transform(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert Z.shape == (401, 4) and peak < 2e6  # of 32 MB


@pytest.mark.parametrize("column", [["a", "a", "b"], ["b", "b", "a"], [1.0, 2.0, None], [None, None, 1.0]], ids=str)
def test_weights_of_any_size(column):
    frame = pd.DataFrame({"c": column})
    Z = TableEncoder().fit(frame, sample_weight=[1.0, 1.0, 1e-20]).transform(frame)
    assert np.isclose(Z.max(), 1e10)  # (13.4) for shares of 1 and 5e-21
    assert np.isfinite(TableEncoder().fit(frame, sample_weight=[1.0, 1.0, 5e-324]).transform(frame)).all()


def test_joined_levels_of_little_weight():
    frame, w = pd.DataFrame({"c": list("abcd")}), [1 / 3, 1e-20, 1e-21, 1e-21]
    Z = TableEncoder(max_levels=2).fit(frame, sample_weight=w).transform(frame)
    assert np.isclose(Z.max(), (2 * 3 * 1.2e-20) ** -0.5)
