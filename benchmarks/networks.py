"""Small networks of many architectures, with random weights: what benchmarks/architectures.py looks at.

The smallest published variants, or the published classes with fewer layers and channels. Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

CLASSES = 5


@dataclass(frozen=True)
class Architecture:
    """A network and the images that it takes."""

    name: str
    kind: str
    """What it stands for."""
    build: Callable[[], nn.Module]
    shape: tuple[int, int, int] = (3, 64, 64)
    """channels, height, width"""

    def network(self) -> nn.Module:
        """In float64 and training mode, so that it shows whether modes come back; with statistics of BatchNorm that fit its
        weights, and with a last layer that is not 0: otherwise there is nothing to explain."""
        torch.manual_seed(0)
        net = self.build().double()
        for module in net.modules():
            if isinstance(module, (nn.Linear, nn.Conv2d)) and not module.weight.any():
                nn.init.normal_(module.weight, std=0.05)
        _fit_statistics(net, images(16, self.shape, seed=1))
        return net.train()


def images(count: int, shape: tuple[int, int, int], seed: int = 0) -> Tensor:
    """Smooth blobs, so that there is something to segment and to recognise."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(count, shape[0], 6, 6, generator=generator, dtype=torch.float64)
    return F.interpolate(coarse, shape[1:], mode="bilinear", align_corners=False)


def _fit_statistics(net: nn.Module, x: Tensor) -> None:
    layers = [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    net.eval()
    for layer in layers:
        layer.train()
        layer.momentum = None
    with torch.no_grad():
        net(x)
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum


def _bort(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        from bort import nets

        return nets.create(name, channels=3, classes=CLASSES, image_size=32, **options)

    return build


def _torchvision(name: str, *arguments: Any, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import torchvision

        net: nn.Module = getattr(torchvision.models, name)(*arguments, num_classes=CLASSES, **options)
        return net

    return build


def _resnet() -> nn.Module:
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=CLASSES)


def _vgg() -> nn.Module:
    """With a small classifier: its own has 120 million weights."""
    from torchvision.models.vgg import VGG, make_layers

    net = VGG(make_layers([16, "M", 32, "M", 64, 64, "M"]), init_weights=False)
    net.classifier = nn.Sequential(nn.Linear(64 * 7 * 7, 64), nn.ReLU(True), nn.Dropout(), nn.Linear(64, CLASSES))
    return net


def _torchvision_convnext() -> nn.Module:
    from torchvision.models import ConvNeXt
    from torchvision.models.convnext import CNBlockConfig

    stages = [CNBlockConfig(16, 32, 1), CNBlockConfig(32, 64, 1), CNBlockConfig(64, None, 1)]
    return ConvNeXt(stages, num_classes=CLASSES)


def _timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import timm

        net: nn.Module = timm.create_model(name, num_classes=CLASSES, **options)
        return net

    return build


def _norm_free() -> nn.Module:
    from timm.models.nfnet import NfCfg, NormFreeNet

    return NormFreeNet(NfCfg(depths=(1, 1, 1, 1), channels=(32, 64, 128, 256)), num_classes=CLASSES)


def _timm_class(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import timm

        net: nn.Module = getattr(timm.models, name)(num_classes=CLASSES, **options)
        return net

    return build


def _hugging_face(name: str, head: str = "ForImageClassification", **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import transformers

        config = getattr(transformers, f"{name}Config")(num_labels=CLASSES, **options)
        net: nn.Module = getattr(transformers, name + head)(config)
        return net

    return build


def _segmentation() -> nn.Module:
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    return lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=CLASSES)


_THIN = {"layers": (1, 1, 1, 1), "channels": (16, 32, 64, 128)}
_ENCODER = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 96}
_VIT = {**_ENCODER, "image_size": 64, "patch_size": 16}
_SWIN = {"patch_size": 4, "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
_PYRAMID = {"hidden_sizes": [16, 32, 40, 64], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 5, 8]}
_STAGES = {"hidden_sizes": [16, 32, 64], "depths": [1, 1, 1]}

ARCHITECTURES = (
    Architecture("bort lenet", "plain", _bort("lenet"), (3, 32, 32)),
    Architecture("bort acnn-small", "plain", _bort("acnn-small", width=0.02), (3, 32, 32)),
    Architecture("torchvision VGG", "plain", _vgg),
    Architecture("torchvision squeezenet1_1", "plain, concatenations", _torchvision("squeezenet1_1")),
    Architecture("torchvision ResNet", "residual", _resnet),
    Architecture("torchvision ResNet, 64 × 96", "residual", _resnet, (3, 64, 96)),
    Architecture(
        "timm resnet26, 4 channels", "residual, bottlenecks", _timm("resnet26", in_chans=4, **_THIN), (4, 64, 64)
    ),
    Architecture("timm seresnext26d_32x4d", "residual, grouped, SE", _timm("seresnext26d_32x4d", layers=(1, 1, 1, 1))),
    Architecture("timm NormFreeNet", "residual, standardized weights", _norm_free),
    Architecture("torchvision DenseNet", "dense", _torchvision("DenseNet", 8, (2, 2, 2, 2), 16)),
    Architecture("torchvision googlenet", "inception", _torchvision("googlenet", init_weights=False)),
    Architecture("torchvision mobilenet_v2", "depthwise", _torchvision("mobilenet_v2", width_mult=0.25)),
    Architecture("torchvision mobilenet_v3_small", "depthwise, SE", _torchvision("mobilenet_v3_small")),
    Architecture("torchvision shufflenet_v2_x0_5", "depthwise, shuffled", _torchvision("shufflenet_v2_x0_5")),
    Architecture("torchvision mnasnet0_5", "depthwise", _torchvision("mnasnet0_5")),
    Architecture("torchvision efficientnet_b0", "depthwise, SE", _torchvision("efficientnet_b0")),
    Architecture("timm regnety_002", "grouped, SE", _timm("regnety_002")),
    Architecture("torchvision ConvNeXt", "ConvNeXt", _torchvision_convnext),
    Architecture("torchvision ConvNeXt, 64 × 96", "ConvNeXt", _torchvision_convnext, (3, 64, 96)),
    Architecture("timm convnext_atto", "ConvNeXt", _timm("convnext_atto", depths=(1, 1, 1, 1), dims=(16, 32, 64, 128))),
    Architecture("torchvision VisionTransformer", "ViT", _torchvision("VisionTransformer", 64, 16, 2, 3, 48, 96)),
    Architecture(
        "timm VisionTransformer",
        "ViT",
        _timm_class("VisionTransformer", img_size=64, patch_size=16, embed_dim=48, depth=2, num_heads=3),
    ),
    Architecture(
        "timm deit_tiny_distilled", "DeiT", _timm("deit_tiny_distilled_patch16_224", img_size=64, depth=2, embed_dim=48)
    ),
    Architecture(
        "torchvision SwinTransformer, 64 × 96",
        "Swin, channels last",
        _torchvision("SwinTransformer", [4, 4], 24, [2, 2], [2, 4], [4, 4]),
        (3, 64, 96),
    ),
    Architecture(
        "timm SwinTransformer",
        "Swin, channels last",
        _timm_class("SwinTransformer", img_size=64, **_SWIN),
    ),
    Architecture(
        "timm MlpMixer", "MLP-Mixer", _timm_class("MlpMixer", img_size=64, patch_size=16, num_blocks=2, embed_dim=48)
    ),
    Architecture("timm mobilevit_xxs", "hybrid", _timm("mobilevit_xxs")),
    Architecture("timm vit_tiny_r_s16_p8", "hybrid", _timm("vit_tiny_r_s16_p8_224", img_size=64, depth=2)),
    Architecture("timm pvt_v2_b0, 64 × 96", "pyramid of tokens", _timm("pvt_v2_b0", depths=(1, 1, 1, 1)), (3, 64, 96)),
    Architecture(
        "timm hiera_tiny", "tokens in windows", _timm("hiera_tiny_224", img_size=64, stages=(1, 1, 1, 1), embed_dim=48)
    ),
    Architecture("transformers ViT", "ViT", _hugging_face("ViT", **_VIT)),
    Architecture("transformers DeiT", "DeiT", _hugging_face("DeiT", "ForImageClassificationWithTeacher", **_VIT)),
    Architecture("transformers BEiT", "BEiT", _hugging_face("Beit", **_VIT)),
    Architecture(
        "transformers DINOv2", "ViT", _hugging_face("Dinov2", **_ENCODER, image_size=56, patch_size=14), (3, 56, 56)
    ),
    Architecture("transformers Swin", "Swin", _hugging_face("Swin", image_size=64, **_SWIN)),
    Architecture("transformers ConvNeXt", "ConvNeXt", _hugging_face("ConvNext", num_stages=3, **_STAGES)),
    Architecture("transformers ResNet", "residual", _hugging_face("ResNet", embedding_size=16, **_STAGES)),
    Architecture("transformers MobileNetV2", "depthwise", _hugging_face("MobileNetV2", depth_multiplier=0.35)),
    Architecture("transformers PVT", "pyramid of tokens", _hugging_face("Pvt", image_size=64, **_PYRAMID)),
    Architecture("transformers SegFormer", "pyramid of tokens", _hugging_face("Segformer", **_PYRAMID)),
    Architecture(
        "a linear model", "no maps", lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, CLASSES)), (3, 32, 32)
    ),
    Architecture("torchvision lraspp", "segmentation", _segmentation),
    Architecture("transformers ViTModel", "features", _hugging_face("ViT", "Model", **_VIT)),
    Architecture(
        "transformers BERT", "tokens", _hugging_face("Bert", "ForSequenceClassification", vocab_size=64, **_ENCODER)
    ),
)
