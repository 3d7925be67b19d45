"""What an exported model can do without: the symbols that a published one reads around its texts."""

from seqloom.core.errors import ModelError
from seqloom.models.transformer import Transformer


def require_plain_frame(model: Transformer, program: str) -> None:
    """Refuse a model that reads languages or an instruction around its texts, which an exported one would not."""
    if model.framing.around or model.framing.hidden_steps:
        raise ModelError(
            f"this model reads symbols around its texts (languages, an instruction), with which it cannot be exported "
            f"to {program}; translate with Seqloom itself, or use --to huggingface"
        )
