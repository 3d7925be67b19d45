"""N lines in, N lines out, in order, whatever stands in them; and for any bytes a result or a sentence.

The commands are carried out as they are typed, in this process. Only what does not depend on the text is done once: the
table of commands is built, and a model and its settings are read from disk, when they are first asked for. The weights
are made double, so that no rounding decides between two words, and a line alone can be compared with the same line
among others.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import typer.main
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import nasty
from cli.calling import Called, call
from cli.conftest import train_words, write_pairs
from seqloom.apps import language_model, search_settings
from seqloom.apps import translator as translate
from seqloom.core.config import resolve
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import load
from seqloom.runs.model_dir import save_model
from seqloom.text.normalise import is_blank
from seqloom.training.weights import weights_of

FEW, MANY = 30, 360
"""Examples of each mode. `make test` takes half of the few, which is 210 in all; `make test-slow` the many, 5,040."""

LONGEST = 40
"""Characters of a fragment: a line of four is longer than the 24 tokens that the model takes at once."""

SMALL = ("data.longest=24", "search.beam=2", "search.length_factor=0.2", "search.length_constant=3")
"""Two hypotheses of a few symbols: how many lines come out does not depend on how good they are."""

SAMPLE = ("search.method=sample", "search.seed=7")


@dataclass(frozen=True)
class Bench:
    """Models that are ready, and a folder for files."""

    translator: Path
    counted: Path
    folder: Path

    def write(self, name: str, data: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(data)
        return path


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("nasty")
    train, dev = write_pairs(folder, "train", 60), write_pairs(folder, "dev", 6)
    counted = ["train", "model.kind=ngram", "model.order=3", "text.kind=word", "text.minimum_count=1"]
    for words in (
        train_words(train, dev, folder / "run"),
        [*counted, "--train", train[0], "--dev", dev[0], "--out", folder / "counted"],
    ):
        called = call(*words)
        assert called.code == 0, called.err
    loaded, short = load(folder / "run"), folder / "short"
    config = resolve(RunConfig, file=loaded.folder / "config.yaml", overrides=list(SMALL))
    save_model(short, config, tokenizers=loaded.tokenizers, weights=weights_of(loaded.model), card=loaded.card)
    with ExitStack() as stack:
        for module in (translate, language_model, search_settings):
            for name in {"load", "resolve", "resolved", "load_language_model"} & set(vars(module)):
                stack.enter_context(mock.patch.object(module, name, _remembered(getattr(module, name))))
        stack.enter_context(mock.patch.object(typer.main, "get_command", _remembered(typer.main.get_command)))
        yield Bench(short, folder / "counted", folder)


def _remembered(read: Callable[..., Any]) -> Callable[..., Any]:
    """Reads what has not been read before."""
    known: dict[str, Any] = {}

    def reader(*given: Any, **named: Any) -> Any:
        asked = repr((given, named))
        if asked not in known:
            known[asked] = read(*given, **named)
            if isinstance(model := getattr(known[asked], "model", None), nn.Module):
                model.double()
        return known[asked]

    return reader


# --- what must come out ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """A good file, and how it comes in."""

    bench: Bench
    data: bytes
    is_piped: bool
    pick: int
    """Which of its lines is translated alone as well."""

    @property
    def lines(self) -> list[str]:
        """As `translate` must read them: NUL, which is no text, as a space."""
        return [line.replace("\0", " ") for line in nasty.lines_of(self.data)]

    def translated(self, *words: object) -> Called:
        model = self.bench.translator
        if self.is_piped:
            called = call("translate", model, *words, stdin=self.data)
        else:
            called = call("translate", model, self.bench.write("in", self.data), *words)
        return succeeded(called)

    def check_texts(self, texts: list[str], *overrides: str) -> None:
        """A text for each line, blank where it is, and the one that was picked as it would be alone."""
        assert len(texts) == len(self.lines)
        assert all(text == "" for text, line in zip(texts, self.lines, strict=True) if is_blank(line))
        if texts:
            at = self.pick % len(texts)
            translator = translate.open_translator(self.bench.translator, overrides)
            assert texts[at] == translator.search([self.lines[at]], first=at)[0][0].text


def succeeded(called: Called) -> Called:
    assert called.code == 0, called.err
    assert "Traceback" not in called.err
    assert "\r" not in called.out
    return called


def check_text(given: Given) -> None:
    given.check_texts(given.translated().lines)


def check_out_file(given: Given) -> None:
    out = given.bench.folder / "out"
    assert given.translated("--out", out).out == ""
    given.check_texts(written_lines(out))


def check_sample(given: Given) -> None:
    given.check_texts(given.translated(*SAMPLE).lines, *SAMPLE)


def check_json(given: Given) -> None:
    records = given.translated("--json").records
    assert [record["line"] for record in records] == list(range(1, len(given.lines) + 1))
    assert [record["source"].removesuffix("\r") for record in records] == [x.removesuffix("\r") for x in given.lines]
    given.check_texts([record["translations"][0]["text"] for record in records])


def check_sampled_json(given: Given) -> None:
    records = given.translated("--json", "--nbest", 3, *SAMPLE).records
    assert [record["line"] for record in records] == list(range(1, len(given.lines) + 1))
    assert all(
        len(record["translations"]) == (1 if is_blank(line) else 3)
        for record, line in zip(records, given.lines, strict=True)
    )


def check_nbest(given: Given) -> None:
    best: dict[int, str] = {}
    for row in given.translated("--nbest", 2).lines:
        number, text, score = row.split(" ||| ")
        assert score == "null" or float(score) <= 0
        best.setdefault(int(number), text)
    assert list(best) == list(range(1, len(given.lines) + 1))
    given.check_texts(list(best.values()))


def check_scores(given: Given) -> None:
    cells = [row.split("\t") for row in given.translated("--scores").lines]
    assert [cell[0] == "null" for cell in cells] == [is_blank(line) for line in given.lines]
    given.check_texts([text for _, text in cells])


def check_align(given: Given) -> None:
    links = given.bench.folder / "links"
    given.check_texts(given.translated("--align", links).lines)
    rows = written_lines(links)
    assert len(rows) == len(given.lines)
    assert all(row == "" for row, line in zip(rows, given.lines, strict=True) if is_blank(line))
    assert all(pair.replace("-", "").isdigit() for row in rows for pair in row.split())


def check_tags(given: Given) -> None:
    assert len(given.translated("--tags").lines) == len(given.lines)


def check_score(given: Given) -> None:
    """Each line with the one that stands in its place when the file is turned round."""
    given = without_nul(given)
    source, target, flags = *both_ways(given), ["--json"] if given.is_piped else []
    called = succeeded(call("score", given.bench.translator, source, target, *flags))
    blank = [is_blank(a) or is_blank(b) for a, b in zip(given.lines, given.lines[::-1], strict=True)]
    if flags:
        assert [record["line"] for record in called.records] == list(range(1, len(blank) + 1))
        assert [record["log_prob"] is None for record in called.records] == blank
    else:
        assert [row == "null" for row in called.lines] == blank


def check_evaluate(given: Given) -> None:
    given = without_nul(given)
    source, reference = both_ways(given)
    out, model = given.bench.folder / "out", given.bench.translator
    called = call("evaluate", model, "--source", source, "--reference", reference, "--out", out, "--json")
    assert [record["lines"] for record in succeeded(called).records] == [len(given.lines)]
    given.check_texts(written_lines(out))


def check_evaluate_text(given: Given) -> None:
    given = without_nul(given)
    hypothesis, reference = both_ways(given)
    called = call("evaluate", "--hypothesis", hypothesis, "--reference", reference, "--json")
    assert [record["lines"] for record in succeeded(called).records] == [len(given.lines)]


def check_perplexity(given: Given) -> None:
    """Each line by itself, so that the picked one must have the same score without the others."""
    given = without_nul(given)
    words = ["perplexity", given.bench.counted, "-", "--per-line", "--context", "line"]
    if given.is_piped:
        called = call(*words, stdin=given.data)
    else:
        called = call(*words[:2], given.bench.write("in", given.data), *words[3:])
    scores = [float(row) for row in succeeded(called).lines]
    assert len(scores) == len(given.lines)
    at = given.pick % len(scores)
    alone = call(*words, stdin=given.lines[at].encode() + b"\n")
    assert [float(row) for row in alone.lines] == [pytest.approx(scores[at], abs=1e-5)]


def without_nul(given: Given) -> Given:
    """With one line at least, and without NUL: these commands refuse both."""
    return Given(given.bench, given.data.replace(b"\0", b"") + b"\n.\n", given.is_piped, given.pick)


def both_ways(given: Given) -> tuple[Path, Path]:
    turned = "".join(f"{line}\n" for line in given.lines[::-1]).encode()
    return given.bench.write("source", given.data), given.bench.write("target", turned)


def written_lines(path: Path) -> list[str]:
    text = path.read_bytes().decode()
    assert not text or text.endswith("\n")
    return text.split("\n")[:-1]


# --- any bytes -------------------------------------------------------------------------------------------------------


def check_any_bytes(given: Given) -> None:
    """Whatever the bytes are, each command ends well, or says in a sentence what is wrong with which file."""
    path, other = (given.bench.write(name, given.data) for name in ("any.en", "any.de"))
    model, counted = given.bench.translator, given.bench.counted
    commands: list[list[object]] = [
        ["translate", model, path],
        ["translate", model],
        ["score", model, path, other],
        ["evaluate", "--hypothesis", path, "--reference", other],
        ["perplexity", counted, path, "--per-line"],
        ["perplexity", counted, "-", "--per-line"],
        ["doctor", path, other],
        ["look", "zipf", path],
    ]
    words = commands[given.pick % len(commands)]
    called = call(*words, stdin=given.data)
    assert called.code in (0, 3), called.err
    assert "Traceback" not in called.err
    assert "internal error" not in called.err
    if called.code == 0:
        return
    errors = [row for row in called.err.split("\n") if row.startswith("error: ")]
    if words[0] == "doctor" and not errors:  # what it found is the sentence
        assert called.out
        return
    assert len(errors) == 1
    assert any(name in errors[0] for name in (str(path), str(other), "standard input"))
    assert len(called.err) < 2_000


MODES = {
    "text": check_text,
    "--out": check_out_file,
    "--json": check_json,
    "--nbest": check_nbest,
    "--scores": check_scores,
    "--align": check_align,
    "--tags": check_tags,
    "sample": check_sample,
    "sample --json": check_sampled_json,
    "score": check_score,
    "evaluate": check_evaluate,
    "evaluate --hypothesis": check_evaluate_text,
    "perplexity": check_perplexity,
    "any bytes": check_any_bytes,
}


def check(bench: Bench, mode: str, data: st.DataObject) -> None:
    kind = nasty.files(longest=LONGEST) if mode == "any bytes" else nasty.good_files(fewest=2, most=4, longest=LONGEST)
    MODES[mode](Given(bench, data.draw(kind), data.draw(st.booleans()), data.draw(st.integers(0, 23))))


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=FEW)
@given(data=st.data())
def test_as_many_lines_come_out_as_go_in(bench: Bench, mode: str, data: st.DataObject) -> None:
    check(bench, mode, data)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=MANY)
@given(data=st.data())
def test_as_many_lines_come_out_as_go_in_thousands_of_times(bench: Bench, mode: str, data: st.DataObject) -> None:
    check(bench, mode, data)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_piped", [False, True])
def test_an_empty_file_gives_no_lines(bench: Bench, mode: str, is_piped: bool) -> None:
    for pick in range(8 if mode == "any bytes" else 1):
        MODES[mode](Given(bench, b"", is_piped, pick))


@pytest.mark.slow
def test_several_processes_give_as_many_lines_too(bench: Bench) -> None:
    """Each fragment that is always the same, as a line of its own, with blank lines between."""
    fragments = [*nasty.SCRIPTS, *nasty.TYPED_OUT, *nasty.MARKUP, *nasty.DATA, *nasty.EMOJI, *nasty.COMMANDS]
    fragments += [*nasty.LINE_BREAKS, *nasty.BIDI, *nasty.INVISIBLE, *nasty.NONCHARACTERS, "\0", "a" * 300]
    data = "".join(f"{fragment}\n\n" for fragment in fragments).encode()
    given = Given(bench, data, is_piped=False, pick=2)
    one, several = given.translated("--json"), given.translated("--json", "--jobs", 2)
    assert [record["source"] for record in several.records] == [record["source"] for record in one.records]
    assert len(several.records) == 2 * len(fragments)
    texts = [record["translations"][0]["text"] for record in several.records]
    assert texts[1::2] == [""] * len(fragments)


def test_a_command_that_loses_a_line_is_noticed(bench: Bench) -> None:
    """The checks can fail: a reader that splits where Python does gives more lines than there are."""
    data = "a\u2028b\n".encode()
    with mock.patch.object(nasty, "lines_of", lambda given: given.decode().splitlines()), pytest.raises(AssertionError):
        check_text(Given(bench, data, is_piped=True, pick=0))
    check_text(Given(bench, data, is_piped=True, pick=0))
