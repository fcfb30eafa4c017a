"""Module paths of msprobe 1.0 to 8 that scripts import."""
