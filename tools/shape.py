"""Print the shape of the package: its size, how far an import reaches, how many files a sentence visits.

    python tools/shape.py            print the table
    python tools/shape.py --check    exit 1 if modules import each other in a ring

Imports are counted wherever they are written, inside functions too. Those under `if TYPE_CHECKING` count for rings
only, because they never run. "Imported from" counts the modules that are not empty, the command itself included. A
private function is called once if its name occurs once in its module. The two visits are measured: a tiny translator is
trained for one step and translates one sentence, and every file with a function that took or returned the sentence is
counted, whether as text, ids or tensors.
"""

import argparse
import ast
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

TOP = Path(__file__).parents[1]
SRC = TOP / "src"
PACKAGE = SRC / "seqloom"
SMALL_MODULE = 60
"""Lines."""
MODELS = ("seqloom.models", "seqloom.classical")
BELOW_OR_BESIDE_MODELS = (*MODELS, *(f"seqloom.{name}" for name in ("search", "data", "metrics", "nn", "text", "core")))
MARK = "hippopotamus"
"""A word of the measured sentence, by which its text is recognised."""


@dataclass(frozen=True)
class Module:
    """One file of the package."""

    name: str
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    def imported_names(self, *, for_types: bool = False) -> Iterator[tuple[str, str]]:
        """`from seqloom.a import b` as (b, seqloom.a.b) and `import seqloom.a` as (seqloom.a, seqloom.a)."""
        for node in ast.walk(self.tree) if for_types else _running(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "seqloom":
                yield from ((name.asname or name.name, f"{node.module}.{name.name}") for name in node.names)
            elif isinstance(node, ast.Import):
                yield from ((name.name, name.name) for name in node.names if name.name.split(".")[0] == "seqloom")


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below one, apart from the bodies of `if TYPE_CHECKING`."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            yield from (each for other in child.orelse for each in (other, *_running(other)))
        else:
            yield child
            yield from _running(child)


def read_modules() -> dict[str, Module]:
    """Every module of the package by its dotted name."""
    modules = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")
        modules[name] = Module(name, path, path.read_text(encoding="utf-8"))
    return modules


def import_graph(modules: dict[str, Module], *, for_types: bool = False) -> dict[str, set[str]]:
    """The modules that each module imports; `for_types` counts those under `if TYPE_CHECKING` too."""
    graph: dict[str, set[str]] = {name: set() for name in modules}
    for name, module in modules.items():
        for _, imported in module.imported_names(for_types=for_types):
            found = imported if imported in modules else imported.rpartition(".")[0]
            if found in modules and found != name:
                graph[name].add(found)
    return graph


def reach(graph: dict[str, set[str]], start: str) -> set[str]:
    """All modules that are imported from one, directly or not, with itself."""
    found, to_do = {start}, [start]
    while to_do:
        new = graph[to_do.pop()] - found
        found |= new
        to_do.extend(new)
    return found


def rings(modules: dict[str, Module]) -> list[frozenset[str]]:
    """Groups of modules each of which imports all others, directly or not, for types alone too."""
    graph = import_graph(modules, for_types=True)
    reached = {name: reach(graph, name) for name in graph}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in graph}
    return sorted((group for group in groups if len(group) > 1), key=sorted)


def several_definitions(modules: dict[str, Module]) -> list[str]:
    """Public class names that more than one module defines."""
    counts = Counter(
        node.name
        for module in modules.values()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sorted(name for name, count in counts.items() if count > 1)


def private_calls(modules: dict[str, Module]) -> tuple[int, int]:
    """Private functions that are named once in their module, and all private functions."""
    once = total = 0
    for module in modules.values():
        names = Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Name | ast.Attribute)
        )
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("_") and not node.name.startswith("__"):
                once, total = once + (names[node.name] == 1), total + 1
    return once, total


def model_checks(modules: dict[str, Module]) -> list[str]:
    """Places above `models/` where code asks for the class of a concrete model: `isinstance`, or a class in `case`.

    A protocol that models declare, such as `FitsText`, is not a concrete model.
    """
    places = []
    protocols = {
        node.name
        for module in modules.values()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases)
    }
    for module in modules.values():
        if module.name.startswith(BELOW_OR_BESIDE_MODELS):
            continue
        models = {
            name
            for name, origin in module.imported_names()
            if origin.startswith(MODELS) and name[0].isupper() and name not in protocols
        }
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                asked = node.args[1]
            elif isinstance(node, ast.MatchClass):
                asked = node.cls
            else:
                continue
            if models & {part.id for part in ast.walk(asked) if isinstance(part, ast.Name)}:
                places.append(f"{module.path.relative_to(TOP)}:{node.lineno}")
    return places


def files_of_section(section: str) -> str:
    """The new file, and the files and lines that the diff blocks of a section of docs/extending.md change."""
    page = (TOP / "docs" / "extending.md").read_text(encoding="utf-8")
    if f"\n## {section}\n" not in page:
        return "?"
    body = page.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    changed = re.findall(r"```diff\n--- (\S+)\n(.*?)```", body, re.DOTALL)
    lines = 0
    for _, block in changed:
        removed = {line[1:] for line in block.splitlines() if line.startswith("-")}
        lines += sum(line.startswith("+") and line[1:] not in removed for line in block.splitlines())
    return f"1 new, {len(changed)} changed in {lines} lines"


# --- what one sentence visits ----------------------------------------------------------------------------------------


def visited(action: Callable[[], Any], *, until: tuple[str, str] | None = None) -> set[str]:
    """Files of the package with a function that takes or returns the sentence, as text, ids or tensors.

    They are collected during an action, until the first function `until` (a folder and a name) has returned.
    """
    files: set[str] = set()

    def watch(frame: FrameType, event: str, returned: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(str(PACKAGE)):
            return
        values = frame.f_locals.values() if event == "call" else [returned]
        if code.co_filename not in files and any(carries_sentence(value) for value in values):
            files.add(code.co_filename)
        is_last = until is not None and until[0] in code.co_filename and code.co_name == until[1]
        if event == "return" and is_last:
            sys.setprofile(None)

    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(None)
    return files


def carries_sentence(value: Any, *, depth: int = 3) -> bool:
    """Whether a value holds the sentence: its text, a list of ids, an array or a tensor, perhaps inside something."""
    if isinstance(value, str):
        return MARK in value
    if type(value).__name__ in ("Tensor", "ndarray"):
        return True
    if isinstance(value, list | tuple) and value and depth:
        return type(value[0]) is int or any(carries_sentence(each, depth=depth - 1) for each in value[:4])
    if is_dataclass(value) and depth:
        fields = getattr(value, "__dict__", {})
        return any(carries_sentence(each, depth=depth - 1) for each in fields.values())
    return False


def measure_visits() -> tuple[set[str], set[str]]:
    """Files between text and loss, and between text and translation, of a small Transformer."""
    sys.path.insert(0, str(SRC))
    from seqloom import Translator, train
    from seqloom.core.events import ignore

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = [folder / "text.en", folder / "text.de"]
        texts[0].write_text(f"A small {MARK} stands there.\nThe old man reads a {MARK}.\n" * 20, encoding="utf-8")
        texts[1].write_text(f"Dort steht ein {MARK}.\nDer alte Mann liest ein {MARK}.\n" * 20, encoding="utf-8")
        files = [str(path) for path in texts]
        sizes = ["model.width=16", "model.encoder_layers=1", "model.decoder_layers=1", "model.heads=2", "text.size=60"]
        settings = [*sizes, "training.steps=1", "task.dev_lines=2"]

        def run(out: str) -> None:
            train(None, settings, out=folder / out, train=files, dev=files, listener=ignore)

        run("first")  # imports everything and compiles, so that the second run shows what a sentence needs
        to_loss = visited(lambda: run("second"), until=("/tasks/", "loss"))
        translator = Translator.load(folder / "first" / "model")
        translator.translate([f"A small {MARK}."])
        to_translation = visited(lambda: translator.translate([f"The old man reads a {MARK}."]))
    return to_loss, to_translation


def table(modules: dict[str, Module]) -> list[tuple[str, str]]:
    """Every measure with its value."""
    graph = import_graph(modules)
    filled = {name: module for name, module in modules.items() if module.text.strip()}

    def size(command: str) -> str:
        found = [filled[name] for name in reach(graph, command) if name in filled]
        return f"{len(found)} / {sum(module.lines for module in found):,}"

    folders = Counter(module.path.parent for module in filled.values())
    largest = max((folder for folder in folders if folder.name != "cli"), key=lambda folder: folders[folder])
    once, private = private_calls(modules)
    to_loss, to_translation = measure_visits()
    return [
        ("lines in src", f"{sum(module.lines for module in filled.values()):,}"),
        ("modules that are not empty", str(len(filled))),
        ("files in the largest folder (cli apart)", f"{folders[largest]} ({largest.relative_to(PACKAGE)})"),
        (f"modules of at most {SMALL_MODULE} lines", str(sum(m.lines <= SMALL_MODULE for m in filled.values()))),
        ("imported from the train command", size("seqloom.cli.train")),
        ("imported from the translate command", size("seqloom.cli.translate")),
        ("files one sentence visits: to the loss / to its translation", f"{len(to_loss)} / {len(to_translation)}"),
        ("import rings", str(len(rings(modules)))),
        ("class names with several definitions", str(len(several_definitions(modules)))),
        ("isinstance on concrete models above models/", str(len(model_checks(modules)))),
        (
            "files touched for a new cell / a new model",
            f"{files_of_section('A recurrent cell')} / {files_of_section('A model')}",
        ),
        ("private functions called once", f"{100 * once / private:.0f}% ({once} of {private})"),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Print the shape of the package.")
    parser.add_argument("--check", action="store_true", help="only look for import rings, and exit 1 if there is one")
    parser.add_argument("--names", action="store_true", help="also list the places and names behind some numbers")
    options = parser.parse_args()
    modules = read_modules()
    if options.check:
        found = rings(modules)
        for ring in found:
            print(f"import ring: {', '.join(sorted(ring))}", file=sys.stderr)
        return 1 if found else 0
    rows = table(modules)
    width = max(len(measure) for measure, _ in rows)
    for measure, value in rows:
        print(f"{measure:{width}}  {value}")
    if options.names:
        for ring in rings(modules):
            print("\nimport ring:", ", ".join(sorted(ring)))
        print("\nclass names with several definitions:", ", ".join(several_definitions(modules)))
        print("\nisinstance on concrete models:", *model_checks(modules), sep="\n  ")
        for what, files in zip(("the loss", "the translation"), measure_visits(), strict=True):
            print(f"\nto {what}:", *sorted(file.removeprefix(f"{PACKAGE}/") for file in files), sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
