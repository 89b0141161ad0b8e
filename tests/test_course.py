"""`make course` and `make processors`: jobs side by side, the time left, and what other machines would do."""

import io
import json
import re
import subprocess
import sys
import threading
import time

import course
import jobs
import notebooks
import pytest
from build import directives


def test_jobs_run_side_by_side_and_one_that_fails_stops_no_other(monkeypatch):
    monkeypatch.setattr(jobs, "WORKERS", 2)
    meet = threading.Barrier(2, timeout=10)  # passed only by two jobs at a time

    def fail():
        raise ValueError("no")

    results = jobs.run({"a": meet.wait, "b": meet.wait, "c": fail, "d": lambda: 4}, {}, str, stream=io.StringIO())
    assert sorted([results["a"], results["b"]]) == [0, 1] and results["d"] == 4
    assert str(results["c"]) == "no"


def test_the_first_job_is_first_and_then_the_longest(monkeypatch):
    monkeypatch.setattr(jobs, "WORKERS", 1)
    done = []
    names = {"short": 1, "pages": 3, "long": 9}
    jobs.run({name: lambda name=name: done.append(name) for name in names}, names, str, "pages", io.StringIO())
    assert done == ["pages", "long", "short"]


def test_lines_that_stay_and_lines_of_progress():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for stream, kept in ((io.StringIO(), "^a: 1$"), (Terminal(), r"^\r\x1b\[2Ka: 1\n\r|a: 1\n")):
        jobs.run({"a": lambda: 1}, {"a": 5}, lambda name, result: f"{name}: {result}", stream=stream)
        assert re.search(kept, stream.getvalue(), re.M)
    stream = io.StringIO()
    jobs.run({"a": lambda: 1, "b": lambda: 2}, {}, lambda *_: None, stream=stream)
    assert re.search(r"^1 of 2 done, 0 s so far, about \d+ s left$", stream.getvalue(), re.M)
    assert stream.getvalue().endswith("2 of 2 done, 0 s so far\n")


@pytest.mark.parametrize("slow", [0.5, 1, 3])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_time_left(slow, workers, monkeypatch):
    """Half of the jobs are done, on a machine that is `slow`: the other half takes as long again."""
    monkeypatch.setattr(jobs, "WORKERS", workers)
    progress = jobs.Progress({str(k): 10.0 for k in range(40)}, io.StringIO())
    now = time.monotonic()
    for k in range(20):
        progress.started[str(k)], progress.took[str(k)] = now, 10.0 * slow
    assert progress.left() == pytest.approx(20 * 10 * slow / workers, rel=0.05)
    progress.started["20"] = now - 6 * slow  # one that runs: six tenths of it are behind us
    assert progress.left() == pytest.approx((19 * 10 + 4) * slow / workers, rel=0.05)


def test_the_time_left_is_at_least_that_of_the_longest_job(monkeypatch):
    monkeypatch.setattr(jobs, "WORKERS", 4)
    progress = jobs.Progress({"long": 100.0, "short": 1.0}, io.StringIO())
    assert progress.left() == pytest.approx(100.0)


@pytest.mark.parametrize("seconds, words", [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s")])
def test_durations(seconds, words):
    assert jobs.in_words(seconds) == words


def test_what_is_done_is_not_done_again(tmp_path):
    mark, done = tmp_path / "key", []
    for key in ("one", "one", "two"):
        course.unless_done(mark, key, lambda: done.append(key))
    assert done == ["one", "two"]
    with pytest.raises(ZeroDivisionError):
        course.unless_done(mark, "three", lambda: 1 / 0)
    assert not mark.exists()


def test_every_chapter_has_its_seconds():
    assert list(json.loads(notebooks.SECONDS.read_text())) == [path.name for path in notebooks.chapters()]


# --- What other machines would do -----------------------------------------------------------

PROBE = """
import json, numpy, scipy.linalg, threadpoolctl, torch
from numpy._core._multiarray_umath import __cpu_features__
pools = threadpoolctl.threadpool_info()
print(json.dumps({"torch": torch.backends.cpu.get_cpu_capability(), "threads": torch.get_num_threads(),
                  "blas": sorted({p["architecture"] for p in pools if p["internal_api"] == "openblas"}),
                  "numpy": __cpu_features__["X86_V3"]}))
"""


@pytest.mark.parametrize("name, torch, blas", [
    ("SSE, one thread", "DEFAULT", "Nehalem"), ("AVX2, one thread", "AVX2", "Haswell"),
    ("Zen, two threads", "AVX2", "Haswell")])  # the name that OpenBLAS gives to its code for both
def test_processors_are_what_their_name_says(name, torch, blas):
    env = notebooks.processor(name)
    done = subprocess.run([sys.executable, "-W", "error", "-c", PROBE], env={**notebooks.kernel_environment(), **env},
                          check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    if torch == "AVX2" and found["torch"] == "DEFAULT":  # it cannot be played by one that has less
        pytest.skip("this processor has no AVX2")
    assert found["torch"] == torch and found["blas"] == [blas]
    assert found["threads"] == (2 if "two" in name else 1)
    assert found["numpy"] == ("SSE" not in name)


def test_outputs_belong_to_a_processor_and_not_to_a_folder_of_data(monkeypatch):
    nb = notebooks.nbformat.v4.new_notebook()
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    key = notebooks.content_key(nb)
    monkeypatch.setenv("RFTEACH_DATA", "elsewhere")
    assert notebooks.content_key(nb) == key
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert notebooks.content_key(nb) != key
    assert "RFTEACH_DATA" not in notebooks.kernel_environment()


@pytest.mark.parametrize("notebook", notebooks.chapters(), ids=lambda path: path.name)
def test_no_page_needs_data_that_a_stranger_lacks(notebook):
    """The loaders are called in what is exported and where a message is shown, nowhere else."""
    for cell in notebooks.code_cells(notebook):
        found, code = directives(cell.source)
        if not {"export", "exports"} & found.keys() and "shown_error" not in code:
            assert not re.search(r"load_(mnist|propulsion|regression)\(", code), code
