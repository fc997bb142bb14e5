"""What a layer has kept of an image: its channels, reconstructions, transplants."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from bort._defaults import CLUSTERS
from bort.app import _answers as answers
from bort.app._edits import ChannelEdits
from bort.app._explorer import Explorer
from bort.app._export import data_url
from bort.app._inside import Rank
from bort.app._parameters import ChannelCount, ClassNumber, Edits, Name, PatternCount, Start
from bort.app._thumbnails import sheet_url
from bort.pictures import picture, png, scale_of, signal


def routes(explorer: Explorer) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/channels", response_model=answers.Channels)
    def channels(
        run: Name,
        image: Name,
        layer: Name,
        k: PatternCount | None = None,
        start: Start = 0,
        rank: Rank = "strength",
        target: ClassNumber | None = None,
        scale: Annotated[float, Query(ge=1e-30, le=1e30)] | None = None,
    ) -> dict[str, Any]:
        """Channels in the order of the rank, from the start-th on, and a sheet of their patterns as a data URL. With rank
        "effect", on the logit of ``target`` or of the predicted class. ``scale``: that of another sheet."""
        sheet = explorer.inside.channels(run, image, layer, k, start, rank, target, scale)
        return sheet | {"sheet": sheet_url(sheet["sheet"], sheet["sheet"].shape[1] // sheet["columns"])}

    @router.get("/channel.png", response_class=answers.Png)
    def channel(run: Name, image: Name, layer: Name, channel: Annotated[int, Query(ge=0, le=1_000_000)]) -> Response:
        return answers.Png(png(signal(explorer.inside.channel(run, image, layer, channel))))

    @router.get("/reconstruct", response_model=answers.Reconstruction)
    def reconstruct(
        run: Name,
        image: Name,
        layer: Name,
        k: ChannelCount | None = None,
        binary: bool = True,
        edits: Edits = "",
    ) -> dict[str, Any]:
        """From the whole map, or from its k most salient features."""
        scaled = ChannelEdits.parse(edits)
        back, correlation = explorer.inside.reconstruct(run, image, layer, k, binary=binary, edits=scaled)
        scale = scale_of(back)
        return {"picture": data_url(signal(back, scale)), "correlation": correlation, "scale": scale}

    @router.get("/edit", response_model=answers.Edit)
    def edit(
        run: Name,
        image: Name,
        layer: Name,
        edits: Edits,
        k: ChannelCount | None = None,
        binary: bool = True,
    ) -> dict[str, Any]:
        """What edits change: the reconstruction, and what the network says when the edited map runs on through it."""
        edited = explorer.inside.edit(run, image, layer, k, binary=binary, edits=ChannelEdits.parse(edits))
        return {
            "picture": data_url(signal(edited.after, edited.scale * edited.weaker)),
            "weaker": edited.weaker,
            "correlation": edited.correlation,
            "difference": data_url(signal(edited.difference)),
            "largest": edited.largest,
            "stronger": edited.stronger,
            "classes": edited.classes,
        }

    @router.get("/clusters", response_model=answers.Clusters)
    def clusters(
        run: Name,
        image: Name,
        layer: Name,
        k: PatternCount | None = None,
        groups: Annotated[int, Query(ge=1, le=12)] = CLUSTERS,
    ) -> dict[str, Any]:
        coloured, members = explorer.inside.clusters(run, image, layer, k, groups)
        return {"picture": data_url(coloured), "groups": members}

    @router.get("/transplant", response_model=answers.Transplant)
    def transplant(
        run: Name,
        source: Name,
        target: Name,
        layer: Name,
        k: ChannelCount | None = None,
        path: Literal["source", "target", "none"] = "none",
        difference: bool = False,
    ) -> dict[str, Any]:
        """The target's features at the source's places, and what the network says of the image and of the map. With
        ``difference`` also what was changed, the image less the source."""
        made, verdicts = explorer.transplant(run, source, target, layer, k, path)
        change = None
        if difference:
            values = made - explorer.view(run).pixels(explorer.image(run, source))[0]
            scale = scale_of(values)
            change = {"picture": data_url(signal(values, scale)), "scale": scale}
        return verdicts | {"picture": data_url(picture(made)), "change": change}

    return router
