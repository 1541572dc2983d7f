"""Measurements that the documentation quotes: each module prints what it found and stores it."""
