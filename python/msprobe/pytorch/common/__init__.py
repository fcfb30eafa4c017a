"""Module paths of the older tools that frameworks import."""
