"""Where the ids of a run are stored, whatever they are ids of."""

import shutil
from pathlib import Path


def clear_stored(run: Path, name: str) -> None:
    """Make room for new ids: what stands there was found unfit, or is what a killed encoding has left half-made."""
    for folder in (run / "data" / name, *(run / "data").glob(f"{name}.partial-*")):
        shutil.rmtree(folder, ignore_errors=True)
