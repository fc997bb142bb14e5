"""Which function works on which architecture: the table of docs/architectures.md.

    python benchmarks/architectures.py [NAME …] [--out FILE.json] [--page FILE.md]

Every function runs on every network of benchmarks/networks.py, with two images in float64. "works" is checked: the result is
finite and has the right shape, no map is constant, each image alone gives what it gives in the batch, and the model is as it
was (parameters, buffers, gradients, modes, hooks). "refused" comes with the function's own sentence that says why. Anything
else, another exception or a failed check, ends the program. With names only those networks run; the others keep what the file
says of them, with the commit that they were measured at.
"""

from __future__ import annotations

import argparse
import json
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from networks import ARCHITECTURES, Architecture, images
from torch import Tensor, nn

from bort import audit, data, explain, invert, measure
from bort._environment import describe

HERE = Path(__file__).parent
BEGIN, END = "<!-- made by benchmarks/architectures.py -->", "<!-- until here -->"
TOLERANCE = 1e-5
"""Between an image by itself and in a batch, relative to the largest number: some networks compute parts in float32."""


@dataclass(frozen=True)
class Function:
    """One column of the table."""

    call: Callable[[nn.Module, Tensor], Tensor]
    """From a model and images (N, C, H, W)."""
    result: str = "maps"
    """What the tensor is: "maps" (N, H, W), "images" (N, …, C, H, W), "numbers" (N, …), or "whole": not of single images."""


def _audit(model: nn.Module, x: Tensor) -> Tensor:
    layers = audit(model, x)
    ratios = [
        layer.ratio for layer in layers if layer.ratio is not None
    ]  # none of a layer that is not used, or gets zeros
    assert len(ratios) > 0.8 * len(layers), f"{len(ratios)} of {len(layers)} layers have a ratio"
    return torch.tensor([*ratios, *(number for layer in layers for number in (*layer.sigma, layer.residual))])


def _reconstruct_layer(model: nn.Module, x: Tensor) -> Tensor:
    name = next(n for n, m in model.named_modules() if isinstance(m, (nn.Conv2d, nn.Linear)))
    return invert.reconstruct_layer(model, x, name).outputs


def _deletion_insertion(model: nn.Module, x: Tensor) -> Tensor:
    curves = measure.deletion_insertion(model, x, x.mean(dim=1), steps=4, score="logit", insertion_from="blur")
    return torch.cat([curves.deletion_curves, curves.insertion_curves], dim=1)


def _evaluate(model: nn.Module, x: Tensor) -> Tensor:
    scores = measure.evaluate(model, x, ["ig"], steps=4, options={"ig": {"steps": 2}}, warn=False)["ig"].scores
    return torch.stack([scores["probability"].deletion, scores["logit"].insertion], dim=1)


def _robustness(model: nn.Module, x: Tensor) -> Tensor:
    channels = x.shape[1]
    view = data.View(x.shape[-1], channels, (0.5,) * channels, (0.25,) * channels)
    labels = torch.arange(len(x)) % 2
    kinds = ["noise 0.08", "blur 1.0", "fgsm 2/255"] + ["jpeg 50"] * (channels in (1, 3))
    return torch.tensor(list(measure.robustness(model, x.clamp(-2, 2), labels, view, kinds).values()))


def _sanity(model: nn.Module, x: Tensor) -> Tensor:
    twin = measure.randomised(model, x=x)
    maps, others = (explain.integrated_gradients(m, x, 0, steps=2) for m in (model, twin))
    measure.map_similarity(maps, others)  # nan if a map is constant, as of a network whose ReLUs are all closed
    return others


FUNCTIONS = {
    "audit": Function(_audit, "whole"),
    "reconstruct": Function(lambda m, x: invert.reconstruct(m, x, explain.top_layer(m, x), 4), "images"),
    "decompose": Function(lambda m, x: invert.decompose(m, x, explain.top_layer(m, x), 3).signals, "images"),
    "synthesize": Function(
        lambda m, x: invert.synthesize(m, x, x.flip(-1), explain.top_layer(m, x), 4).images, "images"
    ),
    "reconstruct_layer": Function(_reconstruct_layer, "numbers"),
    "cam": Function(explain.cam),
    "sat": Function(lambda m, x: explain.sat(m, x, k=4)),
    "ig": Function(lambda m, x: explain.integrated_gradients(m, x, steps=4)),
    "guided-ig": Function(lambda m, x: explain.guided_ig(m, x, steps=4)),
    "rise": Function(lambda m, x: explain.rise(m, x, masks=16, cells=4)),
    "xrai": Function(lambda m, x: explain.xrai(m, x, steps=2)),
    "deletion and insertion": Function(_deletion_insertion, "numbers"),
    "evaluate": Function(_evaluate, "numbers"),
    "robustness": Function(_robustness, "whole"),
    "randomised": Function(_sanity, "whole"),
}


def check(function: Function, model: nn.Module, x: Tensor) -> None:
    """AssertionError if the result is not what it should be; what the function raises if it refuses."""
    before, original = state(model), x.clone()
    result = function.call(model, x)
    same(before, state(model))
    assert torch.equal(x, original), "the images have been changed"
    assert torch.isfinite(result).all(), "not finite"
    if function.result == "whole":
        return
    if function.result != "numbers":
        shape = x.shape[-2:] if function.result == "maps" else x.shape[1:]
        assert result.shape[0] == len(x), f"a result of shape {tuple(result.shape)}"
        assert result.shape[-len(shape) :] == shape, f"a result of shape {tuple(result.shape)}"
    flat = result.flatten(1)
    assert not (flat == flat[:, :1]).all(dim=1).any(), "constant"
    singles = torch.cat([function.call(model, image[None]) for image in x])
    torch.testing.assert_close(singles, result, rtol=0, atol=TOLERANCE * result.abs().max().item())


def state(model: nn.Module) -> dict[str, Any]:
    """All that a function has to leave as it was."""
    return {
        "weights": {name: value.clone() for name, value in model.state_dict().items()},
        "gradients": [p.grad is None for p in model.parameters()],
        "trainable": [p.requires_grad for p in model.parameters()],
        "modes": [module.training for module in model.modules()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in model.modules()],
    }


def same(before: dict[str, Any], after: dict[str, Any]) -> None:
    weights, others = before.pop("weights"), after.pop("weights")
    assert weights.keys() == others.keys(), "the model has other parameters"
    assert all(torch.equal(weights[name], others[name]) for name in weights), "the model's weights have been changed"
    assert before == after, "the model's modes, gradients or hooks have been changed"


def look_at(architecture: Architecture) -> dict[str, str]:
    """For each function "works", or "refused: …"."""
    model, x = architecture.network(), images(2, architecture.shape)
    results = {}
    for name, function in FUNCTIONS.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                check(function, model, x)
            results[name] = "works"
        except (ValueError, TypeError) as error:
            results[name] = "refused: " + re.sub(r"\(\d+, ", "(N, ", str(error))
        except Exception as error:
            raise RuntimeError(f"{name} on {architecture.name}: {type(error).__name__}: {error}") from error
    return results


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table, and below it the reasons by their numbers."""
    reasons: dict[str, int] = {}
    lines = ["| | | " + " | ".join(FUNCTIONS) + " |", "|---" * (2 + len(FUNCTIONS)) + "|"]
    for row in rows:
        cells = []
        for name in FUNCTIONS:
            result, _, reason = row["results"][name].partition(": ")
            cells.append(f"{result} [{reasons.setdefault(reason, len(reasons) + 1)}]" if reason else result)
        lines.append(f"| {row['name']} | {row['kind']} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"{number}. {reason}" for reason, number in reasons.items())])


def write_page(page: Path, table: str) -> None:
    text = page.read_text()
    page.write_text(
        re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: f"{BEGIN}\n{table}\n{END}", text, flags=re.DOTALL)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "architectures-cpu.json")
    parser.add_argument("--page", type=Path, default=HERE.parent / "docs" / "architectures.md")
    options = parser.parse_args()
    torch.set_num_threads(1)
    unknown = set(options.names) - {architecture.name for architecture in ARCHITECTURES}
    if unknown:
        parser.error(f"no network is called {min(unknown)!r}; there are {', '.join(a.name for a in ARCHITECTURES)}")
    known = {}
    if options.names and options.out.exists():
        known = {row["name"]: row for row in json.loads(options.out.read_text())["architectures"]}
    facts, rows = describe(0), []
    facts["versions"]["transformers"] = version("transformers")
    measured_at = {key: facts.pop(key) for key in ("commit", "date")}
    for architecture in ARCHITECTURES:
        if options.names and architecture.name not in options.names:
            rows += [known[architecture.name]] if architecture.name in known else []
            continue
        start = time.perf_counter()
        results = look_at(architecture)
        row = {"name": architecture.name, "kind": architecture.kind, "images": list(architecture.shape)}
        rows.append({**row, "results": results, "seconds": round(time.perf_counter() - start, 1), **measured_at})
        refused = [name for name, result in results.items() if result != "works"]
        print(f"{architecture.name}: {rows[-1]['seconds']} s" + (f", refused: {', '.join(refused)}" if refused else ""))
    options.out.write_text(json.dumps(facts | {"architectures": rows}, indent=1, ensure_ascii=False) + "\n")
    write_page(options.page, markdown(rows))


if __name__ == "__main__":
    main()
