"""A small Transformer learns the Chinese sentences of the lecture notes by heart, among others of the phrasebook."""

from pathlib import Path

import pytest

import seqloom
from seqloom.data.phrasebook import note_pairs, sample_pairs


@pytest.mark.slow
def test_the_notes_are_translated_from_chinese_after_overfitting(tmp_path: Path) -> None:
    notes = [("今天 天气 很 好", "Today's weather is good."), ("今天天气很好。", "Today's weather is good.")]
    notes += [(pair.source, pair.target) for pair in note_pairs("zh", "en")]
    pairs = [*notes, *((pair.source, pair.target) for pair in sample_pairs("zh", "en", count=100, seed=1))]
    files = []
    for side, language in enumerate(("zh", "en")):
        path = tmp_path / f"notes.{language}"
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
        files.append(str(path))
    trained = seqloom.train(
        overrides=[
            *("model.kind=transformer", "model.width=64", "model.heads=4", "model.feed_forward=128"),
            *("model.encoder_layers=2", "model.decoder_layers=2", "model.dropout_rate=0"),
            *("text.kind=char", "text.shared=false", "model.tying=output", "data.longest=200"),
            *("training.steps=350", "training.warmup=50", "training.validate_every=50", "task.label_smoothing=0"),
        ],
        train=files,
        dev=files,
        out=tmp_path / "run",
    )
    assert trained is not None
    texts = seqloom.Translator.load(trained.model).translate([source for source, _ in notes])
    assert list(texts) == [target for _, target in notes]
