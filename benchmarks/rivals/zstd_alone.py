"""A file compressed with zstd at level 3, two threads, and nothing else.

    python zstd_alone.py FILE FILE.zst

Prints ``{"seconds"}``.
"""

import json
import os
import sys
import time

import zstandard

CHUNK = 1 << 22

if __name__ == "__main__":
    source, target = sys.argv[1:]
    began = time.perf_counter()
    with open(source, "rb") as file, open(target, "wb") as out:
        zstandard.ZstdCompressor(level=3, threads=2).copy_stream(file, out, size=os.path.getsize(source), read_size=CHUNK, write_size=CHUNK)
    print(json.dumps({"seconds": time.perf_counter() - began}))
    os.unlink(target)
