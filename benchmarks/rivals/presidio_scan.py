"""Personal data of the same kinds by presidio's recognisers of patterns, without a language model: two processes, JSON Lines in, spans out.

    python presidio_scan.py CORPUS.jsonl SPANS.jsonl

Prints ``{"seconds", "found"}`` as ``re_scan.py`` does.
"""

import json

import tldextract

tldextract.extract = tldextract.TLDExtract(
    suffix_list_urls=()
)  # the list of domains that it carries: it would ask the network for another one first

from presidio_analyzer import Pattern, PatternRecognizer  # noqa: E402 - after the list of domains is settled
from presidio_analyzer.predefined_recognizers import CreditCardRecognizer, EmailRecognizer, IpRecognizer, PhoneRecognizer  # noqa: E402
from re_scan import run  # noqa: E402 - after the list of domains is settled

KEY = r"(?:AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36,}|sk-[A-Za-z0-9_-]{20,}|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[\w-]{35})"
RECOGNISERS = (
    EmailRecognizer(), CreditCardRecognizer(), IpRecognizer(), PhoneRecognizer(),
    PatternRecognizer("KEY", patterns=[Pattern("key", KEY, 0.9)]),
)  # fmt: skip


def scan(lines):
    out = []
    for line in lines:
        row = json.loads(line)
        for recogniser in RECOGNISERS:
            for found in recogniser.analyze(row["text"], recogniser.supported_entities, None):
                out.append({"id": row["id"], "kind": found.entity_type, "start": found.start, "end": found.end})
    return out


if __name__ == "__main__":
    run(scan)
