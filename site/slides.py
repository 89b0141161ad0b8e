"""Build the slides: ``python site/slides.py [notebooks] [output folder]``.

A chapter's page with cells tagged ``slide`` becomes a deck for reveal.js: a title, a slide for each of
these cells, and the exercises with the next deck. Such a cell is short, or it is an error.
"""

import ast
import re
import shutil
import sys
from importlib.metadata import files
from pathlib import Path

import nbformat
from build import ROOT, SiteError, alternative, contents, directives, only_imports, settings

HERE = Path(__file__).absolute().parent
WORDS, CAPTION, ABOVE, NOTES = 90, 45, 24, 120  # of a statement, a caption, above code, of the speaker's notes
LINES, WIDTH = 20, 100  # of code
COPIED = {"sphinx-revealjs": ["dist/reveal.js", "dist/reveal.css", "plugin/notes/notes.js", "revealjs/LICENSE"],
          "sphinx-mathjax-offline": ["tex-svg-full.js"]}  # what the decks load, by package
HEADING = re.compile(r"^#{1,6} +(.+?)[ #]*$\n*", re.M)


def tagged(cell):
    """Return whether a cell makes a slide."""
    return "slide" in cell.metadata.get("tags", [])


def words(text):
    """Return the number of words of Markdown; formulas, tables and comments do not count."""
    return len(re.sub(r"(?s)\$\$.*?\$\$|\$[^$]+\$|<!--.*?-->|^\|[^\n]*$|\]\([^)]*\)", " ", text, flags=re.M).split())


def cut(text, limit):
    """Return the sentences at the beginning of `text` that have at most `limit` words, at least one."""
    ends = [m.end() for m in re.finditer(r"[.!?][)*]*(?=\s)|\n(?=\n)|\Z", text)]
    whole = [text[:end].rstrip() for end in ends if not text[:end].count("$") % 2 and not text[:end].count("`") % 2]
    return [piece for k, piece in enumerate(whole) if not k or words(piece) <= limit][-1] if whole else text


def to_site(text, name):
    """Return Markdown whose links to notebooks, and within this one, lead to the pages of the site."""
    text = re.sub(r"\]\(([\w/-]+)\.ipynb", r"](../site/\1.html", text)
    return re.sub(r"\]\(#", f"](../site/{name}.html#", text)


def undocumented(code):
    """Return `code` without its docstrings."""
    lines = code.split("\n")
    try:
        nodes = [node for node in ast.walk(ast.parse(code)) if hasattr(node, "name") and hasattr(node, "body")]
    except SyntaxError as error:
        raise SiteError(f"the code of a slide must be plain Python: {error.msg}") from None
    for node in sorted(nodes, key=lambda node: -node.lineno):
        if not isinstance(node, ast.ExceptHandler) and ast.get_docstring(node) is not None and len(node.body) > 1:
            first, last = node.body[0].lineno - 1, node.body[0].end_lineno
            while not lines[last].strip():
                last += 1
            del lines[first:last]
    return "\n".join(lines).strip()


def printed(cell):
    """Return the plain text that a code cell has printed or displayed."""
    shown = [out.get("text") or out.get("data", {}).get("text/plain", "") for out in cell.outputs
             if out.get("name") != "stderr" and not {"text/html", "text/markdown"} & set(out.get("data", {}))]
    return "".join(shown).strip("\n")


def spoken(cells, k):
    """Return the speaker's notes to cell `k`: the prose after it, or where there is none, before it."""
    after = []
    for cell in cells[k + 1:]:
        if cell.cell_type != "markdown" or tagged(cell):
            break
        after.append(cell.source)
    text = re.split(r"^## ", "\n\n".join(after), maxsplit=1, flags=re.M)[0].strip()
    if not text and k > 1 and cells[k - 1].cell_type == "markdown" and not tagged(cells[k - 1]):
        text = cells[k - 1].source.strip().split("\n\n")[-1]
    text = re.sub(r"<!--.*?-->|</?(?:details|summary)[^>]*>", "", HEADING.sub(r"**\1**\n\n", text), flags=re.S)
    return cut(text.strip(), NOTES)


def introduction(cells, k):
    """Return the bold lead of the paragraph above cell `k`, or None, and its first sentences if short.

    Imports may stand between the two. A paragraph that goes on with the sentence of a formula is none.
    """
    while cells[k - 1].cell_type == "code" and only_imports(cells[k - 1].source):
        k -= 1
    above = cells[k - 1]
    if above.cell_type != "markdown" or tagged(above):
        return None, ""
    *before, paragraph = above.source.strip().split("\n\n")
    if before and before[-1].endswith("$$") and paragraph[0].islower():
        return None, ""
    lead = re.match(r"\*\*(.+?)\.?\*\*\s+(?=\S)", paragraph)
    sentences = cut(paragraph[lead.end() if lead else 0:], ABOVE)
    return lead and lead[1], sentences + "\n\n" if words(sentences) <= ABOVE else ""


def slide(cells, k):
    """Return kind, Markdown and further metadata of the slide that the tagged cell `k` makes."""
    cell = cells[k]
    if cell.cell_type == "markdown":
        if words(cell.source) > WORDS:
            raise SiteError(f"{words(cell.source)} words on a slide; at most {WORDS}, split the cell")
        if not (text := HEADING.sub("", cell.source, count=1).strip()):
            raise SiteError("a slide with a heading only")
        return "statement", text, {}
    found, code = directives(cell.source)
    if "hide" in found:
        raise SiteError("a hidden cell cannot be a slide")
    images = [out["data"]["image/png"] for out in cell.outputs if "image/png" in out.get("data", {})]
    if images:
        alt = alternative(cell, found)  # of a slider the slide has the frame that is shown first
        if len(images) > 1 or not alt:
            raise SiteError("a slide with a figure needs one figure and its '#| fig-alt: ...'")
        below = cells[k + 1].source if cells[k + 1:] and cells[k + 1].cell_type == "markdown" else ""
        caption = re.match(r"\*(?!\*)(.+?)(?<=[^\s*])\*(?=\s|\Z)", below.split("\n\n")[0], re.S)
        if not caption:
            raise SiteError("the figure of a slide needs its caption: the next cell begins with '*...*'")
        image = "data:image/png;base64," + images[0].replace("\n", "")
        return "figure", cut(caption[1], CAPTION), {"image": image, "alt": alt}
    code, output = undocumented(code), printed(cell)
    long = max(map(len, code.split("\n")))
    if code.count("\n") >= LINES or long > WIDTH:
        raise SiteError(f"code of {code.count(chr(10)) + 1} lines, the longest {long} characters, does not "
                        f"fit on a slide; at most {LINES} lines of {WIDTH} characters")
    lead, above = introduction(cells, k)
    text = f"{above}```python\n{code}\n```"
    if output and f"{above}{code}\n{output}".count("\n") <= LINES and max(map(len, output.split("\n"))) <= WIDTH:
        text += f"\n\n```\n{output}\n```"
    return "code", text, {"heading": lead} if lead else {}


def exercises(cells):
    """Return number and title of the exercises, ``[("1.1", "Title"), ...]``."""
    pattern = r"^### Exercise ([\d.]+): (.+?)(?: \(\d+ points?\))?\s*$"
    return [found for c in cells if c.cell_type == "markdown" for found in re.findall(pattern, c.source, re.M)]


def title_and_line(nb):
    """Return the title of a notebook and its one-line description."""
    return re.match(r"# (.+)\s+> (.+(?:\n>.*)*)", nb.cells[0].source).groups()


def deck(nb, name, following=None):
    """Return the slides of the notebook `name` as Markdown cells; `following` is the next (name, title)."""
    slides, heading, faults = [], "", []

    def add(kind, cell, heading, text, **more):
        notes = to_site(spoken(nb.cells, cell), name) if cell is not None else ""
        slides.append(nbformat.v4.new_markdown_cell(to_site(text, name), metadata={"slide": {
            "kind": kind, "cell": cell, "heading": to_site(heading, name), "notes": notes, **more}}))

    title, line = title_and_line(nb)
    add("title", 0, title, f"{line}\n\nThe chapter: [{name}.html](../site/{name}.html)")
    for k, cell in enumerate(nb.cells):
        headings = HEADING.findall(cell.source) if cell.cell_type == "markdown" else []
        try:
            if tagged(cell):
                kind, text, more = slide(nb.cells, k)
                add(kind, k, text=text, **{"heading": (headings or [heading])[0], **more})
        except SiteError as error:
            faults.append(f"{name}.ipynb, cell {k}: {error}")
        heading = (headings or [heading])[-1]
    if faults:
        raise SiteError("\n".join(faults))
    tasks = exercises(nb.cells)
    last = [f"- **{number}** {task}" for number, task in tasks]
    if tasks:
        last += ["", f"They stand at the end of [the chapter](../site/{name}.html#exercises)."]
    last += ["", "Next: [{1}]({0}.html)".format(*following) if following else "[All slides](index.html)"]
    add("last", None, "Exercises" if tasks else "What comes next", "\n".join(last).strip())
    return slides


def write_static(folder):
    """Write what the decks load: reveal.js and MathJax from their packages, and the look."""
    from conf import html_theme_options, pygments_style
    from pygments.formatters import HtmlFormatter

    folder.mkdir(parents=True)
    for package, ends in COPIED.items():
        for file in files(package):
            if file.as_posix().endswith(tuple(ends)):
                (folder / file.name).write_bytes(file.read_binary())
    colours = "".join(f"--{name}: {value}; " for name, value in html_theme_options["light_css_variables"].items())
    css = [f":root {{ {colours}}}", HtmlFormatter(style=pygments_style).get_style_defs(".highlight"),
           (HERE / "slides/slides.css").read_text(encoding="utf-8")]
    (folder / "slides.css").write_text("\n".join(css), encoding="utf-8")
    shutil.copy(HERE / "static/mark.svg", folder)


def build(notebooks=None, out=None, root=ROOT):
    """Build a deck from each of the `notebooks` with tagged cells; return the page that lists them."""
    from nbconvert import SlidesExporter

    notebooks, out = notebooks or root / "nbs", out or root / "_build/slides"
    chapters = {Path(name).stem: nbformat.read(notebooks / name, as_version=4) for _, names in contents(root)
                for name in names if "/" not in name and (notebooks / name).exists()}  # teaching notes have a folder
    chapters = {name: nb for name, nb in chapters.items() if any(map(tagged, nb.cells))}
    if not chapters:
        raise SiteError(f"no cell of the notebooks in {notebooks} has the tag 'slide'")
    titles, faults = {name: title_and_line(nb) for name, nb in chapters.items()}, []

    def select(nb, resources):
        nb.cells = deck(nb, resources["metadata"]["name"], resources["following"])
        return nb, resources

    exporter = SlidesExporter(template_name="slides", extra_template_basedirs=[str(HERE)], exclude_anchor_links=True)
    exporter.register_preprocessor(select, enabled=True)
    shutil.rmtree(out, ignore_errors=True)
    write_static(out / "static")
    for name, after in zip(chapters, [*list(chapters)[1:], None]):
        resources = {"metadata": {"name": name}, "title": titles[name][0],
                     "following": after and (after, titles[after][0])}
        try:
            html = exporter.from_notebook_node(chapters[name], resources)[0]
            (out / f"{name}.html").write_text(html, encoding="utf-8")
        except SiteError as error:
            faults.append(str(error))
    if faults:
        raise SiteError("\n".join(faults))
    sections = [(title, [stem for name in names if (stem := name.removesuffix(".ipynb")) in chapters])
                for title, names in contents(root)]
    page = exporter.environment.get_template("contents.html.j2").render(sections=sections, titles=titles)
    (out / "index.html").write_text(page, encoding="utf-8")
    return out / "index.html"


if __name__ == "__main__":
    try:
        print(f"Slides built: {build(*map(Path, sys.argv[1:3]))}")
    except SiteError as error:
        sys.exit(f"The slides were not built.\n{error}")
