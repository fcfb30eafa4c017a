"""Small real PyTorch programs: build(seed) -> (model, batch), loss(model, batch) -> scalar."""
