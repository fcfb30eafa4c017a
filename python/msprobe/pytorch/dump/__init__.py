"""Module paths of msprobe 26."""
