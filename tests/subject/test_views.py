"""How other libraries' networks see an image, against these libraries' own transforms."""

import numpy as np
import pytest
import torch
from PIL import Image

from bort.data import View
from bort.subject import Details, resolve


def photograph(height=190, width=260):
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("name", ["resnet18", "test_vit", "test_efficientnet"])
def test_timm(name):
    import timm

    view = resolve(f"timm/{name}").view
    config = timm.data.resolve_model_data_config(timm.create_model(name))
    expected = timm.data.create_transform(**config)(photograph(400, 330))
    torch.testing.assert_close(view(photograph(400, 330))[0], expected)
    assert view.name(0) == "tench"


def test_a_head_of_its_own_has_no_names_of_imagenet(tmp_path):
    (tmp_path / "names.json").write_text('["a", "b"]')
    subject = resolve("timm/test_resnet", Details(classes=tmp_path / "names.json"))
    assert subject.view.class_names == ("a", "b")
    assert subject.model.num_classes == 2


def test_torchvision():
    from torchvision.models import ResNet18_Weights

    view = resolve("torchvision.models:resnet18").view
    expected = ResNet18_Weights.DEFAULT.transforms(antialias=True)(photograph(400, 300))
    # torchvision resizes the shorter side to 256 and cuts out 224, as we do by the part 224/256.
    torch.testing.assert_close(view(photograph(400, 300))[0], expected)
    assert view.class_names[:2] == ("tench", "goldfish")


def hugging_face(kind, folder, **more):
    """A small classifier as `save_pretrained` writes it."""
    import transformers as t

    small = {"num_labels": 3, "id2label": {0: "cat", 1: "dog", 2: "cow"}, "label2id": {"cat": 0, "dog": 1, "cow": 2}}
    if kind == "vit":
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        config = t.ViTConfig(**sizes, image_size=32, patch_size=8, **small, **more)
        model = t.ViTForImageClassification(config)
        processor = t.ViTImageProcessorPil(size={"height": 32, "width": 32})
    elif kind == "resnet":
        config = t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], **small)
        model = t.ResNetForImageClassification(config)
        processor = t.ConvNextImageProcessorPil(size={"shortest_edge": 32}, crop_pct=0.875)
    else:
        config = t.MobileNetV2Config(image_size=32, depth_multiplier=0.35, **small)
        model = t.MobileNetV2ForImageClassification(config)
        processor = t.MobileNetV2ImageProcessorPil(size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32})
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return model, processor


@pytest.mark.parametrize("kind", ["vit", "resnet", "mobilenet"])
def test_hugging_face(kind, tmp_path):
    model, processor = hugging_face(kind, tmp_path)
    subject = resolve(f"hf:{tmp_path}")
    expected = processor(photograph(), return_tensors="pt")["pixel_values"]
    ours = subject.view(photograph())
    assert ours.shape == expected.shape
    # Their own resizing may round sides and levels otherwise, by one.
    assert (ours - expected).abs().mean() < 0.05
    assert subject.view.class_names == ("cat", "dog", "cow")
    torch.testing.assert_close(subject.model(ours).logits, model.eval()(ours).logits)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A function: the folder of a checkpoint with this image processor."""
    folder = tmp_path_factory.mktemp("checkpoint")
    hugging_face("vit", folder)

    def with_processor(kind, **options):
        import transformers

        processor = getattr(transformers, f"{kind}ImageProcessorPil")(**options)
        processor.save_pretrained(folder)
        return folder, processor

    return with_processor


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Beit", {}),
        ("Bit", {}),
        ("CLIP", {}),
        ("ConvNext", {"size": {"shortest_edge": 64}}),
        ("ConvNext", {"size": {"shortest_edge": 384}}),  # squeezed, without a crop
        ("MobileNetV1", {}),
        ("PoolFormer", {}),
        ("PoolFormer", {"crop_pct": 0.95}),  # which leaves odd margins: libraries round their halves otherwise
        ("Pvt", {}),
        ("Segformer", {}),
        ("Siglip", {}),
    ],
)
def test_image_processors(checkpoint, kind, options):
    folder, processor = checkpoint(kind, **options)
    image = photograph(9, 12).resize((710, 500))  # smooth, so that a shift by a pixel is little
    expected = processor(image, return_tensors="pt")["pixel_values"]
    ours = resolve(f"hf:{folder}").view(image)
    assert ours.shape == expected.shape
    assert (ours - expected).abs().max() < 0.5, "with another crop or scale it would be above 2"


@pytest.mark.parametrize(
    ("kind", "options", "why"),
    [
        ("MobileViT", {}, "values up to"),  # the colours in the order blue, green, red
        ("EfficientNet", {}, "values up to"),  # normalised twice
        ("DeiT", {}, "values up to"),  # squeezed, then cropped
        ("Levit", {}, "values up to"),  # enlarged by 256/224 before the crop
        ("Perceiver", {}, r"3×224×224, not 3×256×256"),  # cropped before it is resized
        ("ViT", {"do_rescale": False}, "values up to"),
        ("ViT", {"do_resize": False}, "not 3×224×224"),
        ("ViT", {"size": {"longest_edge": 32}}, "is neither height and width nor a shortest edge"),
        ("ViT", {"size": {"longest_edge": 32}, "do_center_crop": True, "crop_size": 28}, "is neither height and width"),
        ("ViT", {"resample": 0}, "resizes by Pillow's filter 0, not bilinear or bicubic"),
    ],
)
def test_image_processors_that_do_something_else_are_refused(checkpoint, kind, options, why):
    folder, _ = checkpoint(kind, **options)
    with pytest.raises(
        ValueError, match=f"does not say how its network sees an image .*{why}.*give size, mean and std"
    ):
        resolve(f"hf:{folder}")
    given = Details(size=(32,), mean=(0.5,) * 3, std=(0.5,) * 3)
    assert resolve(f"hf:{folder}", given).view == View(32, 3, (0.5,) * 3, (0.5,) * 3)


def test_an_image_processor_of_grey_images(tmp_path):
    _, processor = hugging_face("vit", tmp_path, num_channels=1)
    processor.image_mean, processor.image_std = (0.4,), (0.2,)
    processor.save_pretrained(tmp_path)
    expected = processor(photograph().convert("L"), return_tensors="pt")["pixel_values"]
    assert torch.equal(resolve(f"hf:{tmp_path}").view(photograph()), expected)


def test_hugging_face_without_a_processor(tmp_path):
    hugging_face("vit", tmp_path)
    (tmp_path / "preprocessor_config.json").unlink(missing_ok=True)
    (tmp_path / "processor_config.json").unlink(missing_ok=True)
    with pytest.raises(
        ValueError, match=r"does not say how its network sees an image .*give size, mean and std, the last"
    ):
        resolve(f"hf:{tmp_path}")
    subject = resolve(f"hf:{tmp_path}", Details(size=(32,), mean=(0.5,) * 3, std=(0.5,) * 3))
    assert subject.view == View(32, 3, (0.5,) * 3, (0.5,) * 3)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="holds no image classifier that transformers can read"):
        resolve(f"hf:{tmp_path}")


def test_what_is_given_comes_before_what_is_known():
    details = Details(size=(64, 96), mean=(0.1, 0.2, 0.3), std=(1.0, 1.0, 1.0))
    view = resolve("timm/resnet18", details).view
    assert (view.size, view.mean, view.std) == ((64, 96), (0.1, 0.2, 0.3), (1.0, 1.0, 1.0))
    assert view.interpolation == "bicubic"
    assert resolve("timm/resnet18", Details(mean=(0.5,), std=(0.5,))).model.conv1.in_channels == 1
