"""g: from any feature map back to the input."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from bort._budget import current_budget
from bort._failures import about_checkpointing
from bort._inspect import check_input, evaluating, outputs_of, precise, unwrapped, widened
from bort.invert._forward import hooked
from bort.invert._grid import find_layer
from bort.invert._rules import RULES, Rule, Rules
from bort.invert._trace import Trace


class Backtracker:
    r"""g of a model and one of its layers (paper, section 3.1 and equ:reconstruction).

    A forward pass records where each activation function was open. Then a seed, any tensor in the place of the layer's
    features, goes back to the input: through linear layers and convolutions by their transposes :math:`W^T s`, through
    activation functions by the ``rule``, through everything else (pools, norms, attention, skips) by its own transpose.

    Args:
        model: any module. It runs in eval mode; afterwards its modes, gradients and hooks are as before. A copy in float32
            runs in the place of one in half precision.
        layer: the name of a module, as in ``model.named_modules()``.
        rule: "guided" (the paper's), "deconvolution" (ignores where the forward pass was open) or "gradient" (autograd). By
            default "guided", or "gradient" if the model has no activation function that a rule could act on (Tanh, PReLU):
            :attr:`Trace.rule` is the one of a pass.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(1, 4, 2, stride=2, bias=False), nn.Flatten(), nn.Linear(16, 3))
        >>> _ = nn.init.orthogonal_(model[0].weight.data.view(4, 4))
        >>> x = torch.rand(2, 1, 4, 4)
        >>> g = invert.Backtracker(model, "0")  # there is no activation function on the way
        >>> torch.allclose(g.reconstruct(x), x, atol=1e-6)  # WᵀW = I: nothing is lost
        True
    """

    def __init__(self, model: nn.Module, layer: str, rule: Rule | None = None) -> None:
        if rule is not None and rule not in RULES:
            raise ValueError(f"rule={rule!r} is unknown: choose one of {', '.join(RULES)}")
        self.model, self.layer, self.rule = precise(model), layer, rule
        find_layer(self.model, layer)  # a name that does not exist is an error here

    def trace(self, x: Tensor) -> Trace:
        """One forward pass of a batch of inputs."""
        check_input(self.model, x)
        trace, activations = self._forward(widened(x))
        if not activations and trace.rule != "gradient":
            raise ValueError(
                f"{type(unwrapped(self.model)).__name__} has no ReLU, GELU or SiLU that could be intercepted, so the rule "
                f"{self.rule!r} has nothing to act on: use rule='gradient', or leave it out"
            )
        return trace

    def batches(self, x: Tensor, seeds: int = 1) -> list[Tensor]:
        """x in as few batches as the memory budget allows, if ``seeds`` signals go back for each image."""
        check_input(self.model, x)
        if len(x) == 1:
            return [x]
        one, budget = self.trace(x[:1]), current_budget()
        return list(torch.split(x, max(1, min(budget.backward // (seeds * one.largest), budget.kept // one.total))))

    def features(self, x: Tensor) -> Tensor:
        """The layer's features of each input, in the layer's own layout."""
        return torch.cat([self.trace(batch).features for batch in self.batches(x)])

    def __call__(self, x: Tensor, seed: Tensor) -> Tensor:
        """g(seed) along the path of x; see :meth:`Trace.__call__`. For several calls with one x, keep its :meth:`trace`."""
        return self.trace(x)(seed)

    def reconstruct(self, x: Tensor) -> Tensor:
        """g of all the layer's features: what the layer has kept of x."""
        traces = (self.trace(batch) for batch in self.batches(x))
        return torch.cat([trace(trace.features) for trace in traces])

    def _forward(self, x: Tensor) -> tuple[Trace, int]:
        """A traced pass, and how many activations it met that the rule is for."""
        rules = Rules(self.rule or "guided")
        outputs: list[Tensor] = []

        def record(output: Tensor) -> Tensor:
            outputs.append(output)
            copy = output.clone()  # for the rest of the model, which may change it in place
            rules.watch(copy)  # of a module that is used several times the last use counts
            return copy

        # The fused kernels of attention cannot go back for several seeds at once (vmap).
        plain_attention = sdpa_kernel(SDPBackend.MATH)
        with (
            hooked(self.model, self.layer, record),
            evaluating(self.model),
            torch.inference_mode(False),
            torch.enable_grad(),
            plain_attention,
            rules,
        ):
            leaf = x.detach().clone().requires_grad_()
            logits = outputs_of(self.model, leaf)
        if not outputs:
            raise ValueError(f"the layer {self.layer!r} was not used for this input{about_checkpointing(self.model)}")
        end = outputs[-1] if rules.activated is None else rules.activated
        if not end.requires_grad:
            raise ValueError(f"the layer {self.layer!r} does not depend on the input{about_checkpointing(self.model)}")
        if end.shape[0] != len(x):
            raise ValueError(
                f"the layer {self.layer!r} has features of shape {tuple(end.shape)} for {len(x)} images: its first dimension "
                "is not the images' (windows of attention, tokens first, or an input that is no batch?). Choose the block "
                "around it"
            )
        trace = Trace(
            features=end.detach(),
            outputs=logits.detach(),
            rule=self.rule or ("guided" if rules.activations else "gradient"),
            smooth=rules.smooth,
            activated=rules.activated is not None,
            uses=len(outputs),
            largest=max(rules.largest, leaf.numel()),
            total=max(rules.total, leaf.numel()),
            _model=self.model,
            _layer=self.layer,
            _input=leaf,
            _end=end,
            _logits=logits,
        )
        return trace, rules.activations


def forward_from(model: nn.Module, layer: str, x: Tensor, features: Tensor) -> Tensor:
    """(M, classes): the logits that the rest of a model computes with these features in the place of the layer's own.

    Args:
        model, layer: see :class:`Backtracker`.
        x: the inputs, whose pass gives what goes around the layer.
        features: in the layer's own layout, after the activation function if one follows directly: one for each input, or
            any number for a single one. For several calls with one x, keep its trace and use :meth:`Trace.forward`.

    Example:
        >>> model, x = nets.create("lenet").eval(), torch.rand(1, 1, 28, 28)
        >>> features = invert.Backtracker(model, "conv2").trace(x).features
        >>> torch.allclose(invert.forward_from(model, "conv2", x, features), model(x), atol=1e-6)
        True
    """
    return Backtracker(model, layer, "gradient").trace(x).forward(features)
