"""Every file format that two parts of the package share: runs, sweeps, audits, checkpoints; and atomic files."""
