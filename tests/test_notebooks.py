"""The notebooks are clean, exported, told in README.md, and show what their execution gives."""

import base64
import io
import re
import subprocess

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFilter

import notebooks
import rfteach
from build import directives, only_imports, pages
from compare import agree
from readme import readme, relink

SYNC = "To mend: make sync"
ROOT = notebooks.ROOT


def differing(made, found):
    """Return the paths at which two ``{path: bytes}`` differ, each with the reason."""
    return [f"{name}: " + ("is missing" if name not in found else
                           "no notebook makes it" if name not in made else "differs")
            for name in sorted(made.keys() | found.keys()) if made.get(name) != found.get(name)]


def files(pattern):
    return {file.relative_to(ROOT).as_posix(): file.read_bytes() for file in ROOT.glob(pattern)}


def fail(title, lines, remedy=SYNC):
    pytest.fail("\n".join([title, *(f"  {line}" for line in lines), remedy]), pytrace=False)


# The checks stand in the order in which they must run.
def test_notebooks_are_clean():
    cleaned = {k: v for k, v in notebooks.derive("nbdev_clean").items() if k.endswith(".ipynb")}
    stored = {f"nbs/{name}": (notebooks.NBS / name).read_bytes() for name in pages(notebooks.NBS)}
    if found := differing(cleaned, stored):
        fail("Notebooks carry metadata or execution counts:", found, "To mend: .venv/bin/nbdev_clean")


def test_cells_of_imports_open_collapsed():
    """In JupyterLab. Other cells that open collapsed are exported: what a reader is to see is in view."""
    wrong = []
    for notebook in notebooks.chapters():
        for cell in notebooks.code_cells(notebook):
            found, code = directives(cell.source)
            hidden = cell.metadata.get("jupyter", {}).get("source_hidden", False)
            if hidden != only_imports(code) and not (hidden and "export" in found):
                wrong.append(f"{notebooks.name_of(notebook)}, {'collapsed' if hidden else 'open'}: {code[:60]!r}")
    if wrong:
        fail("Cells that should open otherwise:", wrong)


def test_tests_that_pages_name_are_there():
    texts = [file.read_text(encoding="utf-8") for file in (ROOT / "tests").glob("test_*.py")]
    defined = {name for text in texts for name in re.findall(r"^def (test_\w+)", text, re.M)}
    if gone := [f"{notebooks.name_of(notebook)}: {name}" for notebook in notebooks.chapters()
                for name in re.findall(r"`(test_\w+)`", notebook.read_text(encoding="utf-8")) if name not in defined]:
        fail("Pages name tests that are not there:", gone, "To mend: name those that check what the page promises")


def homes():
    """Return ``{module: [notebook that exports to it, ...]}``."""
    found = {}
    for notebook in notebooks.chapters():
        for cell in notebooks.code_cells(notebook):
            if name := directives(cell.source)[0].get("default_exp"):
                found.setdefault(name, []).append(notebooks.name_of(notebook))
    return found


def test_each_notebook_has_a_module_of_its_own():
    """nbdev lets the second of two notebooks with one name overwrite the first without a word."""
    if shared := [f"{name}: {', '.join(where)}" for name, where in homes().items() if len(where) > 1]:
        fail("Several notebooks export to one module:", shared, "To mend: rename a default_exp")


INTERNAL = ["attention_engine", "checks", "eigenpro_engine", "eigenpro_shares", "eigenpro_training", "estimators", "gram",
            "pca_engine"]


def test_each_module_is_public_or_internal():
    """What is asked of docstrings, annotations, arguments and estimators is asked of the modules in `_PUBLIC`."""
    known = {*rfteach._PUBLIC, *INTERNAL}
    if lost := [f"{name}: {where[0]}" for name, where in homes().items()
                if name not in known and not name.startswith("specifications.")]:
        fail("Modules that are neither public nor internal:", lost, "To mend: enter the module, with what users import from it, "
             "in _PUBLIC of rfteach/__init__.py,\nor, if nothing in it is for users, in INTERNAL of tests/test_notebooks.py")
    if gone := sorted(known - homes().keys()):
        fail("No notebook in _quarto.yml exports these modules:", gone,
             "To mend: enter the notebook there, or remove them from _PUBLIC or INTERNAL")


def test_export_is_in_sync():
    """Also catches a module whose notebook is gone: the export starts from an empty package."""
    if found := differing(notebooks.modules(), files("rfteach/**/*.py")):
        fail("The package is not what the notebooks export:", found,
             f"{SYNC}\nIf you edited rfteach/ by hand, move the change into its notebook first: make sync overwrites it. "
             "A module that no notebook makes\nit leaves: move it into one, or remove it.")


def test_export_removes_nothing(tmp_path, monkeypatch):
    """A module that no notebook makes may be somebody's work: it is named, and the others are written."""
    (tmp_path / "rfteach").mkdir()
    for name in ("settings.ini", "rfteach/__init__.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    mine = tmp_path / "rfteach/mine.py"
    mine.write_text("work = 1\n", encoding="utf-8")
    made = {"rfteach/__init__.py": (ROOT / "rfteach/__init__.py").read_bytes(), "rfteach/one.py": b"one = 1\n"}
    for name, value in (("ROOT", tmp_path), ("chapters", list), ("modules", lambda: made)):
        monkeypatch.setattr(notebooks, name, value)
    with pytest.raises(notebooks.NotebookError, match="rfteach/mine.py: no notebook exports it"):
        notebooks.export()
    assert mine.exists() and (tmp_path / "rfteach/one.py").exists()
    mine.unlink()
    notebooks.export()


def test_readme_is_in_sync():
    made = readme(notebooks.NBS / "index.ipynb")
    if found := differing(made, {**files("README.md"), **files("README_files/*")}):
        fail("README.md is not what nbs/index.ipynb says:", found)


@pytest.mark.parametrize("notebook", notebooks.chapters(), ids=notebooks.name_of)
def test_chapter(notebook, record_property):
    """It runs to its end, and its stored outputs are those that come out."""
    name = notebooks.name_of(notebook)
    try:
        found, reason = notebooks.stale(notebook), None
    except notebooks.NotebookError as error:
        reason = str(error).splitlines()
    if reason:
        fail("Execution stopped.", reason,
             "To mend: correct the cell in the notebook (make lab), then: make sync")
    if found:
        fail(f"{name}: stored outputs are not those that execution gives.", notebooks.described(found))
    record_property("note", f"{notebooks.record(notebooks.BUILT / name)['seconds']:5.1f} s  {name}")


# The comparison itself.
def text(words):
    return {"output_type": "stream", "name": "stdout", "text": words}


def html(words):
    return {"output_type": "execute_result", "data": {"text/html": words, "text/plain": "a table"}}


def figure(curves=3, tilt=0.0, smooth=0.0, size=(640, 480), missing=None):
    """Return an output with a PNG of some curves, as matplotlib draws them by default."""
    image = Image.new("RGB", (2560, 1920), "white")
    draw, x = ImageDraw.Draw(image), np.linspace(0, 1, 300)
    draw.rectangle((160, 160, 2400, 1760), outline="black", width=4)
    for i in range(curves):
        y = 0.5 + 0.35 * np.sin(6 * x + i) * (1 + tilt)
        points = list(zip(160 + 2240 * x, 160 + 1600 * y))
        if i != missing:
            draw.line(points, fill=["#0072B2", "#E69F00", "#000000"][i], width=8, joint="curve")
    image = image.resize(size, Image.Resampling.LANCZOS).filter(ImageFilter.GaussianBlur(smooth))
    image.save(file := io.BytesIO(), "PNG")
    png = base64.b64encode(file.getvalue()).decode()
    return {"output_type": "display_data", "data": {"image/png": png, "text/plain": "<Figure>"}}


def film(*frames, label="σ"):
    coded = [frame["data"]["image/png"] for frame in frames]
    return html(f'<img src="data:image/png;base64,{coded[0]}">{label} 0.5000 {coded}')


@pytest.mark.parametrize("stored, fresh", [
    (text("error 2.540 after 57 steps"), text("error 2.541 after 57 steps")),
    (text("0.0999 and 1.23e-07"), text("0.1 and 1.24e-07")),
    (text("mean 12345.6"), text("mean 12350.0")),
    (text(" 9.99 |"), text("10.00 |")),
    (text("-0.000"), text("0.000")),
    (text("0.50s"), text("0.51s")),
    (text("sha256 90e1234 and 1e-400"), text("sha256 90e1234 and 1e-400")),
    (text("<function f at 0x7f00>"), text("<function f at 0x7fee>")),
    (html("<td>0.333</td>"), html("<td>0.334</td>")),
    (figure(), figure()),
    (figure(), figure(smooth=0.7)),
    (figure(), figure(tilt=1e-3)),
    (figure(), figure(size=(638, 479))),
    (film(figure(), figure(tilt=0.1)), film(figure(smooth=0.7), figure(tilt=0.101))),
])
def test_comparison_accepts(stored, fresh):
    assert agree(stored, fresh) and agree(fresh, stored)


@pytest.mark.parametrize("stored, fresh", [
    (text("error 2.540"), text("error 2.546")),
    (text("after 57 steps"), text("after 58 steps")),
    (text("1e-15"), text("1e-12")),
    (text("slope -0.5"), text("slope 0.5")),
    (text("holds: True"), text("holds: False")),
    (text("sha256 ab1.0"), text("sha256 ab1.1")),
    (text("one 1.0"), text("one 1.0 2.0")),
    (text("warned"), {**text("warned"), "name": "stderr"}),
    ({**text("warned"), "name": "stderr"}, {**text("warned"), "name": "stderr"}),
    (html("<td>0.333</td>"), html("<td>0.343</td>")),
    (html("<td>0.333</td>"), text("0.333")),
    (figure(), figure(missing=1)),
    (figure(), figure(missing=2)),
    (figure(), figure(tilt=0.1)),
    (figure(), figure(size=(640, 520))),
    (film(figure(), figure()), film(figure(), figure(tilt=0.1))),
    (film(figure(), figure()), film(figure(), figure(), figure())),
    (film(figure(), figure()), film(figure(), figure(), label="τ")),
])
def test_comparison_rejects(stored, fresh):
    assert not agree(stored, fresh) and not agree(fresh, stored)


def test_outputs_of_a_cell_that_varies():
    import nbformat

    def cell(*outputs, tags=("varies",)):
        return nbformat.v4.new_code_cell(outputs=[nbformat.from_dict(o) for o in outputs],
                                         metadata={"tags": list(tags)})

    slow, fast, other = (cell(text(t)) for t in ("1.2 ms", "0.7 ms", "0.7 s"))
    assert notebooks.cell_difference(slow, fast) is None
    assert notebooks.cell_difference(slow, other) is None
    assert notebooks.cell_difference(slow, fast, varies_too=True) is None
    assert notebooks.cell_difference(slow, other, varies_too=True)
    assert notebooks.cell_difference(slow, cell())
    assert notebooks.cell_difference(cell(text("1.2 ms"), tags=()), fast)
    warned = cell({**text("careful"), "name": "stderr"})
    assert "careful" in notebooks.cell_difference(warned, warned)
    assert notebooks.cell_difference(cell(text("a"), text("b")), cell(text("ab"))) is None


# What is written.
def test_links_in_the_readme():
    text = "[a](01_kernels.ipynb#proof) [b](https://x.org/y) [c](../LICENSE) [d](#e) <img src=\"f.png\">"
    assert relink(text) == ("[a](nbs/01_kernels.ipynb#proof) [b](https://x.org/y) [c](LICENSE) [d](#e) "
                            "<img src=\"nbs/f.png\">")
    words = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", words)
    assert not (lost := [t for t in targets if not (ROOT / t).exists()]), f"README.md: no such file {lost}"


OF_A_MACHINE = re.compile(rb"(?:(?<![\w./:~$}*+-])|file://)/(?:home|Users|root|work|tmp|private/var|mnt/[a-z]/Users|Volumes)/[\w.]"
                          rb"|\b[A-Za-z]:(?:\\{1,2}|/)Users\b")


@pytest.mark.parametrize("text, found", [
    *((text, True) for text in ("@home@ann", "file:@@@home@ann", "@mnt@c@Users@ann", "@Volumes@ann", "C:@Users@ann")),
    *((text, False) for text in ("https:@@x.org@home@ann", "a@home@b", "~@work@x", "$HOME@work@x", "file:@@@x", "abc:@Users"))])
def test_what_is_a_path_of_a_machine(text, found):
    for mark in ("/", "\\", "\\\\") if ":@U" in text else "/":  # JSON keeps a backslash as two
        assert bool(OF_A_MACHINE.search(text.replace("@", mark).encode())) == found


def test_no_paths_of_a_machine():
    try:
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT,
                                check=True, capture_output=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git clone")
    found = [f"{name}: {hit.group().decode()}..." for name in filter(None, listed)
             if (ROOT / name).is_file() and b"\0" not in (data := (ROOT / name).read_bytes())
             and (hit := OF_A_MACHINE.search(data))]
    if found:
        fail("Files name folders of one machine:", found, "To mend: use paths relative to the project")
