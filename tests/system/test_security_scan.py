"""No line of ours unpickles, evaluates, goes through a shell, or reads XML, YAML and archives by the loose readers.

Processes of ours on one machine do pickle to one another, through the standard library's pools: what passes there was
made by this program itself a moment before, over pipes that nobody else can write to. No file and no socket does.
"""

import functools
import re
from pathlib import Path

import pytest

from system.scanning import Find, python_files, scan, scan_files

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "benchmarks", "examples", "docs")

ALLOWED = {
    ("src/seqloom/core/config.py", "yaml.SafeLoader"): "our own reader, which is stricter still, is built on it",
    ("benchmarks/contestants/decode_onmt.py", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"): "a peer reads a checkpoint of its "
    "own that the same benchmark wrote a moment before, in a process and an environment of its own",
    (
        "benchmarks/harness/task_files.py",
        "tarfile",
    ): "recordings of a data set are read in memory, and none is extracted",
    ("benchmarks/harness/task_files.py", "tarfile.open"): "the same",
    ("benchmarks/harness/decoding_onmt.py", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"): "the same: the peer that writes it",
}


@functools.cache
def found() -> list[Find]:
    return list(scan_files(ROOT, FOLDERS))


def test_nothing_forbidden_is_in_the_sources() -> None:
    finds = found()
    others = [
        f"{each.file}:{each.line}: {each.what} ({each.why})" for each in finds if (each.file, each.what) not in ALLOWED
    ]
    assert others == []


def test_each_exception_is_still_there() -> None:
    assert set(ALLOWED) <= {(each.file, each.what) for each in found()}


def test_all_of_the_package_is_looked_at() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in python_files(ROOT, FOLDERS)}
    assert {"src/seqloom/runs/model_dir.py", "src/seqloom/cli/main.py", "benchmarks/run_all.py"} <= files
    assert not any("site-packages" in file for file in files)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import pickle", "pickle"),
        ("import os, pickle as p", "pickle"),
        ("from pickle import loads", "pickle.loads"),
        ("def f():\n    import marshal", "marshal"),
        ("import dill", "dill"),
        ("from joblib import load", "joblib.load"),
        ("import shelve", "shelve"),
        ("import cloudpickle", "cloudpickle"),
        ("import torch\ntorch.load('a.pt')", "torch.load"),
        ("import torch as t\nread = t.load", "torch.load"),
        ("from torch import load as read\nread('a')", "torch.load"),
        ("import torch\ntorch.save({}, 'a')", "torch.save"),
        ("import torch\ntorch.load('a', weights_only=False)", "weights_only="),
        ("f('a', weights_only=is_safe)", "weights_only="),
        ("import numpy as np\nnp.load('a', allow_pickle=True)", "allow_pickle="),
        ("import numpy as np\nnp.load('a', allow_pickle=given)", "allow_pickle="),
        ("import yaml\nyaml.load(text, yaml.Loader)", "yaml.load"),
        ("import yaml\nyaml.safe_load(text)", "yaml.safe_load"),
        ("from yaml import UnsafeLoader", "yaml.UnsafeLoader"),
        ("eval('1')", "eval"),
        ("list(map(exec, lines))", "exec"),
        ("compile(text, 'a', 'exec')", "compile"),
        ("__import__(name)", "__import__"),
        ("import importlib\nimportlib.import_module(name)", "importlib.import_module"),
        ("from importlib import import_module\nimport_module(f'a.{b}')", "importlib.import_module"),
        ("import os\nos.system('ls')", "os.system"),
        ("import subprocess\nsubprocess.run('ls', shell=True)", "shell="),
        ("from subprocess import run\nrun('ls', shell=is_shell)", "shell="),
        ("import tarfile", "tarfile"),
        ("import xml.etree.ElementTree as tree", "xml.etree.ElementTree"),
        ("from lxml import etree", "lxml.etree"),
        ("from torch import distributed\ndistributed.all_gather_object(a, b)", "all_gather_object"),
        ("from torch.distributed import broadcast_object_list", "torch.distributed.broadcast_object_list"),
        ("import torch.distributed.checkpoint as dcp", "torch.distributed.checkpoint"),
        ("from torch.distributed import checkpoint", "torch.distributed.checkpoint"),
        ("import torch\ntorch.distributed.checkpoint.save({})", "torch.distributed.checkpoint.save"),
        ("from multiprocessing.connection import Listener", "multiprocessing.connection.Listener"),
        ("import tempfile\ntempfile.mktemp()", "tempfile.mktemp"),
        ("import zipfile\nzipfile.ZipFile(a).extractall()", "extractall"),
        ("import shutil\nshutil.unpack_archive('a.zip')", "shutil.unpack_archive"),
        ("f(trust_remote_code=True)", "trust_remote_code="),
        ("import os\nos.environ['TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD'] = '1'", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"),
    ],
)
def test_each_forbidden_thing_is_found(source: str, what: str) -> None:
    assert what in {find.what for find in scan(source, "made-up.py")}


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()",
        "import re\nre.compile('a')",
        "import torch\ntorch.compile(model)",
        "import numpy as np\nnp.load('a', allow_pickle=False)\nnp.load('b')",
        "import subprocess\nsubprocess.run(['ls'], shell=False)",
        "import importlib\nimportlib.import_module('onnx')",
        "from defusedxml.ElementTree import DefusedXMLParser",
        "import multiprocessing\nmultiprocessing.get_context('spawn')",
        "from safetensors.torch import load_file",
        "import json\njson.load(file)",
        "'never pickle'",
    ],
)
def test_what_is_harmless_is_not_found(source: str) -> None:
    assert scan(source, "made-up.py") == []


SINKS = re.compile(
    r"\b(innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|Function|srcdoc|setTimeout\(['\"])\b"
)


def test_scripts_of_pages_write_text_and_fetch_nothing() -> None:
    files = [path for kind in ("*.js", "*.html", "*.css") for path in (ROOT / "src").rglob(kind)]
    assert len(files) >= 3
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert SINKS.findall(text) == [], path
        outside = re.findall(r"""(?:src|href|url|import|fetch)\s*[=(]?\s*["'(]?\s*(?:https?:)?//[^\s"')]+""", text)
        assert outside == [], path
    assert SINKS.search("node.innerHTML = text")
