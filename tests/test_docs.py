"""The documentation does what it says: commands run, files and tests that it names exist, references are current.

Every line of every fenced `sh` block is carried out, page by page, in a folder that holds the files which the pages
speak of. Two things are not as on a user's machine, and they are both here: the files are small (`_write_corpus`), and
training is short and its model tiny (`TINY`). `make`, `pip` and scripts are not started; their targets and files must
exist. `torchrun` takes long to start, so its lines are run by a test marked slow.

`seqloom serve` is started on a free port and ended with the page. `curl` commands go to it, and the answers that a page
shows must have the form of those that come; ids in them are replaced by the real ones where later commands use them.

Each `seqloom` runs in a process of its own, forked from one that has everything imported (`_serve`): importing torch
thirty times would take longer than all the rest.
"""

import gzip
import importlib.util
import io
import json
import math
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import traceback
import wave
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from PIL import Image

from curl import curl
from live_server import running_server
from published_folders import write_opus_folder
from seqloom.core.config import describe_fields
from seqloom.core.declaration import DataFacts
from seqloom.models.cell_options import TEXT_SIZES
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.models.transformer import TransformerConfig
from seqloom.runs.sizing import TEXT_LADDER, choose_sizes
from seqloom.serve.settings import ServerSettings
from tagged_text import write_conllu

HOUSE = Path(__file__).parent.parent
EXTENDING = HOUSE / "docs" / "extending.md"
"""Its examples are run by tests/extending; it names files that are yet to be contributed."""
PAGES = [HOUSE / "README.md", HOUSE / "CONTRIBUTING.md", *sorted({*(HOUSE / "docs").rglob("*.md")} - {EXTENDING})]
MAP = HOUSE / "docs" / "map.md"

SHORT = ["training.steps=3", "training.save_every=1", "training.validate_every=2", "training.average=2"]
TINY = [
    *("model.width=16", "model.encoder_layers=1", "model.decoder_layers=1", "text.size=60"),
    *(*SHORT, "task.dev_lines=2", "evaluation.resamples=40"),
]
"""What is added to the end of every `seqloom train`, where it wins over what the page says."""
OTHERS = {
    "rnn_lm": ["model.width=16", "model.layers=1", "text.size=60", "task.rows=2", "task.length=5", *SHORT],
    "gpt": ["model.width=16", "model.layers=1", "text.size=60", "task.rows=2", "task.length=5", *SHORT],
    "elmo": ["model.width=16", "text.size=60", *SHORT],
    "bert": ["model.width=16", "model.heads=2", "text.size=60", "evaluation.resamples=40", *SHORT],
    "vae": ["model.width=16", "text.size=60", *SHORT],
    "ctc": ["model.width=16", "model.layers=1", "evaluation.resamples=40", *SHORT],
    "listener": ["model.width=16", "model.layers=1", "evaluation.resamples=40", *SHORT],
    "captioner": [
        *("model.width=16", "model.encoder_layers=1", "model.decoder_layers=1", "evaluation.resamples=40", *SHORT)
    ],
    "vit": ["model.width=16", "model.layers=1", "evaluation.resamples=40", *SHORT],
    "classifier": ["model.width=16", "model.buckets=4096", "evaluation.resamples=40", *SHORT],
    "tagger": ["model.width=16", "model.layers=1", "evaluation.resamples=40", *SHORT],
    "swin": ["model.width=16", "evaluation.resamples=40", *SHORT],
    "forecaster": SHORT,
    "ngram": ["text.size=60"],
    "markov": ["text.size=60"],
    "hmm": ["text.size=60", "model.states=4", "model.iterations=3"],
    "word2vec": ["text.size=60", "model.width=8", "model.threads=1"],
    "dictionary": ["evaluation.resamples=40"],
    "aligner": [],
    "extraction": [],
    "channel": ["evaluation.resamples=40"],
    "phrases": ["evaluation.resamples=40", "model.tuning.rounds=2", "model.tuning.nbest=5"],
}
"""The same for kinds of models that do not translate, or that are fitted."""
RECOGNISED = {"train.conllu": "tagger", "reviews.tsv": "classifier", "load.csv": "forecaster"}
RECOGNISED |= {"digits.tsv": "ctc", "scenes.tsv": "captioner", "photos": "vit"}
"""The kind of model that is chosen for a file, unless the command names one."""
PUBLISHED = [*SHORT, "task.dev_lines=2", "evaluation.resamples=40"]
"""The same where a published folder decides the sizes."""
FEW = ["--count", "3"]
"""The same for `seqloom selfcheck`."""
MORE = ["training.steps=5"]
"""The same for `seqloom train --resume`."""

ADDRESS = "http://127.0.0.1:5000"
"""Where a server of the documentation listens."""
SERVED = {
    "runs/en-de": "train --train corpus.en --train corpus.de --dev dev.en,dev.de",
    "runs/demo": "train --train corpus.en --train corpus.de --dev dev.en,dev.de",
    "runs/ngram": "train model.kind=ngram --train text.txt",
    "runs/words": "train model.kind=word2vec --train text.txt",
}
"""Runs that are served, and how they are made."""

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_ANCHOR = re.compile(r"\]\(((?!\w+://)[^)#\s]*)#([^)]+)\)")
_FOLDERS = "src|tests|docs|examples|benchmarks|tools"
_PATH = re.compile(rf"`((?:{_FOLDERS})/[\w./-]+)(?:::(\w+))?`")


def _blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a page in one language."""
    return [body for name, body in _FENCE.findall(page.read_text(encoding="utf-8")) if name == language]


def _commands(page: Path) -> list[str]:
    """The lines of the `sh` blocks, continued ones joined, comments left out."""
    text = "\n".join(_blocks(page, "sh")).replace("\\\n", " ")
    return [line for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]


# --- commands --------------------------------------------------------------------------------------------------------


def _write_corpus(folder: Path) -> None:
    """All files that the pages speak of: a few dozen pairs, plain, compressed and as a table."""
    subjects = [("der Hund", "the dog"), ("die Katze", "the cat"), ("ein Mann", "a man"), ("eine Frau", "a woman")]
    verbs = [("schläft", "sleeps"), ("geht", "walks"), ("lacht", "laughs"), ("liest", "reads")]
    pairs = [(f"{s[0]} {v[0]} {n}.", f"{s[1]} {v[1]} {n}.") for n in (1, 2, 3) for s in subjects for v in verbs]
    german, english = ("".join(f"{pair[side]}\n" for pair in pairs) for side in (0, 1))
    for name, lines in (("corpus", None), ("domain", None), ("dev", 4), ("test", 4), ("news", 4)):
        for language, text in (("de", german), ("en", english)):
            kept = "".join(text.splitlines(keepends=True)[:lines])
            (folder / f"{name}.{language}").write_text(kept, encoding="utf-8")
    (folder / "corpus.de-en.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), encoding="utf-8")
    units = "".join(
        f'<tu><tuv xml:lang="de"><seg>{a}</seg></tuv><tuv xml:lang="en"><seg>{b}</seg></tuv></tu>' for a, b in pairs
    )
    memory = f'<tmx version="1.4"><header srclang="de"/><body>{units}</body></tmx>'
    (folder / "memory.tmx").write_text(memory, encoding="utf-8")
    catalogue = 'msgid ""\nmsgstr "Language: en\\n"\n\nmsgid "der Hund %s"\nmsgstr ""\n'
    (folder / "messages.po").write_text(catalogue, encoding="utf-8")
    (folder / "words.tsv").write_text("Hund\tdog\tnoun\ngeht\twalks\tverb\n", encoding="utf-8")
    phones = {"a": "AA", "b": "B", "k": "K", "i": "IY", "t": "T", "s": "S"}
    spelled = [first + second + last for first in "bkts" for second in "ai" for last in "bkts"]
    rows = [f"{word}\t{' '.join(phones[letter] for letter in word)}\n" for word in spelled]
    (folder / "phones.tsv").write_text("".join([*rows, "bit\tB AA T\n"]), encoding="utf-8")
    parses = [f"{a} {b} {c}\t( ( {a} {b} ) {c} )\n" for a in ("the", "a") for b in "cdefgh" for c in ("sat", "ran")]
    (folder / "parses.tsv").write_text("".join(parses), encoding="utf-8")
    papers = [
        {
            "source": [f"Much is said of {noun} {n}.", f"We show that {noun} {n} sleeps."],
            "target": [f"{noun} {n} sleeps."],
        }
        for noun in ("dogs", "cats", "birds")
        for n in range(8)
    ]
    (folder / "papers.jsonl").write_text("".join(json.dumps(each) + "\n" for each in papers), encoding="utf-8")
    (folder / "new.jsonl").write_text('{"source": ["It rained.", "We show how."]}\n', encoding="utf-8")
    (folder / "articles.txt").write_text("It rained. We show how. It ended.\n", encoding="utf-8")
    (folder / "rules.yaml").write_text("- from: [verb, noun]\n  to: [noun, verb]\n", encoding="utf-8")
    (folder / "page.html").write_text("<p>der <b>Hund</b> schläft 1.</p>", encoding="utf-8")
    (folder / "film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nder Hund\nschläft.\n", encoding="utf-8")
    with zipfile.ZipFile(folder / "report.docx", "w") as archive:
        space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
        body = "<w:p><w:r><w:t>die Katze liest 2.</w:t></w:r></w:p>"
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{space}"><w:body>{body}</w:body></w:document>')
    for name, lines in (("text", None), ("train", None), ("dev", 8), ("test", 8)):
        (folder / f"{name}.txt").write_text("".join(english.splitlines(keepends=True)[:lines]), encoding="utf-8")
    tones = {"pos": ("delightful", "fine"), "neg": ("dull", "poor")}
    reviews = [f"a {word} film {n}\t{tone}\n" for n in range(9) for tone, words in tones.items() for word in words]
    (folder / "reviews.tsv").write_text("".join(reviews), encoding="utf-8")
    questions = "".join(
        f"who {verb} {n} ?\tthe {word} {verb} {n} .\n" for n in range(9) for word, verb in tones.values()
    )
    (folder / "questions.tsv").write_text(questions, encoding="utf-8")
    speeches = [
        f"{'ANNA' if n % 2 else 'BEN'}:\nWhere is the {word} {n}?\n" for n in range(30) for word in ("cat", "dog")
    ]
    (folder / "play.txt").write_text("\n".join(speeches), encoding="utf-8")
    for seed, (name, count) in enumerate((("train", 40), ("dev", 10), ("new", 3))):
        write_conllu(folder / f"{name}.conllu", count=count, seed=seed)
    hours = [f"2024-01-{1 + n // 24:02} {n % 24:02}:00,{50 + 10 * math.sin(n / 4):.3f},{n % 24}" for n in range(400)]
    (folder / "load.csv").write_text("\n".join(["time,north,south", *hours]) + "\n", encoding="utf-8")
    for number in range(40):
        home = folder / "photos" / ("cats", "dogs")[number % 2]
        home.mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 5 * number).save(home / f"{number}.png")
    shutil.copy(home / "39.png", folder / "cat.png")
    shutil.copytree(folder / "photos" / "cats", folder / "scenes")
    shutil.copy(home / "39.png", folder / "scene.png")
    rows = "".join(f"scenes/{at}.png\ta {'dark' if at < 20 else 'light'} square\n" for at in range(0, 40, 2))
    (folder / "scenes.tsv").write_text(f"image\tcaption\n{rows}", encoding="utf-8")
    (folder / "digits").mkdir()
    for number in range(20):
        with wave.open(str(folder / "digits" / f"{number}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", "NONE"))
            file.writeframes(random.Random(number).randbytes(8000))
    table = "".join(f"digits/{number}.wav\t{'one two' if number % 2 else 'two'}\n" for number in range(20))
    (folder / "digits.tsv").write_text(table, encoding="utf-8")
    captions = folder / "data" / "multi30k"
    captions.mkdir(parents=True)
    for language, text in (("de", german), ("en", english)):
        for path in (folder / "corpus", *(captions / name for name in ("train", "val", "test_2016_flickr"))):
            path.with_name(f"{path.name}.{language}.gz").write_bytes(gzip.compress(text.encode()))
    (folder / "tatoeba").mkdir()
    for name, lines in (("train", None), ("dev", 8), ("test", 8)):
        for language, text in (("zh", german), ("en", english)):
            kept = "".join(text.splitlines(keepends=True)[:lines])
            (folder / "tatoeba" / f"{name}.{language}").write_text(kept, encoding="utf-8")
    for name in ("examples", "benchmarks"):
        (folder / name).symlink_to(HOUSE / name)
    write_opus_folder(folder / "opus-mt-en-de")


@dataclass(frozen=True)
class Program:
    """The console program, each call in a process of its own."""

    server: "subprocess.Popen[str]"

    def __call__(self, words: list[str], text: str = "", *, code: str = "") -> str:
        """Carry out a command (or a Python program) in the working directory, with this standard input; its output."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        folder = Path.cwd()
        files = {name: str(folder / f".{name}") for name in ("stdin", "stdout", "stderr")}
        Path(files["stdin"]).write_text(text, encoding="utf-8")
        self.server.stdin.write(json.dumps({"words": words, "code": code, "folder": str(folder), **files}) + "\n")
        self.server.stdin.flush()
        status = int(self.server.stdout.readline())
        error = Path(files["stderr"]).read_text(encoding="utf-8")
        assert status == 0, f"{code or shlex.join(['seqloom', *words])} ended with {status}: {error}"
        return Path(files["stdout"]).read_text(encoding="utf-8")


def _serve() -> None:
    """Read calls from standard input, a line each; carry each out in a forked process; answer with its exit status."""
    import filelock  # noqa: F401
    import numba
    import sacrebleu  # noqa: F401
    import torch
    from matplotlib.figure import Figure

    import seqloom.apps.demo  # it imports every config class
    import seqloom.cli.main  # noqa: F401

    # These bring in a great deal more the first time they are used.
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])
    Figure().savefig(io.BytesIO())
    numba.njit(lambda number: number)(1)
    for line in sys.stdin:
        call = json.loads(line)
        child = os.fork()
        if child == 0:
            _answer(call)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _answer(call: dict[str, str]) -> None:
    """Carry out one call with its own standard streams, and end."""
    from seqloom.cli.main import run

    os.chdir(call["folder"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY
        os.dup2(os.open(call[name], flags), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  (the old one has read ahead)
    sys.argv = ["seqloom", *call["words"]]
    status = 0
    try:
        exec(compile(call["code"], "documentation", "exec"), {}) if call["code"] else run()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:
        traceback.print_exc()
        status = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)  # tidying up all that was imported takes longer than most commands


@pytest.fixture(scope="session")
def seqloom() -> Iterator[Program]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as server:  # type: ignore[call-overload]
        yield Program(server)
        server.stdin.close()


@pytest.fixture(scope="session")
def playground(tmp_path_factory: pytest.TempPathFactory, seqloom: Program) -> Path:
    """A folder with the files, and the runs that pages speak of as trained before."""
    folder = tmp_path_factory.mktemp("docs")
    _write_corpus(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("first", "second"):
            words = f"train --train corpus.de --train corpus.en --dev dev.de,dev.en --out runs/{name}".split()
            seqloom([*words, *TINY])
    return folder


@pytest.fixture
def desk(playground: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: Path) -> Path:
    """A copy of the playground for one page, without the runs that the page makes itself."""
    folder = tmp_path / "desk"
    shutil.copytree(playground, folder, symlinks=True)
    for made in re.findall(r"--out (runs/\S+)", "\n".join(_commands(page))):
        shutil.rmtree(folder / made, ignore_errors=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SEQLOOM_DATA", str(folder / "data"))
    return folder


_ANSWERED = re.compile(r"^```sh\n(?:[^`]*\n)?([^`\n]+)\n```\n+```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class PageRunner:
    """Carries out the commands of a page, with the server that it starts."""

    seqloom: Program
    page: Path
    stack: ExitStack
    """Ends the server."""
    address: str = ""
    names: dict[str, str] = field(default_factory=dict)
    """Ids that the page shows, and those that this run has in their place."""

    def run_line(self, line: str) -> None:
        """Carry out a line, and compare its answer with the one that the page shows."""
        real = line
        for shown, name in {**self.names, ADDRESS: self.address}.items():
            real = real.replace(shown, name)
        for commands, out in _pipelines(real):
            text = ""
            for words in commands:
                text = self._run(words, text)
            if out is not None:
                out.write_text(text, encoding="utf-8")
        shown_answers = dict(_ANSWERED.findall(self.page.read_text(encoding="utf-8")))
        if line in shown_answers:
            self._compare(json.loads(shown_answers[line]), json.loads(text), line)

    def _run(self, words: list[str], text: str) -> str:
        match words:
            case ["seqloom", "serve", *rest]:
                self.address = self._start(rest)
                return ""
            case ["curl", *rest]:
                assert self.address, f"no server is started before {shlex.join(words)}"
                return curl(rest)
            case ["python", "-c", code]:
                return self.seqloom([], code=code)
            case _:
                return _run(words, text, self.seqloom)

    def _start(self, words: list[str]) -> str:
        assert not self.address, "a page starts one server"
        for name, how in SERVED.items():
            if any(word.endswith(name) for word in words) and not Path(name).exists():
                made = [*how.split(), "--out", name]
                self.seqloom([*made, *_small(made)])
        return self.stack.enter_context(running_server(words, Path("server"))).address

    def _compare(self, shown: Any, real: Any, line: str) -> None:
        """The same members and kinds of values; of lists, the first items."""
        kinds = [float if isinstance(value, int | float) else type(value) for value in (shown, real)]
        assert kinds[0] is kinds[1], f"{line} answers {real}, the page shows {shown}"
        if isinstance(shown, dict):
            assert list(shown) == list(real), line
            for name, value in shown.items():
                self._compare(value, real[name], line)
                if name.endswith(("_id", "_key", "Url")):
                    self.names[value] = real[name]
        elif isinstance(shown, list) and shown and real:
            self._compare(shown[0], real[0], line)


def _pipelines(line: str) -> Iterator[tuple[list[list[str]], Path | None]]:
    """The commands of a line that pass text to one another, and the file it goes to at the end."""
    lexer = shlex.shlex(os.path.expandvars(line), posix=True, punctuation_chars="|>&;")
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    out: Path | None = None
    words = iter(lexer)
    for word in words:
        if word == "|":
            commands.append([])
        elif word == ">":
            out = Path(next(words))
        elif set(word) <= set("|>&;"):
            raise AssertionError(f"{word} in a command of the documentation: teach this test to read it")
        else:
            commands[-1] += sorted(map(str, Path().glob(word))) if "*" in word else [word]
    yield commands, out


def _run(words: list[str], text: str, seqloom: Program) -> str:
    """Carry out one command with this standard input; its standard output."""
    match words:
        case ["echo", *said]:
            return " ".join(said) + "\n"
        case ["make", *targets]:
            known = re.findall(r"^([a-z-]+):", (HOUSE / "Makefile").read_text(), re.MULTILINE)
            assert not {target for target in targets if "=" not in target} - set(known), words
        case ["pip", "install", *_] | ["torchrun", *_]:
            pass
        case ["python", script, *_]:
            assert (HOUSE / script).is_file(), words
        case ["seqloom", "train", *rest]:
            return seqloom([*words[1:], *(MORE if "--resume" in rest else _small(rest))], text)
        case ["seqloom", "distill", *rest]:
            return seqloom(["distill", *rest, *TINY], text)
        case ["seqloom", "selfcheck", *rest]:
            if "--count" in rest:  # an option that takes one value is given once
                at = rest.index("--count")
                rest = [*rest[:at], *rest[at + 2 :]]
            return seqloom(["selfcheck", *rest, *FEW], text)
        case ["seqloom", *rest]:
            return seqloom(rest, text)
        case _:
            raise AssertionError(f"{words[0]} in the documentation: teach this test what to do with it")
    return ""


def _small(words: list[str]) -> list[str]:
    """What makes this training short: by the kind of model, which a setting or a config file names."""
    kinds = [word.removeprefix("model.kind=") for word in words if word.startswith("model.kind=")]
    for word in words:
        if word.endswith(".yaml") and "=" not in word:
            kinds.append(yaml.safe_load(Path(word).read_text(encoding="utf-8")).get("model", {}).get("kind", ""))
    if any(word.startswith("training.start_from=opus") for word in words):
        return PUBLISHED
    if "training.start_from=runs/reviews" in words:  # its kind and sizes are those of that run
        return [*SHORT, "evaluation.resamples=40"]
    kinds += [kind for file, kind in RECOGNISED.items() if not kinds and file in words]
    return next((OTHERS[kind] for kind in kinds if kind in OTHERS), TINY)


# Pages about a model show fragments of Python rather than programs.
WITH_COMMANDS = [
    page for page in PAGES if page.parent.name != "models" and (_commands(page) or _blocks(page, "python"))
]


LONG = frozenset(
    {
        "few-data.md",
        "formats.md",
        "phrases.md",
        "selfcheck.md",
        "training.md",
        "adapting.md",
        "translating.md",
        "pretrained.md",
        "results.md",
        "language-models.md",
        "quickstart.md",
        "sampling.md",
        "alignment.md",
        "ladder.md",
        "serving.md",
    }
)
"""Pages with many commands, of which the README shows the first of each kind."""


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow) if page.name in LONG else page for page in WITH_COMMANDS],
    ids=lambda page: page.relative_to(HOUSE).as_posix(),
)
def test_every_command_of_a_page_runs(page: Path, desk: Path, seqloom: Program) -> None:
    with ExitStack() as stack:
        runner = PageRunner(seqloom, page, stack)
        for line in _commands(page):
            runner.run_line(line)
    for code in _blocks(page, "python"):
        assert seqloom([], code=code), "a program of the documentation shows something"
    for code in _blocks(page, "yaml"):
        (desk / "block.yaml").write_text(code, encoding="utf-8")
        assert "training:" in seqloom(["config", "block.yaml"])


@pytest.mark.slow
@pytest.mark.parametrize("page", [HOUSE / "README.md", HOUSE / "docs" / "distributed.md"], ids=lambda page: page.stem)
def test_torchrun_commands_of_a_page_run(page: Path, desk: Path) -> None:
    lines = [line for line in _commands(page) if line.startswith("torchrun")]
    assert lines
    for line in lines:
        words = shlex.split(line)
        more = MORE if "--resume" in words else TINY
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": programs, "OMP_NUM_THREADS": "1"}
        done = subprocess.run([*words, *more], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "Model  runs/" in done.stdout


def test_the_reader_of_commands_notices_what_it_cannot_read() -> None:
    with pytest.raises(AssertionError, match="teach this test"):
        list(_pipelines("seqloom info a && seqloom info b"))
    assert list(_pipelines("echo 'a b' | seqloom translate m > out.en")) == [
        ([["echo", "a b"], ["seqloom", "translate", "m"]], Path("out.en"))
    ]


# --- what pages name -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(HOUSE).as_posix())
def test_links_and_named_files_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    links = [link for link in _LINK.findall(text) if "://" not in link]
    missing = [link for link in links if not (page.parent / link).exists()]
    pictures = HOUSE / "docs" / "pictures"
    if not pictures.exists():
        missing = [link for link in missing if not (page.parent / link).is_relative_to(pictures)]
    text = re.sub(r"move the file to\s+`[^`]+`", "", text)  # a place for a new file
    missing += [name for name, _ in _PATH.findall(text) if not (HOUSE / name).exists()]
    for link, anchor in _ANCHOR.findall(text):
        goal = page.parent / link if link else page
        if goal.suffix == ".md" and anchor not in _anchors(goal):
            missing.append(f"{link}#{anchor}")
    assert not missing


def _anchors(page: Path) -> set[str]:
    """The names of the headings of a page, as links have them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    titles = [re.sub(r"\]\([^)]*\)|[^\w\s-]", "", title) for title in re.findall(r"^#+ (.*)", text, re.MULTILINE)]
    return {re.sub(r"[-\s]+", "-", title.strip().lower()) for title in titles}


def test_every_row_of_the_map_names_code_and_a_test_that_exist() -> None:
    rows = [line for line in MAP.read_text(encoding="utf-8").splitlines() if line.startswith("| #")]
    assert len(rows) >= 38
    for row in rows:
        named = _PATH.findall(row)
        assert any(name.startswith("src/") for name, _ in named), row
        tests = [(name, test) for name, test in named if name.startswith("tests/")]
        assert tests, row
        for name, test in tests:
            assert test, f"name the test, not only its file: {row}"
            source = (HOUSE / name).read_text(encoding="utf-8")
            assert re.search(rf"^ *def {test}\(", source, re.MULTILINE), f"{name} has no {test}"


def test_the_rows_out_of_scope_are_named() -> None:
    text = MAP.read_text(encoding="utf-8")
    assert all(re.search(rf"^- Row {row}\b.*out of scope", text, re.MULTILINE) for row in (12, 108, 119))


def test_every_page_is_in_the_navigation_and_the_other_way_round() -> None:
    nav = yaml.safe_load((HOUSE / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    pages = {page.relative_to(HOUSE / "docs").as_posix() for page in (HOUSE / "docs").rglob("*.md")}
    assert set(_leaves(nav)) == pages


def _leaves(nav: object) -> Iterator[str]:
    match nav:
        case str():
            yield nav
        case list():
            for part in nav:
                yield from _leaves(part)
        case dict():
            for part in nav.values():
                yield from _leaves(part)


def test_the_reference_of_settings_is_current() -> None:
    spec = importlib.util.spec_from_file_location("generate_reference", HOUSE / "docs" / "generate_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    written = (HOUSE / "docs" / "config.md").read_text(encoding="utf-8")
    assert module.render() == written, "run: python docs/generate_reference.py"


def test_the_limits_of_a_server_are_those_of_the_code() -> None:
    page = (HOUSE / "docs" / "serving.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(serve\.\w+)` \| ([^|]+) \|", page, re.MULTILINE))
    fields = {each.path: each.default for each in describe_fields(ServerSettings) if each.path != "serve"}
    assert list(shown) == list(fields)
    words = {"[]": "none", "null": "none on loopback, else 1,200"}
    for name, default in fields.items():
        assert shown[name].replace(",", "") == words.get(default, default.removesuffix(".0")).replace(",", ""), name


def test_the_metrics_of_a_server_are_those_of_the_code() -> None:
    from seqloom.serve.metrics import Metrics

    page = (HOUSE / "docs" / "serving.md").read_text(encoding="utf-8")
    kinds = re.findall(r"^# TYPE (\w+) ", Metrics().text().decode(), re.MULTILINE)
    assert set(re.findall(r"`(seqloom_\w+)`", page)) == {kind for kind in kinds if not kind.endswith("_created")}


def test_the_ladder_of_sizes_is_that_of_the_code() -> None:
    page = (HOUSE / "docs" / "training.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (more|[\d,]+) \| ([\d,]+) \| (\d+) \| (\d)\+\4 \| ([\d.]+) \| ([\d.]+) \|", page, re.MULTILINE
    )
    assert len(rows) == 6
    for pairs, pieces, width, layers, dropout, rate in rows:
        count = 10_000_000 if pairs == "more" else int(pairs.replace(",", ""))
        facts = DataFacts(count, source_characters=60.0, target_characters=60.0, are_unspaced=False)
        chosen = choose_sizes(facts, TransformerConfig()).defaults
        assert chosen["text"]["size"] == int(pieces.replace(",", ""))
        assert (chosen["model"]["width"], chosen["model"]["encoder_layers"]) == (int(width), int(layers))
        assert chosen["model"]["dropout_rate"] == float(dropout)
        assert chosen["training"]["learning_rate"] == float(rate)


def test_the_sizes_of_recurrent_models_are_those_of_the_code() -> None:
    page = (HOUSE / "docs" / "training.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (more|[\d,]+) \| (\d+) \| (\d+) \| (\d)\+\4 \|$", page, re.MULTILINE)
    assert len(rows) == 6
    for pairs, width, embedding_width, layers in rows:
        count = 10_000_000 if pairs == "more" else int(pairs.replace(",", ""))
        facts = DataFacts(count, source_characters=60.0, target_characters=60.0, are_unspaced=False)
        chosen = choose_sizes(facts, Seq2SeqConfig()).defaults["model"]
        assert (chosen["width"], chosen["embedding_width"]) == (int(width), int(embedding_width))
        assert (chosen["encoder_layers"], chosen["decoder_layers"]) == (int(layers), int(layers))


def test_the_ladder_of_language_models_is_that_of_the_code() -> None:
    page = (HOUSE / "docs" / "training.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| (more|[\d,]+) \| (\d+) \| (\d) \| ([\d.]+) \| ([\d.]+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE
    )
    assert len(rows) == len(TEXT_LADDER)
    for (tokens, *figures), sizes, rung in zip(rows, TEXT_SIZES, TEXT_LADDER, strict=True):
        assert tokens == "more" or int(tokens.replace(",", "")) == rung.tokens == sizes[0]
        named = (*sizes[1:], rung.dropout_rate, rung.learning_rate, rung.rows, rung.passes)
        assert tuple(map(float, figures)) == named


if __name__ == "__main__":
    _serve()
