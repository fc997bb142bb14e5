"""Checkpoints and what can happen to them."""

import errno
import os
import pickle
import signal
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bort import BortA, BortS
from bort.train._checkpoint import load, read, save

LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5)
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=30)
@given(tree=TREES)
def test_any_tree_comes_back(tmp_path_factory, tree):
    folder = tmp_path_factory.mktemp("run")
    save(folder, 1, tree)
    checkpoint = load(folder)
    assert checkpoint.state == tree
    assert checkpoint.step == 1


@pytest.mark.parametrize("cls", [BortS, BortA])
def test_an_optimizer_and_the_random_state_go_on_as_if_nothing_had_been(tmp_path, cls):
    def train(net, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            net(torch.randn(4, 6)).square().mean().backward()
            optimizer.step()

    def make():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
        options = {"momentum": 0.9} if cls is BortS else {}
        return net, cls(net.parameters(), lr=0.05, every=2, **options)

    net, optimizer = make()
    train(net, optimizer, 3)
    save(tmp_path, 3, {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()})
    train(net, optimizer, 3)
    again, other = make()
    state = load(tmp_path).state
    again.load_state_dict(state["net"])
    other.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])
    train(again, other, 3)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))


def test_views_and_shared_memory_are_saved_as_what_they_are(tmp_path):
    base = torch.arange(12.0)
    state = {
        "view": base[2:5],
        "other": base,
        "transposed": base.view(3, 4).T,
        "half": base.bfloat16(),
        "empty": base[:0],
    }
    save(tmp_path, 1, state)
    for name, tensor in load(tmp_path).state.items():
        assert torch.equal(tensor, state[name])
        assert tensor.dtype == state[name].dtype


def test_only_the_newest_are_kept(tmp_path):
    for step in range(1, 6):
        save(tmp_path, step, {"step": step}, keep=2)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-000000004", "step-000000005"]
    assert load(tmp_path).state == {"step": 5}


def test_the_same_step_again_replaces_it(tmp_path):
    save(tmp_path, 1, "first")
    save(tmp_path, 1, "second")
    assert load(tmp_path).state == "second"


def test_no_checkpoint_yet(tmp_path):
    assert load(tmp_path / "nothing") is None


def truncate(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, empty])
@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_damaged_one_is_named_and_the_one_before_used(tmp_path, name, damage):
    for step in (1, 2):
        save(tmp_path, step, {"w": torch.full((50,), float(step))})
    damage(tmp_path / "step-000000002" / name)
    with pytest.warns(UserWarning, match="Going on from step-000000001") as caught:
        checkpoint = load(tmp_path)
    assert checkpoint.step == 1
    assert torch.equal(checkpoint.state["w"], torch.ones(50))
    assert "step-000000002" in str(caught[0].message)


def test_all_damaged_is_an_error_never_a_new_start(tmp_path):
    for step in (1, 2):
        save(tmp_path, step, "x")
        truncate(tmp_path / f"step-00000000{step}" / "state.json")
    with pytest.raises(ValueError, match=r"every checkpoint in .* is damaged: .*step-000000002.*step-000000001"):
        load(tmp_path)


def test_a_full_disk_leaves_the_earlier_ones(tmp_path, monkeypatch):
    save(tmp_path, 1, "good")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        OSError, match=r"no checkpoint of step 2 in .*: No space left on device; earlier ones are intact"
    ):
        save(tmp_path, 2, "more")
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["step-000000001"]
    assert load(tmp_path).state == "good"


def test_a_place_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="no checkpoint of step 1 in"):
        save(tmp_path / "file" / "below", 1, "x")


KILLED = """
import os, signal, sys
from pathlib import Path
from bort.train._checkpoint import save

write, count = os.fsync, 0
def fsync(descriptor):
    global count
    count += 1
    if count == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    write(descriptor)
os.fsync = fsync
save(Path(sys.argv[1]), 2, {"new": True})
"""


@pytest.mark.slow
@pytest.mark.parametrize("moment", [1, 3, 5])
def test_killed_while_saving(tmp_path, moment):
    """After the first file, before the folder is moved, and after: the one before, or the whole new one."""
    save(tmp_path, 1, {"new": False})
    result = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(moment)], check=False)
    assert result.returncode == -signal.SIGKILL
    assert load(tmp_path).state == {"new": moment == 5}
    save(tmp_path, 3, "next")
    assert not list(tmp_path.glob(".writing-*")), "swept"


class Bomb:
    def __reduce__(self):
        return (os._exit, (13,))


def test_a_pickle_posing_as_a_checkpoint_is_refused_not_executed(tmp_path):
    save(tmp_path, 1, "x")
    path = tmp_path / "step-000000001"
    bomb = pickle.dumps(Bomb())
    (path / "tensors.safetensors").write_bytes(bomb)
    with pytest.raises(ValueError, match=r"tensors\.safetensors is damaged"):
        read(path)
    import hashlib
    import json

    manifest = json.loads((path / "manifest.json").read_text())
    manifest["sha256"]["tensors.safetensors"] = hashlib.sha256(bomb).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="cannot be read"):
        read(path)
    (path / "manifest.json").unlink()
    with pytest.raises(ValueError, match="not a checkpoint of bort's"):
        read(path)


def test_what_it_cannot_hold_is_said_with_its_place(tmp_path):
    with pytest.raises(TypeError, match=r"a\.1 is a set"):
        save(tmp_path, 1, {"a": [0, {1}]})
    with pytest.raises(TypeError, match=r"b has a key 1\.5"):
        save(tmp_path, 1, {"b": {1.5: 0}})
    assert not list(tmp_path.iterdir())
