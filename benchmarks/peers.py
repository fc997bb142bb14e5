"""What a step with the penalty is compared with: the published form, others' optimizers and parametrizations, the floor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

LR = 1e-4


def published_form(weights: list[Tensor], rate: float) -> None:
    """p ← p − α·λ(WWᵀW − W): equ:bort weight by weight, as it stands, in TF32 where there is TF32."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    for p in weights:
        w = p.reshape(p.shape[0], -1)
        p.sub_((w @ w.T @ w - w).reshape(p.shape), alpha=rate)
    torch.backends.cuda.matmul.fp32_precision = before


def muon(weights: list[Tensor]) -> Callable[[], Any]:
    """torch's Muon on the same matrices."""
    params = [nn.Parameter(w.reshape(w.shape[0], -1).clone()) for w in weights]
    for p in params:
        p.grad = torch.randn_like(p)
    return torch.optim.Muon(params, lr=LR).step


def geotorch(weights: list[Tensor]) -> Callable[[], Any]:
    """geotorch's orthogonal parametrization of the same matrices: what it adds to a forward and backward pass."""
    try:
        import geotorch as library
    except ImportError:
        raise SystemExit("--peers compares with geotorch, which is not installed: pip install geotorch") from None

    layers = []
    for w in weights:
        m, n = w.shape[0], w.numel() // w.shape[0]
        layer = nn.Linear(n, m, bias=False, device=w.device)
        library.orthogonal(layer, "weight")
        layers.append((layer, torch.randn(m, n, device=w.device)))

    def step() -> None:
        for layer, gradient in layers:
            layer.weight.backward(gradient)

    return step


PEERS: dict[str, Callable[[list[Tensor]], Callable[[], Any]]] = {"Muon": muon, "geotorch": geotorch}


def floor(weights: list[Tensor], bandwidth: float, rate: float) -> float:
    """Milliseconds nobody can beat: weights read and written once; one triangle of the Gram matrix and one product."""
    size = sum(2 * p.numel() * p.element_size() for p in weights)
    flops = 0.0
    for p in weights:
        m, n = p.shape[0], p.numel() // p.shape[0]
        flops += 3 * min(m, n) ** 2 * max(m, n)
    return 1e3 * max(size / bandwidth, flops / rate)
