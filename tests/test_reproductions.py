"""The table of published values, the verdicts, the runs that go on where they stopped, and the command."""

import contextlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from rfteach import __version__, cli
from rfteach.cli import main
from rfteach.evidence import published, report, run
from rfteach.evidence.protocols import Experiment
from rfteach.evidence.published import ENTRIES, ORIGINS, SOURCES, Entry
from rfteach.evidence.report import COLUMNS, by_origin, counts, markdown_report, once, tally, text_report, write_report
from rfteach.evidence.reproductions import VERDICTS, judge
from rfteach.evidence.run import EXPERIMENTS, findings, load_results, plan, reproduce, topic_names
from rfteach.evidence.verdicts import FALSE_ALARM, compare, corrected_error, half_digit, least_error, standard_error

FULL = Path(__file__).parent.parent / "benchmarks/results/reproductions/results.jsonl"
FAST_SECONDS = 600


def entry(value="1.26", **changes):
    return Entry(**{"topic": "t", "what": f"a value of {value}", "value": value, "source": "s", "where": "page 1",
                    "experiment": "e", "quantity": "q", **changes})


@pytest.fixture
def small(monkeypatch):
    """A table of two topics, and the list of the calls of their experiments."""
    calls = []

    def draw(seed, device):
        calls.append(("draw", seed))
        return {"q": 1.2 + 0.1 * (seed % 3), "r": 5.0}

    def absent(seed, device):
        raise FileNotFoundError("the pictures are not here")

    experiments = {"draw": Experiment(draw, "numbers", fast=2, full=6, seconds=1.0),
                   "absent": Experiment(absent, "pictures", fast=1, full=1, seconds=1.0, data="mnist"),
                   "long": Experiment(draw, "the same, in the full tier", fast=0, full=1, seconds=9.0)}
    entries = [entry("1.3", experiment="draw"),
               entry("4.0", what="below", runs=None, experiment="draw", quantity="r", remark="because | of this"),
               entry("9.0", what="above", runs=None, experiment="draw", quantity="r"),
               entry("", what="nothing", experiment="", remark="no number is printed"),
               entry("2.0", topic="u", what="a picture", experiment="absent"),
               entry("5.0", topic="u", what="a long one", experiment="long", quantity="r"),
               entry("0.1", topic="u", what="seconds", experiment="draw", quantity="r", device="cuda", remark="no GPU")]
    for module in (published, run):
        monkeypatch.setattr(module, "ENTRIES", entries)
    monkeypatch.setattr(run, "EXPERIMENTS", experiments)
    for module in (published, report):
        monkeypatch.setattr(module, "SOURCES", {"s": "A. Author (1999). [A <paper>](https://example.org/a)."})
    return calls


def verdicts(found):
    return {finding.entry.what: finding.verdict for finding in found}


# The table

def test_entries_are_complete_and_distinct():
    names = [(e.topic, e.what, e.where) for e in ENTRIES]
    assert len(set(names)) == len(names), [name for name in names if names.count(name) > 1]
    for e in ENTRIES:
        assert e.topic and e.what and e.where and e.source in SOURCES, e
        assert e.experiment == "" or e.where.endswith(ORIGINS), f"{e.what}: is it printed, measured, or a closed form?"
        assert e.better in ("lower", "higher", "neither") and e.statistic in ("mean", "median"), e
        assert e.runs is None or e.runs >= 1, e
        if e.experiment:
            assert e.experiment in EXPERIMENTS and e.quantity, e
            assert e.printed and all(math.isfinite(float(text)) and half_digit(text) > 0 for text in e.printed), e
            assert not (e.another and e.dependent), e
        else:
            assert e.remark, f"{e.what}: why is it not attempted?"
        assert not e.device or e.remark, f"{e.what}: why is it not compared elsewhere?"


def test_every_experiment_and_source_is_used():
    assert {e.experiment for e in ENTRIES} - {""} == set(EXPERIMENTS)
    assert {e.source for e in ENTRIES} == set(SOURCES)


def test_experiments_say_what_they_do_and_need():
    for name, experiment in EXPERIMENTS.items():
        assert len(experiment.protocol) > 20, name
        assert 0 <= experiment.fast <= experiment.full > 0, name
        assert experiment.data in ("", "mnist", "propulsion") and not (experiment.data and experiment.fast), name


def test_fast_tier_is_planned_to_fit():
    seconds = sum(EXPERIMENTS[name].seconds * n for name, n in plan(tier="fast").items())
    assert seconds < FAST_SECONDS, f"{seconds:.0f} s; To mend: fewer repetitions, or leave experiments to the full tier"


def test_seconds_are_those_of_the_kept_results():
    kept = {}
    for record in load_results(FULL):
        kept.setdefault(record["experiment"], []).append(record["seconds"])
    off = {name: (EXPERIMENTS[name].seconds, float(np.median(seconds))) for name, seconds in kept.items()
           if not 0.5 <= EXPERIMENTS[name].seconds / np.median(seconds) <= 2}
    assert not off, f"stated and kept: {off}"


@pytest.mark.parametrize("name", plan(tier="fast"))
def test_experiments_give_what_entries_ask_for(name):
    values = EXPERIMENTS[name].run(0, "cpu")
    assert {e.quantity for e in ENTRIES if e.experiment == name} <= set(values)
    assert all(math.isfinite(value) for value in values.values())


def test_full_run_is_that_of_the_table():
    """The committed results are of today's protocols and complete; only a GPU's values may be missing."""
    found = findings(load_results(FULL))
    assert [f.entry.what for f in found if f.reason == "not measured"] == [], "To mend: rfteach reproduce --tier full"
    known = {(e.experiment, e.quantity) for e in ENTRIES}
    assert {(f.entry.experiment, f.entry.quantity) for f in found} == known
    assert all(f.n_runs == EXPERIMENTS[f.entry.experiment].full for f in found if f.n_runs)


# Verdicts

@pytest.mark.parametrize("value, half", [("1.26", 0.005), ("6.9e-5", 5e-7), ("10", 0.5), ("0.5527", 5e-5),
                                         ("-3.0", 0.05)])
def test_half_digit(value, half):
    assert half_digit(value) == pytest.approx(half, rel=1e-12)


@pytest.mark.parametrize("ours, verdict", [(1.26, "reproduced"), (1.265, "reproduced"), (1.2651, "differs"),
                                           (1.2549, "differs"), (math.nan, "differs"), (math.inf, "differs")])
def test_exact_values_are_judged_by_their_digits(ours, verdict):
    assert compare([ours], "1.26", None).verdict == verdict
    assert compare([1.26], "1.26", 1).verdict == "not decidable", "one run of something random has no spread"


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=8), st.lists(st.floats(-10, 10), min_size=1, max_size=3),
       st.sampled_from(["mean", "median"]), st.sampled_from([1, 4, None]))
def test_verdict_follows_the_rule(values, theirs, statistic, runs):
    texts = [f"{x:.2f}" for x in theirs]
    r, all_runs, center = len(values), runs and runs * len(texts), {"mean": np.mean, "median": np.median}[statistic]
    p = center([float(text) for text in texts])
    found = compare(values, texts, runs, statistic=statistic)
    if statistic == "median" and min([*map(float, texts), *values]) > 0:
        return  # compared by their logarithms
    own = standard_error(values, statistic) ** 2
    one = np.var(values, ddof=1)
    their = 0 if runs is None else one if all_runs == 1 else (one if statistic == "mean" else own * r) / all_runs
    m, half = len(texts), 0.005
    one_of_theirs = 0 if runs is None else one if runs == 1 else (one if statistic == "mean" else own * r) / runs
    level = 1e-24 * max(map(abs, values)) ** 2
    if own + their <= level:
        own, their, one_of_theirs = (0, 0, 0) if runs is None else (half**2 / r, half**2 / all_runs, half**2 / runs)
    t = stats.t.isf(stats.norm.sf(3) / (1 if m == 1 else m + 1), r - 1)
    tau, singly = half + t * math.sqrt(own + their), half + t * math.sqrt(own + one_of_theirs)
    assert found.tolerance == pytest.approx(tau, rel=1e-9, abs=1e-9) and found.theirs == pytest.approx(p)
    far = max(abs(found.ours - p) / tau, *(abs(found.ours - float(text)) / singly for text in texts))
    if far > 1.001:
        assert found.verdict == "differs"
    elif far < 0.999 and abs(tau / (0.3 * abs(p) + 1e-300) - 1) > 0.001:
        assert found.verdict == ("reproduced" if tau <= 0.3 * abs(p) else "not decidable")


def test_scale_of_a_count():
    """That none of ten is found can be decided, though 30 % of none are none."""
    assert compare([0] * 20, "0").verdict == "not decidable" and compare([0] * 20, "0", scale=10).verdict == "reproduced"
    assert compare([4] * 20, "0", scale=10).verdict == "differs"
    assert compare([7] * 20, "10", scale=10).verdict == compare([7], "10", None, scale=7).verdict == "differs"
    half_once = stats.t.isf(FALSE_ALARM / 2, 19) * 0.5 * math.sqrt(1 + 1 / 20)
    assert compare([10] * 20, "10", scale=10).tolerance == pytest.approx(half_once)


def test_a_stated_error_counts_and_not_the_runs():
    draws = np.random.default_rng(0).normal(10, 1, size=10)
    for runs in (1, 5, None):
        assert compare(draws, "9.00", runs, stated=0.1).se == pytest.approx(math.hypot(standard_error(draws), 0.1))
    assert compare([10.0] * 5, "9.00", stated=0.1).verdict == "differs"
    assert compare([10.0] * 5, "9.00", stated=0.5).verdict == "not decidable"
    assert judge(entry("9.00", stated=0.1), draws).se == compare(draws, "9.00", stated=0.1).se
    stated = {e.value: e.stated for e in ENTRIES if e.stated}
    assert stated == {"4.395": 0.099, "3.755": 0.084}
    assert not any("standard error" in e.remark + e.another for e in ENTRIES), "a stated error is a number of its entry"


@pytest.mark.parametrize("r, verdict", [(2, "not decidable"), (5, "reproduced")])
def test_equal_repetitions_of_a_count_have_a_scatter(r, verdict):
    """Two seeds may misclassify as many rows; one more misclassified row elsewhere is no difference."""
    assert compare([1.21] * r, "1.23").verdict == verdict
    assert compare([1.21] * r, "1.23", None).verdict == "differs" and compare([1.21] * r, "1.93").verdict in (
        "not decidable", "differs")


def test_rounding_and_chance_add():
    """The larger of the two would tell some 8 % of equals apart."""
    rng = np.random.default_rng(0)
    told = [compare(level + 0.1 * rng.standard_normal(10), f"{level + 0.1 * rng.standard_normal():.0f}").verdict
            for level in rng.uniform(9.5, 10.5, 1000)]
    assert told.count("differs") < 10


def test_each_of_several_printed_values_must_agree():
    ours = 2 + 0.01 * np.random.default_rng(0).standard_normal(10)
    assert compare(ours, ["1.0", "3.0"]).verdict == "differs"
    assert compare(ours, ["1.99", "2.01"]).verdict == compare(ours, "2.00").verdict == "reproduced"


def test_small_values_have_a_scatter():
    """What is below rounding is told by the values, not by one."""
    for factor in (1.0, 1e-13):
        assert compare(factor * np.array([1, 2, 3, 2.5, 1.5]), f"{2.2 * factor:.1e}").verdict == "not decidable"


def test_coarse_rounding_of_a_median():
    """What rounds to the printed digit agrees, below as above, though the ratio is not the same."""
    for ours in (0.51, 1.49):
        assert compare([ours] * 3, "1", None, statistic="median").verdict == "not decidable"


@pytest.mark.parametrize("factor", [1.0, 1e-8, 1e5])
def test_medians_are_compared_by_ratios(factor):
    """Errors that vary by decades: a value is judged alike in all units, and above as below."""
    draws = np.exp(0.03 * np.random.default_rng(0).normal(size=20))
    for ratio in (1 / 2, 1 / 1.02, 1.02, 2):
        found = compare(list(factor * draws), f"{factor * np.median(draws) * ratio:.6e}", statistic="median")
        assert found.verdict == ("reproduced" if 0.9 < ratio < 1.1 else "differs"), ratio
    wide = np.exp(1.7 * np.random.default_rng(0).normal(size=20))
    assert compare(list(factor * wide), f"{factor * 1.1 * np.median(wide):.6e}", statistic="median").verdict == "not decidable"


def test_a_published_draw_varies_as_a_draw():
    """The error of a median beside one draw has the whole deviation of a draw, beside many that of their median."""
    draws = np.random.default_rng(0).normal(10, 1, size=200)
    one, many = (compare(draws, "-10.0", runs, statistic="median").se for runs in (1, 200))
    assert one == pytest.approx(math.hypot(draws.std(ddof=1), standard_error(draws, "median")))
    assert many == pytest.approx(math.sqrt(2) * standard_error(draws, "median"))


@pytest.mark.parametrize("changes, ours, verdict", [
    ({}, 1.26, "reproduced"), ({}, 1.0, "differs"), ({"better": "higher"}, 1.5, "differs"),
    ({"dependent": "it was fitted"}, 1.26, "not decidable"), ({"dependent": "it was fitted"}, 9.0, "not decidable"),
    ({"another": "a net"}, 1.0, "another method, better"), ({"another": "a net"}, 1.5, "another method, worse"),
    ({"another": "a net"}, 1.26, "another method, level"),
    ({"another": "a net", "better": "higher"}, 1.5, "another method, better"),
    ({"another": "a net", "better": "higher"}, math.nan, "another method, worse"),
    ({"another": "a net"}, -math.inf, "another method, worse")])
def test_entries_say_what_may_be_claimed(changes, ours, verdict):
    found = judge(entry(runs=None, remark="because", **changes), [ours, ours])
    assert found.verdict == verdict and verdict in VERDICTS
    assert found.reason == {"reproduced": "", "differs": "because"}.get(verdict, "it was fitted" if "dependent" in changes
                                                                     else "a net")


def test_a_measurement_counts_once(small, monkeypatch):
    """With the first value that differs, else with the first; those of a source, of a measurement, of a formula apart."""
    values = [entry("1.3", where="table, printed"), entry("1.30", what="again", where="run, measured"),
              entry("2.0", what="other", quantity="r", where="run, measured")]
    found = [judge(e, [1.3] * 8) for e in values]
    assert len(once(found)) == 2 and counts(found) == {"reproduced": 1, "differs": 1}
    assert {name: len(group) for name, group in by_origin(found).items()} == {"printed": 1, "measured": 1, "closed form": 0}
    assert "| reproduced | 1 | 0 | 0 |" in tally(found)
    found.insert(1, judge(entry("2.5", what="another", where="run, measured"), [1.3] * 8))
    assert counts(found) == {"differs": 2}, "a value that differs is not hidden behind one that is reproduced"


def test_power_is_that_of_normal_draws():
    z = np.random.default_rng(0).normal(size=200_000)
    for k, probability in [(4, 0.99), (3, 0.5)]:
        delta = least_error(0.1, -5.0, k, probability)
        assert np.mean(abs(0.1 * z + 5.0 * delta) > k * 0.1) == pytest.approx(probability, abs=0.004)
    assert least_error([0.1, 0.2], [1.0, 4.0]) == least_error(0.2, 4.0), "the sharpest of several"


def test_corrected_error_by_hand():
    assert corrected_error([1.0, 2.0, 4.0], 75, 25) == pytest.approx(math.sqrt(7 / 3 * (1 / 3 + 1 / 3)))
    with pytest.raises(ValueError, match="differences must have at least 2 values, got 1"):
        corrected_error([1.0], 75, 25)


def test_no_repetition_is_an_error():
    with pytest.raises(ValueError, match="values: there is no repetition"):
        judge(entry(), [])


def test_standard_error_of_the_median():
    """Against the asymptotic one of normal draws, √(π/2) times that of the mean."""
    draws = np.random.default_rng(1).normal(size=400)
    assert standard_error(draws, "median") == pytest.approx(math.sqrt(math.pi / 2 / 400), rel=0.25)


# Runs

def test_run_keeps_each_repetition_and_goes_on(small, tmp_path):
    first = reproduce(out=tmp_path, progress=False)
    assert verdicts(first) == {"a value of 1.3": "not decidable", "below": "differs", "above": "differs",
                               "nothing": "not attempted", "a picture": "not attempted", "a long one": "not attempted",
                               "seconds": "not attempted"}
    assert small == [("draw", 0), ("draw", 1)]
    again = reproduce(out=tmp_path, progress=False)
    assert small == [("draw", 0), ("draw", 1)] and verdicts(again) == verdicts(first)
    reproduce(["t"], tier="full", out=tmp_path, progress=False)
    assert small == [("draw", seed) for seed in range(6)]
    assert [f.n_runs for f in reproduce(["t"], out=tmp_path, progress=False)][:1] == [2]


def test_reasons_of_what_is_not_attempted(small, tmp_path):
    reasons = {f.entry.what: f.reason for f in reproduce(out=tmp_path, progress=False)}
    assert reasons["nothing"] == "no number is printed" and reasons["seconds"] == "no GPU"
    assert reasons["a picture"] == "the pictures are not here" and "full tier" in reasons["a long one"]
    assert reasons["below"] == "because | of this" and "of the value" in reasons["a value of 1.3"]


def test_interrupted_run_goes_on(small, tmp_path, monkeypatch):
    interrupts = [3]

    def once(seed, device):
        if seed in interrupts:
            interrupts.remove(seed)
            raise KeyboardInterrupt
        small.append(("draw", seed))
        return {"q": 1.3, "r": 5.0}

    monkeypatch.setitem(run.EXPERIMENTS, "draw", Experiment(once, "numbers", 2, 6, 1.0))
    with pytest.raises(KeyboardInterrupt):
        reproduce(["t"], tier="full", out=tmp_path, progress=False)
    reproduce(["t"], tier="full", out=tmp_path, progress=False)
    assert small == [("draw", seed) for seed in range(6)]


def test_another_algorithm_is_measured_again(small, tmp_path, monkeypatch):
    def other(seed, device):
        small.append(("other", seed))
        return {"q": 1.3, "r": 5.0}

    reproduce(["t"], out=tmp_path, progress=False)
    monkeypatch.setitem(run.EXPERIMENTS, "draw", Experiment(other, "numbers", 2, 6, 1.0))
    reproduce(["t"], out=tmp_path, progress=False)
    assert small[2:] == [("other", 0), ("other", 1)]


def test_line_that_was_cut_off_is_measured_again(small, tmp_path):
    reproduce(["t"], out=tmp_path, progress=False)
    path = tmp_path / "results.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert len(load_results(path)) == 1
    reproduce(["t"], out=tmp_path, progress=False)
    assert small[2:] == [("draw", 1)]
    assert [record["seed"] for record in load_results(path)] == [0, 1] and path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("line, words", [
    ("3", "line 2 has no usable 'experiment'"), ("null", "'experiment'"), ('{"experiment": "draw"}', "'seed'"),
    ({"seed": "0"}, "'seed'"), ({"seed": 2.5}, "'seed'"), ({"seed": -1}, "a seed below 0"), ({"values": 1}, "'values'"),
    ({"values": {"q": None}}, "a value that is no number"), ({"machine": "fast"}, "'machine'"), ("{", "is not a file")])
def test_damaged_results(small, tmp_path, capsys, line, words):
    reproduce(["t"], out=tmp_path, progress=False)
    path = tmp_path / "results.jsonl"
    first = path.read_text(encoding="utf-8").splitlines()[0]
    line = line if isinstance(line, str) else json.dumps(json.loads(first) | line)
    path.write_text(f"{first}\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        load_results(path)
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "t", "--out", str(tmp_path)])
    assert stopped.value.code == 2 and "remove it or name another folder" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_no_empty_one(small, tmp_path):
    with pytest.raises(FileNotFoundError, match="results.jsonl"):
        load_results(tmp_path / "results.jsonl")
    found = reproduce(["t"], out=tmp_path / "new", progress=False)
    assert write_report(found, tmp_path / "another").exists()
    (tmp_path / "third/results.jsonl").mkdir(parents=True)
    with pytest.raises(ValueError, match="is not a file of results"):
        reproduce(["t"], out=tmp_path / "third", progress=False)


def test_a_device_with_a_number_is_that_kind():
    """Timings of a card are those of "cuda:0" as well."""
    records = load_results(FULL)
    one, other = (findings(records, device=device) for device in ("cuda", "cuda:0"))
    assert [f.reason for f in one] == [f.reason for f in other]
    with pytest.raises(ValueError, match="statistic"):
        standard_error([1.0, 2.0, 4.0], "Mean")


def test_record_without_a_quantity_is_not_measured(small, tmp_path):
    reproduce(["t"], out=tmp_path, progress=False)
    records = [record | {"values": {"q": 1.3}} for record in load_results(tmp_path / "results.jsonl")]
    found = findings(records, ["t"], tier="fast")
    assert [f.reason for f in found if f.entry.quantity == "r"][:2] == ["not measured"] * 2


@pytest.mark.parametrize("key", ["code", "protocol", "device"])
def test_results_of_something_else_do_not_count(small, tmp_path, key):
    reproduce(["t"], out=tmp_path, progress=False)
    path = tmp_path / "results.jsonl"
    changed = [record | {key: "cuda" if key == "device" else "0" * 12} for record in load_results(path)]
    path.write_text("".join(json.dumps(record) + "\n" for record in changed), encoding="utf-8")
    reproduce(["t"], out=tmp_path, progress=False, any_code=True)
    assert len(small) == (2 if key == "code" else 4)
    small.clear()
    reproduce(["t"], out=tmp_path, progress=False)
    assert len(small) == (2 if key == "code" else 0)


def test_failing_experiment_is_named(small, tmp_path, monkeypatch):
    def fail(seed, device):
        raise ZeroDivisionError("by zero")

    monkeypatch.setitem(run.EXPERIMENTS, "draw", Experiment(fail, "numbers", 2, 6, 1.0))
    with pytest.raises(RuntimeError, match="experiment 'draw' failed with seed 0: ZeroDivisionError: by zero"):
        reproduce(out=tmp_path, progress=False)


def test_a_result_that_cannot_be_kept_is_an_error(small, tmp_path, monkeypatch):
    """The folder goes away in a repetition; that is no missing data."""
    def draw(seed, device):
        (tmp_path / "out/results.jsonl").unlink(missing_ok=True)
        (tmp_path / "out").rmdir()
        return {"q": 1.0, "r": 5.0}

    monkeypatch.setitem(run.EXPERIMENTS, "draw", Experiment(draw, "numbers", 2, 6, 1.0))
    with pytest.raises(FileNotFoundError, match="results.jsonl"):
        reproduce(["t"], out=tmp_path / "out", progress=False)


def test_a_topic_by_its_name():
    assert plan("rbf") == plan(["rbf"]) == {"fifty centres": 10}


def test_wrong_arguments(small, tmp_path):
    with pytest.raises(ValueError, match="no topic 'v'; the topics are t, u"):
        reproduce(["v"], out=tmp_path)
    with pytest.raises(ValueError, match="tier must be 'fast' or 'full', got 'slow'"):
        reproduce(tier="slow", out=tmp_path)
    with pytest.raises(ValueError, match="device='cuda:99' is not available"):
        reproduce(device="cuda:99", out=tmp_path)
    (tmp_path / "results.jsonl").write_text("no results\n", encoding="utf-8")
    with pytest.raises(ValueError, match="is not a file of results"):
        reproduce(out=tmp_path)


# Reports

def test_reports_have_every_entry(small, tmp_path):
    found = reproduce(out=tmp_path, progress=False)
    markdown, text = markdown_report(found, load_results(tmp_path / "results.jsonl")), text_report(found)
    for f in found:
        assert f.entry.what in markdown
        assert f.reason in text and (f.entry.what in text) == (f.verdict != "not attempted")
    rows = [line for line in markdown.split("\n") if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {len(COLUMNS) + 1}
    assert len(rows) == len(found) + 2  # and a heading for each topic
    assert "[A <paper>](https://example.org/a)" in markdown
    assert "1 differs, 1 not decidable, 1 not attempted" in markdown
    assert write_report(found, tmp_path).name == "report.md"


def test_reason_of_several_lines(small, tmp_path, monkeypatch):
    """Such as the message about missing data; a table has a row for each entry all the same."""
    def absent(seed, device):
        raise FileNotFoundError("the pictures are not here;\nset a | variable")

    draw = run.EXPERIMENTS["absent"]
    monkeypatch.setitem(run.EXPERIMENTS, "absent", Experiment(absent, draw.protocol, 1, 1, 1.0, "mnist"))
    found = reproduce(["u"], out=tmp_path, progress=False)
    assert "not here; set a \\| variable |" in markdown_report(found)
    assert "1 not attempted: the pictures are not here;\n    set a | variable" in text_report(found)


def test_report_names_the_machines_of_what_it_shows(small, tmp_path):
    reproduce(["t"], out=tmp_path, progress=False)
    path = tmp_path / "results.jsonl"
    records = load_results(path)
    old = [record | {"code": "old", "machine": record["machine"] | {"cpu": "OLD"}} for record in records]
    other = [records[0] | {"experiment": "long", "machine": {"cpu": "OTHER"}}]
    path.write_text("".join(json.dumps(record) + "\n" for record in old + other + records), encoding="utf-8")
    write_report(reproduce(["t"], out=tmp_path, progress=False), tmp_path)
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "OLD" not in page and "OTHER" not in page and f"{records[0]['machine']['cores']} cores" in page


def test_counts_are_of_all(small, tmp_path):
    found = reproduce(out=tmp_path, progress=False)
    assert counts(found) == {"differs": 1, "not decidable": 1, "not attempted": 4}


@pytest.mark.parametrize("ours, like, shown", [(0.02263, "0.0230", "0.02263"), (1.2e-9, "0.0230", "1.2e-9"),
                                               (6.94e-5, "6.9e-5", "6.94e-5"), (0.0, "0.43", "0.000"),
                                               (3.21, "3", "3.2")])
def test_digits(ours, like, shown):
    assert report._figure(ours, like) == shown


# The command

def test_a_second_value_that_differs_has_the_exit_status(small, tmp_path, monkeypatch):
    both = [entry(value, what=value, runs=None, experiment="draw", quantity="r") for value in ("5.0", "9.0")]
    for module in (published, run):
        monkeypatch.setattr(module, "ENTRIES", both)
    assert main(["reproduce", "--out", str(tmp_path)]) == 1
    monkeypatch.setattr(run, "ENTRIES", both[:1])
    assert main(["reproduce", "--out", str(tmp_path)]) == 0


@pytest.mark.parametrize("n_bytes, words", [(32, "32 bytes"), (12e3, "12 kB"), (1.5e9, "1.5 GB"), (2e11, "200 GB")])
def test_sizes(n_bytes, words):
    assert cli._size(n_bytes) == words


def test_exit_status(small, tmp_path, capsys):
    assert main(["reproduce", "t", "--out", str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert f"below\n{'':42}because | of this\n" in printed and "report.md" in printed
    assert main(["reproduce", "u", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "report.md").exists()


def test_interrupted_command_says_how_to_go_on(small, tmp_path, monkeypatch, capsys):
    def stop(seed, device):
        raise KeyboardInterrupt

    monkeypatch.setitem(run.EXPERIMENTS, "draw", Experiment(stop, "numbers", 2, 6, 1.0))
    assert main(["reproduce", "--out", str(tmp_path)]) == 130
    assert "the same command goes on" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["file", "file/inside", "folder"])
def test_folder_that_cannot_be_written(small, tmp_path, capsys, place):
    """A mistake in --out does not look like the verdict "worse", and nothing is measured before it is told."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "folder/results.jsonl").mkdir(parents=True)
    try:
        status = main(["reproduce", "t", "--out", str(tmp_path / place)])
    except SystemExit as stopped:
        status = stopped.code
    assert status == 2 and small == [] and place.split("/")[0] in capsys.readouterr().err


def test_failing_command(small, tmp_path, monkeypatch, capsys):
    def fail(seed, device):
        raise ZeroDivisionError("by zero")

    monkeypatch.setitem(run.EXPERIMENTS, "draw", Experiment(fail, "numbers", 2, 6, 1.0))
    assert main(["reproduce", "--out", str(tmp_path)]) == 2
    assert "experiment 'draw' failed with seed 0" in capsys.readouterr().err


def test_wrong_topic_gets_a_suggestion(capsys):
    for wrong, hint in [("freidman", "did you mean 'friedman'?"), ("EIGENPRO", "did you mean 'eigenpro'?"),
                        ("xyz", "the topics are " + ", ".join(topic_names()))]:
        with pytest.raises(SystemExit) as stopped:
            main(["reproduce", wrong])
        assert stopped.value.code == 2 and hint in capsys.readouterr().err


def test_device_that_is_not_there(capsys, tmp_path):
    with pytest.raises(SystemExit) as stopped:
        main(["reproduce", "features", "--device", "cuda:99", "--out", str(tmp_path)])
    assert stopped.value.code == 2 and "device='cuda:99' is not available" in capsys.readouterr().err


def test_list_names_all(capsys):
    assert main(["reproduce", "--list"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in [*topic_names(), *plan(tier="full")])
    assert main(["reproduce", "--list", "rbf"]) == 0
    assert "fifty centres" in (printed := capsys.readouterr().out) and "friedman" not in printed


def test_command_alone_shows_its_help(capsys):
    assert main([]) == 0
    assert "reproduce" in (printed := capsys.readouterr()).out and printed.err == ""


def test_version_of_the_command(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0 and capsys.readouterr().out == f"rfteach {__version__}\n"


@pytest.mark.parametrize("words", [["--help"], ["reproduce", "--help"], ["--version"], ["reproduce", "--list"], []])
def test_reader_of_the_output_leaves(words):
    """As ``head`` does: no traceback, and no status that means something else."""
    code = "import sys\nfrom rfteach.cli import main\nsys.stdin.read()\nsys.exit(main(sys.argv[1:]))"
    running = subprocess.Popen([sys.executable, "-c", code, *words], text=True, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    running.stdout.close()  # before anything is written
    running.stdin.close()
    assert (running.stderr.read(), running.wait()) == ("", 0)
    running.stderr.close()


def test_verdict_is_given_to_nobody(small, tmp_path):
    """The measurement is finished, written and told by the status where nobody reads what is printed."""
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as out, contextlib.redirect_stdout(out):
        assert main(["reproduce", "t", "--out", str(tmp_path)]) == 1
    assert (tmp_path / "report.md").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk here is always full")
def test_output_that_cannot_be_written(tmp_path):
    """No output at all is no error, a full disk is one; neither is a traceback, or status 1, which says something else."""
    (tmp_path / "answers.py").write_text("", encoding="utf-8")
    code = "import sys, rfteach.cli; sys.exit(rfteach.cli.main())"
    for words, closed, full in (["reproduce", "--list"], 0, 2), (["grade", "kernels", str(tmp_path / "answers.py")], 1, 2):
        for target, status in (">&-", closed), (">/dev/full", full):
            done = subprocess.run(["sh", "-c", f'"$@" {target}', "sh", sys.executable, "-c", code, *words],
                                  stderr=subprocess.PIPE, text=True)
            assert done.returncode == status and "Traceback" not in done.stderr
            assert ("cannot be written" in done.stderr) == (status == 2)


def test_output_in_ascii():
    for words in (["reproduce", "--list"], ["reproduce", "--help"]):
        done = subprocess.run([sys.executable, "-m", "rfteach.cli", *words], capture_output=True,
                              env={**os.environ, "PYTHONIOENCODING": "ascii"})
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout and done.stdout.isascii()


def test_installed_command():
    """The entry point is there, its help is quick to read, and it does not load the library."""
    command = Path(sys.executable).parent / "rfteach"
    done = subprocess.run([command, "reproduce", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--tier {fast,full}" in done.stdout and "exit status" in done.stdout
    check = "import sys, rfteach.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0, "rfteach.cli imports torch"
