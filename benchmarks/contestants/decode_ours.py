"""Translation by ours. Commands: `float32 T`, `int8 T`, `shortlist T` and `fastest T` in batches of T tokens, and
`forced N` for N symbols of each line.

Answers {"seconds": …, "outputs": [[number, text], …]} for its share of the lines; `latency N` answers {"seconds": …},
the median time of a line by itself, in float32 (N = 0) or the fastest mode. Text goes in and comes out. With
`--recurrent` there is no model: one with random weights is built, and only `forced N` is known, `forced8 N`,
the same in eight bits, and `listed8 N`, which scores the symbols of the shortlists of `--lexicon` alone.
"""

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Int
from serving import Line
from torch import Tensor

from seqloom import Translator
from seqloom.apps.lexicon import offered_symbols, shortlist_of
from seqloom.classical.lexicon import Lexicon
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.core.symbols import END
from seqloom.models.seq2seq import Seq2Seq, Seq2SeqConfig
from seqloom.nn.embeddings import Symbols
from seqloom.nn.fast.int8 import with_int8
from seqloom.search.decode import decode
from seqloom.search.settings import SearchConfig
from seqloom.version import __version__

MODES: dict[str, dict[str, Any]] = {
    "float32": {},
    "int8": {"precision": "int8"},
    "shortlist": {"shortlist": 50},
    "fastest": {"precision": "int8", "shortlist": 50},
}
AT_ONCE = 64
"""Sentences in a batch of forced length, as the peer has them."""


@dataclass(frozen=True)
class NeverEnding:
    """A stepper that does not come to an end by itself: every output has the length of the limit."""

    stepper: Stepper

    @property
    def begin(self) -> int:
        return self.stepper.begin

    @property
    def end(self) -> int:
        return self.stepper.end

    def start(self, source: Source) -> State:
        return self.stepper.start(source)

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        step = self.stepper.step(state, last)
        if step.symbols is None:
            step.log_probs[:, self.stepper.end] = float("-inf")
        else:
            step.log_probs[step.symbols == self.stepper.end] = float("-inf")
        return step


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path)
    parser.add_argument("--recurrent", type=int, nargs=4, metavar=("SYMBOLS", "WIDTH", "EMBEDDING", "LAYERS"))
    parser.add_argument("--lexicon", type=Path, help="where there is no model: for shortlists")
    parser.add_argument("--source", type=Path, required=True, help="lines of text, or of ids where there is no model")
    parser.add_argument("--beam", type=int, required=True)
    parser.add_argument("--share", type=int, nargs=2, required=True)
    parser.add_argument("--threads", type=int, required=True)
    given = parser.parse_args()
    line = Line()
    torch.set_num_threads(given.threads)
    every = given.source.read_text(encoding="utf-8").split("\n")[:-1]
    number, processes = given.share
    mine = dict(list(enumerate(every))[number::processes])
    if given.recurrent:
        serve_forced(line, recurrent_steppers(given.lexicon, *given.recurrent), mine, beam=given.beam)
    else:
        serve(line, Translator.load(given.model), mine, beam=given.beam)


def serve(line: Line, translator: Translator, mine: dict[int, str], *, beam: int) -> None:
    line.say({"version": __version__})
    settings = {
        mode: SearchConfig.model_validate({**translator.config.search.model_dump(), "beam": beam, **changes})
        for mode, changes in MODES.items()
    }
    for name, count in line.commands():
        if name == "latency":
            mode = settings["fastest" if count else "float32"]
            line.say({"seconds": latency(translator, list(mine.values())[:20], mode)})
        elif name == "forced":
            begin = time.perf_counter()
            ids = [[*each, END] for each in translator.loaded.tokenizers.source.encode_many(list(mine.values()))]
            stepper = translator.loaded.model.stepper()  # type: ignore[operator]
            force(stepper, ids, beam=beam, length=count)
            line.say({"seconds": time.perf_counter() - begin})
        else:
            mode = settings[name].model_copy(update={"tokens_per_batch": count})
            begin = time.perf_counter()
            texts = translator.translate(mine.values(), search=mode)
            seconds = time.perf_counter() - begin
            line.say({"seconds": seconds, "outputs": list(zip(mine, texts, strict=True))})


def serve_forced(line: Line, steppers: dict[str, Stepper], mine: dict[int, str], *, beam: int) -> None:
    line.say({"version": __version__})
    ids = [[*map(int, each.split()), END] for each in mine.values()]
    for name, count in line.commands():
        begin = time.perf_counter()
        force(steppers[name], ids, beam=beam, length=count)
        line.say({"seconds": time.perf_counter() - begin})


def latency(translator: Translator, lines: list[str], settings: SearchConfig) -> float:
    """Seconds for a line that comes alone."""
    times = []
    for each in lines:
        begin = time.perf_counter()
        translator.translate([each], search=settings)
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def recurrent_steppers(
    lexicon: Path, symbols: int, width: int, embedding_width: int, layers: int
) -> dict[str, Stepper]:
    config = Seq2SeqConfig(
        width=width, embedding_width=embedding_width, encoder_layers=layers, decoder_layers=layers, tying="none"
    )
    model = config.build(Symbols(symbols, symbols, is_shared=True), seed=1).eval()
    rounded = cast("Seq2Seq", with_int8(model))
    lists = shortlist_of(Lexicon.load(lexicon), MODES["fastest"]["shortlist"])

    def listed(source: Source) -> Int[Tensor, "sentences offered"]:
        return offered_symbols(lists, source, required=[()] * len(source.lengths))

    return {
        "forced": model.stepper(),
        "forced8": rounded.stepper(),
        "listed8": rounded.stepper(shortlist=listed),
    }


@torch.inference_mode()
def force(stepper: Stepper, sentences: list[list[int]], *, beam: int, length: int) -> None:
    """Decode so many symbols of each sentence, in batches of sentences of similar length."""
    settings = SearchConfig(beam=beam, length_factor=0.0, length_constant=length)
    ordered = sorted(sentences, key=len)
    for begin in range(0, len(ordered), AT_ONCE):
        some = ordered[begin : begin + AT_ONCE]
        ids = torch.zeros(len(some), len(some[-1]), dtype=torch.long)
        for row, sentence in enumerate(some):
            ids[row, : len(sentence)] = torch.tensor(sentence)
        source = Source(ids, torch.tensor([len(sentence) for sentence in some]))
        found = decode(NeverEnding(stepper), source, settings)
        assert all(len(hypotheses[0].symbols) == length for hypotheses in found)


if __name__ == "__main__":
    main()
