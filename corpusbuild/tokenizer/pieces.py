"""SentencePiece models, through the ``sentencepiece`` library. Control pieces such as ``</s>`` are never found in a text."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from corpusbuild.errors import ConfigError
from corpusbuild.tokenizer import Encoded, Ids, each, joined, narrow, slices


class Pieces:
    losses: tuple[str, ...] = ("the model's normaliser", "unknown tokens")
    cuttable = False
    spelled: NDArray[np.unsignedinteger[Any]] | None = None

    def __init__(self, path: str, data: bytes):
        try:
            import sentencepiece
        except ImportError:
            raise ConfigError("tokenizer: this model needs the sentencepiece library: pip install 'corpusbuild[sentencepiece]'") from None
        self._model = sentencepiece.SentencePieceProcessor()
        try:
            self._model.LoadFromSerializedProto(data)
        except RuntimeError as error:
            raise ConfigError(f"tokenizer.path: {path} is not a SentencePiece model ({' '.join(str(error).split())})") from None
        self.vocab_size = int(self._model.vocab_size())
        self._dtype = narrow(self.vocab_size)
        self.unknown: int | None = int(self._model.unk_id())
        self.special_tokens = tuple(str(self._model.id_to_piece(i)) for i in range(self.vocab_size) if self._model.is_control(i))

    def encode(self, texts: pa.Array) -> Encoded:
        return joined([self._encode(one) for one in slices(texts)])

    def _encode(self, texts: pa.Array) -> Encoded:
        found = self._model.encode(texts.to_pylist(), out_type=int, num_threads=1, add_bos=False, add_eos=False, enable_sampling=False)
        return each([np.array(ids, self._dtype) for ids in found])

    def decode(self, ids: Ids) -> str:
        return str(self._model.decode(ids.tolist()))
