"""Optimizer states of torch.distributed.checkpoint, from a plain optimizer to its Bort form and back."""

from __future__ import annotations

from typing import Any


def adapt_state_dict(saved: dict[str, Any], to: dict[str, Any]) -> dict[str, Any]:
    """``saved`` with the settings that ``to`` has in its param groups: those that are missing are taken from there, further
    ones are left out. Neither is changed.

    torch.distributed.checkpoint takes the settings of both sides to be the same and raises a KeyError otherwise, in the
    flattened form if some are missing (AdamW → BortA), in the full form if there are more (BortA → AdamW)::

        from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

        own = get_optimizer_state_dict(model, optimizer, options=options)
        set_optimizer_state_dict(model, optimizer, adapt_state_dict(saved, to=own), options=options)

    ``Optimizer.load_state_dict`` needs none of this.

    Example:
        >>> saved = torch.optim.AdamW(nn.Linear(8, 8).parameters()).state_dict()
        >>> own = bort.BortA(nn.Linear(8, 8).parameters(), constraint=0.5).state_dict()
        >>> optim.adapt_state_dict(saved, to=own)["param_groups"][0]["constraint"]
        0.5
    """
    if "param_groups" not in to:  # flattened: "param_groups.<parameter>.<setting>"
        settings = {key: value for key, value in to.items() if key.startswith("param_groups.")}
        rest = {key: value for key, value in saved.items() if not key.startswith("param_groups.")}
        return rest | {key: saved.get(key, value) for key, value in settings.items()}
    if len(saved["param_groups"]) != len(to["param_groups"]):
        raise ValueError(
            f"the saved state has {len(saved['param_groups'])} param groups, the optimizer {len(to['param_groups'])}: make "
            "the optimizer with the groups of the one that was saved"
        )
    groups = [
        {key: before.get(key, value) for key, value in own.items()}
        for before, own in zip(saved["param_groups"], to["param_groups"], strict=True)
    ]
    return {**saved, "param_groups": groups}
