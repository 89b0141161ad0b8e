"""Numbers and links in a small course: what becomes a link, what does not, and what ends the build."""

import re
import shutil
from pathlib import Path

import nbformat
import pytest
import yaml
from build import SiteError, build
from crossrefs import citations, first_pages, number

ROOT = Path(__file__).absolute().parent.parent
pytestmark = pytest.mark.filterwarnings("ignore")  # those of Sphinx and its extensions about each other


def course(folder, text):
    """Write a course of three pages, with `text` on the second chapter's page; return its folder."""
    pages = {"index": "Nothing.",
             "01_one": "$$x = 1 \\tag{1.1}$$\n\n$$\\begin{aligned} y &= 2 \\end{aligned} \\tag{1.2}$$",
             "02b_two": f"## Why\n\n{text}\n\n$$z = 3 \\tag{{2.1}}$$"}
    names = [f"{name}.ipynb" for name in pages]
    (folder / "nbs").mkdir()
    for name, body in zip(names, pages.values()):
        cells = [nbformat.v4.new_markdown_cell(source) for source in (f"# Title of {name}\n> In one line.", body)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), folder / "nbs" / name)
    sidebar = {"contents": [names[0], {"section": "Chapters", "contents": names[1:]}]}
    (folder / "_quarto.yml").write_text(yaml.safe_dump({"website": {"sidebar": sidebar}}))
    shutil.copy(ROOT / "settings.ini", folder)
    return folder


def page(folder, text):
    """Return the second chapter's page with `text` on it."""
    out = build(course(folder, text) / "nbs", folder / "out", folder).parent
    return re.search("<article.*</article>", (out / "02b_two.html").read_text(), re.S)[0]


def test_what_is_cited_becomes_a_link(tmp_path):
    html = page(tmp_path, """By (1.1), (1.2) and (2.1); see chapter 1, chapters 1 and 2,
and [equation (1.2)](01_one.ipynb).

> ## A title on (1.1)

`(1.1)` takes (1.1 s), f(1.1), (0.5) or (1.0).

## References

Somebody, equation (7.7), chapter 4.
""")
    links = re.findall(r'<a class="([^"]*)reference internal" href="([^"#]*)(#[^"]*)?"[^>]*>(.*?)</a>', html)
    links = [(kind.strip(), f"{file}{place}", re.sub("<.*?>", "", text)) for kind, file, place, text in links]
    assert links == [
        ("equation", "01_one.html#eq-1.1", "(1.1)"), ("equation", "01_one.html#eq-1.2", "(1.2)"),
        ("equation", "#eq-2.1", "(2.1)"), ("chapter", "01_one.html", "chapter 1"), ("chapter", "01_one.html", "1"),
        ("chapter", "#", "2"),
        ("equation", "01_one.html#eq-1.2", "equation (1.2)")]
    assert html.count('id="eq-2.1"') == 1


@pytest.mark.parametrize("text, message", [
    ("By (3.99).", "equation 3.99 is cited, and there is none"),
    ("As in chapter 7.", "chapter 7 is cited, and there is none"),
    ("As in chapters 1 and 7.", "chapter 7 is cited, and there is none"),
    ("By [(2.1)](01_one.ipynb).", "equation 2.1 is not on 01_one.html"),
    ("$$x \\tag{1.1}$$", "(1.1) is also a formula of 01_one"),
])
def test_what_is_not_there_ends_the_build_by_name(text, message, tmp_path, capfd):
    with pytest.raises(SiteError, match="Sphinx found the faults above"):
        page(tmp_path, text)
    assert re.search(rf"02b_two\S*: WARNING: {re.escape(message)}", capfd.readouterr().err)


@pytest.mark.parametrize("text, found", [
    ("(3.12) and (D.1)", ["(3.12)", "(D.1)"]), ("(3.12 s), (0.94), (1.00), exp(1.5), 3.12", []),
    ("Chapter 4's, chapter 3a", ["Chapter 4", "chapter 3a"]), ("chapters 6, 7 and 8", ["6", "7", "8"]),
])
def test_what_counts_as_a_citation(text, found):
    assert [text[start:end] for start, end, _, _ in citations(text)] == found


def test_numbers_of_pages():
    assert list(map(number, ["03a_ridge", "12_agop", "notes/01_kernels", "index"])) == ["3a", "12", None, None]
    assert first_pages(["03b_two", "03a_one", "index"]) == {"3a": "03a_one", "3": "03a_one", "3b": "03b_two"}
