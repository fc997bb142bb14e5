"""g: from any feature map back to the input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bort._inspect import evaluating, outputs_of
from bort.invert._grid import find_layer
from bort.invert._rules import RULES, Rule, Rules

_BUDGET = 2**26  # numbers in the largest tensor on the way back: 256 MiB, of which a few live at a time
_KEPT = 2**28  # numbers that all tensors of a forward pass have together, since they are kept for the way back: 1 GiB


@dataclass(frozen=True)
class Trace:
    """One forward pass, from which seeds go back. Memory is held as long as the trace is."""

    features: Tensor
    """The layer's map for each image: its output, after its activation function if that is what comes next."""
    outputs: Tensor
    """What the model said."""
    rule: Rule
    smooth: bool
    """Whether the rule stands in for smooth activations, because the model has no ReLU."""
    activated: bool
    """Whether the features are those after an activation function that comes next, and not the layer's own output."""
    largest: int
    """Numbers in the largest tensor of the pass; a chunk of seeds takes so many for each of them."""
    made: int
    """Numbers in all tensors of the pass."""
    _input: Tensor = field(repr=False)
    _end: Tensor = field(repr=False)
    _told: Tensor = field(repr=False)

    def __call__(self, seed: Tensor) -> Tensor:
        """g(seed): (N, …) as the features, or (S, N, …) for S seeds of each image; as many signals of the input's shape."""
        if seed.shape == self._end.shape:
            return self(seed[None])[0]
        if seed.ndim != self._end.ndim + 1 or seed.shape[1:] != self._end.shape:
            raise ValueError(
                f"a seed of shape {tuple(seed.shape)} does not fit the features {tuple(self._end.shape)}: give it their "
                "shape, with one more dimension in front for several seeds"
            )
        if seed.device != self._end.device:
            raise ValueError(f"the seed is on {seed.device}, the features on {self._end.device}: move it there")
        size = max(1, _BUDGET // self.largest)
        if not len(seed):
            return self._input.detach().new_empty(0, *self._input.shape)
        return torch.cat([self._back(part) for part in torch.split(seed.to(self._end.dtype), size)])

    def slope(self, classes: Tensor) -> Tensor:
        """∂ output of each image's class / ∂ features; with rule "gradient" the plain derivative."""
        (gradient,) = torch.autograd.grad(self._told.gather(1, classes[:, None]).sum(), self._end, retain_graph=True)
        return gradient

    def _back(self, seeds: Tensor) -> Tensor:
        def back(seed: Tensor) -> Tensor:
            return torch.autograd.grad(self._end, self._input, seed, retain_graph=True)[0]

        # Not is_grads_batched: that takes convolutions one seed at a time (20 × 64 calls in ResNet-18).
        return back(seeds[0])[None] if len(seeds) == 1 else torch.func.vmap(back)(seeds)


class Backtracker:
    r"""g of a model and one of its layers (paper, section 3.1 and equ:reconstruction).

    One forward pass notes where each activation function was open. Then a seed, any tensor in the place of the layer's
    feature map, goes back to the input: linear layers and convolutions by their transposes :math:`W^T s`, activation
    functions by the ``rule``, everything else (pools, norms, attention, skips) by its own transpose.

    Args:
        model: any module. It runs in eval mode, without hooks left behind, and is as it was afterwards: modes, gradients.
        layer: the name of a module, as in ``model.named_modules()``.
        rule: "guided" (the paper), "deconvolution" (the positions of the forward pass do not count) or "gradient" (plain).
    """

    def __init__(self, model: nn.Module, layer: str, rule: Rule = "guided") -> None:
        if rule not in RULES:
            raise ValueError(f"rule={rule!r} is unknown: choose one of {', '.join(RULES)}")
        self.model, self.layer, self.rule = model, layer, rule
        self._module = find_layer(model, layer)

    def trace(self, x: Tensor) -> Trace:
        """One forward pass of a batch of inputs."""
        check_input(self.model, x)
        trace, met = self._forward(x, smooth=False)
        if not met and self.rule != "gradient":
            trace, met = self._forward(x, smooth=True)
            if not met:
                raise ValueError(
                    f"{type(self.model).__name__} has no ReLU, GELU or SiLU that could be intercepted, so the rule "
                    f"{self.rule!r} has nothing to act on: use rule='gradient'"
                )
        return trace

    def batches(self, x: Tensor, seeds: int = 1) -> list[Tensor]:
        """x in as few parts as a budget of memory allows, with so many seeds going back for each image."""
        check_input(self.model, x)
        if len(x) == 1:
            return [x]
        one = self.trace(x[:1])
        return list(torch.split(x, max(1, min(_BUDGET // (seeds * one.largest), _KEPT // one.made))))

    def features(self, x: Tensor) -> Tensor:
        """The layer's map of each input."""
        return torch.cat([self.trace(part).features for part in self.batches(x)])

    def __call__(self, x: Tensor, seed: Tensor) -> Tensor:
        """g(seed) along the path of x; see :meth:`Trace.__call__`. For several calls with one x, keep its :meth:`trace`."""
        return self.trace(x)(seed)

    def reconstruct(self, x: Tensor) -> Tensor:
        """g of the layer's whole map: what the layer has kept of x."""
        traces = (self.trace(part) for part in self.batches(x))
        return torch.cat([trace(trace.features) for trace in traces])

    def verdicts(self, x: Tensor, maps: Tensor) -> Tensor:
        """(N, classes): what the rest of the model makes of feature maps in the place of those of x."""
        activated = self.trace(x).activated
        rules = Rules("gradient", replacement=maps if activated else None)

        def put(found: Tensor) -> Tensor:
            if activated:
                rules.watch(found)
                return found
            return maps

        with self._hooked(put), evaluating(self.model), torch.no_grad(), rules:
            return outputs_of(self.model, x)

    def _forward(self, x: Tensor, *, smooth: bool) -> tuple[Trace, int]:
        rules = Rules(self.rule, smooth=smooth)
        seen: list[Tensor] = []

        def note(found: Tensor) -> Tensor:
            seen.append(found)
            passed = found.clone()  # what the model goes on with, and may change in place
            rules.watch(passed)  # a module used several times: the last use counts
            return passed

        # Attention in its plain form: the fused ones can go back with one seed at a time only.
        plain = sdpa_kernel(SDPBackend.MATH)
        with self._hooked(note), evaluating(self.model), torch.inference_mode(False), torch.enable_grad(), plain, rules:
            leaf = x.detach().clone().requires_grad_()
            told = outputs_of(self.model, leaf)
        if not seen:
            raise ValueError(f"the layer {self.layer!r} was not used for this input")
        end = seen[-1] if rules.activated is None else rules.activated
        if not end.requires_grad:
            raise ValueError(f"the layer {self.layer!r} does not depend on the input")
        if end.shape[0] != len(x):
            raise ValueError(
                f"the layer {self.layer!r} has features of shape {tuple(end.shape)} for {len(x)} images: its first dimension "
                "is not the images' (windows of attention?). Choose the block around it"
            )
        facts = (rules.activated is not None, max(rules.largest, leaf.numel()), max(rules.made, leaf.numel()))
        return Trace(end.detach(), told.detach(), self.rule, smooth, *facts, leaf, end, told), rules.met

    @contextmanager
    def _hooked(self, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
        """While inside, what the layer gives (the first of several) goes through ``change``."""

        def hook(module: nn.Module, inputs: Any, output: Any) -> Any:
            several = isinstance(output, (tuple, list)) and len(output) > 0
            found = output[0] if several else output
            if not isinstance(found, Tensor):
                raise ValueError(f"the layer {self.layer!r} gives no tensor but {type(output).__name__}")
            return type(output)([change(found), *output[1:]]) if several else change(found)

        handle = self._module.register_forward_hook(hook)
        try:
            yield
        finally:
            handle.remove()


def check_input(model: nn.Module, x: Tensor) -> None:
    """Refuse what would only fail, or mislead, further in."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        raise TypeError(
            f"the input must be a tensor of floating-point numbers, not {getattr(x, 'dtype', type(x).__name__)}"
        )
    if not x.ndim or not len(x):
        raise ValueError(f"the input of shape {tuple(x.shape)} has no images in it")
    if not torch.isfinite(x).all():
        raise ValueError("the input has NaN or Inf in it")
    device = next((p.device for p in model.parameters()), x.device)
    if device != x.device:
        raise ValueError(f"the input is on {x.device}, the model on {device}: move one of them")
