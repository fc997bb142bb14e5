import torch

from bort.invert import correlation


def test_correlation_is_pearsons_image_by_image():
    one, other = torch.randn(3, 2, 4, 4), torch.randn(3, 2, 4, 4)
    expected = [torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1] for a, b in zip(one, other, strict=True)]
    torch.testing.assert_close(correlation(one, other), torch.stack(expected))
    torch.testing.assert_close(correlation(one, 3 * one + 5), torch.ones(3))
    assert correlation(one, torch.ones_like(one)).tolist() == [0, 0, 0], "a flat image is like none"
