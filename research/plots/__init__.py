"""Pictures that only studies draw. Arrays in, axes or figures out, as in `mnemosphere.plots`."""
