"""The examples of docs/extending.md: run as an outside package would, and applied to a copy of the package."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

TOP = Path(__file__).parents[2]
EXAMPLES = TOP / "examples" / "extending"
CHANGE = re.compile(r"```diff\n--- (?P<file>\S+)\n(?P<lines>.*?)```", re.DOTALL)


@pytest.fixture
def example() -> Callable[[str], ModuleType]:
    """Import a file of examples/extending by its name, from outside the package."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"extending_{name}", EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module

    return load


def _besides_byte_code(folder: str, names: list[str]) -> list[str]:
    """What is not copied: metadata of the installation, and of a cache all but finished byte code."""
    if Path(folder).name == "__pycache__":
        return [name for name in names if not name.endswith(f".{sys.implementation.cache_tag}.pyc")]
    return [name for name in names if name.endswith(".egg-info")]


@pytest.fixture
def contribute(tmp_path: Path) -> Callable[..., str]:
    """Copy the package, move an example into it, apply the change that its section shows, and run a script there."""

    def run(name: str, *, section: str, place: str, script: str) -> str:
        copy = tmp_path / "copy"
        shutil.copytree(TOP / "src", copy / "src", ignore=_besides_byte_code)
        shutil.copy(EXAMPLES / f"{name}.py", copy / place)
        changes = changes_of(section)
        assert changes, f"section {section!r} of docs/extending.md shows no change"
        for file, removed, added in changes:
            path = copy / file
            before = path.read_text(encoding="utf-8")
            for old, new in zip(removed, added, strict=True):
                assert before.count(f"{old}\n") == 1, f"{file} has not one line {old!r}"
                before = before.replace(f"{old}\n", f"{new}\n")
            path.write_text(before, encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(copy / "src"), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def changes_of(section: str) -> list[tuple[str, list[str], list[str]]]:
    """The diff blocks of a section of docs/extending.md: file, lines removed, and what replaces each of them.

    Every removed line is followed by one or more added lines.
    """
    page = (TOP / "docs" / "extending.md").read_text(encoding="utf-8")
    body = page.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    found = []
    for block in CHANGE.finditer(body):
        removed: list[str] = []
        added: list[str] = []
        for line in block["lines"].splitlines():
            if line.startswith("-"):
                removed.append(line[1:])
                added.append("")
            elif line.startswith("+"):
                added[-1] = f"{added[-1]}\n{line[1:]}" if added[-1] else line[1:]
        found.append((block["file"], removed, added))
    return found
