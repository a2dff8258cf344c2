"""The documentation is true: paths exist, examples run and print what they say."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import io
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import zeropoint
from zeropoint.operators.registry import BY_NAME, unregister

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "zeropoint"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"[\w.\-]+(/[\w.\-]+)*/?")
SUFFIXES = (".py", ".pyi", ".md", ".toml", ".txt", ".h", ".cpp", ".inc", ".sh")


def page_id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def paths_named(page: Path) -> set[str]:
    """Code spans that are nothing but a path: they hold a slash, or end as a file does."""
    prose = FENCED.sub("", page.read_text())
    spans = {span for span in CODE_SPAN.findall(prose) if PATH.fullmatch(span)}
    return {span for span in spans if "/" in span or span.endswith(SUFFIXES)}


def exists(name: str) -> bool:
    """From the root, from the package, or, for a bare file name, anywhere among the sources."""
    if (ROOT / name).exists() or (PACKAGE / name).exists():
        return True
    folders = ("src", "native", "tests", "scripts", "docs")
    return "/" not in name and any(next((ROOT / folder).rglob(name), None) for folder in folders)


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_path_exists(page: Path) -> None:
    missing = sorted(name for name in paths_named(page) if not exists(name))
    assert not missing, f"{page_id(page)} names paths that do not exist: {missing}"


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = [t for t in LINK.findall(page.read_text()) if not t.startswith(("http://", "https://"))]
    for target in targets:
        file, _, anchor = target.partition("#")
        path = (page.parent / file) if file else page
        assert path.exists(), f"{page_id(page)} links to {target}"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in anchors, f"{page_id(page)} links to {target}"


def test_every_page_has_a_place_in_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text()
    missing = [p for p in PAGES if p.is_relative_to(ROOT / "docs") and f" {page_id(p)[5:]}\n" not in nav]
    assert not missing, f"put {[page_id(p) for p in missing]} into the nav of mkdocs.yml"


@pytest.mark.thorough  # `make docs`, which CI runs, is the same
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: `make docs` installs it")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "to_int8" in (tmp_path / "api.html").read_text()


@pytest.mark.parametrize("page", [p for p in PAGES if "```python" in p.read_text()], ids=page_id)
def test_python_blocks_run_and_print_what_they_say(page: Path) -> None:
    """The blocks of a page share a namespace. ``print(...)  # text`` must print the text."""
    text = page.read_text()
    namespace: dict[str, object] = {}
    known = set(BY_NAME)
    try:
        _run_blocks(page, text, namespace)
    finally:
        for name in set(BY_NAME) - known:  # an operator that the page registers
            unregister(name)


def _run_blocks(page: Path, text: str, namespace: dict[str, object]) -> None:
    for block in FENCED.finditer(text):
        language, source = block.groups()
        if language != "python":
            continue
        line = text.count("\n", 0, block.start()) + 2
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            # Blank lines in front: a traceback then shows the line of the page.
            exec(compile("\n" * (line - 1) + source, str(page), "exec"), namespace)
        promised = re.findall(r"^ *print\(.*\)  # (.*)$", source, re.MULTILINE)
        lines = iter(printed.getvalue().splitlines())
        for text_promised in promised:  # in this order, with other lines between them
            assert text_promised in lines, f"{page_id(page)}, block at line {line}: {printed.getvalue()}"


MODULES = ["zeropoint", *(m.name for m in pkgutil.walk_packages(zeropoint.__path__, "zeropoint."))]
# These derive from classes of frameworks that only `make test-engines` installs.
OF_FRAMEWORKS = tuple(
    f"zeropoint.integrations.{name}" for name in ("lightning", "transformers", "transformers_trainer")
)


@pytest.mark.parametrize("name", [m for m in MODULES if not m.endswith("._native") and m not in OF_FRAMEWORKS])
def test_docstring_examples(name: str) -> None:
    module = importlib.import_module(name)
    report = io.StringIO()
    runner = doctest.DocTestRunner(verbose=False)
    for example in doctest.DocTestFinder(exclude_empty=True).find(module, name):
        runner.run(example, out=report.write)
    assert runner.summarize(verbose=False).failed == 0, report.getvalue()
