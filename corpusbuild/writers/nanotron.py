"""nanotron's token files, as datatrove writes and reads them.

``.ds`` is the ids and nothing else, two or four bytes each; ``.ds.index`` the ends of its documents, counted in ids, as little-endian uint64;
``.ds.metadata`` three lines: the tokenizer's name, ``|`` and the bytes of an id; the number of ids; the same for people.
"""

import numpy as np

from corpusbuild.writers import Out, Page, Plain, Shape, Sink


def sink(shape: Shape, out: Out) -> Sink:
    with out(".ds.index").open("wb") as file:
        for ends in shape.runs():
            file.write(ends.astype("<u8").tobytes())
    out(".ds.metadata").write_text(f"{shape.tokenizer}|{shape.dtype.itemsize}\n{shape.n_tokens}\n{_for_people(shape.n_tokens)}")
    return Plain(out(".ds"))


def index(files: list[Page]) -> bytes | None:
    return None


def _for_people(n: int) -> str:
    """
    >>> _for_people(999), _for_people(2771014)
    ('999 T', '2.77 MT')
    """
    power = min((len(str(n)) - 1) // 3, 4)
    return f"{np.format_float_positional(n / 1000**power, 3, unique=False, fractional=False, trim='-')} {' kMGT'[power].strip()}T"
