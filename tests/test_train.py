"""A small model learns from the sample's tokens with torch, which reads the ids that plain numpy reads; and what the page on training shows runs."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from projects import ROOT
from torch.utils.data import DataLoader

import corpusbuild
from corpusbuild.errors import ConfigError
from corpusbuild.torch_dataset import TokenBatches

CONTEXT, ROWS = 32, 16
HOW = {"batch_size": ROWS, "sequence_length": CONTEXT, "seed": 1}


@pytest.fixture(scope="module")
def tokens(sample):
    return corpusbuild.tokens("sample", cache=sample[0] / "cache", configs=sample[0] / "configs")


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Threads that wait for each other cost more than such a small model, most of all where tests run on every core."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def ids_of(loader, n):
    return [batch.tokens.tolist() for _, batch in zip(range(n), loader, strict=False)]


def test_a_model_learns_in_200_steps_from_the_ids_that_numpy_reads(sample, tokens):
    """The model knows an id and the one before. Uniform guessing costs ln 256 = 5.5."""
    plain = np.memmap(sample[0] / "cache/tokens/bytes/sample/train-00000.bin", np.uint16, mode="r", offset=1024)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(256, 32), Before(), torch.nn.Linear(32, 256))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses, seen = [], set()
    for _, batch in zip(range(200), DataLoader(TokenBatches(tokens, **HOW), batch_size=None), strict=False):
        loss = torch.nn.functional.cross_entropy(model(batch.tokens).flatten(0, 1), batch.targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seen |= {row.astype("<u2").tobytes() for row in np.hstack([batch.tokens.numpy(), batch.targets.numpy()[:, -1:]])}
    assert len(losses) == 200
    assert 5 < losses[0] < 6.5
    assert np.mean(losses[-20:]) < 2.9
    cut = {plain[i : i + CONTEXT + 1].tobytes() for i in range(0, len(plain) - CONTEXT, CONTEXT)}
    assert seen <= cut
    assert len(seen) > 0.99 * 200 * ROWS


class Before(torch.nn.Module):
    """Adds to each place what stands before it, turned around."""

    def __init__(self):
        super().__init__()
        self.turn = torch.nn.Linear(32, 32)

    def forward(self, x):
        return x + torch.nn.functional.pad(self.turn(x)[:, :-1], (0, 0, 1, 0))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_torch_reads_what_numpy_reads_whatever_the_workers(tokens, workers):
    expected = [batch.tokens.tolist() for _, batch in zip(range(10), tokens.batches(**HOW), strict=False)]
    dataset = TokenBatches(tokens, **HOW)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    assert ids_of(loader, 10) == expected
    state = dataset.state_dict(4)
    again = TokenBatches(tokens, **HOW)
    again.load_state_dict(state)
    assert ids_of(DataLoader(again, batch_size=None, num_workers=workers), 6) == expected[4:]
    assert ids_of(loader, 2) == expected[:2]
    with pytest.raises(ConfigError, match="seed"):
        TokenBatches(tokens, **HOW | {"seed": 2}).load_state_dict(state)


def test_workers_of_ranks_share_an_epoch(tokens):
    how = {"split": "val", "batch_size": 7, "sequence_length": 100, "epochs": 1}
    read = []
    for rank in range(2):
        loader = DataLoader(TokenBatches(tokens, rank=rank, world_size=2, positions=True, **how), batch_size=None, num_workers=2)
        for batch in loader:
            assert batch.tokens.dtype == batch.targets.dtype == torch.int64
            assert batch.positions.shape == batch.segments.shape == batch.tokens.shape
            read += batch.tokens.tolist()
    plain = next(iter(tokens.ids(i) for i in tokens.files("val")))
    assert sorted(read) == sorted(plain[i : i + 100].tolist() for i in range(0, len(plain) - 100, 100))


def test_ranks_are_those_of_the_process_group(tokens, tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    try:
        assert (TokenBatches(tokens, **HOW).batches.rank, TokenBatches(tokens, **HOW).batches.world_size) == (0, 1)
        assert TokenBatches(tokens, rank=2, world_size=3, **HOW).batches.rank == 2
    finally:
        torch.distributed.destroy_process_group()


def snippets():
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "train.md").read_text(), re.M | re.S)


def test_the_page_on_training_runs(sample, tmp_path):
    """Its pieces of Python, one after another in one program, in a folder where the sample was built."""
    (tmp_path / "cache").symlink_to(sample[0] / "cache")
    assert len(snippets()) >= 4
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(snippets())],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_the_page_on_training_names_files_that_are_there():
    for name in re.findall(r"\]\(([A-Za-z0-9_./-]+)\)", (ROOT / "docs" / "train.md").read_text()):
        assert (ROOT / "docs" / name).exists(), name
