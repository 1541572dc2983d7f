"""Images: windows of them, and the fitted encoder of patches."""
