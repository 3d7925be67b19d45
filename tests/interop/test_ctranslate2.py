"""Exports to CTranslate2 against the library itself: the same scores, and the same lists of translations."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from interop.conftest import Learned
from interop.models import phrases, random_model, small
from seqloom.apps.export import export_ctranslate2
from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.stepping import Source
from seqloom.core.symbols import END
from seqloom.interop.ctranslate2_engine import CTranslate2Engine, Found
from seqloom.runs.loading import LoadedModel
from seqloom.search.decode import decode
from seqloom.search.greedy import forced_search, greedy_search
from seqloom.search.settings import SearchConfig
from seqloom.text.tokenizer import TextConfig, Tokenizer, Tokenizers, WordPieces
from seqloom.text.vocabulary import Vocabulary

pytestmark = pytest.mark.parity
pytest.importorskip("ctranslate2", reason="ctranslate2 is installed by `make parity`")

BPE = TextConfig(kind="bpe", size=160)
NONE = SearchConfig(beam=4, nbest=4, length_normalisation="none", length_factor=1.0)
MEAN = SearchConfig(beam=4, nbest=4, length_normalisation="mean", length_factor=1.0)

Ids = Sequence[Sequence[int]]


@pytest.fixture(scope="module")
def engine(learned: Learned, tmp_path_factory: pytest.TempPathFactory) -> CTranslate2Engine:
    return exported(learned.loaded, tmp_path_factory.mktemp("export") / "model")


def exported(loaded: LoadedModel, folder: Path) -> CTranslate2Engine:
    export_ctranslate2(loaded, folder)
    return CTranslate2Engine(folder, threads=1)


def source_of(sentences: Ids) -> Source:
    lengths = torch.tensor([len(ids) + 1 for ids in sentences])
    ids = torch.zeros(len(sentences), int(lengths.max()), dtype=torch.long)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence) + 1] = torch.tensor([*sentence, END])
    return Source(ids, lengths)


def our_log_probs(loaded: LoadedModel, sources: Ids, targets: Ids) -> list[list[float]]:
    """log P of each symbol of the targets, END last."""
    found = forced_search(loaded.model.stepper(), source_of(sources), targets, settings=NONE)  # type: ignore[operator]
    return [list(each.token_log_probs) for each in found]


def largest_difference(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> float:
    pairs = zip(ours, theirs, strict=True)
    return max(abs(a - b) for one, other in pairs for a, b in zip(one, other, strict=True))


SHAPES = {
    "as it comes": small(),
    "post-norm": small(norm="after"),
    "post-norm with a last norm": small(norm="after", final_norm=True),
    "pre-norm without a last norm": small(final_norm=False),
    "gelu": small(activation="gelu"),
    "only the output tied": small(tying="output"),
    "nothing tied": small(tying="none"),
    "concatenated positions": small(positions="concatenated"),
    "learned positions": small(positions="learned", longest=6),
    "shaw positions": small(positions="shaw", farthest=3),
    "relative bias": small(positions="bias"),
    "no positions": small(positions="none"),
    "no W_O": small(output_projection=False),
    "an odd width": small(width=15, heads=3),
    "stacks of different depth": small(encoder_layers=3, decoder_layers=1),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_of_transformer_gives_the_same_scores(name: str, tmp_path: Path) -> None:
    loaded = random_model(SHAPES[name], BPE)
    engine = exported(loaded, tmp_path / "model")
    sources, targets = (loaded.tokenizers.source.encode_many(lines) for lines in phrases(count=6))
    # Longer than the tables of distances and positions, and of different lengths side by side.
    sources, targets = [*sources, sources[0] * 5, sources[1][:1]], [*targets, targets[0] * 4, targets[1][:1]]
    difference = largest_difference(our_log_probs(loaded, sources, targets), engine.score_ids(sources, targets))
    assert difference < 1e-4


def test_scores_of_given_targets_agree(learned: Learned, engine: CTranslate2Engine) -> None:
    ours = our_log_probs(learned.loaded, learned.sources, learned.targets)
    theirs = engine.score_ids(learned.sources, learned.targets)
    assert largest_difference(ours, theirs) < 1e-4
    assert [len(each) for each in theirs] == [len(ids) + 1 for ids in learned.targets]


def test_a_changed_weight_is_noticed(learned: Learned, engine: CTranslate2Engine) -> None:
    """The negative control: the comparison above can fail."""
    loaded = learned.loaded
    weight = loaded.model.get_parameter("decoder.layers.0.cross.query.weight")
    with torch.no_grad():
        weight[0, 0] += 0.5
        ours = our_log_probs(loaded, learned.sources, learned.targets)
        weight[0, 0] -= 0.5
    assert largest_difference(ours, engine.score_ids(learned.sources, learned.targets)) > 1e-4


@pytest.mark.parametrize("penalty", [0.0, 0.6, None])
def test_lists_are_those_of_our_search_by_its_rules(
    learned: Learned, engine: CTranslate2Engine, penalty: float | None
) -> None:
    """Token for token, in order; where two hypotheses lie within 1e-5, they may stand the other way round."""
    settings = SearchConfig(mode="ctranslate2", peer_length_penalty=penalty, beam=4, nbest=4, length_factor=1.0)
    ours = decode(learned.loaded.model.stepper(), source_of(learned.sources), settings)  # type: ignore[operator]
    for mine, theirs in zip(ours, engine.translate_ids(learned.sources, settings), strict=True):
        assert [each.score for each in mine] == pytest.approx([each.score for each in theirs], abs=1e-4)
        for one, other in zip(mine, theirs, strict=True):
            if (one.symbols, one.is_finished) != (other.ids, other.is_finished):
                assert one.score == pytest.approx(other.score, abs=1e-5)


@pytest.mark.parametrize("settings", [NONE, MEAN], ids=["none", "mean"])
def test_scores_of_our_mode_are_our_scores(learned: Learned, engine: CTranslate2Engine, settings: SearchConfig) -> None:
    for ids, found in zip(learned.sources, engine.translate_ids(learned.sources, settings), strict=True):
        ended = [each for each in found if each.is_finished]
        if ended:
            stepper = learned.loaded.model.stepper()  # type: ignore[operator]
            targets = [each.ids for each in ended]
            ours = forced_search(stepper, source_of([ids] * len(ended)), targets, settings=settings)
            assert [each.score for each in ours] == pytest.approx([each.score for each in ended], abs=1e-4)
        assert found == [*ended, *(each for each in found if not each.is_finished)]


def with_end(found: Found) -> tuple[int, ...]:
    return (*found.ids, END) if found.is_finished else found.ids


def test_beam_1_is_our_greedy_search(learned: Learned, engine: CTranslate2Engine) -> None:
    settings = NONE.model_copy(update={"beam": 1, "nbest": 1})
    stepper = learned.loaded.model.stepper()  # type: ignore[operator]
    ours = greedy_search(stepper, source_of(learned.sources), settings)
    theirs = engine.translate_ids(learned.sources, settings)
    assert [[(one.symbols, one.is_finished)] for one in ours] == [
        [(other.ids, other.is_finished) for other in each] for each in theirs
    ]
    assert [one.score for one in ours] == pytest.approx([each[0].score for each in theirs], abs=1e-4)


def test_each_sentence_has_its_own_limit_whatever_stands_beside_it(learned: Learned, engine: CTranslate2Engine) -> None:
    settings = NONE.model_copy(update={"beam": 2, "nbest": 1, "length_factor": 0.5, "length_constant": 0})
    found = engine.translate_ids(learned.sources, settings)
    for ids, each in zip(learned.sources, found, strict=True):
        assert len(with_end(each[0])) <= max(1, int(0.5 * (len(ids) + 1)))
        alone = engine.translate_ids([[*ids, END]], settings)[0]
        assert with_end(alone[0]) == with_end(each[0])
        assert alone[0].score == pytest.approx(each[0].score, abs=1e-4)
    assert any(not each[0].is_finished for each in found)


def test_a_prefix_is_kept_and_counted(learned: Learned, engine: CTranslate2Engine) -> None:
    prefixes = [ids[:2] for ids in learned.targets]
    found = engine.translate_ids(learned.sources, NONE, prefixes=prefixes)
    best = [each[0] for each in found]
    assert [list(each.ids[:2]) for each in best] == prefixes
    kept = [number for number, each in enumerate(best) if each.is_finished]
    assert kept
    ours = our_log_probs(
        learned.loaded, [learned.sources[number] for number in kept], [best[number].ids for number in kept]
    )
    assert [sum(each) for each in ours] == pytest.approx([best[number].score for number in kept], abs=1e-4)
    with pytest.raises(UsageError, match=r"leaves a prefix out of the score.*length_normalisation=none"):
        engine.translate_ids(learned.sources, MEAN, prefixes=prefixes)


def test_separate_vocabularies_and_words_like_reserved_symbols(tmp_path: Path) -> None:
    """A word that is written like a reserved symbol stays a word."""
    text = TextConfig(kind="word", size=400, shared=False, segmentation="spaces")
    loaded = random_model(small(tying="output"), text)
    both = loaded.tokenizers
    marked = replace(loaded, tokenizers=Tokenizers(with_odd_word(both.source), with_odd_word(both.target)))
    engine = exported(marked, tmp_path / "model")
    assert {path.name for path in (tmp_path / "model").glob("*vocabulary*")} == {
        "source_vocabulary.json",
        "target_vocabulary.json",
    }
    odd = marked.tokenizers.target.size - 1
    assert marked.tokenizers.target.piece(odd) == "</s>"
    sources, targets = [[5, odd, 6], [7, 8]], [[odd, 5], [9, odd, odd]]
    difference = largest_difference(our_log_probs(marked, sources, targets), engine.score_ids(sources, targets))
    assert difference < 1e-4


def with_odd_word(tokenizer: Tokenizer) -> Tokenizer:
    """The same words, the last of them replaced by one that looks like the end symbol."""
    tokens = [tokenizer.piece(number) for number in range(4, tokenizer.size)]
    tokens[-1] = "</s>"
    vocabulary = Vocabulary(tuple(tokens), tuple(range(len(tokens), 0, -1)))
    return Tokenizer(tokenizer.config, WordPieces(vocabulary, segmentation="spaces"))


def test_int8_is_a_quarter_of_the_size_and_close(learned: Learned, engine: CTranslate2Engine, tmp_path: Path) -> None:
    export_ctranslate2(learned.loaded, tmp_path / "small", quantization="int8")
    small_one = CTranslate2Engine(tmp_path / "small", threads=1)
    assert small_one.description.quantization == "int8"
    sizes = [(each.folder / "model.bin").stat().st_size for each in (small_one, engine)]
    assert sizes[0] < 0.75 * sizes[1]  # the table of positions keeps its floats, and here it is most of the model
    exact, rough = (each.score_ids(learned.sources, learned.targets) for each in (engine, small_one))
    assert 1e-4 < largest_difference(exact, rough) < 1.0


def test_an_exported_directory_says_what_it_is_and_is_checked(learned: Learned, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    written = export_ctranslate2(learned.loaded, folder)
    assert written.bytes == sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    engine = CTranslate2Engine(folder)
    assert engine.tokenizers.source == learned.loaded.tokenizers.source
    assert engine.search == learned.loaded.search_settings()  # with the maximum length of the model
    assert engine.description.positions == 1025
    config = json.loads((folder / "config.json").read_text())
    assert (config["bos_token"], config["eos_token"], config["add_source_eos"]) == ("<s>", "</s>", True)
    assert "# English to German" in (folder / "README.md").read_text(encoding="utf-8")
    data = bytearray((folder / "model.bin").read_bytes())
    data[-1] ^= 1
    (folder / "model.bin").write_bytes(data)
    with pytest.raises(ModelError, match=r"model\.bin: SHA-256 is"):
        CTranslate2Engine(folder)


def test_what_has_no_room_or_no_tokens_is_refused(learned: Learned, engine: CTranslate2Engine) -> None:
    with pytest.raises(UsageError, match=r"source 0 has 1031 tokens .* a table of 1025 positions"):
        engine.translate_ids([[5] * 1030], NONE)
    with pytest.raises(DataError, match=r"source 1 has no tokens"):
        engine.translate_ids([[5], [END]], NONE)
