"""Union by minimum over an array: the root of a component is its smallest member, in whatever order edges come."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Parents = NDArray[Any]
"""``parents[x] <= x`` stands in the component of ``x``; a root is its own parent."""


def singles(n: int) -> Parents:
    return np.arange(n, dtype=np.uint32 if n <= 2**32 else np.uint64)


def roots(parents: Parents, of: NDArray[Any]) -> NDArray[Any]:
    """The root of each of ``of``. Shortens the way for the next who asks.

    >>> parents = singles(4)
    >>> union(parents, np.array([3, 2]), np.array([2, 1]))
    >>> roots(parents, np.array([0, 3])).tolist()
    [0, 1]
    """
    at: Parents = parents[of]
    while not np.array_equal(above := parents[at], at):
        at = above
    parents[of] = at
    return at


def union(parents: Parents, u: NDArray[Any], v: NDArray[Any]) -> None:
    """Join the components of each ``u[i]`` and ``v[i]``."""
    while len(u):
        u, v = roots(parents, u), roots(parents, v)
        apart = u != v
        u, v = np.minimum(u[apart], v[apart]), np.maximum(u[apart], v[apart])
        parents[v] = u  # of several edges at one root the last is taken; the others are apart still, and come round again
