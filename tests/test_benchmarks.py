"""The benchmarks run and report what they should, at tiny sizes; no timing is asserted."""

import importlib
import inspect
import json
import os
import re
import sys
import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import RegressorMixin

import bench_attention
import classes
import defaults
import harness
import memory
import mnist
import momentum
import real_data
import run
import sensitivity
import surrogates
import tables
import rfteach
from rfteach.chaos import legendre_basis
from rfteach.streaming import StreamingRidge

QUARTILES = {"median", "q1", "q3"}


def contest(n):
    """Calls of known memory, for `memory.extra_memory`: they return n bytes, and hold 9 n before or beside."""
    def blocks():  # small ones, which an allocator likes to keep when they are released
        return [np.ones(98_000, dtype=np.uint8) for _ in range(9 * n // 98_000)]

    def hold():
        kept = blocks()
        return np.full(n, bool(kept), dtype=np.uint8)

    def let_go():
        blocks()
        return np.ones(n, dtype=np.uint8)

    blocks()
    cases = {"hold": hold, "let go": let_go, "lean": lambda: np.ones(n, dtype=np.uint8)}
    return harness.Contest(cases, baseline="lean")


@pytest.mark.parametrize("name", run.NAMES)
def test_every_benchmark_runs(name, tmp_path, capsys, monkeypatch):
    if name != "ridge":  # one is enough to see that memory is measured: it takes a process of its own
        monkeypatch.setattr(run, "extra_memory", lambda *_: {"bytes": 2**20, "of_result": 0.5})
    run.main([name, "--quick", "--repeats", "2", "--out", str(tmp_path)])
    printed = capsys.readouterr().out
    text = (tmp_path / f"{name}.json").read_text(encoding="utf-8")
    record = json.loads(text)
    assert os.uname().nodename not in text and str(run.HERE.parent) not in text
    assert {"name", "title", "command", "date", "machine", "limits", "rows"} == set(record)
    assert {"cpu", "cores", "torch_threads", "thread_pools", "torch", "numpy"} <= set(record["machine"])
    for dtype, rates in record["limits"].items():
        assert {"gemm", "copy", "cos", "exp"} == set(rates)
        for job, found in rates.items():
            convolution = {"oneDNN"} if job == "gemm" and "float32" in dtype else set()
            assert found["rate"] > 0 and found["by"] in {"torch", "NumPy"} | convolution
    for row in record["rows"]:
        assert {"setting", "case", "baseline", "seconds", "speedup", "samples", "error", "extra_memory",
                "command"} <= set(row)
        assert len(row["samples"]) == 2
        for key in {"seconds", "speedup", "of_limit"} & set(row):
            assert set(row[key]) == QUARTILES and 0 < row[key]["q1"] <= row[key]["median"] <= row[key]["q3"]
        tolerance = 1e-5 if "float32" in row["setting"] else 1e-13
        if "subsample" in row["case"]:
            tolerance = 0.5  # of a few hundred pairs
        if "half precision" in row["case"] or "eigenvectors" in row["setting"]:
            tolerance = 1e-2
        if "learned sets" in row["setting"]:
            tolerance = 3  # of predictions
        if row["case"] in ("lars_path", "Clarabel", "public rule"):  # peers that stop by bounds of their own
            tolerance = 1e-4
        assert row["error"] is None or 0 <= row["error"] < tolerance
        line = f"| {row['setting']} | {row['case']} |"
        assert printed.count(line) == 1
    assert {row["baseline"] for row in record["rows"]} <= {row["case"] for row in record["rows"]}
    assert any(row["error"] is not None for row in record["rows"])
    if name in ("ridge", "orderq", "pursuit"):
        assert [row["case"] for row in record["rows"] if row["error"] is None and not row["case"].startswith("limit")] == []
    if name not in ("processes", "card") and os.path.exists("/proc/self/clear_refs"):
        assert any(row["extra_memory"] for row in record["rows"])


class Twice(StreamingRidge):
    """Ridge regression whose coefficients are wrong."""

    @property
    def coef_(self):
        return 2 * super().coef_


@pytest.mark.parametrize("name, job, what, wrong", [
    ("ridge", "", "StreamingRidge", Twice), ("card", "sums", "StreamingRidge", Twice),
    ("surrogate", "basis", "legendre_basis", lambda X, terms: 2 * legendre_basis(X, terms))])
def test_a_fault_shows_as_an_error(name, job, what, wrong, monkeypatch):
    """In float64, too, no result is compared with one of the same code."""
    bench = importlib.import_module(f"bench_{name}")
    monkeypatch.setattr(bench, what, wrong)
    setting = next(setting for setting in bench.settings(True) if job in run.label(setting))
    contest = bench.contest(**setting | {"dtype": "float64"})
    case = next(case for case in contest.errors if case.startswith("rfteach"))
    assert contest.errors[case](contest.cases[case]()) > 0.5


@pytest.mark.skipif(not (run.HERE.parent / ".git").exists(), reason="no earlier commits here")
def test_an_earlier_commit_runs_beside(monkeypatch, tmp_path, capsys):
    """Its cases run its own code, and nothing is stored."""
    monkeypatch.setattr(importlib.import_module("bench_ridge"), "StreamingRidge", Twice)
    run.main(["ridge", "--quick", "--only", "float64", "--before", "HEAD", "--out", str(tmp_path)])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if "handed over" in line]
    then, now = (float(row[5]) for row in rows)
    assert ": rfteach" in rows[0][1] and then < 1e-13 and now > 0.5
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("argv, message", [
    (["ridge", "--before", "no-such-commit"], "no-such-commit"), (["card", "--before", "HEAD"], "parts of other benchmarks"),
    (["eigenpro", "--only", "eigenvectors", "--before", "HEAD"], "named rfteach")])
def test_what_cannot_run_beside_is_said(argv, message, capsys, monkeypatch):
    monkeypatch.setattr(importlib.import_module("bench_card"), "settings", lambda quick: [{"what": "nothing"}])
    monkeypatch.setattr(importlib.import_module("bench_card"), "contest", lambda what: contest(10))
    with pytest.raises((SystemExit, ValueError)) as found:
        run.main([*argv, "--quick"])
    assert message in str(found.value) + capsys.readouterr().err


@pytest.mark.parametrize("number", range(len(bench_attention.settings(True))))
def test_the_limit_of_attention_does_the_same_each_time(number):
    cases = bench_attention.contest(**bench_attention.settings(True)[number]).cases
    assert torch.equal(cases["limit"]().clone(), cases["limit"]())
    whole, ours = cases["limit, and denominators"], cases["rfteach"]()
    for _ in range(2):
        torch.testing.assert_close(whole(), ours, atol=1e-5, rtol=1e-4)


def test_rows_can_be_made_one_by_one(tmp_path, capsys):
    name = run.NAMES[0]
    whole = run.run(name, quick=True, repeats=1, memory=False)
    row = whole["rows"][-1]
    part = run.run(name, quick=True, only=row["setting"], repeats=1, memory=False)
    assert [(r["setting"], r["case"]) for r in part["rows"]] == [
        (r["setting"], r["case"]) for r in whole["rows"] if r["setting"] == row["setting"]]
    run.main([name, "--quick", "--only", "no such setting", "--out", str(tmp_path)])
    assert "no setting contains 'no such setting'" in capsys.readouterr().out and not list(tmp_path.iterdir())
    assert row["command"] == f'python benchmarks/run.py {name} --quick --only "{row["setting"]}"'


def test_what_has_been_measured_is_kept_when_it_is_stopped(tmp_path, monkeypatch, capsys):
    """Rows are printed as they come, and the same command measures only what is left."""
    begun, stop = [], True

    def contest(size):
        begun.append(size)
        if size == 2 and stop:
            raise KeyboardInterrupt
        return harness.Contest({"ours": lambda: size}, baseline="ours", memory=False)

    toy = SimpleNamespace(TITLE="Toy", settings=lambda quick: [dict(size=1), dict(size=2)], contest=contest)
    monkeypatch.setitem(sys.modules, "bench_toy", toy)
    monkeypatch.setattr(run, "limits", lambda *_, **__: {})
    monkeypatch.setattr(run, "NAMES", ["toy"])
    monkeypatch.setattr(run, "HERE", tmp_path / "benchmarks")
    command = ["toy", "--quick", "--repeats", "1", "--out", str(tmp_path)]
    with pytest.raises(SystemExit, match="the same command goes on from there"):
        run.main(command)
    assert "| size=1 | ours |" in capsys.readouterr().out and not (tmp_path / "toy.json").exists()
    stop = False
    run.main(command)
    assert begun == [1, 2, 2]
    assert [row["setting"] for row in json.loads((tmp_path / "toy.json").read_text())["rows"]] == ["size=1", "size=2"]
    run.main(command)
    assert begun == [1, 2, 2, 1, 2], "what is complete is measured anew"
    stop = True
    with pytest.raises(SystemExit):
        run.main(command)
    stop = False
    run.main([*command, "--repeats", "2"])
    assert begun[5:] == [1, 2, 1, 2], "another command does not take it"
    run.main(command)
    assert begun[9:] == [2], "nor takes it away"


@pytest.mark.parametrize("wrong, words", [
    (dict(baseline="theirs"), r"baseline must be one of \['ours'\], got 'theirs'"),
    (dict(limit="ours"), r"limit must be a tuple of some of \['ours'\], got 'ours'"),
    (dict(parts=("none",)), r"parts must be a tuple of some of \['ours'\], got \('none',\)")])
def test_a_contest_names_its_cases(wrong, words):
    with pytest.raises(ValueError, match=words):
        harness.Contest({"ours": abs}, **{"baseline": "ours"} | wrong)


def test_unknown_names_are_refused(capsys):
    with pytest.raises(SystemExit):
        run.main(["no-such-benchmark"])
    assert run.NAMES[0] in capsys.readouterr().err


def test_ratios_are_baseline_over_case():
    naps = {"slow": 0.12, "fast": 0.04, "least": 0.02, "more": 0.06}
    cases = {name: (lambda nap=nap: time.sleep(nap)) for name, nap in naps.items()}
    rows = harness.compare(cases, repeats=5, baseline="slow", limit=("more", "least"), settle=0)
    assert list(rows) == list(cases)
    assert rows["slow"]["speedup"] == {"median": 1.0, "q1": 1.0, "q3": 1.0}
    assert rows["fast"]["speedup"]["median"] == pytest.approx(3, rel=0.5)
    assert rows["fast"]["of_limit"]["median"] == pytest.approx(0.5, rel=0.5)
    assert rows["fast"]["seconds"]["median"] >= 0.04
    pairs = np.divide(rows["slow"]["samples"], rows["fast"]["samples"])
    assert rows["fast"]["speedup"]["median"] == pytest.approx(np.median(pairs), rel=2e-3)
    assert rows["fast"]["speedup"]["q3"] == pytest.approx(np.quantile(pairs, 0.75), rel=2e-3)


def test_rounds_are_interleaved_in_changing_order():
    calls = []
    cases = {name: (lambda name=name: calls.append(name)) for name in "abc"}
    harness.compare(cases, repeats=20, patience=1, settle=0)
    rounds = [tuple(calls[i:i + 3]) for i in range(0, len(calls), 3)]
    assert len(rounds) == 20 and all(sorted(order) == list("abc") for order in rounds)
    assert len(set(rounds)) > 1


def test_the_quietest_rounds_count(monkeypatch):
    others, taken = [], iter([9, 0.9, 0, 0.7, 0.3, 0, 0, 0])  # 2 · 3 rounds

    def cpu_of_others():  # asked before and after each round, by its wall time
        others.append(time.perf_counter() if len(others) % 2 == 0 else
                      others[-1] + next(taken) * (time.perf_counter() - others[-1]))
        return others[-1]

    monkeypatch.setattr(harness, "cpu_of_others", cpu_of_others)
    rounds = iter(range(100))
    row = harness.compare({"a": lambda: time.sleep(0.05 * next(rounds))}, repeats=3, patience=2, settle=0)["a"]
    assert row["noise"] == pytest.approx([0, 0, 0.3], abs=0.1)
    assert row["samples"] == pytest.approx([0.1, 0.25, 0.2], abs=0.02)


def test_cases_settle_before_they_are_timed():
    calls = []
    cases = {name: (lambda name=name: (time.sleep(0.02), calls.append(name))) for name in "ab"}
    harness.compare(cases, repeats=1, patience=1, settle=0.03)
    assert re.fullmatch("a{2,3}b{2,3}|b{2,3}a{2,3}", "".join(calls))


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="no high-water mark to reset here")
@pytest.mark.parametrize("case, beside", [("hold", 9), ("let go", 8), ("lean", 0)])
def test_memory_of_known_allocations(case, beside):
    n = 20_000_000
    measured = memory.extra_memory("test_benchmarks", case, {"n": n})
    assert measured["bytes"] == pytest.approx(beside * n, abs=0.1 * n)
    assert measured["of_result"] == pytest.approx(measured["bytes"] / n, abs=0.01)


def test_what_pages_show_of_real_data(tmp_path, monkeypatch, capsys):
    """Tiny data in place of the real ones; and the kept record has what the pages read."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 15))
    rows = X, (X[:, 0] > 0).astype(float)
    monkeypatch.setattr(real_data, "load_propulsion", lambda split, **options: rows)
    kept = json.loads((run.HERE / "results/real_data.json").read_text(encoding="utf-8"))["pages"]
    assert list(kept) == [page.__name__ for page in real_data.PAGES]
    monkeypatch.setattr(real_data, "PAGES", (real_data.bandwidth, real_data.levels))
    real_data.main(["--out", str(tmp_path / "real.json")])
    found = json.loads((tmp_path / "real.json").read_text(encoding="utf-8"))["pages"]
    assert found["levels"] == {"rows": 40, "levels": 2, "smallest step": 1.0}
    assert found["bandwidth"].keys() == kept["bandwidth"].keys()
    assert found["bandwidth"]["methods"].keys() == kept["bandwidth"]["methods"].keys()
    assert "bandwidth: " in capsys.readouterr().out


@pytest.mark.parametrize("script", [classes, defaults, sensitivity, surrogates, tables])
def test_help_names_all_that_can_be_measured(script, capsys, monkeypatch):
    """Also where a name has a sign of percentage, which argparse would read."""
    monkeypatch.setenv("COLUMNS", "10000")  # no name is broken
    with pytest.raises(SystemExit) as left:
        script.main(["--help"])
    said = capsys.readouterr().out
    names = getattr(script, {sensitivity: "CASES", defaults: "MODELS", surrogates: "METHODS"}.get(script, "TABLES"))
    assert left.value.code == 0 and all(name in said for name in names)


def test_tables_keep_what_is_measured(tmp_path, monkeypatch, capsys):
    """Every quick method runs; what is in the file is not measured again; GP-ARD is left out above 1400 rows."""
    from sklearn.datasets import make_friedman1

    n = 120
    monkeypatch.setattr(tables, "load_regression", lambda name, **options: make_friedman1(n, random_state=0))
    file = tmp_path / "tables.json"
    tables.main(["yacht", "--splits", "2", "--methods", "linear ridge", "--out", str(file)])
    quick = [method for method in tables.METHODS if "tuned" not in method]
    tables.main(["yacht", "--splits", "1", "--methods", *quick, "--out", str(file)])
    printed = capsys.readouterr().out
    assert printed.count("yacht linear ridge") == 2 and printed.count("yacht GP-ARD 0 {") == 1
    record = json.loads(file.read_text(encoding="utf-8"))
    assert set(record["tables"]["yacht"]) == set(quick) and set(record["methods"]) == set(tables.METHODS)
    assert all(0 < runs["0"]["rmse"] < 1 for runs in record["tables"]["yacht"].values())
    assert "± " in tables.summary(record) and str(tmp_path) not in file.read_text(encoding="utf-8")
    assert tables.METHODS["GP-ARD"](np.zeros((1401, 2)), np.zeros(1401), 0) is None
    with pytest.raises(SystemExit):
        tables.main(["no-such-table"])


def test_classes_keep_what_is_measured(tmp_path, monkeypatch, capsys):
    """Words and gaps reach every peer; what is in the file is not measured again; a table that is unknown is named."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"number": rng.normal(size=80), "word": pd.Categorical(rng.choice(["a", "b", "c"], 80))})
    y = np.where((X["number"] > 0) ^ (X["word"] == "a"), "yes", "no")
    X.loc[::7, "number"] = np.nan
    monkeypatch.setattr(classes, "TABLES", {"words": lambda: (X, y)})
    file = tmp_path / "classes.json"
    classes.main(["words", "--splits", "1", "--methods", "LogisticRegression", "--out", str(file)])
    classes.main(["words", "--splits", "2", "--out", str(file)])
    assert capsys.readouterr().out.count("words LogisticRegression 0 {") == 1
    record = json.loads(file.read_text(encoding="utf-8"))
    assert set(record["tables"]["words"]) == set(classes.METHODS) == set(record["methods"])
    assert all(0.3 < run["accuracy"] <= 1 for runs in record["tables"]["words"].values() for run in runs.values())
    assert "± " in classes.summary(record)
    with pytest.raises(SystemExit):
        classes.main(["no-such-table"])


def test_defaults_keep_what_is_measured(tmp_path, capsys):
    """Every model runs in a noisy and a quiet setting; what is in the file is not measured again."""
    file, settings = tmp_path / "defaults.json", ["noise 50/10", "order two 200/10"]
    defaults.main(["SparsePCE", "--settings", settings[0], "--draws", "2", "--out", str(file)])
    defaults.main(["SparsePCE", "RBFRegressor", "--settings", *settings, "--draws", "2", "--out", str(file)])
    printed = capsys.readouterr().out
    assert printed.count("noise 50/10 SparsePCE 1 {") == 1 and printed.count("order two 200/10 RBFRegressor 0 {") == 1
    record = json.loads(file.read_text(encoding="utf-8"))
    assert set(record["runs"]) == set(settings) and str(tmp_path) not in file.read_text(encoding="utf-8")
    assert 0 < record["runs"]["noise 50/10"]["SparsePCE"]["0"]["reported"] < 3
    assert (defaults.ratios(record["runs"]["noise 50/10"], "RidgeCV") >= 1).all()
    with pytest.raises(SystemExit):
        defaults.main(["no-such-model"])


def test_defaults_do_no_harm():
    """Every regressor is in the record of defaults, and none is worse there than the page says it may be."""
    regressors = {name for name in rfteach.__all__ if inspect.isclass(getattr(rfteach, name))
                  and issubclass(getattr(rfteach, name), RegressorMixin)}
    assert regressors <= set(defaults.MODELS), f"To mend: {regressors - set(defaults.MODELS)} in MODELS of benchmarks/defaults.py"
    record = json.loads(defaults.RESULTS.read_text(encoding="utf-8"))
    due = {model for model in defaults.MODELS for setting in defaults.NOISY if model not in record["runs"][setting]}
    assert not due, f"To mend: python benchmarks/defaults.py {' '.join(due)}"
    for setting in defaults.NOISY:
        limit = 1.05 if setting.startswith("noise") else 1.10
        for model in defaults.MODELS:
            found = defaults.ratios(record["runs"][setting], model)
            slow = {"AdaptiveFeatureRegressor": 5, "AutoKernelRegressor": 3, "ProjectedSurrogate": 1}
            assert len(found) >= slow.get(model, 12), (setting, model)
            if model != "constant" and "learned" not in model:  # these are no defaults
                assert found.mean() <= limit, (setting, model, found.mean())


def test_surrogates_keep_what_is_measured(tmp_path, monkeypatch, capsys):
    """A peer, our own and a projection, at tiny sizes; what is in the file is not measured again."""
    monkeypatch.setattr(surrogates, "TRAINING", 60)
    monkeypatch.setattr(surrogates, "VALIDATION", 50)
    file, names = tmp_path / "surrogates.json", ["adam + SparsePCE", "AdaptiveFeatureRegressor", "KernelRidge"]
    surrogates.main([names[0], "--seeds", "1", "--out", str(file)])
    surrogates.main([*names, "--seeds", "2", "--out", str(file)])
    printed = capsys.readouterr().out
    assert printed.count(f"{names[0]} 0 {{") == 1 and printed.count(f"{names[2]} 1 {{") == 1
    record = json.loads(file.read_text(encoding="utf-8"))
    assert set(record["runs"]) == set(names) and set(record["methods"]) == set(surrogates.METHODS)
    assert all(set(runs) == {"0", "1"} for runs in record["runs"].values())
    assert all(0 < run["error"] < 10 for runs in record["runs"].values() for run in runs.values())
    assert surrogates.data(0)[0].shape == (60, 20) and str(tmp_path) not in file.read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        surrogates.main(["no such method"])
    assert "no such method" in capsys.readouterr().err


def test_mnist_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    """Both spaces and shifted images; what is in the file is not measured again, a checkpoint is gone on from."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=120)
    X = (rng.uniform(0, 0.5, (120, 784)) + 0.5 * (np.arange(784) % 3 == y[:, None])).astype(np.float32)
    monkeypatch.setattr(mnist, "load_mnist", lambda split, return_X_y: (X, y))
    wide = mnist.fourier
    monkeypatch.setattr(mnist, "fourier", lambda *given, **named: wide(*given, **named, n_components=50))
    file, names = tmp_path / "mnist.json", ["Laplacian, RKHS", "Laplacian, features", "one shift of each image"]
    arguments = ["--rows", "100", "--folder", str(tmp_path), "--out", str(file)]
    mnist.main([names[0], *arguments])
    mnist.main([*names, *arguments])
    printed = capsys.readouterr().out
    assert printed.count(f"{names[0]}\n") == 1 and printed.count("test error in %") == 2
    record = json.loads(file.read_text(encoding="utf-8"))
    assert list(record["runs"]) == names and {"cpu", "cores", "torch"} <= set(record["machine"])
    for name, found in record["runs"].items():
        assert found["rows"] == (200 if "shift" in name else 100)
        assert len(found["test"]) == len(found["epochs"]) == (6 if "shift" in name else 20)
        assert (tmp_path / f"{name}.npz").exists()
    assert set(record["runs"][names[0]]["training after"]) == {"1", "5", "10", "20"}
    assert str(tmp_path) not in file.read_text(encoding="utf-8")
    file.unlink()
    mnist.main([names[0], *arguments])  # all epochs are in the checkpoint
    again = json.loads(file.read_text(encoding="utf-8"))["runs"][names[0]]
    assert again["test"] == record["runs"][names[0]]["test"] and again["epochs"] == record["runs"][names[0]]["epochs"]
    for wrong, words in (([*arguments, "no such run"], "no such run"), ([*arguments, "--rows", "50"], "100 rows")):
        with pytest.raises(SystemExit):
            mnist.main(wrong)
        assert words in capsys.readouterr().err


def test_momentum_keeps_what_is_measured(tmp_path, monkeypatch, capsys):
    """All that is there runs, an epoch at a time; what is in the file is not measured again."""
    monkeypatch.setitem(momentum.TASKS, "smooth", (momentum.smooth, (1, 3)))
    file = tmp_path / "momentum.json"
    for _ in range(2):
        momentum.main(["smooth", "--methods", "plain", "momentum", "--out", str(file)])
    assert capsys.readouterr().out.count("smooth plain") == 1
    found = json.loads(file.read_text())["tasks"]["smooth"]
    assert list(found) == ["plain", "momentum"]
    for method in found.values():
        assert [at["epochs"] for at in method] == [1, 3] and 1 > method[0]["error"] > method[1]["error"] > 0
    with pytest.raises(SystemExit):
        momentum.main(["smoth"])
    assert "unknown task 'smoth'" in capsys.readouterr().err


def test_every_record_is_shown():
    """The page on benchmarks has the title and every setting of each record of `run`, and names the other files."""
    page = json.loads((run.HERE.parent / "nbs/15m_benchmarks.ipynb").read_text(encoding="utf-8"))
    shown = "".join("".join(output.get("data", {}).get("text/markdown", ""))
                    for cell in page["cells"] for output in cell.get("outputs", []))
    for file in sorted((run.HERE / "results").glob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        assert f"`{file.name}`" in shown, f"{file.name} is newer than the page"
        if "limits" in record:
            assert f'{record["title"]}.' in shown and f'{record["command"]} --only' in shown, file.name
            assert [row["setting"] for row in record["rows"] if f"| `{row['setting']}` |" not in shown] == []
