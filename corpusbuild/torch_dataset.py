"""Batches of token ids as a torch ``IterableDataset``: the same batches in the same order, whatever the number of workers."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed
import torch.utils.data

from corpusbuild.batches import Tokens


class Tensors(NamedTuple):
    """A ``Batch`` of which each array is a tensor."""

    tokens: Any
    targets: Any
    positions: Any = None
    segments: Any = None


class TokenBatches(torch.utils.data.IterableDataset):  # type: ignore[misc]  # torch is not typed here
    """``Tokens.batches`` as tensors, for a ``DataLoader`` with ``batch_size=None``; its arguments are those of ``Tokens.batches``.

    Without ``rank`` and ``world_size`` they are those of ``torch.distributed``, where that has been initialized. Of ``n`` workers of a loader
    each reads every n-th batch, and the loader takes them in turn. A worker runs ahead of the training, so where the training stands is told by
    who trains: ``state_dict(steps)`` is the state after so many batches of a loader that began where the dataset stands.
    """

    def __init__(self, tokens: Tokens, split: str = "train", **how: Any):
        if "rank" not in how and "world_size" not in how and torch.distributed.is_available() and torch.distributed.is_initialized():
            how |= {"rank": torch.distributed.get_rank(), "world_size": torch.distributed.get_world_size()}
        self.batches = tokens.batches(split, **how)

    def __iter__(self) -> Iterator[Tensors]:
        """The batches from where the dataset stands, which stays there: a second pass gives the same."""
        worker = torch.utils.data.get_worker_info()
        step, stride = (0, 1) if worker is None else (worker.id, worker.num_workers)
        while (batch := self.batches.ahead(step)) is not None:
            yield Tensors(*(None if values is None else torch.from_numpy(values) for values in batch))
            step += stride

    def state_dict(self, steps: int) -> dict[str, Any]:
        """Where to go on after ``steps`` batches."""
        return self.batches.state_dict(steps)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a ``state_dict`` in every loader that is made, or begun, after this. ``ConfigError`` when it is of other batches."""
        self.batches.load_state_dict(state)
