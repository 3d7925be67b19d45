"""Folders as transformers publishes models, of well-known shapes, with random weights and small tokenisers.

    marian   OPUS-MT: 6 + 6 layers, width 512, feed-forward 2,048, 58,101 symbols, SiLU; two SentencePiece models
    gpt2     GPT-2 small: 12 layers, width 768, 50,257 symbols; byte pairs
    minilm   MiniLM: BERT of 6 layers, width 384, 12 heads, 30,522 symbols, mean pooling; a sentence-transformers folder

Tokenisers are trained on the given text and filled up to their size with pieces that no text has. CTranslate2's own
converter makes its model of the same folder.
"""

import argparse
import json
from pathlib import Path

import ctranslate2
import sentencepiece
import torch
import transformers
from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer

PIECES = 4_000
"""Of a tokeniser that is trained here."""
SPREAD = 0.1
"""Of random embeddings: large enough for outputs that differ from line to line."""


def make_marian(out: Path, texts: list[Path]) -> None:
    symbols = 58_101
    pieces: dict[str, None] = dict.fromkeys(["</s>", "<unk>"])
    out.mkdir()
    for side, text in zip(("source", "target"), texts, strict=True):
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(out / side), vocab_size=PIECES, minloglevel=2, num_threads=1
        )
        (out / f"{side}.model").rename(out / f"{side}.spm")
        model = sentencepiece.SentencePieceProcessor(model_file=str(out / f"{side}.spm"))
        pieces |= dict.fromkeys(model.id_to_piece(number) for number in range(3, PIECES))
    pieces |= dict.fromkeys(f"▁unused{number}" for number in range(symbols - 1 - len(pieces)))
    (out / "vocab.json").write_text(json.dumps({piece: id for id, piece in enumerate([*pieces, "<pad>"])}))
    tokenizer = transformers.MarianTokenizer(
        source_spm=str(out / "source.spm"),
        target_spm=str(out / "target.spm"),
        vocab=str(out / "vocab.json"),
        source_lang="en",
        target_lang="de",
    )
    tokenizer.save_pretrained(out)
    layers = {"layers": 6, "attention_heads": 8, "ffn_dim": 2048}
    config = transformers.MarianConfig(
        vocab_size=symbols,
        d_model=512,
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in layers.items()},
        activation_function="swish",
        scale_embedding=True,
        max_position_embeddings=512,
        eos_token_id=0,
        pad_token_id=symbols - 1,
        decoder_start_token_id=symbols - 1,
        forced_eos_token_id=None,
    )
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        model.model.shared.weight.mul_(SPREAD / config.init_std)
        # The table is also that of the output: with plain norms a random model would repeat its last symbol forever.
        model.model.decoder.layers[-1].final_layer_norm.weight.normal_()
    model.generation_config = transformers.GenerationConfig(
        num_beams=4,
        bad_words_ids=[[symbols - 1]],
        eos_token_id=0,
        pad_token_id=symbols - 1,
        decoder_start_token_id=symbols - 1,
    )
    model.save_pretrained(out)


def make_gpt2(out: Path, texts: list[Path]) -> None:
    symbols, end = 50_257, "<|endoftext|>"
    trained = ByteLevelBPETokenizer()
    trained.train([str(text) for text in texts], vocab_size=PIECES, show_progress=False)
    out.mkdir()
    trained.save_model(str(out))
    vocabulary = json.loads((out / "vocab.json").read_text())
    for number in range(symbols - 1 - len(vocabulary)):
        vocabulary[f"Ġunused{number}"] = len(vocabulary)
    vocabulary[end] = symbols - 1
    (out / "vocab.json").write_text(json.dumps(vocabulary))
    tokenizer = transformers.GPT2Tokenizer(vocab=str(out / "vocab.json"), merges=str(out / "merges.txt"))
    tokenizer.save_pretrained(out)
    transformers.GPT2LMHeadModel(transformers.GPT2Config(initializer_range=SPREAD)).eval().save_pretrained(out)


def make_minilm(out: Path, texts: list[Path]) -> None:
    import sentence_transformers  # takes a while

    symbols, part = 30_522, out.with_name(f"{out.name}-part")
    trained = BertWordPieceTokenizer()
    trained.train([str(text) for text in texts], vocab_size=PIECES, show_progress=False)
    part.mkdir()
    trained.save_model(str(part))
    pieces = (part / "vocab.txt").read_text(encoding="utf-8").splitlines()
    pieces += [f"[unused{number}]" for number in range(symbols - len(pieces))]
    (part / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")
    transformers.BertTokenizer(vocab=str(part / "vocab.txt")).save_pretrained(part)
    config = transformers.BertConfig(
        vocab_size=symbols, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    transformers.BertModel(config).eval().save_pretrained(part)
    # Of a folder without modules.json it makes a model with mean pooling.
    sentence_transformers.SentenceTransformer(str(part), device="cpu").save(str(out))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["marian", "gpt2", "minilm"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    given = parser.parse_args()
    torch.manual_seed(1)
    {"marian": make_marian, "gpt2": make_gpt2, "minilm": make_minilm}[given.kind](given.out, given.texts)
    if given.kind != "minilm":
        ctranslate2.converters.TransformersConverter(str(given.out)).convert(f"{given.out}-ctranslate2")


if __name__ == "__main__":
    main()
