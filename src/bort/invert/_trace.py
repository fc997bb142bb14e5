"""One forward pass, kept so that signals can go back along it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor, nn

from bort._budget import current_budget
from bort._failures import followed_back
from bort._inspect import NO_GRADIENT, finite
from bort.invert._forward import Rest
from bort.invert._grid import Grid, grid_of
from bort.invert._rules import Rule
from bort.invert._salient import Salient, salient


@dataclass(frozen=True)
class Trace:
    """One forward pass of a batch. Seeds go back from the layer to the input along it; it keeps all activations in memory.

    Example:
        >>> model, x = nets.create("acnn-small", width=0.05), torch.rand(2, 1, 28, 28)
        >>> trace = invert.Backtracker(model, "conv5").trace(x)
        >>> trace.back(trace.salient(4).seeds()).shape  # the signal of each channel in each image
        torch.Size([4, 2, 1, 28, 28])
    """

    features: Tensor
    """The layer's features for each image: its output, after the activation function if one follows directly."""
    outputs: Tensor
    """The model's logits."""
    rule: Rule
    smooth: bool
    """Whether the rule has acted on smooth activations, of which the model may have others beside its ReLUs."""
    activated: bool
    """Whether the features are those after an activation function that follows, and not the layer's own output."""
    uses: int
    """How often the pass has used the layer: the features are those of the last use."""
    largest: int
    """Numbers in the largest tensor of the pass: about what each seed takes in memory on its way back."""
    total: int
    """Numbers in all tensors of the pass together."""
    _model: nn.Module = field(repr=False)
    _layer: str = field(repr=False)
    _input: Tensor = field(repr=False)
    """The leaf of the graph that `_end` (the features) and `_logits` (the outputs) belong to."""
    _end: Tensor = field(repr=False)
    _logits: Tensor = field(repr=False)

    @cached_property
    def grid(self) -> Grid:
        """How the features are laid out as maps. ValueError if the layer has none, as a linear head."""
        return grid_of(self._model, self._layer, self.features, self._input)

    @property
    def maps(self) -> Tensor:
        """(N, C, H, W): the features as maps, whatever the layer's layout."""
        return self.grid.to_map(self.features)

    def salient(self, k: int, start: int = 0) -> Salient:
        """For each image the channels start … start + k in order of their largest activations."""
        return salient(self.maps, k, start)

    def back(self, seed: Tensor) -> Tensor:
        """g(seed) of maps: (N, C, H, W) gives ``(N, *image)``, and (S, N, C, H, W) gives ``(S, N, *image)``. See
        :meth:`__call__`."""
        return self(self.grid.from_map(seed))

    def __call__(self, seed: Tensor) -> Tensor:
        """g(seed) in the features' own layout: one seed of their shape, or several with one more dimension in front. The
        result has the input's shape, with the same dimension in front."""
        if seed.shape == self._end.shape:
            return self(seed[None])[0]
        if seed.ndim != self._end.ndim + 1 or seed.shape[1:] != self._end.shape:
            raise ValueError(
                f"a seed of shape {tuple(seed.shape)} does not fit the features {tuple(self._end.shape)}: give it their "
                "shape, with one more dimension in front for several seeds"
            )
        if seed.device != self._end.device:
            raise ValueError(f"the seed is on {seed.device}, the features on {self._end.device}: move it there")
        if not len(seed):
            return self._input.detach().new_empty(0, *self._input.shape)
        budget = current_budget()
        # In the caches of a CPU: one by one 32 seeds take a third of the time in EfficientNet-Lite0 and 60% in ResNet-18.
        numbers = min(budget.backward, budget.cpu // 4) if seed.device.type == "cpu" else budget.backward
        at_once = max(1, numbers // self.largest)
        signals = [self._back(seeds) for seeds in torch.split(seed.to(self._end.dtype), at_once)]
        return finite(torch.cat(signals).movedim(0, 1), "the signals").movedim(0, 1)

    def slope(self, classes: Tensor) -> Tensor:
        """(N, C, H, W): ∂ logit of each image's class / ∂ features, with the trace's rule at every activation."""
        if not self._logits.requires_grad:
            raise ValueError(NO_GRADIENT)
        with torch.inference_mode(False), torch.enable_grad(), followed_back():
            chosen = self._logits.gather(1, classes.clone()[:, None])  # the classes may be a tensor of inference mode
            (gradient,) = torch.autograd.grad(chosen.sum(), self._end, retain_graph=True, materialize_grads=True)
        return self.grid.to_map(gradient)

    def with_maps(self, maps: Tensor) -> Tensor:
        """Features in the layer's own layout from maps (M, C, H, W) that take the place of the trace's, one for each image or
        any number for a single one. Tokens without a place in the image stay as they are."""
        features = self.grid.from_map(maps.to(self.features.dtype))
        if self.grid.prefix:
            features[:, : self.grid.prefix] = self.features[:, : self.grid.prefix]
        return features

    def forward(self, features: Tensor) -> Tensor:
        """(M, classes): the logits that the rest of the model computes with these features, in the layer's own layout, in the
        place of the trace's: one for each image, or any number for a single one."""
        return self._rest(features)

    @cached_property
    def _rest(self) -> Rest:
        return Rest(
            self._model,
            self._layer,
            self._input.detach(),
            self.features,
            self.outputs,
            activated=self.activated,
            uses=self.uses,
            largest=self.largest,
        )

    def _back(self, seeds: Tensor) -> Tensor:
        def back(seed: Tensor) -> Tensor:
            with followed_back():
                (signal,) = torch.autograd.grad(self._end, self._input, seed, retain_graph=True, allow_unused=True)
            if signal is None:
                raise ValueError(
                    f"the layer {self._layer!r} does not depend on the input, or is computed from it without gradients"
                )
            return signal

        # Not is_grads_batched: that runs convolutions for one seed at a time (20 × 64 calls in ResNet-18).
        return back(seeds[0])[None] if len(seeds) == 1 else torch.func.vmap(back)(seeds)
