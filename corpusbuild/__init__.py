"""Make for language-model training corpora: one content-addressed directory a step, and an answer for every document."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from corpusbuild.batches import tokens as tokens
    from corpusbuild.cli import build as build
    from corpusbuild.corpus import Corpus as Corpus
    from corpusbuild.corpus import open as open

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """``corpusbuild.open``, ``Corpus``, ``tokens`` and ``build``, imported when they are asked for: most that import the package read no corpus."""
    if name in ("Corpus", "open"):
        from corpusbuild import corpus

        return getattr(corpus, name)
    if name == "tokens":
        from corpusbuild import batches

        return batches.tokens
    if name == "build":
        import importlib

        return importlib.import_module("corpusbuild.cli").build
    raise AttributeError(f"module 'corpusbuild' has no attribute {name!r}")
