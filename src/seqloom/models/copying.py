"""The setting of models that copy symbols of their source (`nn.pointer`), shared by encoder-decoders."""

import warnings

from seqloom.core.declaration import ModelSettings
from seqloom.core.errors import ConfigError
from seqloom.nn.embeddings import Symbols

with warnings.catch_warnings():
    # Pydantic warns that the setting hides an old method of its own, which is not used here.
    warnings.filterwarnings("ignore", message='Field name "copy"')

    class CopyOptions(ModelSettings):
        """Settings of a model that may copy."""

        copy: bool = False  # type: ignore[assignment]
        """Whether symbols may be copied from the source: a gate mixes the softmax over the vocabulary with an attention
        over the source (See et al., 2017). Needs one vocabulary for both sides."""

        def check_copied(self, symbols: Symbols) -> None:
            """Refuse to copy symbols that mean something else on the other side."""
            if self.copy and not symbols.is_shared:
                raise ConfigError(
                    "model.copy=true copies symbols of the source into the target, but the two sides have "
                    "vocabularies of their own; set text.shared=true for a joint vocabulary"
                )
