"""Make the course material: ``python site/classroom.py [output folder]``.

``student/`` holds the chapters without solutions and outputs, ``instructor/`` the same with both and
the pages for instructors, teaching notes in the folder ``notes`` among them; both hold the stored results
that chapters show. ``student.zip`` and ``instructor.zip`` are these folders. The notebooks in
``instructor/`` are sources for nbgrader, those in ``student/`` what nbgrader releases from them; a page
that runs in the project only keeps its outputs. Nothing is executed. What breaks the form of an exercise
is an error.
"""

import ast
import copy
import posixpath
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
from build import SiteError, contents, directives, settings
from nbgrader.preprocessors import CheckCellMetadata, ClearOutput, ClearSolutions, ComputeChecksums, LockCells

ROOT = Path(__file__).absolute().parent.parent
INSTRUCTORS = "For instructors"  # the section of _quarto.yml that students do not get
STATEMENT = re.compile(r"### (Exercise \d+\.\d+): .*\S \(([1-9]\d*) points?\)")
CHECK = re.compile(r'check\("(\w+)\.(\w+)", (\w+)\)')
MARKER = re.compile(r"(BEGIN|END) SOLUTION.*")
BLANK = "________"  # of a statement that asks for a prediction
LINK = re.compile(r"(?:\]\(|(?:href|src)=\")(?![a-z]+:|#|/)([^\s)\"'#]+\.\w+)")
OUTSIDE = re.compile(r'_quarto\.yml|"\.\."')  # in the code of a page that runs in the project only
KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
          "language_info": {"name": "python"}}
NEXT = {"": ["statement"], "statement": ["proof", "solution"], "proof": ["solution"],
        "solution": ["check"], "check": ["statement", ""]}  # what follows what; "" is an end of the section
NAMED = {"": "the edge of the section", "statement": "a statement", "proof": "a model answer",
         "solution": "a solution between markers", "check": "a check cell"}


class ClassroomError(Exception):
    """A notebook breaks the form of an exercise; the message is for the reader."""


def plain(nb):
    """Take from a notebook what only nbdev reads: directives, and the cells that export.

    The stored results of benchmarks, which chapters show, lie beside the notebooks here.
    """
    cells = []
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.source = re.sub(r'"((?:\.\./)*)\.\./benchmarks/', r'"\1benchmarks/', directives(cell.source)[1])
        if cell.source.strip() and not (cell.cell_type == "code" and "nbdev_export()" in cell.source):
            cells.append(cell)
    nb.cells, nb.metadata, nb.nbformat_minor = cells, nbformat.from_dict(KERNEL), 5
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return nb


def kind(cell):
    """Return what a cell of the section is: statement, proof, solution, check or text."""
    if MARKER.search(cell.source):
        return "solution" if cell.cell_type == "code" else "proof"
    if cell.cell_type == "markdown":
        return "statement" if cell.source.startswith("### ") else "text"
    return "check" if re.search(r"\bcheck\(", cell.source) else "text"


def cleared(cell):
    """Return a copy of a cell in which stubs stand for what is between the markers."""
    found = MARKER.findall(cell.source)
    if found != ["BEGIN", "END"] * (len(found) // 2):
        raise ClassroomError("the lines BEGIN SOLUTION and END SOLUTION are not in pairs")
    clear = ClearSolutions(enforce_metadata=False)  # the cell has no metadata yet
    return clear.preprocess_cell(copy.deepcopy(cell), {"language": "python"}, 0)[0]


def functions(cell):
    """Return the names of the functions in a solution, which leaves a stub of each and nothing else."""
    stub, names = cleared(cell), []
    try:
        tree = [ast.parse(source).body for source in (cell.source, stub.source)]
    except SyntaxError as error:
        raise ClassroomError(f"the solution, or the stub that it leaves, is no Python: {error.msg}") from None
    for node in tree[1]:
        if not isinstance(node, ast.FunctionDef):
            raise ClassroomError(f"code stands outside of a function: {ast.unparse(node).splitlines()[0]}")
        body = node.body[ast.get_docstring(node) is not None:]
        if [ast.unparse(line) for line in body] != ["raise NotImplementedError()"]:
            raise ClassroomError(f"in {node.name}() there is more than a docstring outside of the markers")
        names.append(node.name)
    if names != [getattr(node, "name", "") for node in tree[0]]:
        raise ClassroomError("the markers do not stand inside of one function")
    return names


def mark(cell, grade_id, solution=False, points=None):
    """Give a cell the metadata of nbgrader; with `points` it is graded, without both it is locked."""
    cell.metadata["nbgrader"] = {"schema_version": 3, "grade_id": grade_id, "solution": solution,
                                 "grade": points is not None, "locked": not solution}
    if points is not None:
        cell.metadata["nbgrader"]["points"] = points


def exercise(parts):
    """Give the cells of one exercise, ``{kind: cell}``, their metadata; return its name and points.

    Half of the points, rounded up, are the proof's where there is one. A statement with a blank is left alone,
    so that students can write there.
    """
    points = int(STATEMENT.match(parts["statement"].source)[2])
    if not (form := CHECK.fullmatch(parts["check"].source.strip())):
        raise ClassroomError('the check must be alone in its cell, as check("topic.name", answer)')
    topic, name, answer = form.groups()
    if answer not in functions(parts["solution"]):
        raise ClassroomError(f"the check is of '{answer}', which is no function of the solution")
    if BLANK not in parts["statement"].source:
        mark(parts["statement"], f"{topic}-{name}-statement")
    for_proof = (points + 1) // 2 if "proof" in parts else 0
    if for_proof == points:
        raise ClassroomError("with a proof it must have 2 points or more")
    if for_proof:
        cleared(parts["proof"])
        mark(parts["proof"], f"{topic}-{name}-proof", solution=True, points=for_proof)
    mark(parts["solution"], f"{topic}-{name}", solution=True)
    mark(parts["check"], f"{topic}-{name}-check", points=points - for_proof)
    return f"{topic}.{name}", points


def grade(nb):
    """Give the section Exercises of a notebook the metadata of nbgrader; return ``{exercise: points}``."""
    heads = [k for k, cell in enumerate(nb.cells) if cell.cell_type == "markdown" and cell.source.startswith("## ")]
    start = next((k for k in heads if nb.cells[k].source.split("\n")[0] == "## Exercises"), len(nb.cells))
    stop = next((k for k in heads if k > start), len(nb.cells))
    if any(MARKER.search(cell.source) for cell in nb.cells[:start] + nb.cells[stop:]):
        raise ClassroomError("a marker of a solution stands outside of the section Exercises")
    found, titles, title, last, parts = {}, set(), "Exercises", "", {}
    for k, cell in enumerate(nb.cells[start:stop] + [None] * (stop > start)):
        what = kind(cell) if cell else ""
        if what == "text":
            mark(cell, f"exercises-{k}")
            continue
        if what not in NEXT[last]:
            wanted = " or ".join(NAMED[name] for name in NEXT[last])
            raise ClassroomError(f"{title}: {wanted} must come after {NAMED[last]}, not {NAMED[what]}")
        if what == "statement":
            heading, parts = cell.source.split("\n")[0], {}
            if not (form := STATEMENT.fullmatch(heading)):
                raise ClassroomError(f"'{heading}' must have the form '### Exercise 1.2: Title (2 points)'")
            title = form[1]
            if title in titles:
                raise ClassroomError(f"there are two of {title}")
            titles.add(title)
        parts[what], last = cell, what
        if what == "check":
            try:
                name, points = exercise(parts)
                if name in found:
                    raise ClassroomError(f"another exercise has the name '{name}'")
            except ClassroomError as error:
                raise ClassroomError(f"{title}: {error}") from None
            found[name] = points
    CheckCellMetadata().preprocess(nb, {})
    return found


def release(nb):
    """Return a notebook as nbgrader releases it to students; see ``nbgrader generate_assignment``."""
    nb = copy.deepcopy(nb)
    for step in (LockCells, ClearSolutions, ClearOutput, CheckCellMetadata, ComputeChecksums):
        nb, _ = step().preprocess(nb, {})
    return nb


def links(nb, name):
    """Return the files that the text of the notebook `name` links to, as paths in the folder of all notebooks."""
    text = "\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")
    return {posixpath.normpath(posixpath.join(posixpath.dirname(name), link)) for link in LINK.findall(text)}


def material(root=ROOT):
    """Return the notebooks for instructors, for students, and the points: three ``{name: ...}``."""
    ours, students, points = {}, {}, {}
    for section, names in contents(root):
        for name in names:
            try:
                nb = ours[name] = plain(nbformat.read(root / "nbs" / name, as_version=4))
                if section == INSTRUCTORS:
                    continue
                points[name] = grade(nb)
            except FileNotFoundError:
                raise ClassroomError(f"{name}: in _quarto.yml, but not in nbs/") from None
            except (ClassroomError, SiteError) as error:
                raise ClassroomError(f"{name}: {error}") from None
            fixed = not points[name] and any(OUTSIDE.search(c.source) for c in nb.cells if c.cell_type == "code")
            students[name] = copy.deepcopy(nb) if fixed else release(nb)
    for cell in students["index.ipynb"].cells:  # it names all pages; students get a name without a link
        cell.source = re.sub(r"\[([^]]*)\]\(([\w/]+\.ipynb)\)", lambda m: m[m[2] not in students], cell.source)
    for folder, books in {"instructors": ours, "students": students}.items():
        for name, nb in books.items():
            if lost := sorted(links(nb, name) - set(books)):
                raise ClassroomError(f"{name}: links to {', '.join(lost)}, which {folder} do not get")
    return ours, students, points


def commit(root, ini):
    """Return the commit that `root` is at, or the name of the branch where it is no clone.

    A commit that no remote branch has is told on stderr: nobody else can install it.
    """
    try:
        done, remote = (subprocess.run(["git", *words.split()], cwd=root, capture_output=True, text=True)
                        for words in ("rev-parse HEAD", "branch --remotes --contains HEAD"))
    except OSError:
        return ini["branch"]
    if done.stdout and not remote.stdout:
        print(f"Commit {done.stdout[:7]} is on no remote branch: students cannot install it until it is pushed.",
              file=sys.stderr)
    return done.stdout.strip() or ini["branch"]


def readme_for_students(points, ini, version):
    """Return the README of the students' folder."""
    worth = [value for found in points.values() for value in found.values()]
    rows = "\n".join(f"| [{name}]({name}) | {len(found)} | {sum(found.values())} |"
                     for name, found in points.items() if found)
    return f"""# {ini['title']}

{ini['description']}. Start with [index.ipynb](index.ipynb).

## To install
With Python {ini['min_python']} or newer, in this folder:

    python3 -m venv .venv
    .venv/bin/pip install '{ini['lib_name']}[course] @ git+{ini['git_url']}@{version}'
    .venv/bin/jupyter lab

On Windows write `.venv\\Scripts\\` for `.venv/bin/`. On Linux pip takes PyTorch with CUDA, which is large;
`PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu` before the command takes the small build.

## The exercises
They are at the end of a chapter and need nothing of the chapter above but its ideas: run the first
code cell of the section, then write your code in place of `# YOUR CODE HERE` and
`raise NotImplementedError()`. The cell below checks it and says which property does not hold. Proofs
go where `YOUR ANSWER HERE` stands; a person reads them, and gives half of the points, rounded up. Predictions
go on the line for them and have no points. Do not delete or join these cells: grading looks for them. You may
add cells of your own.

| chapter | exercises | points |
|---|---:|---:|
{rows}
| all | {len(worth)} | {sum(worth)} |
"""


def readme_for_instructors(points, books):
    """Return the README of the instructors' folder."""
    shown = ", ".join(Path(name).stem for name, found in points.items() if found
                      and any("benchmarks/" in cell.source for cell in books[name].cells if cell.cell_type == "code"))
    return f"""# For instructors

[16a_plan.ipynb](16a_plan.ipynb) has the course plans, the folder `notes` the teaching notes on chapters with
exercises, such as [notes/01_kernels.ipynb](notes/01_kernels.ipynb). The chapters here have solutions
and outputs. `student.zip` is what students get.

## Grading with nbgrader
The notebooks are sources for [nbgrader](https://nbgrader.readthedocs.io): the check has the points of the
title; where there is a proof, half of them, rounded up, are for that, and are given by hand. A notebook is an
assignment. In the project:

    . .venv/bin/activate
    mkdir -p course/source/week01
    cp instructor/01_kernels.ipynb course/source/week01/
    cd course
    echo "c = get_config(); c.Execute.timeout = 300" > nbgrader_config.py
    nbgrader generate_assignment week01

`release/week01/` then has the notebook that is in `student/` too. Put what comes back into
`submitted/NAME/week01/01_kernels.ipynb` and run

    nbgrader autograde week01
    nbgrader export

The first runs the checks, the second writes `grades.csv`; in between, the Formgrader of `jupyter lab`
shows the proofs that were written. The exercises need nothing of the chapter above them, so students may
delete that part and hand in the section alone; it runs faster. Beside a chapter that shows stored results
copy the folder `benchmarks` too: {shown}.

Checks are no examination: the package that students install has the answers as slow loops, in
`rfteach/specifications`.
"""


def archive(folder):
    """Write a folder into a zip file beside it, the same bytes whenever the files are the same."""
    with zipfile.ZipFile(folder.with_suffix(".zip"), "w") as packed:
        for file in sorted(filter(Path.is_file, folder.rglob("*")), key=Path.as_posix):
            entry = zipfile.ZipInfo(file.relative_to(folder.parent).as_posix(), (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            packed.writestr(entry, file.read_bytes())


def make(out=ROOT, root=ROOT):
    """Write both folders and their archives into the folder `out` and say what is in them."""
    ours, students, points = material(root)
    results = [*root.glob("benchmarks/results/*.json"), *root.glob("benchmarks/results/*/results.jsonl")]
    for folder, books in {out / "student": students, out / "instructor": ours}.items():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for name, nb in books.items():
            (folder / name).parent.mkdir(exist_ok=True)
            nbformat.write(nb, folder / name)
        for file in results:
            (folder / file.relative_to(root)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / file.relative_to(root))
        ini = settings(root)
        text = (readme_for_students(points, ini, commit(root, ini)) if books is students
                else readme_for_instructors(points, ours))
        (folder / "README.md").write_text(text, encoding="utf-8")
        archive(folder)
    worth = [value for found in points.values() for value in found.values()]
    print(f"student/, student.zip: {len(students)} notebooks with {len(worth)} exercises of {sum(worth)} points")
    print(f"instructor/, instructor.zip: {len(ours)} notebooks, {len(ours) - len(students)} not for students")


if __name__ == "__main__":
    try:
        make(*map(Path, sys.argv[1:2]))
    except ClassroomError as error:
        sys.exit(f"The course material was not written.\n{error}")
