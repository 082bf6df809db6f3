"""How generations are run: compiled on the device (`xla`), or around a plain Python objective (`host`)."""
