"""The simulator: a federation on one machine, reproducible to the byte."""
