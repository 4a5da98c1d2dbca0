from pathlib import Path

import checkouts
import pytest


@pytest.fixture
def checkout(tmp_path: Path) -> checkouts.Checkout:
    """A pretended checkout; see checkouts.py."""
    return checkouts.make(tmp_path)
