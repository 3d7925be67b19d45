"""Our tokenisers as `tokenizer.json`, which the tokenizers library and transformers read.

    normaliser     our rule, step by step, then the signs of `text.marks`: ▁ for spaces, ￭ where a mark touches a word
    pre-tokeniser  where pieces may not be joined
    model          BPE (bpe; char is one without merges), Unigram (unigram) or WordLevel (word), with our ids
    post-processor the end after each text
    decoder        the reverse

The ids are those of ours, with these exceptions: unknown characters beside those of a typed reserved symbol (`</s>`) in
the unigram model, where one unknown symbol may become two, runs of more than 200 combining marks, and characters
younger than one of the Unicode tables.
"""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as FastTokenizer

from seqloom.core.errors import UsageError
from seqloom.core.files import write_atomically
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED, UNKNOWN
from seqloom.text.marks import BYTE_PIECES, JOINER, SPACE, UNKNOWN_SIGN, UNSPACED
from seqloom.text.normalise import NO_BREAKS
from seqloom.text.tokenizer import Tokenizer

_WHITE_SPACE = (
    r"[\x{0}-\x{20}\x{7f}-\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+"  # and control
)
_LETTER, _DIGIT = r"\p{L}\p{M}\x{200c}\x{200d}", r"\p{N}"
_MARK = rf"[^{_LETTER}{_DIGIT} '’.,{JOINER}]"
"""A sign that is never inside a word; apostrophes are between letters, points and commas between digits."""


def write_tokenizer(folder: Path, tokenizer: Tokenizer, *, positions: int) -> None:
    """Write tokenizer.json, tokenizer_config.json and special_tokens_map.json into an existing folder."""
    fast = fast_tokenizer(tokenizer)
    names = {
        "pad_token": fast.id_to_token(PAD),
        "bos_token": fast.id_to_token(BEGIN),
        "eos_token": fast.id_to_token(END),
        "unk_token": fast.id_to_token(UNKNOWN),
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **names,
        "clean_up_tokenization_spaces": False,
        # A reserved symbol that is typed stays text.
        "split_special_tokens": True,
        "model_max_length": positions,
    }
    write_atomically(folder / "tokenizer.json", fast.to_str(pretty=True) + "\n")
    write_atomically(folder / "tokenizer_config.json", _written(config))
    write_atomically(folder / "special_tokens_map.json", _written(names))


def fast_tokenizer(tokenizer: Tokenizer) -> FastTokenizer:
    """The same tokeniser in the other library."""
    if tokenizer.kind == "word" and tokenizer.config.segmentation == "characters":
        raise UsageError("a model with text.segmentation=characters cannot be exported; train it with text.kind=bpe")
    pieces = [*_reserved_names(tokenizer), *tokenizer.vocabulary[len(RESERVED) :]]
    fast = FastTokenizer(_model(tokenizer, pieces))
    steps = [*_normalising(tokenizer), *_marking(tokenizer)]
    fast.normalizer = normalizers.Sequence(steps)
    splits = _splits(tokenizer)
    if splits:
        fast.pre_tokenizer = pre_tokenizers.Sequence(splits)
    fast.post_processor = processors.TemplateProcessing(
        single=f"$A {pieces[END]}", pair=f"$A $B {pieces[END]}", special_tokens=[(pieces[END], END)]
    )
    fast.decoder = decoders.Sequence(_joining(tokenizer, unknown=pieces[UNKNOWN]))
    fast.add_special_tokens([AddedToken(piece, normalized=False, special=True) for piece in pieces[: len(RESERVED)]])
    return fast


def _reserved_names(tokenizer: Tokenizer) -> list[str]:
    """How reserved symbols are written there: a word that is written alike has an id of its own, so they give way."""
    words = set(tokenizer.vocabulary[len(RESERVED) :])
    return [f"{name}\N{SYMBOL FOR UNIT SEPARATOR}" if name in words else name for name in RESERVED]


# --- models -----------------------------------------------------------------------------------------------------------


def _model(tokenizer: Tokenizer, pieces: list[str]) -> Any:
    ids = {piece: number for number, piece in enumerate(pieces)}
    has_bytes = tokenizer.config.byte_fallback
    if tokenizer.kind == "word":
        return models.WordLevel(ids, unk_token=pieces[UNKNOWN])
    if tokenizer.kind == "char":
        return models.BPE(ids, [], unk_token=pieces[UNKNOWN], byte_fallback=has_bytes)
    if tokenizer.kind == "bpe":
        return FastTokenizer.from_str(tokenizer.content.decode("utf-8")).model
    return models.Unigram(_scored(tokenizer, pieces), unk_id=UNKNOWN, byte_fallback=has_bytes)


def _scored(tokenizer: Tokenizer, pieces: list[str]) -> list[tuple[str, float]]:
    """The pieces of a unigram model with their scores.

    There, reserved symbols and bytes are pieces of text like any other. A text that spells one does not mean it, so
    they cost more than their characters one by one. This makes unknown characters dearer as well, which changes
    nothing: no piece contains one, so all ways to cut a text have the same number of them.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.content)
    leading = _leading(tokenizer)
    scores = [processor.get_score(number) for number in range(leading, len(pieces))]
    never = (max(map(len, BYTE_PIECES)) + 1) * min([*scores, -1.0])
    return [*((piece, never) for piece in pieces[:leading]), *zip(pieces[leading:], scores, strict=True)]


def _leading(tokenizer: Tokenizer) -> int:
    """How many ids are reserved symbols and bytes; they are the first."""
    return len(RESERVED) + (len(BYTE_PIECES) if tokenizer.config.byte_fallback else 0)


# --- from text to pieces ----------------------------------------------------------------------------------------------


def _normalising(tokenizer: Tokenizer) -> list[Any]:
    """`Normaliser`, step by step."""
    rule = tokenizer.normaliser
    steps: list[Any] = [normalizers.Replace(mark, "") for mark in NO_BREAKS]
    forms: dict[str, list[Any]] = {"none": [], "nfc": [normalizers.NFC()], "nfkc": [normalizers.NFKC()]}
    form = forms[rule.form]
    steps += form
    if rule.lowercase:
        # At the end of a word a small sigma has another form.
        final_sigma = normalizers.Replace(Regex(r"(?<=\p{L})Σ(?!\p{L})"), "ς")
        steps += [final_sigma, normalizers.Lowercase(), *form]
    steps += [normalizers.Replace(Regex(_WHITE_SPACE), " "), normalizers.Strip()]
    if rule.space_before_punctuation:
        steps.append(normalizers.Replace(Regex(r"(?<=[^ ])(?=[,.!?])"), " "))
    return steps


def _marking(tokenizer: Tokenizer) -> list[Any]:
    """The signs for spaces and joins. Those that the text has itself become control characters, as ours do."""
    if tokenizer.kind == "word":
        if tokenizer.config.segmentation == "spaces":
            # A word that is written like a reserved symbol is unknown, unless the vocabulary has it.
            typed = "|".join(set(RESERVED) - set(tokenizer.vocabulary[len(RESERVED) :])) or r"(?!)"
            unknown = _reserved_names(tokenizer)[UNKNOWN]
            return [normalizers.Replace(Regex(rf"(?<![^ ])(?:{typed})(?![^ ])"), unknown)]
        after = "|".join(
            (
                rf"(?<={_MARK})(?=[{_LETTER}{_DIGIT}])",
                rf"(?<=['’])(?=[{_DIGIT}])",
                rf"(?<![{_LETTER}]['’])(?<=['’])(?=[{_LETTER}])",
                rf"(?<=[.,])(?=[{_LETTER}])",
                rf"(?<![{_DIGIT}][.,])(?<=[.,])(?=[{_DIGIT}])",
            )
        )
        before = "|".join(
            (
                rf"(?<=[^ ])(?={_MARK})",
                rf"(?<=[^ {_LETTER}])(?=['’])|(?<=[{_LETTER}])(?=['’](?![{_LETTER}]))",
                rf"(?<=[^ {_DIGIT}])(?=[.,])|(?<=[{_DIGIT}])(?=[.,](?![{_DIGIT}]))",
            )
        )
        return [
            normalizers.Replace(JOINER, "\x1a"),
            normalizers.Replace(Regex(after), f"{JOINER} "),
            normalizers.Replace(Regex(before), f" {JOINER}"),
        ]
    steps = [normalizers.Replace(sign, hidden) for sign, hidden in _HIDDEN] + [normalizers.Replace(" ", SPACE)]
    if tokenizer.kind == "char":
        return steps
    return [*steps, normalizers.Prepend(SPACE), normalizers.Replace(Regex(rf"\A{SPACE}(?=[{UNSPACED}])"), "")]


_HIDDEN = ((SPACE, "\x1a"), ("\u2585", "\x1b"))


def _splits(tokenizer: Tokenizer) -> list[Any]:
    if tokenizer.kind == "word":
        return [pre_tokenizers.Split(" ", behavior="removed")]
    if tokenizer.kind == "bpe":
        return [FastTokenizer.from_str(tokenizer.content.decode("utf-8")).pre_tokenizer]
    if tokenizer.kind == "char":
        return []
    splits = [pre_tokenizers.Split(Regex(rf"{SPACE}?[^{SPACE}]+"), behavior="isolated")]
    typed = _typed_with_unknown(tokenizer)
    return [*splits, pre_tokenizers.Split(Regex(typed), behavior="isolated")] if typed else splits


def _typed_with_unknown(tokenizer: Tokenizer) -> str:
    """A pattern of the first unknown character of each reserved symbol or byte that is typed, empty if all are known.

    What contains an unknown character cannot be made dearer than its characters. But no piece crosses that place, so
    the text can be cut there.
    """
    leading = _leading(tokenizer)
    known = set(tokenizer.vocabulary[leading:])
    rests = defaultdict(list)
    for symbol in tokenizer.vocabulary[:leading]:
        place = next((place for place, character in enumerate(symbol) if character not in known), None)
        if place is not None:
            rests[symbol[:place], symbol[place]].append(symbol[place + 1 :])
    return "|".join(rf"(?<={before}){unknown}(?={'|'.join(after)})" for (before, unknown), after in rests.items())


# --- from pieces to text ----------------------------------------------------------------------------------------------


def _joining(tokenizer: Tokenizer, *, unknown: str) -> list[Any]:
    shown = decoders.Replace(Regex(rf"\A{unknown}\z"), UNKNOWN_SIGN)
    # Control characters of the output become spaces, but for those that stand for signs.
    white_space = _WHITE_SPACE.replace(r"\x{0}-\x{20}", r"\x{0}-\x{19}\x{1c}-\x{20}")
    tidy = [decoders.Replace(Regex(white_space), " "), decoders.Replace(Regex(r"\A | \z"), "")]
    if tokenizer.kind == "word":
        spaced = [shown, decoders.Replace(Regex(r"\A"), " "), decoders.Fuse()]
        if tokenizer.config.segmentation == "spaces":
            return [*spaced, *tidy]
        touching = decoders.Replace(Regex(rf"{JOINER} {JOINER}|{JOINER} | {JOINER}|{JOINER}\z"), "")
        return [*spaced, touching, *tidy, decoders.Replace("\x1a", JOINER)]
    has_start = [] if tokenizer.kind == "char" else [decoders.Replace(Regex(rf"\A{SPACE}"), "")]
    shows = [decoders.Replace(hidden, sign) for sign, hidden in _HIDDEN]
    spaces = decoders.Replace(SPACE, " ")
    return [shown, decoders.ByteFallback(), decoders.Fuse(), *has_start, spaces, *tidy, *shows]


def _written(values: dict[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"
