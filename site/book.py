"""Print the course as one PDF: ``python site/book.py [page ...]``, all pages where none is named.

The pages of the site follow one another in one document, each on a new sheet, behind a title and a table of contents.
Chromium prints it twice: where a page begins is read from the first PDF, and stands in the contents of the second.
"""

import re
import sys
import time
from html import escape
from pathlib import Path
from posixpath import dirname, join, normpath

import chromium
from build import ROOT, SiteError, build, contents, settings

ADDRESS = re.compile(r'\b(id|href|src|aria-labelledby)="([^"]*)"')

FILL = """numbers => document.querySelectorAll("[data-page]").forEach(
  (place) => { place.textContent = numbers[place.dataset.page]; })"""


def anchor(page, fragment=""):
    """Return what an anchor of a page is called in the book; without one, the page's first line."""
    return "--".join(filter(None, (page.replace("/", "-"), fragment)))


def chapter(site, page, listed, home):
    """Return the text of a page, with the addresses that it has in the book."""
    html = (site / f"{page}.html").read_text(encoding="utf-8")

    def moved(match):
        name, value = match.groups()
        if name in ("id", "aria-labelledby"):
            return f'{name}="{anchor(page, value)}"'
        if re.match(r"[a-z]+:", value):  # of the web, or the data of a picture
            return match[0]
        file, _, fragment = value.partition("#")
        to = normpath(join(dirname(page), file)) if file else f"{page}.html"
        if name == "href" and to.removesuffix(".html") in listed:
            return f'href="#{anchor(to.removesuffix(".html"), fragment)}"'
        return f'{name}="{to}"' if name == "src" else f'href="{home}/{to}{"#" * bool(fragment)}{fragment}"'

    text = ADDRESS.sub(moved, re.search(r"<article[^>]*>(.*)</article>", html, re.S)[1])
    title = re.sub(r'<a class="headerlink".*', "", re.search(r"<h1>(.*?)</h1>", html, re.S)[1])
    return title, f'<section class="chapter" id="{anchor(page)}">{text}</section>'


def document(site, pages, root=ROOT):
    """Return the book as HTML, with empty places in the contents for the numbers of the sheets."""
    ini, chapters, lines = settings(root), [], []
    home = f"{ini['doc_host']}{ini['doc_baseurl']}".rstrip("/")
    for section, names in contents(root):
        stems = [name.removesuffix(".ipynb") for name in names if name.removesuffix(".ipynb") in pages]
        lines += [f"<h2>{escape(section)}</h2>"] if section and stems else []
        for page in stems:
            title, text = chapter(site, page, pages, home)
            chapters.append(text)
            lines.append(f'<p><a href="#{anchor(page)}">{title}</a> <span data-page="{page}"></span></p>')
    front = (f'<section class="title-page"><h1>{escape(ini["title"])}</h1><p>{escape(ini["description"])}</p>'
             f'<p>{escape(ini["author"])}<br>Version {ini["version"]}, {time.strftime("%B %Y")}<br>{home}</p></section>'
             f'<nav class="book-contents"><h1>Contents</h1>{"".join(lines)}</nav>')
    frame = (site / "index.html").read_text(encoding="utf-8")
    frame = re.sub("<title>.*?</title>", f"<title>{escape(ini['title'])}</title>", frame)
    before, after = re.split(r'(?s)(?<=<article role="main" id="furo-main-content">).*(?=</article>)', frame)
    return "".join([before, front, *chapters, after])


def sheets(pdf):
    """Return ``{anchor: number of its sheet}`` of a PDF by Chromium, which leaves these objects readable."""
    order = [int(n) for n in re.findall(rb"\n(\d+) 0 obj\n<</Type /Page\n", pdf)]
    table = re.search(rb"/Dests (\d+) 0 R", pdf)
    names = re.search(rb"\n%s 0 obj\n<<(.*?)>>\nendobj" % table[1], pdf, re.S)[1]
    names = re.sub(rb"#([0-9A-Fa-f]{2})", lambda code: bytes.fromhex(code[1].decode()), names)
    return {name.decode(): order.index(int(n)) + 1 for name, n in re.findall(rb"/(\S*) \[(\d+) 0 R", names)}


def printed(site, pages, out, root=ROOT, browser=None):
    """Print `pages` of the `site` into the file `out`; return on which sheet each begins."""
    if unknown := set(pages) - {name.removesuffix(".ipynb") for _, names in contents(root) for name in names}:
        raise SiteError(f"{', '.join(sorted(unknown))}: not in _quarto.yml")
    if browser is None:
        from playwright.sync_api import sync_playwright

        if not chromium.path():
            raise SiteError(chromium.MISSING)
        with sync_playwright() as playwright:
            return printed(site, pages, out, root, chromium.launch(playwright))
    source = site / "book.html"
    source.write_text(document(site, pages, root), encoding="utf-8")
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        tab = browser.new_page()
        tab.set_default_timeout(0)
        tab.goto(source.as_uri())
        tab.evaluate("window.ready")
        for _ in range(2):
            tab.pdf(path=out, prefer_css_page_size=True, outline=True, tagged=True)
            found = sheets(out.read_bytes())
            numbers = {page: found[anchor(page)] for page in pages}
            tab.evaluate(FILL, numbers)
        tab.close()
    finally:
        source.unlink()
    return numbers


if __name__ == "__main__":
    listed = [name.removesuffix(".ipynb") for _, names in contents() for name in names]
    target = ROOT / "_build/book.pdf"
    try:
        site = build().parent
        print("The pages are built; Chromium draws and prints them.", flush=True)
        printed(site, sys.argv[1:] or listed, target)
        print(f"Printed: {target}")
    except SiteError as error:
        sys.exit(f"The book was not printed.\n{error}")
