"""What a package says about itself that a file cannot: the text of PyPI's page and the addresses of the project.

PyPI has no files beside README.md, so links to such files would break there. Where ZEROPOINT_URL has the address of the
repository (release.yml sets it), they lead there; where it is not known, they are text, and pictures are left out.
scikit-build-core calls this for `readme` and `urls` (pyproject.toml).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PICTURE = re.compile(r"^!\[([^\]]*)\]\((?!https?:)([^)]+)\)\n(?:\n\*[^\n]*\*\n)?\n?", re.MULTILINE)  # and its caption
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)([^)]+)\)")


def readme(text: str, url: str) -> str:
    """README.md with links that work elsewhere.

    Example:
        >>> readme("See [install](docs/install.md).", "")
        'See install.'
        >>> readme("See [install](docs/install.md).", "https://host/owner/name")
        'See [install](https://host/owner/name/blob/main/docs/install.md).'
    """
    if not url:
        return LINK.sub(r"\1", PICTURE.sub("", text))
    text = re.sub(r"!\[([^\]]*)\]\((?!https?:)([^)]+)\)", rf"![\1]({url}/raw/main/\2)", text)
    return LINK.sub(lambda link: f"[{link[1]}]({url}{'' if link[2][0] == '#' else '/blob/main/'}{link[2]})", text)


def urls(url: str) -> dict[str, str]:
    """The addresses that PyPI shows."""
    pages = {"Repository": "", "Documentation": "/blob/main/docs/index.md", "Changelog": "/blob/main/CHANGELOG.md"}
    return {name: url + path for name, path in {**pages, "Issues": "/issues"}.items()} if url else {}


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of [project]."""
    url = os.environ.get("ZEROPOINT_URL", "").rstrip("/")
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    return {"readme": {"content-type": "text/markdown", "text": readme(text, url)}, "urls": urls(url)}
