"""Croissant: what a corpus is, for tools that look for data sets (the JSON-LD format of MLCommons, version 1.0). It holds no date and no address."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
PARQUET = "application/x-parquet"

CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    **{
        name: f"cr:{name}"
        for name in (
            "citeAs", "column", "equivalentProperty", "extract", "field", "fileProperty", "fileObject", "fileSet", "format", "includes",
            "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex", "repeated", "replace",
            "samplingRate", "separator", "source", "subField", "transform",
        )
    },
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
}  # fmt: skip
"""The vocabulary, as the format fixes it."""

FIELDS = {
    "id": "The document's id: its source and its place in it.",
    "text": "The text.",
    "source_id": "The source's id.",
    "url": "The file that the document comes from, and where in it.",
    "license_spdx": "The licence of the source, an SPDX expression.",
    "lang": "The language by its stop words, two letters, or und.",
    "n_chars": "Code points of the text.",
    "minhash_cluster": "The smallest row of the corpus in the document's cluster of near duplicates.",
    "pii_redactions": "Placeholders that stand for personal data.",
    "split": "train or val.",
}
"""The columns that every shard has, but for sha256: it holds bytes, for which the format has no type."""


def croissant(
    dataset: str, version: str, manifest: Mapping[str, Any], columns: pa.Schema, sizes: Mapping[str, int], licences: Iterable[str]
) -> dict[str, Any]:
    """The page of a corpus: its shards with their digests, and its documents as records. ``sizes`` has the bytes of each shard,
    ``licences`` an address for each licence of a text in it."""
    shards = [
        {
            "@type": "cr:FileObject",
            "@id": shard["name"],
            "name": shard["name"],
            "contentUrl": shard["name"],
            "contentSize": f"{sizes[shard['name']]} B",
            "encodingFormat": PARQUET,
            "sha256": shard["sha256"],
        }
        for shard in manifest["shards"]
    ]
    every = {"@type": "cr:FileSet", "@id": "shards", "name": "shards", "encodingFormat": PARQUET, "includes": "shard-*.parquet"}
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": dataset,
        "version": version,
        "description": f"A text corpus of {manifest['n_docs']} documents for training language models. DATASHEET.md beside this page says how "
        "it was made, ATTRIBUTION.md what is owed to whom.",
        "license": list(licences),
        "distribution": [*shards, every],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "documents",
                "name": "documents",
                "description": "One record a document.",
                "key": {"@id": "documents/id"},
                "field": _fields(columns),
            }
        ],
    }


def _fields(columns: pa.Schema) -> Sequence[dict[str, Any]]:
    return [
        {
            "@type": "cr:Field",
            "@id": f"documents/{column.name}",
            "name": column.name,
            "description": FIELDS.get(column.name, "Kept from the source as it came, as text."),
            "dataType": "sc:Text" if pa.types.is_string(column.type) else f"cr:{str(column.type).capitalize()}",
            "source": {"fileSet": {"@id": "shards"}, "extract": {"column": column.name}},
        }
        for column in columns
        if not pa.types.is_binary(column.type)
    ]
