"""The loop. The recipe has all that decides the result, a checkpoint all that is needed to go on after an interruption."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bort.train import recipes
from bort.train._assemble import Parts, assemble
from bort.train._counters import Counters
from bort.train._display import TrainingDisplay
from bort.train._history import History, TensorBoard
from bort.train._nonfinite import FiniteCheck
from bort.train._optimizer import set_rate
from bort.train._record import record_of_epoch
from bort.train._run import Run, load
from bort.train._run_folder import RunFolder, claimed
from bort.train._runtime import Runtime
from bort.train._saver import Saver
from bort.train._schema import Recipe
from bort.train._signals import StopRequest, catching_signals
from bort.train._world import World, join


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
        force: go on although recipe, number of processes or data are not what the run was started with.
        on_step: called after each step with its number.

    Returns:
        The finished run. A SIGINT or SIGTERM writes a checkpoint and raises :class:`Interrupted`; NaN or Inf in loss,
        gradient or penalty raises :class:`NotFinite` before the update.

    Example:
        >>> from dataclasses import replace
        >>> recipe = replace(train.recipes.get("mnist5k-lenet-bort-s"), epochs=1, batch=1000)
        >>> run = train.fit(recipe, "runs/first", train.Runtime(device="cpu"))
        mnist5k-lenet-bort-s  epoch 1/1  loss ...
        >>> run.is_complete, run.accuracy > 0.1
        (True, True)
    """
    chosen = recipes.get(recipe) if isinstance(recipe, str) else recipe
    how, path = runtime or Runtime(), Path(out)
    with (
        catching_signals() as request,
        join(how.device) as world,
        claimed(path, chosen, world, force=force) as folder,
    ):
        _train(chosen, how, world, folder, request, on_step, force=force)
    return load(path)


def _train(
    recipe: Recipe,
    runtime: Runtime,
    world: World,
    folder: RunFolder,
    request: StopRequest,
    on_step: Callable[[int], None] | None,
    *,
    force: bool,
) -> None:
    parts = assemble(recipe, runtime, world, request)
    net, feed, optimizer = parts.net, parts.feed, parts.optimizer
    counters = Counters(parts.step, feed, world)
    finite = FiniteCheck(parts.step, feed, counters)
    saver = Saver(recipe, runtime, world, folder, request, parts, counters, finite)
    saver.resume(force=force)

    with contextlib.ExitStack() as stack:
        stack.callback(feed.close)
        stack.callback(parts.train_on.close)
        recorders: list[History | TensorBoard] = [folder.history] if world.is_first else []
        if world.is_first and runtime.tensorboard:
            board = TensorBoard(folder.path / "tensorboard", counters.steps)
            stack.callback(board.close)
            recorders.append(board)
        if world.is_first and counters.epochs < recipe.epochs:  # a complete run keeps its last environment
            folder.start(recipe, _facts(recipe, world, parts, counters))
        display = stack.enter_context(TrainingDisplay(recipe, feed.per_epoch, shown=world.is_first))
        for note in parts.notes:
            display.say(note)
        display.resumed(counters.steps, is_complete=counters.epochs >= recipe.epochs)

        for epoch in range(counters.epochs, recipe.epochs):
            net.train()
            for batch in feed.batches(epoch, start=counters.step_in_epoch):
                set_rate(optimizer, recipe, counters.steps, feed.per_epoch)
                parts.train_on(batch)
                counters.after_step(batch)
                finite.after_step(batch)
                if on_step is not None:
                    on_step(counters.steps)
                display.step(counters.steps, counters.mean_loss)
                saver.after_step()
            finite.now()
            record = record_of_epoch(recipe, parts, counters, world, saver.after_test_batch)
            if world.is_first:
                folder.require()
            for recorder in recorders:
                recorder.add(record)
            counters.after_epoch()
            display.epoch(record)
            saver.after_epoch()

    saver.save_unless_saved()
    world.from_first(None)  # a barrier: the others wait until the first process has written the checkpoint


def _facts(recipe: Recipe, world: World, parts: Parts, counters: Counters) -> dict[str, Any]:
    """What environment.json has of this start, beside hardware and versions."""
    data, view = parts.data, parts.data.view(recipe.data.image_size)
    return {
        "processes": world.size,
        "device": str(world.device),
        "precision": "bfloat16" if parts.autocast else "float32",
        "from_step": counters.steps,
        "notes": list(parts.notes),
        "data": {
            "name": data.name,
            "fingerprint": data.fingerprint,
            "mean": view.mean,
            "std": view.std,
            "class_names": view.class_names,
        },
    }
