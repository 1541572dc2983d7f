"""One browser for all tests of pages, and small models to write pages of."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import mnemosphere as mn
from export.browser import Browser, find_chromium
from mnemosphere.estimators.editing import from_parameters
