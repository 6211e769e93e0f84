"""Small data, made on the spot."""

import torch
from torch.utils.data import TensorDataset


def blobs(count: int, num_features: int = 16, num_classes: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(num_classes, num_features, generator=torch.Generator().manual_seed(99))
    labels = torch.randint(num_classes, (count,), generator=generator)
    return centres[labels] + torch.randn(count, num_features, generator=generator), labels


def pictures(count: int, size: int = 12, num_classes: int = 4, seed: int = 0, channels: int = 1) -> TensorDataset:
    flat, labels = blobs(count, channels * size * size, num_classes, seed)
    return TensorDataset(flat.view(-1, channels, size, size), labels)


def table(count: int, num_features: int = 16, num_classes: int = 4, seed: int = 0) -> TensorDataset:
    return TensorDataset(*blobs(count, num_features, num_classes, seed))


def waves(count: int, length: int = 24, seed: int = 0) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    phases = torch.rand(count, 1, generator=generator) * 6.28
    speeds = 0.2 + torch.rand(count, 1, generator=generator) * 0.4
    series = torch.sin(phases + speeds * torch.arange(length + 4)) + 0.05 * torch.randn(
        count, length + 4, generator=generator
    )
    return TensorDataset(series[:, :length, None], series[:, length:])


def tokens(count: int, length: int = 17, vocabulary: int = 16, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randint(1, 4, (count, 1), generator=generator)
    starts = torch.randint(vocabulary, (count, 1), generator=generator)
    return (starts + steps * torch.arange(length)) % vocabulary
