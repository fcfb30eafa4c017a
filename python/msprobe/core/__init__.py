"""What the fronts of all frameworks share; module paths of msprobe 1.0 to 8 that scripts import."""
