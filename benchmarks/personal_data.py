"""Personal data of five kinds on one core: ours, one alternation of ``re``, and presidio's recognisers of patterns where they are installed.

    python benchmarks/personal_data.py TEXT.jsonl [MEGABYTES]

``measure`` gives the seconds of each on the same texts.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec

import pyarrow as pa

from corpusbuild import kernels, machinecode, pii
from corpusbuild.texts import texts_of

ALTERNATION = re.compile(
    r"(?P<email>[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,})"
    r"|(?P<phone>(?:\+?1[ .-]?)?\(?[2-9][0-9]{2}\)?[ .-][2-9][0-9]{2}[ .-][0-9]{4})"
    r"|(?P<card>\b(?:[0-9][ -]?){12,18}[0-9]\b)"
    r"|(?P<ip>\b(?:[0-9]{1,3}\.){3}[0-9]{1,3}\b)"
)
"""Four kinds, nothing checked."""
SHARE = {"ours": 1.0, "re": 0.25, "presidio": 0.02}
"""Which share of the texts, the first of them, each is given: the slower ones would take minutes."""


def measure(texts: Sequence[str]) -> dict[str, float]:
    """Seconds of one core that each would take for all of ``texts``."""
    with kernels.using(machinecode.make_ready(print)):
        column = pa.chunked_array([pa.array(texts, pa.large_string())])
        scans: dict[str, Callable[[Sequence[str]], object]] = {
            "ours": lambda _: [pii.detect_all(block) for some in texts_of(column) for block in some.blocks()],
            "re": lambda some: [match.span() for text in some for match in ALTERNATION.finditer(text)],
        }
        if find_spec("presidio_analyzer"):
            scans["presidio"] = _presidio()
        scans["ours"](texts)  # once before the clock runs: the kernels are loaded then
        return {name: _seconds(scan, texts, SHARE[name]) for name, scan in scans.items()}


def _seconds(scan: Callable[[Sequence[str]], object], texts: Sequence[str], share: float) -> float:
    some = texts[: max(1, int(len(texts) * share))]
    began = time.process_time()
    scan(some)
    return (time.process_time() - began) * sum(map(len, texts)) / max(1, sum(map(len, some)))


def _presidio() -> Callable[[Sequence[str]], object]:
    from presidio_analyzer.predefined_recognizers import CreditCardRecognizer, EmailRecognizer, IpRecognizer, PhoneRecognizer

    recognisers = (EmailRecognizer(), PhoneRecognizer(), CreditCardRecognizer(), IpRecognizer())
    return lambda some: [r.analyze(text, r.supported_entities, None) for text in some for r in recognisers]


def main(path: str, megabytes: str = "40") -> None:
    texts, size = [], 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            texts.append(json.loads(line)["text"])
            size += len(texts[-1].encode())
            if size >= float(megabytes) * 1e6:
                break
    seconds = measure(texts)
    for name, took in seconds.items():
        print(f"{name:9} {size / took / 1e6:8.1f} MB/s {took / seconds['ours']:8.1f} x")


if __name__ == "__main__":
    main(*sys.argv[1:])
