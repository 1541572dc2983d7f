"""Memories of patches, then memories of images: the study, the final runs, small data, peers."""

from __future__ import annotations

from research.patches import main

__all__ = ["main"]
