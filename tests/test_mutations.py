"""Each numbered equation of the chapters has a check that refuses its wrong forms, and the report is of today."""

import json
import subprocess
import sys
from pathlib import Path

import mutations
import pytest

MEND = "To mend: see that the checks still say what the formulas say, then: make equations"


@pytest.mark.parametrize("page", mutations.pages())
def test_each_equation_is_checked_or_a_definition(page):
    assert mutations.faults(page) == [], f"To mend: correct tests/equations/{page}.toml, or the number on the page"
    lost = "), (".join(mutations.missing(page))
    assert not lost, (f"({lost}) has no row. To mend: write it in tests/equations/{page}.toml, as the head of "
                      "tests/mutations.py says, then: make equations")


def test_no_table_is_left_over():
    left = {path.stem for path in mutations.TABLES.glob("*.toml")} - set(mutations.pages())
    assert not left, "To mend: remove these tables of tests/equations, or name them as their pages"


@pytest.mark.parametrize("page", mutations.pages())
def test_report_is_of_this_page_and_has_no_complaint(page):
    record = mutations.report().get(page)
    assert record and record["state"] == mutations.state(page), MEND
    assert mutations.complaints(record) == []
    assert record["checks"].keys() | record["definitions"].keys() == set(mutations.tags(page))


PAGE = {
    "head": ("markdown", r"$$y = 2x \tag{1.1}$$ and $$z = x + 1 \tag{1.2}$$ and $$n \tag{1.3}$$"),
    "imports": ("code", "import numpy as np\nfrom rfteach.evidence.verdicts import least_error"),
    "formula": ("code", "def double(x):\n    return 2 * x"),
    "sharp": ("code", "x = 3.0\nassert double(x) == x + x"),
    "blunt": ("code", "z = x + 1\nassert z > x"),
    "drawn": ("code", "se = 0.1\nprint(least_error(se, z))\nassert abs(z - 4) < 4 * se"),
    "export": ("code", "import nbdev\nnbdev.nbdev_export()"),
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one small page."""
    cells = [{"cell_type": kind, "id": key, "source": source} for key, (kind, source) in PAGE.items()]
    (tmp_path / "nbs").mkdir()
    (tmp_path / "nbs/01_page.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    (tmp_path / "tests").mkdir()
    for name, value in (("ROOT", tmp_path), ("TABLES", tmp_path / "tests"), ("REPORT", tmp_path / "report.json")):
        monkeypatch.setattr(mutations, name, value)
    return tmp_path


def row(tag, check, old, new, edit="", more=""):
    edit = f', edit = "{edit}"' if edit else ""
    return f'["{tag}"]\ncheck = "{check}"\n{more}\nwrong = [{{ form = "f", old = "{old}", new = "{new}"{edit} }}]\n'


def test_what_becomes_of_wrong_forms(project):
    """All in one run; tags are free here, the table is not compared with the page."""
    said = {
        "2.1": (row("2.1", "sharp", "x + x", "x + 1"), "caught"),
        "2.2": (row("2.2", "sharp", "2 * x", "3 * x", edit="formula"), "caught"),
        "2.3": (row("2.3", "blunt", "x + 1", "x + 5"), "passed"),
        "2.4": (row("2.4", "blunt", "x + 1", "x + unknown"), "NameError"),
        "2.5": (row("2.5", "blunt", "z = x + 1", "while True: pass"), "took too long"),
        "2.6": (row("2.6", "drawn", "z - 4", "z - 5", more="statistical = true"), "caught"),
        "2.7": (row("2.7", "sharp", "x + x", "x + 2", more="statistical = true"), "caught"),
    }
    (project / "tests/01_page.toml").write_text("".join(table for table, _ in said.values()), encoding="utf-8")
    code = (f"import sys, json; sys.path.insert(0, {str(Path(mutations.__file__).parent)!r}); import mutations as m; "
            f"from pathlib import Path; m.ROOT = Path({str(project)!r}); m.TABLES = m.ROOT / 'tests'; m.LIMIT = 2; "
            "print(json.dumps(m.judge('01_page')))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    for tag, (_, words) in said.items():
        assert words in found["checks"][tag]["wrong"]["f"], tag
    assert found["checks"]["2.6"]["catches"] == 0.16
    complaints = " ".join(mutations.complaints(found))
    assert [tag for tag in said if f"({tag})" in complaints] == ["2.3", "2.4", "2.5", "2.7"]
    assert "(2.7) is statistical, and its cell does not call least_error" in complaints


@pytest.mark.parametrize("table, words", [
    (row("1.4", "sharp", "x + x", "x"), "(1.4) is not on the page"), (row("1.1", "nobody", "x", "y"), "no cell nobody"),
    (row("1.1", "sharp", "absent", "y"), "'absent' stands 0 times in cell sharp"),
    (row("1.1", "sharp", "z", "y", edit="blunt"), "no cell blunt before the check"),
    ('["1.1"]\ncheck = "sharp"\nwrong = []\n', "(1.1) has no wrong form"),
    ('["1.3"]\ndefinition = "rows"\ncheck = "sharp"\n', "is a definition and has check")])
def test_faults_of_a_table_are_named(project, table, words):
    Path(mutations.TABLES / "01_page.toml").write_text(table, encoding="utf-8")
    assert any(words in fault for fault in mutations.faults("01_page"))


def test_what_a_table_leaves_out(project):
    Path(mutations.TABLES / "01_page.toml").write_text('["1.3"]\ndefinition = "rows"\n', encoding="utf-8")
    assert mutations.missing("01_page") == ["1.1", "1.2"] and mutations.pages() == ["01_page"]


@pytest.mark.parametrize("tag", ["1.2a", "1.2′", " 1.2", "D.1"])
def test_a_number_that_is_none_is_named(project, tag):
    page = project / "nbs/01_page.ipynb"
    page.write_text(page.read_text(encoding="utf-8").replace("1.2", tag), encoding="utf-8")
    assert f"({tag}) is not a number such as (3.2)" in mutations.faults("01_page")


def test_a_formula_that_changes_is_to_be_checked_again(project):
    """The formula, and not the words around it."""
    page, before = project / "nbs/01_page.ipynb", mutations.state("01_page")
    text = page.read_text(encoding="utf-8")
    page.write_text(text.replace(" and ", " or "), encoding="utf-8")
    assert mutations.state("01_page") == before
    page.write_text(text.replace("y = 2x", "y = 3x"), encoding="utf-8")
    assert mutations.state("01_page") != before
    page.write_text(text.replace("$$", "$"), encoding="utf-8")
    assert "(1.1) is not between $$ and $$" in mutations.faults("01_page")
