"""The pages for Quarto, as ``nbdev_docs`` leaves them to it; a script stands in for Quarto itself.

The script does what Quarto does first: it runs ``pre-render`` of ``_quarto.yml`` in the folder of the pages.
"""

import ast
import dataclasses
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import yaml
from build import SiteError, contents, directives, folded, links, pages, settings
from quarto import finish, outline

ROOT = Path(__file__).absolute().parent.parent
INI = settings(ROOT)
CHAPTERS = [name for _, names in contents(ROOT) for name in names]
NOTEBOOKS = {name: nbformat.read(ROOT / "nbs" / name, as_version=4) for name in CHAPTERS}
QUARTO = """#!/usr/bin/env python3
import pathlib, subprocess, sys, yaml

with open("calls", "a") as file:
    print(*sys.argv[1:], file=file)
script = yaml.safe_load(pathlib.Path("_quarto.yml").read_text())["project"]["pre-render"]
subprocess.run(["python3", script], check=True)
pathlib.Path("_docs").mkdir(exist_ok=True)
"""


@pytest.fixture(scope="module")
def docs(tmp_path_factory):
    """Call ``nbdev_docs`` in a copy of the project whose README is older than its notebook."""
    tools, copy = tmp_path_factory.mktemp("bin"), tmp_path_factory.mktemp("clone")
    (tools / "quarto").write_text(QUARTO)
    (tools / "quarto").chmod(0o755)
    for folder in ("nbs", "site", INI["lib_path"]):
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("settings.ini", "_quarto.yml", "README.md"):
        shutil.copy(ROOT / file, copy)
    os.utime(copy / "README.md", (0, 0))
    bin = Path(sys.executable).parent
    env = {**os.environ, "PATH": os.pathsep.join([str(tools), str(bin), os.environ["PATH"]])}
    env.pop("PYTHONPATH", None)
    done = subprocess.run([bin / "nbdev_docs", "--n_workers", "1"], cwd=copy, env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    assert pages(copy / "_proc") == sorted(CHAPTERS)
    made = {name: nbformat.read(copy / "_proc" / name, as_version=4) for name in CHAPTERS}
    return SimpleNamespace(root=copy, folder=copy / "_proc", pages=made)


def code_cells(nb):
    return [cell for cell in nb.cells if cell.cell_type == "code"]


def options(source):
    """Return the directives of a cell as Quarto reads them: one block of YAML."""
    lines = [line[2:] for line in source.split("\n") if re.match(r"#\|\s*[\w-]+:", line)]
    return yaml.safe_load("\n".join(lines)) or {}


# --- The notebooks ----------------------------------------------------------------------------

@pytest.mark.parametrize("name", CHAPTERS)
def test_directives_mean_the_same_to_quarto(name):
    for cell in code_cells(NOTEBOOKS[name]):
        found = directives(cell.source)[0]
        for key, value in options(cell.source).items():
            assert value == (found[key] == "true" or found[key])


@pytest.mark.parametrize("name", CHAPTERS)
def test_imports_stand_in_cells_of_their_own(name):
    """Else nbdev, where it executes for an API entry, executes the rest of the cell in another folder."""
    found = [(directives(cell.source), cell) for cell in code_cells(NOTEBOOKS[name])]
    if not any("default_exp" in names for (names, _), _ in found):
        return
    for (names, code), cell in found:
        if {"export", "exports"} & set(names) or code.startswith("!") or "nbdev_export()" in code:
            assert not cell.outputs
        else:
            imports = [isinstance(node, (ast.Import, ast.ImportFrom)) for node in ast.walk(ast.parse(code))
                       if isinstance(node, ast.stmt)]
            assert all(imports) or not any(imports), code


# --- What nbdev and the script before Quarto make of them -------------------------------------

def test_quarto_renders_once_and_the_readme_stays(docs):
    assert (docs.root / "README.md").read_bytes() == (ROOT / "README.md").read_bytes()
    assert (docs.folder / "calls").read_text() == "render --no-cache\n"


def output(name):
    """Return the name of the page that nbdev makes of a notebook, in the notebook's folder: without the number."""
    return re.sub(r"^\d+\w?_", "", Path(name).stem) + ".html"


def test_each_page_has_an_address_of_its_own():
    addresses = [(Path(name).parent, output(name)) for name in CHAPTERS]
    assert len(set(addresses)) == len(CHAPTERS)


@pytest.mark.parametrize("name", CHAPTERS)
def test_nothing_of_the_text_is_lost(name, docs):
    front, line, *cells = docs.pages[name].cells
    known = yaml.safe_load(front.source.strip().strip("-"))
    title, *rest = [cell.source for cell in NOTEBOOKS[name].cells if cell.cell_type == "markdown"]
    assert front.cell_type == "raw" and known["output-file"] == output(name)
    assert f"# {known['title']}\n> {known['description']}" == re.sub(r"\n\s*", "\n", title.strip())
    assert line.source == links(name, INI) and "colab.research.google.com" in line.source
    ours = {cell.id for cell in NOTEBOOKS[name].cells}
    assert [cell.source for cell in cells if cell.cell_type == "markdown" and cell.id in ours] == rest


def test_minutes_and_needs_are_on_the_pages(docs):
    head = re.compile(r"\*About \d+ minutes, .* Needs .+\*")
    found = [name for name in CHAPTERS if head.match(docs.pages[name].cells[2].source)]
    solved = [name for name, nb in NOTEBOOKS.items() if any("### BEGIN SOLUTION" in cell.source for cell in nb.cells)]
    assert found == [name for name in solved if not name.startswith("notes/")]


@pytest.mark.parametrize("name", CHAPTERS)
def test_code_is_shown_folded_or_hidden(name, docs):
    made = {cell.id: cell for cell in code_cells(docs.pages[name])}
    for cell in code_cells(NOTEBOOKS[name]):
        found, code = directives(cell.source)
        assert (cell.id in made) == bool(code.strip() and "hide" not in found)
        if cell.id in made:
            text, prompt = folded(found, code)
            shown = options(made[cell.id].source)
            assert shown.get("code-summary") == prompt and shown.get("code-fold", False) == bool(prompt)
            assert shown.get("fig-alt") == found.get("fig-alt")
            assert made[cell.id].outputs == cell.outputs, "the pages show the stored outputs"
            assert "jupyter" not in made[cell.id].metadata, "the options alone say what is folded"
            assert "SOLUTION" not in made[cell.id].source and "#| export" not in made[cell.id].source
            if "exports" not in found:
                assert made[cell.id].source.endswith(text)


def test_sources_and_solutions_are_there(docs):
    def summaries(name, words):
        return [options(c.source).get("code-summary") for c in code_cells(docs.pages[name]) if words in c.source]

    assert summaries("02_features.ipynb", "class RandomFourierFeatures(") == ["Source of RandomFourierFeatures"]
    assert summaries("01_kernels.ipynb", "def gram(X, Z") == ["Solution"]
    assert summaries("03a_ridge.ipynb", "\ndef ridge(") + summaries("notes/01_kernels.ipynb", "Exercise(") != []


def public():
    """Return ``(notebook, module, name)`` of each public function and class."""
    found = []
    for name in CHAPTERS:
        for cell in code_cells(NOTEBOOKS[name]):
            stem = directives(cell.source)[0].get("default_exp", ".")
            if stem != "." and not stem.startswith("specifications."):
                module = importlib.import_module(f"{INI['lib_name']}.{stem}")
                found += [(name, module, n) for n in module.__all__
                          if inspect.isroutine(getattr(module, n)) or inspect.isclass(getattr(module, n))]
    return found


def parameters(node):
    """Return the names of the parameters that an entry shows: of a function, of __init__, or the fields."""
    start = node if isinstance(node, ast.FunctionDef) else next(
        (n for n in node.body if getattr(n, "name", "") == "__init__"), None)
    if start is None:
        return [n.target.id for n in node.body if isinstance(n, ast.AnnAssign)]
    a = start.args
    found = [p.arg for p in [*a.posonlyargs, *a.args, a.vararg, *a.kwonlyargs, a.kwarg] if p]
    return found[start is not node:]


def test_every_public_name_has_an_entry(docs):
    """With the signature that Python gives it, and the whole docstring."""
    pages = {name: "\n".join(cell.source for cell in nb.cells) for name, nb in docs.pages.items()}
    names = public()
    assert len(names) > 100
    for page, module, name in names:
        form = rf"^### {name} {{#{re.escape(module.__name__)}\.{name}}}\n\n```python\n(.*?)\n```$"
        shown, = re.findall(form, pages[page], re.M | re.S)
        (node,), thing = ast.parse(shown).body, getattr(module, name)
        assert isinstance(node, ast.ClassDef) == inspect.isclass(thing) and node.name == name
        assert ast.get_docstring(node) == inspect.getdoc(thing)
        if not inspect.isclass(thing) or dataclasses.is_dataclass(thing) or "__init__" in vars(thing):
            bases = thing.__mro__[1:] if dataclasses.is_dataclass(thing) else ()  # a base's fields stand in its entry
            known = {field for base in bases for field in getattr(base, "__dataclass_fields__", ())}
            assert parameters(node) == [key for key in inspect.signature(thing).parameters if key not in known]


def test_what_is_wide_scrolls(docs):
    rules = re.sub(r"\s+", " ", (docs.folder / "quarto.css").read_text())
    assert "span.math.display, main table { display: block; overflow-x: auto; }" in rules


def test_finishing_again_changes_nothing(docs, tmp_path):
    name = "02_features.ipynb"
    shutil.copy(docs.folder / name, tmp_path)
    finish(tmp_path, docs.root)
    again = nbformat.read(tmp_path / name, as_version=4)
    assert [cell.source for cell in again.cells] == [cell.source for cell in docs.pages[name].cells]


def test_sources_are_never_finished():
    with pytest.raises(SiteError, match="These are the sources"):
        finish(ROOT / "nbs")


def test_outline():
    code = '''
@dataclass(frozen=True)
class Room:
    """A room.

    Attributes
    ----------
    size : float
    """

    size: float = 3.0
    _key = 1

    @property
    def half(self):
        return self.size / 2

    def enter(self, *, by="door"):
        """Go in."""
        return by

    def _lock(self):
        return 1


def f(x,
      y=1):
    # why
    return x
def g(): return 1
'''
    room, f, g = ast.parse(code).body
    assert outline(code, room) == '''@dataclass(frozen=True)
class Room:
    """A room.

    Attributes
    ----------
    size : float
    """
    size: float = 3.0

    @property
    def half(self):
        ...

    def enter(self, *, by="door"):
        """Go in."""'''
    assert outline(code, f) == "def f(x,\n      y=1):\n    # why\n    ..."
    assert outline(code, g) == "def g(): return 1"
