"""Whether ids stand for as many bytes as their texts have."""

from typing import Any

from numpy.typing import NDArray

from corpusbuild.kernels.jit import kernel


@kernel("int64(uint32[::1], uint32[::1], int64[::1], int64[::1])")
def first_misspelled(spelled: NDArray[Any], ids: NDArray[Any], offsets: NDArray[Any], sizes: NDArray[Any]) -> int:
    """The first text of which the ids' bytes do not sum up to its size; -1 where all do. Every id is below ``len(spelled)``."""
    for text in range(len(sizes)):
        found = 0
        for i in range(offsets[text], offsets[text + 1]):
            found += spelled[ids[i]]
        if found != sizes[text]:
            return text
    return -1
