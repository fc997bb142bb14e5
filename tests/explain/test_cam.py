"""CAM in closed form."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from bort import explain, nets


class Head(nn.Module):
    def __init__(self, pool):
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(2, 6, 3, padding=1)
        self.fc = nn.Linear(6, 4)
        self.pool = pool

    def forward(self, x):
        z = F.relu(self.conv(x))
        return self.fc(z.mean(dim=(2, 3)) if self.pool == "average" else z.amax(dim=(2, 3)))


@pytest.mark.parametrize("pool", ["average", "maximum"])
def test_cam_is_the_weighted_sum_of_the_map(pool):
    net, x = Head(pool).double(), torch.randn(3, 2, 9, 9, dtype=torch.float64)
    z = F.relu(net.conv(x))
    for target in (None, 2, torch.tensor([0, 3, 1])):
        classes = net(x).argmax(dim=1) if target is None else torch.as_tensor(target).expand(3)
        expected = torch.einsum("nc,nchw->nhw", net.fc.weight[classes], z)
        torch.testing.assert_close(explain.cam(net, x, target), expected)


def test_cam_of_acnn_base_is_the_channel_of_the_class():
    """It has no head: its classes are the channels of the last map."""
    torch.manual_seed(0)
    net = nets.create("acnn-base", classes=5, image_size=32, width=0.05).double()
    x = torch.rand(2, 3, 32, 32, dtype=torch.float64)
    net.conv12.bias.data += 1
    maps = F.interpolate(net.features(x)[:, 3:4], (32, 32), mode="bilinear", align_corners=False)[:, 0]
    torch.testing.assert_close(explain.cam(net, x, 3, layer="conv12"), maps)
