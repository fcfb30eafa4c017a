"""Module paths of msprobe 26: key data of a training, saved by name and compared."""
