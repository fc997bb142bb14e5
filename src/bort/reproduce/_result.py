"""One result, one file: what was measured, and everything that is needed to measure it again."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePosixPath
from typing import Any

from bort._files import write_atomically
from bort.train import Recipe


@dataclass(frozen=True)
class Result:
    """A row of a table with one seed.

    Example:
        >>> from pathlib import Path
        >>> recipe = train.recipes.get("mnist5k-lenet-sgd")
        >>> result = reproduce.Result("table1", recipe, {"accuracy": 0.97}, "table1/mnist5k-lenet-sgd-seed0.json")
        >>> _ = result.write(Path("results"))
        >>> [each.metrics["accuracy"] for each in reproduce.Result.read(Path("results/table1"))]
        [0.97]
    """

    table: str
    recipe: Recipe
    metrics: dict[str, Any]
    """What the experiment's ``measure`` returned, in its file null for what is not a number; empty if the training failed."""
    file: str
    """Its path inside the folder of results: "table1/mnist-lenet-sgd-seed0.json"."""
    note: str = ""
    """How this row differs from the others of its table."""
    failed: str = ""
    """Why the training ended before it was finished; empty if it did not."""
    quick: bool = False
    """On the built-in digits, instead of the paper's data."""
    command: str = ""
    """The shell command that makes this file again."""
    measuring_seconds: float = 0.0
    """What measuring took; the seconds of the training are in the metrics."""
    data: dict[str, str] = field(default_factory=dict)
    """Name and fingerprint of the data set."""
    hardware: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    commit: str = ""
    """These three are those of the training."""
    measured: dict[str, str] = field(default_factory=dict)
    """Hardware and commit of the measurement, which may be of another day than the training."""
    date: str = ""

    @property
    def row(self) -> str:
        """What the seeds of a row have in common: the recipe's name."""
        return self.recipe.name

    @property
    def seed(self) -> int:
        return self.recipe.seed

    @property
    def stem(self) -> str:
        """The name of its file, without ".json"."""
        return PurePosixPath(self.file).stem

    def write(self, folder: Path) -> Path:
        """Write its file inside the folder of results, completely or not at all."""
        values = {
            "failed": self.failed,
            "metrics": _finite(self.metrics),
            "table": self.table,
            "row": self.row,
            "note": self.note,
            "quick": self.quick,
            "command": self.command,
            "recipe": self.recipe.to_dict(),
            "seed": self.seed,
            "seconds": self.metrics.get("seconds"),
            "measuring_seconds": self.measuring_seconds,
            "data": self.data,
            "hardware": self.hardware,
            "versions": self.versions,
            "commit": self.commit,
            "measured": self.measured,
            "date": self.date,
        }
        file = folder / self.file
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        return file

    @classmethod
    def read(cls, folder: Path) -> list[Result]:
        """All results of a table's folder, by the names of their files."""
        return [cls.read_file(file) for file in sorted(folder.glob("*.json"))]

    @classmethod
    def read_file(cls, file: Path) -> Result:
        try:
            values = json.loads(file.read_text(), parse_constant=lambda _: None)  # NaN, in files of earlier versions
            recipe = Recipe.from_dict(values["recipe"])
            others = {f.name: values[f.name] for f in fields(cls) if f.name not in ("recipe", "file")}
        except (KeyError, TypeError, ValueError) as error:
            problem = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{file} is damaged: {problem}. Remove it, and `bort reproduce` makes it again") from error
        return cls(recipe=recipe, file=f"{file.parent.name}/{file.name}", **others)


def _finite(value: Any) -> Any:
    """The same with None for what is not a number: JSON has no NaN."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
