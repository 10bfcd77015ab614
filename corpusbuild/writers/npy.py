"""A plain NumPy array of the ids: what ``numpy.load`` opens, also mapped into memory."""

from io import BytesIO

import numpy as np

from corpusbuild.writers import Out, Page, Plain, Shape, Sink


def sink(shape: Shape, out: Out) -> Sink:
    header = BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": np.lib.format.dtype_to_descr(shape.dtype), "fortran_order": False, "shape": (shape.n_tokens,)}
    )
    return Plain(out(".npy"), header.getvalue())


def index(files: list[Page]) -> bytes | None:
    return None
