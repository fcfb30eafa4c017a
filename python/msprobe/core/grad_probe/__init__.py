"""The gradient tool of msprobe 1.0 to 8."""
