"""From plain text to a denoiser, and from a denoiser to a translator: trained, used, adapted, refused."""

import gzip
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from published_folders import write_t5_folder
from seqloom import load
from seqloom.cli.main import app
from seqloom.core.config import resolve
from seqloom.core.declaration import TextFacts
from seqloom.core.errors import ConfigError, DataError, ModelError, UsageError
from seqloom.core.events import read_events
from seqloom.core.symbols import RESERVED
from seqloom.runs import denoising
from seqloom.runs.config import RunConfig
from seqloom.runs.model_dir import read_card
from seqloom.runs.train import Trained, resume, train
from seqloom.training.weights import weights_of
from tiny_runs import write_corpus

SIZES = ("model.width=16", "model.feed_forward=16", "model.encoder_layers=1", "model.decoder_layers=1", "model.heads=2")
FEW = ("training.save_every=1", "training.validate_every=1", "training.average=1", "evaluation.resamples=40")
TINY = ("task.kind=denoising", "text.size=200", "task.tokens_per_batch=512", *SIZES, *FEW, "training.warmup=2")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """English and German lines, not in the same order."""
    folder = tmp_path_factory.mktemp("text")
    (english, german), _ = write_corpus(folder)
    lines = Path(german).read_text(encoding="utf-8").splitlines()
    Path(german).write_text("".join(f"{line}\n" for line in reversed(lines)), encoding="utf-8")
    return english, german


@pytest.fixture(scope="module")
def trunk(tmp_path_factory: pytest.TempPathFactory, texts: tuple[str, str]) -> Path:
    run = tmp_path_factory.mktemp("runs") / "trunk"
    files = [word for text in texts for word in ("--train", text)]
    few = ["training.steps=40", "training.save_every=40", "training.validate_every=20", "training.learning_rate=0.01"]
    result = CliRunner().invoke(app, ["train", *files, "--out", str(run), *TINY, *few])
    assert result.exit_code == 0, result.output
    assert "perplexity/restored token" in result.output
    assert f"training.start_from={run / 'model'}" in result.output
    return run


def test_texts_become_a_denoiser_that_commands_take_or_refuse(trunk: Path, tmp_path: Path) -> None:
    loaded = load(trunk)
    tokenizer, frame = loaded.tokenizers.target, loaded.config.model.frame  # type: ignore[union-attr]
    assert tokenizer.vocabulary[len(RESERVED) :][:3] == ("<language en>", "<language de>", "<hidden token>")
    assert (frame.scheme, frame.languages) == ("before", {"en": 4, "de": 5})
    card = read_card(trunk / "model")
    assert [score["name"] for score in card.scores] == ["perplexity/restored token"]
    assert card.trained_on["target_tokens"] > 0
    # Lines of both languages are held out.
    assert len((trunk / "data" / "dev.txt").read_text().splitlines()) == 24

    info = CliRunner().invoke(app, ["info", str(trunk)])
    assert info.exit_code == 0, info.output
    assert CliRunner().invoke(app, ["pack", str(trunk), str(tmp_path / "trunk.zip")]).exit_code == 0
    assert load(tmp_path / "trunk.zip").config.purpose == "denoiser"
    for command in ("translate", "serve"):
        refused = CliRunner().invoke(app, [command, str(trunk)], input="The dog sleeps.\n").exception
        assert isinstance(refused, UsageError)
        assert ": it is a denoiser of kind transformer; use seqloom train training.start_from=MODEL" in str(refused)


@pytest.mark.slow
def test_a_denoiser_keeps_the_promises_of_a_translator(trunk: Path) -> None:
    result = CliRunner().invoke(app, ["selfcheck", str(trunk), "--count", "3"])
    assert result.exit_code == 0, result.output


def first_loss(trained: Trained | None) -> float:
    assert trained is not None
    events = read_events(trained.run / "events.jsonl")
    return next(float(event["loss"]) for event in events if event.kind == "validation")  # type: ignore[arg-type]


def test_a_translator_starts_from_it_with_its_pieces_and_a_lower_loss(
    trunk: Path, texts: tuple[str, str], corpus: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    pairs, dev = corpus
    options = ["train", "--train", ",".join(pairs), "--dev", ",".join(dev), "training.steps=1", *FEW]
    adapted = CliRunner().invoke(app, [*options, f"training.start_from={trunk}", "--out", str(tmp_path / "adapted")])
    assert adapted.exit_code == 0, adapted.output
    loaded, before = load(tmp_path / "adapted"), load(trunk)
    assert loaded.config.task.kind == "translation"
    assert loaded.tokenizers == before.tokenizers
    frame, model = loaded.config.model.frame, loaded.config.model  # type: ignore[union-attr]
    assert (frame.source, frame.target) == ("en", "de")
    assert model.absent == (4, 5, 6)  # type: ignore[union-attr]
    assert model.dropout_rate == 0.3  # type: ignore[union-attr]
    # One step has moved the weights a little.
    change = [
        float((a - b).abs().max())
        for a, b in zip(weights_of(loaded.model).values(), weights_of(before.model).values(), strict=True)
    ]
    assert 0 < max(change) < 0.02

    scratch = train(
        None, ["training.steps=1", "text.size=200", *SIZES, *FEW], out=tmp_path / "new", train=pairs, dev=dev
    )
    events = read_events(tmp_path / "adapted" / "events.jsonl")
    started = next(float(event["loss"]) for event in events if event.kind == "validation")  # type: ignore[arg-type]
    assert started < first_loss(scratch) - 0.3

    # The other direction, by the languages of the files; and a trunk that does not fit.
    back = train(
        None,
        ["training.steps=1", *FEW, f"training.start_from={trunk}"],
        out=tmp_path / "back",
        train=pairs[::-1],
        dev=dev[::-1],
    )
    assert back is not None
    turned = load(back.model).config.model.frame  # type: ignore[union-attr]
    assert (turned.source, turned.target) == ("de", "en")
    wider = CliRunner().invoke(
        app, [*options, f"training.start_from={trunk}", "model.width=32", "--out", str(tmp_path / "wide")]
    )
    assert isinstance(wider.exception, ModelError)  # exit code 4
    assert "cannot be the start of this model" in str(wider.exception)
    assert "encoder.embedding.weight is 200 × 16 in place of 200 × 32" in str(wider.exception)
    assert not (tmp_path / "wide").exists()


def test_a_resumed_run_has_the_same_bits(texts: tuple[str, str], tmp_path: Path) -> None:
    settings = [*TINY, "training.schedule=constant", "task.noise.kind=spans", "model.kind=t5", "model.head_size=8"]
    whole = train(None, [*settings, "training.steps=4"], out=tmp_path / "whole", train=texts)
    train(None, [*settings, "training.steps=2"], out=tmp_path / "parts", train=texts)
    parts = resume(tmp_path / "parts", ["training.steps=4"], exact=True)
    assert whole is not None
    assert parts is not None
    first, second = (weights_of(load(each.model).model) for each in (whole, parts))
    assert all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    assert "noise:spans|hidden:0.15|span:3" in whole.scores[0].signature
    with pytest.raises(UsageError, match=r"task\.noise\.kind is \"spans\" in .* and cannot become \"infilling\""):
        resume(tmp_path / "parts", ["task.noise={kind: infilling}"])


def test_questions_and_answers_are_read_from_lines_with_a_tab(tmp_path: Path) -> None:
    table = tmp_path / "questions.tsv"
    rows = [f"who reads book {n} ?\tthe man reads book {n} ." for n in range(40)]
    table.write_text("".join(f"{row}\n" for row in rows))
    settings = [*TINY, "task.noise.kind=question_answer", "training.steps=2"]
    found = train(None, settings, out=tmp_path / "run", train=[str(table)])
    assert found is not None
    assert found.scores[0].signature.startswith("unit:token")
    assert "noise:question_answer|hidden:0.15|windows:lines" in found.scores[0].signature
    table.write_text("".join(f"{row}\n" for row in [*rows, "who ?"]))
    result = CliRunner().invoke(app, ["train", "--train", str(table), "--out", str(tmp_path / "bad"), *settings])
    assert isinstance(result.exception, DataError)  # exit code 3
    assert f"{table}:41: expected a question, a tab and its answer, found 'who ?'" in str(result.exception)
    assert not (tmp_path / "bad").exists()


def test_a_published_t5_is_trained_further_with_its_own_sentinels(texts: tuple[str, str], tmp_path: Path) -> None:
    folder = write_t5_folder(tmp_path / "t5")
    compressed = tmp_path / "text.en.gz"
    compressed.write_bytes(gzip.compress(Path(texts[0]).read_bytes()))
    settings = ["task.kind=denoising", "task.noise.kind=spans", f"training.start_from={folder}", *FEW]
    found = train(None, [*settings, "training.steps=2"], out=tmp_path / "run", train=[str(compressed)])
    assert found is not None
    assert load(found.model).tokenizers.target.kind == "published"
    # It has no mask, and no symbols of languages.
    with pytest.raises(UsageError, match="has no mask symbol"):
        train(None, [*settings, "task.noise.kind=infilling"], out=tmp_path / "no", train=[str(compressed)])


def test_sizes_are_those_of_a_translator_with_as_many_pairs_and_little_dropout() -> None:
    config = resolve(RunConfig, overrides=["task.kind=denoising"])
    sizing = denoising.sizes_for(config, TextFacts(58_000, characters=4_000_000, words=750_000))
    chosen = sizing.defaults
    assert (chosen["model"]["width"], chosen["text"]["size"], chosen["model"]["dropout_rate"]) == (128, 8000, 0.1)
    assert chosen["task"] == {"kind": "denoising", "tokens_per_batch": 4096}
    assert sizing.summary.startswith("58,000 lines, about ")
    shown = CliRunner().invoke(app, ["config", "task.kind=denoising", "model.kind=t5"])
    assert shown.exit_code == 0, shown.output
    assert "kind: infilling" in shown.output


def test_what_cannot_be_trained_is_refused_by_name(trunk: Path, texts: tuple[str, str], tmp_path: Path) -> None:
    def refusal(*settings: str, files: tuple[str, ...] = texts) -> str:
        with pytest.raises((UsageError, ConfigError)) as caught:
            train(None, settings, out=tmp_path / "run", train=files)
        assert not (tmp_path / "run").exists()
        return str(caught.value)

    nameless, french = tmp_path / "text.txt", tmp_path / "text.fr"
    for path in (nameless, french):
        path.write_bytes(Path(texts[0]).read_bytes())
    message = refusal("task.kind=denoising", files=(*texts, str(nameless)))
    assert f"the language of {nameless} is unknown, and other texts are in en and de; name all files" in message
    message = refusal(f"training.start_from={trunk}", files=(str(french), texts[1]))
    assert "was trained on texts in en, de, but the pairs are in fr and de; give the right ones" in message
    message = refusal(f"training.start_from={trunk}", "task.kind=denoising", files=(str(french),))
    assert f"{french} is in fr, and the model has symbols of en, de" in message
    message = refusal(f"training.start_from={trunk}", "task.kind=denoising", "task.noise.kind=spans")
    assert "has 0 of the 13 sentinels" in message
    assert "question_answer reads a question and its answer in each line and cannot be combined with" in refusal(
        "task.kind=denoising", "task.noise.kind=question_answer", "task.windows=packed"
    )
    assert "a model of kind gpt is made for" in refusal("task.kind=denoising", "model.kind=gpt")
