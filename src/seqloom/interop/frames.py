"""What an exported model can do without: symbols that a published one reads around its texts, layers of T5, windows."""

from seqloom.core.errors import ModelError
from seqloom.models.transformer import Transformer
from seqloom.nn.blocks import RMSNorm


def require_plain_frame(model: Transformer, program: str) -> None:
    """Refuse a model that reads languages or an instruction around its texts, which an exported one would not, or that
    has the layers of T5 or a window of attention."""
    if model.pointer is not None:
        raise ModelError(f"a model with model.copy cannot be exported to {program}; translate with Seqloom itself")
    if model.encoder.layers[0].self.window is not None:
        raise ModelError(
            f"a model with model.attention_window cannot be exported to {program}; translate with Seqloom itself"
        )
    if any(isinstance(module, RMSNorm) for module in model.modules()):
        raise ModelError(
            f"a T5 cannot be exported to {program} here; translate with Seqloom itself, or use --to huggingface if it "
            "was imported"
        )
    if model.framing.around or model.framing.hidden_steps:
        raise ModelError(
            f"this model reads symbols around its texts (languages, an instruction), with which it cannot be exported "
            f"to {program}; translate with Seqloom itself, or use --to huggingface"
        )
