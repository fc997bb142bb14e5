"""Bort in a plain PyTorch script: one line differs. Runs in seconds on a CPU.

python examples/plain_pytorch.py
"""

import torch
from torch import nn

import bort

torch.manual_seed(0)
x = torch.randn(2048, 32)
y = (x @ torch.randn(32, 5)).argmax(dim=1)  # a linear teacher

model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
groups = bort.param_groups(model, constraint=1.0, exclude=("4.*",))  # all but the classifier
print(groups, end="\n\n")
# instead of torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9):
optimizer = bort.BortS(groups, lr=0.05, momentum=0.9)

for epoch in range(10):
    for batch in torch.randperm(len(x)).split(64):
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    distances = ", ".join(f"{name} {distance:.3f}" for name, distance in optimizer.residuals().items())
    print(f"epoch {epoch + 1:2}: loss {loss.item():.3f}, distance to the constraint: {distances}")

print("\n", bort.audit(model, x), sep="")
