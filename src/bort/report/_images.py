"""Figures of images: reconstructions, saliency, features, clusters, adversaries."""

from __future__ import annotations

import torch

from bort import explain, invert
from bort._defaults import CLUSTERS
from bort.pictures import BAD, GOOD, MUTED, colour, coloured_groups, overlay, picture, signal
from bort.report import _marks
from bort.report._illustration import Address, Drawn
from bort.report._measured import Measured, Say, shared_methods
from bort.report._sheet import COLUMNS, Cell, Row, Words, sheet
from bort.report._words import joined, listed, percent, plural


def reconstruction(subjects: list[Measured]) -> Drawn:
    """fig:2_1_recon: g of the top layer's whole map."""
    rows, means = _traced_back(subjects, {subject.name: None for subject in subjects})
    layers = joined(list(dict.fromkeys(subject.layer for subject in subjects)))
    look = (
        f"Each image, traced back from the map of {layers}; under it the correlation with the input. Mean over "
        f"{_measured_images(subjects)}: {listed(means)}. {_marks.about_mistakes(subjects, _shown(subjects[0]))}"
        f"{_about_rule(subjects)}"
    )
    return Drawn(sheet(rows), look, _addresses(subjects[0], "view=inside"))


def features(subjects: list[Measured]) -> Drawn:
    """fig:3_1_topk64_recon: from the most salient features alone, binarised."""
    rows, means = _traced_back(subjects, {subject.name: subject.features for subject in subjects})
    channels = {s.name: f"{s.features} of {s.channels}" for s in subjects}
    look = (
        f"Only the strongest channels count ({listed(channels)}), each as a single 1 at its strongest place. Correlation "
        f"with the input, mean over {_measured_images(subjects)}: {listed(means)}.{_about_rule(subjects)}"
    )
    return Drawn(sheet(rows), look, _addresses(subjects[0], "view=inside&part=k"))


def _traced_back(subjects: list[Measured], k: dict[str, int | None]) -> tuple[list[Row], dict[str, float]]:
    """Inputs above reconstructions with their correlations; and the means of these over all measured images."""
    count, means = _shown(subjects[0]), {}
    rows = [_marks.inputs(subjects[0], range(count), "input")]
    for number, subject in enumerate(subjects):
        made, lines = subject.reconstructions(k[subject.name]), _marks.mistakes(subject, count)
        means[subject.name] = made.correlations.mean().item()
        shown = zip(made.signals, made.correlations.tolist(), lines, strict=False)
        cells = [Cell(signal(s), (Words(f"{c:.2f}"), *line)) for s, c, line in shown]
        rows.append(Row(subject.name, cells, colour(number)))
    return rows, means


def _about_rule(subjects: list[Measured]) -> str:
    """A sentence for each network whose signals the guided rule has no part in."""
    return "".join(
        f" {subject.name} has no ReLU, GELU or SiLU that the guided rule could act on: its signals are gradients."
        for subject in subjects
        if not subject.is_guided
    )


def _measured_images(subjects: list[Measured]) -> str:
    """How many; there may be fewer than asked for."""
    return plural(len(subjects[0].images(subjects[0].sizes.measured)), "test image")


def _shown(subject: Measured) -> int:
    return len(subject.images(subject.sizes.shown))


def _addresses(subject: Measured, query: str) -> tuple[Address, ...]:
    return _marks.addresses(subject, range(_shown(subject)), query)


def saliency(subjects: list[Measured], say: Say | None = None) -> Drawn:
    """fig:2_2_saliency, all methods: a row a method, the runs beside each other for each image."""
    first, methods = subjects[0], shared_methods(subjects)
    count = min(max(1, COLUMNS // len(subjects)), first.sizes.shown, first.sizes.evaluated)
    count = min(count, len(first.images(count)))
    maps = [{name: e.maps for name, e in subject.evaluate(methods, say).items()} for subject in subjects]
    pixels = [subject.pixels(count) for subject in subjects]
    columns = [(n, number) for n in range(count) for number in range(len(subjects))]
    predictions = [subject.predictions(count).tolist() for subject in subjects]
    heads = []
    for n, number in columns:
        subject = subjects[number]
        name = (Words(f"■ {subject.name}", colour(number)),) if len(subjects) > 1 else ()
        answer = _marks.of_prediction(subject, predictions[number][n], int(subject.labels(count)[n]))
        heads.append(Cell(picture(pixels[number][n]), (*name, answer)))
    rows = [Row("input, and what it is taken for", heads)]
    rows += [
        Row(
            explain.get(method).label,
            [Cell(overlay(pixels[number][n], maps[number][method][n])) for n, number in columns],
        )
        for method in methods
    ]
    look = (
        f"Bright: what counts for the class that the network names under the image, for {plural(count, 'test image')}. "
    )
    if "sat" in methods:
        k = listed({s.name: str(s.features) for s in subjects})
        look += f"SAT (k: {k}) shows what excites the top layer, whatever the class. "
    look += "".join(
        f"{subject.name} has one logit, so bright is what counts for “{subject.view.name(1)}”, whatever is named. "
        for subject in subjects
        if subject.has_one_logit
    )
    look += "Whether bright pixels are the ones that matter is measured by deletion and insertion."
    if "sat" in methods:
        look += _about_rule(subjects)
    for subject, own in zip(subjects, maps, strict=True):
        look += "".join(f" {subject.name}: {words}" for words in explain.about_constant(own))
    return Drawn(sheet(rows, max(COLUMNS, len(subjects))), look, _marks.addresses(first, range(count), "view=evidence"))


def clusters(subjects: list[Measured], groups: int = CLUSTERS) -> Drawn:
    """fig:3_2_topk64_decom: the signals of the salient channels, in groups."""
    shown, largest = _shown(subjects[0]), {}
    rows = [_marks.inputs(subjects[0], range(shown), "input")]
    for number, subject in enumerate(subjects):
        k, count = subject.features, min(groups, subject.features)
        parts = invert.decompose(subject.model, subject.images(shown), subject.layer, k, clusters=count)
        assert parts.clusters is not None
        sizes = torch.stack([(parts.clusters == group).sum(dim=1) for group in range(count)]).float().amax(dim=0)
        largest[f"{subject.name} ({k} channels, {count} groups)"] = f"{sizes.mean() / k:.0%}"
        coloured = (coloured_groups(s, c, count) for s, c in zip(parts.signals, parts.clusters, strict=True))
        cells = [Cell(image, line) for image, line in zip(coloured, _marks.mistakes(subject, shown), strict=True)]
        rows.append(Row(subject.name, cells, colour(number)))
    look = (
        "The signals of the most salient channels, put in groups by K-Means on their shapes, a colour a group: look whether "
        f"a colour is one part of the image. The largest group has on average over {plural(shown, 'image')}, "
        f"{listed(largest)} of the channels.{_about_rule(subjects)}"
    )
    return Drawn(sheet(rows), look, _addresses(subjects[0], "view=inside&clusters=1"))


def adversaries(subjects: list[Measured]) -> Drawn:
    """fig:3_3_adversary, with the class that the network predicts for each."""
    first = subjects[0]
    pairs = first.pairs
    sources, targets = (side[: first.sizes.shown] for side in pairs)
    count = len(sources)
    rows = [_marks.inputs(first, sources, "source"), _marks.inputs(first, targets, "target")]
    words = []
    for number, subject in enumerate(subjects):
        made = subject.adversaries(pairs)
        images = subject.view.pixels(made.images[:count])
        answers = zip(
            made.image_verdicts.tolist(), made.source_classes.tolist(), made.target_classes.tolist(), strict=True
        )
        lines = [_answer(subject, *answer) for answer in answers]
        cells = [Cell(picture(image), (line,)) for image, line in zip(images, lines, strict=False)]
        rows.append(Row(subject.name, cells, colour(number)))
        words.append(
            f"of the {made.pairs} pairs that {subject.name} tells apart, it takes {percent(made.image_success)} of "
            f"the images and {percent(made.map_success)} of the transplanted maps for what it says of the target; "
            f"correlation with the source {made.source_similarity.mean():.2f}"
        )
    look = (
        "Made to look like the source and to be taken for the target; under each what the network says, ✓ where that is what "
        f"it says of the target. {plural(len(pairs[0]), 'pair')}: {'; '.join(words)}.{_about_rule(subjects)}"
    )
    places = tuple(
        Address(f"test-{s} → test-{t}", f"?view=transplant&image=test-{s}&other=test-{t}")
        for s, t in zip(sources, targets, strict=True)
    )
    return Drawn(sheet(rows), look, places)


def _answer(subject: Measured, verdict: int, source: int, target: int) -> Words:
    """What is said of an adversary. Nothing can be shown with a pair that the network does not tell apart."""
    name = subject.view.name(verdict)
    if source == target:
        return Words(name, MUTED)
    return Words(f"✓ {name}", GOOD) if verdict == target else Words(f"✗ {name}", BAD)
