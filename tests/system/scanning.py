"""Finding, in source code, what could run code that came in a file, or reach where it should not."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MODULES = {
    **dict.fromkeys(
        ("pickle", "_pickle", "cPickle", "dill", "joblib", "shelve", "cloudpickle", "jsonpickle", "marshal"),
        "objects from bytes, which can run code",
    ),
    "torch.distributed.checkpoint": "its metadata are pickled",
    "torch.hub": "code from the network",
    "torch.package": "code from a file",
    "runpy": "runs code",
    "tarfile": "writes outside its folder, whatever the filter",
    **dict.fromkeys(("xml", "lxml", "xmlrpc"), "expands entities; defusedxml does not"),
    **dict.fromkeys(("multiprocessing.connection", "multiprocessing.managers"), "unpickles what a socket sends"),
    "torch.distributed.rpc": "unpickles what a socket sends",
}
"""Modules that are not imported, nor anything below them."""

NAMES = {
    **dict.fromkeys(("torch.load", "torch.save", "torch.jit.load", "numpy.lib.npyio.NpzFile"), "pickles"),
    **dict.fromkeys(("pandas.read_pickle", "pandas.to_pickle", "numpy.core.multiarray._reconstruct"), "pickles"),
    **dict.fromkeys(
        (
            *("yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load", "yaml.safe_load", "yaml.Loader"),
            *("yaml.FullLoader", "yaml.UnsafeLoader", "yaml.CLoader", "yaml.SafeLoader", "yaml.CSafeLoader"),
        ),
        "YAML is read by core/config.py alone",
    ),
    **dict.fromkeys(("eval", "exec", "compile", "__import__"), "runs what it is given"),
    **dict.fromkeys(
        ("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"), "goes through a shell"
    ),
    **dict.fromkeys(("tempfile.mktemp", "os.tempnam"), "a name that somebody else can take first"),
    **dict.fromkeys(("shutil.unpack_archive", "zipfile.ZipFile.extractall"), "unpacks without our rules"),
}
"""Things that are not used, by their full names."""

METHODS = {
    **dict.fromkeys(
        (
            *("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"),
            *("send_object_list", "recv_object_list"),
        ),
        "pickles between ranks",
    ),
    **dict.fromkeys(("extractall", "read_pickle", "to_pickle"), "unpacks or unpickles"),
}
"""Attributes that are not used, whatever they belong to."""

FLAGS = {
    ("shell", True): "goes through a shell",
    ("weights_only", False): "unpickles without restriction",
    ("allow_pickle", True): "unpickles",
    ("trust_remote_code", True): "runs code from a model",
}
"""Arguments by name that are not given these values; a value that is computed counts as forbidden."""

WORDS = {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "unpickles without restriction"}
"""Strings that are not written."""


@dataclass(frozen=True)
class Find:
    """Something forbidden: where, what and why."""

    file: str
    line: int
    what: str
    why: str


def scan(source: str, file: str) -> list[Find]:
    """All that is forbidden in a Python source."""
    tree = ast.parse(source, file)
    aliases = _aliases(tree)
    found = []
    for node in ast.walk(tree):
        found += [Find(file, getattr(node, "lineno", 0), what, why) for what, why in _faults(node, aliases)]
    return found


def scan_files(root: Path, folders: tuple[str, ...]) -> Iterator[Find]:
    """The same of all sources below some folders; hidden ones hold what others wrote."""
    for path in python_files(root, folders):
        yield from scan(path.read_text(encoding="utf-8"), path.relative_to(root).as_posix())


def python_files(root: Path, folders: tuple[str, ...]) -> list[Path]:
    """The Python files below some folders of a project, hidden ones left out."""
    files = (path for folder in folders for path in (root / folder).rglob("*.py"))
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(root).parts))


def _aliases(tree: ast.AST) -> dict[str, str]:
    """What the names that are imported stand for."""
    aliases: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                aliases[each.asname or each.name.partition(".")[0]] = (
                    each.name if each.asname else each.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            for each in node.names:
                aliases[each.asname or each.name] = f"{node.module}.{each.name}"
    return aliases


def _faults(node: ast.AST, aliases: dict[str, str]) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from _imported(node)
    elif isinstance(node, ast.Name | ast.Attribute):
        name = _full_name(node, aliases)
        if name in NAMES:
            yield name, NAMES[name]
        elif name is not None and (module := _forbidden_module(name)):
            yield name, MODULES[module]
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            yield node.attr, METHODS[node.attr]
    elif isinstance(node, ast.Call):
        yield from _called(node, aliases)
    elif isinstance(node, ast.Constant) and node.value in WORDS:
        yield str(node.value), WORDS[str(node.value)]


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    names = [each.name for each in node.names]
    for name in [f"{node.module}.{name}" for name in names] if isinstance(node, ast.ImportFrom) else names:
        if module := _forbidden_module(name):
            yield name, MODULES[module]
        elif name in NAMES:
            yield name, NAMES[name]
        elif name.rpartition(".")[2] in METHODS:
            yield name, METHODS[name.rpartition(".")[2]]


def _forbidden_module(name: str) -> str | None:
    parts = name.split(".")
    return next((joined for end in range(len(parts)) if (joined := ".".join(parts[: end + 1])) in MODULES), None)


def _full_name(node: ast.expr, aliases: dict[str, str]) -> str | None:
    """`np.load` as numpy.load; None for what is no chain of names."""
    if isinstance(node, ast.Name):
        return aliases.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and (before := _full_name(node.value, aliases)) is not None:
        return f"{before}.{node.attr}"
    return None


def _called(node: ast.Call, aliases: dict[str, str]) -> Iterator[tuple[str, str]]:
    for keyword in node.keywords:
        for (flag, value), why in FLAGS.items():
            is_other = isinstance(keyword.value, ast.Constant) and keyword.value.value is (not value)
            if keyword.arg == flag and not is_other:
                yield f"{flag}=", why
    name = _full_name(node.func, aliases)
    if name == "importlib.import_module" and not (node.args and isinstance(node.args[0], ast.Constant)):
        yield name, "imports what data name"
