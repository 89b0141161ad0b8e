"""How long and how large: what the counts must have whatever the machine."""

import re

import pytest

from rfteach.cli import _duration, _size, main
from rfteach.cost import COUNTED, Machine, Work, cost, measure

MACHINE = Machine(products=8e10, functions=6e8, numbers=2e9)


@pytest.mark.parametrize("name", COUNTED)
def test_more_takes_longer(name):
    sizes = {"n": 50_000, "d": 20, "n_components": 300, "k": 1}

    def seconds(**changed):
        given = sizes | changed
        return cost(name, given.pop("n"), given.pop("d"), machine=MACHINE, **given).seconds

    assert seconds(n=1_000_000) > 5 * seconds() and seconds(d=40) > seconds()
    assert seconds(n_components=600) >= seconds() and seconds(k=5) >= seconds()
    found = cost(name, 5000, 20, machine=MACHINE)
    assert sum(found.share) == pytest.approx(1 - COUNTED[name].start / found.seconds) and found.memory > 0
    half = cost(name, 5000, 20, machine=MACHINE, dtype="float32")
    assert found.seconds / 2 <= half.seconds * (1 + 1e-12) <= found.seconds * (1 + 1e-12)


def test_memory_of_streams_grows_by_rows_alone():
    """A copy of the rows at most, and a few numbers for each, but no features."""
    for name, copies in (("StreamingRidge", 0), ("RandomFeatureRidge", 1), ("RBFRegressor", 1)):
        for dtype, size in (("float64", 8), ("float32", 4)):
            few, many = (cost(name, n, 20, machine=MACHINE, dtype=dtype).memory for n in (10**5, 10**8))
            assert 0 <= (many - few) / (10**8 - 10**5) - copies * size * 20 <= 200


@pytest.mark.parametrize("name", ["RandomFeatureRidge", "RBFRegressor", "EigenProRegressor"])
def test_the_median_distance_is_counted(name):
    """With inputs so many that it is a good part of a fit: all pairs of 3000 rows, 100 000 pairs of more."""
    for n, numbers in ((3000, 3000**2 * 1000 / 10), (20_000, 2e9)):
        work, one = (cost(name, n, d, n_components=1, machine=MACHINE).work for d in (1000, 1))
        assert work.numbers - one.numbers > 0.9 * (numbers if name != "RBFRegressor" else 3000**2 * 1000 / 10)


def test_work_adds_up():
    a, b = Work(1.0, 2.0, 3.0, 10.0), Work(4.0, 5.0, 6.0, 7.0)
    assert a + b == Work(5.0, 7.0, 9.0, 10.0) and a.times(2) == Work(2.0, 4.0, 6.0, 10.0)
    wide = Work(3.0, wide=2.0)
    assert a + wide == Work(4.0, 2.0, 3.0, 10.0, 2.0) and wide.times(2) == Work(6.0, wide=4.0)


@pytest.mark.parametrize("name", COUNTED)
def test_wide_products_in_float32(name):
    """Faster than twice where a method has any, in float32 and nowhere else."""
    faster = Machine(8e10, 6e8, 2e9, wide=4.0)
    for d, dtype in ((20, "float32"), (60, "float32"), (500, "float64"), (500, "float32")):
        before, after = (cost(name, 20_000, d, machine=machine, dtype=dtype).seconds for machine in (MACHINE, faster))
        gains = (d, dtype) == (500, "float32") and name in ("StreamingRidge", "EigenProRegressor", "gram_solve")
        assert (after < 0.99 * before) if gains else after == before


@pytest.mark.parametrize("given, words", [
    (("HARFERegressor", 10, 2), "name must be"), (("RBFRegressor", 0, 2), "n must be an integer of at least 1, got 0"),
    (("RBFRegressor", 10, 0), "d must be an integer of at least 1, got 0")])
def test_mistakes_are_named(given, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        cost(*given, machine=MACHINE)
    with pytest.raises(ValueError, match="dtype must be"):
        cost("RBFRegressor", 10, 2, machine=MACHINE, dtype="float16")
    with pytest.raises(ValueError, match="seconds must be"):
        measure(0)
    with pytest.raises(ValueError, match="n_components must be an integer of at least 1, got 0"):
        cost("RBFRegressor", 10, 2, n_components=0, machine=MACHINE)


def test_the_command_prints_a_line_for_each(capsys):
    assert main(["time", "--rows", "100000", "--inputs", "20"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COUNTED) and "threads" in out
    assert main(["time", "--rows", "1000", "--inputs", "5", "--features", "50", "--float32", "RBFRegressor"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


@pytest.mark.parametrize("say, value, said", [
    (_duration, 99.4, "99 s"), (_duration, 99.5, "100 s"), (_duration, 99.7, "100 s"), (_duration, 100.4, "100 s"),
    (_duration, 0.0123, "0.012 s"), (_duration, 150, "2.5 min"), (_duration, 99.7 * 86400, "100 days"),
    (_size, 99.7e6, "100 MB"), (_size, 9.96e6, "10 MB"), (_size, 99.7, "100 bytes")])
def test_numbers_are_said_without_powers_of_ten(say, value, said):
    assert say(value) == said


@pytest.mark.parametrize("words, said", [
    (["--rows", "0", "--inputs", "2"], "--rows must be an integer of at least 1, got 0"),
    (["--rows", "5", "--inputs", "2", "--features", "0"], "--features must be"),
    (["--rows", "5", "--inputs", "2", "Lasso"], "METHOD must be")])
def test_the_command_names_mistakes(words, said, capsys):
    with pytest.raises(SystemExit) as left:
        main(["time", *words])
    assert left.value.code == 2 and said in capsys.readouterr().err
