"""The course material: what students get, what instructors get, and that nbgrader grades with it."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from nbgrader.api import Gradebook
from nbgrader.nbgraderformat import MetadataValidator

import notebooks
from build import contents, directives, pages
from classroom import BLANK, INSTRUCTORS, LINK, MARKER, ClassroomError, archive, commit, grade, links, make, plain, release

ROOT = notebooks.ROOT
GRADED = "02_features.ipynb"  # a chapter with exercises that runs fast
SECTIONS = contents(ROOT)


def read(file):
    return nbformat.read(file, as_version=4)


def code(nb):
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def moved(source):
    """Return what becomes of the source of a cell, with the stored results beside the notebooks."""
    return source.replace('"../benchmarks/', '"benchmarks/')


def grading(cell):
    """Return the metadata of nbgrader in a cell."""
    return cell.metadata.get("nbgrader", {})


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The folder in which the course material was made."""
    out = tmp_path_factory.mktemp("course")
    make(out)
    return out


@pytest.fixture(scope="module")
def student(course):
    """The notebooks of the students, by name."""
    return {name: read(course / "student" / name) for name in pages(course / "student")}


@pytest.fixture(scope="module")
def instructor(course):
    """The notebooks of the instructors, by name."""
    return {name: read(course / "instructor" / name) for name in pages(course / "instructor")}


@pytest.fixture(scope="module")
def exercised(instructor):
    """The names of the chapters with exercises."""
    return [name for name, nb in instructor.items() if any(map(grading, nb.cells))]


# --- What students get ----------------------------------------------------------------------

def test_students_get_the_chapters_and_instructors_everything(student, instructor, exercised, course):
    assert list(instructor) == sorted(name for _, names in SECTIONS for name in names)
    assert list(student) == sorted(name for section, names in SECTIONS for name in names if section != INSTRUCTORS)
    notes = [name for name in instructor if name.startswith("notes/")]
    assert notes and not set(notes) & set(student) and not (course / "student/notes").exists()
    words = (course / "student/README.md").read_text(encoding="utf-8")
    assert "pip install" in words and all(f"[{name}]({name})" in words for name in exercised)


def test_students_get_no_solution(student, instructor, exercised):
    """No marker, and no line of a solution that is not also elsewhere, such as a bracket alone."""
    assert not [name for name, nb in student.items() if MARKER.search(nbformat.writes(nb))]
    for name in exercised:
        answers = [cell.source for cell in instructor[name].cells if grading(cell).get("solution")]
        regions = re.findall(r"BEGIN SOLUTION.*\n([\s\S]*?)\n.*END SOLUTION", "\n".join(answers))
        secret = {line.strip() for region in regions for line in region.split("\n")}
        given = {line.strip() for cell in instructor[name].cells if not grading(cell).get("solution")
                 for line in cell.source.split("\n")}
        held = {line.strip() for cell in student[name].cells if grading(cell)
                for line in cell.source.split("\n")}
        assert len(regions) >= len(answers) > 0 and not (secret - given) & held, name


def test_students_get_no_outputs(student, exercised):
    """But for pages that run in the project only."""
    kept = set()
    for name, nb in student.items():
        assert not [c for c in code(nb) if c.execution_count is not None], name
        kept |= {name for c in code(nb) if c.outputs}
    assert not kept - {"15n_robustness.ipynb", "notation.ipynb"} and "notation.ipynb" not in exercised
    shown = json.dumps([cell.outputs for name in kept for cell in code(student[name])])
    assert not set(LINK.findall(shown)) - set(student), "links in outputs"


def test_results_that_chapters_show_are_there(student, course):
    named = {name: re.findall(r"[\w./]*benchmarks/results[\w./]*", "\n".join(c.source for c in code(nb)))
             for name, nb in student.items() if not any(cell.outputs for cell in code(nb))}
    assert len([name for name, paths in named.items() if paths]) > 4
    assert not [path for paths in named.values() for path in paths
                if not path.startswith("/content") and not (course / "student" / path.rstrip(".")).exists()]


def test_nothing_of_nbdev_is_left(student, instructor):
    for name, nb in [*student.items(), *instructor.items()]:
        sources = "\n".join(cell.source for cell in code(nb))
        assert not re.search(r"^#\s?\||nbdev_export\(\)", sources, re.M), name


def test_cells_above_the_exercises_are_those_of_the_chapter(student, instructor):
    """So they run to the first exercise: the chapters are executed elsewhere."""
    for name, nb in student.items():
        chapter = [cell for cell in read(ROOT / "nbs" / name).cells if cell.cell_type == "markdown"
                   or directives(cell.source)[1].strip() and "nbdev_export()" not in cell.source]
        pairs = list(zip(chapter, nb.cells, instructor[name].cells, strict=True))
        for ours, theirs, teachers in pairs:
            source = moved(directives(ours.source)[1]) if ours.cell_type == "code" else ours.source
            assert teachers.source == source and teachers.id == theirs.id
            assert theirs.source == source or name == "index.ipynb" or grading(theirs)["solution"], name


# --- What instructors get -------------------------------------------------------------------

def test_instructors_get_solutions_outputs_and_valid_metadata(instructor, exercised):
    for name in exercised:
        MetadataValidator().validate_nb(instructor[name])
        found = {kind: [cell for cell in instructor[name].cells if grading(cell).get(kind)]
                 for kind in ("solution", "grade", "locked")}
        assert all(MARKER.search(cell.source) for cell in found["solution"]), name
        checks = [cell for cell in found["grade"] if cell.cell_type == "code"]
        assert all(cell.outputs and grading(cell)["points"] > 0 for cell in checks), name
        assert all(cell in found["locked"] for cell in checks), name
        points = {grading(cell)["grade_id"]: grading(cell)["points"] for cell in found["grade"]}
        titles = re.findall(r"^### Exercise .* \((\d) points?\)$", "\n".join(c.source for c in instructor[name].cells), re.M)
        shares = [(points[f"{check}-check"], points.get(f"{check}-proof")) for check in
                  (grading(cell)["grade_id"].removesuffix("-check") for cell in checks)]
        assert [check + (proof or 0) for check, proof in shares] == list(map(int, titles)), name
        assert all(proof in (check, check + 1) for check, proof in shares if proof is not None), name


def test_readme_names_the_chapters_that_show_stored_results(course):
    words = (course / "instructor/README.md").read_text(encoding="utf-8")
    assert "the folder `benchmarks` too: 04_bandwidth, " in words
    assert all(name in words for name in ("13d_auto", "15g_reproductions")) and "06a_orderq" not in words


def test_a_commit_that_nobody_can_install_is_told(tmp_path, capsys):
    def git(*words):
        return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words], cwd=tmp_path, check=True,
                              capture_output=True, text=True).stdout.strip()

    assert commit(tmp_path, {"branch": "main"}) == "main"
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    head = git("rev-parse", "HEAD")
    assert commit(tmp_path, {"branch": "main"}) == head
    assert capsys.readouterr().err.startswith(f"Commit {head[:7]} is on no remote branch: students cannot install it")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    assert commit(tmp_path, {"branch": "main"}) == head and capsys.readouterr().err == ""


def test_links_in_a_folder_are_followed():
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("[a](../01_a.ipynb#why) [b](02_b.ipynb)")])
    assert links(nb, "notes/01_a.ipynb") == {"01_a.ipynb", "notes/02_b.ipynb"}
    nb.cells = [nbformat.v4.new_code_cell('read("../benchmarks/a.json", "../../benchmarks/b.json")')]
    assert plain(nb).cells[0].source == 'read("benchmarks/a.json", "../benchmarks/b.json")'


# --- Archives -------------------------------------------------------------------------------

def test_archives_are_the_folders_and_always_the_same(course, tmp_path):
    for name in ("student", "instructor"):
        with zipfile.ZipFile(course / f"{name}.zip") as packed:
            held = {entry: packed.read(entry) for entry in packed.namelist()}
        assert held == {file.relative_to(course).as_posix(): file.read_bytes()
                        for file in (course / name).rglob("*") if file.is_file()}
        assert list(held) == sorted(held)
    stale = tmp_path / "student/stale.ipynb"
    stale.parent.mkdir()
    stale.write_text("left from an earlier run")
    done = subprocess.run([sys.executable, ROOT / "site/classroom.py", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0 and re.fullmatch(r"(Commit \w+ is on no remote branch: .*\n)?", done.stderr), done.stderr
    assert re.match(r"student/, student.zip: \d+ notebooks with \d+ exercises of \d+ points\ninst", done.stdout)
    assert not stale.exists()
    for name in ("student.zip", "instructor.zip"):
        assert (tmp_path / name).read_bytes() == (course / name).read_bytes()


def test_archives_do_not_hold_the_times_of_files(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/a.txt").write_text("a")
    archives = set()
    for _ in range(2):
        archive(tmp_path / "folder")
        archives.add((tmp_path / "folder.zip").read_bytes())
        shutil.copystat(ROOT / "LICENSE", tmp_path / "folder/a.txt")
    assert len(archives) == 1


# --- nbgrader -------------------------------------------------------------------------------

class Classroom:
    """A course of nbgrader with one assignment of one notebook."""

    def __init__(self, folder, source):
        self.folder, self.name = folder, source.name
        self.env = {**notebooks.kernel_environment(), "PATH": os.environ["PATH"],
                    "JUPYTER_CONFIG_DIR": str(folder / "config"), "JUPYTER_DATA_DIR": str(folder / "data"),
                    "PYTHONWARNINGS": "ignore:Object of type <Submitted"}  # SQLAlchemy 2 on nbgrader 0.9.6
        (folder / "source/work").mkdir(parents=True)
        shutil.copy(source, folder / "source/work")
        (folder / "nbgrader_config.py").write_text(
            "c = get_config()\nc.Execute.timeout = 300\nc.Execute.extra_arguments = ['--log-level=40']\n")
        self.run("generate_assignment")

    def run(self, command):
        done = subprocess.run([sys.executable, "-m", "nbgrader", command, "work"], cwd=self.folder, env=self.env,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0 and not re.search("warn|error", done.stdout, re.I), done.stdout

    def submit(self, student, nb):
        (self.folder / "submitted" / student / "work").mkdir(parents=True)
        nbformat.write(nb, self.folder / "submitted" / student / "work" / self.name)

    def scores(self, student):
        """Return the score of each check, by the name of its exercise."""
        with Gradebook(f"sqlite:///{self.folder}/gradebook.db") as book:
            submission = book.find_submission("work", student)
            found = {cell.name: cell.score for cell in submission.notebooks[0].grades}
            assert submission.score == sum(found.values())
        return {name.removesuffix("-check"): score for name, score in found.items() if name.endswith("-check")}

    def by_hand(self, student):
        """Return the points of each cell that the Formgrader presents for grading by hand."""
        with Gradebook(f"sqlite:///{self.folder}/gradebook.db") as book:
            cells = book.find_submission("work", student).notebooks[0].grades
            return {cell.name: cell.max_score for cell in cells if cell.needs_manual_grade}


def test_nbgrader_grades(course, student, instructor, tmp_path, record_property, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)  # nbgrader calls alembic
    classroom = Classroom(tmp_path, course / "instructor" / GRADED)
    released = read(tmp_path / "release/work" / GRADED)
    assert released == student[GRADED], "students get what nbgrader releases"

    model = {grading(cell)["grade_id"]: cell.source for cell in instructor[GRADED].cells if grading(cell)}
    points = {grading(cell)["grade_id"].removesuffix("-check"): grading(cell)["points"]
              for cell in code(instructor[GRADED]) if grading(cell).get("points")}
    half = set(list(points)[::2])
    for name, solved in {"ada": set(points), "ben": set(), "cleo": half}.items():
        nb = read(course / "student" / GRADED)
        if name != "ben":  # the exercises need nothing of the chapter above, and without it they run faster
            nb.cells = nb.cells[next(k for k, cell in enumerate(nb.cells) if cell.source.startswith("## Exercises")):]
        for cell in nb.cells:
            if grading(cell).get("grade_id") in solved:
                cell.source = model[grading(cell)["grade_id"]]
            if name == "ada":
                cell.source = cell.source.replace("YOUR ANSWER HERE", "Because.").replace(BLANK, "Pairs.")
        classroom.submit(name, nb)
    classroom.run("autograde")

    assert classroom.scores("ada") == points
    assert classroom.scores("ben") == dict.fromkeys(points, 0)
    assert classroom.scores("cleo") == {name: points[name] * (name in half) for name in points}

    said = [cell.source for cell in read(tmp_path / "autograded/ada/work" / GRADED).cells]
    assert "Because." in said and [source for source in said if "*My answer:* Pairs." in source], "what is written stays"
    assert classroom.by_hand("ada") == {"features-mean_product-proof": 1} and not classroom.by_hand("ben")

    cells = code(read(tmp_path / "autograded/ben/work" / GRADED))
    failed = [k for k, cell in enumerate(cells) if any(o.output_type == "error" for o in cell.outputs)]
    checks = [k for k, cell in enumerate(cells) if grading(cell).get("grade")]
    assert failed == checks, "the chapter runs, and the check rejects each stub"
    record_property("note", f"       graded {GRADED} of three students, {len(points)} exercises")


# --- What breaks the form -------------------------------------------------------------------

STATEMENT = "### Exercise 9.1: Twice (2 points)\n\nWrite it."
PROOF = "<!-- BEGIN SOLUTION -->\nBecause.\n<!-- END SOLUTION -->"
SOLUTION = "def twice(x):\n    ### BEGIN SOLUTION\n    return 2 * x\n    ### END SOLUTION"
CHECK = 'check("toys.twice", twice)'
MORE = [STATEMENT.replace("9.1", "9.2"), SOLUTION.replace("twice", "again"), 'check("toys.again", again)']


def exercises(*cells):
    """Return a notebook of a chapter with exercises; Markdown is known by its first letter."""
    cells = ["# Toys", "x = 1", "## Exercises", "from rfteach.exercises import check", *cells, "## Symbols"]
    return plain(nbformat.v4.new_notebook(cells=[
        nbformat.v4.new_markdown_cell(cell) if cell[0] in "#<*" else nbformat.v4.new_code_cell(cell)
        for cell in cells]))


def test_the_form_of_exercises():
    nb = exercises(STATEMENT, PROOF, SOLUTION, CHECK, "*A remark.*", *MORE)
    assert grade(nb) == {"toys.twice": 2, "toys.again": 2}
    ids = [grading(cell).get("grade_id") for cell in nb.cells]
    assert ids == [None, None, "exercises-0", "exercises-1", "toys-twice-statement", "toys-twice-proof",
                   "toys-twice", "toys-twice-check", "exercises-6", "toys-again-statement", "toys-again",
                   "toys-again-check", None]
    locked = [cell for cell in nb.cells if grading(cell).get("locked")]
    assert not [cell for cell in locked if grading(cell)["solution"]] and len(locked) == 7
    sources = [cell.source for cell in release(nb).cells]
    assert sources[5:7] == ["YOUR ANSWER HERE", "def twice(x):\n    # YOUR CODE HERE\n    raise NotImplementedError()"]
    points = [grading(cell)["points"] for cell in nb.cells if grading(cell).get("grade")]
    assert points == [1, 1, 2], "half of the points are the proof's"
    assert grade(plain(nbformat.v4.new_notebook())) == {}


def test_a_statement_with_a_blank_can_be_written_in():
    nb = exercises(STATEMENT + f"\n\n*My answer:* {BLANK}", SOLUTION, CHECK)
    grade(nb)
    cell, = [cell for cell in release(nb).cells if BLANK in cell.source]
    assert cell.metadata.get("editable", True) and not grading(cell)


FORM = "must have the form '### Exercise 1.2: Title (2 points)'"
EDGE = "the edge of the section"


@pytest.mark.parametrize("cells, message", [
    ([STATEMENT, SOLUTION], "Exercise 9.1: a check cell must come after a solution between markers, not " + EDGE),
    ([STATEMENT, SOLUTION, *MORE], "Exercise 9.1: a check cell must come after a solution between markers, not a st"),
    ([STATEMENT, PROOF, CHECK], "Exercise 9.1: a solution between markers must come after a model answer, not a check"),
    ([STATEMENT], "Exercise 9.1: a model answer or a solution between markers must come after a statement, not"),
    ([CHECK], f"Exercises: a statement must come after {EDGE}, not a check cell"),
    ([SOLUTION, CHECK], f"Exercises: a statement must come after {EDGE}, not a solution between markers"),
    ([], f"Exercises: a statement must come after {EDGE}, not {EDGE}"),
    ([STATEMENT.replace(" (2 points)", ""), SOLUTION, CHECK], f"'### Exercise 9.1: Twice' {FORM}"),
    ([STATEMENT.replace("2 p", "0 p"), SOLUTION, CHECK], f"'### Exercise 9.1: Twice (0 points)' {FORM}"),
    ([STATEMENT, SOLUTION, CHECK] * 2, "there are two of Exercise 9.1"),
    ([STATEMENT, SOLUTION, CHECK, MORE[0], SOLUTION, CHECK],
     "Exercise 9.2: another exercise has the name 'toys.twice'"),
    ([STATEMENT.replace("2 points", "1 point"), PROOF, SOLUTION, CHECK], "Exercise 9.1: with a proof it must have 2 points"),
    ([STATEMENT, SOLUTION.replace("    ### END SOLUTION", ""), CHECK], "Exercise 9.1: the lines BEGIN SOLUTION"),
    ([STATEMENT, PROOF.replace("BEGIN", "END"), SOLUTION, CHECK], "Exercise 9.1: the lines BEGIN SOLUTION and"),
    ([STATEMENT, PROOF.replace("\n", " "), SOLUTION, CHECK], "Exercise 9.1: the lines BEGIN SOLUTION and"),
    ([STATEMENT, "k = 2\n" + SOLUTION, CHECK], "Exercise 9.1: code stands outside of a function: k = 2"),
    ([STATEMENT, SOLUTION.replace("):\n", "):\n    y = x\n"), CHECK], "Exercise 9.1: in twice() there is more than"),
    ([STATEMENT, SOLUTION + "\ndef other(x):\n    return x", CHECK], "Exercise 9.1: in other() there is more than"),
    ([STATEMENT, SOLUTION.replace("x\n", "x\ndef f():\n    pass\n"), CHECK], "the markers do not stand inside of"),
    ([STATEMENT, SOLUTION.replace("2 * x", "2 *"), CHECK], "Exercise 9.1: the solution, or the stub that it leaves"),
    ([STATEMENT, SOLUTION, "y = 1\n" + CHECK], "Exercise 9.1: the check must be alone in its cell, as check("),
    ([STATEMENT, SOLUTION, CHECK.replace(", twice", ", thrice")], "the check is of 'thrice', which is no function"),
    (["## Later", SOLUTION], "a marker of a solution stands outside of the section Exercises"),
])
def test_what_breaks_the_form_is_an_error(cells, message):
    with pytest.raises(ClassroomError, match=re.escape(message)):
        grade(exercises(*cells))


@pytest.fixture
def small(tmp_path):
    """Return a function that makes a course of which `text` is a chapter, and its folder."""
    def build(text, name="01_kernels.ipynb"):
        sidebar = ["index.ipynb", "01_kernels.ipynb", {"section": INSTRUCTORS, "contents": ["16a_plan.ipynb"]}]
        (tmp_path / "_quarto.yml").write_text(json.dumps({"website": {"sidebar": {"contents": sidebar}}}))
        shutil.copy(ROOT / "settings.ini", tmp_path)
        (tmp_path / "nbs").mkdir()
        for file in ("index.ipynb", "01_kernels.ipynb", "16a_plan.ipynb"):
            cell = nbformat.v4.new_markdown_cell(text if file == name else "# A page")
            nbformat.write(nbformat.v4.new_notebook(cells=[cell]), tmp_path / "nbs" / file)
        return tmp_path
    return build


@pytest.mark.parametrize("text, lost", [("[plan](16a_plan.ipynb)", "16a_plan.ipynb, which students do not get"),
                                        ("[none](99_none.ipynb#why)", "99_none.ipynb, which instructors do not get"),
                                        ('<img src="../rings.png">', "../rings.png, which instructors do not get")])
def test_links_must_lead_to_what_is_given(text, lost, small):
    folder = small(text)
    with pytest.raises(ClassroomError, match=re.escape(f"01_kernels.ipynb: links to {lost}")):
        make(folder, folder)
    assert not (folder / "student").exists()


def test_other_links_stay(small):
    folder = small(text := "[Here](index.ipynb#why), [there](https://x.org/y.html), [above](#why), $K[i](x)$")
    make(folder, folder)
    assert read(folder / "student/01_kernels.ipynb").cells[0].source == text


def test_the_index_of_students_names_what_is_for_instructors(small):
    folder = small("[Chapter](01_kernels.ipynb), [plan](16a_plan.ipynb) [and](16a_plan.ipynb)", "index.ipynb")
    make(folder, folder)
    cells = [read(folder / name / "index.ipynb").cells[0].source for name in ("student", "instructor")]
    assert cells == ["[Chapter](01_kernels.ipynb), plan and",
                     "[Chapter](01_kernels.ipynb), [plan](16a_plan.ipynb) [and](16a_plan.ipynb)"]


def test_a_notebook_that_is_missing_is_named(small):
    folder = small("")
    (folder / "nbs/16a_plan.ipynb").unlink()
    with pytest.raises(ClassroomError, match="16a_plan.ipynb: in _quarto.yml, but not in nbs/"):
        make(folder, folder)
