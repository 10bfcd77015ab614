"""A shuffle of the numbers below n that is computed, not stored: any place of it is found alone."""

import hashlib

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 8


def shuffled(places: NDArray[np.int64], n: int, *key: int) -> NDArray[np.int64]:
    """What stands at each of ``places`` when the numbers 0 to n - 1 are shuffled by ``key``, the same on every machine.

    A Feistel network permutes the numbers below a power of four that is less than 4n; from a number that is not below n one goes on to what it
    stands for until one is. That needs no memory that grows with n. ``ValueError`` when a place is not within [0, n).

    >>> shuffled(np.arange(6), 6, 1).tolist(), shuffled(np.array([5]), 6, 1).tolist()
    ([0, 3, 2, 1, 5, 4], [4])
    """
    if len(places) and not 0 <= places.min() <= places.max() < n:
        raise ValueError(f"places {places.min()} to {places.max()} are not within [0, {n})")
    half = max(1, ((n - 1).bit_length() + 1) // 2)
    digest = hashlib.blake2b(",".join(map(str, key)).encode(), digest_size=8 * _ROUNDS).digest()
    keys = np.frombuffer(digest, "<u8").astype(np.uint64)
    found = _network(places.astype(np.uint64), keys, half)
    while (beyond := np.flatnonzero(found >= n)).size:
        found[beyond] = _network(found[beyond], keys, half)
    return found.astype(np.int64)


def _network(values: NDArray[np.uint64], keys: NDArray[np.uint64], half: int) -> NDArray[np.uint64]:
    width = np.uint64(half)
    left, right = values >> width, values & np.uint64((1 << half) - 1)
    for key in keys:
        left, right = right, left ^ (_mixed(right ^ key) >> np.uint64(64 - half))
    return (left << width) | right


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of splitmix64, which lets every bit depend on every bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
