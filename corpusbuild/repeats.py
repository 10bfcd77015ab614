"""Repeats: which things carry the digest of an earlier one, over all parts of a build, a partition of the digests at a time.

Things are numbered in plan order. Each part first drops what repeats within it, so that no digest, however common, makes a partition large.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpusbuild import kernels, spool
from corpusbuild.minhash import I64, U64
from corpusbuild.stage import Out

DIGESTS = np.dtype([("hi", "<u8"), ("lo", "<u8"), ("at", "<u8")])
LINKS = np.dtype([("at", "<u8"), ("first", "<u8")])
TOGETHER = 1 << 20  # digests looked through at once
WORKING_BYTES = 6 * DIGESTS.itemsize  # what finding repeats holds for a digest

FIRSTS, OWN_LINKS, LINKS_BY_PART = ".firsts", ".links.npy", ".links"


def digests(hi: U64, lo: U64, at: U64) -> NDArray[Any]:
    out = np.empty(len(at), DIGESTS)
    out["hi"], out["lo"], out["at"] = hi, lo, at
    return out


def split(records: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Digests in plan order to those seen for the first time, and for each other one a link (at, first), in plan order.

    >>> firsts, links = split(digests(*np.array([[7, 8, 7], [0, 0, 0], [3, 4, 5]], np.uint64)))
    >>> firsts["at"].tolist(), links.tolist()
    ([3, 4], [(5, 3)])
    """
    first = _firsts(records["hi"], records["lo"])
    new = first == np.arange(len(records))
    links = np.empty(len(records) - np.count_nonzero(new), LINKS)
    links["at"], links["first"] = records["at"][~new], records["at"][first[~new]]
    return records[new], links


def _firsts(hi: U64, lo: U64) -> I64:
    """For each digest the index of the first that equals it."""
    if kernels.compiled():
        from corpusbuild.kernels import law as kernel

        out = np.empty(len(hi), np.int64)
        kernel.firsts(np.ascontiguousarray(hi), np.ascontiguousarray(lo), out)
        return out
    order = np.lexsort((lo, hi))
    new = np.ones(len(order), np.bool_)
    new[1:] = (hi[order][1:] != hi[order][:-1]) | (lo[order][1:] != lo[order][:-1])
    out = np.empty(len(order), np.int64)
    out[order] = order[new][np.cumsum(new) - 1]
    return out


def spread(blocks: Iterable[NDArray[Any]], bits: int, out: Out) -> None:
    """Spool the digests of one part, given in plan order in blocks, for :func:`match`."""
    own = [np.empty(0, LINKS)]
    with spool.writing(out.scratch(FIRSTS)) as firsts:
        for block in blocks:
            first, links = split(block)
            firsts.add(spool.partition_of(first["hi"], bits), first)
            own.append(links)
    with out.scratch(OWN_LINKS).open("wb") as file:
        np.save(file, np.concatenate(own))


def match(spreads: Iterable[Path], partition: int, part_firsts: U64, out: Out) -> None:
    """Link the digests of one partition over all parts; ``part_firsts`` are the numbers that parts begin with.

    ``spreads`` are the scratch files of the parts' spread tasks, less their suffix, in plan order.
    """
    _, found = split(np.concatenate([np.empty(0, DIGESTS), *_runs(spreads, partition)]))
    with spool.writing(out.scratch(LINKS_BY_PART)) as links:
        links.add(np.searchsorted(part_firsts, found["at"], side="right") - 1, found)


def links(spread: Path, matches: Sequence[Path], part: int) -> NDArray[Any]:
    """Every thing of one part that repeats an earlier one, in plan order, with the first of all that it repeats.

    ``spread`` and ``matches`` are the scratch files of the part's spread task and of all match tasks, less their suffix.
    """
    across = _in_order(np.concatenate([spool.read(_file(match, LINKS_BY_PART), part, LINKS) for match in matches]))
    within = np.load(_file(spread, OWN_LINKS))
    at = np.searchsorted(across["at"], within["first"])
    known = at < len(across)
    known[known] = across["at"][at[known]] == within["first"][known]
    within["first"][known] = across["first"][at[known]]
    return _in_order(np.concatenate([across, within]))


def _in_order(links: NDArray[Any]) -> NDArray[Any]:
    return links[np.argsort(links["at"], kind="stable")]  # of what is in order, or made of few runs that are, it takes no more than a look


def _runs(spreads: Iterable[Path], partition: int) -> Iterator[NDArray[Any]]:
    for spread in spreads:
        yield from spool.runs(_file(spread, FIRSTS), partition, DIGESTS)


def _file(task: Path, suffix: str) -> Path:
    return task.with_name(task.name + suffix)
