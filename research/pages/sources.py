"""Links from pages to the source: to the repository if it has an address, else the name of the file stands there.
The version, in the footer of every page.

MkDocs calls it as a hook, see mkdocs.yml; its `repo_url` is the address.
"""

from __future__ import annotations

import re
from typing import Any

from mnemosphere import __version__

_LINK = re.compile(r"\[([^\]]+)\]\((?:\.\./)+src/mnemosphere/([^()\s]+)\)")


def on_config(config: Any) -> Any:
    """The configuration with a footer that names the version."""
    config["copyright"] = f"mnemosphere {__version__} · BSD 3-Clause"
    return config


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """The page with links that work on the site."""
    place = (config["repo_url"] or "").rstrip("/")
    told = rf"[\1]({place}/blob/main/src/mnemosphere/\2)" if place else r"\1 <small>\2</small>"
    return _LINK.sub(told, markdown)
