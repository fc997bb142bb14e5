"""Tokens of transformers as maps, for images that are not square."""

import pytest
import torch
from torch import nn

from bort import explain
from bort.invert import Backtracker, grid_of


def timm_vit(**options):
    timm = pytest.importorskip("timm")
    return timm.models.VisionTransformer(
        (64, 64), 16, num_classes=3, embed_dim=24, depth=2, num_heads=3, dynamic_img_size=True, **options
    ).eval(), "blocks.1"


def hugging_face_vit(size):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        **{"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 48},
        image_size=size,
        patch_size=16,
    )
    model = transformers.ViTForImageClassification(config).eval()
    return model, next(name for name, module in model.named_modules() if name.endswith("layernorm"))


@pytest.mark.parametrize("size", [(32, 128), (64, 128), (128, 32), (64, 64)])
@pytest.mark.parametrize("kind", ["timm", "registers", "hugging face"])
def test_grids_follow_the_image(kind, size):
    """32 × 128 has as many patches as 64 × 64, in 2 rows of 8."""
    if kind == "hugging face":
        model, layer = hugging_face_vit(size)
    else:
        model, layer = timm_vit(reg_tokens=4 if kind == "registers" else 0)
    x = torch.randn(2, 3, *size)
    grid = Backtracker(model, layer).trace(x).grid
    assert grid.shape == (24, size[0] // 16, size[1] // 16)
    assert grid.prefix == (5 if kind == "registers" else 1)
    assert explain.map_layers(model, x)[layer].shape == grid.shape
    assert explain.cam(model, x, layer=layer).shape == (2, *size)


def test_cam_and_sat_look_at_a_block_of_tokens():
    """Not at the patch embedding, which is the last layer whose map needs no guess."""
    model, _ = timm_vit()
    x = torch.randn(1, 3, 64, 128)
    assert explain.top_layer(model, x) not in ("patch_embed", "patch_embed.proj")
    assert explain.top_layer(model, x, deciding=True).startswith(("blocks.1", "norm"))
    assert explain.sat(model, x, k=2).shape == (1, 64, 128)


def test_merged_patches():
    """Half as many tokens in each direction, as in hierarchical transformers: no tokens before them."""
    model = nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.Flatten(2))
    x = torch.randn(1, 3, 16, 64)
    assert grid_of(model, "1", torch.randn(1, 16, 5), x).shape == (5, 2, 8)
    assert grid_of(model, "1", torch.randn(1, 64, 5), x).shape == (5, 4, 16)
    assert grid_of(model, "1", torch.randn(1, 16, 5)).shape == (5, 4, 4), "without the images it is a guess"
