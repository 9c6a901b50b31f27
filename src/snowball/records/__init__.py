"""The file formats that several parts of the package share: runs, sweeps, audits and checkpoints; and atomic files."""
