"""Programs that measure the package from a checkout. README.md lists the question that each one answers."""
