"""Print the course as one PDF: ``python site/book.py [page ...]``, all pages where none is named.

Each page of the site is a document of its own to Chromium, printed with the number that its first sheet has in the book:
so one page is in memory at a time, and not the course. pypdf joins them behind a title and a table of contents. A link
from page to page is printed as the address ``book:anchor``, and led to its sheet when all are known; the headings become
bookmarks.
"""

import re
import sys
import time
from html import escape, unescape
from pathlib import Path
from posixpath import dirname, join, normpath
from tempfile import TemporaryDirectory
from urllib.parse import unquote

import chromium
from build import ROOT, SiteError, build, contents, settings
from pypdf import PdfReader, PdfWriter
from pypdf.generic import Destination, Fit, NameObject, TextStringObject

ADDRESS = re.compile(r'\b(id|href|src|aria-labelledby)="([^"]*)"')
HEADING = re.compile(r'<h[12][^>]*>((?:(?!</h).)*)<a class="headerlink" href="book:([^"]*)"', re.S)


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
            return f'href="book:{anchor(to.removesuffix(".html"), fragment)}"'
        return f'{name}="{to}"' if name == "src" else f'href="{home}/{to}{"#" * bool(fragment)}{fragment}"'

    text = ADDRESS.sub(moved, re.search(r"<article[^>]*>(.*)</article>", html, re.S)[1])
    return f'<section id="{anchor(page)}">{text}</section>'


def headings(text):
    """Return the titles of a page, its own first, and of its sections: ``[(HTML, anchor), ...]``."""
    return HEADING.findall(text)


def front(titles, numbers, home, root=ROOT):
    """Return the title of the book and the contents, with the `numbers` of sheets that are known."""
    ini, lines = settings(root), []
    for section, names in contents(root):
        pages = [page for page in (name.removesuffix(".ipynb") for name in names) if page in titles]
        lines += [f"<h2>{escape(section)}</h2>"] if section and pages else []
        lines += [f'<p><a href="book:{anchor(page)}">{titles[page]}</a> <span>{numbers.get(page, "")}</span></p>'
                  for page in pages]
    return (f'<section class="title-page"><h1>{escape(ini["title"])}</h1><p>{escape(ini["description"])}</p>'
            f'<p>{escape(ini["author"])}<br>Version {ini["version"]}, {time.strftime("%B %Y")}<br>{home}</p></section>'
            f'<nav class="book-contents"><h1>Contents</h1>{"".join(lines)}</nav>')


def document(site, text, first):
    """Return a part of the book, HTML, that begins on sheet `first`; Chromium keeps the places of what has a link."""
    before, after = re.split(r'(?s)(?<=<article role="main" id="furo-main-content">).*(?=</article>)',
                             (site / "index.html").read_text(encoding="utf-8"))
    links = "".join(f'<a href="#{name}"></a>' for name in re.findall(r'\bid="([^"]*)"', text))
    style = f"<style>@page :first {{ counter-set: page {first} }} footer {{ display: none; }}</style>"
    return f"{before}{style}{text}<div hidden>{links}</div>{after}"


def joined(parts, headed, title):
    """Join PDFs by Chromium into one; ``headed[k]`` are the `headings` of the k-th part, which become bookmarks."""
    book, places = PdfWriter(), {}
    for part in map(PdfReader, parts):
        for name, place in part.named_destinations.items():
            sheet = len(book.pages) + part.get_destination_page_number(place)
            places[name.removeprefix("/")] = sheet, Fit.xyz(place.left, place.top)
        book.append(part, import_outline=False)

    def find(name):  # what is not on paper is found where its page begins
        return places.get(name) or places[name.partition("--")[0]]

    for link in [note.get_object() for sheet in book.pages for note in sheet.get("/Annots", ())]:
        address = unquote(link.get("/A", {}).get("/URI", ""))
        if address.startswith("book:"):
            sheet, fit = find(address.removeprefix("book:"))
            del link["/A"]
            link[NameObject("/Dest")] = Destination(address, book.pages[sheet].indirect_reference, fit).dest_array
    for titles in headed:
        page = None
        for text, name in titles:
            sheet, fit = find(name)
            text = unescape(re.sub("<[^>]*>", "", text))
            mark = book.add_outline_item(title=text, page_number=sheet, parent=page, fit=fit, is_open=False)
            page = page or mark
    book.add_metadata({"/Title": title})
    book.root_object[NameObject("/Lang")] = TextStringObject("en")
    book.page_mode = "/UseOutlines"
    return book


def printed(site, pages, out, root=ROOT, browser=None):
    """Print `pages` of the `site` into the file `out`; return on which sheet each begins."""
    listed = [name.removesuffix(".ipynb") for _, names in contents(root) for name in names]
    if unknown := set(pages) - set(listed):
        raise SiteError(f"{', '.join(sorted(unknown))}: not in _quarto.yml")
    if browser is None:
        from playwright.sync_api import sync_playwright

        if not chromium.path():
            raise SiteError(chromium.MISSING)
        with sync_playwright() as playwright:
            return printed(site, pages, out, root, chromium.launch(playwright))
    ini, source = settings(root), site / "book.html"
    home = f"{ini['doc_host']}{ini['doc_baseurl']}".rstrip("/")
    pages = [page for page in listed if page in pages]
    texts = {page: chapter(site, page, pages, home) for page in pages}
    titles = {page: headings(text)[0][0] for page, text in texts.items()}

    def sheets(text, first, file):
        """Print one part into `file`; return how many sheets it has."""
        source.write_text(document(site, text, first), encoding="utf-8")
        tab = browser.new_page()
        tab.set_default_timeout(0)
        tab.goto(source.as_uri())
        tab.evaluate("window.ready")
        tab.pdf(path=file, prefer_css_page_size=True)
        tab.close()
        return len(re.findall(rb"\n<</Type /Page\n", file.read_bytes()))  # objects of Chromium are readable

    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        parts = [Path(folder, f"{number}.pdf") for number in range(len(pages) + 1)]
        try:
            numbers, first = {}, 1 + sheets(front(titles, {}, home, root), 1, parts[0])
            for page, file in zip(pages, parts[1:]):
                numbers[page] = first
                first += sheets(texts[page], first, file)
            sheets(front(titles, numbers, home, root), 1, parts[0])
        finally:
            source.unlink(missing_ok=True)
        joined(parts, map(headings, texts.values()), ini["title"]).write(out)
    return numbers


if __name__ == "__main__":
    listed = [name.removesuffix(".ipynb") for _, names in contents() for name in names]
    target = ROOT / "_build/book.pdf"
    try:
        site = build().parent
        print("The pages are built; Chromium prints one after the other.", flush=True)
        printed(site, sys.argv[1:] or listed, target)
        print(f"Printed: {target}")
    except SiteError as error:
        sys.exit(f"The book was not printed.\n{error}")
