"""`make course` and `make processors`, and what a course has that a manual lacks: questions, and room for answers."""

import io
import json
import platform
import re
import subprocess
import sys
import threading
import time

import course
import jobs
import notebooks
import nbformat
import pytest
from build import directives


def test_jobs_run_side_by_side_and_one_that_fails_stops_no_other():
    meet = threading.Barrier(2, timeout=10)  # passed only by two jobs at a time

    def fail():
        raise ValueError("no")

    todo = {"a": meet.wait, "b": meet.wait, "c": fail, "d": lambda: 4}
    results = jobs.run(todo, {}, lambda *_: None, stream=io.StringIO(), workers=2)
    assert sorted([results["a"], results["b"]]) == [0, 1] and results["d"] == 4
    assert str(results["c"]) == "no"


def test_the_first_job_is_first_and_then_the_longest():
    done = []
    names = {"short": 1, "pages": 3, "long": 9}
    todo = {name: lambda name=name: done.append(name) for name in names}
    jobs.run(todo, names, lambda *_: None, "pages", io.StringIO(), 1)
    assert done == ["pages", "long", "short"]


def test_lines_that_stay_and_lines_of_progress():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for stream, kept in ((io.StringIO(), r"1 of 1 done, \d+ s so far: a: 1\n"),
                         (Terminal(), r"(?s).*\r\x1b\[2Ka: 1\n1 of 1 done, \d+ s so far.*\r\x1b\[2K")):
        jobs.run({"a": lambda: 1}, {"a": 5}, lambda name, result: f"{name}: {result}", stream=stream)
        assert re.fullmatch(kept, stream.getvalue())


def test_the_line_fits_on_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    stream = io.StringIO()
    stream.isatty = lambda: True
    progress = jobs.Progress({"a chapter with a long name": 100.0, "another one": 5.0}, stream)
    progress.started.update(dict.fromkeys(progress.expected, time.monotonic()))
    progress.show()
    assert len(stream.getvalue().removeprefix("\r\x1b[2K")) == 59
    stream = io.StringIO()
    jobs.run({"a": lambda: 1, "b": lambda: 2}, {}, lambda *_: None, stream=stream, workers=1)
    assert re.fullmatch(r"1 of 2 done, \d+ s so far, about \d+ s left\n2 of 2 done, \d+ s so far\n", stream.getvalue())


@pytest.mark.parametrize("slow", [0.5, 1, 3])
@pytest.mark.parametrize("workers", [1, 2])
def test_the_time_left(slow, workers):
    """Half of the jobs are done, on a machine that is `slow`: the other half takes as long again."""
    progress = jobs.Progress({str(k): 10.0 for k in range(40)}, io.StringIO(), workers)
    now = time.monotonic()
    for k in range(20):
        progress.started[str(k)], progress.took[str(k)] = now, 10.0 * slow
    assert progress.left() == pytest.approx(20 * 10 * slow / workers, rel=0.05)
    progress.started["20"] = now - 6 * slow  # one that runs: six tenths of it are behind us
    assert progress.left() == pytest.approx((19 * 10 + 4) * slow / workers, rel=0.05)


def test_what_was_done_before_says_nothing_of_the_speed():
    progress = jobs.Progress({"done": 500.0, "left": 100.0}, io.StringIO(), 1)
    progress.started["done"], progress.took["done"] = time.monotonic(), 0.1
    assert progress.left() == pytest.approx(100.0)


def test_the_time_left_is_at_least_that_of_the_longest_job():
    progress = jobs.Progress({"long": 100.0, "short": 1.0}, io.StringIO(), 4)
    assert progress.left() == pytest.approx(100.0)


@pytest.mark.parametrize("seconds, words", [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s")])
def test_durations(seconds, words):
    assert jobs.in_words(seconds) == words


def test_what_is_done_is_not_done_again(tmp_path):
    made, done = tmp_path / "page", []

    def make():
        done.append(key)
        made.touch()

    for key in ("one", "one", "two"):
        course.unless_done(made, key, make)
    assert done == ["one", "two"]
    made.unlink()
    course.unless_done(made, "two", make)
    assert done == ["one", "two", "two"], "it is made again where it has gone"
    with pytest.raises(ZeroDivisionError):
        course.unless_done(made, "three", lambda: 1 / 0)
    course.unless_done(made, "two", make)
    assert len(done) == 4, "a step that failed leaves nothing behind that counts"


def test_an_error_is_not_taken_for_a_value_that_is_worse(tmp_path, monkeypatch):
    """Both end with status 1; only one of them has a comparison."""
    monkeypatch.setattr(course, "REPORT", tmp_path / "report.txt")
    monkeypatch.setattr(course, "command", lambda *words, fine: "Traceback ...")
    with pytest.raises(course.SiteError, match="Traceback"):
        course.numbers()
    assert not (tmp_path / ".key").exists() and not (tmp_path / "report.txt").exists()


def test_every_chapter_has_its_seconds():
    known = list(json.loads(notebooks.SECONDS.read_text()))
    assert known == [*map(notebooks.name_of, notebooks.chapters())], "To mend: make sync, which writes site/seconds.json"


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
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="older processors are played on x86-64 only")
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
    for name in ("ATEN_CPU_CAPABILITY", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    key = notebooks.content_key(nb)
    monkeypatch.setenv("RFTEACH_DATA", "elsewhere")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert notebooks.content_key(nb) == key, "make course and make test share what they execute"
    assert "RFTEACH_DATA" not in notebooks.kernel_environment.__wrapped__()
    assert notebooks.content_key(nb, {"ATEN_CPU_CAPABILITY": "default"}) != key
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    assert notebooks.content_key(nb) != key


@pytest.mark.parametrize("notebook", notebooks.chapters(), ids=notebooks.name_of)
def test_no_page_needs_data_that_a_stranger_lacks(notebook):
    """The loaders are called in what is exported and where a message is shown, nowhere else."""
    for cell in notebooks.code_cells(notebook):
        found, code = directives(cell.source)
        if not {"export", "exports"} & found.keys() and "shown_error" not in code:
            assert not re.search(r"load_(mnist|propulsion|regression)\(", code), code


# --- Questions on the way ---------------------------------------------------------------------

ASKED = range(1, 15)
FOLD = re.compile(r"<details><summary>([^\n]+)</summary>\n\n((?:(?!</?details>).)+)\n\n</details>", re.S)
POINTER = re.compile(r"\(\d+\.\d+\)|\]\(\S+\)|chapter \d|\b(?:figure|panel|table|caption|output|column|cell above|\"[A-Z])")
OWN = "## Use it on your own table"


def prose(page):
    return [cell.source for cell in nbformat.read(page, as_version=4).cells if cell.cell_type == "markdown"]


def of_chapter(number):
    """The pages of a chapter."""
    return [page for page in notebooks.chapters() if page.name.startswith(f"{number:02}")]


def faults_of(question):
    """What is wrong with a cell that asks something and has answers to unfold."""
    folds, found = FOLD.findall(question), []
    right = [text for _, text in folds if text.startswith("Yes")]
    if not 2 <= len(folds) <= 4:
        found.append(f"{len(folds)} answers that unfold, with empty lines in between")
    if question.count("<details>") != len(folds) or question.count("</details>") != len(folds):
        found.append("a fold that is not closed")
    if [text for _, text in folds if not re.match(r"(Yes|No)\b[:,] ", text)]:
        found.append("an answer that is neither Yes nor No")
    if len(right) != 1:
        found.append(f"{len(right)} answers are Yes")
    if not all(map(POINTER.search, right)):
        found.append("no way back to what was said")
    if [summary for summary, _ in folds if re.search(r"[$*`_&<]", summary)]:
        found.append("a summary with marks that are not drawn everywhere")
    if "?" not in question[:question.find("<details>")]:
        found.append("no question")
    return found


@pytest.mark.parametrize("chapter", ASKED)
def test_a_chapter_asks(chapter):
    """Three questions or more; neither the place nor the length of an answer tells which is right."""
    asked = [cell for page in of_chapter(chapter) for cell in prose(page) if cell.startswith("**Recall.**")]
    assert len(asked) >= 3
    assert {cell[:80]: found for cell in asked if (found := faults_of(cell))} == {}
    answers = [FOLD.findall(cell) for cell in asked]
    right = [[text.startswith("Yes") for _, text in folds].index(True) for folds in answers]
    shorter = [sum(len(other) < len(folds[k][0]) for other, _ in folds) for folds, k in zip(answers, right)]
    assert len(set(right)) > 1 and len(set(shorter)) > 1


@pytest.mark.parametrize("old, new, fault", [
    ("Yes: so it is, (1.4).", "No: not so.", "0 answers are Yes"),
    ("No: it is not.", "Yes: it is, (1.4).", "2 answers are Yes"),
    ("No: it is not.", "It is not.", "neither Yes nor No"),
    (", (1.4)", "", "no way back"),
    ("</details>\n<details>", "<details>", "not closed"),
    ("</summary>\n\nNo", "</summary>\nNo", "not closed"),
    ("The other", "$x$", "not drawn everywhere"),
    ("What?", "What.", "no question"),
])
def test_a_question_that_is_broken_is_noticed(old, new, fault):
    whole = ("**Recall.** What?\n\n<details><summary>The one</summary>\n\nNo: it is not.\n\n</details>\n"
             "<details><summary>The other</summary>\n\nYes: so it is, (1.4).\n\n</details>")
    assert faults_of(whole) == [] and whole.count(old) == 1
    assert any(fault in found for found in faults_of(whole.replace(old, new)))


@pytest.mark.parametrize("chapter", ASKED)
def test_a_prediction_has_its_place_and_its_answer(chapter):
    """Above each figure that moves a question, below it a line to write on and what unfolds; in experiments, too."""
    for page in of_chapter(chapter):
        said = [cell for cell in prose(page) if "**Predict.**" in cell]
        for cell in said:
            before, _, after = cell.partition("<details>")
            assert "?" in before and "*My answer:* ____" in before, cell[:80]
            assert "efore you move" not in before, "on paper nothing moves"
            assert {summary for summary, _ in FOLD.findall("<details>" + after)} == {"What happens"}, cell[:80]
        moving = sum("question=" in cell.source and "slider(" in cell.source for cell in notebooks.code_cells(page))
        assert sum(cell.startswith("**Predict.**") for cell in said) >= moving, page.name
        assert not [cell for cell in prose(page) if "efore you run the check" in cell and cell not in said], page.name


@pytest.mark.parametrize("chapter", ASKED)
def test_a_chapter_can_be_used_on_another_table(chapter):
    """A few lines, the first of which is to be replaced."""
    found = []
    for page in of_chapter(chapter):
        cells = nbformat.read(page, as_version=4).cells
        for k in [k for k, cell in enumerate(cells) if cell.source.startswith(OWN)]:
            code = next(cell.source for cell in cells[k:] if cell.cell_type == "code" and "import" not in cell.source)
            assert code.split("\n")[0].endswith("  # your table here") and code.count("\n") < 8, page.name
            found.append(page)
    assert len(found) == 1


# ---- reading times
HEAD = re.compile(r"About (\d+) minutes(?:, of which (\d+) for the)?")
WORDS, EQUATION, LINES, FIGURE = 150, 1.5, 12, 1.0  # words a minute, minutes, lines of code a minute, minutes
FOLDED = re.compile(r"#\| (?:hide|default_exp|code-fold: true)|#\| export$|^(?:import|from) ", re.M)


def reading(page):
    """Minutes of a first reading: without exercises, symbols and references, parts to be skipped, and folded code."""
    total, skip = 0.0, False
    for cell in page.cells:
        if re.search(r"^## (?:Exercises|Symbols|References)", cell.source, re.M):
            break
        if cell.cell_type == "markdown" and re.search(r"^##+ ", cell.source, re.M):
            skip = False
        skip = skip or "Skip on first reading" in cell.source
        if skip:
            continue
        if cell.cell_type == "markdown":
            text = re.sub(r"\$\$.*?\$\$", " ", cell.source, flags=re.S)
            text = re.sub(r"\$[^$]*\$", " x ", re.sub(r"\]\([^)]*\)", "]", text))
            total += len(re.findall(r"\w+", text)) / WORDS + EQUATION * cell.source.count(r"\tag{")
            continue
        code = re.sub(r'""".*?"""', "", cell.source, flags=re.S)
        if not FOLDED.search(cell.source):
            total += sum(bool(line.strip()) for line in code.split("\n")) / LINES
        total += FIGURE * sum("image/png" in output.get("data", {}) for output in cell.outputs)
    return total


@pytest.mark.parametrize("path", [path for path in sorted(notebooks.NBS.glob("[01]*.ipynb")) if not path.stem.startswith(("15", "16"))],
                         ids=lambda path: path.stem)
def test_the_minutes_on_a_page_are_those_of_a_rule(path):
    page = nbformat.read(path, as_version=4)
    head = HEAD.search(page.cells[1].source)
    if head:
        rule = reading(page) + int(head[2] or 0)
        assert abs(int(head[1]) - rule) <= max(5, 0.1 * rule), f"the rule gives {5 * round(rule / 5)} minutes"
