"""Argos packages: the sentencepiece model in them does what our tokeniser does, and the archive has its layout."""

import json
import zipfile
from pathlib import Path

import pytest
import sentencepiece

from interop.models import phrases, random_model, small, tokenizers_of
from seqloom.apps.export import export_argos
from seqloom.core.errors import ModelError, UsageError
from seqloom.interop.argos import (
    Package,
    differences,
    require_codes,
    require_sentencepiece,
    rules_of,
    sentencepiece_for_argos,
    write_package,
)
from seqloom.text.normalise import Normaliser
from seqloom.text.tokenizer import TextConfig, Tokenizer

UNIGRAM = TextConfig(kind="unigram", size=160)

ODD = (
    "",
    "  Two   spaces\tand a tab ",
    "no\N{NO-BREAK SPACE}break\N{IDEOGRAPHIC SPACE}and\N{ZERO WIDTH SPACE}zero\x07bell",
    "cafe\N{COMBINING ACUTE ACCENT} Ångström \N{ANGSTROM SIGN} İstanbul",
    # Two marks on a letter, in either order and partly composed.
    "vie\u0323\u0302t vie\u0302\u0323t vi\u00ea\u0323t vi\u1eb9\u0302t",
    "\u1112\u1161\u11ab\u1100\u1173\u11af 한글",
    "ﬁne ＡＢＣ ½ ¨ x² 😀 \u0301alone",
    "a▁b ▅ </s> <unk> <0x41>",
    "Wait,what?!No. . ,",
    "THE DOG. Ein Äpfelchen.",
)


def stored(tokenizer: Tokenizer, folder: Path) -> bytes:
    tokenizer.save(folder)
    return (folder / "unigram.model").read_bytes()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"unicode_form": "nfkc", "lowercase": True},
        {"unicode_form": "none", "space_before_punctuation": True},
        {"byte_fallback": True, "size": 420},
    ],
    ids=["as it comes", "nfkc and small letters", "punctuation apart", "bytes"],
)
def test_a_line_is_cut_as_our_tokeniser_cuts_it(changes: dict[str, object], tmp_path: Path) -> None:
    tokenizer = tokenizers_of(UNIGRAM.model_copy(update=changes)).source
    content = sentencepiece_for_argos(stored(tokenizer, tmp_path), tokenizer.normaliser, from_code="en")
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    for line in (*ODD, *phrases(count=100, seed=2)[0], *phrases(count=20, seed=2)[1]):
        assert processor.encode(line) == tokenizer.encode(line), line


def test_without_our_normalisation_lines_are_cut_otherwise(tmp_path: Path) -> None:
    """The negative control: the model as it is stored lacks the ▁ at the start, and all normalisation."""
    tokenizer = tokenizers_of(UNIGRAM).source
    plain = sentencepiece.SentencePieceProcessor(model_proto=stored(tokenizer, tmp_path))
    assert plain.encode("The dog.") != tokenizer.encode("The dog.")


def test_a_translation_is_joined_as_our_tokeniser_joins_it(tmp_path: Path) -> None:
    tokenizer = tokenizers_of(UNIGRAM).source
    content = sentencepiece_for_argos(stored(tokenizer, tmp_path), tokenizer.normaliser, from_code="en")
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    for line in phrases(count=30, seed=2)[1]:
        ids = tokenizer.encode(line)
        assert processor.decode_pieces([tokenizer.piece(number) for number in ids]) == tokenizer.decode(ids)


def test_a_script_without_spaces_gets_no_mark_at_the_start(tmp_path: Path) -> None:
    tokenizer = tokenizers_of(UNIGRAM).source
    content = sentencepiece_for_argos(stored(tokenizer, tmp_path), tokenizer.normaliser, from_code="zh")
    processor = sentencepiece.SentencePieceProcessor(model_proto=content)
    assert processor.encode("你好。") == tokenizer.encode("你好。")
    assert differences(UNIGRAM, from_code="zh") != []


def test_the_table_holds_only_what_changes() -> None:
    rules = rules_of(Normaliser("nfc"))
    assert rules["e\N{COMBINING ACUTE ACCENT}"] == "é"
    assert rules["\t"] == " "
    assert "é" not in rules
    assert "A" not in rules
    assert rules_of(Normaliser("none", lowercase=True))["A"] == "a"


def test_metadata_names_the_languages() -> None:
    package = Package("de", "en", version="1.2")
    assert package.name == "translate-de_en-1_2"
    values = json.loads(package.metadata())
    assert (values["from_code"], values["from_name"], values["to_name"]) == ("de", "German", "English")
    assert values["package_version"] == "1.2"


def test_the_same_contents_give_the_same_archive(tmp_path: Path) -> None:
    package = Package("de", "en", version="1.0")
    for name in ("a", "b"):
        write_package(tmp_path / name, package, contents={"metadata.json": b"{}", "model/config.json": b"{}"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with zipfile.ZipFile(tmp_path / "a") as archive:
        assert archive.namelist() == ["translate-de_en-1_0/metadata.json", "translate-de_en-1_0/model/config.json"]


def test_another_tokeniser_is_refused_with_the_way_out() -> None:
    with pytest.raises(ModelError, match=r"made with text\.kind=bpe; train one with text\.kind=unigram"):
        require_sentencepiece(TextConfig(kind="bpe"))


def test_languages_must_be_known() -> None:
    assert require_codes("deu", "en") == ("de", "en")
    with pytest.raises(UsageError, match="give --from-code, such as de"):
        require_codes(None, "en")
    with pytest.raises(UsageError, match="'zzz' is not the code of a language"):
        require_codes("de", "zzz")


@pytest.mark.parity
def test_a_package_translates_by_its_own_parts(tmp_path: Path) -> None:
    """What Argos does with a package: pieces as strings into the model, the best output joined."""
    ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is installed by `make parity`")
    loaded = random_model(small(), UNIGRAM)
    written = export_argos(loaded, tmp_path / "en-de.argosmodel", from_code="en", to_code="de", quantization="none")
    with zipfile.ZipFile(written.path) as archive:
        archive.extractall(tmp_path)
    folder = tmp_path / "translate-en_de-1_0"
    assert {path.name for path in folder.iterdir()} == {"metadata.json", "model", "sentencepiece.model", "README.md"}
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.model"))
    translator = ctranslate2.Translator(str(folder / "model"), intra_threads=1)
    lines = phrases(count=5)[0]
    pieces = [processor.encode(line, out_type=str) for line in lines]
    assert pieces == [loaded.tokenizers.source.pieces(line) for line in lines]
    found = translator.translate_batch(
        pieces, replace_unknowns=True, beam_size=4, length_penalty=0.2, max_decoding_length=8
    )
    assert len(found) == 5
    vocabulary = json.loads((folder / "model" / "shared_vocabulary.json").read_text(encoding="utf-8"))
    assert set(found[0].hypotheses[0]) <= set(vocabulary)
