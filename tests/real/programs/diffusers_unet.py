"""A UNet and a noise scheduler of diffusers."""

import torch
from diffusers import DDPMScheduler, UNet2DModel


def train(run):
    model = UNet2DModel(
        sample_size=16,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8,
        attention_head_dim=8,
    )
    scheduler = DDPMScheduler(num_train_timesteps=50)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(run.steps):
        images, noise = torch.randn(2, 1, 16, 16), torch.randn(2, 1, 16, 16)
        times = torch.randint(50, (2,))
        with run.recorded(model):
            noisy = scheduler.add_noise(images, noise, times)
            loss = torch.nn.functional.mse_loss(model(noisy, times).sample, noise)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return model
