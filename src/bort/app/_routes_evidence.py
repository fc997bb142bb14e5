"""Saliency maps, slow ones by the queue, and their curves."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from bort import explain
from bort._defaults import DELETION_STEPS, OVERLAY_STRENGTH
from bort.app import _answers as answers
from bort.app._calculations import Calculation, Calculations
from bort.app._exceptions import Unknown
from bort.app._explorer import Explorer
from bort.app._export import data_url
from bort.app._parameters import ClassNumber, Name, Options, RequestedMap, SlowMethod, Strength, options_of
from bort.app._saliency import MOST_TRACKED


def routes(explorer: Explorer, queue: Calculations) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.post("/jobs", response_model=answers.CalculationStatus)
    def start(
        run: Name,
        image: Name,
        method: SlowMethod,
        target: ClassNumber | None = None,
        options: Options = "",
        page: Name = "",
    ) -> dict[str, Any]:
        """Compute the map of a slow method; asked for twice, it is computed once. ``page`` tells one page from another."""
        explorer.image(run, image)  # an unknown run or image is an error before anything is queued
        given = options_of(method, options)
        if not explain.get(method).slow:
            raise ValueError(f"{method} is not slow: ask for its map at /api/saliency.")
        key = json.dumps([run, image, method, target, sorted(given.items())])

        def compute(progress: explain.Progress) -> None:
            explorer.saliency.map(run, image, method, target, options=given, progress=progress)

        return _status(queue.start(key, compute, page))

    @router.get("/jobs/{name}", response_model=answers.CalculationStatus)
    def status(name: str, page: Name = "") -> dict[str, Any]:
        return _status(queue.get(name, page))

    @router.delete("/jobs/{name}", response_model=answers.CalculationStatus)
    def leave(name: str, page: Name = "") -> dict[str, Any]:
        """This page no longer waits for it; it is stopped if no other page does."""
        return _status(queue.leave(name, page))

    @router.get("/saliency", response_model=answers.PictureAnswer)
    def saliency(of: RequestedMap, strength: Strength = OVERLAY_STRENGTH) -> dict[str, Any]:
        """The map over the image."""
        saliency, signed = of.map(explorer), explain.get(of.method).signed
        return {"picture": data_url(explorer.saliency.overlay(of.run, of.image, saliency, strength, signed=signed))}

    @router.get("/saliency/difference", response_model=answers.PictureAnswer)
    def difference(of: RequestedMap, against: Name, strength: Strength = OVERLAY_STRENGTH) -> dict[str, Any]:
        """The map of ``run`` less that of ``against``, over the image. Of SAT, k is cut to each network's channels."""
        maps = {run: replace(of, run=run, k=_channels(explorer, run, of.k)).map(explorer) for run in (of.run, against)}
        signed = explain.get(of.method).signed
        return {"picture": data_url(explorer.saliency.difference(of.image, maps, strength, signed=signed))}

    @router.get("/curve", response_model=dict[str, answers.Curve])
    def curve(of: RequestedMap) -> dict[str, Any]:
        """Deletion and insertion by three scores."""
        return explorer.saliency.curve(of.run, of.image, of.map(explorer), of.target)

    @router.get("/step", response_model=answers.PictureAnswer)
    def step(
        of: RequestedMap,
        step: Annotated[int, Query(ge=0, le=DELETION_STEPS)],
        which: Literal["deletion", "insertion"] = "deletion",
    ) -> dict[str, Any]:
        """The image at a step; its score is in the curve."""
        return {"picture": data_url(explorer.saliency.step(of.run, of.image, of.map(explorer), step, which))}

    return router


def _channels(explorer: Explorer, run: str, k: int | None) -> int | None:
    return None if k is None else min(k, MOST_TRACKED, explorer.channel_count(run, explorer.top(run)))


def _status(calculation: Calculation | None) -> dict[str, Any]:
    if calculation is None:
        raise Unknown("There is no such calculation any more.")
    return {
        "job": calculation.name,
        "state": calculation.state,
        "done": calculation.done,
        "total": calculation.total,
        "message": calculation.message,
    }
