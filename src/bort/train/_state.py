"""What a checkpoint holds of a training, and how it goes back: whole tensors, also of sharded weights."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.optim import Optimizer

from bort.train._world import World


def capture(model: nn.Module, optimizer: Optimizer, world: World, *, sharded: bool) -> dict[str, Any]:
    """Weights, optimizer, generators. All processes have to ask; the first one gets the answer."""
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
    """The way back, on every process. Settings stay those of the recipe, which may have been changed by force; without
    ``moments`` the optimizer starts afresh."""
    wanted = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: tuple(value.shape) for name, value in state["model"].items()}
    if wanted != found:
        other = next(name for name in (*wanted, *found) if wanted.get(name) != found.get(name))
        raise ValueError(
            f"the checkpoint is of another network: {other} is {found.get(other, 'not there')}, the recipe's is "
            f"{wanted.get(other, 'not there')}"
        )
    recipes = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    if sharded:
        from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict, set_state_dict

        # Every process has read the file and takes its part: no broadcast.
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
            _lay_out_as_the_weights(optimizer)
    for group, settings in zip(optimizer.param_groups, recipes, strict=True):
        group.update(settings)
    if len(state["generators"]) == world.size:  # forced to another world size, chance starts afresh
        mine = state["generators"][world.rank]
        torch.set_rng_state(mine["cpu"])
        if "cuda" in mine and world.device.type == "cuda":
            torch.cuda.set_rng_state(mine["cuda"], world.device)


def _generators(device: torch.device) -> dict[str, Tensor]:
    found = {"cpu": torch.get_rng_state()}
    return found | {"cuda": torch.cuda.get_rng_state(device)} if device.type == "cuda" else found


def _lay_out_as_the_weights(optimizer: Optimizer) -> None:
    """A file has tensors in one order; a fused optimizer walks weight and momentum in memory side by side."""
    for p, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == p.shape and value.stride() != p.stride():
                state[name] = torch.empty_like(p, dtype=value.dtype).copy_(value)
