"""How fast a download is verified and durable, against what people use, from a local nginx in the same run.

Needs nginx, curl, openssl and aria2c (apt-get install nginx-light curl openssl aria2). Run: ``python benchmarks/fetch.py [--megabytes 1000] [--rounds 3]``.
Rounds alternate between ours and the peer, and the best of each counts; each starts with an empty folder and ends with ``sync`` of what it wrote.
Claims: one file at no less than 0.9 of ``curl | tee | openssl``; 200 files no slower than ``aria2c -j8`` (which verifies the digests too); less than
150 MB resident.
"""

import argparse
import asyncio
import hashlib
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from corpusbuild.fetch import world_of
from corpusbuild.transfer import How, Wanted, obtain

NGINX = """
worker_processes 2; daemon off; pid {home}/pid; error_log {home}/error.log;
events {{ worker_connections 256; }}
http {{ access_log off; sendfile on; client_body_temp_path {home}/b; proxy_temp_path {home}/p; fastcgi_temp_path {home}/f; uwsgi_temp_path {home}/u;
scgi_temp_path {home}/s; server {{ listen 127.0.0.1:{port}; root {home}/www; }} }}
"""


async def ours(urls: list[str], digests: list[str], folder: Path, connections: int) -> None:
    room = asyncio.Semaphore(8)
    async with world_of(How(connections=connections), environment={}) as world:

        async def one(url: str, digest: str) -> None:
            async with room:
                wanted = Wanted("s", url.rsplit("/", 1)[1], digest, None, (url,))
                got = await obtain(wanted, folder, folder / "quarantine", world)
                assert got.path is not None

        async with asyncio.TaskGroup() as group:
            for url, digest in zip(urls, digests, strict=True):
                group.create_task(one(url, digest))


def child(page: str) -> None:
    order = json.loads(Path(page).read_text())
    since = time.perf_counter()
    asyncio.run(ours(order["urls"], order["digests"], Path(order["folder"]), order["connections"]))
    seconds = time.perf_counter() - since
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024]))


def run_ours(urls: list[str], digests: list[str], home: Path, connections: int = 1) -> tuple[float, int]:
    """Seconds, interpreter start not counted (nor is aria2c's), and bytes resident at most."""
    folder = fresh(home / "ours")
    page = home / "order.json"
    page.write_text(json.dumps({"urls": urls, "digests": digests, "folder": str(folder), "connections": connections}))
    out = subprocess.run([sys.executable, __file__, "--child", str(page)], check=True, capture_output=True, text=True).stdout
    seconds, most = json.loads(out)
    return seconds, most


def run_curl(url: str, digest: str, home: Path) -> float:
    folder = fresh(home / "peer")
    since = time.perf_counter()
    command = f"set -o pipefail; curl -sS --fail {url} | tee {folder}/file | openssl dgst -sha256 -r"
    out = subprocess.run(["bash", "-c", command], check=True, capture_output=True, text=True).stdout
    assert out.startswith(digest)
    subprocess.run(["sync", f"{folder}/file", str(folder)], check=True)
    return time.perf_counter() - since


def run_aria2(urls: list[str], digests: list[str], home: Path) -> float:
    folder = fresh(home / "peer")
    listing = home / "aria2.txt"
    listing.write_text("".join(f"{u}\n  checksum=sha-256={d}\n" for u, d in zip(urls, digests, strict=True)))
    since = time.perf_counter()
    command = ["aria2c", "-j8", "-x1", "-i", str(listing), "-d", str(folder), "--check-integrity=true", "--file-allocation=none", "-q"]
    subprocess.run(command, check=True)
    subprocess.run(["sync", *map(str, folder.iterdir()), str(folder)], check=True)
    return time.perf_counter() - since


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.sync()
    return folder


def write_random(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("wb") as f:
        while size:
            block = os.urandom(min(size, 1 << 22))
            digest.update(block)
            f.write(block)
            size -= len(block)
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", default=None, help="where to work; by default the system's temporary folder")
    parser.add_argument("--child", default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args.child)
        return
    for tool in ("nginx", "curl", "openssl", "aria2c"):
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is needed: apt-get install nginx-light curl openssl aria2")
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        home = Path(name)
        home.chmod(0o755)
        (home / "www").mkdir()
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        (home / "nginx.conf").write_text(NGINX.format(home=home, port=port))
        large = write_random(home / "www/large", args.megabytes * 10**6)
        small = [write_random(home / f"www/{i}", 5 * 10**6) for i in range(args.files)]
        server = subprocess.Popen(["nginx", "-c", str(home / "nginx.conf")], stderr=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            compare(f"http://127.0.0.1:{port}", large, small, home, args)
        finally:
            server.terminate()
            server.wait()


def compare(base: str, large: str, small: list[str], home: Path, args: argparse.Namespace) -> None:
    urls = [f"{base}/{i}" for i in range(len(small))]
    one, many, ranged, curl, aria, resident = [], [], [], [], [], 0
    for _ in range(args.rounds):
        curl.append(run_curl(f"{base}/large", large, home))
        seconds, most = run_ours([f"{base}/large"], [large], home)
        one.append(seconds)
        resident = max(resident, most)
        ranged.append(run_ours([f"{base}/large"], [large], home, connections=4)[0])
        aria.append(run_aria2(urls, small, home))
        seconds, most = run_ours(urls, small, home)
        many.append(seconds)
        resident = max(resident, most)
    size = args.megabytes
    print(
        f"one file of {size} MB   curl|tee|openssl+sync {min(curl):.2f} s ({size / min(curl):.0f} MB/s)   ours {min(one):.2f} s ({size / min(one):.0f} MB/s)"
    )
    print(f"                        ratio {min(curl) / min(one):.2f} (claimed 0.90); 4 connections {min(ranged):.2f} s")
    print(
        f"{len(small)} files of 5 MB      aria2c -j8 + sync {min(aria):.2f} s   ours {min(many):.2f} s   ratio {min(aria) / min(many):.2f} (claimed 1.00)"
    )
    print(f"resident at most        {resident / 1e6:.0f} MB (claimed 150)")
    if min(curl) / min(one) < 0.9 or min(many) > min(aria) or resident > 150e6:
        sys.exit("a claim does not hold")


if __name__ == "__main__":
    main()
