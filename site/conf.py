"""Sphinx settings of the offline site; ``build.py`` runs Sphinx with them."""

import re
import sys
from importlib.metadata import files
from pathlib import Path

from docutils.nodes import SkipNode
from sphinx.addnodes import desc_signature
from sphinx.util import inspect

HERE = Path(__file__).absolute().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from build import settings  # noqa: E402

ini = settings(HERE.parent)
source = f"{ini['git_url']}/blob/{ini['branch']}"

project, version, release = ini["title"], ini["version"], ini["version"]
author, copyright = ini["author"], ini["copyright"]
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode",
              "sphinx_copybutton", "crossrefs"]

# The notebooks are executed already.
nb_execution_mode = "off"
nb_merge_streams = True
nb_render_markdown_format = "myst"  # what cells display as Markdown: with tables, formulas, links
myst_enable_extensions = ["dollarmath", "smartquotes"]
myst_dmath_double_inline = True
myst_heading_anchors = 4

# The API stands beside its derivation.
autodoc_default_options = {"members": True, "inherited-members": True, "member-order": "bysource",
                           "special-members": "__call__"}
autodoc_typehints = "none"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
inspect.is_singledispatch_function = lambda obj: False  # what is registered has the same signature
default_role = "py:obj"
napoleon_google_docstring = napoleon_use_rtype = napoleon_use_param = False
napoleon_custom_sections = [("Attributes", "params_style")]
add_module_names = False
smartquotes_action = "D"  # dashes in docstrings; MyST sets the quotes of the text
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = html_short_title = ini["title"]
html_favicon = "static/mark.svg"
html_logo = "static/mark.svg"
html_css_files = ["site.css"]
html_static_path = ["static"]
html_copy_source = html_show_sourcelink = False
html_show_search_summary = False  # it fetches pages, which file:// forbids
html_domain_indices = False
html_secnumber_suffix = "\u2002"
pygments_style, pygments_dark_style = "xcode", "github-dark"
copybutton_selector = "div:not(.output) > div.highlight > pre"
copybutton_prompt_text, copybutton_prompt_is_regexp = r">>> |\.\.\. |\$ ", True


def colours(brand, text, muted, page, panel, code, rule):
    """Return furo's variables for these colours."""
    return {"color-brand-primary": brand, "color-brand-content": brand,
            "color-brand-visited": brand, "color-api-name": brand,
            "color-foreground-primary": text, "color-sidebar-link-text--top-level": text,
            "color-foreground-muted": muted, "color-api-pre-name": muted,
            "color-api-keyword": muted, "color-background-primary": page,
            "color-background-secondary": panel, "color-code-background": code,
            "color-rule": rule}


html_theme_options = {
    "top_of_page_buttons": [],
    "light_css_variables": {
        "font-stack": 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", '
                      '"Liberation Sans", Arial, sans-serif',
        "font-stack--monospace": 'ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, '
                                 '"DejaVu Sans Mono", monospace',
        "api-font-size": "0.875rem",
        **colours("#17617b", "#16191b", "#5f6a71", "#ffffff", "#f6f8f9", "#f5f7f8", "#dbe2e6")},
    "dark_css_variables":
        colours("#7cc4dc", "#d7dde1", "#94a1a9", "#14181b", "#191e22", "#1c2226", "#323b41"),
}

# MathJax from the local copy, and for the formulas only; `\tag` needs them handed over as they are.
html_js_files = [
    (None, {"body": r"""window.MathJax = {
        startup: {elements: ['.math']},
        options: {enableMenu: false},
        tex: {inlineMath: [['\\(', '\\)']], displayMath: [['\\[', '\\]']],
              packages: {'[-]': ['noundefined', 'noerrors']}},
        svg: {scale: 0.95},
    };"""}),
    *((script, {"defer": "defer"}) for script in ("mathjax.js", "equations.js", "site.js", "preview.js", "search.js")),
]


def math_renderer(tag, opening, closing):
    """Return the visitor that writes a formula between MathJax's delimiters."""
    def visit(self, node):
        formula = self.encode(node.astext()).strip()
        if node["ids"] == node.parent.get("ids"):  # the box around it, which furo makes, has the anchor
            node["ids"] = []
        self.body.append(f'{self.starttag(node, tag, "", CLASS="math notranslate nohighlight")}'
                         f"{opening}{formula}{closing}</{tag}>")
        raise SkipNode
    return visit, None


def add_source_link(app, page, template, context, doctree):
    """Put the link to GitHub on a page that shows a module's source."""
    if page.startswith("_modules/") and page != "_modules/index":
        path = f"{page.removeprefix('_modules/')}.py"
        context["body"] = (f'<p class="links"><a href="{source}/{path}">{path} on GitHub</a></p>'
                           + context["body"])


def name_folds(app, page, template, context, doctree):
    """Let a fold be announced by what it shows, not by MyST-NB's words for all of them."""
    context["body"] = context.get("body", "").replace('<summary aria-label="Toggle hidden content">', "<summary>")


def keep_punctuation(app, page, template, context, doctree):
    """Keep what follows a formula without a space on its line, an opening bracket before it, and a date whole."""
    formula, mark = r'<span class="math notranslate nohighlight">[^<]*</span>', r"[^\w\s<&][^\s<&]{0,3}"
    context["body"] = re.sub(rf"([(\[“]{formula}(?:{mark})?|{formula}{mark}|(?<=>)\d{{4}}-\d\d-\d\d(?=<))",
                             r'<span class="joined">\1</span>', context.get("body", ""))


def public_base(cls):
    """Return the next class above `cls` that is public in the same module, None where there is none."""
    public = getattr(sys.modules[cls.__module__], "__all__", [])
    return next((base for base in cls.__mro__[1:] if base.__module__ == cls.__module__ and base.__name__ in public), None)


def skip_member(app, what, name, obj, skip, options):
    """Leave out what is documented at a class above on the page, what other libraries' base classes have, and what
    scikit-learn makes for metadata routing.
    """
    there = app.env.current_document
    base = public_base(getattr(sys.modules[there.autodoc_module], there.autodoc_class))
    home = getattr(getattr(obj, "fget", obj), "__module__", None) or ini["lib_name"]
    routing = name.startswith("set_") and name.endswith("_request")
    return True if routing or not home.startswith(ini["lib_name"]) or getattr(base, name, None) is obj else None


def name_base(app, what, name, obj, options, lines):
    """Say where that is."""
    if what == "class" and (base := public_base(obj)):
        first = [*lines, ""].index("")  # below the summary
        lines[first:first] = ["", f"Methods that are not listed are those of `{base.__name__}`."]


def shorten_contents(app, doctree):
    """Leave methods and attributes out of the contents of a page."""
    for signature in doctree.findall(desc_signature):
        if signature.get("class"):
            signature["_toc_name"] = ""


def copy_mathjax(app, exception):
    """Copy MathJax from the package sphinx-mathjax-offline."""
    if exception is None:
        found = next(f for f in files("sphinx-mathjax-offline") if f.name == "tex-svg-full.js")
        (Path(app.outdir) / "_static/mathjax.js").write_bytes(found.read_binary())


def setup(app):
    """Register the above."""
    app.add_html_math_renderer("local", math_renderer("span", r"\(", r"\)"),
                               math_renderer("div", r"\[", r"\]"))
    app.config.html_math_renderer = "local"
    app.connect("html-page-context", add_source_link)
    app.connect("html-page-context", name_folds)
    app.connect("html-page-context", keep_punctuation)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-docstring", name_base)
    app.connect("doctree-read", shorten_contents, priority=400)  # before Sphinx collects them
    app.connect("build-finished", copy_mathjax)
