"""A channel of a layer: what excites it, over the test images."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from bort.app import _answers_channel as answers
from bort.app._atlas_store import Atlas
from bort.app._channel import ChannelFacts, dead, most_alike
from bort.app._exceptions import Busy
from bort.app._explorer import Explorer
from bort.app._export import data_url
from bort.app._parameters import Name, Start
from bort.pictures import signal

Channel = Annotated[int, Query(ge=0, le=1_000_000)]


def routes(explorer: Explorer) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/atlas", response_model=answers.AtlasStatus)
    def atlas(run: Name, layer: Name, again: bool = False) -> dict[str, Any]:
        """How far the layer's atlas is, and its dead channels. The first time it is begun; ``again`` begins anew after a
        failure."""
        job = explorer.atlases(run, layer, again=again)
        return {
            "state": job.state,
            "message": job.message,
            "known": job.atlas.known,
            "images": job.atlas.images,
            "dead": dead(job.atlas),
        }

    @router.get("/channel", response_model=answers.ChannelPage)
    def channel(run: Name, layer: Name, channel: Channel, known: Start | None = None) -> dict[str, Any]:
        """What the layer's atlas says of a channel: all that is known so far, or of the first ``known`` images. The atlas is
        begun, as by /api/atlas."""
        facts = ChannelFacts(_atlas(explorer, run, layer, known), layer, channel, known)
        return facts.described(explorer.view(run))

    @router.get("/portrait", response_model=answers.PortraitAnswer)
    def portrait(run: Name, layer: Name, channel: Channel, known: Start) -> dict[str, Any]:
        """The places that excite a channel most, its patterns there, and what the network says without it: of the first
        ``known`` images of the layer's atlas."""
        facts = ChannelFacts(_atlas(explorer, run, layer, known), layer, channel, known)
        made = explorer.portraits(run, layer, channel, facts)
        return {
            "places": [
                {
                    "image": f"test-{place.number}",
                    "value": place.value,
                    "box": place.box,
                    "pattern": data_url(signal(place.pattern, made.scale)),
                }
                for place in made.places
            ],
            "mean": None if made.mean is None else data_url(signal(made.mean)),
            "is_whole": made.is_whole,
            "changes": made.changes,
        }

    @router.get("/alike", response_model=answers.Alike)
    def alike(
        run: Name, layer: Name, channel: Channel, other: Name, other_layer: Name, known: Start | None = None
    ) -> dict[str, Any]:
        """The channel of another run's layer that the same images excite: of all that both atlases know, or of the first
        ``known``. They are begun, as by /api/atlas."""
        own, beside = _atlas(explorer, run, layer, known), _atlas(explorer, other, other_layer, known)
        ChannelFacts(own, layer, channel)  # a channel that is not there is an error
        found = most_alike(own, channel, beside, known)
        return {
            "known": min(one for one in (own.known, beside.known, known) if one is not None),
            "channel": None if found is None else found[0],
            "correlation": None if found is None else found[1],
        }

    return router


def _atlas(explorer: Explorer, run: str, layer: str, known: int | None) -> Atlas:
    """With ``known`` images at least: a page may ask for those of one that the server has let go of."""
    atlas = explorer.atlases(run, layer).atlas
    if known is not None and min(known, atlas.images) > atlas.known:
        raise Busy(f"The test images are being looked at again for {layer} of {run}; try again in a moment.")
    return atlas
