"""write.py OUT SEED PLANT: five steps of a small model under task grad_probe of msprobe 1.0.4."""
import json, sys, os
out, seed, plant = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
import torch
import torch.nn as nn, torch.nn.functional as F
from msprobe.pytorch import PrecisionDebugger
torch.set_num_threads(1); torch.manual_seed(seed)
json.dump({"task":"grad_probe","dump_path":out,"rank":[],"step":[],"level":"L1","grad_probe":{"grad_level":"L1"}}, open(out+".json","w"))
class Net(nn.Module):
    def __init__(s):
        super().__init__(); s.a=nn.Linear(5,7); s.b=nn.Linear(7,6); s.c=nn.Linear(6,3); s.scale=nn.Parameter(torch.ones(()))
    def forward(s,x): return s.c(torch.relu(s.b(torch.relu(s.a(x)))*s.scale))
m=Net(); x=torch.randn(9,5); t=torch.randint(3,(9,))
opt=torch.optim.SGD(m.parameters(),lr=.3)
d=PrecisionDebugger(out+".json")
d.monitor(m)
for i in range(5):
    opt.zero_grad(); F.cross_entropy(m(x),t).backward()
    if plant and i>=3: m.b.weight.grad[::2] *= -1
    opt.step()
