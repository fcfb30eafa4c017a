"""Module paths of the older tools that programs import."""
