"""Seqloom: train, measure, compare and look into sequence models.

from seqloom import Translator
translator = Translator.load("run/model")
translator.translate(["Guten Morgen."])

from seqloom import LanguageModel
model = LanguageModel.load("language-model/model")
model.generate("The old man")[0].text

from seqloom import Aligner
aligner = Aligner.load("aligner-de-en")
aligner.align(["Guten Morgen."], ["Good morning."])

from seqloom import Encoder
encoder = Encoder.load("all-MiniLM-L6-v2")
encoder.encode(["The old man reads."])

from seqloom import Classifier
classifier = Classifier.load("reviews/model")
classifier.classify(["A delightful film."])[0].label

from seqloom import Tagger
tagger = Tagger.load("tagger/model")
tagger.tag(["The old man reads."])[0]["upos"]

from seqloom import Forecaster
forecaster = Forecaster.load("load/model")
forecaster.forecast("load.csv", steps=96).values

from seqloom import Summariser
summariser = Summariser.load("papers/model")
summariser.summarise(["It rained. The game was cancelled."])[0].text

from seqloom import Transcriber
transcriber = Transcriber.load("digits/model")
transcriber.transcribe(["four-two.wav"])[0].text

from seqloom import Captioner
captioner = Captioner.load("scenes/model")
captioner.caption(["scene.png"])[0].text
"""

from typing import TYPE_CHECKING, Any

import seqloom.core.openmp  # noqa: F401 - first, because it decides how threads wait before torch is imported
from seqloom.version import __version__

if TYPE_CHECKING:
    from seqloom.apps.aligner import Aligner
    from seqloom.apps.captioner import Captioner
    from seqloom.apps.classifier import Classifier
    from seqloom.apps.encoder import Encoder
    from seqloom.apps.forecaster import Forecaster
    from seqloom.apps.language_model import LanguageModel
    from seqloom.apps.summariser import Summariser
    from seqloom.apps.tagger import Tagger
    from seqloom.apps.transcriber import Transcriber
    from seqloom.apps.translator import Translator
    from seqloom.classical.vectors import WordVectors
    from seqloom.core.errors import SeqloomError
    from seqloom.runs.loading import load_any as load
    from seqloom.runs.train import resume, train
    from seqloom.search.settings import SearchConfig

__all__ = [
    "Aligner",
    "Captioner",
    "Classifier",
    "Encoder",
    "Forecaster",
    "LanguageModel",
    "SearchConfig",
    "SeqloomError",
    "Summariser",
    "Tagger",
    "Transcriber",
    "Translator",
    "WordVectors",
    "__version__",
    "load",
    "resume",
    "train",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Import public names on first use: importing seqloom alone does not import torch."""
    if name == "Aligner":
        from seqloom.apps.aligner import Aligner

        return Aligner
    if name == "Captioner":
        from seqloom.apps.captioner import Captioner

        return Captioner
    if name == "Classifier":
        from seqloom.apps.classifier import Classifier

        return Classifier
    if name == "load":
        from seqloom.runs.loading import load_any

        return load_any
    if name == "resume":
        from seqloom.runs.train import resume

        return resume
    if name == "train":
        from seqloom.runs.train import train

        return train
    if name == "Encoder":
        from seqloom.apps.encoder import Encoder

        return Encoder
    if name == "Forecaster":
        from seqloom.apps.forecaster import Forecaster

        return Forecaster
    if name == "LanguageModel":
        from seqloom.apps.language_model import LanguageModel

        return LanguageModel
    if name == "SearchConfig":
        from seqloom.search.settings import SearchConfig

        return SearchConfig
    if name == "SeqloomError":
        from seqloom.core.errors import SeqloomError

        return SeqloomError
    if name == "Summariser":
        from seqloom.apps.summariser import Summariser

        return Summariser
    if name == "Tagger":
        from seqloom.apps.tagger import Tagger

        return Tagger
    if name == "Transcriber":
        from seqloom.apps.transcriber import Transcriber

        return Transcriber
    if name == "Translator":
        from seqloom.apps.translator import Translator

        return Translator
    if name == "WordVectors":
        from seqloom.classical.vectors import WordVectors

        return WordVectors
    raise AttributeError(f"module 'seqloom' has no attribute {name!r}; it has {', '.join(__all__)}")
