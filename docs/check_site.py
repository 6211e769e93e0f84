"""Check the built site: links lead somewhere, and no page asks anyone else for anything.

`python docs/check_site.py build/docs` prints what is wrong, and ends with status 1 if anything is.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("link", "href"),
    ("object", "data"),
}
"""What a browser fetches by itself; other links wait for a click."""
PLAIN_LINKS = {"next", "prev", "search", "index", "canonical", "author", "copyright"}


@dataclass
class Page(HTMLParser):
    """What one page refers to and offers."""

    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what the tag says."""
        given = {name: value or "" for name, value in attrs}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        for name in ("href", "src", "data"):
            if name in given and (name != "data" or tag == "object"):
                is_loaded = (tag, name) in LOADING and given.get("rel") not in PLAIN_LINKS
                (self.loaded if is_loaded else self.links).append(given[name])


def find_faults(folder: Path) -> Iterator[str]:
    """Yield a line for each link that leads nowhere and each thing that is fetched from elsewhere."""
    pages = {path: _read(path) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        where = path.relative_to(folder)
        for url in page.loaded:
            if urlsplit(url).netloc:
                yield f"{where} loads {url} from elsewhere"
        for url in [*page.links, *page.loaded]:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc or not (parts.path or parts.fragment):
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{where} links to {url}, which is not there"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{where} links to {url}, but that page has no such place"


def _read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def main() -> int:
    """Print the faults, and return the status of the program."""
    folder = Path(sys.argv[1]).resolve()
    faults = list(find_faults(folder))
    num_pages = len(list(folder.rglob("*.html")))
    print("\n".join([*faults, f"{num_pages} pages, {len(faults)} faults"]))
    return 1 if faults or not num_pages else 0


if __name__ == "__main__":
    sys.exit(main())
