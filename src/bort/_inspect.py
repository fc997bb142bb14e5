"""Shared by `invert`, `explain` and `measure`, which run models of others and must leave them as they were: eval mode for a
block, logits out of whatever a model returns, checked inputs and classes, and how many images fit into one pass.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from bort._budget import TensorCount, current_budget
from bort._failures import explained
from bort._outputs import logits_of, per_image

Target = Tensor | int | None
"""A class for each image, one for all, or None: the class that the model predicts."""

Progress = Callable[[int, int], None]
"""Called with (done, total) while a slow method runs: in the method's own units, ``done`` never falling and equal to
``total`` at the end. To cancel the method, raise an exception there, for example :class:`Cancelled`."""


class Cancelled(Exception):
    """Raised by a ``progress`` function to end a method early. The model is left as it was.

    Example:
        >>> def impatient(done, total):
        ...     raise explain.Cancelled
        >>> try:
        ...     explain.rise(nets.create("lenet"), torch.rand(1, 1, 28, 28), masks=10, progress=impatient)
        ... except explain.Cancelled:
        ...     print("cancelled")
        cancelled
    """


_HALF = (torch.float16, torch.bfloat16)
_FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""What a model may raise for an input that it is not made for."""
_NO_LAYERS = "whose layers cannot be looked into: give the module that it was made from"
_COMPILED = "_orig_mod"  # the name under which torch.compile keeps a module
_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def unwrapped(model: nn.Module) -> nn.Module:
    """The module inside what torch.compile, DataParallel and DistributedDataParallel put around it. Hooks and torch function
    modes see the layers of that one only."""
    while True:
        if isinstance(model, torch.jit.ScriptModule):
            raise TypeError(f"the model is a {type(model).__name__} of torch.jit, {_NO_LAYERS}")
        compiled = model._modules.get(_COMPILED)
        if compiled is not None:
            model = compiled
        elif isinstance(model, _WRAPPERS):
            model = model.module
        else:
            return model


def uncompiled_name(name: str) -> str:
    """The name of a layer or parameter of an unwrapped model without what torch.compile of single layers put into it."""
    return ".".join(part for part in name.split(".") if part != _COMPILED)


def spellings(name: str) -> tuple[str, str]:
    """A name that was asked for, as it is, and without what wrappers put into it."""
    plain = uncompiled_name(name)
    while plain.startswith("module."):
        plain = plain.removeprefix("module.")
    return name, plain


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Inside, the model is in eval mode, and compiled parts of it run uncompiled, since compiled ones run without hooks;
    afterwards each of its modules is in the mode that it had before."""
    inner = unwrapped(model).modules()
    is_compiled = any(_COMPILED in module._modules or module._compiled_call_impl is not None for module in inner)
    modes = {module: module.training for module in model.modules()}
    try:
        _set_eval(model)
        with torch.compiler.set_stance("force_eager") if is_compiled else nullcontext():
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _set_eval(model: nn.Module) -> None:
    try:
        model.eval()
    except NotImplementedError as error:
        raise TypeError(f"the model is a module of torch.export, {_NO_LAYERS}") from error


def outputs_of(model: nn.Module, x: Tensor) -> Tensor:
    """The model's logits for x: (N, classes) of a classifier."""
    return per_image(logits_of(run(model, x)), len(x))


def run(model: nn.Module, x: Tensor) -> Any:
    """What the model returns for x, of which it gets a copy, since its first layer may work in place. An error of the model's
    becomes a ValueError that says what may be wrong with x."""
    inner = unwrapped(model)
    try:
        return inner(x * 1)
    except _FAILURES as error:
        told = explained(error, inner, x)
        if told is error:
            raise
        raise told from error


ScoreFunction = Callable[[Tensor, Tensor], Tensor]
"""From logits (N, classes) and the classes (N,) that are looked at, (N,) scores."""


def probabilities_of(logits: Tensor, *, multi_label: bool = False) -> Tensor:
    """Of the classes in the last dimension: softmax; sigmoid if an image may have several of them, and of a single logit,
    whose softmax would be 1 for every image."""
    return logits.sigmoid() if multi_label or logits.shape[-1] == 1 else logits.softmax(dim=-1)


def class_probabilities(logits: Tensor, *, multi_label: bool = False) -> Tensor:
    """The same for people to read: a single logit decides between two classes, 0 and 1, and has the probabilities of both."""
    probabilities = probabilities_of(logits, multi_label=multi_label)
    return torch.cat([1 - probabilities, probabilities], dim=-1) if logits.shape[-1] == 1 else probabilities


def decisions_of(logits: Tensor) -> Tensor:
    """(N,): the classes that logits (N, classes) decide for: the largest one's, and of a single logit class 1 where it is
    above 0. Which of the logits is explained is another question, see :func:`targets_of`."""
    largest = targets_of(logits, None)
    return (logits[:, 0] > 0).long() if logits.shape[1] == 1 else largest


def class_of_logit(place: int, logits: Tensor) -> int:
    """The class that speaks from one of the logits (…, classes): a single one is for class 1 and against class 0."""
    return 1 if logits.shape[-1] == 1 else place


def own_scores(score: ScoreFunction, logits: Tensor, classes: Tensor) -> Tensor:
    """(N,) by a function of the caller's."""
    scores = score(logits, classes)
    if not isinstance(scores, Tensor) or scores.shape != (len(logits),):
        given = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(
            f"the score function returns {given} for {len(logits)} images: it must return one number for each"
        )
    return scores


def check_input(model: nn.Module, x: Tensor) -> None:
    """Refuse an input that would fail later with an unclear error, or give a result without meaning."""
    if not isinstance(x, Tensor) or not x.is_floating_point():
        remedy = (
            "For a model that takes another kind of input write a module around it whose forward takes one tensor"
            if not isinstance(x, Tensor)
            else "Convert images and normalise them as the model knows them; numbers of tokens have no pixels to explain"
        )
        raise TypeError(
            f"the input must be a tensor of floating-point numbers, not {getattr(x, 'dtype', type(x).__name__)}. {remedy}"
        )
    if not x.ndim or not len(x):
        raise ValueError(f"the input of shape {tuple(x.shape)} has no images in it")
    if not torch.isfinite(x).all():
        raise ValueError("the input has NaN or Inf in it")
    device = next((p.device for p in model.parameters()), x.device)
    if device != x.device:
        raise ValueError(f"the input is on {x.device}, the model on {device}: move one of them")


def check_images(model: nn.Module, x: Tensor) -> None:
    """`check_input`, and four dimensions."""
    check_input(model, x)
    if x.ndim != 4:
        raise ValueError(f"images of shape {tuple(x.shape)}: give them as (N, channels, height, width)")


def precise(model: nn.Module) -> nn.Module:
    """The model for gradients: as it is, or a copy in float32 if it is in half precision.

    In float16 gradients overflow and vanish; in bfloat16 they have two digits, and errors add up over the layers.
    """
    if not any(p.dtype in _HALF for p in model.parameters()):
        return model
    try:
        with torch.inference_mode(False):
            return copy.deepcopy(unwrapped(model)).float()
    except RuntimeError as error:
        raise ValueError(
            f"gradients of a model in half precision are computed with a copy in float32, which cannot be made: {error}. "
            "Give the model in float32"
        ) from error


def widened(x: Tensor) -> Tensor:
    """The numbers in float32 if they are in half precision."""
    return x.float() if x.dtype in _HALF else x


def finite(numbers: Tensor, of: str) -> Tensor:
    """The numbers (N, …), if all of them are finite."""
    if not torch.isfinite(numbers).all():
        count = int((~torch.isfinite(numbers.flatten(1))).any(dim=1).sum())
        raise ValueError(
            f"{of} have NaN or Inf for {count} of {len(numbers)} images: the weights have diverged, a gradient does not "
            f"exist, or numbers are too large for {numbers.dtype}"
        )
    return numbers


def slopes(model: nn.Module, images: Tensor, classes: Tensor) -> Tensor:
    """∂ logit of each image's class / ∂ image, in the images' shape; 0 where the logit does not depend on the image."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf = images.detach().clone().requires_grad_()
        logits = outputs_of(model, leaf)
        if not logits.requires_grad:
            raise ValueError(NO_GRADIENT)
        chosen = logits.gather(1, classes.clone()[:, None])  # a clone: the classes may be a tensor of inference mode
        (gradients,) = torch.autograd.grad(chosen.sum(), leaf, materialize_grads=True)
    return gradients


NO_GRADIENT = (
    "the model's logits have no gradient: it computes them under torch.no_grad, or in another way that autograd does not "
    "follow. RISE needs no gradient"
)


def targets_of(outputs: Tensor, target: Target) -> Tensor:
    """(N,) places of logits, checked; if none are given, those of the classes that the outputs predict. A single logit is
    explained whatever it says."""
    if outputs.ndim != 2:
        raise ValueError(
            f"the model gives outputs of shape {tuple(outputs.shape)}, not (N, classes): write a module around it that gives "
            "each image one logit for each class, for example the mean over places or tokens"
        )
    count, classes = outputs.shape
    if target is None:
        return outputs.argmax(dim=1)
    chosen = torch.as_tensor(target, device=outputs.device)
    if chosen.is_floating_point() or chosen.shape not in ((), (count,)):
        raise ValueError(
            f"target of shape {tuple(chosen.shape)}: give one class, or one for each of the {count} images"
        )
    chosen = chosen.long().expand(count)
    if chosen.min() < 0 or chosen.max() >= classes:
        wrong = chosen[(chosen < 0) | (chosen >= classes)][0].item()
        raise ValueError(f"target={wrong}: the model has {classes} classes, 0 to {classes - 1}")
    return chosen


def classes_of(model: nn.Module, x: Tensor, target: Target) -> Tensor:
    """(N,) classes, checked; what the model predicts for each image if none are given. See :func:`targets_of`."""
    return targets_of(all_outputs(model, x), target)


@torch.no_grad()
def all_outputs(model: nn.Module, x: Tensor) -> Tensor:
    """The model's logits for any number of images, in as many passes as memory asks for; an error if they are not finite."""
    parts = torch.split(x, images_at_once(model, x))
    with evaluating(model):
        outputs = torch.cat([outputs_of(model, part) for part in parts])
    if len(outputs) != len(x):
        raise ValueError(
            f"the model gives outputs of shape {tuple(outputs.shape)} for {len(x)} images: their first dimension must be the "
            "images'"
        )
    return finite(outputs, "the model's outputs")


def images_at_once(model: nn.Module, x: Tensor, *, backward: bool = False) -> int:
    """How many images the model can take in one pass within the memory budget, estimated by a pass of one. ``backward``: in a
    pass that keeps its tensors for gradients."""
    cost, budget = TensorCount(), current_budget()
    with torch.no_grad(), evaluating(model), cost:
        outputs_of(model, x[:1])
    forward = min(budget.forward, budget.cpu) if x.device.type == "cpu" else budget.forward
    return max(1, budget.kept // max(1, cost.total) if backward else forward // max(1, cost.largest))
