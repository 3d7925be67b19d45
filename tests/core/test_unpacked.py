"""Temporary folders: gone with the program, however it ends."""

import os
import subprocess
import sys
from pathlib import Path

CODE = """
from pathlib import Path
from seqloom.core.archive import temporary_folder
print(temporary_folder(Path("run"), version=1, make=Path.mkdir).parent.name, flush=True)
input()
"""


def start(temporary: Path) -> "tuple[subprocess.Popen[str], str]":
    """A process that has made a temporary folder and waits, and the name of the folder."""
    environment = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [sys.executable, "-c", CODE], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_a_folder_that_a_killed_process_left_is_removed_by_the_next_and_one_in_use_is_kept(tmp_path: Path) -> None:
    (tmp_path / "seqloom-foreign").mkdir()
    (alive, used), (killed, left) = start(tmp_path), start(tmp_path)
    killed.kill()
    killed.communicate()
    assert {path.name for path in tmp_path.iterdir()} == {"seqloom-foreign", used, left}
    last, new = start(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"seqloom-foreign", used, new}
    for process in (alive, last):
        process.communicate("\n")
    assert [path.name for path in tmp_path.iterdir()] == ["seqloom-foreign"]
