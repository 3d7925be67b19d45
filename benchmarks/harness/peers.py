"""Peers in environments of their own, made on first use, so that their packages and ours cannot meet."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.progress import say

HOME = Path(__file__).resolve().parent.parent / ".peers"


def peer_python(name: str, requirements: Sequence[str]) -> Path:
    """The interpreter of the environment with these packages; installed by pip as it is configured here."""
    folder = HOME / name
    python, stamp = folder / "bin" / "python", folder / ".ready"
    wanted = "\n".join(requirements)
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        say(f"making an environment for {name} ({', '.join(requirements)}); this takes some minutes, once")
        stamp.unlink(missing_ok=True)
        # What they print must not get among the results.
        subprocess.run([sys.executable, "-m", "venv", folder], check=True, stdout=sys.stderr)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True, stdout=sys.stderr)
        stamp.write_text(wanted, encoding="utf-8")
    return python


def toolkit_program(name: str, program: str) -> Path | None:
    """A command of a toolkit whose environment stands in $PEERS_HOME, or None where there is none."""
    home = os.environ.get("PEERS_HOME")
    if not home:
        return None
    path = Path(home) / name / "bin" / program
    return path if path.is_file() else None
