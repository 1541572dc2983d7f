"""Links from pages to the source: to the repository if it has an address, else only the name is left.

MkDocs calls it as a hook, see mkdocs.yml; its `repo_url` is the address.
"""

from __future__ import annotations

import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\(\.\./(src/[^()\s]+)\)")


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """The page with links that work on the site."""
    place = (config["repo_url"] or "").rstrip("/")
    return _LINK.sub(rf"[\1]({place}/blob/main/\2)" if place else r"\1", markdown)
