"""Weights, optimizer and random generators as a checkpoint holds them: full tensors, also of sharded weights."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from bort.train._world import World

# Keys of a param group that are no settings: its weights, and the counts of steps, which a checkpoint goes on with.
_NOT_SETTINGS = ("params", "penalty_step", "step")


def capture(model: nn.Module, optimizer: Optimizer, world: World, *, sharded: bool) -> dict[str, Any]:
    """The state to save. All processes have to call this together; only the first one's result is complete."""
    generators: list[Any] = [_generators(world.device)]
    if world.size > 1:
        generators = [None] * world.size
        dist.all_gather_object(generators, _generators(world.device))
    if not sharded:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "generators": generators}
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict

    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights, state = get_state_dict(model, optimizer, options=options)
    return {"model": weights, "optimizer": state, "generators": generators}


def restore(
    state: dict[str, Any], model: nn.Module, optimizer: Optimizer, world: World, *, sharded: bool, moments: bool = True
) -> None:
    """Put a saved state back, on every process. The optimizer's settings (rate, decay, λ) stay those of the recipe, which may
    have been changed by force; without ``moments`` its moments stay at their initial values."""
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    saved = {name: tuple(value.shape) for name, value in state["model"].items()}
    if shapes != saved:
        other = next(name for name in (*shapes, *saved) if shapes.get(name) != saved.get(name))
        raise ValueError(
            f"the checkpoint is of another network: {other} is {saved.get(other, 'not there')}, the recipe's is "
            f"{shapes.get(other, 'not there')}"
        )
    settings = [
        {key: value for key, value in group.items() if key not in _NOT_SETTINGS} for group in optimizer.param_groups
    ]
    if sharded:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict, set_state_dict

        # Every process has read the file itself and takes its part, so nothing is broadcast.
        options = StateDictOptions(full_state_dict=True)
        weights, rest = state["model"], state["optimizer"]
        if moments:
            set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=rest, options=options)
        else:
            set_model_state_dict(model, weights, options=options)
    else:
        model.load_state_dict(state["model"])
        if moments:
            optimizer.load_state_dict(state["optimizer"])
            _match_strides(optimizer)
    for group, of_recipe in zip(optimizer.param_groups, settings, strict=True):
        group.update(of_recipe)
        if group.get("fused") or group.get("capturable"):  # on a GPU now, whatever the device was that the run began on
            for p in group["params"]:
                if isinstance(optimizer.state.get(p, {}).get("step"), Tensor):
                    optimizer.state[p]["step"] = optimizer.state[p]["step"].to(p.device)
    if len(state["generators"]) == world.size:  # if forced to another number of processes, they keep their new seeds
        generators = state["generators"][world.rank]
        torch.set_rng_state(generators["cpu"])
        if "cuda" in generators and world.device.type == "cuda":
            torch.cuda.set_rng_state(generators["cuda"], world.device)


def _generators(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    return states | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else states


def _match_strides(optimizer: Optimizer) -> None:
    """Give the moments the strides of their weights: a file holds contiguous tensors, and a fused optimizer walks through
    weight and moments in the order of memory."""
    for p, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == p.shape and value.stride() != p.stride():
                state[name] = torch.empty_like(p, dtype=value.dtype).copy_(value)
