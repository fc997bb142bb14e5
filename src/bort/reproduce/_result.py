"""One result, one file: what came out, and everything that is needed to get it again."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from bort import _environment
from bort._files import write_atomically
from bort.train import Recipe


def write(file: Path, folder: Path, command: str, recipe: Recipe, spent: float, **facts: Any) -> dict[str, Any]:
    """DESIGN's list: metrics, recipe, seed, commit, versions, hardware, seconds, data hash; whole or not at all.

    ``folder`` is the run's: hardware, versions and commit are those of the training, which may have been another day's.
    ``spent`` is what measuring took beside it.
    """
    starts = folder / "environment.json"
    start = json.loads(starts.read_text())[-1] if starts.exists() else {}
    data = start.get("data", {})
    result = {
        **facts,
        "command": command,
        "recipe": recipe.to_dict(),
        "seed": recipe.seed,
        "seconds": facts.get("metrics", {}).get("seconds"),
        "measuring_seconds": round(spent, 2),
        "data": {"name": recipe.data.name, "fingerprint": data.get("fingerprint", "")},
        "hardware": start.get("hardware", _environment.hardware()),
        "versions": start.get("versions", _environment.versions()),
        "commit": start.get("commit", _environment.commit()),
        "measured": {"hardware": _environment.hardware(), "commit": _environment.commit()},
        "date": time.strftime("%Y-%m-%d"),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, json.dumps(result, indent=1, ensure_ascii=False) + "\n")
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
