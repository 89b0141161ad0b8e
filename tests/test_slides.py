"""The slides: what a tagged cell becomes, and the decks in headless Chromium on 1280 × 720.

The decks are built from the stored outputs, which test_notebooks.py compares with fresh ones, and
opened with ``file://``. Messages name the deck, the slide and the cell of the notebook.
"""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
import slides
from build import ROOT, SiteError, contents

BOOKS = {name.removesuffix(".ipynb"): nbformat.read(ROOT / "nbs" / name, as_version=4)
         for _, names in contents(ROOT) for name in names}
DECKS = [name for name, nb in BOOKS.items() if any(map(slides.tagged, nb.cells))]
READY = "window.Reveal && Reveal.isReady()"

# What the slides of a deck hold, each while it is shown.
FACTS = r"""() => Reveal.getSlides().map((slide, k) => {
  Reveal.slide(k);
  const body = slide.querySelector(".body"), room = body.getBoundingClientRect();
  const shown = [...slide.querySelectorAll("*")].filter(e => !e.closest("aside, mjx-assistive-mml, defs"));
  const out = (e) => {
    const r = e.getBoundingClientRect(), sides = {
      left: room.left - r.left, right: r.right - room.right, top: (body.contains(e) ? room.top : 0) - r.top,
      bottom: r.bottom - (body.contains(e) ? room.bottom : 720)};
    return Object.entries(sides).filter(([_, by]) => by > 1.5 && r.width * r.height > 0).map(
      ([side, by]) => `${e.tagName.toLowerCase()} passes the ${side} edge by ${Math.round(by)} px`);
  };
  const texts = [], walk = document.createTreeWalker(slide, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const e = walk.currentNode.parentElement, text = walk.currentNode.data.trim();
    if (text && !e.closest("aside, mjx-container"))
      texts.push({text, size: parseFloat(getComputedStyle(e).fontSize), least: e.closest("pre") ? 18 : 24,
                  code: !!e.closest("pre, code")});
  }
  return {
    kind: slide.className.split(" ")[0], cell: slide.dataset.cell, heading: slide.querySelector("h2").innerText,
    outside: [
      ...shown.flatMap(out),
      ...shown.filter(e => e.matches("pre") && e.scrollWidth > e.clientWidth + 1).map(() => "code is cut"),
      ...(slide.scrollHeight > 720 ? [`the slide is ${slide.scrollHeight} px high`] : [])].slice(0, 3),
    small: texts.filter(t => t.size < t.least).map(t => `${t.size} px: ${t.text.slice(0, 40)}`),
    raw: texts.filter(t => !t.code && /\$|\\[a-zA-Z]+|^#+ /.test(t.text)).map(t => t.text.slice(0, 60)),
    refused: slide.querySelectorAll("[data-mml-node=merror], mjx-merror").length,
    undrawn: [...slide.querySelectorAll(".body mjx-container")].filter(
      m => !m.querySelector("svg")?.getBoundingClientRect().width).length,
    formulas: slide.querySelectorAll("mjx-container").length,
    images: [...slide.querySelectorAll("img")].map(i => {
      const scale = Math.min(i.clientWidth / i.naturalWidth, i.clientHeight / i.naturalHeight);
      return {alt: i.alt, width: i.naturalWidth * scale, height: i.naturalHeight * scale};
    }),
    notes: slide.querySelector("aside.notes")?.textContent.trim() ?? "",
    links: [...slide.querySelectorAll(".body a")].map(a => a.getAttribute("href")),
    current: Reveal.getCurrentSlide() === slide && room.height > 0,
  };
})"""


# --- Which cells, and what they become ------------------------------------------------------

def text(source, *tags):
    """Return a Markdown cell."""
    return nbformat.v4.new_markdown_cell(source, metadata={"tags": list(tags)})


def code(source, *tags, printed="", image=False):
    """Return a code cell with its outputs."""
    outputs = [nbformat.v4.new_output("stream", text=printed)] * bool(printed)
    outputs += [nbformat.v4.new_output("display_data", {"image/png": "aGk=\n", "text/plain": "<Figure>"})] * image
    return nbformat.v4.new_code_cell(source, outputs=outputs, metadata={"tags": list(tags)})


def deck(*cells, following=None):
    """Return the slides of a notebook of a title and these cells; a slide is its metadata with ``text``."""
    nb = nbformat.v4.new_notebook(cells=[text("# Waves\n\n> In one line."), *cells])
    return [SimpleNamespace(text=cell.source, **cell.metadata["slide"])
            for cell in slides.deck(nb, "99_waves", following)]


def test_untagged_cells_stay_out():
    made = deck(text("## Why\n\nProse."), code("x = 1"), text("**Theorem.** It holds.", "slide"), code("y = 2"))
    assert [slide.kind for slide in made] == ["title", "statement", "last"]
    assert [slide.cell for slide in made] == [0, 3, None]
    assert made[0].heading == "Waves" and "In one line." in made[0].text and "../site/99_waves.html" in made[0].text


def test_heading_is_the_cells_own_or_the_nearest_above():
    made = deck(text("## Why\n\nProse.\n\n### Because"), text("A.", "slide"), text("## Own\n\nB.", "slide"),
                code("x", "slide"))
    assert [(slide.heading, slide.text) for slide in made[1:3]] == [("Because", "A."), ("Own", "B.")]
    assert made[3].heading == "Own"


def test_code_is_shown_without_directives_and_docstrings():
    source = ('#| exports\nclass Wave:\n    """A wave.\n\n    Long.\n    """\n\n    size = 1\n\n'
              '    def at(self, x):\n        """Here."""\n        return x')
    made = deck(code("x"), code(source, "slide"))[1]
    assert made.kind == "code"
    assert made.text == "```python\nclass Wave:\n    size = 1\n\n    def at(self, x):\n        return x\n```"


def test_short_output_is_shown_and_long_output_is_not():
    assert deck(code("x"), code("f()", "slide", printed="a\nb\n"))[1].text == "```python\nf()\n```\n\n```\na\nb\n```"
    for printed in ["line\n" * 30, "x" * 101]:
        assert deck(code("x"), code("f()", "slide", printed=printed))[1].text == "```python\nf()\n```"


def test_code_has_the_sentence_above_it():
    above = text("## Wrong\n\nBefore.\n\n**A factor 2.** It is missing. " + "More words. " * 30)
    made = deck(above, code("x = 1", "slide"))[1]
    assert made.heading == "A factor 2" and made.text.startswith("It is missing. More words.")
    assert slides.words(made.text.partition("```")[0]) <= slides.ABOVE
    made = deck(text("## Slow\n\nIn a loop:"), code("import os\nfrom os import path"), code("x = 1", "slide"))[1]
    assert (made.heading, made.text.split("\n")[0]) == ("Slow", "In a loop:")


@pytest.mark.parametrize("name", DECKS)
def test_no_slide_begins_within_a_sentence(name):
    """As what follows a displayed formula may."""
    begun = [cell.source[:60] for cell in slides.deck(BOOKS[name], name) if cell.source[0].islower()]
    assert not [words for words in begun if not words.startswith("scikit-learn")]


def test_figure_has_its_caption_and_alternative_text():
    below = "*It falls, see [there](02_features.ipynb). " + ("More words. " * 30).strip() + "*\n\nProse."
    made = deck(code("#| fig-alt: A curve\nplot()", "slide", image=True), text(below))[1]
    assert (made.kind, made.alt, made.image) == ("figure", "A curve", "data:image/png;base64,aGk=")
    assert made.text.startswith("It falls, see [there](../site/02_features.html). More words.")
    assert slides.words(made.text) <= slides.CAPTION and "plot" not in made.text


def test_a_slider_shows_its_still():
    cell = code("slider()", "slide", image=True)
    cell.outputs[-1].data["text/html"] = '<div class="slider">\n<img src="data:" alt="A &lt; B"><script></script></div>'
    made = deck(cell, text("*It moves.*"))[1]
    assert (made.kind, made.alt, made.image) == ("figure", "A < B", "data:image/png;base64,aGk=")


FIGURE = "#| fig-alt: A curve\nplot()"


@pytest.mark.parametrize("cells, message", [
    ([code(FIGURE, "slide", image=True)], "cell 1: the figure of a slide needs its caption"),
    ([code(FIGURE, "slide", image=True), text("**Bold** is none.")], "cell 1: the figure of a slide needs its caption"),
    ([code("plot()", "slide", image=True), text("*Caption.*")], "cell 1: a slide with a figure needs one figure and"),
    ([text("Text."), code("x = 1\n" * 20 + "x = 2", "slide")], "cell 2: code of 21 lines, the longest 5 characters"),
    ([code("x = '" + "a" * 96 + "'", "slide")], "code of 1 lines, the longest 102 characters, does not fit"),
    ([code("! ls", "slide")], "the code of a slide must be plain Python"),
    ([code("#| hide\nx = 1", "slide")], "a hidden cell cannot be a slide"),
    ([text("word " * 91, "slide")], "91 words on a slide; at most 90"),
    ([text("## Why", "slide")], "a slide with a heading only"),
])
def test_what_does_not_fit_is_an_error_that_names_the_cell(cells, message):
    with pytest.raises(SiteError, match=re.escape(message)) as error:
        deck(*cells)
    assert str(error.value).startswith("99_waves.ipynb, cell ")


def test_formulas_and_tables_are_no_words():
    assert slides.words("One $a + b + c$ two\n\n$$x\ny$$\n\n| a b | c d |\n|---|---|\n\n[three](a.html)") == 3


def test_notes_are_the_prose_after_the_cell():
    made = deck(text("A.", "slide"), text("First.\n\n### Part\n\nSecond."), code("x = 1", "slide"),
                text("Third."), text("B.", "slide"), text("## Next\n\nFourth."))
    assert [slide.notes for slide in made[1:4]] == ["First.\n\n**Part**\n\nSecond.", "Third.", "Third."]
    sentence = "Where $a. b$ is small, it holds. "  # five words
    assert deck(text("A.", "slide"), text(sentence * 40))[1].notes == (sentence * 24).strip()


def test_last_slide_has_the_exercises_and_the_next_chapter():
    tasks = [text("### Exercise 1.1: Waves of $x$ (1 point)\n\nDraw."), text("### Exercise 1.2: Proof (3 points)")]
    made = deck(text("## Exercises"), *tasks, following=("02_b", "Features"))[-1]
    assert made.heading == "Exercises" and "- **1.1** Waves of $x$\n- **1.2** Proof\n" in made.text
    assert "[Features](02_b.html)" in made.text and "../site/99_waves.html#exercises" in made.text
    assert deck()[-1].heading == "What comes next"


# --- The decks in a browser -----------------------------------------------------------------

@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Build the decks and return their folder and what the builder said."""
    out = tmp_path_factory.mktemp("course") / "slides"
    done = subprocess.run([sys.executable, ROOT / "site/slides.py", ROOT / "nbs", out], capture_output=True,
                          text=True)
    return SimpleNamespace(path=out, said=done.stdout + done.stderr, code=done.returncode)


def address(folder, name):
    """Return the address of a deck; where it could not be built, fail with what the builder said."""
    if not (folder.path / f"{name}.html").exists():
        pytest.fail(f"{name}: {folder.said}", pytrace=False)
    return (folder.path / f"{name}.html").as_uri()


@pytest.fixture
def tab(browser):
    """Return an empty page of the browser, as large as a slide."""
    context = browser.new_context(viewport={"width": 1280, "height": 720})
    yield context.new_page()
    context.close()


@pytest.fixture(scope="session")
def seen():
    """Return the decks visited so far."""
    return {}


@pytest.fixture(params=DECKS)
def visit(request, folder, browser, seen):
    """Visit a deck, once, and return what was found."""
    name, complaints, requests = request.param, [], []
    if name not in seen:
        url = address(folder, name)
        context = browser.new_context(viewport={"width": 1280, "height": 720})
        tab = context.new_page()
        tab.on("console", lambda m: complaints.append(m.text) if m.type in ("error", "warning") else None)
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        tab.on("requestfailed", lambda request: complaints.append(f"failed: {request.url}"))
        tab.on("request", lambda request: requests.append(request.url))
        tab.goto(url)
        tab.wait_for_function(READY)
        facts = [SimpleNamespace(**facts) for facts in tab.evaluate(FACTS)]
        tab.evaluate("Reveal.slide(0)")
        for key in ["ArrowRight", " "]:
            tab.keyboard.press(key)
        here = tab.evaluate("Reveal.getIndices().h")
        numbers = tab.inner_text(".slide-number")
        context.close()
        seen[name] = SimpleNamespace(name=name, slides=facts, complaints=complaints, requests=requests, here=here,
                                     numbers=numbers)
    return seen[name]


def find(visit, wrong):
    """Fail where `wrong` finds something on a slide; the message names deck, slide and cell."""
    places = {f"{visit.name}, slide {k} ({slide.heading!r}, cell {slide.cell})": wrong(slide)
              for k, slide in enumerate(visit.slides, 1)}
    if found := [f"{place}: {what}" for place, what in places.items() if what]:
        pytest.fail("\n".join(found), pytrace=False)


def test_all_decks_are_built(folder):
    assert folder.code == 0, folder.said
    page = (folder.path / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'<li><a href="(\w+)\.html">', page) == DECKS
    assert {file.stem for file in folder.path.glob("*.html")} == {*DECKS, "index"}


def test_chapters_have_slides_and_teaching_notes_have_none():
    tasked = [name for name, nb in BOOKS.items() if slides.exercises(nb.cells) and not name.startswith("notes/")]
    lost = {name[:2] for name in tasked} - {name[:2] for name in DECKS}
    assert not lost, f"chapters with exercises and without a cell that has the tag 'slide': {sorted(lost)}"
    assert not [name for name in DECKS if "/" in name]


def test_deck_is_a_lecture_or_a_part_of_one(visit):
    kinds = [slide.kind for slide in visit.slides]
    assert 3 <= len(kinds) <= 14, f"{visit.name}: {len(kinds)} slides, not 3 to 14"
    assert kinds[0] == "title" and kinds[-1] == "last"
    find(visit, lambda slide: not slide.current)
    assert sum(bool(slide.notes) for slide in visit.slides) > len(kinds) / 2, f"{visit.name}: few slides have notes"


@pytest.mark.parametrize("number", sorted({name[:2] for name in DECKS}))
def test_chapter_has_what_a_lecture_needs(number):
    """A chapter may have several pages; together their slides have statements, figures and code, and enough of them."""
    kinds = [slide.metadata["slide"]["kind"] for name in DECKS if name.startswith(number)
             for slide in slides.deck(BOOKS[name], name)[1:-1]]
    assert {"statement", "figure", "code"} == set(kinds), f"chapter {number} has only {kinds}"
    assert len(kinds) >= 4, f"chapter {number} has only {kinds}"


def test_deck_is_offline_and_does_not_complain(visit):
    assert not visit.complaints, visit.name
    assert not [url for url in visit.requests if not url.startswith(("file:", "data:"))], visit.name


def test_everything_fits_on_its_slide(visit):
    find(visit, lambda slide: slide.outside)


def test_text_is_large(visit):
    find(visit, lambda slide: slide.small)


def test_formulas_are_drawn(visit):
    first = not re.match(r"\d\d[b-z]_", visit.name)  # a later page of a chapter may be about code alone
    assert not first or any(slide.formulas for slide in visit.slides), f"{visit.name} has no formula"
    find(visit, lambda slide: slide.raw or slide.undrawn or slide.refused)


def test_figures_are_large_and_have_alternative_text(visit):
    find(visit, lambda slide: [i for i in slide.images if not i["alt"].strip()])
    find(visit, lambda slide: [i for i in slide.images if i["width"] < 1100 and i["height"] < 300])


def test_links_lead_to_the_site_or_to_a_deck(visit):
    known = {f"../site/{name}.html" for name in BOOKS} | {f"{name}.html" for name in [*DECKS, "index"]}
    find(visit, lambda slide: [url for url in slide.links if not url.startswith("https:")
                                            and url.partition("#")[0] not in known])


def test_keys_turn_the_slides(visit):
    assert visit.here == 2, visit.name
    assert re.fullmatch(rf"3\s*/\s*{len(visit.slides)}", visit.numbers.strip()), visit.name


@pytest.mark.parametrize("name", DECKS[:1])
def test_speaker_window_shows_the_notes(name, folder, tab):
    requests = []
    tab.context.on("request", lambda request: requests.append(request.url))
    tab.goto(address(folder, name))
    tab.wait_for_function(READY)
    tab.keyboard.press("ArrowRight")
    with tab.expect_popup() as popup:
        tab.keyboard.press("s")
    notes = tab.evaluate("Reveal.getCurrentSlide().querySelector('aside.notes').textContent.trim()")
    shown = "document.querySelector('.speaker-controls-notes .value')?.textContent.trim()"
    popup.value.wait_for_function(f"notes => {shown} == notes", arg=notes, timeout=20_000)
    assert notes and popup.value.locator("iframe").count() == 2
    assert all(url.startswith(("file:", "data:", "about:")) for url in requests)


@pytest.mark.parametrize("name", DECKS)
def test_deck_prints_a_page_for_each_slide(name, folder, tab):
    tab.goto(address(folder, name) + "?print-pdf")
    tab.wait_for_function(READY)
    tab.wait_for_function("document.querySelectorAll('.pdf-page').length > 0")
    pages = len(re.findall(rb"/Type\s*/Page\b", tab.pdf(prefer_css_page_size=True, print_background=True)))
    assert pages == tab.evaluate("Reveal.getTotalSlides()"), name
