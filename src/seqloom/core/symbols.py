"""The reserved symbols: the first four ids of every vocabulary."""

PAD = 0
BEGIN = 1
END = 2
UNKNOWN = 3

RESERVED = ("<pad>", "<s>", "</s>", "<unk>")
"""How the reserved symbols are written, in the order of their ids."""
