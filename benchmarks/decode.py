"""Translation speed compared with CTranslate2 on the same trained Transformer, and with OpenNMT-py.

    python benchmarks/decode.py --model run/model [--quick] [--rounds 9] [--lines 1000] [--threads 2]

The model (or SEQLOOM_MODEL) is a Transformer that was trained on Multi30k, whose test set of 2016 is translated
(SEQLOOM_DATA names the folder of the data). CTranslate2 gets the same weights by `seqloom export`, and as `int8 and
map` the same shortlists. Each contestant runs in its best layout, one process with all threads or a process per thread,
and in turns with the others. Ours goes from text to text, CTranslate2 from tokens to tokens. A line alone is measured
by itself, as the median of twenty lines that are translated one after another by one process.

OpenNMT-py cannot load such a model: it gets one of the same size with random weights and decodes 30 symbols of each
line, as ours then does; its environment is $PEERS_HOME/onmt, and without it is left out. Recurrent models are compared
in the same way, in eight bits too, and with the shortlists that the model's lexicon gives for the lines. The last lines
claim ratios of sentences per second; the exit code is 1 if one of them misses its goal.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from harness.decoding import Entry, Team, best_entry, decoding_table, layouts, outputs, race, start_team
from harness.decoding_onmt import onmt_peer
from harness.ending import Outcome, measure_and_exit
from harness.peers import peer_python
from harness.processes import all_running
from harness.progress import say
from harness.ratios import FEWEST_PAIRS, Claim, claim
from harness.sizes import LSTM_512, RecurrentSize, Size
from multi30k_scores import multi30k_bleu
from seqloom.apps.export import export
from seqloom.apps.lexicon import FILE, FREQUENT, fit_lexicon
from seqloom.classical.lexicon import Lexicon
from seqloom.core.errors import UsageError
from seqloom.core.files import read_lines
from seqloom.core.symbols import END, RESERVED
from seqloom.interop.ctranslate2 import unique_tokens
from seqloom.models.transformer import TransformerConfig
from seqloom.runs.loading import LoadedModel, find_model, load

SCRIPTS = Path(__file__).resolve().parent / "contestants"
CTRANSLATE2 = ("ctranslate2==4.8.4",)
TRANSLATIONS = 50
LENGTH = 30
BATCHES = (1024, 2048, 4096)
"""Tokens in a batch, of which each contestant gets what suits it."""
FLOAT_GOAL, FASTEST_GOAL, ONMT_GOAL, RECURRENT_GOAL = 0.75, 1.1, 1.5, 2.0
LINE_GOAL = 0.45
"""The least share of CTranslate2's speed for a line alone."""
BLEU_GOAL = 0.2


@dataclass(frozen=True)
class Task:
    """The model and the text to translate."""

    loaded: LoadedModel
    model: Path
    """A copy of the model with a lexicon."""
    lines: list[str]
    references: list[str]
    folder: Path
    """For temporary files."""

    @property
    def ids(self) -> list[list[int]]:
        return self.loaded.tokenizers.source.encode_many(self.lines)

    def pieces(self, side: str) -> list[str]:
        """The tokens of CTranslate2 in the order of ids."""
        tokenizer = self.loaded.tokenizers.source if side == "source" else self.loaded.tokenizers.target
        return unique_tokens([tokenizer.piece(number) for number in range(tokenizer.size)])


def prepare(given: argparse.Namespace, folder: Path) -> Task:
    """The model with a lexicon, in a folder of our own, and the lines."""
    if not given.model:
        raise UsageError("name a Transformer trained on Multi30k: --model run/model, or SEQLOOM_MODEL=run/model")
    data = Path(os.environ.get("SEQLOOM_DATA", "")) / "multi30k"
    if not data.is_dir():
        raise UsageError(f"{data} is not a folder; set SEQLOOM_DATA to the folder with the data sets")
    model = Path(shutil.copytree(find_model(Path(given.model)), folder / "model"))
    loaded = load(model)
    sides = loaded.card.source, loaded.card.target
    if not (model / FILE).exists():
        say("fitting a lexicon on the training text")
        fit_lexicon(model, [data / f"train.{side}.gz" for side in sides], threads=given.threads)
    lines, references = (list(read_lines(data / f"test_2016_flickr.{side}.gz"))[: given.lines] for side in sides)
    (folder / "lines").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return Task(loaded, model, lines, references, folder)


def our_teams(task: Task, given: argparse.Namespace) -> list[Team]:
    command = [sys.executable, SCRIPTS / "decode_ours.py", "--model", task.model, "--source", task.folder / "lines"]
    return [
        start_team("seqloom", each, command=[*command, "--beam", str(given.beam)])
        for each in layouts(given.threads, given.processes)
    ]


def ctranslate2_teams(task: Task, given: argparse.Namespace) -> list[Team]:
    """Export by ours with the library of the peer's environment; then its processes."""
    python = Path(given.ctranslate2) if given.ctranslate2 else peer_python("ctranslate2", CTRANSLATE2)
    folder = task.folder / "ctranslate2"
    place = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    ).stdout
    sys.path.append(place.strip())  # last, so that all else stays ours
    export(task.model, "ctranslate2", out=folder)
    write_map(task, folder / "vmap.txt")
    pieces = task.pieces("source")
    tokens = [[*(pieces[id] for id in ids), pieces[END]] for ids in task.ids]
    (task.folder / "tokens").write_text(json.dumps(tokens), encoding="utf-8")
    command = [python, SCRIPTS / "decode_ct2.py", "--model", folder, "--tokens", task.folder / "tokens"]
    command += ["--beam", str(given.beam)]
    return [start_team("CTranslate2", each, command=command) for each in layouts(given.threads, given.processes)]


def write_map(task: Task, path: Path) -> None:
    """Our shortlists as its vocabulary map: what follows a source token, and first what is always offered."""
    lexicon, source, target = Lexicon.load(task.model / FILE), task.pieces("source"), task.pieces("target")
    always = [*range(len(RESERVED)), *lexicon.frequent[:FREQUENT].tolist()]
    lines = ["\t" + " ".join(target[id] for id in always)]
    for id, token in enumerate(source):
        best = [target[each] for each, _ in lexicon.best(id, count=TRANSLATIONS)]
        if best:
            lines.append(f"{token}\t{' '.join(best)}")
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def compare_ctranslate2(task: Task, given: argparse.Namespace) -> tuple[list[Claim], bool]:
    """Both with the same weights; the claims, and whether our fastest mode is as good as float32."""
    ours, theirs = our_teams(task, given), ctranslate2_teams(task, given)
    lines = len(task.lines)
    with all_running([member for team in (*ours, *theirs) for member in team.members]):
        entries = {
            title: best_entry(title, ours, [f"{mode} {tokens}" for tokens in BATCHES], lines=lines)
            for title, mode in (
                ("seqloom float32", "float32"),
                ("seqloom int8", "int8"),
                ("seqloom shortlist", "shortlist"),
                ("seqloom int8 and shortlist", "fastest"),
            )
        }
        for title, mode in (("float32", "float32"), ("int8", "int8"), ("int8 and map", "int8map")):
            commands = [f"{mode} {tokens}" for tokens in BATCHES]
            entries[f"CTranslate2 {title}"] = best_entry(f"CTranslate2 {title}", theirs, commands, lines=lines)
        race(list(entries.values()), rounds=given.rounds, what=f"{lines:,} lines")
        alone = race_lines(ours, theirs, rounds=given.rounds)
        times = {title: f"{1000 / entry.rate:.1f}" for title, entry in alone.items()}
        beside = {title: (f"{bleu(task, entry):.2f}", times.get(title, "")) for title, entry in entries.items()}
    print("\n".join(decoding_table(list(entries.values()), beside)))
    fastest = max(("seqloom shortlist", "seqloom int8 and shortlist"), key=lambda title: entries[title].rate)
    lost = float(beside["seqloom float32"][0]) - float(beside[fastest][0])
    print(f"\nBLEU lost by {fastest}: {lost:.2f} (goal: at most {BLEU_GOAL})\n")
    rates = {title: entry.rates for title, entry in entries.items()}
    return [
        claim(
            rates["seqloom float32"],
            rates["CTranslate2 float32"],
            goal=FLOAT_GOAL,
            about="float32 decoding vs CTranslate2 float32",
        ),
        claim(rates[fastest], rates["CTranslate2 int8"], goal=FASTEST_GOAL, about=f"{fastest} vs CTranslate2 int8"),
        *(
            claim(alone[own].rates, alone[peer].rates, goal=LINE_GOAL, about=f"a line alone, {own} vs {peer}")
            for own, peer in (
                ("seqloom float32", "CTranslate2 float32"),
                ("seqloom int8 and shortlist", "CTranslate2 int8"),
            )
        ),
    ], lost <= BLEU_GOAL


def bleu(task: Task, entry: Entry) -> float:
    """Of what an entry translates."""
    if entry.team.name == "seqloom":
        texts = outputs(entry, str)
    else:
        ids = {piece: id for id, piece in enumerate(task.pieces("target"))}
        target = task.loaded.tokenizers.target
        texts = outputs(entry, lambda tokens: target.decode([ids[token] for token in tokens]))
    language = task.loaded.card.target or "en"
    return multi30k_bleu(texts, task.references, language=language).value


def race_lines(ours: Sequence[Team], theirs: Sequence[Team], *, rounds: int) -> dict[str, Entry]:
    """Lines that come alone, in turns: one process of each contestant, in the layout where it is faster."""
    entries = {}
    for title, teams, command in (
        ("seqloom float32", ours, "latency 0"),
        ("CTranslate2 float32", theirs, "latency 0"),
        ("seqloom int8 and shortlist", ours, "latency 1"),
        ("CTranslate2 int8", theirs, "latency 1"),
    ):
        single = [Team(team.name, team.layout, team.members[:1]) for team in teams]
        entries[title] = best_entry(f"{title}, a line alone", single, [command], lines=1)
    race(list(entries.values()), rounds=rounds, what="a line alone")
    return entries


# --- OpenNMT-py ------------------------------------------------------------------------------------------------------


def compare_onmt(task: Task, given: argparse.Namespace, size: Size | RecurrentSize, *, goal: float) -> list[Claim]:
    """Random weights of the same size, outputs of the same length."""
    symbols = max(task.loaded.tokenizers.source.size, task.loaded.tokenizers.target.size)
    some = [ids for ids in task.ids if ids][: given.forced_lines]
    try:
        peer = onmt_peer(size, some, symbols=symbols, folder=task.folder / size.name)
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"OpenNMT-py, {size.name}: not measured, it could not be prepared ({error})\n")
        return []
    if peer is None:
        print(f"OpenNMT-py, {size.name}: not measured: $PEERS_HOME/onmt not found\n")
        return []
    common = ["--beam", str(given.beam)]
    if isinstance(size, RecurrentSize):
        sizes = [str(number) for number in (symbols, size.width, size.embedding_width, size.layers)]
        own = ["--recurrent", *sizes, "--lexicon", task.model / FILE, "--source", peer.source, *common]
    else:
        lines = task.folder / "forced"
        lines.write_text("".join(f"{line}\n" for line in task.lines[: given.forced_lines]), encoding="utf-8")
        own = ["--model", task.model, "--source", lines, *common]
    theirs = ["--checkpoint", peer.checkpoint, "--source", peer.source, *common, "--length", str(LENGTH)]
    with ExitStack() as stack:
        teams: list[list[Team]] = []
        for name, command in (
            ("seqloom", [sys.executable, SCRIPTS / "decode_ours.py", *own]),
            ("OpenNMT-py", [peer.python, SCRIPTS / "decode_onmt.py", *theirs]),
        ):
            teams.append([start_team(name, each, command=command) for each in layouts(given.threads, given.processes)])
            stack.enter_context(all_running([member for team in teams[-1] for member in team.members]))
        own_teams, their_teams = teams
        forced = f"forced {LENGTH}"
        entries = [best_entry(f"seqloom float32, {size.name}", own_teams, [forced], lines=len(some))]
        if isinstance(size, RecurrentSize):
            for title, mode in (("int8", "forced8"), ("int8 and shortlist", "listed8")):
                commands = [f"{mode} {LENGTH}"]
                entries.append(best_entry(f"seqloom {title}, {size.name}", own_teams, commands, lines=len(some)))
        theirs_best = best_entry(f"OpenNMT-py, {size.name}", their_teams, [forced], lines=len(some))
        race([*entries, theirs_best], rounds=given.rounds, what=f"{size.name}, {len(some):,} lines of {LENGTH} symbols")
    print("\n".join(decoding_table([*entries, theirs_best], {})) + "\n")
    best = max(entries, key=lambda entry: entry.rate)
    about = f"decoding by {best.title} vs OpenNMT-py, {LENGTH} symbols a line"
    return [claim(best.rates, theirs_best.rates, goal=goal, about=about)]


def size_of(loaded: LoadedModel) -> Size:
    """The size of the model, passed to the peers."""
    model = loaded.config.model
    if not isinstance(model, TransformerConfig) or model.encoder_layers != model.decoder_layers:
        raise UsageError("the model must be a Transformer with as many layers in the encoder as in the decoder")
    return Size(
        name=f"transformer-{model.width}",
        goal=ONMT_GOAL,
        width=model.width,
        feed_forward=model.feed_forward,
        layers=model.encoder_layers,
        heads=model.heads,
        dropout_rate=0.1,
        peers_drop_inside=False,
        learning_rate=1e-3,
    )


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default=os.environ.get("SEQLOOM_MODEL"), help="a Transformer trained on Multi30k")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and lines: ends within five minutes")
    parser.add_argument("--rounds", type=int, help=f"at least {FEWEST_PAIRS} (default 9)")
    parser.add_argument("--lines", type=int, help="lines of the test set (default 1000)")
    parser.add_argument("--threads", type=int, default=2, help="threads of all processes of a contestant (default 2)")
    parser.add_argument("--processes", type=int, help="one layout alone: so many processes share the threads")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--ctranslate2", help="an interpreter that has ctranslate2, in place of a new environment")
    parser.add_argument("--only", choices=["ctranslate2", "onmt"], help="one peer alone")
    given = parser.parse_args()
    given.rounds = given.rounds or (FEWEST_PAIRS if given.quick else 9)
    given.lines = given.lines or (200 if given.quick else 1000)
    given.forced_lines = min(given.lines, 64 if given.quick else 200)
    if given.rounds < FEWEST_PAIRS:
        parser.error(f"--rounds {given.rounds} is too few for an interval; give {FEWEST_PAIRS} or more")
    return given


def compare(given: argparse.Namespace, folder: Path) -> tuple[list[Claim], bool]:
    task = prepare(given, folder)
    claims: list[Claim] = []
    is_good = True
    if given.only != "onmt":
        claims, is_good = compare_ctranslate2(task, given)
    if given.only != "ctranslate2":
        claims += compare_onmt(task, given, size_of(task.loaded), goal=ONMT_GOAL)
        claims += compare_onmt(task, given, LSTM_512, goal=RECURRENT_GOAL)
    return claims, is_good


def main() -> None:
    given = read_arguments()
    measure_and_exit(lambda folder: Outcome(*compare(given, folder)))


if __name__ == "__main__":
    main()
