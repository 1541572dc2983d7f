"""The fitted model: one frozen value, its checks, and the training rows that its memories stand for."""
