"""The words under pictures: true classes, and mistakes, which have a colour and a sign."""

from __future__ import annotations

from bort.pictures import BAD, GOOD, picture
from bort.report._illustration import Address
from bort.report._measured import Measured
from bort.report._sheet import Cell, Row, Words


def inputs(subject: Measured, numbers: range | tuple[int, ...], title: str) -> Row:
    """Test images, by their numbers, with their true classes."""
    count = max(numbers) + 1
    pixels, labels = subject.pixels(count), subject.labels(count).tolist()
    return Row(title, [Cell(picture(pixels[n]), _name(subject, labels[n])) for n in numbers])


def _name(subject: Measured, label: int) -> tuple[Words, ...]:
    """Nothing where the class is not known."""
    return (Words(subject.view.name(label)),) if label >= 0 else ()


def of_prediction(subject: Measured, predicted: int, label: int) -> Words:
    """✓ and the class, or ✗ and the class that it was mistaken for. Without a sign where the true class is not known."""
    name = subject.view.name(predicted)
    if label < 0:
        return Words(f"“{name}”")
    return Words(f"✓ {name}", GOOD) if predicted == label else Words(f"✗ {name}", BAD)


def mistakes(subject: Measured, count: int) -> list[tuple[Words, ...]]:
    """For each of the first images a line if the network mistakes it, and none if it does not."""
    pairs = zip(subject.predictions(count).tolist(), subject.labels(count).tolist(), strict=True)
    return [(of_prediction(subject, p, label),) if 0 <= label != p else () for p, label in pairs]


def about_mistakes(subjects: list[Measured], count: int) -> str:
    """A sentence: how many of the first images each network mistakes; nothing where no true class is known."""
    labels = subjects[0].labels(count)
    known = int((labels >= 0).sum())
    if not known:
        return "Their true classes are not known."
    words = []
    for subject in subjects:
        own = subject.labels(count)
        wrong = ((own >= 0) & (subject.predictions(count) != own.cpu())).sum()
        words.append(f"{subject.name} {int(wrong)}")
    return f"Below an input its true class; ✗ is what a network takes it for instead: of {known} shown, {', '.join(words)}."


def addresses(subject: Measured, numbers: range | tuple[int, ...], query: str) -> tuple[Address, ...]:
    """One for each image; ``query`` is the view. None if the subject has no view: the explorer does not take it then."""
    if subject.subject.view is None:
        return ()
    labels = subject.labels(max(numbers) + 1).tolist()
    names = [subject.view.name(labels[n]) for n in numbers]
    return tuple(
        Address(f"test-{n}{f' ({name})' if name else ''}", f"?{query}&image=test-{n}")
        for n, name in zip(numbers, names, strict=True)
    )
