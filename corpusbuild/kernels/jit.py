"""The compiler of the kernels, the only module that knows it.

A kernel states the types that it takes, so that importing its module compiles it, or loads what was compiled before; nothing compiles in the middle of
a build, and a wrong type is an error rather than a second version.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from corpusbuild import kernels


@contextmanager
def _no_scipy() -> Iterator[None]:
    """The compiler asks scipy, where there is one, for a linear algebra that no kernel uses, and loading that takes longer than all the rest."""
    if "scipy" in sys.modules:
        yield
        return
    sys.modules["scipy"] = cast(Any, None)
    try:
        yield
    finally:
        del sys.modules["scipy"]


with _no_scipy():
    import numba
    from numba.core.registry import cpu_target

    cpu_target.typing_context.refresh()  # else at the first kernel
    cpu_target.target_context.refresh()

F = TypeVar("F", bound=Callable[..., Any])

numba.config.CACHE_DIR = kernels.folder()  # type: ignore[attr-defined]  # made by its module at run time


_INSIDE: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def kernel(signature: str) -> Callable[[F], F]:
    """Compile a function for these argument types, once for this machine. It holds no lock while it runs and checks no index."""
    return cast(Callable[[F], F], numba.njit(signature, cache=True, nogil=True, error_model="numpy"))


def part(signature: str) -> Callable[[F], F]:
    """A kernel that only kernels call, which takes less time to compile: no way into it from Python is made."""
    return cast(Callable[[F], F], numba.njit(signature, cache=True, nogil=True, error_model="numpy", **_INSIDE))


def inlined(function: F) -> F:
    """A part of kernels, compiled into each that calls it."""
    return cast(F, numba.njit(inline="always", error_model="numpy")(function))
