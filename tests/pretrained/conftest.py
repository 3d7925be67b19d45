"""Folders that several tests read."""

from pathlib import Path

import pytest

from published_folders import write_opus_folder


@pytest.fixture(scope="session")
def opus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the shape of OPUS-MT; nothing may be written into it."""
    return write_opus_folder(tmp_path_factory.mktemp("hub") / "opus-mt-en-de")
