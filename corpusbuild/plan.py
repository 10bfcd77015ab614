"""The pipeline, in the order it runs. Pure: from a configuration to steps whose keys are known before anything runs."""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from corpusbuild import minhash, pii, sources
from corpusbuild.config import Loaded
from corpusbuild.hashing import build_id, key_digest
from corpusbuild.model import Key
from corpusbuild.settings import bytes_of
from corpusbuild.stage import Stage, Step
from corpusbuild.stages import (
    decontaminate,
    earlier,
    exact_dedup,
    fetch,
    filter,
    ledger,
    near_dedup,
    rails,
    scrub,
    shard,
    sign,
    tokenize,
    train_tokenizer,
)

ORIGIN = {
    "fetch": "sources",
    "filter": "filters",
    "decontaminate": "decontam",
    "scrub": "sources",
    "earlier": "dedup",
    "sign": "dedup",
    "exact_dedup": "dedup",
    "near_dedup": "dedup",
    "rails": "dedup",
    "shard": "shard",
    "ledger": "policy",
    "train_tokenizer": "tokenizer.train",
    "tokenize": "tokenizer",
}
"""Where in a configuration a stage's parameters come from, for a person who is told that one changed."""


@dataclass(frozen=True)
class Plan:
    """The steps of one configuration, each after those that it takes."""

    name: str
    id: str
    """``corpus/<dataset>/<version>/<first 12 hex of the configuration's hash>``."""
    loaded: Loaded
    steps: tuple[Step, ...]

    def step_id(self, step: Step) -> str:
        """What a step is called outside: ``<id>/<stage>`` or ``<id>/<stage>:<source>``."""
        return f"{self.id}/{step.label}"

    def step(self, label: str) -> Step:
        return next(step for step in self.steps if step.label == label)

    @property
    def corpus(self) -> Step:
        """The step whose entry is the corpus."""
        return self.step("ledger")

    @property
    def tokens(self) -> Step | None:
        return next((step for step in self.steps if step.label == "tokenize"), None)


def step_key(stage: Stage, params: Any, inputs: Mapping[str, tuple[Step, ...]]) -> Key:
    """The key of a stage applied to parameters and inputs; it exists before anything runs."""
    return Key(
        key_digest(
            "step",
            stage.name,
            stage.version,
            msgspec.to_builtins(stage.names_output(params)),
            {role: [s.key for s in by] for role, by in inputs.items() if by},
        )
    )


def plan(loaded: Loaded) -> Plan:
    corpus = loaded.corpus
    on = corpus.stages
    steps: list[Step] = []

    def step(stage: Stage, params: Any, inputs: Mapping[str, tuple[Step, ...]], source: str = "", follows: tuple[Step, ...] = ()) -> Step:
        label = f"{stage.name}:{source}" if source else stage.name
        steps.append(Step(stage, params, inputs, step_key(stage, params, inputs), label, source, follows))
        return steps[-1]

    raw, documents, decontaminated, scrubbed, signs = [], [], [], [], []
    last: list[Step] = []  # of each source, the last step that decided about its documents
    for source, rules in zip(loaded.sources, loaded.filters, strict=True):
        raw.append(Step(fetch.STAGE, source, {}, sources.fetch_key(source), f"fetch:{source.id}", source.id, ()))
        steps.append(raw[-1])
        filtering = filter.Params(
            source=source.id,
            limits=rules if on.filter else None,
            lid=loaded.lid if on.filter and rules.lang_model == "lid" else None,
            plugins={name: loaded.plugins[name] for name in rules.functions()} if on.filter else {},
            folder=loaded.project,
            limit=loaded.limit,
            unicode=unicodedata.unidata_version,
        )
        documents.append(step(filter.STAGE, filtering, {"raw": (raw[-1],)}, source.id, () if loaded.limit else (raw[-1],)))
        last.append(documents[-1])
        removed: tuple[Step, ...] = ()
        if on.decontaminate and loaded.protected:
            params = decontaminate.Params(source=source.id, protected=loaded.protected, ngram=corpus.decontam.ngram)
            decontaminated.append(step(decontaminate.STAGE, params, {"documents": (documents[-1],)}, source.id, (last[-1],)))
            removed, last[-1] = (decontaminated[-1],), decontaminated[-1]
        if on.scrub:
            policy = scrub.Params(
                source=source.id,
                policy=source.pii_policy,  # type: ignore[arg-type]  # checked by the configuration
                pii=scrub.Search(kinds=_kinds(loaded), validators=loaded.pii_validators),
            )
            scrubbed.append(step(scrub.STAGE, policy, {"documents": (documents[-1],), "removed": removed}, source.id, (last[-1],)))
            last[-1] = scrubbed[-1]
        if on.exact_dedup or on.near_dedup:
            signs.append(step(sign.STAGE, _sign_params(loaded), {"documents": (documents[-1],)}, source.id, (documents[-1],)))

    every = {"documents": tuple(documents), "decontaminate": tuple(decontaminated), "scrub": tuple(scrubbed)}
    before, before_signs = [], []
    for published in loaded.against if on.exact_dedup or on.near_dedup else ():
        before.append(step(earlier.STAGE, published, {}, published.name))
        before_signs.append(step(sign.STAGE, _sign_params(loaded), {"documents": (before[-1],)}, published.name, (before[-1],)))
    compared = {
        "documents": tuple(documents),
        "signs": tuple(signs),
        "removed": (*decontaminated, *scrubbed),
        "earlier": tuple(before),
        "earlier_signs": tuple(before_signs),
    }
    exact: tuple[Step, ...] = ()
    near: tuple[Step, ...] = ()
    if on.exact_dedup:
        exact = (
            step(
                exact_dedup.STAGE,
                exact_dedup.ExactParams(bloom_bytes_per_item=corpus.dedup.bloom_bytes_per_item),
                compared,
                follows=tuple(last),
            ),
        )
        last = list(exact)
    if on.near_dedup:
        params_near = near_dedup.NearParams(
            sign=_sign_params(loaded), jaccard_threshold=corpus.dedup.jaccard_threshold, max_bucket=corpus.dedup.max_bucket
        )
        near = (step(near_dedup.STAGE, params_near, {**compared, "exact": exact}, follows=tuple(last)),)
        last = list(near)
    every = {**every, "exact": exact, "near": near}
    if exact or near:
        limits = rails.Params(max_removed=_max_removed(loaded))
        last = [
            step(
                rails.STAGE,
                limits,
                {"documents": tuple(documents), "earlier": tuple(before), "exact": exact, "near": near},
                follows=tuple(last),
            )
        ]
    shards = step(shard.STAGE, _shard_params(loaded), every, follows=tuple(last))
    gate = step(ledger.STAGE, _ledger_params(loaded), {**every, "raw": tuple(raw), "shard": (shards,)}, follows=(shards,))
    if on.tokenize:
        trained: tuple[Step, ...] = ()
        if (train := corpus.tokenizer.train) is not None:
            params_train = train_tokenizer.Params(vocab_size=train.vocab_size, sample_bytes=bytes_of(train.sample))
            trained = (step(train_tokenizer.STAGE, params_train, {"corpus": (gate,)}),)
        step(tokenize.STAGE, _tokenize_params(loaded), {"corpus": (gate,), "tokenizer": trained}, follows=(gate,))
    return Plan(loaded.name, build_id(corpus.dataset, corpus.version, loaded.sha256), loaded, tuple(steps))


def _urls(source: sources.Source) -> tuple[str, ...]:
    return tuple(f.url for f in source.files) or (source.url,)


def _sign_params(loaded: Loaded) -> minhash.SignParams:
    dedup = loaded.corpus.dedup
    return minhash.SignParams(num_perm=dedup.num_perm, bands=dedup.bands, shingle=dedup.shingle, seed=dedup.seed)


def _kinds(loaded: Loaded) -> tuple[str, ...]:
    """The kinds of personal data in use, in one order, whatever the configuration's."""
    return tuple(kind for kind in pii.ALL_KINDS if kind in loaded.corpus.pii.kinds)


def _max_removed(loaded: Loaded) -> dict[str, float]:
    """How much of each source may go. One that may be empty may lose all."""
    common = loaded.corpus.dedup.max_removed
    return {s.id: 1.0 if s.allow_empty else common if s.max_removed is None else s.max_removed for s in loaded.corpus.sources}


def _shard_params(loaded: Loaded) -> shard.Params:
    corpus, dedup = loaded.corpus, loaded.corpus.dedup
    return shard.Params(
        dataset=corpus.dataset,
        version=corpus.version,
        sharding=corpus.shard,
        sources=tuple(
            shard.ShardSource(
                id=s.id,
                urls=_urls(s),
                license_spdx=s.license_spdx,
                keep=s.keep,
                named=s.id_field is not None,
                allow_empty=declared.allow_empty,
            )
            for s, declared in zip(loaded.sources, corpus.sources, strict=True)
        ),
        dedup={
            "jaccard_threshold": dedup.jaccard_threshold,
            "num_perm": dedup.num_perm,
            "bands": dedup.bands,
            "ngram": corpus.decontam.ngram,
        },
        pii=_kinds(loaded),
    )


def _ledger_params(loaded: Loaded) -> ledger.Params:
    corpus = loaded.corpus
    return ledger.Params(
        dataset=corpus.dataset,
        version=corpus.version,
        use=corpus.use,
        sources=tuple(
            ledger.LedgerSource(
                id=s.id,
                urls=_urls(s),
                sha256=tuple(f.sha256 for f in s.files) or (s.sha256,),
                license_spdx=s.license_spdx,
                allowed_uses=s.allowed_uses,
                pii_policy=s.pii_policy,
                credit=declared.credit or "",
                notice=notice,
                revoked=(why := _revocation(s, loaded.revoked)) is not None,
                notes=why or "",
            )
            for s, declared, notice in zip(loaded.sources, corpus.sources, loaded.notices, strict=True)
        ),
        policy=loaded.policy,
        settings=_settings(loaded),
    )


def _revocation(source: sources.Source, revoked: Mapping[str, str]) -> str | None:
    """Why a source was taken back, by its id or by the digest of a file; None when it was not."""
    return next((revoked[name] for name in (source.id, source.sha256, *(f.sha256 for f in source.files)) if name in revoked), None)


def _settings(loaded: Loaded) -> dict[str, Any]:
    """What was set for each stage that ran, for the datasheet."""
    corpus = loaded.corpus
    rules, dedup = corpus.filters, corpus.dedup
    against = ", ".join(f"{p.dataset} {p.version}" for p in loaded.against)
    settings: dict[str, Any] = {
        "filter": {
            "min_chars": rules.min_chars,
            "max_chars": rules.max_chars,
            "langs": " ".join(rules.langs),
            "lang_min_conf": rules.lang_min_conf,
            "lang_model": loaded.lid if rules.lang_model == "lid" else "stop-word vote",
            **msgspec.to_builtins(rules.gopher),
            "repetition_n": rules.repetition.n,
            "repetition_max_frac": rules.repetition.max_frac,
            **({"rules": " ".join(rules.rules)} if rules.rules else {}),
        },
        "decontaminate": f"{corpus.decontam.ngram}-gram overlap with protected files ({len(loaded.protected)})",
        "scrub": f"per source, see the ledger; {', '.join(_kinds(loaded))}",
        "exact_dedup": "paragraphs, first occurrence kept" + (f"; not in {against}" if against else ""),
        "near_dedup": {
            "jaccard_threshold": dedup.jaccard_threshold,
            "num_perm": dedup.num_perm,
            "bands": dedup.bands,
            "shingle": dedup.shingle,
            **({"against": against} if against else {}),
        },
        "tokenize": _tokenize_settings(loaded),
    }
    on = msgspec.to_builtins(corpus.stages) | {"decontaminate": corpus.stages.decontaminate and bool(loaded.protected)}
    return {stage: value for stage, value in settings.items() if on[stage]}


def _tokenize_settings(loaded: Loaded) -> dict[str, Any]:
    config, settings = loaded.corpus.tokenizer, {"tokenizer": loaded.corpus.tokenizer.id}
    if config.shuffle is not None:
        settings["shuffle"] = f"by {config.shuffle.unit}, seed {config.shuffle.seed}"
    if config.sequence_length is not None:
        settings["packing"] = f"{config.packing or 'concatenate'} into sequences of {config.sequence_length}"
    if loaded.mix is not None:
        asked = {name: share.tokens or f"{share.weight:g}" for name, share in loaded.mix.items()}
        settings["mix"] = " ".join(f"{name} {amount}" for name, amount in asked.items())
    return settings


def _tokenize_params(loaded: Loaded) -> tokenize.Params:
    corpus = loaded.corpus
    return tokenize.Params(
        dataset=corpus.dataset,
        version=corpus.version,
        id=corpus.tokenizer.id,
        tokenizer=loaded.tokenizer,
        doc_sep_id=loaded.doc_sep_id,
        max_file_tokens=corpus.tokenizer.max_file_tokens,
        on_special=corpus.tokenizer.on_special,
        max_unknown=corpus.tokenizer.max_unknown,
        formats=tuple(sorted(corpus.tokenizer.formats)),
        shuffle=corpus.tokenizer.shuffle,
        packing=_packing(loaded),
        mix=loaded.mix,
    )


def _packing(loaded: Loaded) -> tokenize.Packing | None:
    config = loaded.corpus.tokenizer
    if config.sequence_length is None:
        return None
    pad = next((id for id in (config.pad_id, loaded.doc_sep_id) if id is not None), 0)
    return tokenize.Packing(sequence_length=config.sequence_length, method=config.packing or "concatenate", pad_id=pad)
