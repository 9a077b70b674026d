"""Hooks of the site (mkdocs.yml): its navigation, and pages and files that are not in docs/.

docs/home.md is the front of the site. docs/index.md is the one list of all pages; the navigation follows it. Pages in other
directories, such as CONTRIBUTING.md, become pages of the site when a page links to them; files of the code are shown as text,
and links to directories become text.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import site_search
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FRONT = "home.md"
DECISIONS = "contributing/decisions.md"
PROJECT = "project"
SOURCE = "source"

MINISEARCH = ROOT / "tools" / "site" / "node_modules" / "minisearch"
"""What the site searches with; `make docs` installs it."""
UNSEARCHED = ("project/tests/faults/RESULTS.md",)
"""Pages that programs write, with thousands of words that readers do not look for."""

_NAMES: list[site_search.Name] = []
_TITLES: dict[str, str] = {}
_FENCE = re.compile(r"^( *)```.*?^\1``` *$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_LOADED = re.compile(
    r"<(?:script|img|iframe|source|link rel=\"?(?:stylesheet|preconnect))\b[^>]*?(?:src|href)=\"?(https?://[^\s\">]+)"
)
_SHORT_CODE = re.compile(r"<code>([^<]{1,24})</code>")
_WORKER = re.compile(r"assets/javascripts/workers/search\.\w+\.min\.js")
_ROW = re.compile(r"^\| \[(?P<title>[^\]]+)\]\((?P<target>[^)]+)\) \|", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Give the configuration its navigation: a section for each heading of the index, with the pages of its tables."""
    _, *sections = re.split(r"^## ", (DOCS / "index.md").read_text("utf-8"), flags=re.MULTILINE)
    config.nav = [
        {"Home": FRONT},
        *({_title(section): list(_entries(section))} for section in sections),
        {"All pages": "index.md"},
    ]
    return config


def _title(section: str) -> str:
    return section.partition("\n")[0].strip()


def _entries(section: str) -> Iterator[dict[str, object]]:
    """Yield the pages of a section; those under a smaller heading are a group."""
    first, *groups = re.split(r"^### ", section, flags=re.MULTILINE)
    yield from _pages(first)
    for group in groups:
        yield {_title(group): list(_pages(group))}


def _pages(text: str) -> Iterator[dict[str, object]]:
    for row in _ROW.finditer(text):
        place = _place("index.md", row["target"])
        yield {row["title"]: [{row["title"]: place}, *_decisions()] if place == DECISIONS else place}


def _decisions() -> Iterator[dict[str, object]]:
    for title, target in re.findall(r"^- \[([^\]]+)\]\(([^)]+)\)", (DOCS / DECISIONS).read_text("utf-8"), re.MULTILINE):
        yield {title: _place(DECISIONS, target)}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Put the front first, and add the pages and files outside of docs/ that pages link to, and those that these link to."""
    for name, place in ((FRONT, "index.html"), ("index.md", "pages.html")):
        page = files.src_uris[name]
        page.dest_uri = page.url = place
    files.append(File.generated(config, "assets/icon.svg", content=(ROOT / "static" / "icon.svg").read_bytes()))
    for place, file in (("minisearch.js", "dist/umd/index.js"), ("minisearch.LICENSE.txt", "LICENSE.txt")):
        if not (MINISEARCH / file).is_file():
            raise PluginError(f"{MINISEARCH / file} is not there: `make docs` installs it")
        files.append(File.generated(config, f"assets/{place}", content=(MINISEARCH / file).read_bytes()))
    waiting = [(file.src_uri, (DOCS / file.src_uri).read_text("utf-8")) for file in files.documentation_pages()]
    while waiting:
        uri, text = waiting.pop()
        for link in _LINK.finditer(text):
            place, outside = _place(uri, link["target"]), _outside(uri, link["target"])
            if outside is None or not outside.is_file() or files.get_file_from_path(place):
                continue
            content = outside.read_bytes()
            files.append(File.generated(config, place, content=content))
            if outside.suffix == ".md":
                waiting.append((place, content.decode("utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with its links to files outside of docs/ as links into the site, and set its place in the search."""
    if page.file.src_uri == FRONT:
        page.meta |= {"template": "home.html", "hide": ["navigation", "toc", "path"]}
    uri = page.file.src_uri
    boost = site_search.BOOST.get(uri.partition("/")[0])
    if boost is not None or uri in UNSEARCHED:
        page.meta["search"] = {"boost": boost, "exclude": uri in UNSEARCHED}
    page.meta["tags"] = list(site_search.FINDS.get(uri, ()))
    blocks = [block.span() for block in _FENCE.finditer(markdown)]

    def link(found: re.Match[str]) -> str:
        if any(start <= found.start() < end for start, end in blocks) or "://" in found["target"]:
            return found[0]
        if _path(uri, found["target"]).is_dir():
            return found["text"]
        place = os.path.relpath(_place(uri, found["target"]), Path(uri).parent)
        return f"{found['image']}[{found['text']}]({place}{found['anchor'] or ''})"

    return _LINK.sub(link, markdown)


def on_nav(nav: Navigation, *, config: MkDocsConfig, files: Files) -> Navigation:
    """Begin the list of names; those of pages that come first in the navigation are found first."""
    if missing := site_search.FINDS.keys() - files.src_uris.keys():
        raise PluginError(f"docs/site_search.py: no such page: {', '.join(sorted(missing))}")
    _NAMES.clear()
    _TITLES.clear()
    _TITLES.update({page.url: str(page.title) for page in nav.pages})
    return nav


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page with anchors for the names in its tables, and keep these for the search."""
    content, names = site_search.with_rows(html, page.url)
    _NAMES.extend(names)
    return content


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Return the page as readers that listen to it can tell its parts apart."""
    return _named(output)


def on_post_template(output_content: str, *, template_name: str, config: MkDocsConfig) -> str:
    """Return the page of errors, as all others."""
    return _named(output_content) if template_name.endswith(".html") else output_content


def _named(output: str) -> str:
    """The page with names for what the theme leaves without one, or gives the same one twice, without empty headings, and with
    a class for code that is short enough for one line."""
    seen: Counter[str] = Counter()

    def unique(found: re.Match[str]) -> str:
        seen[found[2]] += 1
        return found[0] if seen[found[2]] == 1 else f'{found[1]}{found[2]} ({seen[found[2]]})"'

    named = output.replace(
        'data-md-component="search" role="dialog"', 'data-md-component="search" role="dialog" aria-label="Search"'
    )
    named = _SHORT_CODE.sub(r'<code class="short">\1</code>', named)
    named = _WORKER.sub("assets/search.js", re.sub(r"<th([^>]*)></th>", r"<td\1></td>", named))
    return re.sub(r'(<nav class="md-nav[^"]*"[^>]* aria-label=")([^"]*)"', unique, named)


def on_post_build(config: MkDocsConfig) -> None:
    """Write the index of the search, and refuse a site that loads anything from another host."""
    site_search.write(Path(config.site_dir), _NAMES, _TITLES)
    loaded = [
        f"{file.name}: {address}"
        for file in Path(config.site_dir).rglob("*.html")
        for address in _LOADED.findall(file.read_text("utf-8"))
    ]
    if loaded:
        raise PluginError(f"the site would load from other hosts: {', '.join(sorted(set(loaded)))}")


def _path(uri: str, target: str) -> Path:
    """Return the file of the repository that a link leads to, from the page of the site with this URI."""
    origin = ROOT / uri.removeprefix(f"{PROJECT}/") if uri.startswith(f"{PROJECT}/") else DOCS / uri
    return Path(os.path.normpath(origin.parent / target))


def _outside(uri: str, target: str) -> Path | None:
    """Return what a link leads to if that is not in docs/."""
    path = _path(uri, target)
    return None if "://" in target or path.is_relative_to(DOCS) else path


def _place(uri: str, target: str) -> str:
    """Return where in the site the page or file is that a link leads to."""
    path = _path(uri, target)
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    inside = path.relative_to(ROOT).as_posix()
    return f"{PROJECT}/{inside}" if path.suffix == ".md" else f"{SOURCE}/{inside}.txt"
