"""Links from pages to the source: to the repository if it has an address, else the name of the file stands there.

MkDocs calls it as a hook, see mkdocs.yml; its `repo_url` is the address.
"""

from __future__ import annotations

import re
from typing import Any

_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)+src/mnemosphere/([^()\s]+)\)")


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """The page with links that work on the site."""
    place = (config["repo_url"] or "").rstrip("/")
    told = rf"[\1]({place}/blob/main/src/mnemosphere/\2)" if place else r"\1 <small>\2</small>"
    return _LINK.sub(told, markdown)
