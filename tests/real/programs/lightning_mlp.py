"""A LightningModule with dropout, batch norm, a scheduler and gradient clipping."""

import lightning
import torch
import torch.nn.functional as F


class Classifier(lightning.LightningModule):
    def __init__(self, run):
        super().__init__()
        self.run = run
        self.net = torch.nn.Sequential(
            torch.nn.Linear(16, 32),
            torch.nn.BatchNorm1d(32),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.2),
            torch.nn.Linear(32, 4),
        )

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        x, y = batch
        return F.cross_entropy(self(x), y, label_smoothing=0.1)

    def on_train_batch_start(self, *_):
        self.run.begin(self)

    def on_train_batch_end(self, *_):
        self.run.end()

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9, nesterov=True)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


def train(run):
    x, y = torch.randn(8 * run.steps, 16), torch.randint(4, (8 * run.steps,))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
    model = Classifier(run)
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        gradient_clip_val=0.5,
        default_root_dir=run.scratch,
    )
    trainer.fit(model, loader)
    return model.net
