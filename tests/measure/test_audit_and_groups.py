"""One rule: what the audit lists is what `param_groups` constrains, and what it leaves out by name."""

import pytest

from bort import audit, nets, param_groups


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("timm/swin_tiny_patch4_window7_224", {"image_size": 64, "depths": (1, 1, 1, 1), "window_size": 2}),
        ("timm/mixer_s32_224", {"image_size": 64}),
        ("timm/deit_tiny_patch16_224", {"image_size": 64, "depth": 2}),
        ("timm/convnext_atto", {"image_size": 64}),
        ("acnn-small", {"width": 0.05}),
    ],
)
def test_the_difference_is_the_classifier_with_its_reason(name, options):
    pytest.importorskip("timm")
    model = nets.create(name, **options)
    decisions = {decision.name: decision for decision in param_groups(model).decisions}
    rows = [layer.name for layer in audit(model)]
    constrained = [name for name, decision in decisions.items() if decision.constrained]
    assert [row for row in rows if row in constrained] == constrained
    others = [row for row in rows if row not in constrained]
    assert len(others) == 1
    assert decisions[others[0]].reason.startswith("excluded by ")
