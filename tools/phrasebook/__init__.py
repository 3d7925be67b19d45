"""The grammar behind the corpus inside the package: one abstract syntax with a linearisation per language."""
