"""Readers of text, translators' files and settings with a small good file each, for the tests that mutate them."""

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import zstandard

from seqloom.cli.translate_jobs import read_constraints
from seqloom.core.config import resolve, to_yaml
from seqloom.core.events import Event, read_events, to_json
from seqloom.core.files import read_lines
from seqloom.core.text_files import read_whole
from seqloom.data.corpus import open_corpus
from seqloom.data.plain_text import TextCorpus
from seqloom.metrics.word_vectors import read_judgements, read_questions
from seqloom.runs.config import RunConfig
from seqloom.text.formats.conllu import EMPTY, TokenFile, filled
from seqloom.text.formats.pharaoh import read_gold
from seqloom.text.formats.readers import PairReader, SideReader, languages_of, open_catalogue, split_rows
from seqloom.text.glossary import read_glossary
from seqloom.text.vocabulary import read_foreign_vocabulary
from system.bad_files import ENGLISH, GERMAN
from system.mutations import Build, Case
from text.formats.mo_files import MESSAGES, compile_mo
from text.formats.samples import NAMES, PO, TMX, XLIFF_1, XLIFF_2, fill, inventing, reversed_words

TREE = b"# x\n" + b"".join(word + 8 * b"\t_" + b"\n" for word in (b"1-2\tim", b"1\tin", b"2\tdem", b"2.1\t_")) + b"\n"
TEXT = "".join(f"{line}\n" for line in ENGLISH).encode()
LATIN = PO.replace("UTF-8", "ISO-8859-1").encode("latin-1")
DTD = TMX.replace('"tmx14.dtd">', "\"tmx14.dtd\" [<!ELEMENT tmx (header, body)><!-- it's --><?pi it's > ?>]>")
APPROVED = XLIFF_2.replace('<unit id="u1">', '<unit id="u1" approved="yes">')


def is_text(text: str) -> None:
    """Text that can be written to a file."""
    assert isinstance(text, str)
    text.encode("utf-8")


# --- text and translators' files -------------------------------------------------------------------------------------


def _file(name: str, content: bytes, read: Callable[[Path], object]) -> Build:
    def build(folder: Path) -> Case:
        path = folder / name
        path.write_bytes(content)
        return Case(path, lambda: read(path))

    return build


def _use_catalogue(path: Path) -> None:
    """Segments come out, can be filled, and what was filled can be read again."""
    catalogue = open_catalogue(path, languages=("en", "de"))
    for segment in catalogue.segments:
        is_text(segment.text)
        is_text(segment.target)
        assert segment.line >= 1
    for engine in (reversed_words, inventing):
        fillings = fill(catalogue, engine, states=("untranslated", "fuzzy"), aligned=engine is reversed_words)
        filled = catalogue.filled(fillings, target="de")
        again = path.with_name(f"again-{path.name}")
        again.write_bytes(_packed(again, filled))
        assert len(open_catalogue(again, languages=("en", "de")).segments) == len(catalogue.segments)


def _packed(path: Path, content: bytes) -> bytes:
    return gzip.compress(content) if path.suffix == ".gz" else content


def _use_sides(path: Path) -> None:
    for language in {*languages_of(path)} - {None} or {"en"}:
        for text in SideReader(path, language=language):
            is_text(text)


def _use_pairs(path: Path) -> None:
    for pair in PairReader(path, languages=("en", "de")):
        is_text(pair.source)
        is_text(pair.target)


def catalogues() -> dict[str, Build]:
    files = {name: text.encode() for name, text in NAMES.items()}
    files |= {
        "latin.po": LATIN,
        "packed.po.gz": gzip.compress(PO.encode(), mtime=0),
        "wide.xlf": XLIFF_1.replace("UTF-8", "UTF-16").encode("utf-16"),
        "unmarked.xlf": XLIFF_2.encode("utf-16-le"),
        "approved.xlf": APPROVED.encode(),
        "subset.tmx": DTD.encode(),
        "little.mo": compile_mo(MESSAGES),
        "big.mo": compile_mo(MESSAGES, order=">"),
    }
    uses = {"filled": _use_catalogue, "sides": _use_sides, "pairs": _use_pairs}
    return {
        f"{name} {use}": _file(name, content, read)
        for name, content in files.items()
        for use, read in uses.items()
        if not (use == "filled" and name.endswith(".mo"))
    }


def _use_lines(path: Path) -> None:
    for line in read_lines(path):
        is_text(line)
    assert read_whole(path).decode() is not None


def _use_table(path: Path) -> None:
    for row in split_rows(read_lines(path), path):
        assert len(row) == 2
        list(map(is_text, row))
    for line in open_corpus([path]):
        is_text(line.source + line.target)


def _corpus(folder: Path) -> Case:
    paths = [folder / "a.en", folder / "a.de"]
    for path, lines in zip(paths, (ENGLISH, GERMAN), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines))

    def read() -> None:
        corpus = open_corpus(paths)
        assert len(list(corpus)) == len(corpus)
        assert sum(len(block.lines()) for block in corpus.blocks()) == len(corpus)
        TextCorpus([paths[0]], unit="paragraph").require_text()

    return Case(paths[0], read)


def _use_tokens(path: Path) -> None:
    """Columns come out, can be filled, and all else is what the file holds."""
    sentences = list(TokenFile(path))
    assert "".join(sentence.text for sentence in sentences).encode() == read_whole(path)
    for sentence in sentences:
        column = sentence.layout.columns[-1]
        if column != "form":
            cells = [cell or EMPTY for cell in sentence.column(column)]
            assert list(filled(sentence, {column: cells}).column(column)) == cells


def _glossary(path: Path) -> None:
    for source, target in read_glossary(path).terms:
        is_text(source + target)
    asked = read_constraints(glossary=path, prefix=path, forbid=None, stop=None, dictionary=path)
    assert asked.glossary is not None
    asked.glossary.matches(ENGLISH[0])


def _packings() -> dict[str, Build]:
    zst = zstandard.ZstdCompressor(write_checksum=True).compress
    two: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zst}
    return {f"text{end}": _file(f"a.txt{end}", pack(TEXT) + pack(TEXT), _use_lines) for end, pack in two.items()}


def texts() -> dict[str, Build]:
    links = "".join("0-0 1?2 2-1\n" for _ in range(5))
    return {
        **_packings(),
        "corpus": _corpus,
        "table": _file(
            "a.tsv", "".join(f"{a}\t{b}\n" for a, b in zip(ENGLISH, GERMAN, strict=True)).encode(), _use_table
        ),
        "glossary": _file("a.txt", b"# terms\n\nfire engine\tFeuerwehrauto\ndog\tHund\n", _glossary),
        "treebank": _file("a.conllu", TREE, _use_tokens),
        "token columns": _file("a.txt", b"EU NNP B-ORG\nbans VBZ O\n\n# 1\nPeter NNP B-PER\r\n", _use_tokens),
        "alignment": _file("a.align", links.encode(), lambda path: read_gold(path, 5)),
        "numbered links": _file("a.wa", b"0001 1 1 S\n0002 1 2 P 0.5\n2 2 0\n", lambda path: read_gold(path, 2)),
        "questions": _file("a.txt", b": capitals\nRome Italy Paris France\nOslo Norway Rome Italy\n", read_questions),
        "judgements": _file("a.txt", b"# pairs\ncat\tdog\t7.5\ncat\tbird\t3\n", read_judgements),
        "foreign vocabulary": _file("a.txt", b"<s>\n</s>\ncat 12\ndog\t7\nbird\n", read_foreign_vocabulary),
        "settings": _file("a.yaml", to_yaml(RunConfig(), comments=True).encode(), _use_settings),
        "journal": _file("events.jsonl", _journal(), _use_journal),
    }


def _use_settings(path: Path) -> None:
    assert isinstance(resolve(RunConfig, file=path), RunConfig)


def _journal() -> bytes:
    events = [Event("step", {"step": n, "loss": 1.5 / n}) for n in range(1, 5)]
    return "".join(f"{to_json(event)}\n" for event in events).encode()


def _use_journal(path: Path) -> None:
    for event in read_events(path):
        assert isinstance(event.kind, str)
        assert isinstance(to_json(event), str)
