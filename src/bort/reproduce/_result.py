"""One result, one file: what came out, and everything that is needed to get it again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from bort import _environment
from bort._whole import write_whole
from bort.train import Recipe, Run


def write(file: Path, *, command: str, recipe: Recipe, run: Run | None, seconds: float, **facts: Any) -> dict[str, Any]:
    """DESIGN's list: metrics, recipe, seed, commit, versions, hardware, seconds, data hash; whole or not at all."""
    start = run.environment[-1] if run and run.environment else {}
    data = start.get("data", {})
    result = {
        **facts,
        "command": command,
        "recipe": recipe.to_dict(),
        "seed": recipe.seed,
        "seconds": round(seconds, 2),
        "data": {"name": recipe.data.name, "fingerprint": data.get("fingerprint", "")},
        "hardware": _environment.hardware(),
        "versions": _environment.versions(),
        "commit": _environment.commit(),
        "date": time.strftime("%Y-%m-%d"),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return result


def read(folder: Path) -> list[dict[str, Any]]:
    """All results of a folder, by name."""
    found = []
    for file in sorted(folder.glob("*.json")):
        try:
            found.append(json.loads(file.read_text()) | {"file": f"{folder.name}/{file.name}"})
        except ValueError as error:
            raise ValueError(f"{file} is damaged: {error}. Remove it, and `bort reproduce` makes it again") from error
    return found
