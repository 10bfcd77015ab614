"""Make for language-model training corpora: one content-addressed directory a step, and an answer for every document."""

__version__ = "0.1.0"
