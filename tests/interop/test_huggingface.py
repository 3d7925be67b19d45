"""Our models in transformers: the same symbols, the same scores, the same translations."""

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from tokenizers import Tokenizer as FastTokenizer
from typer.testing import CliRunner

import nasty
from cuts import assert_same_cuts
from generated import generated
from interop.conftest import Learned
from interop.models import phrases, random_model, small
from seqloom.apps.export import export_huggingface
from seqloom.apps.translator import Translator
from seqloom.cli.main import app
from seqloom.core.errors import ModelError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED, UNKNOWN
from seqloom.interop.huggingface import WidthOrder
from seqloom.interop.huggingface_tokenizer import fast_tokenizer, write_tokenizer
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.runs.loading import LoadedModel, build_model
from seqloom.search.settings import SearchConfig
from seqloom.text.marks import BYTE_PIECES
from seqloom.text.tokenizer import TextConfig, Tokenizer
from seqloom.text.tokenizer_training import train_tokenizer

TEXT = TextConfig(size=200)


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"positions": "shaw"}, "model.positions=shaw"),
        ({"positions": "learned"}, "model.positions=learned"),
        ({"final_norm": False}, "model.final_norm=false with model.norm=before"),
        ({"norm": "after", "final_norm": True}, "model.final_norm=true with model.norm=after"),
        ({"tying": "none"}, "model.tying=none with model.norm=before"),
    ],
)
def test_what_has_no_counterpart_is_refused_by_name(changes: Mapping[str, Any], named: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"no model with {named}; use --to ctranslate2 or --to onnx, or train with"):
        export_huggingface(random_model(small(**changes), TEXT), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_recurrent_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="this is a model of kind seq2seq; use --to onnx"):
        export_huggingface(random_model(Seq2SeqConfig(width=8), TEXT), tmp_path / "out")


# --- parity -----------------------------------------------------------------------------------------------------------

FRAGMENTS = (
    *(*nasty.PLAIN, *nasty.SPACES, *nasty.SCRIPTS, *nasty.RIGHT_TO_LEFT, *nasty.NUMBERS, *nasty.TYPED_OUT),
    *(*nasty.SIGNS, *nasty.MARKUP, *nasty.FORMATS, *nasty.DATA, *nasty.COMMANDS, *nasty.EMOJI, *nasty.LINE_BREAKS),
    *(*nasty.BIDI, *nasty.INVISIBLE, *nasty.NONCHARACTERS),
)


def all_lines() -> list[str]:
    """1,000 lines of two languages and 1,000 of fragments that hurt."""
    english, german = phrases(count=500, seed=1)
    chance = random.Random(3)
    return [*english, *german, *("".join(chance.choices(FRAGMENTS, k=chance.randint(1, 7))) for _ in range(1000))]


@pytest.mark.parity
@pytest.mark.parametrize(
    "text",
    [
        TextConfig(kind="bpe", size=400),
        TextConfig(kind="bpe", size=700, byte_fallback=True, unicode_form="nfkc", lowercase=True),
        TextConfig(kind="char", size=500, byte_fallback=True),
        TextConfig(kind="char", unicode_form="none"),
        TextConfig(kind="word"),
        TextConfig(kind="word", segmentation="spaces", space_before_punctuation=True, lowercase=True),
        TextConfig(kind="unigram", size=400),
        TextConfig(kind="unigram", size=700, byte_fallback=True),
    ],
    ids=lambda text: f"{text.kind}-{text.size}",
)
def test_ids_of_2000_lines_are_the_same(text: TextConfig, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    lines = all_lines()
    ours = train_tokenizer(lines[:1300], text)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "marian"}), encoding="utf-8")
    write_tokenizer(tmp_path, ours, positions=100)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id, theirs.unk_token_id) == (0, 1, 2, 3)
    assert len(theirs) == ours.size
    ids, found = ours.encode_many(lines), theirs(lines).input_ids
    if text.kind == "unigram":
        assert {row.pop() for row in found} == {END}
        compare_cuts(ours, ids, found)
        with pytest.raises(AssertionError):
            compare_cuts(ours, ids, with_dearer_words(tmp_path, lines))
    else:
        assert found == [[*row, END] for row in ids]
    # What is left out as special there is shown as ⁇ here.
    known = [row for row in ids if UNKNOWN not in row]
    assert len(known) > 1000
    assert theirs.batch_decode(known, skip_special_tokens=True) == [ours.decode(row) for row in known]


def compare_cuts(ours: Tokenizer, ids: list[list[int]], found: list[list[int]]) -> None:
    processor = sentencepiece.SentencePieceProcessor(model_proto=ours.content)
    scores = {piece: processor.get_score(number) for number, piece in enumerate(ours.vocabulary)}
    left, right = ([[ours.piece(number) for number in row] for row in rows] for rows in (ids, found))
    assert_same_cuts(left, right, scores)


def with_dearer_words(folder: Path, lines: list[str]) -> list[list[int]]:
    """The ids of an exported unigram model whose long pieces are less likely: the negative control."""
    parts = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    parts["model"]["vocab"] = [(piece, score - 3 * (len(piece) > 2)) for piece, score in parts["model"]["vocab"]]
    fast = FastTokenizer.from_str(json.dumps(parts))
    fast.encode_special_tokens = True
    return [each.ids[:-1] for each in fast.encode_batch(lines)]


@pytest.mark.parametrize("missing", ["", "x", "F0", "<", "s/>", "<s>/padunk"])
@pytest.mark.parametrize("byte_fallback", [False, True])
def test_typed_symbols_and_bytes_are_text(missing: str, byte_fallback: bool) -> None:
    """Whatever pieces they are made of, and if some of their characters have no piece."""
    chance = random.Random(1)
    words = ["pad", "s", "/s", "unk", "0x41", "0x0A", "0xFF", "<pa", "s>", "0x", "0>", "nk>", *"123456789ABCDEF"]
    drawn = ("<" * chance.randint(0, 1) + chance.choice(words) + ">" * chance.randint(0, 1) for _ in range(3000))
    text = " ".join(drawn).translate(dict.fromkeys(map(ord, missing)))
    config = TextConfig(kind="unigram", size=120 + 256 * byte_fallback, byte_fallback=byte_fallback)
    ours = train_tokenizer([text], config)
    assert "<" in missing or "▁<" in ours.vocabulary
    typed = (*RESERVED, *BYTE_PIECES)
    lines = [f"{before}{each}{after}" for each in typed for before in ("", "a", "1 ") for after in ("", " 2", "<s>")]
    theirs = fast_tokenizer(ours)
    theirs.encode_special_tokens = True
    found, ids = [each.ids[:-1] for each in theirs.encode_batch(lines)], ours.encode_many(lines)
    assert not {PAD, BEGIN, END} & set(chain(*found))
    # Unknown characters in a row are one symbol here, and may be two there.
    assert [joined(row) for row in found] == ids
    if byte_fallback:
        assert found == ids


def joined(ids: list[int]) -> list[int]:
    return [number for before, number in pairwise([PAD, *ids]) if not before == number == UNKNOWN]


def their_logits(folder: Path, source: Source, previous: torch.Tensor) -> torch.Tensor:
    transformers = pytest.importorskip("transformers")
    model, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not report["unexpected_keys"], report
    assert not report["missing_keys"], report
    with torch.no_grad():
        return (
            model.double()
            .eval()(input_ids=source.ids, attention_mask=(source.ids != PAD).long(), decoder_input_ids=previous)
            .logits
        )


def our_logits(loaded: LoadedModel, source: Source, previous: torch.Tensor) -> torch.Tensor:
    model: Any = loaded.model.double()
    lengths = torch.full((len(previous),), previous.shape[1])
    with torch.no_grad():
        features = model(source, previous, lengths)
        return model.output(features).view(*previous.shape, -1)


def batch(symbols: int) -> tuple[Source, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    lengths = torch.tensor([9, 4, 1])
    ids = torch.randint(4, symbols, (3, 9), generator=generator)
    at = torch.arange(9)
    ids = ids.masked_fill(at == lengths[:, None] - 1, END).masked_fill(at >= lengths[:, None], PAD)
    previous = torch.randint(4, symbols, (3, 7), generator=generator)
    previous[:, 0] = BEGIN
    return Source(ids, lengths), previous


SHAPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "pre-norm": ({}, {}),
    "post-norm": ({"norm": "after", "activation": "gelu"}, {}),
    "no-output-projection": ({"output_projection": False, "width": 18}, {}),
    "two-vocabularies": ({"norm": "after", "tying": "output"}, {"shared": False}),
    "three-tables": ({"norm": "after", "tying": "none", "encoder_layers": 1, "decoder_layers": 3}, {"shared": False}),
    "inputs-tied": ({"norm": "after", "tying": "inputs"}, {}),
}


@pytest.mark.parity
@pytest.mark.parametrize("shape", SHAPES)
def test_scores_are_the_same(shape: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, text = SHAPES[shape]
    loaded = random_model(small(**model), TextConfig(size=150, **text))
    source, previous = batch(100)
    export_huggingface(loaded, tmp_path / "out")
    theirs, ours = their_logits(tmp_path / "out", source, previous), our_logits(loaded, source, previous)
    # Their position codes are rounded to float32.
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)
    assert theirs.std() > 0.5
    if loaded.config.model.norm == "before":
        # The codes in the file are those that Pegasus computes, so that the order of the width axis is theirs.
        table = pytest.importorskip("transformers").AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out")
        codes = table.model.encoder.embed_positions
        torch.testing.assert_close(codes.weight, codes.create_weight(), rtol=0, atol=1e-6)
        return
    # The order of the width axis matters.
    as_it_is = WidthOrder(torch.arange(loaded.config.model.width))
    monkeypatch.setattr(WidthOrder, "halves", staticmethod(lambda _: as_it_is))
    export_huggingface(loaded, tmp_path / "unordered")
    assert (their_logits(tmp_path / "unordered", source, previous) - ours).abs().max() > 1e-2


def translator_that_copies(norm: str) -> LoadedModel:
    """Trained to copy lines with some pieces left out: what comes next, and when to end, is uncertain."""
    settings = small(norm=norm, width=32, heads=4, feed_forward=64, dropout_rate=0.0)
    loaded = random_model(settings, TextConfig(size=150))
    model: Any = build_model(settings, loaded.tokenizers, seed=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=4e-3)
    chance = random.Random(5)
    rows = [row[:14] for row in loaded.tokenizers.source.encode_many(phrases(count=400, seed=1)[0])]
    for _ in range(120):
        sources = chance.choices(rows, k=32)
        targets = [[number for number in row if chance.random() < 0.8] for row in sources]
        source = padded([[*row, END] for row in sources])
        previous, labels = padded([[BEGIN, *row] for row in targets]), padded([[*row, END] for row in targets])
        features = model(source, previous.ids, previous.lengths)
        wanted = torch.cat([row[:length] for row, length in zip(labels.ids, labels.lengths.tolist(), strict=True)])
        optimiser.zero_grad()
        model.output.cross_entropy(features, wanted).div(len(wanted)).backward()
        optimiser.step()
    return replace(loaded, model=model.eval())


def padded(rows: list[list[int]]) -> Source:
    ids = torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True, padding_value=PAD)
    return Source(ids, torch.tensor(list(map(len, rows))))


@pytest.mark.parity
@pytest.mark.parametrize("norm", ["before", "after"])
def test_200_translations_are_the_same(norm: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    loaded = translator_that_copies(norm)
    folder = export_huggingface(loaded, tmp_path / "out").path
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    lines, _ = phrases(count=200, seed=9)
    inputs = tokenizer(lines, return_tensors="pt", padding=True)
    greedy: list[list[int]] = []
    for beam in (1, 4):
        search = SearchConfig(beam=beam, mode="huggingface", length_factor=0, length_constant=24)
        ours = [found[0] for found in Translator(loaded).search(lines, search=search)]
        with torch.no_grad():
            theirs = generated(model, end=END, written=1, **inputs, num_beams=beam, max_new_tokens=24, max_length=None)
        rows = [list(each.hypotheses[0].symbols) for each in ours]
        assert theirs.differing(rows, [each.score or 0.0 for each in ours]) == 0
        assert tokenizer.batch_decode(rows, skip_special_tokens=True) == [each.text for each in ours]
        assert len({each.text for each in ours}) > 50
        if beam > 1:
            assert theirs.differing(greedy, [each.score or 0.0 for each in ours]) > 0
        greedy = rows


def test_the_command_writes_a_folder_and_says_what_differs(learned: Learned, tmp_path: Path) -> None:
    out = tmp_path / "folder"
    result = CliRunner().invoke(app, ["export", str(learned.loaded.folder), "--to", "huggingface", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "search.length_normalisation=gnmt" in result.output
    written = json.loads((out / "generation_config.json").read_text())
    assert (written["num_beams"], written["length_penalty"]) == (4, 1.0)
