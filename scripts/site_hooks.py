"""Builds the documentation site from the repository as it is: pages outside docs/, generated pages, links between them.

MkDocs calls these functions; see `hooks` in mkdocs.yml. Links are written as GitHub wants them, relative to the file.
"""

import re
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent

OUTSIDE = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
    "examples/flower.md": "examples/flower/README.md",
    "examples/nvflare.md": "examples/nvflare/README.md",
    "examples/grafana.md": "examples/grafana/README.md",
    "sample.md": "src/snowball/data/sample/README.md",
    "starts.md": "src/snowball/models/starts/README.md",
}
"""Pages of the site that are not in docs/, and their files."""

GENERATED = {
    f"reference/{page}.md": f"build/reference/{page}.md"
    for page in ("defense-settings", "attack-settings", "experiment-settings", "command-line")
}
"""Pages that scripts/write_reference.py writes."""

LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace `folder/*` in the navigation by the pages of that folder."""
    config.nav = expand(config.nav, Path(config.docs_dir))
    return config


def expand(entries: Any, docs: Path) -> Any:
    """Return a part of the navigation with every `folder/*` replaced by its pages, except the folder's README."""
    if isinstance(entries, dict):
        return {title: expand(inside, docs) for title, inside in entries.items()}
    if not isinstance(entries, list):
        return entries
    expanded: list[Any] = []
    for entry in entries:
        if isinstance(entry, str) and entry.endswith("/*"):
            pages = sorted(page for page in docs.glob(f"{entry[:-1]}*.md") if page.name != "README.md")
            expanded += [page.relative_to(docs).as_posix() for page in pages]
        else:
            expanded.append(expand(entry, docs))
    return expanded


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/, and the files that they show or link to."""
    for uri, path in {**OUTSIDE, **GENERATED}.items():
        if not (ROOT / path).is_file():
            raise PluginError(f"{path} is missing: build the site with `make docs`")
        files.append(File.generated(config, uri, content=(ROOT / path).read_text(encoding="utf-8")))
    for path in sorted({path for page in files.documentation_pages() for path in find_outside_files(page)}):
        files.append(File.generated(config, path, content=(ROOT / path).read_bytes()))
    return files


def find_outside_files(page: File) -> set[str]:
    """Return the files outside docs/, other than pages, that a page links to."""
    links = (resolve(page.src_uri, target) for _, target, _ in LINK.findall(page.content_string))
    return {path for path in links if (ROOT / path).is_file() and to_uri(path) == path}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links that lead through the repository lead through the site; a folder has no page, so its text stays."""

    def rewrite(match: re.Match[str]) -> str:
        text, target, anchor = match.groups()
        path = resolve(page.file.src_uri, target)
        if (ROOT / path).is_dir() and not (ROOT / path / "README.md").exists():
            return f"{text} (`{path}`)"
        path = f"{path}/README.md" if (ROOT / path).is_dir() else path
        return f"[{text}]({relpath(to_uri(path), PurePosixPath(page.file.src_uri).parent)}{anchor or ''})"

    return LINK.sub(rewrite, markdown)


def resolve(uri: str, target: str) -> str:
    """Return the path in the repository that a link of a page leads to."""
    source = {**OUTSIDE, **{uri: f"docs/{uri}" for uri in GENERATED}}.get(uri, f"docs/{uri}")
    return normpath(PurePosixPath(source).parent / target)


def to_uri(path: str) -> str:
    """Return where a file of the repository is in the site."""
    pages = {file: uri for uri, file in OUTSIDE.items()}
    return pages.get(path, path.removeprefix("docs/"))
