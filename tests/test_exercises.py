"""Exercises: the checker, and every exercise against right answers, wrong answers and its stub."""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import notebooks
from answers import ANSWERS, notes, tried
from classroom import material
from rfteach import grading
from rfteach.answers import NotAccepted, show
from rfteach.exercises import LIMIT, Exercise, check, differ, exercises, topics

TOPICS = topics()
NAMES = [f"{topic}.{name}" for topic in TOPICS for name in exercises(topic)]
LIMITED = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="nothing interrupts an answer here")
HEAD = re.compile(r"\*About (\d+) minutes, of which (\d+) for the (?:(\d+) exercises|exercise)\. Needs (.+)\*")
BOOKS, STUDENTS, POINTS = material()
PAGE = {name: page for page, found in POINTS.items() for name in found}  # on which an exercise stands


def exercise(name):
    topic, _, short = name.partition(".")
    return tried(topic)[short]


def pages(topic):
    """Return the names of the notebooks with the exercises of a topic, in reading order."""
    return [page for page, found in POINTS.items() if any(name.startswith(f"{topic}.") for name in found)]


def sources(names):
    """Return the text and the code of notebooks."""
    return "\n".join(cell.source for name in names for cell in BOOKS[name].cells)


def cells(nb, grade_id):
    return [c for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade_id") == grade_id]


def solution(nb, name):
    """Return the imports of a notebook's exercises, its solution of one, and which function goes to the check."""
    topic, _, short = name.partition(".")
    cell, = cells(nb, f"{topic}-{short}")
    start = next(k for k, c in enumerate(nb.cells) if c.source.startswith("## Exercises"))
    imports = next(c for c in nb.cells[start:] if c.cell_type == "code")
    given = re.search(r", (\w+)\)", cells(nb, f"{topic}-{short}-check")[0].source)[1]
    return imports.source, cell.source, given


def function(nb, name):
    """Return the function that a notebook gives to the check of an exercise.

    Only the section with the exercises is run, as by a student who begins there.
    """
    imports, solved, given = solution(nb, name)
    space = {}
    exec(imports, space)
    exec(solved, space)
    return space[given]


# --- Each exercise ----------------------------------------------------------------------------

@pytest.mark.parametrize("name", NAMES)
def test_right_answers_are_accepted(name):
    ex = exercise(name)
    assert ex.name == name
    for answer in [ex.model, *ex.alternatives, function(BOOKS[PAGE[name]], name)]:
        assert (verdict := ex.verdict(answer)) is None, str(verdict)


@pytest.mark.parametrize("name", NAMES)
def test_wrong_answers_are_refused_for_their_reason(name):
    ex = exercise(name)
    assert len(ex.mistakes) >= 2, "an exercise keeps at least two typical mistakes"
    secret = [inspect.getsource(ex.model), *map(inspect.getsource, ex.alternatives)]
    secret += [cells(BOOKS[PAGE[name]], name.replace(".", "-"))[0].source]
    lines = {line.strip() for text in secret for line in text.split("\n")}
    for mistake in ex.mistakes:
        verdict = ex.verdict(mistake.answer)
        assert verdict is not None, f"accepted: {mistake.description}"
        assert verdict.violated == mistake.violates, f"{mistake.description}: {verdict}"
        assert mistake.violates in str(verdict) and mistake.violates in ex.names
        shown = [line for line in lines if len(line) > 12 and line in str(verdict)]
        assert not shown, f"the message shows the solution: {shown}"


@pytest.mark.parametrize("name", NAMES)
def test_stub_is_refused(name):
    verdict = exercise(name).verdict(function(STUDENTS[PAGE[name]], name))
    assert verdict.violated == "written", verdict


# --- The chapters, and the notes beside them --------------------------------------------------

def test_there_are_enough():
    assert len(NAMES) >= 45
    assert {t: len(exercises(t)) for t in TOPICS if not 4 <= len(exercises(t)) <= 6} == {}
    assert sum(bool(exercise(name).alternatives) for name in NAMES) >= len(NAMES) * 0.8


@pytest.mark.parametrize("topic", TOPICS)
def test_chapter_and_specifications_agree(topic):
    """Its exercises, which may stand on several pages, are the same in the same order, and are counted through."""
    order = list(BOOKS)
    graded = [name for page in pages(topic) for name in POINTS[page] if name.startswith(f"{topic}.")]
    assert graded == [f"{topic}.{name}" for name in exercises(topic)], "To mend: the same exercises in the same order"
    ids = [c.metadata.get("nbgrader", {}).get("grade_id", "") for page in pages(topic) for c in BOOKS[page].cells]
    assert [name for name in ids if name.endswith("-proof")], "a chapter has at least one proof"
    for page in pages(topic):
        head = HEAD.fullmatch(BOOKS[page].cells[1].source)
        assert head, f"{page}: the second cell must be '*About 90 minutes, of which 40 for the 5 exercises. Needs ...*'"
        stated, there = int(head[3] or 1), len(POINTS[page])
        assert stated == there, f"{page}: the second cell says {stated} exercises, there are {there}"
        assert int(head[2]) < int(head[1]), "the exercises take longer than the page"
        for needed in re.findall(r"\((\S+\.ipynb)\)", head[4]):
            assert order.index(needed) < order.index(page), f"{needed} comes later"
        titles = re.findall(r"^### Exercise (\d+)\.\d+", sources([page]), re.M)
        assert {int(part) for part in titles} == {int(page[:2])}, f"{page}: exercises have the number of the chapter"


@pytest.mark.parametrize("number", sorted({page[:2] for page in PAGE.values()}))
def test_exercises_of_a_chapter_are_counted_through(number):
    """Over all its pages."""
    text = sources([page for page in POINTS if page.startswith(number)])
    counted = [int(count) for count in re.findall(r"^### Exercise \d+\.(\d+)", text, re.M)]
    assert counted == list(range(1, len(counted) + 1))


@pytest.mark.parametrize("topic", TOPICS)
def test_teaching_notes(topic):
    chapter = {page[:2] for page in pages(topic)}
    text = "\n".join(c.source for c in BOOKS[notebooks.name_of(notes(topic))].cells if c.cell_type == "markdown")
    assert re.findall("^## (.*)", text, re.M) == [
        "Time plan", "Where students stumble", "A question for discussion", "Exercises"]
    stated = re.findall(r"^### (Exercise .*) \(\d points?\)$", sources(pages(topic)), re.M)
    assert re.findall("^### (.*)", text, re.M) == stated, "To mend: the titles of the chapter, without points"
    source = sources([page for page in POINTS if page[:2] in chapter])
    headings = {"".join(h.split("`")).replace("$", "") for h in re.findall("^##+ (.*)", source, re.M)}
    plan = text[text.index("## Time plan"):text.index("## Where students")]
    rows = [row.split("|")[1:-1] for row in plan.split("\n") if re.match(r"\| *\d", row)]
    named = [part.strip() for *_, where in rows for part in where.replace("$", "").replace("`", "").split(", ")]
    lost = [part for part in named if part and part not in headings
            and not any(part in heading for heading in headings)]
    assert rows and not lost, f"the plan names headings that the chapter does not have: {lost}"


# --- The checker ------------------------------------------------------------------------------

def test_the_package_has_no_answers():
    """They are test material: the notes have them, and the package that students install does not."""
    sources = {file: file.read_text(encoding="utf-8") for file in (notebooks.ROOT / "rfteach/specifications").glob("*.py")}
    assert len(sources) > len(TOPICS) and not [file.name for file, text in sources.items() if ANSWERS.search(text)]


BROWSER = """
import _thread, json, os, signal, subprocess, sys, threading

def refuse(*args, **kwargs):
    raise RuntimeError("there are no threads and no processes in a browser")

class Browser:
    def find_spec(name, path=None, target=None):
        known = {*sys.stdlib_module_names, "numpy", "scipy", "rfteach"}
        if name.partition(".")[0] not in known and not name.startswith("_sysconfigdata"):  # of Python itself
            raise ModuleNotFoundError(f"there is no {name} in a browser", name=name)

sys.meta_path.insert(0, Browser)
threading.Thread.start = _thread.start_new_thread = subprocess.Popen.__init__ = refuse
for module, missing in ((signal, "setitimer"), (os, "fork"), (os, "posix_spawn")):
    vars(module).pop(missing, None)
for name, imports, solution, function in json.load(sys.stdin):
    space = {}
    exec(imports, space)
    exec(solution, space)
    space["check"](name, space[function])
"""


def test_every_check_runs_in_a_browser():
    """Where there is nothing but Python, NumPy and SciPy: no torch, no scikit-learn, no thread, no timer."""
    work = [(name, *solution(BOOKS[PAGE[name]], name)) for name in NAMES]
    env = {name: value for name, value in os.environ.items() if name != "SCIPY_ARRAY_API"}
    done = subprocess.run([sys.executable, "-c", BROWSER], input=json.dumps(work), capture_output=True, text=True,
                          env=env)
    assert done.returncode == 0, done.stderr
    assert [line.partition(" ")[0] for line in done.stdout.split("\n") if " is accepted" in line] == NAMES


@pytest.fixture
def double():
    """An exercise: twice a vector."""
    ex = Exercise("toy.double", "y")

    @ex.specification
    def _(x):
        return np.array([2 * value for value in x])

    @ex.inputs
    def _(rng, n):
        return {"x": rng.normal(size=n).round(1)}

    @ex.case("nothing")
    def _():
        return {"x": np.zeros(0)}

    @ex.property("odd")
    def _(y, given, answer):
        return differ(-np.asarray(y), answer(-given.x), "-y(x)", "y(-x)")

    return ex


def changes_its_input(x):
    x *= 2
    return x


def forgets(x, calls=[]):  # noqa: B006
    calls.append(1)
    return 2 * x + len(calls)


def shrinks(x, calls=[]):  # noqa: B006
    calls.append(len(x))
    return 2 * x[:1] if calls.count(len(x)) == 2 else 2 * x


def stops(x):
    def inner(x):
        return x @ np.ones(len(x) + 1)
    return inner(x)


def recursive(x):
    return recursive(x)


def fails_at_length(x):
    raise ValueError("x" * 100_000)


def swallows(x):
    while True:
        try:
            np.zeros(3).sum()
        except:  # noqa: E722
            continue


def printing(x):
    while True:
        print("again")


def endless(x):
    while True:
        try:
            x.size
        except Exception:
            pass


@pytest.mark.parametrize("answer, violated, words", [
    (3, "parameters", "A function is expected, this is int 3."),
    (lambda: 1, "parameters", "The answer takes (), expected is (x)."),
    (lambda x, y: 1, "parameters", "The answer takes (x, y), expected is (x)."),
    (stops, "runs", "of inner: return x @ np.ones(len(x) + 1)\n  ValueError: "),
    (recursive, "runs", "lines like these)"),
    pytest.param(endless, "time", "more than 2 seconds", marks=LIMITED),
    pytest.param(swallows, "time", "more than 2 seconds", marks=LIMITED),
    pytest.param(printing, "time", "more than 2 seconds", marks=LIMITED),
    (lambda x: None, "returns", "is a return missing?"),
    (lambda x: "two", "returns", "y is of the type str, numbers are expected"),
    (lambda x: [*x, "two"], "returns", "y has entries of the type str, numbers are expected"),
    (lambda x: np.array([*x, 1j, None]), "returns", "y has entries of the type complex, numbers are expected"),
    (lambda x: (2 * x, 1.0), "returns", "returned 2 pieces of shapes (1,), () for y; one array is expected."),
    (lambda x: [[1], [[1], [1, 2]]], "returns", "y is no array: setting"),
    (lambda x: [[1], [1, 2]], "returns", "returned 2 pieces of shapes (1,), (2,) for y"),
    (lambda x: 2 * x[:, None], "shape", "y has the shape (1, 1), expected is (1,)"),
    (lambda x: 2 * x / (x.size < 3), "finite", "y[0] = "),
    (changes_its_input, "inputs unchanged", "changes x in place"),
    (forgets, "same result twice", "in a second call"),
    (shrinks, "same result twice", "of another form"),
    (lambda x: 2 * np.abs(x), "odd", "-y(x)[0] = "),
    (lambda x: 3 * x, "value", "expected is"),
    (lambda x: 2 * x.astype(np.float32), "returns", "y is float32 where the inputs are float64"),
    (lambda x: 2 * x + 0j, "returns", "y is complex128, real numbers are expected"),
    (lambda x: x > 0, "returns", "y is bool, real numbers are expected"),
    (lambda x: {"y": 2 * x}, "returns", "y is of the type dict, numbers are expected."),
    (lambda x: (2 * v for v in x), "returns", "y is of the type generator"),
    (lambda x: exit(), "runs", "SystemExit"),
    (lambda x: [][1 / 0 if len(x) else 0] * 10**6, "runs", "ZeroDivisionError"),
    (fails_at_length, "runs", "xxx ..."),
])
def test_what_is_said(double, answer, violated, words):
    verdict = double.verdict(answer)
    assert verdict.violated == violated and words in str(verdict), verdict
    assert str(verdict).startswith(f"toy.double is not accepted. Violated: {violated}.\n")
    assert len(str(verdict)) < 1000


def test_other_forms_of_a_right_answer(double, capsys):
    import torch

    def talkative(x):
        print("a student's own prints")
        return 2 * x

    for answer in [lambda x: [2 * v for v in x], lambda x: (2 * x).tolist(), lambda x: torch.tensor(2 * x), lambda x, factor=2: factor * x,
                   lambda *args: args[0] * 2, talkative, lambda x: [Fraction(2 * v) for v in x.tolist()],
                   lambda x: [Decimal(2 * v) for v in x.tolist()], lambda x: (2 * x).astype(object), np.vectorize(lambda v: 2 * v, otypes=[float])]:
        assert double.verdict(answer) is None
    assert capsys.readouterr().out == ""
    for name in ("uncertainty.covered", "ridge.slopes"):
        ex = exercise(name)
        assert ex.verdict(lambda *inputs, ex=ex: torch.tensor(np.array(ex.model(*inputs)))) is None, "two values in one"


def test_an_answer_may_use_its_result_again(double):
    kept = np.zeros(8)

    def buffered(x):
        kept[: len(x)] = 2 * x
        return kept[: len(x)]

    assert double.verdict(buffered) is None


def test_settings_of_numpy_do_not_matter(double):
    with np.errstate(all="raise"):
        assert exercise("kernels.gram").verdict(exercise("kernels.gram").model) is None
    assert "FloatingPointError" not in str(double.verdict(lambda x: np.seterr(all="raise") and x))


def test_what_an_answer_prints_and_sets_does_not_come_out(double, capsys):
    def loud(x):
        print("a bar", file=sys.stderr)
        np.set_printoptions(precision=1)
        return 2 * x

    precision = np.get_printoptions()["precision"]
    assert double.verdict(loud) is None
    assert capsys.readouterr() == ("", "") and np.get_printoptions()["precision"] == precision


@LIMITED
def test_an_answer_that_waits(double):
    verdict = double.verdict(lambda x: time.sleep(60), seconds=0.2)
    assert verdict.violated == "time" and "more than 0.2 seconds of computing, or 1 on the clock, for" in str(verdict)
    assert "the time was up in call 1\nfor x = [" in str(verdict)


@LIMITED
def test_an_exercise_may_give_more_time_or_less(double):
    double.seconds = 0.2
    assert "more than 0.2 seconds" in str(double.verdict(endless))


def test_the_first_chapter_says_where_there_is_more_time():
    longer = set()
    for name in NAMES:
        if (seconds := exercise(name).seconds) != LIMIT:
            above = sources([PAGE[name]]).partition(f'check("{name}"')[0]
            longer.add((re.findall(r"^### Exercise (\S+):", above, re.M)[-1], seconds))
    said, = re.findall(r"two seconds \(ten in (\S+) and (\S+)\)", sources(["01_kernels.ipynb"]))
    assert {(number, 10) for number in said} == longer and LIMIT == 2


SLOW = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end:\n    pass\ntwo = 2\n"


@LIMITED
def test_an_import_is_let_finish_and_takes_none_of_the_time(double, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "slow_to_import.py").write_text(SLOW, encoding="utf-8")

    def answer(x):
        import slow_to_import
        return slow_to_import.two * x

    def without_end(x):
        monkeypatch.delitem(sys.modules, "slow_to_import")
        import slow_to_import
        while slow_to_import.two:
            pass

    assert double.verdict(answer, seconds=0.3) is None
    assert double.verdict(without_end, seconds=0.3).violated == "time"


@LIMITED
def test_an_endless_loop_ends_where_the_check_itself_is_imported(tmp_path):
    """As by a script that is run with ``import``: the imports outside of the check are none of the answer's."""
    (tmp_path / "homework.py").write_text(
        "from rfteach.exercises import exercises\n\ndef endless(X, Z, sigma):\n    while True:\n        pass\n\n"
        "print(exercises('kernels')['gram'].verdict(endless, 0.2).violated)\n", encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(notebooks.ROOT), str(tmp_path)])}
    done = subprocess.run([sys.executable, "-c", "import homework"], capture_output=True, text=True, timeout=60, env=env)
    assert done.stdout == "time\n", done.stderr


def test_threads(double):
    import threading

    out, found = sys.stdout, []
    threads = [threading.Thread(target=lambda: found.append(double.verdict(lambda x: 2 * x))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [None] * 4 and sys.stdout is out


def test_the_smallest_input_is_shown(double):
    def wrong_from_three_on(x):
        return 2 * x + (len(x) > 2)

    message = str(double.verdict(wrong_from_three_on))
    shown = re.search(r"x = \[(.*)\]", message)[1].split(",")
    assert len(shown) == 3


@pytest.mark.parametrize("name, answer, tried", [
    ("agop.largest_angle", lambda A, B: 0.0, "for A = [[1., 0., 0., 0.], [0., 1., 0., 0.]], B = "),
    ("agop.share", lambda d, sigma: 0.5, "for d = 1, sigma = "),
])
def test_a_message_shows_no_input_but_the_one_on_which_the_answer_fails(name, answer, tried):
    message = str(exercise(name).verdict(answer))
    assert message.count("for ") == message.count(tried) + message.count("for one") == 1 + message.count("for one"), message


def test_what_is_small_is_not_shown_as_zero():
    assert show(np.array([[1e-12, 0.0], [3.0, 4.0]])) == "[[1.e-12, 0.e+00], [3.e+00, 4.e+00]]"
    assert show(np.array([-6e-17, 1.0])) == "[-0., 1.]"  # rounding, another one on each machine
    assert show(np.array([0.0001, 1e4, -0.0])) == "[ 0.0001, 10000. , 0. ]"
    assert show(np.array([1, 0])) == "[1, 0]"


def test_only_lines_of_the_student_are_shown(double):
    def through_a_library(x):
        return np.linalg.cholesky(np.diag(x) - 100 * np.eye(len(x))) + np.apply_along_axis(len, 0, x)

    def through_compiled_code(x):
        return np.random.default_rng(0).choice(2, p=[1.0, 1.0, 1.0])

    for answer, error in ((through_a_library, "LinAlgError"), (through_compiled_code, "ValueError")):
        message = str(double.verdict(answer))
        assert re.findall(r"line \d+ of (\w+)", message) == [answer.__name__]
        assert error in message and ".py" not in message


def test_precision():
    ex = Exercise("toy.sum", "s", keeps_dtype=True)
    ex.specification(lambda x: np.array([np.sum(x), 0]))
    ex.inputs(lambda rng, n: {"x": rng.normal(size=n)})
    assert ex.verdict(lambda x: np.array([x.sum(), 0], x.dtype)) is None
    assert ex.verdict(lambda x: np.array([x.sum(dtype=float), 0])).violated == "dtype"
    assert "in float32" in str(ex.verdict(lambda x: np.array([x.sum(dtype=float), 0])))
    assert ex.verdict(lambda x: np.array([x.sum() * (1 + 1e-6), 0], x.dtype)).violated == "value"
    half = ex.verdict(lambda x: np.array([x.sum(), 0], np.float16 if x.dtype == np.float32 else x.dtype))
    assert half.violated == "returns" and "s is float16 where the inputs are float32" in str(half)


def test_complex_precision():
    ex = Exercise("toy.turn", "z", keeps_dtype=True)
    ex.specification(lambda x: 1j * x)
    ex.inputs(lambda rng, n: {"x": rng.integers(5, size=n).astype(float)})
    single = ex.verdict(lambda x: (1j * x).astype(np.complex64))
    assert single.violated == "returns" and "z is complex64 where the inputs are float64" in str(single)
    assert ex.verdict(lambda x: (1j * x).astype(np.complex64 if x.dtype == np.float32 else complex)) is None
    assert ex.verdict(lambda x: (1j * x).astype(complex)).violated == "dtype"


def test_several_results():
    ex = Exercise("toy.pair", ("a", "b"), single=False)
    ex.specification(lambda x: (x, 2 * x))
    ex.inputs(lambda rng, n: {"x": float(n)})
    assert ex.verdict(lambda x: [x, x + x]) is None
    assert ex.verdict(lambda x: np.array([x, 2 * x])) is None
    assert "returned one value, expected are 2 values, a, b" in str(ex.verdict(lambda x: 1.0))
    assert "returned 3 values" in str(ex.verdict(lambda x: (x, x, x)))
    assert str(ex.verdict(lambda x: (x, 3 * x))).split("\n")[1] == "b = 3, expected is 2"


def test_a_property_that_calls_the_answer_often_is_tried_once():
    ex, tried = Exercise("toy.mean", "m", single=False), []
    ex.specification(lambda x: np.mean(x))
    ex.inputs(lambda rng, n: {"x": rng.normal(size=n)})
    ex.property("once", once=True)(lambda result, given, answer: tried.append(len(given.x)))
    assert ex.verdict(np.mean) is None and tried == [8]
    ex.property("never", once=True)(lambda result, given, answer: "a sentence")
    assert str(ex.verdict(np.mean)) == "toy.mean is not accepted. Violated: never.\na sentence"


@LIMITED
def test_a_stopped_answer_leaves_no_exception_behind(double):
    for _ in range(3):
        assert double.verdict(endless, seconds=0.3).violated == "time"
        for _ in range(1000):
            time.sleep(0)
    assert double.verdict(lambda x: 2 * x) is None


@LIMITED
def test_a_debugger_works_after_a_check():
    """An exception that is taken back makes Python 3.11 trace the next call for ever."""
    code = """
        import sys
        from rfteach.exercises import exercises
        gram = exercises("kernels")["gram"]
        def endless(*inputs):
            while True:
                pass
        for answer in (gram.model, endless):
            verdict = gram.verdict(answer, 0.2)
            sys.settrace(lambda *event: None)
            (lambda: None)()
            sys.settrace(None)
        print(verdict.violated)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "time\n", done.stderr


def test_entries_of_symbols_and_of_descriptions():
    assert differ([1, 2], [1, 3], "y", "y with X turned") == "y[1] = 2, but y with X turned = 3 at [1]"


def test_a_property_that_cannot_be_tried(double):
    double.property("a pair")(lambda y, given, answer: differ(answer(given.x)[1], 0, "b", "zero") and None)
    verdict = double.verdict(lambda x: 2 * x)
    assert verdict.violated == "a pair" and "It cannot be tried on what the answer returns" in str(verdict)
    assert double.verdict(lambda x: (2 * x)[:1]).violated == "shape", "the reason comes before"


@pytest.mark.parametrize("left, right, said", [
    (1.0, 1.0 + 1e-9, None),
    (1e9, 1e9 + 1, None),
    ([0.0, 1e-7], [0.0, 0.0], "l[1] = 1e-07, but r[1] = 0"),
    ([0.0, 1e-9], [0.0, 0.0], None),
    (1e-12, 2e-12, "l = 1e-12, but r = 2e-12"),
    ([[1, 2], [3, 4]], [[1, 2], [5, 4]], "l[1,0] = 3, but r[1,0] = 5"),
    ([1.0, np.nan], [1.0, np.nan], None),
    ([1.0, np.inf], [1.0, np.inf], None),
    ([1.0, np.nan], [1.0, 0.0], "l[1] = nan, but r[1] = 0"),
    ([1.0, np.inf], [1.0, -np.inf], "l[1] = inf, but r[1] = -inf"),
    ([1, 1, 3], 1, "l[2] = 3, but r = 1"),
    ([1.0, 2.0], [1.0, 2.0000001], "l[1] = 2, but r[1] = 2.0000001"),
    (1 + 1j, 1 - 1j, "l = 1+1j, but r = 1-1j"),
    ([], [], None),
    (True, False, "l = True, but r = False"),
])
def test_differ(left, right, said):
    assert differ(left, right, "l", "r") == said


def test_check(capsys):
    ex = exercise("kernels.gram")
    check("kernels.gram", ex.model)
    assert capsys.readouterr().out.startswith("kernels.gram is accepted: shape, finite, ")
    with pytest.raises(NotAccepted, match="Violated: written"):
        check("kernels.gram", lambda X, Z, sigma: (_ for _ in ()).throw(NotImplementedError()))
    with pytest.raises(ValueError, match=r"no exercise 'kernels.grma'; did you mean 'kernels.gram'\?"):
        check("kernels.grma", ex.model)
    with pytest.raises(ValueError, match=r"no exercises on 'kernel'; did you mean 'kernels'\?"):
        check("kernel.gram", ex.model)
    with pytest.raises(TypeError, match=r'expected check\("kernels.gram", gram\), the name first, got function gram'):
        check(function(BOOKS[PAGE["kernels.gram"]], "kernels.gram"), "kernels.gram")


def test_a_notebook_shows_the_message_and_no_frames():
    code = textwrap.dedent("""
        from IPython.testing.globalipapp import start_ipython
        shell = start_ipython()
        shell.run_cell("from rfteach.exercises import check")
        shell.run_cell("def gram(X, Z, sigma):\\n    return X + undefined")
        shell.run_cell("check('kernels.gram', gram)")
    """)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env=notebooks.kernel_environment())
    lines = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout).strip().split("\n")
    assert lines[:2] == ["kernels.gram is not accepted. Violated: runs.", "Your code stopped:"], done
    assert lines[2:4] == ["  line 2 of gram: return X + undefined",
                          "  NameError: name 'undefined' is not defined"]


# --- Grading in processes of their own ----------------------------------------------------------

GRAM = "def gram(X, Z, sigma):\n    return np.exp(-((X[:, None] - Z) ** 2).sum(-1) / (2 * sigma**2))\n"
WAVES = "def wave_average(X, Z, W):\n    return np.cos((X[:, None] - Z) @ W.T).mean(-1)\n"
HOSTILE = {
    "a sum in C": ("sum(range(10**11))", "time"),
    "a power": ("10 ** (10**8)", "time"),
    "a regular expression": ("__import__('re').match('(a+)+b', 'a' * 60)", "time"),
    "a lock": ("lock = __import__('threading').Lock()\n    lock.acquire()\n    lock.acquire()", "time"),
    "a sleep": ("__import__('time').sleep(60)", "time"),
    "a swallowed error": ("while True:\n        try:\n            1 / 0\n        except BaseException:\n            pass", "time"),
    "prints without end": ("while True:\n        print('accepted' * 999)", "time"),
    "five gigabytes": ("np.ones(5 * 2**27).sum()", "runs"),
    "the end": ("__import__('os')._exit(0)", "runs"),
    "a crash": ("__import__('os').kill(__import__('os').getpid(), 11)", "runs"),
    "a closed channel": ("__import__('os').closerange(0, 99)", "runs"),
    "deep recursion": ("gram(X, Z, sigma)", "runs"),
    "the exit": ("raise SystemExit(0)", "runs"),
    "the model": ("from rfteach.exercises import exercises\n    return exercises('kernels')['gram'].model(X, Z, sigma)", "runs"),
    "too much to send": ("return np.ones((5000, 5000))", "runs"),
    "another shape of its input": ("X.shape = -1\n    return np.ones(1)", "inputs unchanged"),
    "an object": ("return type('Gram', (), {'__reduce__': lambda self: (exit, (0,))})()", "returns"),
}
PATCHES = {
    "a patched checker": "import rfteach.exercises as e\ne.Exercise.verdict = e.Exercise._try = lambda *a, **k: None\n"
                         "e.exercises = lambda topic: {}",
    "patched numpy": "np.array_equal = np.allclose = lambda *a, **k: True\nnp.abs = lambda x: 0 * x",
    "a verdict that is printed": "print('{\"accepted\": true}', flush=True)\nimport os\nos.write(1, b'accepted')\n"
                                 "os.write(2, b'accepted')",
    "a check of one's own": "def check(name, answer):\n    print(name, 'is accepted')",
}


def test_values_come_through_as_they_went():
    """What a call leaves as it is, is not sent back."""
    A = np.arange(6.0).reshape(2, 3)
    assert json.loads(json.dumps(grading._pack(A))) == grading._pack(A)


def test_numbers_of_python_come_through_as_floats(double):
    """And what is none has the message that it has in a notebook."""
    def through(answer):
        return double.verdict(lambda x: grading._unpack(json.loads(json.dumps(grading._pack(answer(x))))))

    for right in (lambda x: [Fraction(2 * v) for v in x.tolist()], lambda x: tuple(Decimal(2 * v) for v in x.tolist()),
                  lambda x: (2 * x).astype(object)):
        assert through(right) is None
    for wrong in (lambda x: np.array([*x, None], dtype=object), lambda x: [*x, "two"], lambda x: np.array({})):
        assert str(through(wrong)) == str(double.verdict(wrong))


def graded(tmp_path, code, **limits):
    """Grades of an answer to the chapter on kernels, by the exercise."""
    file = tmp_path / "answers.py"
    file.write_text(code, encoding="utf-8")
    found = grading.grade(file, "kernels", **{"seconds": 2, "memory": 2**30, **limits})
    assert [g.exercise for g in found] == [f"kernels.{name}" for name in exercises("kernels")]
    return {g.exercise.partition(".")[2]: g for g in found}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_answer_can_spoil_its_own_exercise_only(tmp_path, name):
    body, violated = HOSTILE[name]
    found = graded(tmp_path, f"import numpy as np\ndef gram(X, Z, sigma):\n    {body}\n{WAVES}")
    assert found["wave_average"].accepted and found["wave_average"].violated is None
    if sys.platform != "linux" and name == "five gigabytes":
        return
    assert not found["gram"].accepted and found["gram"].violated == violated, found["gram"]
    assert found["gram"].seconds < 20
    if name == "the model":
        assert "model answers cannot be imported" in found["gram"].message
    if name == "five gigabytes":
        assert "MemoryError" in found["gram"].message


@pytest.mark.parametrize("name", PATCHES)
def test_what_is_patched_or_printed_is_no_verdict(tmp_path, name, capfd):
    wrong = "def gram(X, Z, sigma):\n    return np.ones((len(X), len(Z)))\n"
    found = graded(tmp_path, f"import numpy as np\n{PATCHES[name]}\n{wrong}{WAVES}")
    assert not found["gram"].accepted and found["gram"].violated == "value"
    assert found["wave_average"].accepted
    assert capfd.readouterr() == ("", "")
    assert exercises("kernels")["gram"].verdict(exercises("kernels")["gram"].model) is None, "nothing is left here"


@pytest.mark.parametrize("statement", ["while True: pass", "import os\nos._exit(0)", "import time\ntime.sleep(60)",
                                       "1 / 0", "raise SystemExit", "from rfteach.specifications.kernels import gram"])
def test_a_statement_that_hangs_or_stops_is_left_out(tmp_path, statement):
    found = graded(tmp_path, f"import numpy as np\n{statement}\n{GRAM}")
    assert found["gram"].accepted, found["gram"]
    assert found["wave_average"].violated == "written"
    assert re.search(r"Cell \d+ (stopped|was left out)", found["wave_average"].message)


def test_the_model_is_no_answer_by_another_way(tmp_path):
    for code in ("from rfteach.exercises import check, exercises\ncheck('kernels.gram', exercises('kernels')['gram'].model)",
                 "import importlib\ngram = importlib.import_module('rfteach.specifications.kernels').gram.model"):
        assert graded(tmp_path, code)["gram"].violated == "written"


def test_grades_are_those_of_the_notebook(tmp_path):
    """The chapter's answers are accepted; a mistake is refused in the words that a notebook has for it."""
    assert all(g.accepted for g in grading.grade(notebooks.NBS / "01_kernels.ipynb", "kernels", seconds=30))
    mistakes = {}
    for short, ex in tried("kernels").items():
        for mistake in ex.mistakes:
            if not set(mistake.answer.__code__.co_names) & (set(mistake.answer.__globals__) - {"np"}):  # it stands alone
                mistakes[short] = mistake
    assert len(mistakes) > 2
    bodies = [re.sub(r"^@.*\ndef _\(", f"def {short}(", inspect.getsource(mistake.answer))
              for short, mistake in mistakes.items()]
    found = graded(tmp_path, "\n".join(["import numpy as np", *bodies]), seconds=30)
    for short, mistake in mistakes.items():
        verdict = exercises("kernels")[short].verdict(mistake.answer)
        assert found[short].violated == mistake.violates and found[short].message == str(verdict)


@pytest.mark.parametrize("topic", TOPICS)
def test_every_model_passes_through_the_channel(topic):
    """What goes into an answer and comes out of it is the same on the other side."""
    for ex in exercises(topic).values():
        def through(*inputs, ex=ex):
            functions = []
            sent = json.loads(json.dumps([grading._pack(value, functions) for value in inputs]))
            inputs = [grading._unpack(value, lambda k, given: functions[k](*given)) for value in sent]
            return grading._unpack(json.loads(json.dumps(grading._pack(ex.model(*inputs)))))

        assert (verdict := ex.verdict(through)) is None, verdict


FORGED = """import json, os, random, stat, struct
def forge(message):
    data = json.dumps(message).encode()
    for place in range(3, 20):
        try:
            if stat.S_ISFIFO(os.fstat(place).st_mode):
                os.write(place, struct.pack(">Q", len(data)) + data)
        except OSError:
            pass
"""


@pytest.mark.skipif(sys.platform == "win32", reason="pipes have no numbers there")
@pytest.mark.parametrize("message", ["[]", "'cell'", "{'cell': random.random()}", "{'cell': 'x'}", "{'cell': []}",
                                     "{'cell': None}", "{'parameters': 5}", "{'value': 1}"])
def test_a_forged_message_ends_in_a_verdict(tmp_path, message, monkeypatch):
    """No error reaches the next student, and the cell that dies is not tried for ever."""
    monkeypatch.setattr(grading, "exercises", lambda topic: {"gram": exercises(topic)["gram"]})
    file = tmp_path / "answers.py"
    file.write_text(f"{FORGED}forge({message}) or os._exit(0)\nimport numpy as np\n{GRAM}", encoding="utf-8")
    found, = grading.grade(file, "kernels", seconds=5)
    assert isinstance(found.accepted, bool) and found.seconds < 60
    file.write_text(f"import numpy as np\n{FORGED}\ndef gram(X, Z, sigma):\n    forge({message})\n", encoding="utf-8")
    found, = grading.grade(file, "kernels", seconds=5)
    assert not found.accepted and found.violated in ("runs", "returns")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no process can be set free")
def test_a_process_that_is_set_free_does_not_hold_the_grading_up(tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "exercises", lambda topic: {"gram": exercises(topic)["gram"]})
    free = "import os, time\ndef gram(X, Z, sigma):\n    os.fork() and os._exit(0)\n    os.setsid()\n    time.sleep(40)\n"
    (tmp_path / "answers.py").write_text(free, encoding="utf-8")
    found, = grading.grade(tmp_path / "answers.py", "kernels", seconds=2)
    assert found.violated == "time" and found.seconds < 20


@pytest.mark.parametrize("cell", [
    f"display(1)\n{GRAM}", f"{GRAM}x = (5\n     % 3)", f"%matplotlib inline\n!ls\n{GRAM}",
    f"s = '''\n% 1\n'''\nassert '%' in s\n{GRAM}", f"import pickle\n{GRAM}gram = pickle.loads(pickle.dumps(gram))",
    f"{GRAM.replace('gram', 'mine')}from rfteach.exercises import check\ncheck(name='kernels.gram', answer=mine)",
])
def test_what_runs_in_a_notebook_is_graded(tmp_path, cell):
    cells = [{"cell_type": "code", "source": f"import numpy as np\n{cell}"}]
    for name, text in (("a.ipynb", json.dumps({"cells": cells})), ("A.IPYNB", "\ufeff" + json.dumps({"cells": cells}))):
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert grading._graded(exercises("kernels")["gram"], grading._cells(tmp_path / name), set(), tmp_path, 10, 2**32) is None


def test_a_script_says_its_encoding(tmp_path):
    for encoding, head in (("utf-8-sig", ""), ("latin-1", "# -*- coding: latin-1 -*-\n")):
        (tmp_path / "a.py").write_text(f"{head}name = 'Müller'", encoding=encoding)
        assert grading._cells(tmp_path / "a.py") == ["name = 'Müller'"]


def test_grading_refuses_what_it_cannot_read(tmp_path):
    (tmp_path / "answers.py").write_text("def gram(:", encoding="utf-8")
    (tmp_path / "answers.ipynb").write_text("[]", encoding="utf-8")
    for name in ("answers.py", "answers.ipynb"):
        with pytest.raises(ValueError, match=f"{name} is neither a notebook nor a script"):
            grading.grade(tmp_path / name, "kernels")
    with pytest.raises(FileNotFoundError, match="missing.py"):
        grading.grade(tmp_path / "missing.py", "kernels")
    with pytest.raises(ValueError, match="did you mean 'kernels'"):
        grading.grade(tmp_path / "answers.py", "kernel")
    (tmp_path / "answers.ipynb").write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(ValueError, match="is neither a notebook nor a script"):
        grading.grade(tmp_path / "answers.ipynb", "kernels")
    for limits in ({"seconds": 0}, {"memory": -1}, {"seconds": np.inf}, {"memory": np.inf}):
        with pytest.raises(ValueError, match="seconds and memory must be positive"):
            graded(tmp_path, GRAM, **limits)


def test_command_that_grades(tmp_path, capsys):
    from rfteach.cli import main

    (tmp_path / "a.py").write_text(f"import numpy as np\n{GRAM}", encoding="utf-8")
    (tmp_path / "b.py").write_text(f"import numpy as np\nprint('[]')\n{WAVES}", encoding="utf-8")
    files = [str(tmp_path / name) for name in ("a.py", "b.py")]
    assert main(["grade", "kernels", *files, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(g["file"], g["exercise"]) for g in found if g["accepted"]] == [
        (files[0], "kernels.gram"), (files[1], "kernels.wave_average")]
    assert all({"violated", "message", "seconds"} <= set(g) for g in found)
    assert main(["grade", "kernels", "missing.py", files[0]]) == 2
    printed = capsys.readouterr()
    assert "missing.py" in printed.err and f"{files[0]}: 1 of 5 accepted" in printed.out
    for words, hint in ((["kernel", files[0]], "did you mean 'kernels'?"), (["kernels", files[0], "--seconds", "0"], "above 0"),
                        (["kernels", files[0], "--memory", "inf"], "below 1e6")):
        with pytest.raises(SystemExit) as stopped:
            main(["grade", *words])
        assert stopped.value.code == 2 and hint in capsys.readouterr().err


@pytest.mark.parametrize("page", [page for page, found in POINTS.items() if found])
def test_of_a_notebook_the_exercises_that_it_has_are_graded(page, monkeypatch, capsys):
    """Those on a topic may stand on several pages; the others are named."""
    from rfteach.cli import main

    monkeypatch.setattr(grading, "_graded", lambda *given: None)
    topic, file = next(iter(POINTS[page])).partition(".")[0], str(notebooks.NBS / page)
    assert [g.exercise for g in grading.grade(file, topic)] == list(POINTS[page])
    assert main(["grade", topic, file]) == 0
    other = [f"{topic}.{name}" for name in exercises(topic) if f"{topic}.{name}" not in POINTS[page]]
    printed = capsys.readouterr().out
    assert f"{file}: {len(POINTS[page])} of {len(POINTS[page])} accepted\n" in printed
    assert printed.endswith(f"  not in this notebook: {', '.join(other)}\n") == bool(other)
    assert main(["grade", topic, file, "--json"]) == 0
    assert [entry["exercise"] for entry in json.loads(capsys.readouterr().out) if entry["accepted"] is None] == other
    assert main(["grade", "kernels" if topic != "kernels" else "pca", file]) == 2
    assert f"{page} has no exercise on" in capsys.readouterr().err


def test_command_accepts_the_answers_of_a_chapter(capsys):
    from rfteach.cli import main

    assert main(["grade", "kernels", str(notebooks.NBS / "01_kernels.ipynb"), "--seconds", "60"]) == 0
    assert "5 of 5 accepted" in capsys.readouterr().out
