"""The loop. All it needs to go on after any interruption is in a checkpoint; all that decides the result is in the recipe."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bort.data import Dataset
from bort.train import _checkpoint, _state, recipes
from bort.train._evaluate import measure, test
from bort.train._nonfinite import check_weights, diagnose
from bort.train._feed import Batch, Feed, MemoryFeed
from bort.train._folder_feed import FolderFeed
from bort.train._history import TensorBoard
from bort.train._optimizer import loss_for, optimizer_for, rate
from bort.train._display import Progress
from bort.train._schema import Recipe
from bort.train._run import Run, RunFolder, build, claimed, data_of, load
from bort.train._runtime import Runtime
from bort.train._wrap import can_capture, layout, wrapped
from bort.train._signals import Interrupted, Request, watched
from bort.train._step import CapturedStep, Step
from bort.train._world import World, join

_AGREE_STEPS = 16  # with several processes: how often they ask each other whether to stop
_LOOK_STEPS = 256  # with a fused optimizer on a GPU: how often the host looks whether all steps were good


def fit(
    recipe: Recipe | str,
    out: str | os.PathLike[str],
    runtime: Runtime | None = None,
    *,
    force: bool = False,
    on_step: Callable[[int], None] | None = None,
) -> Run:
    """Train a recipe into the folder ``out``; if a run is there already, go on with it.

    Args:
        recipe: one of :mod:`bort.train.recipes`, or its name.
        out: the run's folder: recipe.json, environment.json, history.jsonl, checkpoints/.
        runtime: where and how; the default takes a GPU if there is one.
        force: go on although recipe, world size or data are not what the run was started with.
        on_step: called after each step with its number.

    Returns:
        The finished run. A SIGINT or SIGTERM writes a checkpoint and raises :class:`Interrupted`; NaN or Inf in loss,
        gradient or penalty raises :class:`NotFinite` before the update.
    """
    wanted = recipes.get(recipe) if isinstance(recipe, str) else recipe
    how = runtime or Runtime()
    path = Path(out)
    with watched() as request, join(how.device) as world:
        if world.is_first:
            with claimed(path, wanted, world.size, force=force) as folder:
                _Training(wanted, how, world, folder, request, on_step, force=force).run()
        else:
            _Training(wanted, how, world, RunFolder(path), request, on_step, force=force).run()
    return load(path)


class _Training:
    def __init__(
        self,
        recipe: Recipe,
        runtime: Runtime,
        world: World,
        folder: RunFolder,
        request: Request,
        on_step: Callable[[int], None] | None,
        *,
        force: bool,
    ) -> None:
        self.recipe, self.runtime, self.world, self.folder, self.request = recipe, runtime, world, folder, request
        self.on_step = on_step
        data = data_of(recipe, runtime.data_root)
        on_gpu = world.device.type == "cuda"
        autocast = recipe.precision == "bfloat16" or (recipe.precision == "auto" and on_gpu)
        torch.manual_seed(recipe.seed)
        net = build(recipe)
        memory_format = layout(net) if autocast and on_gpu else torch.contiguous_format
        self.feed: Feed = (
            MemoryFeed(data, recipe, world, memory_format)
            if isinstance(data, Dataset)
            else FolderFeed(data, recipe, runtime, world, memory_format)
        )
        self.sharded = runtime.parallel == "fsdp2" and world.size > 1
        self.net = net.to(world.device, memory_format=memory_format)  # type: ignore[call-overload]
        model = wrapped(self.net, runtime, world, sharded=self.sharded)
        self.optimizer = optimizer_for(recipe.optim, self.net, world.device)
        for group in self.optimizer.param_groups:
            group["initial_lr"] = recipe.optim.lr  # what the stability guard judges a warm-up by
        clip = recipe.optim.clip
        self.plain = Step(model, self.optimizer, loss_for(recipe), self.feed, world.device, autocast, clip)
        self.step = CapturedStep(self.plain) if can_capture(recipe, runtime, world, self.feed) else self.plain
        torch.manual_seed(recipe.seed + world.rank)  # from here on chance is each process's own

        self.steps, self.recorded, self.images, self.seconds = 0, 0, 0, 0.0
        self.fingerprint = data.fingerprint
        self.saved_step, self.good_before = (-1, -1), 0
        self.last_save = self.begun = time.monotonic()
        self.board = None
        self._resume(force=force)
        if runtime.tensorboard and world.is_first:
            self.board = TensorBoard(folder.path / "tensorboard", self.steps)
        # A finished run is only looked at: it keeps the environment it was trained in.
        if world.is_first and self.recorded < recipe.epochs:
            precision = "bfloat16" if autocast else "float32"
            facts = {
                "processes": world.size,
                "device": str(world.device),
                "precision": precision,
                "from_step": self.steps,
            }
            view = data.view(recipe.data.image_size)
            seen = {"mean": view.mean, "std": view.std, "class_names": view.class_names}
            folder.start(recipe, facts | {"data": {"name": data.name, "fingerprint": data.fingerprint, **seen}})

    def run(self) -> None:
        recipe, per_epoch = self.recipe, self.feed.per_epoch
        try:
            shown = self.world.is_first
            with Progress(recipe.name, recipe.epochs, per_epoch, recipe.batch, shown=shown) as progress:
                if self.recorded >= recipe.epochs:
                    progress.say(f"{recipe.name}  is complete already: {recipe.epochs} epochs")
                elif self.steps:
                    progress.say(f"{recipe.name}  going on after step {self.steps} of {recipe.epochs * per_epoch}")
                while self.recorded < recipe.epochs:
                    self._train_epoch(progress)
                    self._record(progress)
        finally:
            self.feed.close()
            if self.board is not None:
                self.board.close()
        self._save(unless_there=True)
        self.world.from_first(None)  # nobody leaves before it is written

    def _train_epoch(self, progress: Progress) -> None:
        """The rest of the epoch that is under way."""
        epoch, per_epoch = self.recorded, self.feed.per_epoch
        self.net.train()
        for batch in self.feed.batches(epoch, self.steps - epoch * per_epoch):
            if self.recipe.optim.schedule != "constant" or self.recipe.optim.warmup_epochs:
                for group in self.optimizer.param_groups:
                    group["lr"] = rate(self.recipe, self.steps, per_epoch)
            self.step(batch)
            self.steps += 1
            self.images += batch.count
            if self.plain.host_looks:
                self._look(batch)
            elif self.steps % _LOOK_STEPS == 0:
                self._look()
            if self.on_step is not None:
                self.on_step(self.steps)
            progress.step(self.steps, self._mean_loss)
            self._pause()
        self._look()

    def _look(self, batch: Batch | None = None) -> None:
        """Stop if a step was not finite. Where the host has not looked at each, the weights still are those of before it."""
        if not self.plain.bad.item():
            return
        number = self.steps if batch is not None else self.good_before + int(self.plain.good.item()) + 1
        epoch, start = divmod(number - 1, self.feed.per_epoch)
        again = batch if batch is not None else next(iter(self.feed.batches(epoch, start)))
        raise diagnose(self.plain, again, number, epoch + 1)

    def _pause(self, *, agree: bool = False) -> None:
        """Where a step has ended: stop if asked to, save if it is time."""
        # A step that ends an epoch is saved when the epoch has been recorded.
        ends = self.steps == (self.recorded + 1) * self.feed.per_epoch
        due = self.runtime.save_steps is not None and self.steps % self.runtime.save_steps == 0 and not ends
        late = time.monotonic() - self.last_save > self.runtime.save_seconds
        if self.world.size > 1:
            often = 1 if isinstance(self.feed, FolderFeed) else _AGREE_STEPS  # steps out of folders are slow
            if self.steps % often and not due and not agree:
                return
            late, asked = self.world.any(late), self.world.any(bool(self.request.number))
        else:
            asked = bool(self.request.number)
        if due or late or asked:
            self._save(unless_there=asked)
        if asked:
            raise Interrupted(self.request.number, self.steps, self.folder.checkpoints)

    def _record(self, progress: Progress) -> None:
        """After an epoch: test, measure, write down."""
        check_weights(self.net, f"step {self.steps}")
        self._same_buffers()
        tested = test(self.net, self.feed, self.world, self.plain.autocast, self.sharded, self._pause_test)
        layers = measure(self.net, self.world.device)
        loss_sum, images, skipped = self._totals()
        seconds = self._seconds()
        record: dict[str, Any] = {
            "epoch": self.recorded + 1,
            "step": self.steps,
            "loss": loss_sum / images,
            **tested,
            "lr": rate(self.recipe, self.steps - 1, self.feed.per_epoch),
            "residual": max(layer["residual"] for layer in layers.values()),
            "sigma": [
                min(layer["sigma"][0] for layer in layers.values()),
                max(layer["sigma"][1] for layer in layers.values()),
            ],
            "layers": layers,
            "skipped": round(skipped),
            "seconds": seconds,
        }
        if self.world.is_first:
            self.folder.require()
            self.folder.history.add(record)
            if self.board is not None:
                self.board.add(record)
        self.recorded += 1
        self.images = 0
        self.plain.loss_sum.zero_()
        progress.epoch(record)
        self._pause(agree=True)

    def _pause_test(self) -> None:
        if self.world.size == 1 and self.request.number:
            self._save(unless_there=True)
            raise Interrupted(self.request.number, self.steps, self.folder.checkpoints)

    def _save(self, *, unless_there: bool = False, keep: int | None = None) -> None:
        if unless_there and self.saved_step == (self.steps, self.recorded):
            return
        self._look()
        check_weights(self.net, f"step {self.steps}")
        self._same_buffers()
        loss_sum, images, skipped = self._totals()
        state = _state.capture(self.net, self.optimizer, self.world, sharded=self.sharded)
        state |= {
            "steps": self.steps,
            "recorded": self.recorded,
            "images": round(images),
            "loss_sum": loss_sum,
            "skipped": round(skipped),
            "seconds": self._seconds(),
            "per_epoch": self.feed.per_epoch,
            "optim": [self.recipe.optim.name, self.recipe.optim.groups],
            "fingerprint": self.fingerprint,
        }
        if self.world.is_first:
            self.folder.require()
            _checkpoint.save(self.folder.checkpoints, self.steps, state, keep or self.runtime.keep)
        self.last_save = time.monotonic()
        self.saved_step = (self.steps, self.recorded)

    def _resume(self, *, force: bool) -> None:
        path = None
        if self.world.is_first:
            found = _checkpoint.load(self.folder.checkpoints)
            path = found.path if found else None
            if path is not None:
                _checkpoint.set_aside(self.folder.checkpoints, path)
        path = self.world.from_first(path)
        if path is None:
            if self.world.is_first:
                if self.folder.history.read():
                    warnings.warn(f"{self.folder.path} has a history but no checkpoint: it begins again", stacklevel=4)
                self.folder.history.keep(0)
            return
        state = found.state if self.world.is_first and found else _checkpoint.read(path).state
        if state["fingerprint"] != self.fingerprint and not force:
            raise ValueError(
                f"{self.recipe.data.name} is not the data that the run in {self.folder.path} was started with (SHA-256 "
                f"{self.fingerprint[:12]}…, it was {state['fingerprint'][:12]}…). Bring the old data back, or --force"
            )
        moments = state["optim"] == [self.recipe.optim.name, self.recipe.optim.groups]
        if not moments:
            warnings.warn("forced to another optimizer: its moments begin at 0", stacklevel=4)
        _state.restore(state, self.net, self.optimizer, self.world, sharded=self.sharded, moments=moments)
        self.steps, self.recorded, self.seconds = state["steps"], state["recorded"], state["seconds"]
        if self.world.is_first:  # sums over all processes
            self.images, self.feed.skipped = state["images"], state["skipped"]
            self.plain.loss_sum.fill_(state["loss_sum"])
        if state["per_epoch"] != self.feed.per_epoch:
            warnings.warn("forced to another length of an epoch: the one under way begins again", stacklevel=4)
            self.steps, self.images = self.recorded * self.feed.per_epoch, 0
            self.plain.loss_sum.zero_()
            self._save(keep=1)  # steps are numbered anew: no older number may be taken for a newer one
        self.good_before = self.steps
        self.saved_step = (self.steps, self.recorded)
        if self.world.is_first:
            self.folder.history.keep(self.recorded)

    def _totals(self) -> list[float]:
        """Loss × images, images and skipped images of all processes; in one, to the bit what it has."""
        mine = [self.plain.loss_sum.item(), float(self.images), float(self.feed.skipped)]
        return (
            mine
            if self.world.size == 1
            else self.world.total(torch.tensor(mine, dtype=torch.float64, device=self.world.device)).tolist()
        )

    def _same_buffers(self) -> None:
        """Running statistics differ between processes; the first one's are tested and saved."""
        if self.world.size > 1:
            for buffer in self.net.buffers():
                torch.distributed.broadcast(buffer, 0)

    def _mean_loss(self) -> float:
        return self.plain.loss_sum.item() / max(1, self.images)

    def _seconds(self) -> float:
        return self.seconds + time.monotonic() - self.begun
