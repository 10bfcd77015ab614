"""Small tokenizers of every kind, made by their own libraries from a few sentences."""

import base64
import hashlib
import io
from pathlib import Path

from corpusbuild.tokenizer import Spec

SENTENCES = (
    "the cat sat on the mat and the dog sat on the log",
    "where the café is, the naïve reader's hat isn't: 12345 67890!",
    "def f(x):\n    return x + 1\n",
    "Ünïcödé 😀 日本語 текст",
) * 5


def spec(path, kind, **more):
    return Spec(kind=kind, path=str(path), sha256=hashlib.sha256(Path(path).read_bytes()).hexdigest(), **more)


def huggingface(folder, special=("<|endoftext|>",), normalizer=None, before=None, added=()):
    """A byte-level BPE with control tokens, and the library's own tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = before or pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    if normalizer is not None:
        made.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=list(special), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    made.train_from_iterator(SENTENCES, trainer)
    made.add_tokens(list(added))
    made.save(str(folder / "tokenizer.json"))
    return spec(folder / "tokenizer.json", "huggingface"), made


def words(folder):
    """A tokenizer of whole words, which knows few."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({"[UNK]": 0, "the": 1, "cat": 2, "sat": 3}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(folder / "tokenizer.json"))
    return spec(folder / "tokenizer.json", "huggingface"), made


def rank_lines(ranks):
    return b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())


RANKS = {bytes([b]): b for b in range(256)} | {t: 256 + i for i, t in enumerate((b"th", b"the", b" the", b"at", b" c", b" cat", b"12"))}


def rank_file(folder, pattern="gpt2", special=()):
    import tiktoken

    from corpusbuild.tokenizer.ranks import pattern_of

    (folder / "small.tiktoken").write_bytes(rank_lines(RANKS))
    library = tiktoken.Encoding("small", pat_str=pattern_of(pattern), mergeable_ranks=RANKS, special_tokens=dict(special))
    return spec(folder / "small.tiktoken", "tiktoken", pattern=pattern, special_tokens=tuple(special)), library


def pieces(folder):
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES), model_writer=model, vocab_size=100, hard_vocab_limit=False, minloglevel=2, num_threads=1
    )
    (folder / "tokenizer.model").write_bytes(model.getvalue())
    return spec(folder / "tokenizer.model", "sentencepiece"), sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
