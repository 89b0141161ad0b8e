"""The site: the translation of notebooks, ``_quarto.yml``, and the pages in headless Chromium.

The pages are opened with ``file://``, as a reader without network opens them.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from unicodedata import normalize
from urllib.parse import unquote, urlsplit

import matplotlib.pyplot as plt
import nbformat
import pytest
import yaml
from book import chapter, document, front, printed
from build import SiteError, build, contents, directives, folded, only_imports, pages, public_names, settings, translate
from pypdf import PdfReader

from rfteach.plots import Slider

ROOT = Path(__file__).absolute().parent.parent
INI = settings(ROOT)
CHAPTERS = [name for _, names in contents(ROOT) for name in names]
PAGES = [Path(name).with_suffix(".html").as_posix() for name in CHAPTERS]

# What a page holds, after its formulas are drawn and all that folds is unfolded.
FACTS = r"""async () => {
  if (window.MathJax) await MathJax.startup.promise;
  document.querySelectorAll("details").forEach(d => d.open = true);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const skipped = "script, style, noscript, mjx-container";
  const text = (left_out) => {
    const found = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode())
      if (!walk.currentNode.parentElement.closest(skipped + left_out))
        found.push(walk.currentNode.data);
    return found.join("");
  };
  return {
    prose: document.title + "\n" + text(", pre, code"),
    text: text(", :not(pre) > code"),
    formulas: all(".math").length,
    undrawn: all(".math").filter(m => !m.querySelector("mjx-container svg")).length,
    refused: all("[data-mml-node=merror], mjx-merror").length,
    links: all("a[href]").map(a => a.href),
    ids: all("[id]").map(e => e.id),
    images: all("img").map(i => ({src: i.src, alt: i.alt, width: i.naturalWidth})),
    sidebar: all(".sidebar-tree a").map(a => a.href.split("#")[0]),
    captions: all(".sidebar-tree .caption").map(c => c.innerText.toLowerCase()),
    previous: all("a.prev-page").map(a => a.href),
    next: all("a.next-page").map(a => a.href),
  };
}"""

# What cannot be seen whole: wider than the page, and in no box that scrolls; on paper no box scrolls.
CUT = r"""(paper) => {
  const found = [], page = document.documentElement.clientWidth, article = document.querySelector("article");
  const things = "mjx-container, table, pre, img, p, li, dt, h1, h2, h3, summary";
  for (const thing of article?.querySelectorAll(things) ?? []) {
    if (!thing.getClientRects().length) continue;
    const parts = [thing, ...thing.querySelectorAll(":scope svg")].map((part) => part.getBoundingClientRect().right);
    const right = Math.max(...parts), drawn = thing.matches("mjx-container");
    let whole = right <= page + 1, hidden = false;
    for (let box = thing; box && box !== document.body; box = box.parentElement) {
      const way = getComputedStyle(box).overflowX, inside = box.scrollWidth <= box.clientWidth + 1;
      if (way === "visible" || (box === thing && (drawn || inside))) continue;
      const edge = box.getBoundingClientRect().right;
      if (!paper && (way === "auto" || way === "scroll")) { whole = edge <= page + 1; break; }
      hidden ||= !inside || right > edge + 1;
    }
    if (hidden || !whole)
      found.push(`${thing.tagName}: ${thing.closest("[id]").id}, ${thing.textContent.slice(0, 40)}`);
  }
  return found;
}"""
PAPER = 665  # CSS pixels between the margins of a sheet of A4, see site.css


# --- Translation of notebooks ---------------------------------------------------------------

TITLE = nbformat.v4.new_markdown_cell("# Kernels\n> In one line.")
IMAGE = nbformat.v4.new_output("display_data", {"image/png": "aGk=", "text/plain": "<Figure>"})


def notebook(*cells):
    """Return a notebook of a title cell and `cells`; a string is the source of a code cell."""
    return nbformat.v4.new_notebook(cells=[TITLE.copy()] + [
        nbformat.v4.new_code_cell(cell) if isinstance(cell, str) else cell for cell in cells])


def page(*cells, root=ROOT):
    """Return the cells that the translation makes, without the title cell."""
    return translate(notebook(*cells), "99_page.ipynb", root).cells[1:]


def figure(source):
    """Return a code cell that has drawn a figure."""
    return nbformat.v4.new_code_cell(source, outputs=[IMAGE])


@pytest.fixture
def rooms(tmp_path):
    """Return the folder of a project with the module ``rfteach.rooms``."""
    (tmp_path / "rfteach").mkdir()
    (tmp_path / "rfteach/rooms.py").write_text("__all__ = ['f', 'Room', 'SIZE']\nimport nothing")
    shutil.copy(ROOT / "settings.ini", tmp_path)
    return tmp_path


def test_title_cell_gets_the_links():
    source = translate(notebook(), "99_page.ipynb").cells[0].source
    path = f"{INI['user']}/{INI['repo']}/blob/{INI['branch']}/nbs/99_page.ipynb"
    assert source.startswith("# Kernels\n> In one line.\n\n<p ")
    assert f'href="https://colab.research.google.com/github/{path}"' in source
    assert f'href="https://github.com/{path}"' in source


def test_hidden_cells_and_directives_leave_the_page(rooms):
    assert page("#| default_exp rooms", "#| hide\nsecret = 1", root=rooms) == []
    shown, = page("#| code-fold: true\nx = 1")
    assert shown.source == "x = 1" and "hide-input" in shown.metadata.tags


def test_exported_cells_are_folded_and_taught_ones_are_shown(rooms):
    cells = page("#| default_exp rooms", "#| export\nimport os",
                 "#| exports\ndef f(x):\n    return x\ndef _g(x): return x",
                 "#| export\nclass Room: pass\nSIZE: int = 3", "def h(): return f(1)", root=rooms)
    assert [cell.cell_type[0] for cell in cells] == ["c", "c", "m", "c", "m", "c"]
    prompts = [cell.metadata.get("mystnb", {}).get("code_prompt_show") for cell in cells]
    assert prompts == ["Imports", None, None, "Source of Room, SIZE", None, None]
    assert all("hide-input" in cells[k].metadata["tags"] for k in (0, 3))
    assert re.findall(r"\S+:: .*", cells[2].source)[::2] == [
        "py:currentmodule:: rfteach.rooms", "autofunction:: f"]
    assert re.findall(r"\S+:: .*", cells[4].source)[2:] == ["autoclass:: Room"], "of a constant there is nothing to say"


def test_imports_are_folded():
    shown, = page("import os\nfrom os import (\n    path,\n)")
    assert shown.metadata["mystnb"]["code_prompt_show"] == "Imports"
    assert page("import os\nx = 1")[0].metadata == {}
    assert not only_imports("! pip install") and not only_imports("# nothing")


def test_solutions_are_folded():
    shown, = page("def f():\n    ### BEGIN SOLUTION\n    return 1\n    ### END SOLUTION")
    assert shown.source == "def f():\n    return 1" and "hide-input" in shown.metadata.tags
    assert shown.metadata["mystnb"]["code_prompt_show"] == "Solution"


def test_no_answer_is_accepted_before_the_reader_has_written_one():
    said = nbformat.v4.new_output("stream", text="kernels.gram is accepted: shape.")
    for source, left in (('check("kernels.gram", gram)', 0), ('print(check("kernels.gram", gram))', 1)):
        cell, = page(nbformat.v4.new_code_cell(source, outputs=[said]))
        assert len(cell.outputs) == left, source


@pytest.mark.parametrize("found, code, prompt", [
    ({"export": ""}, "_A = 1\n@f\ndef g(): pass\nclass B: pass", "Source of g, B, _A"),
    ({"export": ""}, "a: int = 1\nb, c = 1, 2\ndef d(): pass\ndef _(): pass\ne = f = 3",
     "Source of a, d, e and 1 more"),
    ({"export": ""}, "gram.degenerate(1)", "Source"),
    ({"code-fold": "true", "fig-alt": "A curve"}, "plot()", "Code of the figure"),
    ({"code-fold": "true"}, "print(1)", "Code"),
    ({"exports": ""}, "x = 1", None),
])
def test_a_fold_says_what_it_folds(found, code, prompt):
    assert folded(found, code) == (code, prompt)


def test_a_module_of_specifications_has_no_entries(rooms):
    cell, = page("#| default_exp specifications.rooms", "#| export\nSIZE = 3", root=rooms)
    assert cell.source == "SIZE = 3"


def test_shown_code_leaves_the_docstring_to_the_api_entry(rooms):
    lines = ['class Room:', '    """Short,', '    in two lines.', '', '    Long.', '    """', '', '    def enter(self):',
             '        """Go in.', '', '        Long."""', '        return 1', '', '    def leave(self):',
             '        """Go out,', '        all of it."""', '',
             '    def _inner(self):', '        """Kept.', '', '        Long."""']
    short = [*lines[:2], '    in two lines."""', *lines[6:8], '        """Go in."""', *lines[11:]]
    for directive, expected in {"exports": short, "export": lines}.items():
        cell = f"#| {directive}\n" + "\n".join(lines)
        assert page("#| default_exp rooms", cell, root=rooms)[0].source.split("\n") == expected


def test_figure_gets_its_alternative_text():
    shown, = page(figure("#| fig-alt: A curve, it falls\nplot()"))
    assert shown.source == "plot()"
    assert shown.metadata["mystnb"] == {"image": {"alt": "A curve, it falls"}}


def test_a_slider_brings_its_alternative_text():
    html = '<div class="slider">\n<p>Why?</p>\n<img src="data:" alt="A &lt; B, moving"></div>'
    out = nbformat.v4.new_output("execute_result", {**IMAGE.data, "text/html": html})
    shown, = page(nbformat.v4.new_code_cell("slider()", outputs=[out]))
    assert shown.metadata["mystnb"] == {"image": {"alt": "A < B, moving"}}


@pytest.mark.parametrize("cell, message", [
    ("#| exprot\nx = 1", "cell 1: unknown directive '#| exprot'; known are default_exp, export"),
    ("#| fig-cap: A curve\nplot()", "unknown directive '#| fig-cap'"),
    ("#| code-fold: maybe\nplot()", "'#| code-fold' does not take the value 'maybe'"),
    ("#| export other\nx = 1", "'#| export' does not take the value 'other'"),
    ("x = 1\n#| export", "a directive stands below the top of its cell"),
    (figure("plot()"), "draws a figure and has no '#| fig-alt: ...'"),
    (figure("#| fig-alt:\nplot()"), "'#| fig-alt' does not take the value ''"),
    (figure("#| fig-alt: A curve: it falls\nplot()"), "Quarto reads '#| fig-alt' as YAML"),
    (figure("#| fig-alt: Curve #1 # falls\nplot()"), "Quarto reads '#| fig-alt' as YAML"),
    (figure("#| fig-alt: 'A curve'\nplot()"), "Quarto reads '#| fig-alt' as YAML"),
    (nbformat.v4.new_raw_cell("---\ntitle: x\n---"), "a raw cell has no place on a page"),
    (nbformat.v4.new_markdown_cell("::: {.callout}\nx\n:::"), "':::' is not portable Markdown"),
    (nbformat.v4.new_markdown_cell("$$x$$ {#eq-x}"), "'{#' is not portable Markdown"),
    (nbformat.v4.new_markdown_cell("by @eq-x"), "'@eq-' is not portable Markdown"),
    (nbformat.v4.new_markdown_cell("```{note}\nx\n```"), "'```{' is not portable Markdown"),
])
def test_what_the_translation_does_not_know_is_an_error(cell, message):
    with pytest.raises(SiteError, match=re.escape(message)):
        page(cell)


@pytest.mark.parametrize("text", ["Text", "# Title", TITLE.source + "\n\nText."])
def test_first_cell_must_be_a_title_and_no_more(text):
    with pytest.raises(SiteError, match="99_page.ipynb: the first cell must be '# Title'"):
        translate(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)]), "99_page.ipynb")


@pytest.mark.parametrize("there, message", [
    (CHAPTERS + ["99_page.ipynb"], "99_page.ipynb: not in _quarto.yml"),
    (CHAPTERS[:-1], f"{CHAPTERS[-1]}: in _quarto.yml, but not among the notebooks"),
])
def test_chapters_and_notebooks_must_agree(there, message, tmp_path):
    (tmp_path / "notes").mkdir()
    for name in there:
        nbformat.write(notebook(), tmp_path / name)
    with pytest.raises(SiteError, match=re.escape(message)):
        build(tmp_path, tmp_path / "out")


# --- _quarto.yml and nbdev.yml --------------------------------------------------------------

def test_quarto_names_every_notebook_once():
    assert sorted(CHAPTERS) == pages(ROOT / "nbs")
    assert CHAPTERS[0] == "index.ipynb"


def test_folder_and_sidebar_are_one_table_of_contents():
    """The files of chapters, of the ground floor and of teaching notes sort into the order in which they are read."""
    numbered = [name for name in CHAPTERS if name[0].isdigit()]
    ground = [name for name in numbered if name.startswith("00")]
    above = [name for name in numbered if name not in ground]
    notes = [name for name in CHAPTERS if name.startswith("notes/")]
    assert above == sorted(above) and ground == sorted(ground) and notes == sorted(notes)
    assert {name.removeprefix("notes/") for name in notes} <= set(numbered), "notes have the name of a chapter's page"


def test_what_editors_leave_behind_is_no_page(tmp_path):
    for name in ("a.ipynb", "notes/b.ipynb", ".ipynb_checkpoints/a-checkpoint.ipynb", "_proc/a.ipynb"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert pages(tmp_path) == ["a.ipynb", "notes/b.ipynb"]


def test_quarto_serves_nbdev():
    link = ROOT / "nbs/_quarto.yml"
    assert link.is_symlink() and os.readlink(link) == "../_quarto.yml"
    quarto = yaml.safe_load(link.read_text(encoding="utf-8"))
    assert quarto["project"]["type"] == "website" and quarto["metadata-files"] == ["nbdev.yml"]
    html, website = quarto["format"]["html"], quarto["website"]
    assert set(html["theme"]) == {"light", "dark"} and html["html-math-method"] == "mathjax"
    assert html["keep-md"] is True and quarto["format"]["commonmark"] == {"variant": "+tex_math_dollars"}
    assert (ROOT / "nbs" / html["css"]).is_file() and quarto["tbl-colwidths"] is False
    assert (ROOT / "nbs" / quarto["project"]["pre-render"]).resolve() == ROOT / "site/quarto.py"
    assert website["navbar"]["search"] is True and website["page-navigation"] is True
    assert website["repo-subdir"] == INI["nbs_path"]
    assert [item["href"] for item in website["navbar"]["right"]] == [INI["git_url"]]
    assert not {"title", "repo-url", "site-url"} & set(website), "settings.ini states these"


def test_nbdev_yml_agrees_with_settings():
    stated = yaml.safe_load((ROOT / "nbs/nbdev.yml").read_text(encoding="utf-8"))
    assert stated == {
        "project": {"output-dir": INI["doc_path"]},
        "website": {"title": INI["title"], "site-url": INI["doc_host"] + INI["doc_baseurl"],
                    "description": INI["description"], "repo-branch": INI["branch"],
                    "repo-url": INI["git_url"]}}


# --- The pages in a browser -----------------------------------------------------------------

@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Build the site from the stored outputs and return its folder."""
    stale = tmp_path_factory.mktemp("built") / "site/stale.html"
    stale.parent.mkdir()
    stale.write_text("left from an earlier build")
    done = subprocess.run([sys.executable, ROOT / "site/build.py", ROOT / "nbs", stale.parent], capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not stale.exists()
    return stale.parent


# Marks that follow formulas in the text, and those of them that stand left of their formula, on the next line.
COMMAS = """() => {
    const marks = [...document.querySelectorAll("article span.math:not(.wide)")].map((formula) => [formula, formula.nextSibling])
        .filter(([, text]) => text?.nodeType === Node.TEXT_NODE && /^[.,;:!?)]/.test(text.data));
    const left = (text) => {
        const range = document.createRange();
        range.setStart(text, 0), range.setEnd(text, 1);
        return range.getBoundingClientRect().left;
    };
    return {all: marks.length, lost: marks.filter(([formula, text]) => left(text) < formula.getBoundingClientRect().left)
        .map(([formula, text]) => formula.parentElement.parentElement.textContent.slice(0, 80))};
}"""


@pytest.fixture
def tab(browser):
    """Return an empty page of the browser, wide and light."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield context.new_page()
    context.close()


@pytest.fixture(scope="session")
def seen(site, browser):
    """Visit every page and return ``{path: what was found}``."""
    found = {}
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    for path in sorted(site.rglob("*.html")):
        tab, complaints, requests = context.new_page(), [], []
        tab.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(path.as_uri(), wait_until="load")
        facts = tab.evaluate(FACTS)
        tab.evaluate("window.ready")
        tab.set_viewport_size({"width": 390, "height": 844})
        tab.wait_for_timeout(100)
        width = tab.evaluate("""() => {
            const page = document.scrollingElement, article = document.querySelector("article");
            page.scrollLeft = 1000;
            return Math.max(page.scrollWidth, 390 + page.scrollLeft,
                            article.getBoundingClientRect().right);
        }""")
        commas = tab.evaluate(COMMAS)
        cut = {}
        for room in (390, 1280, 1440, PAPER):
            tab.emulate_media(media="print" if room == PAPER else "screen")
            tab.set_viewport_size({"width": room, "height": 844})
            tab.wait_for_timeout(50)
            cut[room] = tab.evaluate(CUT, room == PAPER)
        tab.close()
        found[path.relative_to(site).as_posix()] = SimpleNamespace(
            **facts, complaints=complaints, requests=requests, width=width, cut=cut, commas=commas)
    context.close()
    return found


def faults(seen, check, pages=None):
    """Return ``{page: what `check` finds wrong there}``."""
    wrong = {name: check(seen[name]) for name in pages or seen}
    return {name: what for name, what in wrong.items() if what}


def names(hrefs, site):
    """Return the files of the `site` that `hrefs` lead to."""
    return [Path(unquote(urlsplit(href).path)).relative_to(site).as_posix() for href in hrefs]


def test_every_chapter_is_a_page(seen):
    assert not set(PAGES) - set(seen)


def test_pages_load_without_complaint(seen):
    assert not faults(seen, lambda page: page.complaints)


def test_pages_ask_no_other_host(seen):
    assert not faults(seen, lambda page: [url for url in page.requests
                                          if not url.startswith(("file:", "data:"))])


def test_internal_links_lead_somewhere(seen, site):
    anchors = {(site / name).as_uri(): set(page.ids) for name, page in seen.items()}

    def dead(page):
        for href in page.links:
            target, _, fragment = href.partition("#")
            if target.startswith("file:"):
                target = target.partition("?")[0]
                if target in anchors:
                    if unquote(fragment) not in anchors[target] | {""}:
                        yield href
                elif not Path(unquote(urlsplit(target).path)).is_file():
                    yield href

    assert not faults(seen, lambda page: list(dead(page)))


def test_formulas_are_drawn(seen):
    assert any(seen[name].formulas for name in PAGES)
    assert not faults(seen, lambda page: page.undrawn or page.refused)
    tex = re.compile(r"\$|\\[a-zA-Z]+|\\[()\[\]]")
    assert not faults(seen, lambda page: tex.findall(page.prose))


def test_no_directive_or_front_matter_is_visible(seen):
    raw = re.compile(r"(?m)^\s*#\s?\|.*|:::.*|\{#.*|^---\s*\n\s*title.*|\{(?:eval-rst|toctree)\}.*")
    assert not faults(seen, lambda page: raw.findall(page.text))


def test_images_have_alternative_text(seen):
    assert any(len(seen[name].images) > 1 for name in PAGES), "no page has a figure"
    assert not faults(seen, lambda page: [i["src"] for i in page.images
                                          if not i["alt"].strip() or not i["width"]])


def test_no_line_begins_with_the_comma_after_a_formula(seen):
    assert any(seen[name].commas["all"] for name in PAGES)
    assert not faults(seen, lambda page: page.commas["lost"])


def test_no_page_scrolls_sideways_on_a_phone(seen):
    assert not faults(seen, lambda page: page.width if page.width > 390 else None)


@pytest.mark.parametrize("width", [390, 1280, 1440, PAPER])
def test_nothing_is_cut(width, seen):
    assert not faults(seen, lambda page: page.cut[width])


def test_what_is_cut_would_be_noticed(site, tab):
    """A formula that is too wide for a sheet, and one in a box that hides the rest."""
    tab.goto((site / "03a_ridge.html").as_uri())
    tab.evaluate("window.ready")
    tab.emulate_media(media="print")
    tab.set_viewport_size({"width": PAPER, "height": 844})
    assert not tab.evaluate(CUT, True)
    tab.add_style_tag(content="[id='eq-3.1'] mjx-container { min-width: 700px !important; }")
    assert [line[:21] for line in tab.evaluate(CUT, True)] == ["MJX-CONTAINER: eq-3.1"]
    tab.add_style_tag(content="[id='eq-3.1'] .math { overflow: hidden !important; }")
    tab.emulate_media(media="screen")
    assert [line[:21] for line in tab.evaluate(CUT, False)] == ["MJX-CONTAINER: eq-3.1"]


@pytest.mark.parametrize("name", ["04_bandwidth", "06c_bpdn", "13d_auto", "15m_benchmarks", "16a_plan"])
def test_code_wraps_and_tables_fit_where_there_is_room(name, site, tab):
    """Code on every page; tables but those with nine data sets side by side, which scroll."""
    tab.goto((site / f"{name}.html").as_uri())
    wide = """() => [...document.querySelectorAll("article .cell_input pre, article .table-wrapper")]
        .filter((e) => e.scrollWidth > e.clientWidth + 1 && !/airfoil|naval/.test(e.textContent))
        .map((e) => e.textContent.slice(0, 40))"""
    tab.evaluate("document.querySelectorAll('details').forEach((fold) => { fold.open = true; })")
    assert not tab.evaluate(wide)
    tab.add_style_tag(content=".cell_input pre { white-space: pre !important; }")
    assert name == "16a_plan" or tab.evaluate(wide)


def test_sidebar_is_in_the_order_of_quarto(seen, site):
    titles = [title.lower() for title, _ in contents(ROOT) if title]
    for page in seen.values():
        assert names(page.sidebar, site) == PAGES and page.captions == titles


def test_previous_and_next(seen, site):
    for k, name in enumerate(PAGES):
        assert names(seen[name].previous, site) == PAGES[max(k - 1, 0):k]
        assert names(seen[name].next, site) == PAGES[k + 1:k + 2]


def test_links_to_colab_and_github(seen):
    for notebook, name in zip(CHAPTERS, PAGES):
        path = f"{INI['user']}/{INI['repo']}/blob/{INI['branch']}/nbs/{notebook}"
        assert f"https://colab.research.google.com/github/{path}" in seen[name].links
        assert f"https://github.com/{path}" in seen[name].links


def test_api_stands_beside_its_derivation(seen):
    for chapter, name in zip(CHAPTERS, PAGES):
        cells = nbformat.read(ROOT / "nbs" / chapter, as_version=4).cells
        found = [directives(cell.source)[0].get("default_exp") for cell in cells
                 if cell.cell_type == "code"]
        for stem in found:
            if stem is None or "." in stem:  # modules in a folder are not public
                continue
            module = f"{INI['lib_name']}.{stem}"
            file = ROOT / INI["lib_path"] / f"{stem}.py"
            named = {getattr(node, "name", None) for node in ast.parse(file.read_text(encoding="utf-8")).body}
            entries = {f"{module}.{n}" for n in named.intersection(public_names(file))}
            assert not entries - set(seen[name].ids), f"{name} lacks API entries"
            if entries:
                source = f"_modules/{INI['lib_name']}/{stem}.html"
                assert any(link.endswith(source) for link in seen[name].links)
                assert any(link.endswith(f"{INI['lib_path']}/{stem}.py") and "github" in link
                           for link in seen[source].links)


def test_parameters_with_one_text_are_one_entry(site):
    page = (site / "00d_datasets.html").read_text("utf-8")
    assert "<strong>low, high</strong> (<em>float, default -4.0 and 4.0</em>)" in page


def test_a_function_with_rules_for_classes_has_one_signature(site):
    page = (site / "14b_modules.html").read_text("utf-8")
    assert page.count('<span class="pre">predictor</span></span><span class="sig-paren">') == 1


def test_a_page_says_once_what_its_classes_share(site, tab):
    """At the class that has it; the contents of the page have functions and classes."""
    tab.goto((site / "01_kernels.html").as_uri())
    assert tab.locator("[id='rfteach.kernels.Kernel.gram']").count() == 1
    assert tab.locator("[id='rfteach.kernels.Gaussian.gram']").count() == 0
    said = tab.locator("dd", has_text="The Laplacian kernel").get_by_text("Methods that are not listed are those of")
    assert said.locator("a").get_attribute("href") == "#rfteach.kernels.Matern"
    links = tab.eval_on_selector_all(".toc-tree a", "all => all.map(a => a.hash)")
    assert "#rfteach.kernels.Kernel" in links and "#rfteach.kernels.Kernel.gram" not in links
    assert "rfteach.eigenpro.EigenProRegressor.fit" in (site / "08d_eigenpro.html").read_text("utf-8")


def test_search_finds_bochner(site, tab):
    tab.goto((site / "index.html").as_uri())
    tab.fill(".sidebar-search", "Bochner")
    tab.press(".sidebar-search", "Enter")
    tab.wait_for_selector("#search-results li a", timeout=10_000)
    found = tab.eval_on_selector_all("#search-results li a", "links => links.map(a => a.href)")
    assert "01_kernels.html" in names(found, site)


@pytest.mark.parametrize("chapter", ["index.ipynb", "01_kernels.ipynb", "16b_exercises.ipynb"])  # one script for all
def test_code_of_a_chapter_can_be_copied(chapter, site, tab):
    nb = translate(nbformat.read(ROOT / "nbs" / chapter, as_version=4), chapter)
    code = [cell.source.strip() for cell in nb.cells if cell.cell_type == "code"]
    tab.goto((site / chapter).with_suffix(".html").as_uri())
    tab.evaluate("document.body.append(document.createElement('textarea'))")
    cells = tab.locator(".cell_input:visible")
    for k in range(min(cells.count(), 3)):
        cells.nth(k).hover()
        cells.nth(k).locator("button.copybtn").click()
        tab.fill("textarea", "")
        tab.press("textarea", "Control+V")
        assert tab.input_value("textarea").strip() in code


def test_solutions_and_model_answers_unfold(site, tab):
    tab.goto((site / "01_kernels.html").as_uri())
    exercises = tab.locator("section#exercises")
    for summary, inside in [("Solution", "return np.exp"), ("Model answer", "convolution")]:
        fold = exercises.locator("details", has_text=inside).first
        assert fold.locator("summary").inner_text().strip() == summary
        assert not fold.get_by_text(inside).first.is_visible()
        fold.locator("summary").click()
        assert inside in fold.inner_text() and "SOLUTION" not in fold.inner_text()


SLIDERS = {name: count for name in CHAPTERS
           if (count := sum('<div class="slider">' in "".join(out.get("data", {}).get("text/html", ""))
                            for cell in nbformat.read(ROOT / "nbs" / name, as_version=4).cells
                            for out in cell.get("outputs", [])))}
WEIGHT = 1_500_000  # bytes of a page that has sliders, with its images
STATE = """box => {
  const [image, range, out] = ["img", "input[type=range]", "output"].map(name => box.querySelector(name));
  return {src: image.src, alt: image.alt, said: out.value, text: range.getAttribute("aria-valuetext"),
          name: range.getAttribute("aria-label"), last: Number(range.max), at: Number(range.value)};
}"""


def test_there_are_sliders():
    assert sum(SLIDERS.values()) > 0


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", SLIDERS)
def test_sliders_move(name, width, site, tab):
    """By keyboard and by mouse; what is seen, written and said belongs to one frame."""
    complaints, requests = [], []
    tab.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.set_viewport_size({"width": width, "height": 844})
    tab.goto((site / name).with_suffix(".html").as_uri())
    tab.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    boxes = tab.locator("div.slider")
    assert boxes.count() == SLIDERS[name]
    del requests[:]
    for k in range(boxes.count()):
        box, range_ = boxes.nth(k), boxes.nth(k).locator("input")
        still = box.evaluate(STATE)
        assert 0 <= still["at"] <= still["last"] and still["name"].strip()
        range_.focus()
        seen = {}
        for key in ["Home", *["ArrowRight"] * still["last"]]:
            tab.keyboard.press(key)
            now = box.evaluate(STATE)
            seen[now["at"]] = now
            assert now["said"] == now["text"] and now["alt"].endswith(f"{now['name']}: {now['said']}")
        assert sorted(seen) == [*range(still["last"] + 1)] and seen[still["at"]] == still
        assert len({now["said"] for now in seen.values()}) == len(seen)
        assert len({now["src"] for now in seen.values()}) == len(seen), "two frames are the same"
        room = range_.bounding_box()
        range_.click(position={"x": 2, "y": room["height"] / 2})
        assert box.evaluate(STATE) == seen[0]
        assert room["x"] >= 0 and room["x"] + room["width"] <= width
    assert not complaints and not [url for url in requests if not url.startswith("data:")]


@pytest.mark.parametrize("name", SLIDERS)
def test_pages_with_sliders_are_light(name, site):
    path = (site / name).with_suffix(".html")
    images = re.findall(r'<img [^>]*?src="(?!data:)([^"]+)"', path.read_text(encoding="utf-8"))
    assert sum(file.stat().st_size for file in {path, *(path.parent / image for image in images)}) < WEIGHT


@pytest.mark.parametrize("name", SLIDERS)
def test_without_scripts_and_on_paper_there_is_the_still(name, site, browser, tab):
    stills = [out["data"]["image/png"] for cell in nbformat.read(ROOT / "nbs" / name, as_version=4).cells
              for out in cell.get("outputs", []) if '<div class="slider">' in out.get("data", {}).get("text/html", "")]
    context = browser.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto((site / name).with_suffix(".html").as_uri())
    boxes = plain.locator("div.slider")
    assert [boxes.nth(k).locator("img").get_attribute("src").partition(",")[2] for k in range(boxes.count())] == stills
    assert not boxes.locator("input").count() and not boxes.locator("img").first.get_attribute("alt").isspace()
    assert all(boxes.nth(k).locator("img").bounding_box()["width"] > 300 for k in range(boxes.count()))
    context.close()
    tab.goto((site / name).with_suffix(".html").as_uri())
    box = tab.locator("div.slider").first
    box.locator("input").press("Home")
    tab.evaluate("""() => addEventListener("beforeprint", () => {
        const box = document.querySelector("div.slider");
        window.printed = [box.querySelector("img").src.split(",")[1], box.querySelector("input").offsetWidth];
    })""")
    tab.pdf()
    assert tab.evaluate("window.printed") == [stills[0], 0]
    assert box.evaluate(STATE)["at"] == 0 and box.locator("input").is_visible()


def test_a_still_says_which_frame_it_is(browser):
    """On paper and without scripts; on the screen the control says it."""
    html = Slider("waves N", ("1", "2 · error < 1"), (b"", b""), 1, "A line.")._repr_mimebundle_()["text/html"]
    for scripts in (False, True):
        context = browser.new_context(java_script_enabled=scripts)
        tab = context.new_page()
        tab.set_content(html)
        assert tab.get_by_text("waves N: 2 · error < 1").is_visible() is not scripts
        if scripts:
            tab.locator("input").press("Home")
            seen = "dispatchEvent(new Event('{}')), document.querySelector('.slider').innerText.trim()"
            assert tab.evaluate(seen.format("beforeprint")) == "waves N: 2 · error < 1"
            assert tab.evaluate(seen.format("afterprint")).split() == ["waves", "N", "1"]
        context.close()


@pytest.mark.parametrize("name, asked", [("00e_plots", True), ("06c_bpdn", False)])
def test_a_slider_asks_where_the_text_above_does_not(name, asked, site, tab):
    tab.goto((site / f"{name}.html").as_uri())
    assert tab.locator(".slider > p:first-child").is_visible() is asked


def test_light_and_dark(site, tab):
    tab.goto((site / "index.html").as_uri())
    colours = """() => ["backgroundColor", "color"].map(
        name => getComputedStyle(document.body)[name])"""
    light = tab.evaluate(colours)
    tab.click(".theme-toggle-content button")
    tab.wait_for_timeout(400)
    dark = tab.evaluate(colours)
    assert light[0] != dark[0] and light[1] != dark[1]
    tab.reload()
    assert tab.evaluate(colours) == dark, "the choice is kept"
    tab.click(".theme-toggle-content button")
    tab.wait_for_timeout(400)
    assert tab.evaluate(colours) == light


# --- Numbers, and what is cited by them -------------------------------------------------------

TAGS = {tag: Path(name).with_suffix(".html").as_posix() for name in CHAPTERS
        for cell in nbformat.read(ROOT / "nbs" / name, as_version=4).cells if cell.cell_type == "markdown"
        for tag in re.findall(r"\\tag\{([^}]+)\}", cell.source)}


def test_pages_and_sections_are_numbered(site, tab):
    tab.goto((site / "03b_streaming.html").as_uri())
    heads = tab.eval_on_selector_all("article :is(h1, h2)", "all => all.map(h => h.firstChild.textContent.trim())")
    assert heads == ["3b", *(f"3b.{k}" for k in range(1, len(heads)))] and len(heads) > 3
    contents = [line.split()[0] for line in tab.locator(".toc-tree > ul > li > ul > li > a").all_inner_texts()]
    assert contents == heads[1:]
    sidebar = tab.locator(".sidebar-tree a").all_inner_texts()
    for name, line in zip(CHAPTERS, sidebar):
        if name[0].isdigit():
            assert line.split()[0] == re.match(r"0?(\d+[a-z]?)_", name)[1]
    assert not tab.locator("h3 .section-number").count()


def test_every_formula_has_a_place_and_every_citation_leads_there(seen, site):
    for tag, name in TAGS.items():
        assert f"eq-{tag}" in seen[name].ids, f"({tag}) cannot be linked to"
    links = {tuple(href.rpartition("/")[2].split("#eq-")) for page in seen.values() for href in page.links
             if "#eq-" in href}
    assert {tag for _, tag in links} >= {"1.2", "3.15", "8.13", "10.13", "D.1"}
    assert all(TAGS[tag].endswith(name) for name, tag in links)


# A summary is a button, and has no links within.
CITED = r"""() => {
  const walk = document.createTreeWalker(document.querySelector("article"), NodeFilter.SHOW_TEXT), found = [];
  while (walk.nextNode())
    if (!walk.currentNode.parentElement.closest("a, code, pre, h1, h2, h3, h4, summary, .math, script, style, #preview"))
      found.push(...walk.currentNode.data.matchAll(/(?<!\w)\((?:[1-9]\d?|[A-Z])\.[1-9]\d?\)|chapter \d+/gi));
  return found.map(([text]) => text);
}"""


@pytest.mark.parametrize("name, apart", [
    ("01_kernels", ["(4.14)", "(4.17)", "chapter 4"]),  # of Rasmussen and Williams, under References
    ("04_bandwidth", []), ("08d_eigenpro", []), ("10f_adaptive", []), ("12_agop", []), ("notes/03a_ridge", []),
])
def test_no_citation_in_the_text_is_left_without_a_link(name, apart, site, tab):
    tab.goto((site / f"{name}.html").as_uri())
    assert tab.evaluate(CITED) == apart


def test_a_cited_formula_is_shown_where_it_is_cited(site, tab):
    tab.goto((site / "08d_eigenpro.html").as_uri())
    link, card = tab.locator('article a[href="08a_preconditioning.html#eq-8.13"]').first, tab.locator("#preview")
    assert not card.is_visible()
    link.focus()
    card.locator("svg").first.wait_for()
    assert card.inner_text().strip().endswith("EigenPro") and link.get_attribute("aria-describedby") == "preview"
    assert card.bounding_box()["width"] > 300 and not card.locator("[data-mml-node=merror]").count()
    tab.keyboard.press("Escape")
    assert not card.is_visible() and link.get_attribute("aria-describedby") is None
    link.hover()
    card.locator("svg").first.wait_for()
    card.hover()
    tab.wait_for_timeout(400)
    assert card.is_visible(), "the pointer may move onto it"
    tab.mouse.move(5, 5)
    tab.wait_for_timeout(400)
    assert not card.is_visible()


# --- Search -----------------------------------------------------------------------------------

def results(site, tab, words):
    """Return the links that a search finds, the first one first."""
    tab.goto((site / "index.html").as_uri())
    tab.fill(".sidebar-search", words)
    tab.press(".sidebar-search", "Enter")
    tab.wait_for_selector("#search-results li a", timeout=10_000)
    return tab.eval_on_selector_all("#search-results li a", "links => links.map(a => a.getAttribute('href'))")


@pytest.mark.parametrize("words, first", [
    ("(8.5)", "08a_preconditioning.html#eq-8.5"), ("8.5", "08a_preconditioning.html#eq-8.5"),
    ("(D.1)", "00d_datasets.html#eq-D.1"), ("bandwidth", "04_bandwidth.html"), ("kernel", "01_kernels.html"),
    ("EigenPro", "08d_eigenpro.html"), ("attention", "11a_attention.html"), ("ridge regression", "03a_ridge.html"),
    ("random Fourier features", "02_features.html"), ("benchmarks", "15m_benchmarks.html"),
])
def test_search_puts_the_page_on_a_subject_first(words, first, site, tab):
    assert results(site, tab, words)[0] == first


@pytest.mark.parametrize("words, found", [("nystrom", "05_rbf"), ("levy", "01_kernels"), ("mucke", "08d_eigenpro")])
def test_search_does_without_accents(words, found, site, tab):
    assert f"{found}.html" in [link.partition("#")[0] for link in results(site, tab, words)]


def test_search_for_a_title_finds_its_chapter_first(site, tab):
    results(site, tab, "Bochner")
    first = "title => Search._performSearch(...Search._parseQuery(title)).at(-1)[0]"
    for name in CHAPTERS:
        if re.match(r"0[1-9]|1[0-4]", name) and name != "08a_preconditioning.ipynb":  # "EigenPro" is 8d's subject, too
            title = nbformat.read(ROOT / "nbs" / name, as_version=4).cells[0].source.split("\n")[0].removeprefix("# ")
            assert f"{tab.evaluate(first, title)}.ipynb" == name, title


# --- Keyboard, screen and paper ---------------------------------------------------------------

def test_contents_of_a_page_stay_in_view(site, tab):
    tab.goto((site / "06a_orderq.html").as_uri())
    for width in (1280, 1440):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.evaluate("scrollTo(0, 5000)")
        tab.wait_for_timeout(400)
        box = tab.locator(".toc-tree").bounding_box()
        assert box["x"] + box["width"] <= width and 0 <= box["y"] < 200
        text = tab.locator(".article-container").bounding_box()
        assert text["x"] + text["width"] <= box["x"] and text["width"] > 650


def test_the_copy_button_is_seen_by_those_who_use_the_keyboard(site, tab):
    tab.goto((site / "01_kernels.html").as_uri())
    tab.locator(".cell_input:visible").first.locator("xpath=preceding::a[1]").focus()
    for _ in range(40):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.matches('button.copybtn')"):
            break
    tab.wait_for_timeout(500)
    assert tab.evaluate("getComputedStyle(document.activeElement).opacity") == "1"


def test_the_search_field_shows_that_it_is_used(site, tab):
    tab.goto((site / "index.html").as_uri())
    outline = "getComputedStyle(document.querySelector('.sidebar-search-container')).outlineStyle"
    assert tab.evaluate(outline) == "none"
    tab.focus(".sidebar-search")
    assert tab.evaluate(outline) == "solid"


def test_the_sidebar_shows_where_the_reader_is(site, tab):
    tab.goto((site / "15m_benchmarks.html").as_uri())
    tab.evaluate("window.ready")
    box = tab.locator(".sidebar-tree .current-page > a").bounding_box()
    assert 100 < box["y"] < 800 and tab.evaluate("scrollY") == 0


def test_what_scrolls_has_a_shadow_at_its_edge(site, tab):
    """As its picture shows: darker at the right, and no longer when it is scrolled to the end."""
    tab.goto((site / "08d_eigenpro.html").as_uri())
    tab.evaluate("window.ready")
    tab.add_style_tag(content=".cell_output pre, .cell_output pre * { color: transparent !important; }")
    wide = tab.evaluate_handle("""
        [...document.querySelectorAll(".cell_output pre")].find((pre) => pre.scrollWidth > pre.clientWidth + 1)""")
    pictures = []
    for left in (0, 1e6):
        wide.evaluate("(pre, left) => { pre.scrollLeft = left; }", left)
        picture = plt.imread(BytesIO(wide.as_element().screenshot()))[5, :, :3].mean(1)
        pictures.append(picture[-2] < picture[picture.size // 2] - 0.05)
    assert pictures == [True, False]


def test_dates_and_brackets_stay_with_what_they_belong_to(site):
    assert '<span class="joined">2026-' in (site / "15m_benchmarks.html").read_text("utf-8")
    text = "".join((site / name).read_text("utf-8") for name in PAGES)
    assert '<span class="joined">(<span class="math' in text and '>(<span class="math' not in text.replace('"joined">(', "")


def test_folds_are_announced_by_their_own_words(site, tab):
    tab.goto((site / "02_features.html").as_uri())
    folds = tab.locator("div.cell details.hide > summary")
    assert not [k for k in range(folds.count()) if folds.nth(k).get_attribute("aria-label")]
    assert any("Source of " in text for text in folds.all_inner_texts())


def test_a_page_prints_as_a_handout(site, tab):
    tab.goto((site / "01_kernels.html").as_uri())
    tab.evaluate("window.ready")
    tab.emulate_media(media="print")
    for gone in (".skip-to-content", ".sidebar-drawer", ".toc-drawer", ".links", "button.copybtn", "details.hide summary"):
        assert not [e for e in tab.locator(gone).all() if e.is_visible()], gone
    assert tab.locator("article h1").is_visible() and tab.locator("mjx-container").first.is_visible()
    tab.locator("details.hide").first.evaluate("fold => { fold.open = true; }")
    assert tab.locator("details.hide pre").first.is_visible(), "what the reader has opened is printed"
    answer = tab.locator("details:has(+ details)").first  # to a question
    for opened in (False, True):
        answer.evaluate("(fold, opened) => { fold.open = opened; }", opened)
        assert answer.locator("summary").is_visible(), "answers to choose from are printed"
        assert not answer.locator("p").is_visible(), "what is said to an answer is not printed"
    assert not tab.locator("summary", has_text="What happens").first.is_visible()


def test_sheets_break_at_good_places(site, tab):
    tab.goto((site / "01_kernels.html").as_uri())
    tab.emulate_media(media="print")

    def style(selector, name):
        return set(tab.eval_on_selector_all(selector, f"all => all.map(e => getComputedStyle(e).{name})"))

    assert style("article table:has(thead .math)", "breakInside") == {"avoid"}
    assert style(".api p.rubric, .api > dl > dd > dl.field-list > dt", "breakAfter") == {"avoid"}
    assert style(".api pre", "orphans") == style(".api pre", "widows") == {"4"}


def test_parts_of_the_book_know_their_number_and_their_neighbours(site):
    text = chapter(site, "03b_streaming", ["03b_streaming", "03e_moments"], "https://home")
    assert 'href="book:03b_streaming--eq-3.15"' in text and 'id="03b_streaming--eq-3.15"' in text
    assert 'href="https://home/03a_ridge.html#eq-3.2"' in text and not re.search(r'href="(?!book:|https?:)', text)
    part = document(site, text, 7)
    assert "counter-set: page 7 }" in part and '<a href="#03b_streaming--eq-3.15"></a>' in part
    titles = {"03e_moments": "Moments", "03b_streaming": "Sums"}
    lines = re.findall(r'<p><a href="book:(.*?)">(.*?)</a> <span>(.*?)</span></p>', front(titles, {"03e_moments": 9}, "home"))
    assert lines == [("03b_streaming", "Sums", ""), ("03e_moments", "Moments", "9")]


def test_the_book(site, browser, tmp_path):
    """Two pages: numbers on the sheets and in the contents, links from one to the other, bookmarks."""
    file = tmp_path / "book.pdf"
    begins = printed(site, ["03e_moments", "03b_streaming"], file, browser=browser)
    book = PdfReader(file)
    feet, texts = zip(*(normalize("NFKC", sheet.extract_text()).split("\n", 1) for sheet in book.pages))
    titles = {"03b_streaming": "3b Sums over rows", "03e_moments": "3e "}
    assert list(begins) == list(titles) and 3 == begins["03b_streaming"] < begins["03e_moments"]
    assert feet == tuple(str(number) for number in range(1, len(feet) + 1)), "a sheet has its number"
    for page, first in begins.items():
        assert texts[first - 1].startswith(titles[page]) and re.search(rf"(?m)^{titles[page]}.* {first}$", texts[1])

    def number(place):
        return 1 + book.get_page_number(place.get_object())

    links = [(at, link.get_object()) for at, sheet in enumerate(book.pages, 1) for link in sheet.get("/Annots", ())]
    assert not [link for _, link in links if link.get("/A", {}).get("/URI", "http")[:4] != "http"]
    inner = [(at, number(link["/Dest"][0])) for at, link in links if "/Dest" in link]
    assert [to for at, to in inner if at == 2] == list(begins.values()), "the contents lead to the pages"
    second = begins["03e_moments"]
    assert any(at >= second > to for at, to in inner), "a citation leads to the other page"
    assert begins["03b_streaming"] <= number(book.named_destinations["/03b_streaming--eq-3.16"]["/Page"]) < second
    marks = [mark for part in book.outline for mark in (part if isinstance(part, list) else [part])]
    assert [number(mark["/Page"]) for mark in book.outline[::2]] == list(begins.values())
    assert len(marks) > 10, "sections too"
    for mark in marks:
        assert normalize("NFKC", mark["/Title"]) in texts[number(mark["/Page"]) - 1]
    assert not (site / "book.html").exists()


def test_the_book_has_no_page_that_is_not_there(site, tmp_path):
    with pytest.raises(SiteError, match="99_page: not in _quarto.yml"):
        printed(site, ["99_page"], tmp_path / "book.pdf")
