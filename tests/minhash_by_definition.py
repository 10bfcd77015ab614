"""MinHash as its definition reads: one document, one number after another, no arrays."""

import re

from corpusbuild.minhash import SignParams, pcg32

M32, M64 = 2**32 - 1, 2**64 - 1


def mix(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & M64
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & M64
    return h ^ h >> 33


def fnv1a(text: str) -> int:
    h = 0xCBF29CE484222325
    for c in text:
        h = (h ^ ord(c)) * 0x100000001B3 & M64
    return h


def words(text: str) -> list[str]:
    return re.findall(r"\w+", "".join(c.lower() if len(c.lower()) == 1 else c for c in text))


def shingle_set(text: str, width: int) -> list[int]:
    hashes = [mix(fnv1a(word)) for word in words(text)]
    windows = [hashes[i : i + width] for i in range(len(hashes) - width + 1)] or ([hashes] if hashes else [])
    shingles = set()
    for window in windows:
        g = 0
        for w in window:
            g = (g * 0x9E3779B97F4A7C15 + w) & M64
        shingles.add(mix(g))
    return sorted(shingles)


def signature(shingles: list[int], params: SignParams) -> list[int]:
    rng = pcg32(params.seed)
    out = []
    for _ in range(params.num_perm):
        a, b = next(rng) | 1, next(rng)
        values = [(a * (s >> 32) + b) & M32 for s in shingles]
        out.append(min((v ^ v >> 15 for v in values), default=M32))
    return out


def band_keys(signature: list[int], bands: int) -> list[int]:
    rows = len(signature) // bands
    keys = []
    for band in range(bands):
        h = (band + 1) * 0x9E3779B97F4A7C15 & M64
        for m in signature[band * rows : (band + 1) * rows]:
            h = mix(h ^ m)
        keys.append(h)
    return keys


def digest(shingles: list[int]) -> bytes:
    first, second = sum(map(mix, shingles)) & M64, sum(mix(s + 0x9E3779B97F4A7C15 & M64) for s in shingles) & M64
    return first.to_bytes(8, "big") + second.to_bytes(8, "big")
