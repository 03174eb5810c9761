"""The built documentation: whole, reachable, and without a request to another server."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
import yaml

pytest.importorskip("zensical", reason="needs the extra docs")
ROOT = Path(__file__).parent.parent
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "video": "src"}


class Page(HTMLParser):
    """What a page loads, links to and can be linked to by."""

    def __init__(self, path: Path):
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.without_alt: list[str] = []
        self.equations = 0
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes) -> None:
        values = dict(attributes)
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag in LOADING and values.get(LOADING[tag]) and values.get("rel") not in ("canonical", "prev", "next"):
            self.loads.append(values[LOADING[tag]])
        if tag == "img" and not values.get("alt"):
            self.without_alt.append(values.get("src", ""))
        self.equations += tag == "math"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """Built strictly: a link to a missing page or heading in Markdown ends the build."""
    project = tmp_path_factory.mktemp("project")
    for name in ("mkdocs.yml", "README.md"):
        shutil.copy(ROOT / name, project)
    shutil.copytree(ROOT / "docs", project / "docs")
    shutil.copytree(ROOT / "src", project / "src", ignore=shutil.ignore_patterns("__pycache__", "*.safetensors"))
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return project / "site"


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_nothing_is_loaded_from_another_server(site, pages) -> None:
    for path, page in pages.items():
        assert not [address for address in page.loads if urlsplit(address).netloc], path
    for sheet in site.rglob("*.css"):
        used = re.findall(r"(?:url\(|@import\s*)[\"']?(https?:)?//", sheet.read_text())
        assert not used, sheet


def test_links_and_files_exist(site, pages) -> None:
    """Those that strict building does not see, such as links in HTML, files and generated headings."""
    for path, page in pages.items():
        for address in [*page.links, *page.loads]:
            if urlsplit(address).scheme or urlsplit(address).netloc:
                continue
            where, anchor = urldefrag(unquote(address))
            target = (path.parent / where).resolve() if where else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_relative_to(site.resolve()) or target == path, f"{path}: {address} is outside the site"
            assert target.exists(), f"{path}: {address}"
            if anchor and target.suffix == ".html":
                known = pages.get(target) or pages.get(site / target.relative_to(site.resolve()))
                assert known is not None
                assert anchor in known.anchors or anchor.startswith("__"), f"{path}: {address}"


def test_every_page_is_in_the_navigation() -> None:
    """The builder does not complain of a page that no menu leads to."""
    text = re.sub(r"!!\S+", "", (ROOT / "mkdocs.yml").read_text())
    listed = set(re.findall(r"[\w./-]+\.md", str(yaml.safe_load(text)["nav"])))
    assert listed == {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}


def test_figures_have_a_description(pages) -> None:
    for path, page in pages.items():
        assert not page.without_alt, path


def test_equations_are_rendered_at_build_time(site, pages) -> None:
    for source in (ROOT / "docs").rglob("*.md"):
        written = len(re.findall(r"^\$\$$", source.read_text(), re.MULTILINE)) // 2
        name = source.relative_to(ROOT / "docs").with_suffix("")
        built = site / (name.parent if name.name == "index" else name) / "index.html"
        assert pages[built].equations >= written, built
        assert "$$" not in built.read_text(), built
