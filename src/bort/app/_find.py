"""Images found in the index: by class, by what the networks say, by where they differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from bort.app._explorer import Explorer
    from bort.app._index_store import RunIndex

PAGE: Final = 48
"""Images shown at a time."""

Order = Literal["report", "confidence", "correlation", "sure", "unsure"]
What = Literal["labels", "classes"]


@dataclass(frozen=True)
class Question:
    """Which images, and in which order."""

    label: str = ""
    """The name of the true class; empty: any."""
    said: str = ""
    """The name of a class that one of the networks predicts; empty: any."""
    wrong: str = ""
    """"any": of which a network is wrong; "all": all are; "1": the second one is. Empty: any image."""
    disagree: bool = False
    """Only images of which the networks do not say the same."""
    order: Order = "report"
    page: int = 0


class Finder:
    def __init__(self, explorer: Explorer) -> None:
        self._explorer, self._index = explorer, explorer.index

    def find(self, question: Question) -> dict[str, Any]:
        """How far the index is, and a page of what is found in it so far."""
        index, count = self._index, self._index.predicted  # which may grow meanwhile
        numbers = self._ordered(question, self._matching(question, count))
        pages = max(1, math.ceil(len(numbers) / PAGE))
        page = min(question.page, pages - 1)
        return {
            "state": index.state,
            "message": index.message,
            "predicted": count,
            "count": index.count,
            "correlated": index.correlated,
            "correlated_count": index.correlated_count,
            "no_correlations": index.no_correlations,
            "labels": self._names("labels", count),
            "said": self._names("classes", count),
            "matches": len(numbers),
            "page": page,
            "pages": pages,
            "images": [self._row(int(number)) for number in numbers[page * PAGE : (page + 1) * PAGE]],
        }

    def _matching(self, question: Question, count: int) -> NDArray[np.int64]:
        """Of the first images, the numbers of those that the question is about, in the report's order."""
        runs = list(self._index.runs.items())
        kept = np.all([own.classes[:count] >= 0 for _, own in runs], axis=0)
        wrong = np.stack([(own.labels[:count] >= 0) & (own.labels[:count] != own.classes[:count]) for _, own in runs])
        if question.label:
            kept &= self._is(runs[0][0], "labels", question.label, count)
        if question.said:
            kept &= np.any([self._is(run, "classes", question.said, count) for run, _ in runs], axis=0)
        if question.wrong == "any":
            kept &= wrong.any(axis=0)
        elif question.wrong == "all":
            kept &= wrong.all(axis=0)
        elif question.wrong:
            kept &= wrong[int(question.wrong)] if int(question.wrong) < len(runs) else False
        if question.disagree:
            kept &= self.disagreeing(count)
        return np.flatnonzero(kept)

    def _is(self, run: str, what: What, name: str, count: int) -> NDArray[np.bool_]:
        """Which of the run's labels or predicted classes have this name: two networks may count the same classes
        differently."""
        numbers: NDArray[np.int64] = getattr(self._index.runs[run], what)[:count]
        view = self._explorer.view(run)
        return np.isin(numbers, [number for number in np.unique(numbers) if view.name(int(number)) == name])

    def disagreeing(self, count: int) -> NDArray[np.bool_]:
        said = []
        for run, own in self._index.runs.items():
            view = self._explorer.view(run)
            said.append(np.array([view.name(int(number)) for number in own.classes[:count]], dtype=object))
        different: NDArray[np.bool_] = np.zeros(count, bool)
        for other in said[1:]:
            different |= said[0] != other
        return different

    def _ordered(self, question: Question, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where two are equal, the report's order decides. Images without a correlation come last."""
        if question.order == "report":
            return numbers
        runs = list(self._index.runs.values())
        if question.order in ("confidence", "correlation"):
            rows = [own.correlations if question.order == "correlation" else _of_label(own) for own in runs]
            values = np.stack(rows)[:, numbers]
            keys = -(values.max(axis=0) - values.min(axis=0))
        else:
            is_one = question.wrong.isdecimal() and int(question.wrong) < len(runs)
            chosen = [runs[int(question.wrong)]] if is_one else runs
            mean = np.stack([own.probabilities for own in chosen])[:, numbers].mean(axis=0)
            keys = -mean if question.order == "sure" else mean
        return numbers[np.argsort(np.nan_to_num(keys, nan=np.inf), kind="stable")]

    def _names(self, what: What, count: int) -> list[str]:
        """Of the classes that occur, those of the first run first."""
        names: dict[str, None] = {}
        for run, own in self._index.runs.items():
            if what == "classes" or run == next(iter(self._index.runs)):
                numbers = np.unique(getattr(own, what)[:count])
                names |= dict.fromkeys(self._explorer.view(run).name(int(n)) for n in numbers if n >= 0)
        return list(names)

    def _row(self, number: int) -> dict[str, Any]:
        first, own = next(iter(self._index.runs.items()))
        return {
            "name": f"test-{number}",
            "label": self._explorer.view(first).name(int(own.labels[number])),
            "runs": [self._said(run, number) for run in self._index.runs],
        }

    def _said(self, run: str, number: int) -> dict[str, Any]:
        own = self._index.runs[run]
        label, said = int(own.labels[number]), int(own.classes[number])
        correlation = float(own.correlations[number])
        return {
            "said": self._explorer.view(run).name(said),
            "probability": float(own.probabilities[number]),
            "right": None if label < 0 else said == label,
            "correlation": None if math.isnan(correlation) else correlation,
        }


def _of_label(own: RunIndex) -> NDArray[np.float32]:
    """The probability of the image's own class; where that is not known, of the class that the network predicts."""
    return np.where(np.isnan(own.of_label), own.probabilities, own.of_label)
